"""The QCG PilotJob Manager: its requests, answers, events and files, in the specification's dialect and in 0.14.2's.

`registry` keeps what is known of each job, `manager` turns requests and facts into answers and instructions, `answers`
and `report` say things in both dialects, `launch` prepares a task for the nodes it was given, `tracker` is what a
resumed manager reads. None of these does input or output; `world` and `service` do.
"""

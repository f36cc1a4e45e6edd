"""The words of the house: jobs, resources, events, decisions, states, errors. Nothing here waits or does I/O.

All dates and durations are seconds as floats; `inf` stands for "no limit". Other units end a name (`_bytes`, `_w`, `_mb`).
"""

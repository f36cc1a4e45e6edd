"""The QCG PilotJob Manager: that of the specification and, as a drop-in for qcg-pm-service, that of 0.14.2.

    run, options           put a manager together        service      the manager as a World, with its network and files
    manager                requests in, answers out      job_queue, registry    jobs from request to end
    executor, bundles      jobs go to the live world     job_command     the command of a job on its cores
    files, resume          what a manager leaves, and going on from it
    governor, governor_service    a manager of managers     client_command    qcg-pm

Requests are read by formats/qcg_requests.py and come through protocols/qcg/network.py. What differs between the two dialects is a
table, formats/qcg_dialect.py.
"""

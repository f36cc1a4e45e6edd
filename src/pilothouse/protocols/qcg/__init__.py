"""The network interface of QCG PilotJob Managers: JSON requests and answers over ZeroMQ, and published events.

    network    the manager's end: a REP socket for requests, a PUB socket for events
    client     the other end: ask a manager, follow its events; register with a governor and notify it

What requests mean is read by formats/qcg_requests.py; dropins/qcg answers them.
"""

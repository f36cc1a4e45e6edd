"""What disBatch's users, monitors and scripts meet: its command, its key-value service, its status file, its script.

    kvs.py           the store: a queue of values per key, readers that wait, keys that watch other keys (sans-IO)
    kvs_wire.py      the bytes of its protocol: requests in, replies out (sans-IO)
    kvs_server.py    the service: sockets around the two; redis_shelf.py keeps its values in a Redis
    kvs_client.py    a client for tasks and tests; batcher.py: disBatch's class for Python programs
    status_file.py   lines of the status file: written, read, used to resume
    status_json.py   what monitors find under the key "DisBatch status"
    bridge.py        between a live run and the service: status, barriers, results, requests, task sources
    options.py       the command line; layout.py: nodes and cylinders by disBatch's rules; names.py: names of files
    context.py       engines over ssh and srun; utility.py: the script that adds a context
    run.py           a run of the drop-in; run_service.py: what of all this `pilothouse run` offers too
"""

"""Services for the tasks of a run: the key-value service, which speaks disBatch's protocol.

    key_values.py    the service of one run: its address, its secret, its barriers
    kvs.py           the store: a queue of values per key, readers that wait, keys that watch other keys (no IO)
    kvs_wire.py      the bytes of the protocol: requests in, replies out (no IO)
    kvs_server.py    sockets around the two; redis_shelf.py keeps the values in a Redis
    kvs_client.py    a client for tasks
"""

"""What disBatch's users, monitors and scripts meet: its key-value service, its status file, its utility script.

    kvs.py          the store: a queue of values per key, readers that wait, keys that watch other keys (sans-IO)
    kvs_wire.py     the bytes of its protocol: requests in, replies out (sans-IO)
    kvs_server.py   the service: sockets around the two
    kvs_client.py   a client for tasks and tests
    redis_shelf.py  the store's values in a Redis
    status_file.py  lines of the status file: written, read, used to resume
    status_json.py  what monitors find under the key "DisBatch status"
    utility.py      the generated <prefix>_dbUtil.sh
"""

"""The key-value service: our server with our client and with disBatch's own, on a memory shelf and in a real Redis."""

from __future__ import annotations

import functools
import json
import pickle
import queue
import random
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import components
from pilothouse.access.peer import keeps_owners
from pilothouse.model.errors import PeerError
from pilothouse.worlds.live.services.kvs import JSON, KeyValueStore, Reader, Value
from pilothouse.worlds.live.services.kvs_client import KvsClient
from pilothouse.worlds.live.services.kvs_server import KvsServer, nobody
from pilothouse.worlds.live.services.redis_shelf import RedisShelf
from storms.put_and_close import put_and_close


@pytest.fixture(params=["memory", "redis"])
def server(request: pytest.FixtureRequest) -> Iterator[KvsServer]:
    shelf = None
    if request.param == "redis":
        redis: components.RedisServer = request.getfixturevalue("redis_server")
        shelf = RedisShelf(redis.url, f"run[{request.node.name}]*")
    with KvsServer(shelf=shelf) as running:
        yield running


def test_values_queue_up_and_readers_wait(server: KvsServer) -> None:
    with KvsClient(server.address) as one, KvsClient(server.address) as two:
        one.put("k", b"1")
        one.put("k", b"\x00\xff", b"BINA")
        assert two.view("k") == Value(b"BINA", b"\x00\xff")
        assert two.get("k") == Value(b"ASTR", b"1")
        assert two.get("k").data == b"\x00\xff"
        got: queue.Queue[bytes] = queue.Queue()
        waiting = threading.Thread(target=lambda: got.put(two.get("later").data))
        waiting.start()
        server.put("later", b"now")
        assert got.get(timeout=20) == b"now"
        waiting.join()


def test_large_values_pass(server: KvsServer) -> None:
    data = bytes(range(256)) * 40_000
    with KvsClient(server.address) as client:
        client.put("big", data)
        assert client.get("big").data == data


def test_the_driver_listens_to_a_key(server: KvsServer) -> None:
    heard: queue.Queue[bytes] = queue.Queue()
    with KvsClient(server.address) as client:
        client.put("to driver", b"early")
        assert client.view("to driver").data == b"early"
        server.listen("to driver", lambda value: heard.put(value.data))
        client.put("to driver", b"late")
        assert [heard.get(timeout=20), heard.get(timeout=20)] == [b"early", b"late"]


def test_the_value_of_a_reader_that_left_goes_to_the_next(server: KvsServer) -> None:
    with socket.create_connection((server.host, server.port)) as leaving:
        leaving.sendall(b"get_         1k" + b"clos")
        assert leaving.recv(10) == b""
    with KvsClient(server.address) as client:
        client.put("k", b"v")
        assert client.get("k").data == b"v"


def test_nonsense_costs_only_its_own_connection(server: KvsServer) -> None:
    with KvsClient(server.address) as good:
        with socket.create_connection((server.host, server.port)) as bad:
            bad.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert bad.recv(10) == b""
        good.put("k", b"v")
        assert good.get("k").data == b"v"


def test_without_the_secret_nothing_is_told() -> None:
    with KvsServer(secret="s3cret") as server:
        server.put("k", b"v")
        for secret in ("", "wrong"):
            with KvsClient(server.address, secret=secret) as client, pytest.raises((PeerError, ConnectionError)):
                client.get("k")
        with KvsClient.from_environment(
            {"DISBATCH_KVSSTCP_HOST": server.address, "PILOTHOUSE_KVS_SECRET": "s3cret"}
        ) as client:
            assert client.get("k").data == b"v"


@pytest.mark.skipif(not keeps_owners(), reason="needs Linux 6.17: earlier ones forget the owner of a closed socket")
def test_what_a_client_puts_before_it_closes_at_once_is_kept(client_env: Callable[[str], Path]) -> None:
    """disBatch's own client, while the service has no time to look at its connections."""
    outcome = put_and_close(client_env("disbatch"), 40, load=4)
    assert (outcome.lost, outcome.refused) == (0, 0)


def test_a_value_that_cannot_be_judged_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with KvsServer(secret="s3cret", trusts=nobody) as server, KvsClient(server.address) as client:
        client.put("mine", b"v")
        with pytest.raises((PeerError, ConnectionError)):
            client.get("mine")
    assert "a value for the key 'mine' was dropped" in caplog.text


def test_a_redis_that_goes_away_costs_values_not_the_service(tmp_path: Path) -> None:
    redis = components.start_redis(tmp_path)
    with KvsServer(shelf=RedisShelf(redis.url, "run")) as server:
        with KvsClient(server.address) as client:
            client.put("k", b"v")
            assert client.view("k").data == b"v"
            redis.stop()
            server.put("k", b"lost")
            with pytest.raises((PeerError, ConnectionError)):
                client.get("k")
        waiting = KvsClient(server.address)
        waiting.watch("w", "k:p")
        waiting.close()
    with pytest.raises(PeerError, match="Redis at"):
        RedisShelf(redis.url, "run")


def test_it_listens_on_loopback_only_by_default() -> None:
    with KvsServer() as server:
        assert server.address.startswith("127.0.0.1:")


CLIENT = """
import json, sys
from disbatch.kvsstcp import KVSClient
kvs = KVSClient(sys.argv[1])
kvs.put('python', {'a': [1, 2]})
kvs.put('text', 'one', False)
kvs.put('text', 'two', False)
monitor = kvs.clone()
monitor.monkey('events', 'text:g')
out = {
    'json': json.loads(kvs.view('DisBatch status')),
    'python': kvs.get('python'),
    'view': kvs.view('text').decode(),
    'get': kvs.get('text').decode(),
    'nothing': kvs._get_nb('absent', False, 0.05),
}
kvs.socket = kvs._real_socket()
out['event'] = monitor.get('events', False).decode()
out['dump'] = [str(part) for part in monitor.dump()[2]]
kvs.close()
monitor.close()
print(json.dumps(out))
"""


def test_disbatchs_own_client_is_served(server: KvsServer, client_env: Callable[[str], Path]) -> None:
    server.replace("DisBatch status", b"<Starting...>")
    server.replace("DisBatch status", b'{"more": "x"}', JSON)
    command = [client_env("disbatch"), "-c", CLIENT, server.address]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    dump = told.pop("dump")
    assert told.pop("json") == {"more": "x"}
    assert told.pop("python") == {"a": [1, 2]}
    assert told == {"view": "two", "get": "one", "nothing": None, "event": "get text"}
    assert "(b'text', 1, (b'ASTR', b'two'))" in dump


THEIR_STORE = """
import json, sys
from disbatch.kvsstcp.kvsstcp import KVS, KVSWaiter
answers = []
for steps in json.load(sys.stdin):
    store, told, waiters = KVS(), [], {}
    for number, (op, key, which) in enumerate(steps):
        if op == 'put':
            store.put(key.encode(), (memoryview(b'ASTR'), memoryview(str(number).encode())))
        elif op == 'cancel':
            if which in waiters:
                store.cancel_wait(waiters.pop(which))
        else:
            name = b'get_' if op == 'get' else b'view'
            waiters[number] = KVSWaiter(name, key.encode(), lambda v, n=number: told.append([n, int(bytes(v[1]))]))
            store.wait(waiters[number])
    counts = [store.opCounts[name] for name in (b'get', b'put', b'view', b'wait')]
    answers.append([told, counts + [store.ac, store.rc]])
json.dump(answers, sys.stdout)
"""


def test_the_store_answers_as_disbatchs_own_does(client_env: Callable[[str], Path]) -> None:
    rng = random.Random(11)
    stories = [
        [
            (rng.choice(["put", "put", "get", "view", "cancel"]), rng.choice("ab"), rng.randrange(max(1, number)))
            for number in range(rng.randint(1, 30))
        ]
        for _ in range(300)
    ]
    command = [client_env("disbatch"), "-c", THEIR_STORE]
    ran = subprocess.run(command, input=json.dumps(stories), capture_output=True, text=True, check=True, timeout=60)
    for story, (told, counts) in zip(stories, json.loads(ran.stdout), strict=True):
        assert play(story) == (told, counts), story


def play(story: list[tuple[str, str, int]]) -> tuple[list[list[int]], list[int]]:
    """The same story in our store: which reader got which value, and the store's counters."""
    store = KeyValueStore()
    told: list[list[int]] = []
    readers: dict[int, Reader] = {}
    for number, (op, key, which) in enumerate(story):
        if op == "put":
            store.put(key.encode(), Value(b"ASTR", str(number).encode()))
        elif op == "cancel":
            if which in readers:
                store.cancel(readers.pop(which))
        else:
            deliver = functools.partial(lambda n, value: told.append([n, int(value.data)]), number)
            readers[number] = Reader(key.encode(), op == "get", deliver)
            store.read(readers[number])
    return told, pickle.loads(store.dump())[0]

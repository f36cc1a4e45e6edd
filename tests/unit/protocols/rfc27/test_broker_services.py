"""The broker's own services as a client beside the scheduler sees them: keys, damaged requests, priorities, partial frees."""

from __future__ import annotations

import errno

import pytest

from pilothouse.formats import fluid
from pilothouse.protocols.rfc27 import frames, rpc
from pilothouse.protocols.rfc27 import payloads as p
from pilothouse.protocols.rfc27.frames import Message
from pilothouse.protocols.rfc27.rpc import Caller
from unit.protocols.rfc27.pair import Pair, of_owner

CLIENT = 77


@pytest.fixture
def pair() -> Pair:
    made = Pair(nodes=2, cores=4, gpus=2)
    made.connect()
    made.broker.join(CLIENT, "client")
    return made


def ask(pair: Pair, topic: str, payload: object) -> Message:
    """The one answer to a request of the owner."""
    text = payload if isinstance(payload, bytes) else p.encode(payload)
    pair.broker.receive(pair.now, CLIENT, of_owner(rpc.request(topic, text, matchtag=9)))
    [answer] = [message for peer, message in pair.broker.take() if peer == CLIENT]
    return answer


def commit(pair: Pair, key: str, value: bytes | None) -> Message:
    entry = None if value is None else {"ver": 1, "type": "val", "data": p.encoded_value(value)}
    return ask(pair, "kvs.commit", {"namespace": "primary", "ops": [{"key": key, "flags": 0, "dirent": entry}], "flags": 0})


@pytest.mark.parametrize("topic", ["kvs.lookup", "kvs.commit", "job-info.lookup"])
@pytest.mark.parametrize("payload", [b"[]", b"{", b'{"key": 3}'])
def test_a_damaged_request_is_answered_with_an_error(pair: Pair, topic: str, payload: bytes) -> None:
    answer = ask(pair, topic, payload)
    assert answer.errnum == errno.EPROTO
    assert any("malformed payload" in warning for warning in pair.manager.warnings)


def test_keys_are_written_read_and_removed(pair: Pair) -> None:
    assert pair.broker.read("resource.x") is None
    assert commit(pair, "resource.x", b"one").errnum == 0
    assert pair.broker.read("resource.x") == b"one"
    assert commit(pair, "resource.x", None).errnum == 0
    assert pair.broker.read("resource.x") is None
    assert ask(pair, "kvs.lookup", {"key": "resource.x", "namespace": "primary", "flags": 0}).errnum == errno.ENOENT


def test_what_was_committed_and_what_is_held_can_be_read(pair: Pair) -> None:
    job_id = pair.submit(1)
    key = fluid.kvs_key(job_id, "R")
    commit(pair, key, b'{"version":1}\0')
    assert pair.broker.read(key) == b'{"version":1}'
    pair.settle()
    held = pair.broker.read(key)
    assert held is not None
    assert b"R_lite" in held
    assert held == pair.manager.jobs[job_id].resources


def test_many_priorities_are_set_at_once(pair: Pair) -> None:
    pair.submit(8)
    pair.settle()
    low, high = pair.submit(8), pair.submit(8)
    pair.settle()
    pair.manager.prioritize(pair.now, [(low, 3), (high, 7)])
    assert [pair.manager.jobs[job].priority for job in (low, high)] == [3, 7]
    heard = len(pair.heard)
    pair.manager.prioritize(pair.now, [(low, 3), (high, 7), (99 << 24, 1)])
    pair.settle()
    assert "sched.prioritize" not in [message.topic for message in pair.heard[heard + 1 :]]


def test_requests_stream_only_where_that_is_asked_for() -> None:
    caller = Caller()
    once = caller.call("a.b", None, lambda answer: None)
    stream = caller.call("a.b", None, lambda answer: None, streaming=True)
    assert once.flags == rpc.request("a.b", None, matchtag=1).flags
    assert stream.flags == once.flags | frames.STREAMING
    assert once.matchtag != stream.matchtag

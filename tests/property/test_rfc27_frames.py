"""RFC 3 frames and RFC 6 rules: round trips in any slicing, and no byte string that breaks a reader."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.model.idset import IdSet
from pilothouse.protocols.rfc27 import frames, rpc
from pilothouse.protocols.rfc27.broker import Broker
from pilothouse.protocols.rfc27.frames import BadFrame, Message, StreamReader
from pilothouse.protocols.rfc27.manager import Manager
from pilothouse.protocols.rfc27.scheduler import SchedulerEngine
from unit.protocols.rfc27.pair import Pair, of_owner

U32 = st.integers(0, 2**32 - 1)
MESSAGES = st.builds(
    Message,
    type=st.sampled_from([frames.REQUEST, frames.RESPONSE, frames.EVENT, frames.CONTROL]),
    topic=st.text("abc.-", max_size=20),
    payload=st.none() | st.binary(max_size=600),
    matchtag=U32,
    aux1=U32,
    flags=st.sampled_from([0, frames.NORESPONSE, frames.STREAMING, frames.STREAMING | frames.PRIVATE]),
    routes=st.none() | st.lists(st.binary(min_size=1, max_size=40), max_size=4).map(tuple),
    userid=U32,
    rolemask=U32,
)


@given(st.lists(MESSAGES, min_size=1, max_size=5), st.lists(st.integers(1, 300), max_size=30))
def test_messages_survive_any_slicing(messages: list[Message], cuts: list[int]) -> None:
    stream = b"".join(map(frames.encode, messages))
    reader, found, start = StreamReader(), [], 0
    for cut in cuts:
        found += reader.feed(stream[start : start + cut])
        start += cut
    found += reader.feed(stream[start:])
    assert found == messages


@given(MESSAGES)
def test_messages_survive_as_parts(message: Message) -> None:
    assert frames.from_parts(frames.to_parts(message)) == message


def test_the_bytes_are_those_that_flux_sends() -> None:
    """A request as the events describe it: magic in host order, big-endian length and header, NUL after topic and JSON."""
    message = rpc.request("job-manager.sched-ready", b'{"mode":"unlimited"}', matchtag=3)
    body = (
        b"\x18job-manager.sched-ready\0"
        b'\x15{"mode":"unlimited"}\0'
        b"\x14\x8e\x01\x01\x03\xff\xff\xff\xff\0\0\0\0\xff\xff\xff\xff\0\0\0\x03"
    )
    assert frames.encode(message) == struct.pack("=I", 0xFFEE0012) + struct.pack(">I", len(body)) + body


def test_a_response_through_a_broker_as_flux_of_2020_and_of_today_write_it() -> None:
    header = b"\x8e\x01\x02" + bytes([frames.ROUTE | frames.TOPIC | frames.STREAMING]) + struct.pack(">IIII", 5, 1, 61, 2)
    for ending in (b"\0", b""):
        parts = [b"", b"job-manager.sched-hello" + ending, header]
        found = frames.from_parts(parts)
        assert isinstance(found, Message)
        assert (found.topic, found.routes, found.errnum, found.matchtag) == ("job-manager.sched-hello", (), 61, 2)


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    reader = StreamReader()
    for found in reader.feed(data) + reader.feed(data):
        assert isinstance(found, Message | BadFrame)


@given(st.binary(max_size=200))
def test_no_body_breaks_the_decoder(data: bytes) -> None:
    framed = struct.pack("=I", 0xFFEE0012) + struct.pack(">I", len(data)) + data
    good = rpc.request("a.b", b"{}")
    found = StreamReader().feed(framed + frames.encode(good))
    # one bad message in a sound frame does not end the stream
    assert len(found) == 2 and found[1] == good


@given(st.data())
def test_a_damaged_message_is_noticed_or_read_but_never_breaks(data: st.DataObject) -> None:
    stream = bytearray(frames.encode(data.draw(MESSAGES)))
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    StreamReader().feed(bytes(stream))


def test_an_oversize_message_is_refused_before_it_is_read() -> None:
    head = struct.pack("=I", 0xFFEE0012) + struct.pack(">I", frames.MOST_MESSAGE_BYTES + 1)
    (found,) = StreamReader().feed(head)
    assert isinstance(found, BadFrame) and found.fatal and "more than" in found.problem
    (small,) = StreamReader(most_bytes=10).feed(frames.encode(rpc.request("topic", b"x" * 20)))
    assert isinstance(small, BadFrame) and small.fatal


def test_a_stream_without_the_magic_is_given_up() -> None:
    reader = StreamReader()
    (found,) = reader.feed(b"GET / HTTP/1.1\r\n")
    assert isinstance(found, BadFrame) and found.fatal
    assert reader.feed(frames.encode(rpc.request("a.b"))) == []


JSON_LIKE = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([b"{}", b"[]", b"null", b'{"id":"x"}', b'{"id":1}', b'{"id":1,"priority":-1,"userid":0}',
                     b'{"id":-1,"type":0}', b'{"id":1,"type":0,"R":{}}', b'{"jobs":[[1]]}', b'{"jobs":7}',
                     b'{"id":1,"priority":1,"userid":0,"jobspec":{"version":1}}', b"[" * 2000]),
)  # fmt: skip
TOPICS = st.sampled_from(
    ["sched.alloc", "sched.free", "sched.cancel", "sched.prioritize", "sched.expiration", "sched.quiesce", "sched.what",
     "sched.resource-status", "feasibility.check", "job-manager.sched-hello", "job-manager.sched-ready",
     "job-manager.raise", "kvs.commit", "kvs.lookup", "service.add", "service.remove", "resource.acquire", "attr.get",
     "log.append", "broker.ping", "x", "event.subscribe", "sched.disconnect"]
)  # fmt: skip
RANDOM = st.builds(
    Message,
    type=st.sampled_from([frames.REQUEST, frames.RESPONSE, frames.EVENT]),
    topic=TOPICS,
    payload=st.none() | JSON_LIKE.map(lambda body: body + b"\0"),
    matchtag=st.integers(0, 3),
    aux1=st.sampled_from([0, 0, 38, 61, 71, frames.NODE_ANY]),
    flags=st.sampled_from([0, frames.NORESPONSE, frames.STREAMING]),
    rolemask=st.sampled_from([0, frames.ROLE_OWNER, 2]),
    routes=st.none() | st.sampled_from([(), (b"job-manager",), (b"1", b"2"), (b"77",), (b"x",)]),
)


@given(st.lists(RANDOM, max_size=12))
def test_no_message_breaks_the_scheduler(messages: list[Message]) -> None:
    engine = SchedulerEngine()
    engine.begin()
    for message in messages:
        engine.receive(message)
        for answer in engine.take():
            frames.encode(answer)


@pytest.mark.parametrize("topic", ["sched.alloc", "sched.free", "sched.cancel"])
def test_a_negative_job_id_is_told_and_survived(topic: str) -> None:
    pair = Pair()
    pair.connect()
    known = len(pair.engine.warnings)
    payload = b'{"id":-7,"priority":1,"userid":0,"t_submit":0.0}'
    pair.engine.receive(of_owner(rpc.request(topic, payload, matchtag=5)))
    assert ">= 0" in "".join(pair.engine.warnings[known:])


@given(st.lists(st.tuples(st.integers(1, 2), RANDOM), max_size=12))
def test_no_message_breaks_broker_and_manager_and_no_job_is_lost(messages: list[tuple[int, Message]]) -> None:
    manager = Manager()
    broker = Broker(manager, b'{"version":1,"execution":{"R_lite":[]}}', IdSet())
    broker.join(1, "one")
    broker.join(2, "two")
    broker.receive(0.0, 1, rpc.request("service.add", b'{"service":"sched"}', matchtag=1))
    broker.receive(0.0, 1, rpc.request("job-manager.sched-ready", b'{"mode":"unlimited"}', matchtag=1))
    manager.submit(0.0, 1, b"{}")
    broker.dispatch(0.0)
    for peer, message in messages:
        broker.receive(1.0, peer, message)
        broker.dispatch(1.0)
        for _, answer in broker.take():
            frames.encode(answer)
    assert (1 in manager.jobs) != (1 in manager.inactive)


# ---- RFC 6


def test_a_response_copies_topic_matchtag_and_routes() -> None:
    asked = Message(frames.REQUEST, "a.b", None, 9, frames.NODE_ANY, frames.STREAMING, (b"r1", b"r2"))
    for said in (rpc.respond(asked, b"{}"), rpc.respond_error(asked, 5, "no")):
        assert (said.topic, said.matchtag, said.routes) == ("a.b", 9, (b"r1", b"r2"))
        assert said.streaming


def test_a_streaming_call_ends_with_its_first_error() -> None:
    caller, heard = rpc.Caller(), []
    asked = caller.call("resource.acquire", None, heard.append, streaming=True)
    for _ in range(3):
        assert caller.take(rpc.respond(asked, b"{}", streaming=True))
    assert caller.take(rpc.respond_error(asked, errno.ENODATA))
    assert not caller.take(rpc.respond(asked, b"{}", streaming=True))
    assert [message.errnum for message in heard] == [0, 0, 0, errno.ENODATA]
    assert not caller._open


def test_matchtags_are_unique_among_open_calls_and_used_again() -> None:
    caller = rpc.Caller()
    open_calls = [caller.call("a.b", None, lambda message: None) for _ in range(5)]
    assert len({message.matchtag for message in open_calls}) == 5 and 0 not in {m.matchtag for m in open_calls}
    assert caller.take(rpc.respond(open_calls[2]))
    assert not caller.take(rpc.respond(open_calls[2]))
    assert caller.call("a.b", None, lambda message: None).matchtag == open_calls[2].matchtag


@pytest.mark.parametrize("payload", [b"text of an error", b""])
def test_an_error_carries_text(payload: bytes) -> None:
    said = rpc.respond_error(rpc.request("a.b", matchtag=1), 22, payload.decode())
    assert said.text() == payload.decode() and said.errnum == 22

"""RFC 3 messages at their limits: each is a BadFrame with its reason, and one below the limit is read."""

from __future__ import annotations

import struct

import pytest

from pilothouse.protocols.rfc27 import frames
from pilothouse.protocols.rfc27.frames import MOST_ROUTES, MOST_TOPIC_BYTES, BadFrame, Message, StreamReader


def header(flags: int, kind: int = frames.REQUEST, magic: int = 0x8E, version: int = 1) -> bytes:
    return struct.pack(">BBBBIIII", magic, version, kind, flags, 1, 2, 3, 4)


def problem(*parts: bytes) -> str:
    found = frames.from_parts(parts)
    assert isinstance(found, BadFrame)
    return found.problem


def test_parts_in_their_order() -> None:
    found = frames.from_parts([b"r1", b"r2", b"", b"a.b\0", b"{}\0", header(frames.ROUTE | frames.TOPIC | frames.PAYLOAD)])
    assert isinstance(found, Message)
    assert (found.type, found.topic, found.payload, found.routes) == (frames.REQUEST, "a.b", b"{}\0", (b"r1", b"r2"))
    assert (found.userid, found.rolemask, found.aux1, found.matchtag) == (1, 2, 3, 4)


def test_what_is_wrong_is_said() -> None:
    assert "20 bytes" in problem() == problem(b"x" * 19) == problem(b"x" * 21)
    assert "8e 01" in problem(header(0, magic=0x8F)) and "8e 01" in problem(header(0, version=2))
    assert "message type 3" in problem(header(0, kind=3))
    assert "empty part" in problem(b"r1", header(frames.ROUTE))
    assert problem(header(frames.TOPIC)) == problem(b"", header(frames.TOPIC)) == "no topic where the flags promise one"
    assert "topic" in problem(b"t" * (MOST_TOPIC_BYTES + 1), header(frames.TOPIC))
    assert "UTF-8" in problem(b"\xff", header(frames.TOPIC))
    assert "payload" in problem(header(frames.PAYLOAD))
    assert problem(b"x", header(0)) == "1 parts too many"


@pytest.mark.parametrize(("count", "fits"), [(MOST_ROUTES, True), (MOST_ROUTES + 1, False)])
def test_the_number_of_routes(count: int, fits: bool) -> None:
    found = frames.from_parts([*([b"r"] * count), b"", header(frames.ROUTE)])
    if fits:
        assert isinstance(found, Message) and found.routes == (b"r",) * count
        assert frames.decode(frames.encode(found)[8:]) == found
    else:
        assert isinstance(found, BadFrame) and f"{MOST_ROUTES} routes" in found.problem
    assert MOST_TOPIC_BYTES > 0 and isinstance(frames.from_parts([b"t" * MOST_TOPIC_BYTES, header(frames.TOPIC)]), Message)


@pytest.mark.parametrize("size", [0, 1, 253, 254, 255, 256, 70_000])
def test_parts_of_any_length(size: int) -> None:
    message = Message(frames.REQUEST, "a.b", b"x" * size, 9, 7, 0, None, 1, 2)
    assert frames.decode(frames.encode(message)[8:]) == message
    reader = StreamReader()
    stream = frames.encode(message) * 2
    assert reader.feed(stream[:11]) == [] and reader.feed(stream[11:]) == [message, message]


def test_bodies_that_are_cut_off() -> None:
    body = frames.encode(Message(frames.REQUEST, "a.b", b"x" * 300, 0, 0, 0, None, 0, 0))[8:]
    assert body[5:6] == b"\xff"
    for end in range(6, 10):
        found = frames.decode(body[:end])
        assert isinstance(found, BadFrame) and "cut off" in found.problem
    for end in (3, 10, len(body) - 1):
        found = frames.decode(body[:end])
        assert isinstance(found, BadFrame) and "longer than its message" in found.problem
    crowd = b"\x01r" * (MOST_ROUTES + 5)
    found = frames.decode(crowd)
    assert isinstance(found, BadFrame) and found.problem == "too many parts"
    found = frames.decode(b"\x01r" * (MOST_ROUTES + 4))
    assert isinstance(found, BadFrame) and found.problem != "too many parts"

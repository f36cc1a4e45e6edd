"""Requests and responses of RFC 6: matchtags, streams, errors; and the payloads and frames below them."""

from __future__ import annotations

import errno
import struct

import pytest

from pilothouse.protocols.rfc27 import frames, rpc
from pilothouse.protocols.rfc27 import payloads as p
from pilothouse.protocols.rfc27.frames import BadFrame, Message, StreamReader
from pilothouse.protocols.rfc27.rpc import Caller


def test_matchtags_count_from_one_and_are_used_again() -> None:
    caller, heard = Caller(), list[Message]()
    tags = [caller.call(f"t{number}", None, heard.append).matchtag for number in range(3)]
    assert tags == [1, 2, 3]
    second = Message(frames.RESPONSE, "t1", None, 2, 0)
    assert caller.take(second) and heard == [second]
    assert not caller.take(second), "it was answered"
    assert caller.call("t3", None, heard.append).matchtag == 2 and caller.call("t4", None, heard.append).matchtag == 4
    assert not caller.take(Message(frames.RESPONSE, "", None, 0, 0)) and not caller.take(Message(frames.RESPONSE, "", None, 9, 0))
    caller.forget(9)
    caller.forget(4)
    caller.forget(4)
    assert [caller.call("t", None, heard.append).matchtag for _ in range(2)] == [4, 5]


def test_a_stream_ends_with_an_error_or_a_plain_response() -> None:
    for errnum, flags in ((errno.ENODATA, frames.STREAMING), (0, 0)):
        last = Message(frames.RESPONSE, "s", None, 1, errnum, flags)
        caller, heard = Caller(), list[Message]()
        request = caller.call("s", b"{}", heard.append, streaming=True)
        assert request.streaming and request.payload == b"{}\0" and request.type == frames.REQUEST
        part = rpc.respond(request, b"1")
        assert part.streaming and all(caller.take(part) for _ in range(3))
        assert caller.take(last) and not caller.take(part)
        assert heard == [part, part, part, last]
    caller = Caller()
    plain = caller.call("s", None, heard.append)
    assert not plain.streaming and plain.payload is None
    assert caller.take(Message(frames.RESPONSE, "s", None, 1, 0, frames.STREAMING)) and not caller.take(rpc.respond(plain))


def test_when_the_peer_is_gone_every_request_gets_an_error() -> None:
    caller, heard = Caller(), list[Message]()
    for topic in ("a", "b"):
        caller.call(topic, None, heard.append)
    caller.forget(2)
    caller.call("c", None, heard.append)
    caller.fail_all(errno.ECANCELED)
    assert [(m.type, m.matchtag, m.errnum) for m in heard] == [(frames.RESPONSE, tag, errno.ECANCELED) for tag in (1, 2)]
    assert caller.call("d", None, heard.append).matchtag == 1 and caller.call("e", None, heard.append).matchtag == 2
    assert not caller.take(Message(frames.RESPONSE, "", None, 3, 0))


def test_responses_copy_what_leads_back() -> None:
    asked = Message(frames.REQUEST, "t", b"{}\0", 7, 3, frames.STREAMING | frames.PRIVATE, (b"r",), 5, 1)
    found = rpc.respond(asked, b"x")
    assert (found.type, found.topic, found.payload, found.matchtag, found.errnum, found.flags, found.routes) == (
        frames.RESPONSE, "t", b"x\0", 7, 0, frames.STREAMING, (b"r",),
    )  # fmt: skip
    asked.flags = frames.PRIVATE
    assert rpc.respond(asked).flags == 0 and rpc.respond(asked).payload is None
    assert rpc.respond(asked, streaming=True).flags == frames.STREAMING
    error = rpc.respond_error(asked, errno.EPERM, "no")
    assert (error.errnum, error.payload, error.flags, error.routes) == (errno.EPERM, b"no\0", 0, (b"r",))
    assert rpc.respond_error(asked, errno.EPERM).payload is None
    assert [rpc.error_text(rpc.respond_error(asked, number, text)) for number, text in ((1, "no"), (1, ""), (9999, ""))] == [
        "EPERM: no", "EPERM", "9999",
    ]  # fmt: skip
    request = rpc.request("t", b"{}", matchtag=4, flags=frames.NORESPONSE)
    assert (request.aux1, request.matchtag, request.errnum, request.wants_response) == (frames.NODE_ANY, 4, 0, False)
    assert rpc.request("t").wants_response and not rpc.respond(asked).wants_response


def test_bodies_and_roles() -> None:
    for payload, body in ((None, b""), (b"", b""), (b"\0", b""), (b"a\0", b"a"), (b"a", b"a"), (b"a\0\0", b"a\0")):
        assert Message(frames.REQUEST, "t", payload).body() == body
    assert Message(frames.RESPONSE, "t", b"\xff\0").text() == "\ufffd"
    assert [Message(frames.REQUEST, "t", rolemask=mask).of_owner for mask in (0, 1, 2, 3)] == [False, True, False, True]


def test_only_the_flags_of_messages_are_kept() -> None:
    every = Message(frames.REQUEST, "t", b"x", 1, 2, 0xFF, (b"r",), 3, 4)
    found = frames.from_parts(frames.to_parts(every))
    assert isinstance(found, Message)
    assert found.flags == frames.NORESPONSE | frames.UPSTREAM | frames.PRIVATE | frames.STREAMING
    bare = Message(frames.EVENT, "", None, 1, 2, 0, None, 3, 4)
    assert frames.to_parts(bare) == [struct.pack(">BBBBIIII", 0x8E, 1, frames.EVENT, 0, 3, 4, 2, 1)]
    assert frames.from_parts(frames.to_parts(bare)) == bare
    assert frames.to_parts(Message(frames.CONTROL, "t", b"", routes=()))[:-1] == [b"", b"t\0", b""]


def test_streams_are_read_byte_by_byte_and_in_either_order_of_bytes() -> None:
    messages = [rpc.request(f"topic{number}", b"x" * number, matchtag=number) for number in (3, 300, 0)]
    stream = b"".join(map(frames.encode, messages))
    reader, found = StreamReader(), list[Message | BadFrame]()
    for index in range(len(stream)):
        found += reader.feed(stream[index : index + 1])
    assert found == messages and reader.feed(b"") == []
    swapped = stream[:4][::-1] + stream[4:]
    assert StreamReader().feed(swapped) == messages
    assert frames.encode(messages[0])[:4] == struct.pack("=I", 0xFFEE0012)
    assert frames.encode(messages[0])[4:8] == struct.pack(">I", len(frames.encode(messages[0])) - 8)


def test_after_a_fatal_mistake_nothing_more_is_read() -> None:
    good = frames.encode(rpc.request("t"))
    reader = StreamReader()
    first, second = reader.feed(good + b"\0" * 8 + good)
    assert isinstance(first, Message) and isinstance(second, BadFrame) and second.fatal and "00000000" in second.problem
    assert reader.feed(good) == []
    for most, fits in ((len(good) - 8, True), (len(good) - 9, False)):
        (found,) = StreamReader(most).feed(good)
        assert isinstance(found, Message) is fits


def test_values_of_the_kvs() -> None:
    assert p.value_of(p.Dirent(1, "val", p.encoded_value(b"abc"))) == b"abc"
    for dirent in (p.Dirent(1, "dir", "YWJj"), p.Dirent(1, "val", 3), p.Dirent(1, "val", "YW*j")):
        with pytest.raises(p.PayloadError):
            p.value_of(dirent)
    commit = p.decode(p.commit_values([("a", b"1"), ("b", b"2")]), p.CommitRequest)
    assert [(op.key, op.flags, op.dirent and p.value_of(op.dirent)) for op in commit.ops] == [("a", 0, b"1"), ("b", 0, b"2")]
    assert p.decode(p.lookup_payload("k"), p.LookupRequest) == p.LookupRequest("k")
    with pytest.raises(p.PayloadError):
        p.decode(b'{"key":"\xff"}', p.LookupRequest)
    asked = p.decode(b'{"id":1,"priority":2,"userid":3,"surplus":4}', p.AllocRequest)
    assert (asked.t_submit, bytes(asked.jobspec)) == (0.0, b"")
    freed = p.decode(b'{"id":1}', p.FreeRequest)
    assert not freed.final and not bytes(freed.R), "without R it is the whole job, with R and without final a part"
    with pytest.raises(p.PayloadError):
        p.decode(b'{"id":-1}', p.JobOnly)


def test_messages_that_are_too_long_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    message = rpc.request("t", b"x" * 300)
    size = len(frames.encode(message)) - 8
    monkeypatch.setattr(frames, "MOST_MESSAGE_BYTES", size)
    assert len(frames.encode(message)) == size + 8
    monkeypatch.setattr(frames, "MOST_MESSAGE_BYTES", size - 1)
    with pytest.raises(ValueError, match=f"a message of {size} bytes, more than {size - 1}"):
        frames.encode(message)

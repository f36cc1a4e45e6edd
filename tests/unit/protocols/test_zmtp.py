"""Our REQ against libzmq's own sockets, and the wire byte by byte."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.model.errors import InputError, PeerError
from pilothouse.protocols.request_socket import RequestChannel, RequestSocket
from pilothouse.protocols.zmtp import CHUNK, GREETING, READY, Reader, WireError, request_of

MOST = 1 << 20
READY_REP = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03REP"


def ready(extra: bytes = b"") -> Reader:
    reader = Reader(MOST)
    reader.feed(GREETING + READY_REP + extra)
    return reader


@given(st.lists(st.binary(max_size=700), min_size=1, max_size=4), st.data())
def test_answers_are_read_however_they_are_cut(bodies: list[bytes], data: st.DataObject) -> None:
    stream = GREETING + READY_REP + b"".join(map(request_of, bodies))
    reader, heard = Reader(MOST), []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        reader.feed(stream[:cut])
        stream = stream[cut:]
        while (message := reader.message()) is not None:
            heard.append(message)
    assert heard == [[b"", body] for body in bodies]
    assert reader.is_clean


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "is no ZeroMQ socket"),
        (b"\xff" + bytes(8) + b"\x7f\x01\x03", "speaks the protocol of a ZeroMQ older than 4"),
        (GREETING.replace(b"NULL\0", b"CURVE"), "asks for security (CURVE), which this protocol has none of"),
        (GREETING + READY_REP.replace(b"\x19", b"\x1a").replace(b"\x03REP", b"\x04PULL"), "is a PULL socket; expected REP"),
        (GREETING + request_of(b"early"), "is no ZeroMQ socket: it sent something before it was ready"),
        (GREETING + b"\x04\x0d\x05ERROR\x06go off", "refused the connection: go off"),
        (GREETING + READY_REP + b"\x02" + (1 << 40).to_bytes(8, "big"), f"sent a message of {1 << 40} bytes, more than {MOST}"),
    ],
)  # fmt: skip
def test_whoever_is_no_scheduler_is_named(stream: bytes, problem: str) -> None:
    reader = Reader(MOST)
    reader.feed(stream)
    with pytest.raises(WireError, match=re.escape(problem)):
        reader.message()


def test_a_peer_may_ask_whether_we_are_alive() -> None:
    reader = ready(b"\x04\x0a\x04PING\x00\x64abc" + request_of(b"answer"))
    assert reader.message() == [b"", b"answer"]
    assert reader.wants_pong == b"\x04\x08\x04PONGabc"


@contextmanager
def peer(endpoint: str, kind: int, behaviour: Callable[[zmq.Socket[bytes]], None], **options: int) -> Iterator[None]:
    """A socket of libzmq in a thread of its own."""
    bound = threading.Event()

    def run() -> None:
        with zmq.Context() as context, context.socket(kind) as link:
            link.linger = 2000
            for name, value in options.items():
                setattr(link, name, value)
            link.bind(endpoint)
            bound.set()
            behaviour(link)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert bound.wait(5)
    yield
    thread.join(10)
    assert not thread.is_alive()


def echo(times: int) -> Callable[[zmq.Socket[bytes]], None]:
    def behave(link: zmq.Socket[bytes]) -> None:
        for _ in range(times):
            link.send(link.recv())

    return behave


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("transport", ["ipc", "tcp", "abstract"])
def test_messages_of_all_sizes_go_both_ways(tmp_path: Path, transport: str) -> None:
    bodies = [b"x" * size for size in (1, 255, 256, 16_000, 70_000, 10_000_000)]
    endpoint = {
        "ipc": f"ipc://{tmp_path}/s", "tcp": f"tcp://127.0.0.1:{free_port()}", "abstract": f"ipc://@{tmp_path}",
    }[transport]  # fmt: skip
    with peer(endpoint, zmq.REP, echo(len(bodies))):
        channel = RequestChannel(endpoint.replace("127.0.0.1", "localhost"), "peer", timeout_s=20)
        assert [channel.exchange(body) for body in bodies] == bodies
        channel.close()


def test_a_peer_with_a_heartbeat_stays(tmp_path: Path) -> None:
    """Its answer comes later than it would wait for a sign of life."""
    endpoint = f"ipc://{tmp_path}/s"
    long_enough = threading.Event()

    def slow(link: zmq.Socket[bytes]) -> None:
        request = link.recv()
        long_enough.wait(0.5)
        link.send(request)

    with peer(endpoint, zmq.REP, slow, heartbeat_ivl=50, heartbeat_timeout=100):
        channel = RequestChannel(endpoint, "peer", timeout_s=20)
        assert channel.exchange(b"hello") == b"hello"
        channel.close()


@pytest.mark.parametrize(("kind", "name"), [(zmq.PULL, "PULL"), (zmq.PAIR, "PAIR"), (zmq.PUB, "PUB"), (zmq.REQ, "REQ")])
def test_a_socket_of_the_wrong_kind_is_named(tmp_path: Path, kind: int, name: str) -> None:
    endpoint = f"ipc://{tmp_path}/s"
    leave = threading.Event()
    with peer(endpoint, kind, lambda link: leave.wait(10) and None):
        channel = RequestChannel(endpoint, "peer", timeout_s=20)
        try:
            with pytest.raises(PeerError, match=f"peer: is a {name} socket; expected REP"):
                channel.exchange(b"{}")
        finally:
            channel.close()
            leave.set()


def test_a_server_of_another_kind_is_named(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{tmp_path}/s")
        listening.listen()

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(64)
                connection.sendall(b"220 mail.example.org ESMTP\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        channel = RequestChannel(f"ipc://{tmp_path}/s", "peer", timeout_s=20)
        with pytest.raises(PeerError, match="peer: is no ZeroMQ socket"):
            channel.exchange(b"{}")
        channel.close()
        thread.join(10)


def test_whoever_hangs_up_every_time_is_given_up(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{tmp_path}/s")
        listening.listen()

        def hang_up() -> None:
            while True:
                try:
                    listening.accept()[0].close()
                except OSError:
                    return

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        channel = RequestChannel(f"ipc://{tmp_path}/s", "peer")
        with pytest.raises(PeerError, match="peer: hangs up on us"):
            channel.exchange(b"{}")
        channel.close()
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def test_the_scheduler_may_come_later(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/s"
    channel = RequestChannel(endpoint, "peer", timeout_s=20)
    answers: list[bytes] = []
    asking = threading.Thread(target=lambda: answers.append(channel.exchange(b"who is there?")), daemon=True)
    asking.start()
    with peer(endpoint, zmq.REP, echo(1)):
        asking.join(10)
    channel.close()
    assert answers == [b"who is there?"]


@pytest.mark.parametrize(
    "endpoint", ["nonsense", "tcp://localhost", "tcp://:28000", "tcp://localhost:0", "ipc://", "inproc://a", "tcp://*:1"]
)
def test_endpoints_that_nobody_can_connect_to(endpoint: str) -> None:
    with pytest.raises(InputError, match=re.escape(repr(endpoint))):
        RequestSocket(endpoint, MOST)


def test_a_place_that_can_never_be_connected_to_is_told_at_once(tmp_path: Path) -> None:
    link = RequestSocket(f"ipc://{tmp_path}/{'long' * 40}", MOST)
    with pytest.raises(InputError, match="AF_UNIX path too long"):
        link.connect()


# ---- the wire, byte by byte


def test_requests_up_to_255_bytes_have_short_heads() -> None:
    assert request_of(b"") == b"\x01\x00\x00\x00"
    assert request_of(b"x" * 255) == b"\x01\x00\x00\xff" + b"x" * 255
    assert request_of(b"x" * 256) == b"\x01\x00\x02" + (256).to_bytes(8, "big") + b"x" * 256


def test_our_side_says_what_it_is() -> None:
    assert READY == b"\x04\x26\x05READY\x0bSocket-Type\x00\x00\x00\x03REQ\x08Identity\x00\x00\x00\x00"
    assert len(GREETING) == 64 and GREETING[:12] == b"\xff" + bytes(8) + b"\x7f\x03\x00" and GREETING[12:17] == b"NULL\0"


@pytest.mark.parametrize(
    ("place", "byte", "problem"),
    [(0, 0xFE, "is no ZeroMQ socket"), (9, 0x7E, "is no ZeroMQ socket"), (10, 2, "older than 4"), (10, 3, ""), (10, 4, "")],
)
def test_a_greeting_is_refused_at_its_first_wrong_byte(place: int, byte: int, problem: str) -> None:
    greeting = GREETING[:place] + bytes((byte,)) + GREETING[place + 1 :]
    reader = Reader(MOST)
    reader.feed(greeting[:place])
    assert reader.message() is None and not reader.greeted
    reader.feed(greeting[place : place + 1])
    if problem:
        with pytest.raises(WireError, match=problem):
            reader.message()
        return
    assert reader.message() is None
    reader.feed(greeting[place + 1 : -1])
    assert reader.message() is None and not reader.greeted
    reader.feed(greeting[-1:])
    assert reader.message() is None and reader.greeted and reader.is_clean


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        (b"\x0bSocket-Type\x00\x00\x00\x03REP", "REP"),
        (b"\x0bSOCKET-TYPE\x00\x00\x00\x06ROUTER", "ROUTER"),
        (b"\x01a\x00\x00\x00\x02bc\x0bSocket-Type\x00\x00\x00\x03REP\x08Identity\x00\x00\x00\x00", "REP"),
        (b"", "unknown"),
        (b"\x01a\x00\x00\x00\x02bc", "unknown"),
        (b"\x0bSocket-Type\x00\x00\x00\x06DEALER", "DEALER"),
    ],
)
def test_the_kind_of_a_peer_is_read_from_its_metadata(properties: bytes, kind: str) -> None:
    body = b"\x05READY" + properties
    reader = Reader(MOST)
    reader.feed(GREETING + b"\x04%c%b" % (len(body), body))
    if kind in ("REP", "ROUTER"):
        assert reader.message() is None and reader.peer_kind == kind
    else:
        with pytest.raises(WireError, match=f"is a {kind} socket; expected REP"):
            reader.message()


def test_messages_of_several_frames_and_commands_between_them() -> None:
    reader = ready(b"\x01\x01a\x04\x07\x04PING\0\0" + b"\x03" + (2).to_bytes(8, "big") + b"bb")
    assert reader.message() is None and not reader.is_clean, "more frames are to come"
    reader.feed(b"\x04\x00\x04\x08\x04PING\0\0x\x04\x04\x03odd\x00\x00")
    assert reader.message() == [b"a", b"bb", b""] and reader.is_clean
    assert reader.wants_pong == b"\x04\x05\x04PONG\x04\x06\x04PONGx"


def test_the_limit_of_a_message() -> None:
    reader = Reader(300)
    reader.feed(GREETING + READY_REP + b"\x02" + (300).to_bytes(8, "big") + b"x" * 299)
    assert reader.message() is None
    reader.feed(b"x")
    assert reader.message() == [b"x" * 300]
    reader.feed(b"\x02" + (301).to_bytes(8, "big"))
    with pytest.raises(WireError, match="sent a message of 301 bytes, more than 300"):
        reader.message()


def test_how_much_to_read_next() -> None:
    reader = Reader(MOST)
    assert reader.missing() == CHUNK
    reader = ready()
    assert reader.message() is None and reader.missing() == CHUNK
    reader.feed(b"\x02" + (100_000).to_bytes(8, "big")[:-1])
    assert reader.missing() == CHUNK, "the head is not complete"
    reader.feed((100_000).to_bytes(8, "big")[-1:])
    assert reader.missing() == 100_000
    reader.feed(b"x" * 70_000)
    assert reader.missing() == 30_000
    reader.feed(b"x" * 29_000)
    assert reader.missing() == CHUNK
    reader.feed(b"x" * 1000)
    assert reader.message() == [b"x" * 100_000]
    reader.feed(b"\x00")
    assert reader.message() is None and not reader.is_clean
    reader.feed(b"\x01")
    assert reader.message() is None
    reader.feed(b"y")
    assert reader.message() == [b"y"]

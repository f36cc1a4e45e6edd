"""ZeroMQ's REQ on a plain socket: the ZeroMQ Message Transport Protocol 3 (RFC 23), for one who asks and then waits.

In: requests. Out: the frames of the answers. Holds the wire (greeting, READY, frames) without any socket, and the socket
that speaks it to whoever binds REP or ROUTER over tcp or ipc.

libzmq would do, at a price: it hands every message to a thread of its own, which costs a turn of a simulation more than
all the rest of it; and it hides what we want to name: a peer that is gone, that is of the wrong kind, that answers
twice, or whose answer is too long to be read.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from errno import EAGAIN, ECONNABORTED, ECONNREFUSED, ECONNRESET, EHOSTUNREACH, ENETUNREACH, ENOENT, EPIPE, ETIMEDOUT
from typing import Any

from pilothouse.model.errors import InputError

SLICE_S = 0.1
"""No call takes longer than this to come back."""

CONNECT_S = 5.0
"""Except a connection to another host: so long may its handshake take."""

_MORE, _LONG, _COMMAND = 1, 2, 4
_SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
GREETING = _SIGNATURE + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_CHUNK = 16384
_NOBODY_THERE = frozenset(
    (EAGAIN, ECONNABORTED, ECONNREFUSED, ECONNRESET, EHOSTUNREACH, ENETUNREACH, ENOENT, EPIPE, ETIMEDOUT)
)
_PEEK = socket.MSG_PEEK | socket.MSG_DONTWAIT


class WireError(Exception):
    """The peer sent what ZMTP does not allow, or what a REQ cannot use; str() says what."""


class PeerLeft(Exception):
    """The connection is closed."""


def _property(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + struct.pack(">I", len(value)) + value


def _command(name: bytes, body: bytes) -> bytes:
    payload = bytes((len(name),)) + name + body
    return bytes((_COMMAND, len(payload))) + payload


_READY = _command(b"READY", _property(b"Socket-Type", b"REQ") + _property(b"Identity", b""))


def request_of(body: bytes) -> bytes:
    """A request as it is sent: an empty frame, then the body; REP answers likewise."""
    size = len(body)
    if size < 256:
        return b"\x01\x00\x00%c%b" % (size, body)
    return b"\x01\x00\x02%b%b" % (size.to_bytes(8, "big"), body)


class Reader:
    """Makes frames out of bytes. `wants_pong` holds what must be sent back to a peer that asks whether we are alive."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = bytearray()
        self._parts: list[bytes] = []
        self.greeted = False
        self.peer_kind = ""
        """The type of the peer's socket, once it has told it."""
        self.wants_pong = b""

    @property
    def is_clean(self) -> bool:
        """Nothing has come that was not asked for."""
        return not self._bytes and not self._parts

    def feed(self, data: bytes) -> None:
        self._bytes += data

    def missing(self) -> int:
        """How many bytes to ask for next."""
        frame = self._frame()
        return _CHUNK if frame is None else max(_CHUNK, frame[1] + frame[2] - len(self._bytes))

    def message(self) -> list[bytes] | None:
        """The next whole message; None: something is still missing. Raises WireError."""
        if not self.greeted and not self._greeting():
            return None
        while (frame := self._frame()) is not None:
            flags, start, size = frame
            if size > self._most_bytes:
                raise WireError(f"sent a message of {size} bytes, more than {self._most_bytes}")
            end = start + size
            if len(self._bytes) < end:
                return None
            body = bytes(self._bytes[start:end])
            del self._bytes[:end]
            if flags & _COMMAND:
                self._obey(body)
                continue
            if not self.peer_kind:
                raise WireError("is no ZeroMQ socket: it sent something before it was ready")
            self._parts.append(body)
            if not flags & _MORE:
                parts, self._parts = self._parts, []
                return parts
        return None

    def _frame(self) -> tuple[int, int, int] | None:
        """Flags, start and size of the next frame, as soon as its head is there."""
        data = self._bytes
        if not self.greeted or len(data) < 2:
            return None
        flags = data[0]
        if not flags & _LONG:
            return flags, 2, data[1]
        return None if len(data) < 9 else (flags, 9, int.from_bytes(data[1:9], "big"))

    def _greeting(self) -> bool:
        data = self._bytes
        if (data and data[0] != 0xFF) or (len(data) > 9 and not data[9] & 1):
            raise WireError("is no ZeroMQ socket")
        if len(data) > 10 and data[10] < 3:
            raise WireError("speaks the protocol of a ZeroMQ older than 4")
        if len(data) < len(GREETING):
            return False
        mechanism = bytes(data[12:32]).rstrip(b"\0").decode("ascii", "replace")
        if mechanism != "NULL":
            raise WireError(f"asks for security ({mechanism}), which this protocol has none of")
        del data[: len(GREETING)]
        self.greeted = True
        return True

    def _obey(self, command: bytes) -> None:
        name, body = command[1 : 1 + command[0]], command[1 + command[0] :]
        if name == b"READY":
            self.peer_kind = _properties(body).get("socket-type", "unknown")
            if self.peer_kind not in ("REP", "ROUTER"):
                raise WireError(f"is a {self.peer_kind} socket; expected REP")
        elif name == b"PING":
            self.wants_pong += _command(b"PONG", body[2:])
        elif name == b"ERROR":
            raise WireError(f"refused the connection: {body[1:].decode('ascii', 'replace')}")


def _properties(body: bytes) -> dict[str, str]:
    """The metadata of a READY; names count in any case. What is cut off is left out."""
    found, place = {}, 0
    while place < len(body):
        middle = place + 1 + body[place]
        name, head = body[place + 1 : middle], body[middle : middle + 4]
        place = middle + 4 + int.from_bytes(head, "big")
        found[name.decode("ascii", "replace").lower()] = body[middle + 4 : place].decode("ascii", "replace")
    return found


class RequestSocket:
    """Connects when it is asked to, again if nobody was there; then one request, one answer."""

    def __init__(self, endpoint: str, most_bytes: int) -> None:
        self._endpoint = endpoint
        self._family, self._address = _address(endpoint)
        self._most_bytes = most_bytes
        self._socket: socket.socket | None = None
        self._reader = Reader(most_bytes)
        self._owes_ready = True

    @property
    def is_connected(self) -> bool:
        """Whether the peer is a socket that answers requests, and has said so."""
        return bool(self._reader.peer_kind)

    def connect(self) -> bool:
        """One attempt, or one more slice of one. Raises InputError, WireError; PeerLeft: it hung up before it was ready."""
        if self._socket is None:
            self._socket = self._open()
        if self._socket is None:
            return False
        heard = self._hear()
        self._next()
        # libzmq hangs up on a READY that it does not like before it tells its own kind, so we let it speak first; but
        # both might wait for the other.
        if self._owes_ready and (self.is_connected or not heard):
            self._owes_ready = False
            self._socket.sendall(_READY)
        return self.is_connected

    def _open(self) -> socket.socket | None:
        opened = socket.socket(self._family, socket.SOCK_STREAM)
        try:
            opened.settimeout(CONNECT_S)
            opened.connect(self._address)
            opened.settimeout(None)
            slice_ = struct.pack("ll", int(SLICE_S), int(SLICE_S % 1 * 1e6))
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, slice_)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, slice_)
            if self._family != socket.AF_UNIX:
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.sendall(GREETING)
        except OSError as problem:
            opened.close()
            if isinstance(problem, TimeoutError) or problem.errno in _NOBODY_THERE:
                return None
            raise InputError("socket endpoint", f"{self._endpoint!r}: {problem.strerror or problem}") from None
        self._reader = Reader(self._most_bytes)
        self._owes_ready = True
        return opened

    def fileno(self) -> int:
        assert self._socket is not None
        return self._socket.fileno()

    def unasked(self) -> bool:
        """Whether something came that answers no request."""
        assert self._socket is not None
        if not self._reader.is_clean:
            return True
        try:
            return bool(self._socket.recv(1, _PEEK))
        except (BlockingIOError, ConnectionError):
            return False

    def send(self, request: bytes) -> bytes:
        """Sends what goes through; returns what is left of it (nothing, nearly always). Raises PeerLeft."""
        assert self._socket is not None
        try:
            sent = self._socket.send(request)
        except BlockingIOError:
            return request
        except ConnectionError:
            raise PeerLeft from None
        return b"" if sent == len(request) else request[sent:]

    def receive(self) -> list[bytes] | None:
        """The frames of an answer behind the delimiter; None: nothing yet. Raises PeerLeft, WireError."""
        reader = self._reader
        if reader.is_clean:
            assert self._socket is not None
            try:
                data = self._socket.recv(_CHUNK)
            except BlockingIOError:
                return None
            except ConnectionError:
                raise PeerLeft from None
            size = len(data)
            # The usual answers: one short read, one frame. No buffer, no copy of it.
            if data[:3] == b"\x01\x00\x00" and size > 3 and size == data[3] + 4:
                return [data[4:]]
            if data[:3] == b"\x01\x00\x02" and size > 10 and size == int.from_bytes(data[3:11], "big") + 11:
                return [data[11:]]
            if not data:
                raise PeerLeft
            reader.feed(data)
        else:
            self._hear()
        parts = self._next()
        if parts is None:
            return None
        if parts[0] or len(parts) == 1:
            raise WireError("sent something that is no answer")
        return parts[1:]

    def _hear(self) -> bool:
        """Feeds what there is, waiting a slice for it at most; False: nothing came."""
        assert self._socket is not None
        try:
            data = self._socket.recv(self._reader.missing())
        except BlockingIOError:
            return False
        except ConnectionError:
            data = b""
        if not data:
            self.close()
            raise PeerLeft
        self._reader.feed(data)
        return True

    def _next(self) -> list[bytes] | None:
        """The next message, if it is there; whoever asked meanwhile whether we are alive gets an answer."""
        parts = self._reader.message()
        if self._reader.wants_pong and self._socket is not None:
            pong, self._reader.wants_pong = self._reader.wants_pong, b""
            with contextlib.suppress(OSError):
                self._socket.sendall(pong)
        return parts

    def close(self) -> None:
        """May be called twice; a later connect() begins anew."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _address(endpoint: str) -> tuple[int, Any]:
    """Family and address of `tcp://HOST:PORT` or `ipc://PATH`. Raises InputError."""
    scheme, _, rest = endpoint.partition("://")
    if scheme == "ipc" and rest:
        return socket.AF_UNIX, b"\0" + rest[1:].encode() if rest.startswith("@") else rest
    host, _, port = rest.rpartition(":")
    if scheme != "tcp" or host in ("", "*") or not port.isdigit() or not 0 < int(port) < 65536:
        expected = "tcp://HOST:PORT or ipc://PATH"
        raise InputError("socket endpoint", repr(endpoint), expected=expected, hint="e.g. tcp://localhost:28000")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError as problem:
        raise InputError("socket endpoint", f"{endpoint!r}: {problem.strerror}") from None
    # Those who bind a ZeroMQ socket get IPv4 unless they ask for more.
    family, _, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    return family, address

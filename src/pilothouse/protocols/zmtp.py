"""ZMTP 3.0 for REQ sockets (ZeroMQ RFC 23) with the NULL mechanism, without libzmq. Sans-IO: request_socket.py has the
socket.

In: the bytes of a peer that binds REP or ROUTER. Out: the frames of its messages, and the bytes of a request.
"""

from __future__ import annotations

import struct

_MORE, _LONG, _COMMAND = 1, 2, 4
_SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
GREETING = _SIGNATURE + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
CHUNK = 16384


class WireError(Exception):
    """The peer violated ZMTP, or is of the wrong kind; str() says how."""


def _property(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + struct.pack(">I", len(value)) + value


def _command(name: bytes, body: bytes) -> bytes:
    payload = bytes((len(name),)) + name + body
    return bytes((_COMMAND, len(payload))) + payload


READY = _command(b"READY", _property(b"Socket-Type", b"REQ") + _property(b"Identity", b""))


def request_of(body: bytes) -> bytes:
    """The bytes of a request: an empty frame, then the body. A REP answers in the same form."""
    size = len(body)
    if size < 256:
        return b"\x01\x00\x00%c%b" % (size, body)
    return b"\x01\x00\x02%b%b" % (size.to_bytes(8, "big"), body)


class Reader:
    """Parses frames. `wants_pong` holds the answers to the PINGs of the peer."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = bytearray()
        self._parts: list[bytes] = []
        self.greeted = False
        self.peer_kind = ""
        """The socket type of the peer; empty before its READY."""
        self.wants_pong = b""

    @property
    def is_clean(self) -> bool:
        """There are no unread bytes."""
        return not self._bytes and not self._parts

    def feed(self, data: bytes) -> None:
        self._bytes += data

    def missing(self) -> int:
        """How many bytes to read next."""
        frame = self._frame()
        return CHUNK if frame is None else max(CHUNK, frame[1] + frame[2] - len(self._bytes))

    def message(self) -> list[bytes] | None:
        """The frames of the next message; None: it is not complete yet. Raises WireError."""
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
        """Flags, start and size of the next frame; None: its head is not complete yet."""
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
        length = command[0] if command else 0
        name, body = command[1 : 1 + length], command[1 + length :]
        if name == b"READY":
            self.peer_kind = _properties(body).get("socket-type", "unknown")
            if self.peer_kind not in ("REP", "ROUTER"):
                raise WireError(f"is a {self.peer_kind} socket; expected REP")
        elif name == b"PING":
            self.wants_pong += _command(b"PONG", body[2:])
        elif name == b"ERROR":
            raise WireError(f"refused the connection: {body[1:].decode('ascii', 'replace')}")


def _properties(body: bytes) -> dict[str, str]:
    """The metadata of a READY, with names in lower case. Incomplete properties are left out."""
    found, place = {}, 0
    while place < len(body):
        middle = place + 1 + body[place]
        name, head = body[place + 1 : middle], body[middle : middle + 4]
        place = middle + 4 + int.from_bytes(head, "big")
        found[name.decode("ascii", "replace").lower()] = body[middle + 4 : place].decode("ascii", "replace")
    return found

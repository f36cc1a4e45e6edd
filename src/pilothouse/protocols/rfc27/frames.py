"""RFC 3 messages, and their bytes on a stream socket.

In: bytes. Out: `Message`s, or `BadFrame`s that say what was wrong; and back. A message is a list of parts: routes and an
empty delimiter, topic, payload (all optional), and last a header of 20 bytes (big endian).

On a stream, a magic number (host byte order, as Flux writes it) and the length of the message (network byte order,
without these eight bytes) precede each message; its length precedes each part: one byte, or 255 and four bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec

REQUEST, RESPONSE, EVENT, CONTROL = 1, 2, 4, 8

TOPIC, PAYLOAD, NORESPONSE, ROUTE = 0x01, 0x02, 0x04, 0x08
UPSTREAM, PRIVATE, STREAMING = 0x10, 0x20, 0x40

NODE_ANY = 0xFFFFFFFF
ROLE_OWNER = 1
USER_UNKNOWN = 0xFFFFFFFF

MOST_MESSAGE_BYTES = 64 * 1024 * 1024
"""Limit of a message; longer ones are refused before they are read."""
MOST_ROUTES = 64
MOST_TOPIC_BYTES = 1024

_MAGIC = 0xFFEE0012
_HEAD_NATIVE = struct.Struct("=I").pack(_MAGIC)
_HEAD_OTHER = _HEAD_NATIVE[::-1]
_HEADER = struct.Struct(">BBBBIIII")
_LENGTH = struct.Struct(">I")
_HEADER_BYTES = 20
_ENVELOPE_BYTES = 8
_MAGIC_BYTE, _VERSION = 0x8E, 1
_TYPES = frozenset((REQUEST, RESPONSE, EVENT, CONTROL))
_LONG = 255


class Message(msgspec.Struct):
    """One message. `aux1` is the node of a request or the errnum of a response; `matchtag` pairs the two.

    `payload` is as on the wire: JSON and text end with a NUL. `routes` lead back to the sender, nearest first.
    """

    type: int
    topic: str = ""
    payload: bytes | None = None
    matchtag: int = 0
    aux1: int = NODE_ANY
    flags: int = 0
    """NORESPONSE, UPSTREAM, PRIVATE, STREAMING. The flags of the parts are set when the message is written."""
    routes: tuple[bytes, ...] | None = None
    """None: no route part; (): an empty one."""
    userid: int = USER_UNKNOWN
    rolemask: int = 0

    @property
    def errnum(self) -> int:
        return self.aux1 if self.type == RESPONSE else 0

    @property
    def of_owner(self) -> bool:
        """The sender is the owner of the instance (or acts for it)."""
        return bool(self.rolemask & ROLE_OWNER)

    @property
    def streaming(self) -> bool:
        return bool(self.flags & STREAMING)

    @property
    def wants_response(self) -> bool:
        return self.type == REQUEST and not self.flags & NORESPONSE

    def body(self) -> bytes:
        """The payload without its closing NUL; empty if there is none."""
        payload = self.payload
        if payload is None:
            return b""
        return payload[:-1] if payload.endswith(b"\0") else payload

    def text(self) -> str:
        """The text of an error response."""
        return self.body().decode(errors="replace")


class BadFrame(msgspec.Struct, frozen=True):
    """Malformed bytes. `fatal`: the rest of the stream cannot be read."""

    problem: str
    fatal: bool = False


def to_parts(message: Message) -> list[bytes]:
    """The parts of a message, as ZeroMQ carries them."""
    flags = message.flags & (NORESPONSE | UPSTREAM | PRIVATE | STREAMING)
    parts: list[bytes] = []
    if message.routes is not None:
        flags |= ROUTE
        parts.extend(message.routes)
        parts.append(b"")
    if message.topic:
        flags |= TOPIC
        # Flux of 2020 needs the NUL; today's Flux strips it.
        parts.append(message.topic.encode() + b"\0")
    if message.payload is not None:
        flags |= PAYLOAD
        parts.append(message.payload)
    parts.append(
        _HEADER.pack(
            _MAGIC_BYTE, _VERSION, message.type, flags, message.userid, message.rolemask, message.aux1, message.matchtag
        )
    )
    return parts


def from_parts(parts: Sequence[bytes]) -> Message | BadFrame:
    """The message of these parts."""
    if not parts or len(parts[-1]) != _HEADER_BYTES:
        return BadFrame("no header of 20 bytes at the end")
    magic, version, kind, flags, userid, rolemask, aux1, matchtag = _HEADER.unpack(parts[-1])
    if magic != _MAGIC_BYTE or version != _VERSION:
        return BadFrame(f"header begins with {magic:02x} {version:02x}, not 8e 01")
    if kind not in _TYPES:
        return BadFrame(f"unknown message type {kind}")
    index, last = 0, len(parts) - 1
    routes: tuple[bytes, ...] | None = None
    if flags & ROUTE:
        while index < last and parts[index]:
            index += 1
        if index >= last:
            return BadFrame("routes without the empty part that ends them")
        if index > MOST_ROUTES:
            return BadFrame(f"more than {MOST_ROUTES} routes")
        routes = tuple(parts[:index])
        index += 1
    topic = ""
    if flags & TOPIC:
        if index >= last or not 0 < len(parts[index]) <= MOST_TOPIC_BYTES:
            return BadFrame("no topic where the flags promise one")
        try:
            topic = parts[index].rstrip(b"\0").decode()
        except UnicodeDecodeError:
            return BadFrame("topic is not UTF-8")
        index += 1
    payload: bytes | None = None
    if flags & PAYLOAD:
        if index >= last:
            return BadFrame("no payload where the flags promise one")
        payload = parts[index]
        index += 1
    if index != last:
        return BadFrame(f"{last - index} parts too many")
    return Message(kind, topic, payload, matchtag, aux1, flags & 0x74, routes, userid, rolemask)


def encode(message: Message) -> bytes:
    """The message as it goes on a stream."""
    chunks = [_HEAD_NATIVE, b""]
    size = 0
    for part in to_parts(message):
        length = len(part)
        if length < _LONG:
            chunks.append(bytes((length,)))
            size += 1 + length
        else:
            chunks.append(b"\xff" + _LENGTH.pack(length))
            size += 5 + length
        chunks.append(part)
    if size > MOST_MESSAGE_BYTES:
        raise ValueError(f"a message of {size} bytes, more than {MOST_MESSAGE_BYTES}")
    chunks[1] = _LENGTH.pack(size)
    return b"".join(chunks)


def decode(body: bytes) -> Message | BadFrame:
    """One message without magic and length."""
    parts: list[bytes] = []
    offset, end = 0, len(body)
    while offset < end:
        length = body[offset]
        offset += 1
        if length == _LONG:
            if offset + 4 > end:
                return BadFrame("a part's length is cut off")
            (length,) = _LENGTH.unpack_from(body, offset)
            offset += 4
        if offset + length > end:
            return BadFrame("a part is longer than its message")
        parts.append(body[offset : offset + length])
        offset += length
        if len(parts) > MOST_ROUTES + 4:
            return BadFrame("too many parts")
    return from_parts(parts)


class StreamReader:
    """Splits a byte stream into messages. A fatal BadFrame is the last one."""

    def __init__(self, most_bytes: int = MOST_MESSAGE_BYTES) -> None:
        self._chunks: list[bytes] = []
        self._held = 0
        self._needed = _ENVELOPE_BYTES
        self._most_bytes = most_bytes
        self._broken = False

    def feed(self, data: bytes) -> list[Message | BadFrame]:
        if self._broken:
            return []
        self._chunks.append(data)
        self._held += len(data)
        if self._held < self._needed:
            return []
        buffer = data if len(self._chunks) == 1 else b"".join(self._chunks)
        found: list[Message | BadFrame] = []
        offset, end = 0, len(buffer)
        self._needed = _ENVELOPE_BYTES
        while end - offset >= _ENVELOPE_BYTES:
            magic = buffer[offset : offset + 4]
            (length,) = _LENGTH.unpack_from(buffer, offset + 4)
            if magic not in (_HEAD_NATIVE, _HEAD_OTHER) or length > self._most_bytes:
                problem = f"a message of {length} bytes, more than {self._most_bytes}"
                if magic not in (_HEAD_NATIVE, _HEAD_OTHER):
                    problem = f"no message begins with {magic.hex()}"
                found.append(BadFrame(problem, fatal=True))
                self._broken, self._chunks = True, []
                return found
            start = offset + _ENVELOPE_BYTES
            if end - start < length:
                self._needed = _ENVELOPE_BYTES + length
                break
            found.append(decode(buffer[start : start + length]))
            offset = start + length
        rest = buffer[offset:] if offset else buffer
        self._chunks = [rest] if rest else []
        self._held = len(rest)
        return found

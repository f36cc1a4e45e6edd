"""The bytes of disBatch's key-value protocol: requests in, replies out. No sockets.

    request   four letters, then arguments         clos | dump | get_ key | view key | put_ key value | mkey key key
    key       ten characters (decimal length), then so many bytes
    value     four bytes (its coding), ten characters, then so many bytes
    reply     a value (get_, view); length and bytes (dump); nothing (put_, mkey)

One request is ours: `auth key`, with the run's secret as the key. Where a secret is asked for it must come first.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pilothouse.worlds.live.services.kvs import Value

LENGTH_CHARS = 10
CODING_BYTES = 4
MOST_KEY_BYTES = 1 << 20
MOST_VALUE_BYTES = 1 << 30
MOST_SECRET_BYTES = 256

_WITH_KEY = (b"get_", b"view", b"put_", b"mkey", b"auth")


class Request(msgspec.Struct, frozen=True, gc=False):
    op: bytes
    key: bytes = b""
    value: Value = Value(b"ASTR", b"")
    """put_: what to put; mkey: its data is what to watch."""


class WireError(Exception):
    """The peer does not speak this protocol; the connection is of no more use."""


class SecretOwed(WireError):
    """The peer sent a request without having shown the secret."""


class RequestReader:
    """Cuts a stream of bytes into requests."""

    def __init__(self, *, secret_first: bool = False) -> None:
        self.unlocked = not secret_first
        self._buffer = bytearray()
        self._position = 0

    def feed(self, data: bytes) -> Iterator[Request]:
        """All requests that are complete now. Raises WireError."""
        self._buffer += data
        while (request := self._next()) is not None:
            yield request
        del self._buffer[: self._position]
        self._position = 0

    def _next(self) -> Request | None:
        at = self._position
        if len(self._buffer) - at < CODING_BYTES:
            return None
        op = bytes(self._buffer[at : at + 4])
        if not self.unlocked and op != b"auth":
            key = self._sized(at + 4, MOST_KEY_BYTES) if op == b"put_" else None
            dropped = f"; a value for the key {key.decode('utf-8', 'replace')!r} was dropped" if key is not None else ""
            raise SecretOwed(f"the secret must come first{dropped}")
        if op in (b"clos", b"dump"):
            self._position = at + 4
            return Request(op)
        if op not in _WITH_KEY:
            raise WireError(f"unknown request {op!r}")
        key = self._sized(at + 4, MOST_SECRET_BYTES if op == b"auth" else MOST_KEY_BYTES)
        if key is None:
            return None
        value = Value(b"ASTR", b"")
        end = at + 4 + LENGTH_CHARS + len(key)
        if op in (b"put_", b"mkey"):
            skip = CODING_BYTES if op == b"put_" else 0
            data = self._sized(end + skip, MOST_VALUE_BYTES)
            if data is None:
                return None
            value = Value(bytes(self._buffer[end : end + skip]), data)
            end += skip + LENGTH_CHARS + len(data)
        self._position = end
        return Request(op, key, value)

    def _sized(self, at: int, most: int) -> bytes | None:
        text = bytes(self._buffer[at : at + LENGTH_CHARS])
        if len(text) < LENGTH_CHARS:
            return None
        if not text.strip().isdigit():
            raise WireError(f"not a length: {text!r}")
        length = int(text)
        if length > most:
            raise WireError(f"{length} bytes where {most} is the most")
        start = at + LENGTH_CHARS
        if len(self._buffer) < start + length:
            return None
        return bytes(self._buffer[start : start + length])


def sized(data: bytes) -> bytes:
    """Ten characters of length, then the bytes."""
    return b"%10d" % len(data) + data


def value_reply(value: Value) -> bytes:
    return value.coding + sized(value.data)


def request_bytes(request: Request) -> bytes:
    """What a client sends."""
    if request.op in (b"clos", b"dump"):
        return request.op
    out = request.op + sized(request.key)
    if request.op == b"put_":
        out += value_reply(request.value)
    elif request.op == b"mkey":
        out += sized(request.value.data)
    return out

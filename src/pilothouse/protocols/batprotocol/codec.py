"""Encodes and decodes messages, in the format that the handshake chose (FlatBuffers or JSON).

`decode` takes a peer's bytes and its name; it returns a Message or raises PeerError. `encode` does the reverse; its JSON
ends with the zero byte that C strings need.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from pilothouse.model.errors import InputError, PeerError
from pilothouse.protocols.batprotocol import binary, text
from pilothouse.protocols.batprotocol.messages import Message
from pilothouse.protocols.batprotocol.wire import MOST_BYTES, Malformed


class Format(IntEnum):
    """The serialisation, as its bit in the flags of the handshake."""

    BINARY = 1
    JSON = 2

    @classmethod
    def of_flags(cls, flags: int) -> Format:
        """As in Batsim: JSON if both bits are set, binary if none is."""
        return cls.JSON if flags & 2 else cls.BINARY


def encode(message: Message, form: Format) -> bytes:
    try:
        if form is Format.JSON:
            return text.encode(message).encode() + b"\0"
        return binary.encode(message)
    except (Malformed, UnicodeEncodeError) as problem:
        raise InputError("batprotocol", str(problem)) from None


def decode(data: bytes, form: Format, peer: str = "EDC") -> Message:
    if len(data) > MOST_BYTES:
        raise PeerError(peer, f"a message of {len(data)} bytes", hint=f"at most {MOST_BYTES} are read")
    try:
        if form is Format.JSON:
            return text.decode(msgspec.json.decode(data.rstrip(b"\0")))
        return binary.decode(data)
    except Malformed as problem:
        raise PeerError(peer, f"invalid message: {problem}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise PeerError(peer, f"invalid message: not JSON: {problem}") from None
    except RecursionError:
        raise PeerError(peer, "invalid message: nested too deep") from None

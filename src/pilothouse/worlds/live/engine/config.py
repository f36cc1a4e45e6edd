"""What an engine is told by whoever starts it."""

from __future__ import annotations

import struct
from math import inf
from typing import BinaryIO

import msgspec

_LENGTH = struct.Struct("<I")


class EngineConfig(msgspec.Struct, frozen=True):
    """All that an engine is told by whoever starts it. Secret: it holds the run's keys."""

    addresses: tuple[str, ...]
    server_public: str
    client_public: str
    client_secret: str
    context: str
    slots: int
    node: str = ""
    """"" : the host's own name."""
    cwd: str = ""
    gpus: tuple[str, ...] = ()
    slot_env: dict[str, tuple[str, ...]] = {}
    ends_at: float = inf
    properties: dict[str, str] = {}
    log: str = ""
    key: str = ""
    """Whoever started the engine knows it by this name."""
    deal: tuple[str, ...] = ()
    """Variables of the engine's environment whose comma-separated values are dealt out, one to each slot."""

    def framed(self) -> bytes:
        """For the engine's standard input, with its length in front: no end of the stream is waited for, which is late
        where a program in between holds the pipe open.
        """
        data = msgspec.msgpack.encode(self)
        return _LENGTH.pack(len(data)) + data


def read_config(stream: BinaryIO) -> EngineConfig:
    """What `framed` made. Raises EOFError where the stream ends too soon."""
    header = stream.read(_LENGTH.size)
    wanted = _LENGTH.unpack(header)[0] if len(header) == _LENGTH.size else -1
    data = stream.read(wanted) if wanted >= 0 else b""
    if len(data) != wanted:
        raise EOFError("whoever started this engine went before it had told it what to do")
    return msgspec.msgpack.decode(data, type=EngineConfig)

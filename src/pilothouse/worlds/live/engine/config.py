"""What an engine is told by the context that starts it."""

from __future__ import annotations

import struct
from math import inf
from typing import BinaryIO

import msgspec

KEYS_FILE = "keys.json"
"""In the run's folder: the keys of the run (wire/sockets.py)."""
_LENGTH = struct.Struct("<I")


class Credentials(msgspec.Struct, frozen=True):
    """What an engine needs to reach the driver of its run. Secret."""

    addresses: tuple[str, ...]
    """Where the driver listens; tried in turn."""
    server_public: str
    client_public: str
    client_secret: str


class EngineConfig(Credentials, frozen=True):
    """All that an engine is told. It gets this on its standard input."""

    context: str
    slots: int
    node: str = ""
    """"" : the host's own name."""
    cwd: str = ""
    gpus: tuple[str, ...] = ()
    memory_mb: int = 0
    """Memory for tasks, as declared; 0: what the node has."""
    slot_env: dict[str, tuple[str, ...]] = {}
    ends_at: float = inf
    properties: dict[str, str] = {}
    log: str = ""
    spool: str = ""
    """A folder to make (spool.py); "" : one for temporary files."""
    leased: bool = False
    """See Hello."""
    key: str = ""
    """The name that its context knows it by."""
    deal: tuple[str, ...] = ()
    """Variables of the engine's environment whose comma-separated values are dealt out, one to each slot."""

    def framed(self) -> bytes:
        """With its length in front, as a program in between may hold the pipe open: the end of the stream may come late."""
        data = msgspec.msgpack.encode(self)
        return _LENGTH.pack(len(data)) + data


def read_config(stream: BinaryIO) -> EngineConfig:
    """What `framed` made. Raises EOFError where the stream ends too soon."""
    header = stream.read(_LENGTH.size)
    wanted = _LENGTH.unpack(header)[0] if len(header) == _LENGTH.size else -1
    data = stream.read(wanted) if wanted >= 0 else b""
    if len(data) != wanted:
        raise EOFError("the program that started this engine ended before it had sent the configuration")
    return msgspec.msgpack.decode(data, type=EngineConfig)

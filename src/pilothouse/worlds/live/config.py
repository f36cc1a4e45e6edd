"""What an engine is told by whoever starts it."""

from __future__ import annotations

from math import inf

import msgspec


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

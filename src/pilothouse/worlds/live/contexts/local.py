"""The local context: one engine on this host."""

from __future__ import annotations

from pilothouse.worlds.live.contexts.programs import ProgramContext


class LocalContext(ProgramContext):
    remote = False

    def __init__(self, slots: int, *, name: str = "local", gpus: tuple[str, ...] = (), memory_mb: int = 0) -> None:
        super().__init__(name, {"": slots}, gpus=gpus, memory_mb=memory_mb)

"""The local context: one engine on this host."""

from __future__ import annotations

from pilothouse.worlds.live.contexts import Launch
from pilothouse.worlds.live.contexts.programs import ProgramContext, engine_command, log_name
from pilothouse.worlds.live.engine.config import EngineConfig


class LocalContext(ProgramContext):
    """One engine with so many slots."""

    remote = False

    def __init__(
        self,
        slots: int,
        *,
        name: str = "local",
        gpus: tuple[str, ...] = (),
        slot_env: dict[str, tuple[str, ...]] | None = None,
    ) -> None:
        super().__init__(name, [""])
        self._slots = slots
        self._gpus = gpus
        self._slot_env = slot_env or {}

    def command(self, part: str, launch: Launch) -> list[str]:
        return engine_command(launch.python)

    def config(self, part: str, key: str, launch: Launch) -> EngineConfig:
        return launch.config(
            self.name, self._slots, gpus=self._gpus, slot_env=self._slot_env, key=key, log=log_name(launch, key)
        )

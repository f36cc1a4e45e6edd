"""The local context: one engine on this host."""

from __future__ import annotations

from pathlib import Path

from pilothouse.worlds.live.contexts import Departure, Launch
from pilothouse.worlds.live.contexts.programs import Programs, engine_command, new_key


class LocalContext:
    """One engine with so many slots."""

    remote = False
    engines = 1

    def __init__(
        self,
        slots: int,
        *,
        name: str = "local",
        gpus: tuple[str, ...] = (),
        slot_env: dict[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.name = name
        self._slots = slots
        self._gpus = gpus
        self._slot_env = slot_env or {}
        self._programs = Programs(name)

    def start(self, launch: Launch) -> None:
        key = new_key(self.name)
        log = str(Path(launch.folder) / f"engine-{key}.log")
        config = launch.config(self.name, self._slots, gpus=self._gpus, slot_env=self._slot_env, key=key, log=log)
        self._programs.start(engine_command(launch.python), config)

    def ended(self) -> list[Departure]:
        return self._programs.ended()

    def close(self) -> None:
        self._programs.forget()

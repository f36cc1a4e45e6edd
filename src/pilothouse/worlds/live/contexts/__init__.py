"""Contexts: where engines come from. A new batch system is one small file with a class like those here.

A context starts engines (`start`), says which of the programs that it started have ended (`ended`), and lets go
(`close`). It never speaks with engines itself: an engine joins the driver by the wire, with the credentials that the
context hands over.
"""

from __future__ import annotations

from collections.abc import Container
from math import inf
from typing import Protocol

import msgspec

from pilothouse.worlds.live.engine.config import Credentials, EngineConfig


class Launch(Credentials, frozen=True):
    """What every engine of this run must be told, but for what its context knows."""

    cwd: str
    folder: str
    """The run's folder: logs, and key files where no other way leads to an engine."""
    python: str

    def config(
        self,
        context: str,
        slots: int,
        *,
        key: str,
        node: str = "",
        gpus: tuple[str, ...] = (),
        slot_env: dict[str, tuple[str, ...]] | None = None,
        ends_at: float = inf,
        log: str = "",
    ) -> EngineConfig:
        """What one engine is told."""
        return EngineConfig(
            addresses=self.addresses, server_public=self.server_public, client_public=self.client_public,
            client_secret=self.client_secret, cwd=self.cwd, context=context, slots=slots, key=key,
            node=node, gpus=gpus, slot_env=slot_env or {}, ends_at=ends_at, log=log,
        )  # fmt: skip


class Departure(msgspec.Struct, frozen=True):
    """A program that a context had started has ended."""

    context: str
    key: str
    """The engine's EngineConfig.key."""
    code: int
    text: str = ""


class Context(Protocol):
    """One source of engines."""

    name: str
    remote: bool
    """Its engines are on other hosts: the driver must listen beyond loopback."""
    engines: int
    """How many it will start."""

    def start(self, launch: Launch) -> None:
        """Starts all engines; returns at once. InputError or RunError where that is hopeless."""
        ...

    def ended(self) -> list[Departure]:
        """What has ended since the last call; never waits."""
        ...

    def again(self, key: str, launch: Launch, *, had_joined: bool) -> bool:
        """Starts a new engine in the place of one that ended; False if that is no use. One that had joined may have been the
        victim of a task; one that had not will hardly do better the next time.
        """
        ...

    def close(self, joined: Container[str] = ()) -> None:
        """Lets go of what is left; engines (by their keys) that have joined are not harmed: the driver has told them. Those
        that are still on their way need not come any more.
        """
        ...

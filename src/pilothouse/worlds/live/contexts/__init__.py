"""Contexts: where engines come from. A new batch system is one small file with a subclass of ProgramContext.

A context starts engines (`start`), reports those of its programs that have ended (`ended`), and is closed (`close`). It does
not talk to engines: an engine joins the driver over the network, with the credentials that the context passes to it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Protocol

import msgspec

from pilothouse.access.interfaces import ALL, LOOPBACK
from pilothouse.worlds.live.options import MOST_SLOTS
from pilothouse.worlds.live.wire.sockets import Credentials


class Launch(Credentials, frozen=True):
    """The part of an engine's configuration that is the same for all engines of a run."""

    cwd: str
    folder: str
    """The run's folder, for logs."""
    python: str
    leased: bool = False
    """The driver starts these engines itself, and one engine at a time has their slots."""
    most_slots: int = MOST_SLOTS


class Departure(msgspec.Struct, frozen=True):
    """A program that a context had started has ended."""

    context: str
    key: str
    """The engine's EngineConfig.key."""
    code: int
    text: str = ""
    engine_ended: bool = True
    """Whether the engine has ended as well. The death of an ssh client does not tell."""
    place: str = ""
    """The host that it was meant for, as the user named it; "" : this one."""


class Context(Protocol):
    """One source of engines."""

    name: str
    remote: bool
    """Its engines are on other hosts: the driver must listen beyond loopback."""
    engines: int
    """How many it will start."""

    def listens(self) -> tuple[str, ...]:
        """The addresses of this host by which its nodes are reached."""
        ...

    @property
    def keys(self) -> set[str]:
        """The engines that hold its slots: those that it has started, and not replaced by others."""
        ...

    def start(self, launch: Launch) -> None:
        """Starts all engines; returns at once. Raises InputError or RunError if that cannot work."""
        ...

    def ended(self) -> list[Departure]:
        """What has ended since the last call; never waits."""
        ...

    def again(self, key: str, launch: Launch, *, had_joined: bool) -> bool:
        """Starts a new engine in the place of one that ended; False if it has ended too often. An engine that had joined may
        have been killed by a task; one that had not joined will hardly do better the next time.
        """
        ...

    def close(self, joined: Container[str] = (), wait: Callable[[], bool] | None = None) -> None:
        """Ends engines that have not joined yet. Those that have (by their keys) end when the driver tells them: `wait` is called
        while some of them live, and when it returns False, they are killed. None: they may go on.
        """
        ...


def listening(contexts: Iterable[Context]) -> tuple[str, ...]:
    """Where a driver listens for the engines of these contexts: on loopback if there are none."""
    found = dict.fromkeys(address for context in contexts for address in context.listens())
    return (ALL,) if ALL in found else tuple(found) or (LOOPBACK,)

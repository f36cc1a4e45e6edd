"""What a message server is made of: its rules, what a message costs, what it knows of a job, who watches and who tells.

Holds plain descriptions and protocols; control.py has the server that uses them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Protocol

import msgspec

from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState
from pilothouse.model.record import JobRecord
from pilothouse.worlds.simulated.message_server.rounds import Actor, Cost, Mailbox
from pilothouse.worlds.simulated.physics.execution import Run
from pilothouse.worlds.simulated.physics.platform import MASTER, Platform

if TYPE_CHECKING:
    from pilothouse.worlds.simulated.message_server.server import Server


class Rules(msgspec.Struct, frozen=True):
    """In what the generations of Batsim differ. The defaults are Batsim 4's."""

    first_message_waits: bool = False
    """The first batch goes out after one message (the decider's hello), not at 0."""
    stale_dates: frozenset[type] = frozenset()
    """Facts that are dated like the last fact of another kind, not with the date at which the server heard of them."""
    checks_allocations: bool = True
    """Counts and sharing are judged."""
    late_call_is_wrong: bool = True
    """A call for a date that has passed is refused; otherwise it arrives at once."""
    ends_with_workflows: bool = False
    """Jobs that are submitted after the last workflow's end are left out."""
    meters_take_turns: bool = True
    """Reading energy lets others go on within the round."""
    shortest_wait_s: float = 1e-5
    """A call is never sooner than this after it was asked for."""


class MessageCosts(msgspec.Struct, frozen=True):
    """What one message to the server costs."""

    from_master: Cost
    from_unit: Callable[[int], Cost]

    @classmethod
    def of(cls, platform: Platform) -> MessageCosts:
        """The costs on a platform with a master host."""

        @cache
        def from_unit(unit: int) -> Cost:
            route = platform.route(unit, MASTER)
            return Cost(route.latency, route.bandwidth)

        return cls(from_unit(MASTER), from_unit)


class Source(Protocol):
    """Somebody who tells the server of jobs or of events, one after the other, and says hello and bye."""

    @property
    def tells_jobs(self) -> bool: ...

    def actor(self, server: Server) -> Actor: ...


class Known(msgspec.Struct, eq=False):
    """What the server knows of a job that it has been told of."""

    job: Job
    state: JobState = JobState.WAITING
    run: Run | None = None
    ended_at: float = 0.0
    return_code: int = -1
    kill_asked: bool = False
    metadata: str = ""
    energy_j: float | None = None
    origin: Mailbox | None = None
    """Who wants to be told of its end."""
    letters: list[str] = []
    """What the decider told the job before it ran."""


class Watcher:
    """What a run wants to keep of what happens; every method may be left out."""

    def began(self, server: Server) -> None: ...

    def job_due(self, server: Server) -> None:
        """A source is about to submit jobs."""

    def job_started(self, server: Server, known: Known) -> None: ...

    def job_left(self, server: Server, known: Known) -> None:
        """It gave its units back; the server will hear of it."""

    def before_switch(self, server: Server) -> None: ...

    def switch_asked(self, server: Server, units: IdSet, mark: int) -> None: ...

    def switch_done(self, server: Server, units: IdSet, power_state: int) -> None: ...

    def machines_changed(self, server: Server) -> None: ...

    def job_over(self, record: JobRecord) -> None:
        """The server heard of its end, or refused it."""

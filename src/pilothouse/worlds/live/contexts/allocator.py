"""Automatic allocation: batch jobs are submitted while work waits and let go when they are idle.

`Allocator` decides, without IO: it is told what waits, what is free, which jobs the batch system still has and which
contexts are idle, and answers Submit, Cancel and LetGo. `auto_allocation.py` carries these out.

Theory. An allocation is QUEUED in the batch system, ACTIVE when its first engine has joined, LEAVING when it was asked
to go, ENDED when the batch system no longer has it. Never more is asked for than the work that waits would fill, so a
short tail of tasks does not order a second machine room. A job that ends before an engine joined counts as a failure;
after a few in a row nothing more is submitted, because the next one would fail as well and the user should hear why.

    QUEUED ──engine joined──► ACTIVE ──idle──► LEAVING ──gone──► ENDED
       └── no work waits: cancelled; or gone without an engine: failed ──► ENDED
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

MOST_FAILURES = 3
"""Allocations in a row that ended without an engine, or could not be submitted."""


class AllocationPlan(msgspec.Struct, frozen=True):
    """What the user allows. `slots` is what one allocation brings (nodes times slots per node)."""

    slots: int
    most: int = 1
    """Allocations at a time, queued ones included."""
    most_queued: int = 1
    """Of these, so many may wait in the batch system."""
    total: int = 0
    """Over the whole run; 0: no limit."""
    idle_s: float = 300.0
    """An allocation without work for so long is let go."""
    options: tuple[str, ...] = ()
    """For sbatch, as they stand: `-N2`, `--time=1:00:00`, `--partition=main`."""


class AllocationState(enum.Enum):
    QUEUED = "queued"
    ACTIVE = "active"
    LEAVING = "leaving"
    ENDED = "ended"


class Allocation(msgspec.Struct):
    job_id: str
    submitted_at: float
    state: AllocationState = AllocationState.QUEUED
    joined: bool = False
    idle_since: float | None = None


class Submit(msgspec.Struct, frozen=True):
    """Order one more allocation."""


class Cancel(msgspec.Struct, frozen=True):
    """Nobody needs this one, and it has not begun."""

    job_id: str


class LetGo(msgspec.Struct, frozen=True):
    """Ask its engines to leave; its batch job ends with them."""

    job_id: str


Order: TypeAlias = Submit | Cancel | LetGo


class Allocator:
    def __init__(self, plan: AllocationPlan) -> None:
        self.plan = plan
        self.allocations: dict[str, Allocation] = {}
        self.failures = 0
        self.stopped_because = ""
        self._submitted = 0

    @property
    def hopeless(self) -> bool:
        """Nothing is there and nothing more will be asked for."""
        return bool(self.stopped_because) and not self._present()

    def submitted(self, job_id: str, now: float) -> None:
        self._submitted += 1
        self.allocations[job_id] = Allocation(job_id, now)

    def refused(self, reason: str) -> None:
        """The batch system did not take it."""
        self._failed(reason)

    def engine_joined(self, job_id: str) -> None:
        allocation = self.allocations.get(job_id)
        if allocation is not None and allocation.state is AllocationState.QUEUED:
            allocation.state = AllocationState.ACTIVE
            allocation.joined = True
            self.failures = 0

    def decide(self, now: float, *, waiting: int, free: int, known: Iterable[str], busy: Iterable[str]) -> list[Order]:
        """What to do. `waiting`: slots that waiting work would fill; `free`: slots of engines that have none;

        `known`: jobs that the batch system still has; `busy`: jobs whose engines have work.
        """
        self._note(now, set(known), set(busy))
        orders: list[Order] = []
        queued = [a for a in self._present() if a.state is AllocationState.QUEUED]
        spare = free + len(queued) * self.plan.slots
        missing = waiting - spare
        while missing > 0 and self._may_submit(len(queued), len(orders)):
            orders.append(Submit())
            missing -= self.plan.slots
        if waiting == 0:
            for allocation in queued:
                allocation.state = AllocationState.LEAVING
                orders.append(Cancel(allocation.job_id))
            for allocation in self._present():
                idle_s = 0.0 if allocation.idle_since is None else now - allocation.idle_since
                if allocation.state is AllocationState.ACTIVE and idle_s >= self.plan.idle_s:
                    allocation.state = AllocationState.LEAVING
                    orders.append(LetGo(allocation.job_id))
        return orders

    def all_present(self) -> list[str]:
        """The jobs that must be let go when the run ends."""
        return [allocation.job_id for allocation in self._present()]

    def _present(self) -> list[Allocation]:
        return [a for a in self.allocations.values() if a.state is not AllocationState.ENDED]

    def _may_submit(self, queued: int, ordered: int) -> bool:
        if self.stopped_because or queued + ordered >= self.plan.most_queued:
            return False
        if self.plan.total and self._submitted + ordered >= self.plan.total:
            return False
        return len(self._present()) + ordered < self.plan.most

    def _note(self, now: float, known: set[str], busy: set[str]) -> None:
        for allocation in self._present():
            if allocation.job_id not in known:
                cancelled = allocation.state is AllocationState.LEAVING
                allocation.state = AllocationState.ENDED
                if not allocation.joined and not cancelled:
                    self._failed(f"batch job {allocation.job_id} ended before an engine joined")
            elif allocation.job_id in busy:
                allocation.idle_since = None
            elif allocation.idle_since is None and allocation.state is AllocationState.ACTIVE:
                allocation.idle_since = now

    def _failed(self, reason: str) -> None:
        self.failures += 1
        if self.failures >= MOST_FAILURES:
            self.stopped_because = f"{self.failures} allocations failed in a row; the last one: {reason}"

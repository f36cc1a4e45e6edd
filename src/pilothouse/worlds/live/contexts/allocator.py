"""Automatic allocation: when to submit batch jobs for work that waits, and when to give idle ones back. No IO.

In: how much work waits and how many slots are free, the jobs that the batch system still has, and those that are busy.
Out: Submit, Cancel and Release actions, which auto_allocation.py carries out.

An allocation is QUEUED in the batch system, ACTIVE when its first engine has joined, LEAVING when it was asked to end, and
ENDED when the batch system no longer has it. No more slots are asked for than the waiting work would fill. A job that ends
before an engine joined is a failure; after a few in a row nothing more is submitted, and the user is told why.

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
    system: str = "slurm"
    """Its name in batch_systems.py."""
    most: int = 1
    """Allocations at a time, queued ones included."""
    most_queued: int = 1
    """Of these, so many may wait in the batch system."""
    total: int = 0
    """Over the whole run; 0: no limit."""
    idle_s: float = 300.0
    """An allocation without work for so long is given back."""
    options: tuple[str, ...] = ()
    """For the command that submits, as they stand: `-N2`, `--time=1:00:00`, `--partition=main`."""


class AllocationState(enum.Enum):
    QUEUED = "queued"
    ACTIVE = "active"
    LEAVING = "leaving"
    ENDED = "ended"


class AllocationStimulus(enum.Enum):
    ENGINE_JOINED = "its first engine joined"
    NOT_NEEDED = "no work waits for it"
    GONE = "the batch system no longer has it"


_S = AllocationState
_ROWS: dict[AllocationState, tuple[AllocationState, ...]] = {
    #            ENGINE_JOINED  NOT_NEEDED  GONE
    _S.QUEUED: (_S.ACTIVE, _S.LEAVING, _S.ENDED),
    _S.ACTIVE: (_S.ACTIVE, _S.LEAVING, _S.ENDED),
    _S.LEAVING: (_S.LEAVING, _S.LEAVING, _S.ENDED),
    _S.ENDED: (_S.ENDED, _S.ENDED, _S.ENDED),
}
TRANSITIONS: dict[tuple[AllocationState, AllocationStimulus], AllocationState] = {
    (state, stimulus): target
    for state, row in _ROWS.items()
    for stimulus, target in zip(AllocationStimulus, row, strict=True)
}


class Allocation(msgspec.Struct):
    job_id: str
    submitted_at: float
    state: AllocationState = AllocationState.QUEUED
    joined: bool = False
    idle_since: float | None = None

    def step(self, stimulus: AllocationStimulus) -> None:
        """The only way to another state."""
        self.state = TRANSITIONS[self.state, stimulus]


class Submit(msgspec.Struct, frozen=True):
    """Ask for one more allocation."""


class Cancel(msgspec.Struct, frozen=True):
    """Take back an allocation that still waits in the batch system."""

    job_id: str


class Release(msgspec.Struct, frozen=True):
    """Ask its engines to leave; its batch job ends with them."""

    job_id: str


Action: TypeAlias = Submit | Cancel | Release


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
            allocation.step(AllocationStimulus.ENGINE_JOINED)
            allocation.joined = True
            self.failures = 0

    def decide(self, now: float, *, waiting: int, free: int, known: Iterable[str], busy: Iterable[str]) -> list[Action]:
        """What to do. `waiting`: slots that waiting work would fill; `free`: slots of engines that have none;

        `known`: jobs that the batch system still has; `busy`: jobs whose engines have work.
        """
        self._note(now, set(known), set(busy))
        actions: list[Action] = []
        queued = [a for a in self._present() if a.state is AllocationState.QUEUED]
        spare = free + len(queued) * self.plan.slots
        missing = waiting - spare
        while missing > 0 and self._may_submit(len(queued), len(actions)):
            actions.append(Submit())
            missing -= self.plan.slots
        if waiting == 0:
            for allocation in queued:
                allocation.step(AllocationStimulus.NOT_NEEDED)
                actions.append(Cancel(allocation.job_id))
            for allocation in self._present():
                idle_s = 0.0 if allocation.idle_since is None else now - allocation.idle_since
                if allocation.state is AllocationState.ACTIVE and idle_s >= self.plan.idle_s:
                    allocation.step(AllocationStimulus.NOT_NEEDED)
                    actions.append(Release(allocation.job_id))
        return actions

    def all_present(self) -> list[str]:
        """The jobs that must be cancelled when the run ends."""
        return [allocation.job_id for allocation in self._present()]

    def _present(self) -> list[Allocation]:
        return [a for a in self.allocations.values() if a.state is not AllocationState.ENDED]

    def _may_submit(self, queued: int, submitting: int) -> bool:
        if self.stopped_because or queued + submitting >= self.plan.most_queued:
            return False
        if self.plan.total and self._submitted + submitting >= self.plan.total:
            return False
        return len(self._present()) + submitting < self.plan.most

    def _note(self, now: float, known: set[str], busy: set[str]) -> None:
        for allocation in self._present():
            if allocation.job_id not in known:
                cancelled = allocation.state is AllocationState.LEAVING
                allocation.step(AllocationStimulus.GONE)
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

"""Automatic allocation: batch jobs are submitted while work waits and let go when they are idle.

`Allocator` decides, without IO: it is told what waits, what is free, which jobs the batch system still has and which
contexts are idle, and answers Submit, Cancel and LetGo. `SlurmQueue` carries these out with sbatch, squeue and scancel.

Theory. An allocation is QUEUED in the batch system, ACTIVE when its first engine has joined, LEAVING when it was asked
to go, ENDED when the batch system no longer has it. Never more is asked for than the work that waits would fill, so a
short tail of tasks does not order a second machine room. A job that ends before an engine joined counts as a failure;
after a few in a row nothing more is submitted, because the next one would fail as well and the user should hear why.

    QUEUED ──engine joined──► ACTIVE ──idle──► LEAVING ──gone──► ENDED
       └── no work waits: cancelled; or gone without an engine: failed ──► ENDED
"""

from __future__ import annotations

import enum
import shlex
import subprocess
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from pilothouse.model.errors import PeerError

MOST_FAILURES = 3
"""Allocations in a row that ended without an engine, or could not be submitted."""
COMMAND_TIMEOUT_S = 60.0
"""A batch system that does not answer within this time is asked again later."""


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


class SlurmQueue:
    """The batch system's side: one command each, asked no more often than the caller calls."""

    def __init__(self, script: str, *, name: str, log: str, environment: dict[str, str]) -> None:
        self._script = script
        self._name = name
        self._log = log
        self._environment = environment

    def submit(self, options: Sequence[str]) -> str:
        """The id of the new job. Raises PeerError with what sbatch said."""
        wrapped = f"exec {shlex.quote(self._script)}"
        command = ["sbatch", "--parsable", f"--job-name={self._name}", f"--output={self._log}", *options]
        return self._run([*command, "--wrap", wrapped]).partition(";")[0].strip()

    def known(self, job_ids: Sequence[str]) -> set[str]:
        """Those of the jobs that wait or run."""
        if not job_ids:
            return set()
        listed = self._run(["squeue", "-h", "--states=all", "-o", "%A %T", f"--name={self._name}"])
        over = {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"}
        rows = (line.split() for line in listed.splitlines())
        alive = {row[0] for row in rows if len(row) == 2 and row[1] not in over}
        return alive & set(job_ids)

    def cancel(self, job_ids: Sequence[str]) -> None:
        if job_ids:
            self._run(["scancel", *job_ids])

    def _run(self, command: list[str]) -> str:
        try:
            ran = subprocess.run(
                command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False, env=self._environment
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PeerError(command[0], str(error)) from error
        if ran.returncode != 0:
            raise PeerError(command[0], ran.stderr.strip() or f"ended with code {ran.returncode}")
        return ran.stdout

"""The driver's work: tasks become lots, and a lot is what the decider knows as one job. Sans-IO.

A lot is one task, or a bundle: several short ones that run one after another on the units of one decision. Bundles keep
the rate up where tasks take milliseconds; they never oversubscribe a unit, so every decider may be given them. Their
size follows what tasks really took (BUNDLE_S worth of work), shrinks to one towards the end of the file, and the engine
gives back what a slow task would hold up. A task that asks for something of its own is always a lot of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from math import inf

import msgspec

from pilothouse.formats.task_file import TaskLine
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState, Stimulus, step
from pilothouse.worlds.live.driver.feeder import Feeder
from pilothouse.worlds.live.wire.messages import Surroundings, TaskOrder

BUNDLE_S = 0.4
"""How much work a bundle should hold."""
SHORT_S = 0.05
"""Only tasks that take less than this are bundled: for longer ones a decision each costs nothing worth saving."""
LAST_S = 0.02
"""Towards the end bundles shrink to this, so that all slots end together."""
CUT_S = 0.8
"""A bundle that has run for longer gives back what it has not begun."""
BUNDLE_BYTES = 2**20
MOST_BUNDLED = 1000
NODE_LOST = "a node of it was lost"
_SMOOTHING = 0.05


class Lot(msgspec.Struct, eq=False, gc=False):
    """One job of the decider's, and the tasks of it that have not ended."""

    job: Job
    tasks: dict[int, TaskOrder]
    surroundings: Surroundings
    state: JobState = JobState.KNOWN
    from_file: bool = True
    assignment: int = 0
    engine: str = ""
    units: IdSet = IdSet()
    gpus: tuple[str, ...] = ()
    kill_reason: str = ""
    worst: JobState = JobState.SUCCEEDED
    """The worst final state of its tasks so far."""
    code: int = 0
    size: int = 1

    @property
    def killed(self) -> bool:
        """Somebody wants it ended for good."""
        return self.kill_reason not in ("", NODE_LOST)

    def step(self, stimulus: Stimulus) -> None:
        self.state = step(self.state, stimulus)


class DoneIds:
    """Which tasks have their final result: all below a mark, and a few above it. Failed ones are remembered."""

    def __init__(self) -> None:
        self.count = 0
        self.failed: set[int] = set()
        self._mark = 0
        self._above: set[int] = set()

    def add(self, task_id: int, *, failed: bool) -> None:
        self.count += 1
        if failed:
            self.failed.add(task_id)
        if task_id != self._mark:
            self._above.add(task_id)
            return
        self._mark += 1
        while self._mark in self._above:
            self._above.remove(self._mark)
            self._mark += 1

    def __contains__(self, task_id: object) -> bool:
        return isinstance(task_id, int) and (task_id < self._mark or task_id in self._above)


class Pace:
    """How long tasks take, and so how many belong into a bundle."""

    def __init__(self, most: int) -> None:
        self.mean_s = inf
        self.longest_bytes = 1
        """The longest command so far: bundles must fit into messages whatever they hold."""
        self._most = min(most, MOST_BUNDLED)

    def note(self, seconds: float) -> None:
        seconds = max(seconds, 1e-5)
        self.mean_s = seconds if self.mean_s == inf else self.mean_s + _SMOOTHING * (seconds - self.mean_s)

    def bundle(self, remaining: int | None, units: int) -> int:
        """How many tasks the next bundle should hold, with so many left and so many units."""
        if self._most <= 1 or self.mean_s > SHORT_S:
            return 1
        size = min(self._most, int(BUNDLE_S / self.mean_s), BUNDLE_BYTES // self.longest_bytes)
        if remaining is not None:
            size = min(size, max(remaining // (3 * max(1, units)), int(LAST_S / self.mean_s)))
        return max(1, size)


class Backlog:
    """Where the next lot comes from: tasks that came back, submitted jobs, then the file."""

    def __init__(self, template: Job, surroundings: Surroundings, most_bundled: int, done: DoneIds) -> None:
        self.feeder: Feeder | None = None
        self.pace = Pace(most_bundled)
        self.total: int | None = None
        """Tasks in the file, where that was counted beforehand."""
        self.last_given = -1
        """Every task of the file up to this id has been given out or skipped."""
        self._template = template
        self._surroundings = surroundings
        self._returned: deque[TaskOrder] = deque()
        self._jobs: deque[Lot] = deque()
        self._serial = 0
        self._came_back = False
        self._done = done
        self.attempts: dict[int, int] = {}
        """The next attempt of tasks that have failed or were lost before."""
        self.held: set[int] = set()
        """Tasks of the file that engines had in hand when the driver was restarted."""

    def give_back(self, order: TaskOrder) -> None:
        """A task of the file that must be decided about again."""
        self._returned.append(order)

    def add(self, lot: Lot) -> None:
        """A submitted job that may be told to the decider."""
        self._jobs.append(lot)

    def withdraw(self, job_id: str) -> Lot | None:
        """Takes back a submitted job that nobody has been told of."""
        for lot in self._jobs:
            if lot.job.id == job_id:
                self._jobs.remove(lot)
                return lot
        return None

    @property
    def empty(self) -> bool:
        return not self._returned and not self._jobs and (self.feeder is None or self.feeder.over)

    @property
    def waiting_here(self) -> int:
        return len(self._returned) + len(self._jobs)

    def ended(self, task_id: int, *, failed: bool) -> None:
        """A task of the file has its final result."""
        if self.feeder is not None and task_id <= self.last_given:
            self.feeder.ended(failed=failed)

    def lots(self, most: int, units: int, now: float) -> Iterator[Lot]:
        """Up to `most` lots that may run now."""
        while most > 0 and self._jobs:
            most -= 1
            yield self._jobs.popleft()
        while most > 0:
            orders = self._next_orders(units)
            if not orders:
                return
            most -= 1
            yield self._lot(orders, now)

    def _next_orders(self, units: int) -> list[TaskOrder]:
        size = self.pace.bundle(self._remaining(), units)
        if self._returned:
            size = min(size, 1 + len(self._returned) // (2 * max(1, units)))
            self._came_back = True
            return [self._returned.popleft() for _ in range(size)]
        self._came_back = False
        while self.feeder is not None:
            lines = self.feeder.take(size)
            if not lines:
                return []
            self.last_given = lines[-1].task_id
            if not self.held and not self.attempts:
                return [order_of(line) for line in lines]
            fresh = [self._order(line) for line in lines if line.task_id not in self.held]
            for line in lines:
                if line.task_id in self._done:
                    # It ended between being read and being given out.
                    self.feeder.ended(failed=line.task_id in self._done.failed)
            if fresh:
                return fresh
        return []

    def _order(self, line: TaskLine) -> TaskOrder:
        order = order_of(line)
        order.attempt = self.attempts.get(line.task_id, 1)
        return order

    def _remaining(self) -> int | None:
        if self.total is None or self.feeder is None:
            return None
        return max(0, self.total - self.feeder.given_out)

    def _lot(self, orders: list[TaskOrder], now: float) -> Lot:
        self.pace.longest_bytes = max(self.pace.longest_bytes, *(len(order.line) for order in orders))
        first = orders[0]
        job_id = str(first.task_id) if len(orders) == 1 else f"{first.task_id}+{len(orders) - 1}"
        if first.attempt > 1 and len(orders) == 1:
            job_id += f"#{first.attempt}"
        if len(orders) > 1 or self._came_back:
            # Tasks that came back may be bundled alike again, and no two jobs may have one id.
            self._serial += 1
            job_id += f"@{self._serial}"
        return self.lot_of_before(job_id, {order.task_id: order for order in orders}, now)

    def lot_of_before(self, job_id: str, tasks: dict[int, TaskOrder], now: float = 0.0) -> Lot:
        """A lot of the file under a name that it already has."""
        template = self._template
        job = Job(
            job_id, template.units, template.walltime, now, most_units=template.most_units, shape=template.shape,
            command=template.command,
        )  # fmt: skip
        return Lot(job, tasks, self._surroundings, size=len(tasks))


def order_of(line: TaskLine) -> TaskOrder:
    return TaskOrder(
        line.task_id, line.line_number, line.repeat_index, 1, line.command.encode("utf-8", "surrogateescape")
    )

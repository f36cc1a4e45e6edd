"""Slow, obvious schedulers: what the policies of the catalog must do, job by job.

Time is counted in whole seconds, units are sets, and every pass looks at everything again. Nothing of the package is used.
`simulate` plays a workload on so many units with one of the passes below, and returns when each job started and where.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random


@dataclass
class Work:
    """A job, and what became of it. `ends_after` is the shorter of run time and walltime."""

    name: str
    submitted: int
    units: int
    runtime: int
    walltime: int
    priority: int = 0
    most_units: int = 0
    number: int = 0
    started: int | None = None
    where: set[int] = field(default_factory=set)

    @property
    def ends_after(self) -> int:
        return min(self.runtime, self.walltime)


class Machine:
    """Who waits, who runs, which units are free."""

    def __init__(self, units: int, estimate: Callable[[Work], int]) -> None:
        self.total = units
        self.estimate = estimate
        self.now = 0
        self.free = set(range(units))
        self.waiting: list[Work] = []
        self.running: list[Work] = []
        """In the order in which they were started."""
        self.unseen: list[Work] = []
        """Jobs that ended at this date, before their estimate, and whose own event is still to come."""

    def start(self, job: Work, where: set[int]) -> None:
        assert where <= self.free
        self.waiting.remove(job)
        self.running.append(job)
        self.free -= where
        job.started, job.where = self.now, where

    def expected_end(self, job: Work) -> int:
        assert job.started is not None
        return job.started + self.estimate(job)

    @property
    def countable(self) -> int:
        """Free units that a pass may count on."""
        return len(self.free) - sum(len(job.where) for job in self.unseen)


Pass = Callable[[Machine], None]


def simulate(work: list[Work], units: int, one_pass: Pass, estimate: Callable[[Work], int], *, each_event: bool) -> None:
    """Plays the workload. `each_event`: one pass for every event, else one for each date."""
    machine = Machine(units, estimate)
    to_come = sorted(work, key=lambda job: job.submitted)
    for number, job in enumerate(to_come):
        job.number = number
    while to_come or machine.running:
        dates = [job.submitted for job in to_come]
        dates += [job.started + job.ends_after for job in machine.running if job.started is not None]
        machine.now = now = min(dates)
        arriving = [job for job in to_come if job.submitted == now]
        to_come = [job for job in to_come if job.submitted != now]
        ending = [job for job in machine.running if job.started is not None and job.started + job.ends_after == now]
        for job in ending:
            machine.running.remove(job)
            machine.free |= job.where
        if not each_event:
            machine.waiting += [job for job in arriving if job.units <= units]
            one_pass(machine)
            continue
        machine.unseen = [job for job in ending if machine.expected_end(job) > now]
        for job in arriving:
            if job.units <= units:  # or it is refused, which is an event as well
                machine.waiting.append(job)
            one_pass(machine)
        for job in ending:
            if job in machine.unseen:
                machine.unseen.remove(job)
            one_pass(machine)


# ---- which units


def first_block(free: set[int], count: int) -> set[int]:
    """The first units in a row; where there is no such row, the lowest ones."""
    for first in sorted(free):
        block = set(range(first, first + count))
        if block <= free:
            return block
    return lowest(free, count)


def lowest(free: set[int], count: int) -> set[int]:
    return set(sorted(free)[:count])


# ---- passes

Order = Callable[[Work, int], float]
"""(job, now) -> the smaller, the sooner."""


def by_priority(job: Work, now: int) -> float:
    return -job.priority


def scored(value: Callable[[float, float, float, float], float]) -> Order:
    """From r (walltime), n (units), s (submission, at least 1), w (wait); undefined values come first."""

    def order(job: Work, now: int) -> float:
        try:
            return value(job.walltime, job.units, max(job.submitted, 1), now - job.submitted)
        except (ZeroDivisionError, ValueError):
            return -math.inf

    return order


def queueing(backfill: str, order: Order, *, shortest_first: bool = False) -> Pass:
    """Heads start while they fit. Then: nothing ("none"), whatever fits ("fill"), or whatever does not delay the first
    that waits ("easy")."""

    def one_pass(machine: Machine) -> None:
        queue = sorted(machine.waiting, key=lambda job: (order(job, machine.now), job.number))
        while queue and queue[0].units <= machine.countable:
            head = queue.pop(0)
            machine.start(head, first_block(machine.free, head.units))
        if not queue or backfill == "none":
            return
        head, others = queue[0], queue[1:]
        if shortest_first:
            others.sort(key=lambda job: (machine.estimate(job), job.number))
        for job in others:
            if job.units <= machine.countable and (backfill == "fill" or not delays(job, head, machine)):
                machine.start(job, first_block(machine.free, job.units))

    return one_pass


def delays(job: Work, head: Work, machine: Machine) -> bool:
    """Whether starting a job now moves the date at which the head can start by the estimates."""
    held = [(machine.expected_end(other), len(other.where)) for other in machine.running + machine.unseen]
    free = machine.countable
    with_job = [*held, (machine.now + machine.estimate(job), job.units)]
    return possible(head.units, free - job.units, with_job) > possible(head.units, free, held)


def possible(units: int, free: int, held: list[tuple[int, int]]) -> float:
    """The first date at which so many units are free."""
    for date, count in sorted(held):
        free += count
        if free >= units:
            return date
    return math.inf


def conservative(machine: Machine) -> None:
    """Every job in turn gets the first second from which it fits for its whole estimate; what may start now does."""
    now = machine.now
    queue = sorted(machine.waiting, key=lambda job: (-job.priority, job.number))
    horizon = sum(machine.estimate(job) for job in machine.running + queue) + 1
    free = [machine.total] * horizon
    for job in machine.running:
        for second in range(max(0, machine.expected_end(job) - now)):
            free[second] -= len(job.where)
    for job in queue:
        length = machine.estimate(job)
        start = next(s for s in range(horizon) if all(free[t] >= job.units for t in range(s, s + length)))
        for second in range(start, start + length):
            free[second] -= job.units
        if start == 0:
            machine.start(job, lowest(machine.free, job.units))


def qcg(machine: Machine) -> None:
    """In order of arrival, each as large as possible; what does not fit is passed over."""
    for job in sorted(machine.waiting, key=lambda job: (job.submitted, -job.priority, job.number)):
        if job.units <= len(machine.free):
            count = min(job.most_units or job.units, len(machine.free))
            machine.start(job, first_block(machine.free, count))


def shuffled(seed: int) -> Pass:
    """In a random order, whatever fits."""
    random = Random(seed)

    def one_pass(machine: Machine) -> None:
        if machine.free and machine.waiting:
            jobs = [job for job in machine.waiting if job.units <= len(machine.free)]
            random.shuffle(jobs)
            for job in jobs:
                if job.units <= len(machine.free):
                    machine.start(job, first_block(machine.free, job.units))

    return one_pass


# ---- estimates


def requested(job: Work) -> int:
    return job.walltime


def doubled(job: Work) -> int:
    return 2 * job.walltime


def clairvoyant(job: Work) -> int:
    return job.ends_after


SCORES: dict[str, Order] = {
    "spt": scored(lambda r, n, s, w: r),
    "saf": scored(lambda r, n, s, w: r * n),
    "f1": scored(lambda r, n, s, w: math.log10(r) * n + 870 * math.log10(s)),
    "f2": scored(lambda r, n, s, w: math.sqrt(r) * n + 25600 * math.log10(s)),
    "f3": scored(lambda r, n, s, w: r * n + 6.86e6 * math.log10(s)),
    "f4": scored(lambda r, n, s, w: r * math.sqrt(n) + 5.3e5 * math.log10(s)),
    "wfp3": scored(lambda r, n, s, w: -((w / r) ** 3) * n),
    "unicep": scored(lambda r, n, s, w: -w / (math.log2(n) * r)),
}

"""Conservative backfilling: every waiting job has a reservation, and no job may delay that of another.

A new job gets the earliest gap that holds it for its whole estimate. When a job ends before its estimate, all
reservations are made again, so none moves later: the more urgent job first, else in order of arrival. Cost of a job: one
search over the profile of free units (its steps are the estimated ends): 1 µs with a thousand steps, compiled, and 40 in
Python.

A reservation counts units. A job with a shape (nodes, GPUs, memory) may find its date come and its units free on the wrong
nodes; then it is tried again whenever something happens.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import inf
from typing import TYPE_CHECKING

from pilothouse.model.events import Event
from pilothouse.model.job import Job
from pilothouse.policies.base import Policy
from pilothouse.policies.queueing import Estimate, requested

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster


class PlainTimetable:
    """Free units over time: `free[i]` from `dates[i]` to `dates[i+1]`; the last step lasts for ever."""

    def __init__(self, now: float, free: int) -> None:
        self.dates = [now]
        self.free = [free]

    def give(self, date: float, units: int) -> None:
        """Units are free from that date on."""
        self.take(date, inf, -units)

    def take(self, start: float, end: float, units: int) -> None:
        """Takes units from start to end."""
        first, last = self._step_at(start), self._step_at(end)
        for index in range(first, last):
            self.free[index] -= units

    def earliest(self, units: int, duration: float) -> float:
        """The first date from which `units` are free for `duration`; inf if never."""
        index, count = 0, len(self.dates)
        while index < count:
            if self.free[index] < units:
                index += 1
                continue
            start = self.dates[index]
            blocked = self._first_below(units, index + 1, start + duration)
            if blocked is None:
                return start
            index = blocked + 1
        return inf

    def _first_below(self, units: int, index: int, end: float) -> int | None:
        while index < len(self.dates) and self.dates[index] < end:
            if self.free[index] < units:
                return index
            index += 1
        return None

    def _step_at(self, date: float) -> int:
        """The index of the step that begins at that date, made if need be."""
        if date == inf:
            return len(self.dates)
        index = bisect_left(self.dates, date)
        if index == len(self.dates) or self.dates[index] != date:
            self.dates.insert(index, date)
            self.free.insert(index, self.free[index - 1])
        return index

    def forget_before(self, now: float) -> None:
        index = bisect_right(self.dates, now) - 1
        if index > 0:
            del self.dates[:index], self.free[:index]
        self.dates[0] = max(self.dates[0], now)


Timetable: type[PlainTimetable]
try:
    from pilothouse.policies._timetable import Timetable as _Compiled
except ImportError:
    Timetable = PlainTimetable
else:
    Timetable = _Compiled


class Conservative(Policy):
    """No job is ever delayed by a job that came later."""

    def __init__(self, *, estimate: Estimate = requested) -> None:
        self._estimate = estimate
        self._queue: list[Job] = []
        self._start_of: dict[str, float] = {}
        self._timetable = Timetable(0.0, 0)
        self._stale = True

    def on_submitted(self, job: Job, cluster: Cluster) -> None:
        # The sort is stable, and nearly free where all jobs are equally urgent.
        if self._queue and job.priority > self._queue[-1].priority:
            self._stale = True
        self._queue.append(job)
        if not self._stale:
            self._timetable.forget_before(cluster.now)
            self._reserve(job, cluster)

    def on_ended(self, job: Job, cluster: Cluster) -> None:
        self._stale = True

    def on_event(self, event: Event, cluster: Cluster) -> None:
        self._stale = True

    def schedule(self, cluster: Cluster) -> None:
        if self._stale:
            self._reserve_all(cluster)
        waiting = []
        for job in self._queue:
            if job.id not in cluster.waiting:
                continue
            if self._start_of[job.id] > cluster.now or not self._start(job, cluster):
                waiting.append(job)
        self._queue = waiting

    @staticmethod
    def _start(job: Job, cluster: Cluster) -> bool:
        if job.shape is not None:
            return bool(cluster.start(job, least=True))
        # Whole nodes may have more units than were counted for them.
        return job.units <= cluster.free and bool(cluster.start(job, cluster.free_units.lowest(job.units)))

    def _reserve_all(self, cluster: Cluster) -> None:
        self._stale = False
        now = cluster.now
        self._timetable = Timetable(now, cluster.free)
        for run in cluster.running.values():
            # A job that overran its estimate may end any moment: it is taken to end now.
            end = max(run.started_at + self._estimate(run.job), now)
            if end < inf:
                self._timetable.give(end, len(run.units))
        self._queue = [job for job in self._queue if job.id in cluster.waiting]
        self._queue.sort(key=_urgency)
        for job in self._queue:
            self._reserve(job, cluster)

    def _reserve(self, job: Job, cluster: Cluster) -> None:
        duration = self._estimate(job)
        units = job.units if job.shape is None else cluster.least_units(job)
        start = self._timetable.earliest(units, duration)
        self._start_of[job.id] = start
        if start < inf:
            self._timetable.take(start, start + duration, units)
            cluster.expect(job, start)


def _urgency(job: Job) -> float:
    return -job.priority

"""The plan of conservative backfilling: when each waiting job is to start, given the expected ends of running ones.

In: jobs as they wait, start and end. Out: the jobs that are to start by now. `due(now, free)` makes the whole plan again
after an end: each job in turn gets the earliest gap in the free units over time that holds it for its whole duration.
Otherwise it only places the jobs that have come since.

The same class is written in C (`_reservation_plan.c`), which is used where it could be compiled. It makes the same plan with
fewer searches, and only as far as it decides which jobs start now. Tests hold the two against each other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import inf

from pilothouse.model.job import Job


class Timetable:
    """Free units over time: `free[i]` from `dates[i]` to `dates[i+1]`; the last step lasts for ever."""

    def __init__(self, now: float, free: int) -> None:
        self.dates = [now]
        self.free = [free]

    def give(self, date: float, units: int) -> None:
        """Units are free from that date on."""
        self.take(date, inf, -units)

    def take(self, start: float, end: float, units: int) -> None:
        """Takes units from start to end."""
        if end <= start:
            return
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


class PlainReservationPlan:
    """Every waiting job has a reservation; none is delayed by a job behind it."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[float, int]] = {}
        self._queue: list[tuple[Job, int, float]] = []
        """The waiting jobs, with units and duration of each."""
        self._starts: list[float] = []
        """The start of each waiting job, in their order; those that have just come have none yet."""
        self._timetable = Timetable(0.0, 0)
        self._stale = True

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def running(self) -> int:
        """How many jobs hold units."""
        return len(self._held)

    def hold(self, job_id: str, date: float, units: int) -> None:
        """A job holds units, and is expected to end at that date."""
        self._held[job_id] = (date, units)

    def release(self, job_id: str, now: float) -> bool:
        """A job is over. Returns whether it was known to hold units."""
        del now  # the twin in C keeps the plan if the job ended when it was expected to
        if self._held.pop(job_id, None) is None:
            return False
        self._stale = True
        return True

    def add(self, job: Job, units: int, duration: float) -> None:
        """A job waits, behind the others."""
        self._queue.append((job, units, duration))

    def remove(self, job: Job) -> bool:
        """A job was started. Its place in the plan is kept. Returns whether it was there."""
        for index, entry in enumerate(self._queue):
            if entry[0] is job:
                del self._queue[index]
                del self._starts[index : index + 1]
                return True
        return False

    def due(self, now: float, free: int) -> list[Job]:
        """The jobs that are to start by now, in their order. `free` counts the units that are free now."""
        if self._stale:
            self._stale = False
            self._starts = []
            self._timetable = Timetable(now, free)
            for date, units in self._held.values():
                if date < inf:
                    # A job that overran its estimate may end any moment: it is taken to end now.
                    self._timetable.give(max(date, now), units)
        elif len(self._starts) < len(self._queue):
            self._timetable.forget_before(now)
        self._place()
        return [entry[0] for entry, start in zip(self._queue, self._starts, strict=True) if start <= now]

    def jobs(self) -> list[Job]:
        """The waiting jobs in their order."""
        return [job for job, _, _ in self._queue]

    def starts(self) -> dict[str, float]:
        """Job id -> when it is to start, as of the last `due`; without those that will never fit."""
        self._place()
        return {entry[0].id: start for entry, start in zip(self._queue, self._starts, strict=True) if start < inf}

    def _place(self) -> None:
        for _, units, duration in self._queue[len(self._starts) :]:
            start = self._timetable.earliest(units, duration)
            self._starts.append(start)
            if start < inf:
                self._timetable.take(start, start + duration, units)


ReservationPlan: type[PlainReservationPlan]
try:
    from pilothouse.policies import _reservation_plan
except ImportError:
    ReservationPlan = PlainReservationPlan
else:
    ReservationPlan = _reservation_plan.ReservationPlan

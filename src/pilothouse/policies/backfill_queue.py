"""The queue of waiting jobs, the expected ends of running ones, and the passes of backfilling over both.

In: jobs as they are submitted, started and ended. Out: the jobs to start, one at a time. A pass is a dialogue:
`first(now, free)` returns the first job to start; `next(free)` takes the number of units that are free after that (the
same number as before: the job could not be started) and returns the next job, until it returns None. queueing.py states
EASY's rules.

The same class is written in C (`_backfill_queue.c`), which is used where it could be compiled: with 512 units and fifty
waiting jobs, a job costs 0.8 µs there and 5 µs here. Tests hold the two against each other.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Generator
from itertools import count
from math import inf, isnan

from pilothouse.model.job import Job
from pilothouse.policies.score import Program

MOST_GONE = 4096

Entry = tuple[float, int, Job, float, int]
"""A waiting job: score, number of arrival, job, estimate, units."""
End = tuple[float, int, int, str]
"""An expected end: date, number of the start, units, job."""
Reserve = Callable[[Job], tuple[float, int]]
"""For a job with a shape: when it can start, and the mask of the units that it gets; (inf, 0) if that is not known."""


def _score(value: float) -> float:
    return inf if isnan(value) else float(value)


class PlainBackfillQueue:
    """`backfill`: "none" (no job overtakes), "fill" (any job that fits), "easy". `reservations` gets the expected start.
    With a `program` the scores change as jobs wait, and `age` computes them all."""

    def __init__(
        self,
        backfill: str,
        shortest_first: bool,
        reservations: dict[str, float],
        reserve_shaped: Reserve,
        program: Program | None = None,
    ) -> None:
        self.aside: bool
        """The job to start must not delay the reservation: it takes as few units as it can, and none of `avoid`; where that
        is 0, at most `extra` units."""
        self.avoid: int
        self.extra: int
        self._backfill = backfill
        self._reservations = reservations
        self._reserve_shaped = reserve_shaped
        self._program = program
        self._numbers = count()
        self._queue: list[Entry] = []
        self._gone = 0
        """Number of started entries at the front, which are removed together later: in a queue of a million, removing each
        by itself would cost a millisecond. Always 0 if jobs may overtake."""
        self._by_estimate: list[tuple[float, int, Entry]] | None = [] if shortest_first else None
        self._ends: list[End] = []
        """Sorted. Kept for EASY only, which computes reservations from them; with ten thousand jobs that is costly."""
        self._end_of: dict[str, End] = {}
        self._shadow: float
        self._reserved: int
        """The mask of the units that a head with a shape will get; 0 where counts are enough."""
        self._unseen = 0
        self._announced: set[str] = set()
        """Units and ids of jobs that ended at this date before their estimate, and whose own event is still to come."""
        self._fresh: list[Entry] = []
        self._whole_pass = True
        self._now: float
        self._steps: Generator[Job, int, None]

    def __len__(self) -> int:
        return len(self._queue) - self._gone

    def add(self, job: Job, score: float, estimate: float, units: int) -> None:
        """A job waits. Smaller scores come first, equal ones in order of arrival, NaN last."""
        number = next(self._numbers)
        entry = (_score(score), number, job, float(estimate), units)
        if self._queue and entry < self._queue[-1]:
            insort(self._queue, entry, self._gone)
        else:
            self._queue.append(entry)
        if self._program is not None or self._queue[self._gone] is entry:
            self._whole_pass = True
        if self._by_estimate is not None:
            insort(self._by_estimate, (entry[3], number, entry))
        self._fresh.append(entry)

    def remove(self, job: Job) -> None:
        """A waiting job was withdrawn."""
        self._whole_pass = True
        self._clear_gone()
        for entry in [entry for entry in self._queue if entry[2] is job]:
            self._forget(entry)

    def rescore(self, score: Callable[[Job], float]) -> None:
        """Computes all scores again."""
        self._whole_pass = True
        self._clear_gone()
        self._queue = sorted((_score(score(entry[2])), *entry[1:]) for entry in self._queue)
        if self._by_estimate is not None:
            self._by_estimate = sorted((entry[3], entry[1], entry) for entry in self._queue)

    def age(self, now: float) -> None:
        """Computes the scores of all jobs for that date, by the program."""
        program = self._program
        if program is None:
            raise TypeError("the scores of this queue do not age")
        self.rescore(lambda job: program.value(job, now))

    def hold(self, job_id: str, date: float, units: int) -> None:
        """A job holds units, and is expected to end at that date."""
        number = next(self._numbers)
        end = self._end_of[job_id] = (float(date), number, units, job_id)
        if self._backfill == "easy":
            insort(self._ends, end)

    def announce_end(self, job_id: str, now: float) -> None:
        """A job has ended and its units are free; its own event is still to come (`ended`)."""
        end = self._end_of.get(job_id)
        if end is None:
            return
        if end[0] > now:
            self._unseen += end[2]
            self._announced.add(job_id)
        else:
            self._whole_pass = True
            self._release(job_id)

    def ended(self, job_id: str) -> bool:
        """A job is over. Returns whether it was known to hold units."""
        self._whole_pass = True
        end = self._end_of.get(job_id)
        if end is None:
            return False
        if job_id in self._announced:
            self._announced.discard(job_id)
            self._unseen -= end[2]
        self._release(job_id)
        return True

    def look_again(self) -> None:
        """Something happened after which any waiting job might start."""
        self._whole_pass = True

    def ends(self) -> list[tuple[float, str]]:
        """The expected ends in order: (date, job id)."""
        return [(date, job_id) for date, _, _, job_id in self._ends]

    # ---- a pass

    def first(self, now: float, free: int) -> Job | None:
        fresh, self._fresh = self._fresh, []
        # No job waits, or none could start. An event that frees units asks for a whole pass.
        if len(self._queue) == self._gone or free <= self._unseen:
            return None
        self._now = now
        if self._whole_pass or now > self._shadow:
            self._whole_pass = False
            self._steps = self._over_all(free)
        elif fresh and self._backfill != "none":
            # No unit was freed since the last pass: only jobs that have just arrived can start.
            self._steps = self._overtake(fresh, free)
        else:
            return None
        return next(self._steps, None)

    def next(self, free: int) -> Job | None:
        try:
            return self._steps.send(free)
        except StopIteration:
            return None

    def _over_all(self, free: int) -> Generator[Job, int, None]:
        free = yield from self._start_heads(free)
        if len(self._queue) == self._gone:
            return
        if self._backfill == "none":
            self._shadow = inf
            return
        if self._backfill == "fill":
            self._shadow, self.extra, self._reserved = inf, free - self._unseen, 0
        else:
            self._reserve(self._queue[0][2], free)
        by_estimate = self._by_estimate
        entries = self._queue.copy() if by_estimate is None else [entry for _, _, entry in by_estimate]
        yield from self._overtake(entries, free)

    def _start_heads(self, free: int) -> Generator[Job, int, int]:
        queue, started = self._queue, 0
        self.aside = False
        for index in range(self._gone, len(queue)):
            entry = queue[index]
            if entry[4] > free - self._unseen:
                break
            left = yield entry[2]
            if left == free:
                break
            self._note_start(entry, free - left)
            free = left
            started += 1
            if self._by_estimate is not None:
                self._drop_estimate(entry)
        self._gone += started
        if self._backfill != "none" or self._gone >= MOST_GONE:
            self._clear_gone()
        return free

    def _overtake(self, entries: list[Entry], free: int) -> Generator[Job, int, None]:
        now, shadow, unseen = self._now, self._shadow, self._unseen
        head = self._queue[0][1]
        for entry in entries:
            if free <= unseen:
                break
            estimate, units = entry[3], entry[4]
            in_time = now + estimate <= shadow and estimate < inf
            # Where certain units are reserved, any job that fits may find others.
            most = free - unseen if in_time or self._reserved else min(self.extra, free - unseen)
            if units > most or entry[1] == head or not (in_time or self._may_try_aside(entry[2])):
                continue
            self.aside = not in_time
            self.avoid = self._reserved
            left = yield entry[2]
            if left == free:
                continue
            self._note_start(entry, free - left)
            self._forget(entry)
            if not in_time and not self._reserved:
                self.extra -= free - left
            free = left

    def _may_try_aside(self, job: Job) -> bool:
        """Whether a job that does not end by the shadow time might leave the reservation alone."""
        shape = job.shape
        return bool(self._reserved) or shape is None or job.units * max(1, shape.nodes) <= self.extra

    def _reserve(self, head: Job, free: int) -> None:
        """Computes when enough units are free for the head (shadow), and how many more than it needs (extra)."""
        if head.shape is not None:
            self._shadow, self._reserved = self._reserve_shaped(head)
            self.extra = 0 if self._reserved else free - self._unseen
        else:
            self._reserved = 0
            missing, self._shadow = head.units - (free - self._unseen), inf
            for date, _, units, _ in self._ends:
                if missing <= 0 and date > self._shadow:
                    break
                missing -= units
                self._shadow = date
            self.extra = -missing
            if missing > 0:
                # It waits for units that no running job holds: no start can delay it.
                self._shadow, self.extra = inf, free - self._unseen
        # Only the head has one; another job may have been the head before.
        self._reservations.clear()
        self._reservations[head.id] = self._shadow

    # ---- the lists

    def _note_start(self, entry: Entry, units: int) -> None:
        self.hold(entry[2].id, self._now + entry[3], units)

    def _release(self, job_id: str) -> None:
        end = self._end_of.pop(job_id)
        if self._backfill == "easy":
            del self._ends[bisect_left(self._ends, end)]

    def _clear_gone(self) -> None:
        if self._gone:
            del self._queue[: self._gone]
            self._gone = 0

    def _forget(self, entry: Entry) -> None:
        del self._queue[bisect_left(self._queue, entry)]
        if self._by_estimate is not None:
            self._drop_estimate(entry)

    def _drop_estimate(self, entry: Entry) -> None:
        assert self._by_estimate is not None
        del self._by_estimate[bisect_left(self._by_estimate, (entry[3], entry[1], entry))]


BackfillQueue: type[PlainBackfillQueue]
try:
    from pilothouse.policies import _backfill_queue
except ImportError:
    BackfillQueue = PlainBackfillQueue
else:
    BackfillQueue = _backfill_queue.BackfillQueue

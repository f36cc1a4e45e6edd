"""The queue of waiting jobs, the expected ends of running ones, and the passes of backfilling over both.

In: jobs as they are submitted, started and ended. Out: the jobs to start, one at a time. A pass is a dialogue:
`first(now, free)` returns the first job to start; `next(free)` takes the number of units that are free after that (the
same number as before: the job could not be started) and returns the next job, until it returns None. queueing.py states
EASY's rules.

Compiled where possible: see model/compiled.py. With 512 units and fifty waiting jobs, a job then costs 0.8 µs instead of 5.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from math import inf, isnan

from pilothouse.model.compiled import compiled
from pilothouse.model.job import Job

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
    """`backfill`: "none" (no job overtakes), "fill" (any job that fits), "easy". `reservations` gets the expected start."""

    def __init__(
        self, backfill: str, shortest_first: bool, reservations: dict[str, float], reserve_shaped: Reserve
    ) -> None:
        self.aside = False
        """The job to start must not delay the reservation: it takes as few units as it can, and none of `avoid`."""
        self.avoid = 0
        self._overtaking = backfill != "none"
        self._easy = backfill == "easy"
        self._reservations = reservations
        self._reserve_shaped = reserve_shaped
        self._numbers = 0
        self._queue: list[Entry] = []
        self._gone = 0
        """Number of started entries at the front, which are removed together later: in a queue of a million, removing each
        by itself would cost a millisecond. Always 0 if jobs may overtake."""
        self._by_estimate: list[tuple[float, int, Entry]] | None = [] if shortest_first else None
        self._ends: list[End] = []
        """Sorted. Kept for EASY only, which computes reservations from them; with ten thousand jobs that is costly."""
        self._end_of: dict[str, End] = {}
        self._shadow = -inf
        self._extra = 0
        self._reserved = 0
        """The mask of the units that a head with a shape will get; 0 where counts are enough."""
        self._unseen = 0
        self._announced: set[str] = set()
        """Units and ids of jobs that ended at this date before their estimate, and whose own event is still to come."""
        self._fresh: list[Entry] = []
        self._whole_pass = True
        self._now = 0.0
        self._free = 0
        self._asked: Entry | None = None
        """The entry of the job that was returned last in this pass."""
        self._heads = False
        """The pass is still at the jobs that start in their turn; after them it goes through `_others` from `_place` on."""
        self._others: list[Entry] = []
        self._place = 0

    def __len__(self) -> int:
        return len(self._queue) - self._gone

    def add(self, job: Job, score: float, estimate: float, units: int) -> None:
        """A job waits. Smaller scores come first, equal ones in order of arrival, NaN last."""
        self._numbers = number = self._numbers + 1
        score = _score(score)
        entry = (score, number, job, float(estimate), units)
        queue = self._queue
        if queue and score < queue[len(queue) - 1][0]:
            insort(queue, entry, self._gone)
        else:
            queue.append(entry)
        if queue[self._gone] is entry:
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

    def hold(self, job_id: str, date: float, units: int) -> None:
        """A job holds units, and is expected to end at that date."""
        self._numbers = number = self._numbers + 1
        end = self._end_of[job_id] = (float(date), number, units, job_id)
        if self._easy:
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
        fresh = self._fresh
        if fresh:
            self._fresh = []
        self._asked = None
        # No job waits, or none could start. An event that frees units asks for a whole pass.
        if len(self._queue) == self._gone or free <= self._unseen:
            return None
        self._now = now
        self._free = free
        if self._whole_pass or now > self._shadow:
            self._whole_pass = False
            self.aside = False
            self._heads = True
            return self._next_head()
        if not fresh or not self._overtaking:
            return None
        # No unit was freed since the last pass: only jobs that have just arrived can start.
        self._heads = False
        self._others = fresh
        self._place = 0
        return self._next_other()

    def next(self, free: int) -> Job | None:
        entry = self._asked
        if entry is None:
            return None
        self._asked = None
        taken = self._free - free
        self._free = free
        if taken:
            estimate = entry[3]
            self.hold(entry[2].id, self._now + estimate, taken)
        if not self._heads:
            if taken:
                self._forget(entry)
                if self.aside and not self._reserved:
                    self._extra -= taken
            return self._next_other()
        if not taken:
            return self._after_heads()
        self._gone += 1
        if self._by_estimate is not None:
            self._drop_estimate(entry)
        return self._next_head()

    def _next_head(self) -> Job | None:
        if self._gone < len(self._queue):
            entry = self._queue[self._gone]
            units = entry[4]
            if units <= self._free - self._unseen:
                self._asked = entry
                return entry[2]
        return self._after_heads()

    def _after_heads(self) -> Job | None:
        """The head must wait: others may overtake it."""
        if self._overtaking or self._gone >= MOST_GONE:
            self._clear_gone()
        if len(self._queue) == self._gone:
            return None
        if not self._overtaking:
            self._shadow = inf
            return None
        if self._easy:
            self._reserve(self._queue[0][2], self._free - self._unseen)
        else:
            self._shadow, self._extra, self._reserved = inf, self._free - self._unseen, 0
        self._heads = False
        by_estimate = self._by_estimate
        self._others = self._queue[:] if by_estimate is None else [one[2] for one in by_estimate]
        self._place = 0
        return self._next_other()

    def _next_other(self) -> Job | None:
        now, shadow, others = self._now, self._shadow, self._others
        free = self._free - self._unseen
        if free <= 0:
            return None
        # Where certain units are reserved, any job that fits may find others.
        extra = free if self._reserved else min(self._extra, free)
        head = self._queue[0]
        for place in range(self._place, len(others)):
            entry = others[place]
            units = entry[4]
            if units > free or entry is head:
                continue
            estimate = entry[3]
            in_time = now + estimate <= shadow and estimate < inf
            if in_time or (units <= extra and self._may_try_aside(entry[2])):
                self.aside = not in_time
                self.avoid = self._reserved
                self._asked = entry
                self._place = place + 1
                return entry[2]
        return None

    def _may_try_aside(self, job: Job) -> bool:
        """Whether a job that does not end by the shadow time might leave the reservation alone."""
        shape = job.shape
        return bool(self._reserved) or shape is None or job.units * max(1, shape.nodes) <= self._extra

    def _reserve(self, head: Job, free: int) -> None:
        """Computes when enough units are free for the head (shadow), and how many more than it needs (extra)."""
        if head.shape is not None:
            self._shadow, self._reserved = self._reserve_shaped(head)
            self._extra = 0 if self._reserved else free
        else:
            self._reserved = 0
            missing, shadow = head.units - free, inf
            for end in self._ends:
                date = end[0]
                if missing <= 0 and date > shadow:
                    break
                units = end[2]
                missing -= units
                shadow = date
            self._shadow, self._extra = shadow, -missing
            if missing > 0:
                # It waits for units that no running job holds: no start can delay it.
                self._shadow, self._extra = inf, free
        self._reservations[head.id] = self._shadow

    # ---- the lists

    def _release(self, job_id: str) -> None:
        end = self._end_of.pop(job_id)
        if self._easy:
            self._ends.pop(bisect_left(self._ends, end))

    def _clear_gone(self) -> None:
        if self._gone:
            del self._queue[: self._gone]
            self._gone = 0

    def _forget(self, entry: Entry) -> None:
        self._queue.pop(bisect_left(self._queue, entry))
        if self._by_estimate is not None:
            self._drop_estimate(entry)

    def _drop_estimate(self, entry: Entry) -> None:
        assert self._by_estimate is not None
        self._by_estimate.pop(bisect_left(self._by_estimate, (entry[3], entry[1], entry)))


BackfillQueue: type[PlainBackfillQueue] = compiled(__name__, "PlainBackfillQueue")

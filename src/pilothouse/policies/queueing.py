"""One engine for fcfs, filler, easy, easy-sjbf and all priority functions: a queue, a reservation, backfilling.

The rules of EASY, as published with the schedules that it reproduces job by job:

* one pass per event; at one date submissions come before terminations;
* jobs start from the head of the queue as long as they fit; the first that does not gets a reservation at the shadow
  time, when (by the estimates) enough units will be free;
* in a pass, the units of a job whose estimated end is now already count as free, those of a job that ends now before its
  estimate only after its own event;
* another job may start now if it ends by the shadow time (now + estimate <= shadow) or fits into the units that the
  reservation leaves over (extra); candidates are looked at in queue order, or shortest estimate first (SJBF).

Between two terminations shadow, extra and free only shrink, so after a submission only the new job can start: a pass then
costs 1 µs. After a termination it looks at the whole queue: about 0.06 µs a waiting job.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from pilothouse.model.events import Event, PrioritiesChanged
from pilothouse.model.job import Job
from pilothouse.policies.base import Policy

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster

Score = Callable[[Job, float], float]
"""(job, now) -> the smaller, the sooner."""
Estimate = Callable[[Job], float]
Entry = tuple[float, int, Job, float]
"""A queue entry: score, number of arrival, job, estimate."""


def requested(job: Job) -> float:
    return job.walltime


def doubled(job: Job) -> float:
    return 2 * job.walltime


def clairvoyant(job: Job) -> float:
    return job.walltime if job.runtime is None else min(job.runtime, job.walltime)


ESTIMATES: dict[str, Estimate] = {"requested": requested, "2x": doubled, "clairvoyant": clairvoyant}


class Queueing(Policy):
    """Head first by `score` (arrival order if None); `backfill`: "none" (nothing overtakes), "fill" (whatever fits), "easy"."""

    each_event = True

    def __init__(
        self,
        backfill: str = "easy",
        *,
        score: Score | None = None,
        ages: bool = False,
        shortest_first: bool = False,
        estimate: Estimate = requested,
    ) -> None:
        self._backfill = backfill
        self._score = score
        self._ages = ages
        self._shortest_first = shortest_first
        self._estimate = estimate
        self._arrivals = 0
        self._queue: list[Entry] = []
        self._by_estimate: list[Entry] = []
        self._ends: list[tuple[float, int, int]] = []
        self._end_of: dict[str, tuple[float, int, int]] = {}
        self._shadow = -inf
        self._extra = 0
        self._unseen = 0
        self._coming: set[str] = set()
        """Units, and ids, of jobs that have ended at this date before their estimate, and whose event is still to come."""
        self._fresh: list[Entry] = []
        self._whole_pass = True

    # ---- facts

    def begin(self, cluster: Cluster) -> None:
        for run in cluster.running.values():
            self._arrivals = number = self._arrivals + 1
            end = self._end_of[run.job.id] = (run.started_at + self._estimate(run.job), number, len(run.units))
            insort(self._ends, end)

    def on_submitted(self, job: Job, cluster: Cluster) -> None:
        self._arrivals = number = self._arrivals + 1
        estimate = self._estimate(job)
        if self._score is None:
            # whoever submits may say what is urgent (a Flux priority); most do not, and the order is that of arrival
            entry = (-job.priority, number, job, estimate)
            if self._queue and entry < self._queue[-1]:
                insort(self._queue, entry)
            else:
                self._queue.append(entry)
        else:
            entry = (self._score(job, cluster.now), number, job, estimate)
            insort(self._queue, entry)
        if self._queue[0] is entry:
            self._whole_pass = True
        if self._shortest_first:
            insort(self._by_estimate, (estimate, number, job, estimate))
        self._fresh.append(entry)

    def on_batch(self, ended: list[Job], cluster: Cluster) -> None:
        for job in ended:
            end = self._end_of.get(job.id)
            if end is None:
                continue
            if end[0] > cluster.now:
                self._unseen += end[2]
                self._coming.add(job.id)
            else:
                self._whole_pass = True
                self._release(job)

    def on_ended(self, job: Job, cluster: Cluster) -> None:
        self._whole_pass = True
        end = self._end_of.get(job.id)
        if end is not None:
            if job.id in self._coming:
                self._coming.discard(job.id)
                self._unseen -= end[2]
            self._release(job)
        else:
            for entry in [entry for entry in self._queue if entry[2] is job]:
                self._forget(entry)

    def on_event(self, event: Event, cluster: Cluster) -> None:
        self._whole_pass = True
        if type(event) is PrioritiesChanged and self._score is None:
            self._queue = sorted((-job.priority, number, job, end) for _, number, job, end in self._queue)
            self._fresh.clear()

    # ---- a pass

    def schedule(self, cluster: Cluster) -> None:
        if not self._queue or cluster.free <= self._unseen:
            # Nothing waits, or nothing could start; whatever frees units asks for a whole pass.
            self._fresh.clear()
            return
        if self._whole_pass or self._ages or cluster.now > self._shadow:
            self._pass_over_all(cluster)
        # Nothing was freed since the last pass: only what has just arrived can start.
        elif self._backfill != "none" and cluster.free > self._unseen:
            self._backfill_from(self._fresh, cluster)
        self._fresh.clear()

    def _pass_over_all(self, cluster: Cluster) -> None:
        self._whole_pass = False
        if self._ages and self._score is not None:
            score, now = self._score, cluster.now
            self._queue = sorted((score(job, now), number, job, end) for _, number, job, end in self._queue)
        self._start_heads(cluster)
        if not self._queue:
            return
        if self._backfill == "none":
            self._shadow = inf
        elif self._backfill == "fill":
            self._shadow, self._extra = inf, cluster.free - self._unseen
            self._backfill_from(self._queue, cluster)
        else:
            self._reserve(self._queue[0][2], cluster)
            if cluster.free > self._unseen:
                self._backfill_from(self._by_estimate if self._shortest_first else self._queue, cluster)

    def _start_heads(self, cluster: Cluster) -> None:
        queue, started = self._queue, 0
        for entry in queue:
            if entry[2].units > cluster.free - self._unseen or not self._starts(entry, cluster):
                break
            started += 1
            if self._shortest_first:
                self._drop_estimate(entry)
        if started:
            del queue[:started]

    def _reserve(self, head: Job, cluster: Cluster) -> None:
        """When will enough units be free for the head, and how many more than it needs?"""
        missing = head.units - (cluster.free - self._unseen)
        shadow = inf
        for end, _, units in self._ends:
            if missing <= 0 and end > shadow:
                break
            missing -= units
            shadow = end
        if missing > 0:
            shadow = inf
        self._shadow = shadow
        self._extra = max(0, -missing)
        cluster.expect(head, shadow)

    def _backfill_from(self, entries: list[Entry], cluster: Cluster) -> None:
        now, shadow, extra = cluster.now, self._shadow, self._extra
        head = self._queue[0]
        started: list[Entry] = []
        free = cluster.free - self._unseen
        for entry in entries:
            _, _, job, estimate = entry
            units = job.units
            if units > free:
                continue
            ends_in_time = now + estimate <= shadow
            if (ends_in_time or units <= extra) and entry[1] != head[1] and self._starts(entry, cluster):
                started.append(entry)
                if not ends_in_time:
                    extra -= units
                free = cluster.free - self._unseen
                if not free:
                    break
        self._extra = extra
        for entry in started:
            self._forget(entry)

    def _starts(self, entry: Entry, cluster: Cluster) -> bool:
        job = entry[2]
        if not cluster.start(job):
            return False
        self._arrivals = number = self._arrivals + 1
        end = self._end_of[job.id] = (cluster.now + entry[3], number, job.units)
        insort(self._ends, end)
        return True

    def _release(self, job: Job) -> None:
        del self._ends[bisect_left(self._ends, self._end_of.pop(job.id))]

    def _forget(self, entry: Entry) -> None:
        """Takes an entry of either list out of both. They are sorted, and no two arrivals have one number."""
        if not self._shortest_first:
            del self._queue[bisect_left(self._queue, entry)]
            return
        self._drop_estimate(entry)
        number = entry[1]
        self._queue = [other for other in self._queue if other[1] != number]

    def _drop_estimate(self, entry: Entry) -> None:
        _, number, job, estimate = entry
        del self._by_estimate[bisect_left(self._by_estimate, (estimate, number, job, estimate))]

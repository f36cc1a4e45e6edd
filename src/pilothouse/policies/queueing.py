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
from pilothouse.policies.scan import End, Entry, candidate, shadow

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster

Score = Callable[[Job, float], float]
"""(job, now) -> the smaller, the sooner."""
Estimate = Callable[[Job], float]


def requested(job: Job) -> float:
    return job.walltime


def doubled(job: Job) -> float:
    return 2 * job.walltime


def clairvoyant(job: Job) -> float:
    return job.walltime if job.runtime is None else min(job.runtime, job.walltime)


MOST_GONE = 4096

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
        self._gone = 0
        """So many entries at the front have started and are taken out together later: in a queue of a million, taking out
        each by itself would cost a millisecond. Only where nothing overtakes; else always 0."""
        self._by_estimate: list[Entry] = []
        self._ends: list[End] = []
        """Expected ends, sorted; for reservations, so for EASY alone: with ten thousand jobs they would cost the others dear."""
        self._end_of: dict[str, End] = {}
        self._shadow = -inf
        self._extra = 0
        self._reserved = 0
        """The mask of the units that a head of a certain shape will get; 0 where counts are enough."""
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
            if self._backfill == "easy":
                insort(self._ends, end)

    def on_submitted(self, job: Job, cluster: Cluster) -> None:
        self._arrivals = number = self._arrivals + 1
        estimate = self._estimate(job)
        if self._score is None:
            # whoever submits may say what is urgent (a Flux priority); most do not, and the order is that of arrival
            entry = (-job.priority, number, job, estimate, job.units)
            if self._queue and entry < self._queue[-1]:
                insort(self._queue, entry, self._gone)
            else:
                self._queue.append(entry)
        else:
            entry = (self._score(job, cluster.now), number, job, estimate, job.units)
            insort(self._queue, entry, self._gone)
        if self._queue[self._gone] is entry:
            self._whole_pass = True
        if self._shortest_first:
            insort(self._by_estimate, (estimate, number, job, estimate, job.units))
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
            self._clear_gone()
            for entry in [entry for entry in self._queue if entry[2] is job]:
                self._forget(entry)

    def on_event(self, event: Event, cluster: Cluster) -> None:
        self._whole_pass = True
        if type(event) is PrioritiesChanged and self._score is None:
            self._clear_gone()
            self._queue = sorted((-entry[2].priority, *entry[1:]) for entry in self._queue)
            self._fresh.clear()

    # ---- a pass

    def schedule(self, cluster: Cluster) -> None:
        fresh, self._fresh = self._fresh, []
        # Nothing waits, or nothing could start: whatever frees units asks for a whole pass.
        if len(self._queue) > self._gone and cluster.free > self._unseen:
            if self._whole_pass or self._ages or cluster.now > self._shadow:
                self._pass_over_all(cluster)
            elif fresh and self._backfill != "none":
                # Nothing was freed since the last pass: only what has just arrived can start.
                self._backfill_from(fresh, cluster)

    def _pass_over_all(self, cluster: Cluster) -> None:
        self._whole_pass = False
        if self._ages and self._score is not None:
            self._clear_gone()
            score, now = self._score, cluster.now
            self._queue = sorted((score(entry[2], now), *entry[1:]) for entry in self._queue)
        self._start_heads(cluster)
        if len(self._queue) == self._gone:
            return
        if self._backfill == "none":
            self._shadow = inf
        elif self._backfill == "fill":
            self._shadow, self._extra, self._reserved = inf, cluster.free - self._unseen, 0
            self._backfill_from(self._queue, cluster)
        else:
            self._reserve(self._queue[0][2], cluster)
            if cluster.free > self._unseen:
                self._backfill_from(self._by_estimate if self._shortest_first else self._queue, cluster)

    def _start_heads(self, cluster: Cluster) -> None:
        queue, started = self._queue, 0
        for index in range(self._gone, len(queue)):
            entry = queue[index]
            if entry[4] > cluster.free - self._unseen or not self._starts(entry, cluster):
                break
            started += 1
            if self._shortest_first:
                self._drop_estimate(entry)
        self._gone += started
        if self._backfill != "none" or self._gone >= MOST_GONE:
            self._clear_gone()

    def _clear_gone(self) -> None:
        if self._gone:
            del self._queue[: self._gone]
            self._gone = 0

    def _reserve(self, head: Job, cluster: Cluster) -> None:
        """When will enough units be free for the head, and how many more than it needs?"""
        self._reserved = 0
        if head.shape is not None:
            self._reserve_shaped(head, cluster)
            return
        free = cluster.free - self._unseen
        self._shadow, self._extra = shadow(self._ends, head.units - free)
        if self._extra < 0:
            # It waits for units that no running job holds: nobody can delay it.
            self._shadow, self._extra = inf, free
        cluster.expect(head, self._shadow)

    def _reserve_shaped(self, head: Job, cluster: Cluster) -> None:
        """The same for a request that counts alone do not decide: the units themselves are reserved."""
        ids = {end: job_id for job_id, end in self._end_of.items()}
        ended: list[str] = []
        self._shadow, self._extra = inf, cluster.free - self._unseen
        for index, end in enumerate(self._ends):
            ended.append(ids[end])
            if index + 1 < len(self._ends) and self._ends[index + 1][0] == end[0]:
                continue
            found = cluster.would_get(head, ended)
            if found is not None:
                self._shadow, self._extra, self._reserved = end[0], 0, found
                break
        cluster.expect(head, self._shadow)

    def _backfill_from(self, entries: list[Entry], cluster: Cluster) -> None:
        now, shadow, extra = cluster.now, self._shadow, self._extra
        free = cluster.free - self._unseen
        started: list[Entry] = []
        head, index = self._queue[0][1], -1
        while free:
            # Where units themselves are reserved, whatever fits may find others.
            index = candidate(entries, index + 1, free, free if self._reserved else extra, now, shadow)
            if index < 0:
                break
            entry = entries[index]
            if entry[1] == head:
                continue
            ends_in_time = now + entry[3] <= shadow and entry[3] < inf
            given = self._starts(entry, cluster) if ends_in_time else self._starts_aside(entry, cluster, extra)
            if given:
                started.append(entry)
                if not ends_in_time and not self._reserved:
                    extra -= given
                free = cluster.free - self._unseen
        self._extra = extra
        for entry in started:
            self._forget(entry)

    def _starts(self, entry: Entry, cluster: Cluster, *, least: bool = False, avoid: int = 0) -> int:
        """Starts a job if it fits; how many units it got."""
        job = entry[2]
        answer = cluster.start(job, least=least, avoid=avoid)
        if not answer:
            return 0
        units = job.units if job.shape is None and not job.most_units else len(answer.units)  # type: ignore[union-attr]
        self._arrivals = number = self._arrivals + 1
        end = self._end_of[job.id] = (cluster.now + entry[3], number, units)
        if self._backfill == "easy":
            insort(self._ends, end)
        return units

    def _starts_aside(self, entry: Entry, cluster: Cluster, extra: int) -> int:
        """Starts a job that will not be done by the shadow time, if it leaves the reservation alone."""
        shape = entry[2].shape
        if self._reserved:
            return self._starts(entry, cluster, least=True, avoid=self._reserved)
        if shape is not None and entry[2].units * max(1, shape.nodes) > extra:
            return 0
        return self._starts(entry, cluster, least=True)

    def _release(self, job: Job) -> None:
        end = self._end_of.pop(job.id)
        if self._backfill == "easy":
            del self._ends[bisect_left(self._ends, end)]

    def _forget(self, entry: Entry) -> None:
        """Takes an entry of either list out of both. They are sorted, and no two arrivals have one number."""
        if not self._shortest_first:
            del self._queue[bisect_left(self._queue, entry)]
            return
        self._drop_estimate(entry)
        number = entry[1]
        self._queue = [other for other in self._queue if other[1] != number]

    def _drop_estimate(self, entry: Entry) -> None:
        _, number, job, estimate, units = entry
        del self._by_estimate[bisect_left(self._by_estimate, (estimate, number, job, estimate, units))]

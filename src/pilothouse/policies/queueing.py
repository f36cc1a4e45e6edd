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
costs 0.3 µs. After a termination it looks at the whole queue: about 2 ns a waiting job. (Compiled; see backfill_queue.py.)
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from pilothouse.model.events import (
    Event,
    JobHolds,
    PrioritiesChanged,
    Running,
    UnitsAvailable,
    UnitsFreed,
    UnitsUnavailable,
    WalltimeChanged,
)
from pilothouse.model.job import Job
from pilothouse.policies.backfill_queue import BackfillQueue, PlainBackfillQueue
from pilothouse.policies.base import Policy
from pilothouse.policies.score import Expression

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
        self._program = score.program if isinstance(score, Expression) else None
        self._shortest_first = shortest_first
        self._estimate = estimate
        self._queue: PlainBackfillQueue
        self._limits_changed = False
        """Of waiting jobs."""

    # ---- events

    def begin(self, cluster: Cluster) -> None:
        def reserve_shaped(head: Job) -> tuple[float, int]:
            return self._reserve_shaped(head, cluster)

        self._queue = BackfillQueue(
            self._backfill, self._shortest_first, cluster.reservations, reserve_shaped, self._program
        )
        for run in cluster.running.values():
            self._hold(run, cluster)

    def _hold(self, run: Running, cluster: Cluster) -> None:
        self._queue.hold(run.job.id, run.started_at + self._estimate(run.job), cluster.returning(run))

    def on_submitted(self, job: Job, cluster: Cluster) -> None:
        # A priority (Flux has them) comes before the order of arrival.
        score = -job.priority if self._score is None else self._score(job, cluster.now)
        self._queue.add(job, score, self._estimate(job), job.units)

    def on_batch(self, ended: list[Job], cluster: Cluster) -> None:
        for job in ended:
            self._queue.announce_end(job.id, cluster.now)

    def on_ended(self, job: Job, cluster: Cluster) -> None:
        if not self._queue.ended(job.id):
            self._queue.remove(job)

    def on_event(self, event: Event, cluster: Cluster) -> None:
        if type(event) is PrioritiesChanged and self._score is None:
            self._queue.rescore(lambda job: -job.priority)
            return
        self._queue.look_again()
        if type(event) is WalltimeChanged or type(event) is UnitsFreed or type(event) is JobHolds:
            self._limits_changed = self._limits_changed or event.job_id in cluster.waiting
            run = cluster.running.get(event.job_id)
            # It ends at another date, or holds less.
            if run is not None and (self._queue.ended(run.job.id) or type(event) is JobHolds):
                self._hold(run, cluster)
        elif type(event) is UnitsAvailable or type(event) is UnitsUnavailable:
            for run in cluster.running.values():
                if run.units.mask & event.units.mask and self._queue.ended(run.job.id):
                    self._hold(run, cluster)

    # ---- a pass

    def schedule(self, cluster: Cluster) -> None:
        queue = self._queue
        if self._limits_changed:
            self._estimate_anew(cluster)
        if self._ages and self._score is not None and cluster.free and queue:
            score, now = self._score, cluster.now
            if self._program is not None:
                queue.age(now)
            else:
                queue.rescore(lambda job: score(job, now))
        job = queue.first(cluster.now, cluster.free)
        while job is not None:
            if queue.aside:
                cluster.start(job, least=True, avoid=queue.avoid, most=None if queue.avoid else queue.extra)
            else:
                cluster.start(job)
            job = queue.next(cluster.free)

    def _estimate_anew(self, cluster: Cluster) -> None:
        """All waiting jobs are added anew, so that equal ones keep their order."""
        self._limits_changed = False
        known = []
        for job in cluster.waiting.values():
            before = len(self._queue)
            self._queue.remove(job)
            if len(self._queue) < before:
                known.append(job)
        for job in known:
            self.on_submitted(job, cluster)

    def _reserve_shaped(self, head: Job, cluster: Cluster) -> tuple[float, int]:
        """The reservation of a request that counts alone do not decide: the units themselves."""
        return cluster.when_fits(head, self._queue.ends()) or (inf, 0)

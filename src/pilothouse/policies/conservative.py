"""Conservative backfilling: every waiting job has a reservation, and no job may delay that of another.

A new job gets the earliest gap that holds it for its whole estimate. After an end, all reservations are made again from the
estimates: the more urgent job first, else in order of arrival. (So a reservation may also move later: a job before it found
a better gap. A job that ends when it was expected to changes none.) reservation_plan.py makes them: about 40 µs for each
waiting job after an end; compiled, only those that decide which jobs start now, in a few ns for each of the others.

As long as no job with a shape waits, a reservation counts units. From then on it is for particular nodes, with their GPUs and
memory (node_plan.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilothouse.model.events import Event
from pilothouse.model.job import Job
from pilothouse.policies.base import Policy
from pilothouse.policies.node_plan import NodePlan
from pilothouse.policies.queueing import Estimate, requested
from pilothouse.policies.reservation_plan import PlainReservationPlan, ReservationPlan

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster


class Conservative(Policy):
    """No job is ever delayed by a job that came later."""

    def __init__(self, *, estimate: Estimate = requested) -> None:
        self._estimate = estimate
        self._plan: PlainReservationPlan | NodePlan = ReservationPlan()
        self._least_priority: float
        self._changed = False
        """Something happened that the plan was not told of: it is made anew from the cluster."""

    def begin(self, cluster: Cluster) -> None:
        cluster.plan_ahead = self._starts

    def on_submitted(self, job: Job, cluster: Cluster) -> None:
        if not len(self._plan):
            self._least_priority = job.priority
        elif job.priority > self._least_priority:
            self._changed = True
        if job.shape is not None and not isinstance(self._plan, NodePlan):
            self._changed = True
        self._add(job, cluster)

    def on_ended(self, job: Job, cluster: Cluster) -> None:
        self._plan.release(job.id, cluster.now)

    def on_event(self, event: Event, cluster: Cluster) -> None:
        self._changed = True

    def schedule(self, cluster: Cluster) -> None:
        plan = self._plan
        if self._changed or len(plan) != len(cluster.waiting) or plan.running != len(cluster.running):
            plan = self._plan = self._plan_anew(cluster)
        for job in plan.due(cluster.now, cluster.free):
            if self._start(job, cluster):
                plan.remove(job)
                self._hold(job, cluster)

    def _start(self, job: Job, cluster: Cluster) -> bool:
        if isinstance(self._plan, NodePlan):
            units = self._plan.units(job)
            return units is not None and bool(cluster.start(job, units))
        return job.units <= cluster.free and bool(cluster.start(job, least=True, lowest=True))

    def _plan_anew(self, cluster: Cluster) -> PlainReservationPlan | NodePlan:
        self._changed = False
        waiting = [job for job in self._plan.jobs() if job.id in cluster.waiting]
        # The sort is stable, and nearly free where all jobs are equally urgent.
        waiting.sort(key=_urgency)
        shaped = any(job.shape is not None for job in waiting)
        self._plan = NodePlan(cluster) if shaped else ReservationPlan()
        self._least_priority = waiting[-1].priority if waiting else 0.0
        for job_id in cluster.running:
            self._hold(cluster.running[job_id].job, cluster)
        for job in waiting:
            self._add(job, cluster)
        return self._plan

    def _hold(self, job: Job, cluster: Cluster) -> None:
        run = cluster.running[job.id]
        self._plan.hold(job.id, run.started_at + self._estimate(job), cluster.returning(run))

    def _add(self, job: Job, cluster: Cluster) -> None:
        self._least_priority = min(self._least_priority, job.priority)
        self._plan.add(job, job.units, self._estimate(job))

    def _starts(self) -> dict[str, float]:
        return self._plan.starts()


def _urgency(job: Job) -> float:
    return -job.priority

"""The queue rules of the QCG PilotJob Manager: in order of arrival, as large as possible, on past what does not fit.

From the specification, "Queue & Scheduler": jobs are looked at in order of arrival; a ready job gets as much as it may
use of what is free, if that is at least its minimum, and nobody else gets it; a job whose minimum is more than there is
at all is refused; one that does not fit now stays, and the next is looked at. (Jobs that wait for others are held back
by the world, and those that wait in vain are omitted there.) A large job can starve under these rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilothouse.model.answers import Never
from pilothouse.model.events import Event
from pilothouse.model.job import Job
from pilothouse.policies.base import Policy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pilothouse.core.cluster import Cluster


def _arrival(job: Job) -> tuple[float, float]:
    # Jobs of one request arrive at one date; the manager numbers them by their priority.
    return job.submitted_at, -job.priority


class Qcg(Policy):
    """QCG PilotJob's scheduler."""

    summary = "QCG PilotJob's rules: FIFO, as large as possible, on past jobs that do not fit"

    def __init__(self) -> None:
        self._fresh: list[Job] = []
        self._look_at_all = True

    def on_submitted(self, job: Job, cluster: Cluster) -> None:
        self._fresh.append(job)

    def on_ended(self, job: Job, cluster: Cluster) -> None:
        self._look_at_all = True

    def on_event(self, event: Event, cluster: Cluster) -> None:
        self._look_at_all = True

    def schedule(self, cluster: Cluster) -> None:
        fresh, self._fresh = self._fresh, []
        if not cluster.free:
            return
        # Between two ends free units only become fewer: what did not fit before does not fit now.
        if self._look_at_all:
            self._look_at_all = False
            self._start(sorted(cluster.queue, key=_arrival), cluster)
        elif fresh:
            self._start(sorted(fresh, key=_arrival), cluster)

    def _start(self, jobs: Iterable[Job], cluster: Cluster) -> None:
        for job in jobs:
            if job.units > cluster.free:
                continue
            answer = cluster.start(job)
            if isinstance(answer, Never):
                cluster.reject(job, answer.reason)
            if not cluster.free:
                # Those that were not looked at are looked at when something is free again.
                self._look_at_all = True
                return

"""Annotations that tell the users of a Flux instance why their jobs wait and when they may start.

`reason_pending` comes from core/explain.py, `t_estimate` from the policy's reservations. Only changes are sent, and the
number of annotations per turn is limited, so that a turn's cost does not depend on the length of the queue.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from pilothouse.core import place
from pilothouse.core.explain import explain
from pilothouse.model.answers import Never, NotNow
from pilothouse.model.decisions import Annotate, Decision, Reply
from pilothouse.model.events import Batch, JobSubmitted

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster
    from pilothouse.core.contract import World
    from pilothouse.core.session import Session

MOST_PER_TURN = 16
LONG_QUEUE = 1000
"""In a longer queue the reason leaves out the position in the queue."""
LEAST_CHANGE_S = 1.0


class PendingReasons:
    """An observer of a Session: called after each turn."""

    def __init__(self, session: Session, world: World) -> None:
        self._session = session
        self._world = world
        self._told: dict[str, float] = {}

    def __call__(self, batch: Batch) -> None:
        cluster = self._session.cluster
        notes: list[Decision] = []
        for event in batch.events:
            if type(event) is JobSubmitted and event.job.id in cluster.waiting:
                reason = _reason(cluster, event.job.id)
                notes.append(Annotate(batch.now, event.job.id, {"sched": {"reason_pending": reason}}))
                if len(notes) == MOST_PER_TURN:
                    break
        for job_id, when in cluster.reservations.items():
            if len(notes) >= 2 * MOST_PER_TURN:
                break
            if when != inf and job_id in cluster.waiting and abs(self._told.get(job_id, -inf) - when) > LEAST_CHANGE_S:
                self._told[job_id] = when
                notes.append(Annotate(batch.now, job_id, {"sched": {"t_estimate": when}}))
        self._estimate_head(batch.now, cluster, notes)
        if len(self._told) > LONG_QUEUE:
            self._told = {job_id: when for job_id, when in self._told.items() if job_id in cluster.waiting}
        if notes:
            self._world.apply(Reply(batch.now, notes))

    def _estimate_head(self, now: float, cluster: Cluster, notes: list[Decision]) -> None:
        """The first waiting job without a reservation: its start is estimated from the expected ends of running jobs."""
        if len(cluster.waiting) > LONG_QUEUE:
            return
        head = next(iter(cluster.waiting.values()), None)
        if head is None or head.id in cluster.reservations or head.id in self._told or head.shape is not None:
            return
        missing, when = head.units - cluster.free, now
        for run in sorted(cluster.running.values(), key=lambda run: run.started_at + run.job.walltime):
            if missing <= 0:
                break
            missing -= len(run.units)
            when = run.started_at + run.job.walltime
        if missing <= 0 and when != inf:
            self._told[head.id] = when
            notes.append(Annotate(now, head.id, {"sched": {"t_estimate": when}}))


def _reason(cluster: Cluster, job_id: str) -> str:
    if len(cluster.waiting) <= LONG_QUEUE:
        return explain(cluster, job_id).detail
    found = place.choose(cluster, cluster.waiting[job_id])
    if isinstance(found, NotNow | Never):
        return found.reason
    return f"it would fit now, but {cluster.decider} holds it back"

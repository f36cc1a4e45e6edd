"""The Policy: a scheduler in this process. A subclass is only its idea; everything else is kept up to date for it.

class ShortestFirst(Policy):
    def schedule(self, cluster):
        for job in sorted(cluster.queue, key=lambda job: job.walltime):
            if not cluster.start(job):
                break
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pilothouse.model.decisions import Wants
from pilothouse.model.events import Batch, Event
from pilothouse.model.job import Job

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster


class Policy:
    """Base of all schedulers in this process."""

    summary: ClassVar[str] = ""
    """One line for `pilothouse policies`."""
    each_event: ClassVar[bool] = False
    """True: one pass of `schedule` for every event; False: one for each batch of simultaneous events."""
    wants: Wants = Wants()
    """What it asks of the world before it begins, such as dynamic registration."""

    def schedule(self, cluster: Cluster) -> None:
        """Called whenever something happened. Looks at `cluster.queue`, calls `cluster.start(job)`."""
        raise NotImplementedError(f"{type(self).__name__} must define schedule(self, cluster)")

    def begin(self, cluster: Cluster) -> None:
        """Called once, before anything happens."""

    def admit(self, job: Job, cluster: Cluster) -> bool:
        """Called for each submitted job, before anything else: whether to consider it at all.

        The default refuses a job that no state of the cluster could hold, so that it never blocks the queue.
        """
        if job.shape is None and 0 < job.units <= cluster.total:
            return True
        never = cluster.could_ever_run(job)
        if never is None:
            return True
        cluster.reject(job, never.reason)
        return False

    def on_batch(self, ended: list[Job], cluster: Cluster) -> None:
        """Called before the events of a batch with several, with the jobs that end in it: their units are free already.

        Only for policies that make one pass per event."""

    def on_submitted(self, job: Job, cluster: Cluster) -> None:
        """Called when an admitted job waits (again); must be cheap."""

    def on_ended(self, job: Job, cluster: Cluster) -> None:
        """Called when a job that was started is over, or a waiting one has gone; must be cheap."""

    def on_event(self, event: Event, cluster: Cluster) -> None:
        """Called for every other event (calls, availability, probes, ...)."""

    def decide(self, batch: Batch, cluster: Cluster) -> float | None:
        """The whole turn: if you override it, it is called instead of all the hooks above.

        The cluster has seen the events already; decisions go through it. Returns the date at which the policy is done thinking
        (it hears nothing before), or None: at once.
        """
        return None

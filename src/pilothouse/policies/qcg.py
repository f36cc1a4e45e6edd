"""The queue rules of the QCG PilotJob Manager: in order of arrival, as large as possible, on past what does not fit.

From the specification, "Queue & Scheduler": jobs are looked at in order of arrival. A ready job gets as many free units as it
may use, if that is at least its minimum. A job whose minimum is more than the whole cluster is refused. One that does not
fit now stays, and the next is looked at. A large job can starve under these rules. (The world holds jobs that wait for
others, and omits those that can never run.)

A pass costs 0.04 µs for each waiting job that it looks at, and ends when nothing is free.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import count
from typing import TYPE_CHECKING

from pilothouse.model.answers import Never
from pilothouse.model.events import Event
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.masks import lowest_bits
from pilothouse.policies.base import Policy

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster

Entry = tuple[float, float, int, Job]
"""Arrival, place among jobs of one arrival, number; and the job."""


class Qcg(Policy):
    """QCG PilotJob's scheduler."""

    summary = "QCG PilotJob's rules: FIFO, as large as possible, on past jobs that do not fit"

    def __init__(self) -> None:
        self._queue: list[Entry] = []
        self._fresh: list[Entry] = []
        self._numbers = count()
        self._look_at_all = True
        self._numbered_in_order: bool

    def begin(self, cluster: Cluster) -> None:
        # Engines of a live allocation join, and get their units, in any order; nodes are listed as they were named.
        firsts = [node.first for node in cluster.nodes.values()]
        self._numbered_in_order = firsts == sorted(firsts)

    def on_submitted(self, job: Job, cluster: Cluster) -> None:
        # Jobs of one request arrive at one date; the manager numbers them by their priority.
        entry = (job.submitted_at, -job.priority, next(self._numbers), job)
        insort(self._queue, entry)
        self._fresh.append(entry)

    def on_ended(self, job: Job, cluster: Cluster) -> None:
        self._look_at_all = True
        if job.id in cluster.withdrawn:
            self._queue = [entry for entry in self._queue if entry[3].id != job.id]
            self._fresh = [entry for entry in self._fresh if entry[3].id != job.id]

    def on_event(self, event: Event, cluster: Cluster) -> None:
        self._look_at_all = True

    def schedule(self, cluster: Cluster) -> None:
        fresh, self._fresh = self._fresh, []
        if not cluster.free:
            return
        # Between two ends free units only become fewer: what did not fit before does not fit now.
        if self._look_at_all:
            self._look_at_all = False
            self._pass_over(self._queue, cluster)
        elif fresh:
            self._pass_over(sorted(fresh), cluster)

    def _pass_over(self, entries: list[Entry], cluster: Cluster) -> None:
        gone: list[Entry] = []
        free = cluster.free
        for entry in entries:
            if entry[3].units > free:
                continue
            if self._is_gone(entry[3], cluster):
                gone.append(entry)
            free = cluster.free
            if not free:
                # Those that were not looked at are looked at when something is free again.
                self._look_at_all = True
                break
        # In a long queue it is mostly the first ones that go, and removing each by itself would be slow.
        queue, heads = self._queue, 0
        while heads < len(gone) and queue[heads] is gone[heads]:
            heads += 1
        del queue[:heads]
        for entry in gone[heads:]:
            del queue[bisect_left(queue, entry)]

    def _is_gone(self, job: Job, cluster: Cluster) -> bool:
        """Starts the job, or refuses it; False if it goes on waiting."""
        answer = cluster.start(job, self._units(job, cluster))
        if isinstance(answer, Never):
            cluster.reject(job, answer.reason)
            return True
        return bool(answer)

    def _units(self, job: Job, cluster: Cluster) -> IdSet | None:
        """The first free units in the order of the nodes; None where that is what the cluster does by itself."""
        if self._numbered_in_order or job.shape is not None:
            return None
        taken, wanted = 0, job.most_units or job.units
        for node in cluster.nodes.values():
            taken |= lowest_bits(cluster.free_mask & node.mask, wanted - taken.bit_count())
            if taken.bit_count() == wanted:
                break
        return IdSet(taken) if taken.bit_count() >= job.units else None

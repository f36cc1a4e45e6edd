"""Nodes of a live world that were lost and may come back, kept from deciders that have no word for that.

A scheduler of another project knows the machines of the beginning, and most end on the news that one is gone. When a node is
lost another engine takes its place after a moment, with the same units. So the loss is not told: what the decider starts
there meanwhile is held back until the node is back. Only when PATIENCE_S have passed is the loss told, and jobs that were
held back come again as jobs that lost their node.

In: batches for the decider, and its orders. Out: both, as they go on from here.
"""

from __future__ import annotations

from pilothouse.core.cluster import Cluster
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.lifecycle import JobState

PATIENCE_S = 60.0
CALL = "pilothouse: a lost node"
KILLED_CODE = -1


class Absence:
    """What one decider does not know."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lost: list[e.NodesLeft] = []
        self._held: dict[str, d.StartJob] = {}
        self._later: list[e.Event] = []
        """What to tell with the next batch."""

    def facts(self, batch: e.Batch) -> tuple[e.Batch, list[d.Decision]]:
        """What the decider is told of a batch, and what is ordered in its place."""
        told, self._later = self._later, []
        orders: list[d.Decision] = []
        for event in batch.events:
            if isinstance(event, e.NodesLeft) and event.may_return:
                self._lost.append(event)
                orders.append(d.CallAt(batch.now, event.at + PATIENCE_S, CALL))
            elif isinstance(event, e.NodesJoined) and self._lost:
                told += self._came(event)
                orders += self._released(batch.now)
            elif isinstance(event, e.CallArrived) and event.call_id == CALL:
                told += self._given_up(batch.now)
            elif isinstance(event, e.JobWithdrawn) and event.job_id in self._held:
                units = self._held.pop(event.job_id).units
                told.append(e.JobEnded(event.at, event.job_id, JobState.KILLED, KILLED_CODE, units))
                orders.append(d.ConfirmWithdrawal(event.at, event.job_id))
            else:
                told.append(event)
        return e.Batch(batch.now, told, batch.waits), orders

    def orders(self, decisions: list[d.Decision]) -> list[d.Decision]:
        """What is ordered now of what the decider said."""
        if not self._lost and not self._held:
            return decisions
        now: list[d.Decision] = []
        for order in decisions:
            if isinstance(order, d.StartJob) and order.units.mask & self._cluster.away_mask:
                self._held[order.job_id] = order
            elif isinstance(order, d.KillJobs) and not self._held.keys().isdisjoint(order.job_ids):
                now += self._kill(order)
            else:
                now.append(order)
        return now

    def _came(self, event: e.NodesJoined) -> list[e.Event]:
        """Nodes that are back are no news; others may be."""
        news = []
        for node in event.nodes:
            missed = [left for left in self._lost if not left.units.mask & ~node.mask]
            if missed:
                self._lost = [left for left in self._lost if left not in missed]
            else:
                news.append(node)
        return [e.NodesJoined(event.at, tuple(news))] if news else []

    def _released(self, now: float) -> list[d.Decision]:
        free = [job_id for job_id, order in self._held.items() if not order.units.mask & self._cluster.away_mask]
        released: list[d.Decision] = []
        for job_id in free:
            order = self._held.pop(job_id)
            order.at = now
            released.append(order)
        return released

    def _given_up(self, now: float) -> list[e.Event]:
        told: list[e.Event] = []
        for left in [left for left in self._lost if left.at + PATIENCE_S <= now]:
            self._lost.remove(left)
            self._cluster.away_mask &= ~left.units.mask
            for job_id in [job_id for job_id, order in self._held.items() if order.units.mask & left.units.mask]:
                del self._held[job_id]
                told.append(e.JobRequeued(now, job_id, "its node was lost"))
            told.append(e.NodesLeft(now, left.names, left.units))
        return told

    def _kill(self, order: d.KillJobs) -> list[d.Decision]:
        """Jobs that were held back never started: they are refused, and told as killed."""
        orders: list[d.Decision] = [d.CallAt(order.at, order.at, CALL)]
        for job_id in order.job_ids:
            held = self._held.pop(job_id, None)
            if held is not None:
                orders.append(d.RejectJob(order.at, job_id, "killed while its node was away"))
                self._later.append(e.JobEnded(order.at, job_id, JobState.KILLED, KILLED_CODE, held.units))
                self._later.append(e.JobsKilled(order.at, (job_id,), {}))
            else:
                orders.append(d.KillJobs(order.at, (job_id,)))
        return orders

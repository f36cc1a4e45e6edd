"""Lost nodes that may come back: what a foreign decider hears of them, and what becomes of its orders meanwhile."""

from __future__ import annotations

from typing import Any

from pilothouse.core.absence import CALL, PATIENCE_S, Absence
from pilothouse.core.cluster import Cluster
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState

A, B = Node("a", 0, 2), Node("b", 2, 2)
LOST = e.NodesLeft(5.0, ("a",), IdSet(0b11), may_return=True)


class Stage:
    """Two nodes, two jobs that wait, and what goes to and fro."""

    def __init__(self) -> None:
        self.cluster = Cluster(e.Begins((A, B), time_waits=False), "test")
        self.absence = Absence(self.cluster)
        self.hears(0.0, e.JobSubmitted(0.0, Job("j", 1)), e.JobSubmitted(0.0, Job("k", 1)))

    def hears(self, now: float, *events: e.Event) -> tuple[list[Any], list[Any]]:
        """What the decider is told, and what is ordered in its place."""
        for event in events:
            self.cluster.observe(event)
        batch, orders = self.absence.facts(e.Batch(now, list(events)))
        assert batch.now == now
        return batch.events, orders

    def says(self, *orders: d.Decision) -> list[Any]:
        return self.absence.orders(list(orders))


def test_a_start_on_a_lost_node_waits_for_it() -> None:
    stage = Stage()
    told, orders = stage.hears(5.0, LOST)
    assert (told, orders) == ([], [d.CallAt(5.0, 5.0 + PATIENCE_S, CALL)])
    there, elsewhere = d.StartJob(6.0, "j", IdSet(0b1)), d.StartJob(6.0, "k", IdSet(0b100))
    assert stage.says(there, elsewhere) == [elsewhere]
    told, orders = stage.hears(9.0, e.NodesJoined(9.0, (Node("a#2", 0, 2),)))
    assert (told, orders) == ([], [d.StartJob(9.0, "j", IdSet(0b1))])
    assert stage.says(there) == [there]
    told, orders = stage.hears(5.0 + PATIENCE_S, e.CallArrived(5.0 + PATIENCE_S, CALL))
    assert (told, orders) == ([], [])


def test_a_node_that_stays_away_is_told_in_the_end() -> None:
    stage = Stage()
    stage.hears(5.0, LOST)
    assert stage.says(d.StartJob(6.0, "j", IdSet(0b1))) == []
    assert stage.hears(40.0, e.CallArrived(40.0, CALL)) == ([], [])
    end = 5.0 + PATIENCE_S
    told, orders = stage.hears(end, e.CallArrived(end, CALL))
    assert told == [e.JobRequeued(end, "j", "its node was lost"), e.NodesLeft(end, ("a",), IdSet(0b11))]
    assert orders == [] and stage.cluster.away_mask == 0
    joined = e.NodesJoined(90.0, (Node("a#2", 0, 2),))
    assert stage.hears(90.0, joined) == ([joined], [])


def test_other_nodes_that_come_or_go_are_told() -> None:
    stage = Stage()
    stage.hears(5.0, LOST)
    left, joined = e.NodesLeft(6.0, ("b",), IdSet(0b1100)), e.NodesJoined(7.0, (Node("c", 4, 2), Node("a#2", 0, 2)))
    assert stage.hears(6.0, left) == ([left], [])
    assert stage.hears(7.0, joined) == ([e.NodesJoined(7.0, (Node("c", 4, 2),))], [])


def test_a_job_that_is_taken_back_while_it_is_held() -> None:
    stage = Stage()
    stage.hears(5.0, LOST)
    stage.says(d.StartJob(6.0, "j", IdSet(0b1)))
    told, orders = stage.hears(7.0, e.JobWithdrawn(7.0, "j"))
    assert told == [e.JobEnded(7.0, "j", JobState.KILLED, -1, IdSet(0b1))]
    assert orders == [d.ConfirmWithdrawal(7.0, "j")]
    stage.cluster.order(orders[0])
    assert stage.hears(9.0, e.NodesJoined(9.0, (Node("a#2", 0, 2),))) == ([], [])


def test_a_job_that_is_killed_while_it_is_held() -> None:
    stage = Stage()
    stage.hears(5.0, LOST)
    stage.says(d.StartJob(6.0, "j", IdSet(0b1)))
    assert stage.says(d.KillJobs(7.0, ("j", "k"))) == [
        d.CallAt(7.0, 7.0, CALL),
        d.RejectJob(7.0, "j", "killed while its node was away"),
        d.KillJobs(7.0, ("k",)),
    ]
    told, _ = stage.hears(7.0, e.CallArrived(7.0, CALL))
    assert told == [e.JobEnded(7.0, "j", JobState.KILLED, -1, IdSet(0b1)), e.JobsKilled(7.0, ("j",), {})]

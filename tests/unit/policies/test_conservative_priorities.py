"""Conservative backfilling with jobs of different urgency, and with expected ends that move."""

from __future__ import annotations

from pilothouse.core.cluster import Cluster
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState
from pilothouse.policies.catalog import make


class Stage:
    """Four units under a policy."""

    def __init__(self, policy: str) -> None:
        begins = e.Begins(nodes=(Node("n", 0, 4),))
        self.cluster = Cluster(begins, policy)
        self.decider = PolicyDecider(make(policy, {}))
        self.decider.begin(begins, self.cluster)

    def hears(self, now: float, *events: e.Event) -> list[str]:
        """The jobs that start."""
        reply = self.decider.decide(e.Batch(now, list(events)))
        return [decision.job_id for decision in reply.decisions]  # type: ignore[union-attr]

    def submits(self, now: float, name: str, units: int, walltime: float, priority: float = 0.0) -> list[str]:
        return self.hears(now, e.JobSubmitted(now, Job(name, units, walltime, now, priority=priority)))


def test_the_more_urgent_job_has_the_earlier_reservation() -> None:
    stage = Stage("conservative")
    assert stage.submits(0.0, "runs", 4, 100.0, 16) == ["runs"]
    assert stage.submits(1.0, "first", 4, 50.0, 16) == []
    assert stage.submits(2.0, "urgent", 4, 10.0, 31) == []
    assert stage.cluster.expected_starts() == {"urgent": 100.0, "first": 110.0}
    assert stage.hears(3.0, e.PrioritiesChanged(3.0, {"first": 40.0})) == []
    assert stage.cluster.expected_starts() == {"first": 100.0, "urgent": 150.0}


def test_a_moved_end_moves_the_reservations() -> None:
    stage = Stage("conservative")
    stage.submits(0.0, "runs", 4, 100.0)
    stage.submits(1.0, "waits", 2, 50.0)
    stage.hears(2.0, e.WalltimeChanged(2.0, "runs", 300.0))
    assert stage.cluster.expected_starts() == {"waits": 300.0}


def test_easy_backfills_behind_a_moved_end() -> None:
    """A short job may start when it ends before the head's new reservation."""
    stage = Stage("easy")
    assert stage.submits(0.0, "runs", 3, 100.0) == ["runs"]
    assert stage.submits(1.0, "head", 4, 50.0) == []
    assert stage.submits(2.0, "small", 1, 200.0) == []
    assert stage.cluster.reservations["head"] == 100.0
    assert stage.hears(3.0, e.WalltimeChanged(3.0, "runs", 300.0)) == ["small"]
    assert stage.cluster.reservations["head"] == 300.0
    stage = Stage("easy")
    stage.submits(0.0, "runs", 3, 300.0)
    stage.submits(1.0, "head", 4, 50.0)
    assert stage.hears(2.0, e.WalltimeChanged(2.0, "runs", 100.0)) == []
    assert stage.submits(3.0, "small", 1, 200.0) == []


def test_easy_backfills_by_the_new_limit_of_a_waiting_job_and_keeps_the_order() -> None:
    stage = Stage("easy")
    assert stage.submits(0.0, "runs", 3, 100.0) == ["runs"]
    assert stage.submits(1.0, "head", 4, 50.0) == []
    assert stage.submits(2.0, "long", 1, 200.0) == []
    assert stage.submits(3.0, "longer", 1, 300.0) == []
    assert stage.hears(4.0, e.WalltimeChanged(4.0, "longer", 400.0), e.WalltimeChanged(4.0, "long", 50.0)) == ["long"]
    assert stage.hears(5.0, e.WalltimeChanged(5.0, "head", 60.0)) == []
    assert stage.hears(6.0, e.JobEnded(6.0, "long", JobState.SUCCEEDED, 0, IdSet("3"))) == []
    assert stage.hears(7.0, e.JobEnded(7.0, "runs", JobState.SUCCEEDED, 0, IdSet("0-2"))) == ["head"]

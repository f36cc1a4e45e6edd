"""What a decider knows: queue, running jobs, free units, and what becomes of decisions."""

from __future__ import annotations

import pytest

from pilothouse.core.calls import Calls
from pilothouse.core.cluster import Cluster
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.answers import NotNow, Placed
from pilothouse.model.errors import DecisionError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node, Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, Profile
from pilothouse.policies.base import Policy
from pilothouse.worlds.simulated.world import SimulatedWorld


def cluster(**more: object) -> Cluster:
    nodes = (Node("n0", 3, 2), Node("n1", 5, 3))
    return Cluster(e.Begins(nodes=nodes, **more), "tester")  # type: ignore[arg-type]


def submitted(c: Cluster, name: str, units: int = 1, **more: object) -> Job:
    job = Job(name, units, **more)  # type: ignore[arg-type]
    c.observe(e.JobSubmitted(0.0, job))
    return job


def test_the_units_are_those_of_the_nodes() -> None:
    c = cluster()
    assert (c.units, c.free_units, c.total, c.free) == (IdSet.span(3, 5), IdSet.span(3, 5), 5, 5)


def test_what_runs_at_the_beginning_holds_its_units() -> None:
    running = (e.Running(Job("a", 2, 30.0), IdSet.parse("3-4"), 5.0),)
    c = cluster(running=running, unavailable=IdSet.parse("7"))
    assert c.free_units == IdSet.parse("5-6") and c.expected_end("a") == 35.0
    assert c.state_of("a") is JobState.RUNNING


def test_a_waiting_job_that_ends_leaves_the_queue() -> None:
    c = cluster()
    job = submitted(c, "a")
    assert job in c.queue and c.state_of("a") is JobState.WAITING
    c.observe(e.JobEnded(1.0, "a", JobState.KILLED, 0, IdSet()))
    assert job not in c.queue and len(c.queue) == 0 and c.state_of("a") is JobState.KILLED


def test_units_come_back_and_those_that_are_off_do_not() -> None:
    c = cluster()
    job = submitted(c, "a", 2)
    assert c.start(job) == Placed(IdSet.parse("3-4"))
    c.observe(e.UnitsUnavailable(1.0, IdSet.parse("4")))
    c.observe(e.JobEnded(2.0, "a", JobState.SUCCEEDED, 0, IdSet.parse("3-4")))
    assert c.free_units == IdSet.parse("3 5-7")
    c.observe(e.UnitsAvailable(3.0, IdSet.parse("4")))
    assert c.free == 5


def test_units_to_avoid_are_left_alone() -> None:
    c = cluster()
    assert c.start(submitted(c, "a", 2), avoid=IdSet.parse("3-4").mask) == Placed(IdSet.parse("5-6"))
    shaped = submitted(c, "b", 1, shape=Shape(nodes=1))
    assert isinstance(c.start(shaped, avoid=IdSet.parse("3-4 7").mask), NotNow)
    assert c.start(shaped, avoid=IdSet.parse("3").mask) == Placed(IdSet.parse("4"))


def test_a_request_that_did_not_fit_is_tried_again_when_something_is_free() -> None:
    c = cluster()
    assert c.start(submitted(c, "a", 4))
    shape = Shape(nodes=2)
    first, second = submitted(c, "b", 1, shape=shape), submitted(c, "c", 1, shape=shape)
    assert isinstance(c.start(first), NotNow) and isinstance(c.start(second), NotNow)
    c.observe(e.JobEnded(1.0, "a", JobState.SUCCEEDED, 0, IdSet.parse("3-6")))
    assert c.start(second) == Placed(IdSet.parse("3 5"))


def test_a_start_of_a_job_that_does_not_wait_is_refused() -> None:
    with pytest.raises(DecisionError):
        cluster().start(Job("nobody", 1))


def test_reservations_are_forgotten_with_the_start() -> None:
    c = cluster()
    job = submitted(c, "a")
    c.expect(job, 7.0)
    assert c.reservations == {"a": 7.0}
    c.start(job)
    assert c.reservations == {}


def test_a_late_series_of_calls_keeps_to_its_multiples() -> None:
    calls = Calls()
    calls.ask(d.CallEvery(0.0, 2.0, "tick"), 0.0)
    assert len(calls.due(11.0)) == 2 and calls.next_at == 12.0


class Starting(Policy):
    def schedule(self, cluster: Cluster) -> None:
        for job in cluster.queue:
            cluster.start(job)


def test_a_session_counts_its_turns() -> None:
    world = SimulatedWorld(e.Begins(nodes=(Node("h", 0),)), [Job("a", 1, 50.0, 3.0, Profile("p", Delay(10.0)))])
    outcome = Session(world, PolicyDecider(Starting())).run()
    # it begins, the job comes, the job ends, it is over
    assert (outcome.turns, outcome.ended_at, outcome.deadlocked) == (4, 13.0, False)


def test_a_policy_with_another_signature_is_named() -> None:
    class Wrong(Policy):
        def schedule(self) -> None:  # type: ignore[override]
            pass

    world = SimulatedWorld(e.Begins(nodes=(Node("h", 0),)), [])
    with pytest.raises(DecisionError, match="Wrong"):
        Session(world, PolicyDecider(Wrong())).run()

"""The reasons of waiting, as data and as a sentence."""

from pilothouse.core.cluster import Cluster
from pilothouse.core.explain import explain
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState


def cluster() -> Cluster:
    c = Cluster(e.Begins(nodes=tuple(Node(f"h{i}", i) for i in range(4))), "tester")
    for job in (Job("a", 3, walltime=100.0), Job("b", 2), Job("big", 9), Job("small", 1)):
        c.observe(e.JobSubmitted(0.0, job))
    c.start(c.waiting["a"])
    return c


def test_a_job_waits_for_units() -> None:
    c = cluster()
    c.expect(c.waiting["b"], 100.0)
    why = explain(c, "b")
    assert (why.reason, why.free, why.needed, why.blockers, why.expected_at) == ("resources", 1, 2, ("a",), 100.0)
    assert why.sentence == ("job b is waiting: it needs 2 units, and 1 are free; it is expected to start at 100 s")


def test_a_job_that_can_never_start() -> None:
    assert explain(cluster(), "big").reason == "never"


def test_a_job_that_fits_is_held_back_by_the_policy() -> None:
    why = explain(cluster(), "small")
    assert (why.reason, why.ahead) == ("policy", 2)
    assert "tester holds it back" in why.sentence


def test_units_that_are_down_are_named() -> None:
    c = Cluster(e.Begins(nodes=tuple(Node(f"h{i}", i) for i in range(4)), unavailable=IdSet.parse("1-3")), "tester")
    c.observe(e.JobSubmitted(0.0, Job("b", 2)))
    assert explain(c, "b").reason == "unavailable"


def test_running_ended_and_unknown_jobs() -> None:
    c = cluster()
    assert explain(c, "a").reason == "running"
    c.observe(e.JobEnded(1.0, "a", JobState.SUCCEEDED, 0, IdSet.parse("0-2")))
    assert explain(c, "a").reason == "ended"
    assert explain(c, "nope").reason == "unknown"

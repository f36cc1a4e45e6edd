"""The QCG policy on a cluster: order of arrival, order of nodes, as much as possible, and never a unit twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pilothouse.core.cluster import Cluster
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node, Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.policies.qcg import Qcg

MIXED = (Node("a", 4, 2), Node("b", 0, 4))
"""Node a is named first, but its engine joined last."""


def turn(*nodes: Node) -> PolicyDecider:
    decider, begins = PolicyDecider(Qcg()), e.Begins(nodes)
    decider.begin(begins, Cluster(begins, "test"))
    return decider


def starts(policy: PolicyDecider, *events: e.Event, now: float = 0.0) -> dict[str, str]:
    reply = policy.decide(e.Batch(now, list(events)))
    return {order.job_id: str(order.units) for order in reply.decisions if isinstance(order, d.StartJob)}


def submitted(job: Job) -> e.JobSubmitted:
    return e.JobSubmitted(job.submitted_at, job)


def test_nodes_are_filled_in_the_order_in_which_they_are_named() -> None:
    policy = turn(*MIXED)
    events = [submitted(Job("one", 1)), submitted(Job("three", 3)), submitted(Job("range", 1, most_units=9))]
    assert starts(policy, *events) == {"one": "4", "three": "0-1 5", "range": "2-3"}


def test_arrival_counts_and_not_the_moment_of_release() -> None:
    policy = turn(Node("n", 0, 1))
    assert starts(policy, submitted(Job("running", 1))) == {"running": "0"}
    assert starts(policy, submitted(Job("late", 1, submitted_at=2.0)), now=2.0) == {}
    assert starts(policy, submitted(Job("released", 1, submitted_at=1.0)), now=3.0) == {}
    end = e.JobEnded(4.0, "running", JobState.SUCCEEDED, 0, IdSet.parse("0"))
    assert starts(policy, end, now=4.0) == {"released": "0"}


def test_jobs_of_one_arrival_keep_their_numbers() -> None:
    policy = turn(Node("n", 0, 1))
    assert starts(policy, submitted(Job("b", 1, priority=-2)), submitted(Job("a", 1, priority=-1))) == {"a": "0"}


def test_a_withdrawn_job_is_forgotten() -> None:
    policy = turn(Node("n", 0, 1))
    starts(policy, submitted(Job("running", 1)), submitted(Job("gone", 1)), submitted(Job("next", 1)))
    end = e.JobEnded(1.0, "running", JobState.SUCCEEDED, 0, IdSet.parse("0"))
    assert starts(policy, e.JobWithdrawn(1.0, "gone"), end, now=1.0) == {"next": "0"}


SIZES = st.tuples(st.integers(1, 7), st.integers(0, 8), st.booleans(), st.integers(0, 3))


@given(st.lists(SIZES, max_size=25), st.randoms(use_true_random=False))
def test_whatever_comes_no_unit_is_given_twice_and_everything_that_fits_runs(
    sizes: list[tuple[int, int, bool, int]], chance: object
) -> None:
    policy = turn(*MIXED)
    running: dict[str, IdSet] = {}
    rejected: set[str] = set()
    events: list[e.Event] = []
    for number, (least, more, shaped, nodes) in enumerate(sizes):
        shape = Shape(nodes=nodes, most_nodes=nodes) if shaped and nodes else None
        most = 0 if shape is not None else least + more
        events.append(e.JobSubmitted(0.0, Job(f"j{number}", least, most_units=most, shape=shape)))
    done, now = 0, 0.0
    while events:
        for order in policy.decide(e.Batch(now, events)).decisions:
            if isinstance(order, d.StartJob):
                assert all(order.units.isdisjoint(units) for units in running.values())
                running[order.job_id] = order.units
            elif isinstance(order, d.RejectJob):
                rejected.add(order.job_id)
        now += 1
        events = []
        if running:
            name = chance.choice(sorted(running))  # type: ignore[attr-defined]
            events.append(e.JobEnded(now, name, JobState.SUCCEEDED, 0, running.pop(name)))
            done += 1
    assert done + len(rejected) == len(sizes), "nothing waits for ever once all is free"

"""The reasons of waiting, as data and as a sentence; and what a job lacks."""

from __future__ import annotations

from math import inf

import pytest

from pilothouse.core.cluster import Cluster
from pilothouse.core.explain import MOST_BLOCKERS, Explanation, Shortage, explain, shortage, why_waiting
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node, Shape
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


@pytest.mark.parametrize(
    ("expected", "said", "end"),
    [(None, None, ""), (inf, None, ""), (0.0, 0.0, "; it is expected to start at 0 s")],
)
def test_a_start_is_expected_only_at_a_date_that_will_come(expected: float | None, said: float | None, end: str) -> None:
    c = cluster()
    if expected is not None:
        c.expect(c.waiting["b"], expected)
    why = explain(c, "b")
    assert (why.expected_at, why.sentence) == (said, "job b is waiting: it needs 2 units, and 1 are free" + end)


def test_a_job_that_can_never_start() -> None:
    why = explain(cluster(), "big")
    assert (why.reason, why.blockers) == ("never", ())
    assert why.sentence == (
        "job big is waiting: it can never start, it needs 9 units, and there are 4; 1 job arrived before it"
    )


def test_a_job_that_fits_is_held_back_by_the_policy() -> None:
    why = explain(cluster(), "small")
    assert (why.reason, why.ahead, why.blockers) == ("policy", 2, ())
    assert why.sentence == (
        "job small is waiting: it would fit now (1 units are free), but tester holds it back; 2 jobs arrived before it"
    )


@pytest.mark.parametrize(
    ("off", "units", "expected"),
    [
        ("2-3", 3, ("unavailable", "it needs 3 units, and 1 are free (2 more are not available)")),
        ("2-3", 4, ("resources", "it needs 4 units, and 1 are free")),
        ("0 2-3", 3, ("unavailable", "it needs 3 units, and 1 are free (2 more are not available)")),  # a job holds unit 0
        ("2-9", 4, ("resources", "it needs 4 units, and 1 are free")),  # there are no units 4 to 9
        ("0", 4, ("resources", "it needs 4 units, and 3 are free")),  # the job on it goes on
    ],
)
def test_units_that_are_off_and_would_be_enough_are_named(off: str, units: int, expected: tuple[str, str]) -> None:
    c = Cluster(e.Begins(nodes=tuple(Node(f"h{i}", i) for i in range(4))), "tester")
    c.observe(e.JobSubmitted(0.0, Job("a", 1, 50.0)))
    assert c.start(c.waiting["a"])
    c.observe(e.UnitsUnavailable(0.0, IdSet.parse(off)))
    c.observe(e.JobSubmitted(0.0, Job("b", units)))
    assert why_waiting(c, c.waiting["b"]) == expected
    why = explain(c, "b")
    assert (why.reason, why.detail, why.blockers) == (*expected, ("a",))


def test_the_jobs_that_end_first_are_named_until_their_units_are_enough() -> None:
    """Of 17 units one is free."""
    count = MOST_BLOCKERS + 3
    c = Cluster(e.Begins(nodes=(Node("h", 0, 2 * count + 1),)), "tester")
    for number in range(count):
        c.observe(e.JobSubmitted(0.0, Job(f"j{number}", 2, walltime=100.0 - number)))
        assert c.start(c.waiting[f"j{number}"])
    soonest = [f"j{number}" for number in reversed(range(count))]
    for units, blockers in ((1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (10, MOST_BLOCKERS), (2 * count, MOST_BLOCKERS)):
        job = Job(f"of {units}", units)
        c.observe(e.JobSubmitted(0.0, job))
        assert explain(c, job.id).blockers == tuple(soonest[:blockers])


def test_running_ended_and_unknown_jobs() -> None:
    c = cluster()
    c.now = 7.0
    c.start(c.waiting["small"])
    assert explain(c, "small") == Explanation("small", "running", "running", "on 3 since 7 s")
    assert explain(c, "a").detail == "on 0-2 since 0 s"
    c.observe(e.JobEnded(1.0, "a", JobState.SUCCEEDED, 0, IdSet.parse("0-2")))
    assert explain(c, "a") == Explanation("a", "succeeded", "ended", "it is over")
    assert explain(c, "nope") == Explanation("nope", "unknown", "unknown", "there is no such job")


def machine(*left: tuple[int, int, int]) -> Cluster:
    """Nodes of 4 cores, 2 GPUs and 2000 MB each, of which jobs have left so many cores, GPUs and MB."""
    nodes = tuple(Node(f"n{number}", 4 * number, 4, gpus=2, memory_mb=2000) for number in range(len(left)))
    running = []
    for number, (cores, gpus, memory_mb) in enumerate(left):
        shape = Shape(nodes=1, gpus_per_node=2 - gpus, memory_mb_per_node=2000 - memory_mb)
        running.append(e.Running(Job(f"j{number}", 1, shape=shape), IdSet.span(4 * number, 4 - cores), 0.0))
    return Cluster(e.Begins(nodes=nodes, running=tuple(running)), "tester")


MEMORY, GPUS = Shape(nodes=1, memory_mb_per_node=1500), Shape(nodes=1, gpus_per_node=2)
IN_GROUPS = Shape(chunk=1, gpus_per_chunk=1)


@pytest.mark.parametrize(
    ("left", "units", "shape", "lacks"),
    [
        ([(2, 2, 0), (0, 0, 0)], 2, None, None),
        ([(2, 2, 0), (0, 0, 0)], 3, None, Shortage("cores", "it needs 3, and 2 of 8 are free")),
        ([(2, 2, 0), (0, 0, 0)], 9, None, Shortage("node", "it needs 9 units, and there are 8")),
        ([(2, 2, 0), (3, 2, 0)], 3, Shape(nodes=1), None),
        ([(2, 2, 0), (1, 2, 0)], 3, Shape(nodes=1),
         Shortage("cores", "it needs 3 on one node, and at most 2 of a node are free")),
        ([(2, 2, 0), (1, 2, 0)], 2, Shape(nodes=2),
         Shortage("cores", "it needs 2 on each of 2 nodes, and at most 2 of a node are free")),
        ([(1, 0, 1500)], 1, MEMORY, None),
        ([(1, 0, 1499)], 1, MEMORY,
         Shortage("memory", "it needs 1,500 MB on one node, and at most 1,499 MB of a node are free")),
        ([(1, 0, 0)], 1, Shape(memory_mb_per_node=1500),
         Shortage("memory", "it needs 1,500 MB, and at most 0 MB of a node are free")),
        # Memory is enough on one node, and cores on another.
        ([(0, 0, 1500), (1, 0, 0)], 1, MEMORY,
         Shortage("memory", "it needs 1,500 MB on one node, and at most 1,500 MB of a node are free")),
        # Neither memory nor cores are enough; memory would be, but no core is free.
        ([(0, 0, 1499), (0, 0, 0)], 1, MEMORY,
         Shortage("memory", "it needs 1,500 MB on one node, and at most 1,499 MB of a node are free")),
        ([(0, 0, 1500), (0, 0, 0)], 1, MEMORY,
         Shortage("cores", "it needs 1 on one node, and at most 0 of a node are free")),
        ([(1, 2, 0)], 1, GPUS, None),
        ([(1, 1, 0)], 1, GPUS, Shortage("gpus", "it needs 2 on one node, and at most 1 of a node are free")),
        ([(0, 2, 0), (1, 0, 0)], 1, GPUS, Shortage("gpus", "it needs 2 on one node, and at most 2 of a node are free")),
        ([(0, 1, 0), (0, 0, 0)], 1, GPUS, Shortage("gpus", "it needs 2 on one node, and at most 1 of a node are free")),
        ([(0, 2, 0), (0, 0, 0)], 1, GPUS, Shortage("cores", "it needs 1 on one node, and at most 0 of a node are free")),
        ([(2, 1, 0), (0, 1, 0)], 1, IN_GROUPS, None),
        ([(2, 0, 0), (0, 1, 0)], 1, IN_GROUPS, Shortage("gpus", "it needs 1, and at most 1 of a node are free")),
        ([(2, 0, 0), (0, 0, 0)], 1, IN_GROUPS, Shortage("gpus", "it needs 1, and at most 0 of a node are free")),
        ([(0, 1, 0), (0, 0, 0)], 1, IN_GROUPS, Shortage("cores", "it needs 1, and 0 of 8 are free")),
        # Of several things memory comes first, then GPUs.
        ([(1, 1, 0)], 1, Shape(nodes=1, gpus_per_node=2, memory_mb_per_node=1),
         Shortage("memory", "it needs 1 MB on one node, and at most 0 MB of a node are free")),
        ([(1, 1, 1)], 1, Shape(nodes=1, gpus_per_node=2, memory_mb_per_node=1),
         Shortage("gpus", "it needs 2 on one node, and at most 1 of a node are free")),
    ],
)  # fmt: skip
def test_what_a_job_lacks(left: list[tuple[int, int, int]], units: int, shape: Shape | None, lacks: Shortage | None) -> None:
    assert shortage(machine(*left), Job("new", units, shape=shape)) == lacks

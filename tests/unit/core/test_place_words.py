"""Why a job does not fit, now or ever; what is wrong with units that a decider chose; how many units a job takes at least."""

from __future__ import annotations

import msgspec
import pytest

from pilothouse.core import place
from pilothouse.core.cluster import Cluster
from pilothouse.model import events as e
from pilothouse.model.answers import Never, NotNow
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node, Shape

NODES = (
    Node("n0", 0, 4, properties={"fast": ""}),
    Node("n1", 4, 4, gpus=2, memory_mb=1000),
    Node("n2", 8, 2, gpus=1, memory_mb=500),
)
FAST = msgspec.Raw(b'{"properties": ["fast"]}')


def cluster(*running: tuple[str, Shape | None]) -> Cluster:
    """Three nodes of 4, 4 and 2 units; jobs hold these units."""
    runs = (e.Running(Job(f"j{i}", 1, shape=shape), IdSet.parse(where), 0.0) for i, (where, shape) in enumerate(running))
    return Cluster(e.Begins(nodes=NODES, running=tuple(runs)), "tester")


@pytest.mark.parametrize(
    ("units", "shape", "reason"),
    [
        (1, None, ""),
        (1, Shape(), ""),
        (10, None, ""),
        (11, None, "it needs 11 units, and there are 10"),
        (0, None, "it asks for no unit"),
        (-1, None, "it asks for no unit"),
        (0, Shape(), "it asks for no unit"),
        (-1, Shape(), "it asks for no unit"),
        (10, Shape(), ""),
        (11, Shape(), "it needs 11 units on nodes that have 1 unit free, and there are 10"),
        (0, Shape(nodes=3), ""),
        (0, Shape(nodes=4), "it needs 4 nodes that have all units free, and there are 3"),
        (1, Shape(nodes=4, exclusive=True), "it needs 4 nodes that have all units free, and there are 3"),
        (2, Shape(nodes=3, exclusive=True), ""),
        (2, Shape(nodes=4, exclusive=True), "it needs 4 nodes that have 2 units or more, all of them free, and there are 3"),
        (3, Shape(nodes=3, exclusive=True), "it needs 3 nodes that have 3 units or more, all of them free, and there are 2"),
        (11, Shape(exclusive=True), "it needs 11 units on nodes that have all units free, and there are 10"),
        (1, Shape(nodes=4), "it needs 4 nodes that have 1 unit free, and there are 3"),
        (4, Shape(nodes=2), ""),
        (4, Shape(nodes=3), "it needs 3 nodes that have 4 units free, and there are 2"),
        (5, Shape(nodes=1), "it needs 1 nodes that have 5 units free, and there are 0"),
        (1, Shape(nodes=2, gpus_per_node=1), ""),
        (1, Shape(nodes=3, gpus_per_node=1), "it needs 3 nodes that have 1 unit free and 1 GPU, and there are 2"),
        (1, Shape(nodes=1, gpus_per_node=3), "it needs 1 nodes that have 1 unit free and 3 GPUs, and there are 0"),
        (1, Shape(nodes=1, memory_mb_per_node=1000), ""),
        (1, Shape(nodes=1, memory_mb_per_node=1001), "it needs 1 nodes that have 1 unit free and 1001 MB, and there are 0"),
        (
            1, Shape(nodes=1, gpus_per_node=2, memory_mb_per_node=1, constraint=FAST),
            "it needs 1 nodes that have 1 unit free and 2 GPUs and 1 MB and the wanted properties, and there are 0",
        ),
        (4, Shape(constraint=FAST), ""),
        (5, Shape(constraint=FAST), "it needs 5 units on nodes that have 1 unit free and the wanted properties, and there are 4"),
        (8, Shape(chunk=4), ""),
        (12, Shape(chunk=4), "it needs 12 units in groups of 4 on a node on nodes that have 4 units free, and there are 8"),
        (9, Shape(chunk=3), "it needs 9 units in groups of 3 on a node on nodes that have 3 units free, and there are 6"),
        (11, Shape(chunk=1), "it needs 11 units on nodes that have 1 unit free, and there are 10"),
        (3, Shape(chunk=1, gpus_per_chunk=1), ""),
        (4, Shape(chunk=1, gpus_per_chunk=1),
         "it needs 4 units with 1 GPU each on nodes that have 1 unit free and 1 GPU, and there are 3"),
        (2, Shape(chunk=1, gpus_per_chunk=2),
         "it needs 2 units with 2 GPUs each on nodes that have 1 unit free and 2 GPUs, and there are 1"),
        (6, Shape(chunk=2, gpus_per_chunk=1), ""),
        (8, Shape(chunk=2, gpus_per_chunk=1),
         "it needs 8 units in groups of 2 with 1 GPU on a node on nodes that have 2 units free and 1 GPU, and there are 6"),
    ],
)  # fmt: skip
def test_why_a_job_can_never_run(units: int, shape: Shape | None, reason: str) -> None:
    """On an empty machine it starts at once if and only if it can ever run."""
    c, job = cluster(), Job("new", units, shape=shape)
    for _ in range(2):  # the second time by what was kept of the first
        assert c.could_ever_run(job) == (Never(reason) if reason else None)
    answer = place.choose(c, job)
    assert answer == Never(reason) if reason else isinstance(answer, int)


@pytest.mark.parametrize(
    ("units", "shape", "reason"),
    [
        (6, None, "it needs 6 units, and 5 are free"),
        (6, Shape(), "it needs 6 units, and 5 that suit it are free"),
        (0, Shape(nodes=2), "it needs 2 nodes that have all units free, and 1 are free"),
        (3, Shape(nodes=1), "it needs 1 nodes that have 3 units free, and 0 are free"),
        (1, Shape(nodes=1, gpus_per_node=2),
         "it needs 1 nodes that have 1 unit free and 2 GPUs, and 0 are free (2 GPUs free in all)"),
        (3, Shape(chunk=1, gpus_per_chunk=1),
         "it needs 3 units with 1 GPU each, and 2 that suit it are free (2 GPUs free in all)"),
        (6, Shape(chunk=2), "it needs 6 units in groups of 2 on a node, and 4 that suit it are free"),
    ],
)  # fmt: skip
def test_why_a_job_does_not_fit_now(units: int, shape: Shape | None, reason: str) -> None:
    c = cluster(("0-2", None), ("4-5", Shape(nodes=1, gpus_per_node=1)))
    assert place.choose(c, Job("new", units, shape=shape)) == NotNow(reason)


def test_one_gpu_is_said_as_one() -> None:
    c = cluster(("4", Shape(nodes=1, gpus_per_node=2)))
    answer = place.choose(c, Job("new", 1, shape=Shape(nodes=2, gpus_per_node=1)))
    assert answer == NotNow("it needs 2 nodes that have 1 unit free and 1 GPU, and 1 are free (1 GPU free in all)")


@pytest.mark.parametrize(
    ("units", "shape", "given", "problem"),
    [
        (3, None, "0", ""),
        (2, Shape(nodes=2), "0-1 4-5", ""),
        (2, Shape(nodes=1), "0-1 4-5", ""),
        (2, Shape(nodes=2), "0-1", "it asks for 2 nodes and was given units of 1"),
        (2, Shape(nodes=2), "0-1 4", "it was given 1 units of node n1, and needs 2"),
        (0, Shape(nodes=2), "0-3 4-6", "it was given 3 units of node n1, and needs 4"),
        (0, Shape(nodes=2), "0-3 8-9", ""),
        (1, Shape(nodes=1, exclusive=True), "0-3", ""),
        (1, Shape(nodes=1, exclusive=True), "0-2", "it was given 3 units of node n0, and needs the whole node"),
        (2, Shape(exclusive=True), "0-3 4", "it was given 1 units of node n1, and needs the whole node"),
        (1, Shape(nodes=1, gpus_per_node=2), "4", ""),
        (1, Shape(nodes=1, gpus_per_node=2), "8", "node n2 cannot give what it asks for (1 unit free and 2 GPUs)"),
        (1, Shape(nodes=1, constraint=FAST), "4", "node n1 cannot give what it asks for (1 unit free and the wanted properties)"),
        (3, Shape(), "0-1 4", ""),
        (3, Shape(), "0-1", "it asks for 3 units and was given 2"),
        (4, Shape(chunk=2), "0-1 4-5", ""),
        (4, Shape(chunk=2), "0-2 4-5", ""),
        (4, Shape(chunk=2), "0-2 4", "it asks for 4 units in groups of 2 on a node and was given 2 that can be used so"),
        (2, Shape(chunk=1, gpus_per_chunk=1), "4-5", ""),
        (2, Shape(chunk=1, gpus_per_chunk=2), "4-5", "it asks for 2 units with 2 GPUs each and was given 1 that can be used so"),
    ],
)
def test_in_what_way_units_are_not_what_a_job_asked_for(units: int, shape: Shape | None, given: str, problem: str) -> None:
    found = place.misfit(cluster(), Job("new", units, shape=shape), IdSet.parse(given).mask)
    assert found == (problem or None)


def test_memory_that_is_left_counts_only_where_it_should() -> None:
    shape = Shape(nodes=1, memory_mb_per_node=600)
    job = Job("new", 1, shape=shape)
    c = cluster(("4", shape))
    assert place.misfit(c, job, 1 << 5) == "node n1 cannot give what it asks for (1 unit free and 600 MB)"
    assert place.misfit(c, job, 1 << 5, memory=True) is not None
    assert place.misfit(c, job, 1 << 5, memory=False) is None
    assert place.misfit(c, job, 1 << 8, memory=False) is not None, "its node never had so much"


LEAST: list[tuple[int, Shape | None, int]] = [
    (3, None, 3),
    (3, Shape(), 3),
    (4, Shape(chunk=2), 4),
    (1, Shape(nodes=2), 2),
    (2, Shape(nodes=3), 6),
    (0, Shape(nodes=1), 2),
    (0, Shape(nodes=2), 6),
    (0, Shape(nodes=3), 10),
    (1, Shape(nodes=1, exclusive=True), 2),
    (3, Shape(nodes=1, exclusive=True), 4),
    (1, Shape(exclusive=True), 4),
    (5, Shape(exclusive=True), 8),
    (9, Shape(exclusive=True), 10),
    (1, Shape(exclusive=True, gpus_per_node=1), 4),
    (5, Shape(exclusive=True, gpus_per_node=1), 6),
    (2, Shape(exclusive=True, chunk=1, gpus_per_chunk=1), 4),
    (3, Shape(exclusive=True, chunk=1, gpus_per_chunk=1), 6),
]


def test_the_least_number_of_units_in_all() -> None:
    """What it takes of the empty machine; for nodes of any kind the smallest of them."""
    c = cluster(("0-3", None))
    for _ in range(2):  # the second time by what was kept of the first
        assert [c.least_units(Job("new", units, shape=shape)) for units, shape, _ in LEAST] == [least for *_, least in LEAST]

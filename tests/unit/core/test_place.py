"""Where node-shaped requests go, and when they never fit."""

import msgspec
import pytest

from pilothouse.core import place
from pilothouse.core.cluster import Cluster
from pilothouse.model import events as e
from pilothouse.model.answers import Never, NotNow, Placed
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node, Shape


def cluster() -> Cluster:
    """Three nodes of 4 units; n2 has two GPUs and 1000 MB."""
    nodes = (
        Node("n0", 0, 4, properties={"fast": ""}),
        Node("n1", 4, 4),
        Node("n2", 8, 4, gpus=2, memory_mb=1000),
    )
    return Cluster(e.Begins(nodes=nodes), "tester")


def start(c: Cluster, name: str, units: int, shape: Shape | None = None, most: int = 0) -> object:
    job = Job(name, units, shape=shape, most_units=most)
    c.observe(e.JobSubmitted(0.0, job))
    return c.start(job)


def test_whole_nodes() -> None:
    c = cluster()
    assert start(c, "one", 1) == Placed(IdSet.parse("0"))
    assert start(c, "two nodes", 0, Shape(nodes=2)) == Placed(IdSet.parse("4-11"))
    assert isinstance(start(c, "one node", 0, Shape(nodes=1)), NotNow)


def test_units_per_node_up_to_the_most() -> None:
    c = cluster()
    assert start(c, "a", 2, Shape(nodes=2, most_nodes=3), most=3) == Placed(IdSet.parse("0-2 4-6 8-10"))


def test_gpus_are_counted() -> None:
    c = cluster()
    shape = Shape(nodes=1, gpus_per_node=1)
    assert start(c, "a", 1, shape) == Placed(IdSet.parse("8"))
    assert start(c, "b", 1, shape) == Placed(IdSet.parse("9"))
    assert isinstance(start(c, "c", 1, shape), NotNow)
    assert isinstance(start(c, "d", 1, Shape(nodes=1, gpus_per_node=3)), Never)
    assert isinstance(start(c, "e", 1, Shape(nodes=1, memory_mb_per_node=2000)), Never)


def test_constraints_over_properties() -> None:
    c = cluster()
    fast = msgspec.Raw(b'{"properties": ["fast"]}')
    slow = msgspec.Raw(b'{"not": [{"properties": ["fast"]}]}')
    assert start(c, "a", 1, Shape(nodes=1, constraint=slow)) == Placed(IdSet.parse("4"))
    assert start(c, "b", 1, Shape(nodes=1, constraint=fast)) == Placed(IdSet.parse("0"))
    assert isinstance(start(c, "c", 5, Shape(constraint=fast)), Never)


def test_split_into_parts() -> None:
    c = cluster()
    assert start(c, "a", 1, Shape(parts=4)) == Placed(IdSet.parse("0-2"))


def test_a_plain_request_larger_than_everything_never_fits() -> None:
    assert isinstance(start(cluster(), "a", 13), Never)
    assert isinstance(start(cluster(), "b", 0), Never)


def test_the_least_of_a_request_that_may_grow() -> None:
    """In nodes, in units and in parts."""
    c = cluster()
    for job, least in (
        (Job("a", 2, shape=Shape(nodes=1, most_nodes=3)), "0-1"),
        (Job("b", 2, most_units=9), "0-1"),
        (Job("c", 3), "0-2"),
    ):
        c.observe(e.JobSubmitted(0.0, job))
        assert place.choose(c, job, least=True) == IdSet.parse(least).mask
    parts = Job("d", 1, shape=Shape(parts=4))
    c.observe(e.JobSubmitted(0.0, parts))
    assert place.choose(c, parts, least=True) == 0b1
    assert place.choose(c, parts) == 0b111


@pytest.mark.parametrize("first", ["gpus", "memory"])
def test_a_job_fits_when_all_that_it_needs_is_free(first: str) -> None:
    """Units alone do not decide: GPUs are given back by one job, memory by another."""
    c = cluster()
    start(c, "gpus", 1, Shape(nodes=1, gpus_per_node=2))
    start(c, "memory", 1, Shape(nodes=1, memory_mb_per_node=900))
    second = "memory" if first == "gpus" else "gpus"
    ends = [(10.0, first), (20.0, second)]
    both = Job("both", 1, shape=Shape(nodes=1, gpus_per_node=1, memory_mb_per_node=500))
    found = c.when_fits(both, ends)
    assert found is not None
    assert found[0] == 20.0
    one = Shape(nodes=1, gpus_per_node=1) if first == "gpus" else Shape(nodes=1, memory_mb_per_node=500)
    found = c.when_fits(Job("one", 1, shape=one), ends)
    assert found is not None
    assert found[0] == 10.0
    whole = c.when_fits(Job("whole", 0, shape=Shape(nodes=3)), ends)
    assert whole is not None
    assert whole[0] == 20.0

"""Where node-shaped requests go, and when they never fit."""

import msgspec
import pytest

from pilothouse.core import place
from pilothouse.core.cluster import Cluster
from pilothouse.model import events as e
from pilothouse.model.answers import Never, NotNow, Placed
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node, Shape
from pilothouse.model.lifecycle import JobState


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


def test_gpus_and_memory_come_back_once() -> None:
    c = cluster()
    for shape in (Shape(nodes=1, gpus_per_node=1), Shape(nodes=1, memory_mb_per_node=600)):
        for name in ("a", "b"):
            assert start(c, name, 1, shape)
            c.observe(e.JobEnded(1.0, name, JobState.SUCCEEDED, 0, IdSet.parse("8")))
    assert start(c, "c", 1, Shape(nodes=1, gpus_per_node=2, memory_mb_per_node=1000)) == Placed(IdSet.parse("8"))
    assert isinstance(start(c, "d", 1, Shape(nodes=1, gpus_per_node=1)), NotNow)
    assert isinstance(start(c, "e", 1, Shape(nodes=1, memory_mb_per_node=1)), NotNow)


def test_memory_is_counted() -> None:
    c = cluster()
    shape = Shape(nodes=1, memory_mb_per_node=500)
    assert start(c, "a", 1, shape) == Placed(IdSet.parse("8"))
    assert start(c, "b", 1, shape) == Placed(IdSet.parse("9"))
    assert isinstance(start(c, "c", 1, Shape(nodes=1, memory_mb_per_node=1)), NotNow)


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
    for parts, units in ((1, "0 4 8"), (2, "0"), (3, "0"), (4, "0")):
        assert start(cluster(), "b", 1, Shape(nodes=1, parts=parts)) == Placed(IdSet.parse(units))
    assert start(cluster(), "c", 1, Shape(nodes=2, parts=3)) == Placed(IdSet.parse("0 4"))
    assert start(cluster(), "d", 5, Shape(parts=4)) == Placed(IdSet.parse("0-4"))


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


def running(*runs: tuple[str, str, Shape | None], off: str = "", nodes: int = 3) -> Cluster:
    """So many of the three nodes; each job (name, units, shape) runs, and some units are off."""
    started = tuple(e.Running(Job(name, 1, shape=shape), IdSet.parse(units), 0.0) for name, units, shape in runs)
    begins = e.Begins(nodes=cluster().begins.nodes[:nodes], running=started, unavailable=IdSet.parse(off))
    return Cluster(begins, "tester")


def fits(c: Cluster, units: int, shape: Shape, *ends: tuple[float, str], most: int = 0) -> tuple[float, str] | None:
    found = c.when_fits(Job("new", units, shape=shape, most_units=most), ends)
    return None if found is None else (found[0], str(IdSet(found[1])))


def test_units_that_are_off_do_not_come_back_when_their_job_ends() -> None:
    c = running(("a", "0-3", None), ("b", "4-7", None), off="1 6-7", nodes=2)
    ends = (10.0, "a"), (20.0, "b")
    assert fits(c, 3, Shape(nodes=1), *ends) == (10.0, "0 2-3")
    assert fits(c, 4, Shape(nodes=1), *ends) is None
    assert fits(c, 0, Shape(nodes=1), *ends) is None
    assert fits(c, 3, Shape(), *ends) == (10.0, "0 2-3")
    assert fits(c, 5, Shape(), *ends) == (20.0, "0 2-5")
    assert fits(c, 6, Shape(), *ends) is None
    assert fits(c, 2, Shape(nodes=2), *ends) == (20.0, "0 2 4-5")


def test_gpus_and_memory_come_back_with_the_units_that_are_not_off() -> None:
    holds = Shape(nodes=1, gpus_per_node=2, memory_mb_per_node=1000)
    c = running(("a", "8-11", holds), off="9")
    assert fits(c, 1, Shape(nodes=1, gpus_per_node=2), (10.0, "a")) == (10.0, "8")
    assert fits(c, 3, Shape(nodes=1, memory_mb_per_node=1000), (10.0, "a")) == (10.0, "8 10-11")
    assert fits(c, 4, Shape(nodes=1, memory_mb_per_node=1000), (10.0, "a")) is None


def test_a_forecast_looks_at_a_date_when_all_ends_of_that_date_are_counted() -> None:
    c = running(("a", "0-3", None), ("b", "4-7", None), nodes=2)
    assert fits(c, 1, Shape(nodes=1), (10.0, "a"), (10.0, "b")) == (10.0, "0")
    assert fits(c, 0, Shape(nodes=2), (10.0, "a"), (10.0, "b")) == (10.0, "0-7")
    assert fits(c, 0, Shape(nodes=1), (10.0, "a"), (11.0, "b")) == (10.0, "0-3")
    assert fits(c, 0, Shape(nodes=1), (10.0, "b"), (11.0, "a")) == (10.0, "4-7")
    assert fits(c, 1, Shape(nodes=1)) is None, "nothing ends"
    c = running(("a", "0-3", None), ("b", "4-7", None), ("c", "8-11", None))
    assert fits(c, 1, Shape(nodes=1), (10.0, "b"), (10.0, "a"), (20.0, "c")) == (10.0, "0")
    assert fits(c, 1, Shape(nodes=1), (10.0, "c"), (20.0, "b"), (20.0, "a")) == (10.0, "8")


def test_a_forecast_takes_no_notice_of_jobs_that_do_not_run() -> None:
    c = running(("a", "0-3", None), ("b", "4-7", None), nodes=2)
    assert fits(c, 1, Shape(nodes=1), (10.0, "gone"), (20.0, "a")) == (20.0, "0")
    assert fits(c, 5, Shape(), (10.0, "gone"), (20.0, "a")) is None


def test_a_forecast_counts_only_nodes_that_suit_the_job_and_can_hold_it() -> None:
    fast = Shape(constraint=msgspec.Raw(b'{"properties": ["fast"]}'))
    c = running(("a", "0-3", None), ("b", "4-7", None))
    assert fits(c, 2, fast, (10.0, "b"), (20.0, "a")) == (20.0, "0-1")
    assert fits(c, 2, msgspec.structs.replace(fast, nodes=1), (10.0, "b"), (20.0, "a")) == (20.0, "0-1")
    memory = Shape(memory_mb_per_node=500)
    c = running(("a", "8", Shape(nodes=1, memory_mb_per_node=600)), ("b", "9", None))
    assert fits(c, 2, memory, (10.0, "b"), (20.0, "a")) == (20.0, "8-9"), "at first only units come back"
    assert fits(c, 4, memory, (10.0, "b"), (20.0, "a")) == (20.0, "8-11")
    assert fits(c, 4, memory, (10.0, "a"), (20.0, "b")) == (20.0, "8-11")
    assert fits(c, 3, memory, (10.0, "a"), (20.0, "b")) == (10.0, "8 10-11")


def test_a_forecast_leaves_units_that_are_free_now_to_others_where_it_can() -> None:
    """Not where GPUs or memory are asked for: then the job keeps others away from its nodes."""
    c = running(("a", "2-3", None), ("b", "6-7", None), ("c", "10-11", None))
    ends = (10.0, "a"), (20.0, "b"), (30.0, "c")
    assert fits(c, 3, Shape(nodes=1), *ends) == (10.0, "0 2-3")
    assert fits(c, 2, Shape(chunk=2), *ends) == (10.0, "2-3")
    assert fits(c, 3, Shape(), *ends) == (10.0, "0 2-3")
    assert fits(c, 3, Shape(nodes=1, gpus_per_node=1), *ends) == (30.0, "8-10")
    c = running(("a", "0-1", None), nodes=1)
    assert fits(c, 3, Shape(nodes=1), (10.0, "a")) == fits(c, 3, Shape(), (10.0, "a")) == (10.0, "0-2")
    assert fits(c, 2, Shape(nodes=1), (10.0, "a")) == (10.0, "0-1")


def test_a_forecast_is_for_the_least_that_a_job_needs() -> None:
    c = running(("a", "0-3", None), ("b", "4-7", None), nodes=2)
    ends = (10.0, "a"), (20.0, "b")
    assert fits(c, 1, Shape(nodes=1, most_nodes=2), *ends, most=3) == (10.0, "0")
    assert fits(c, 1, Shape(parts=2), *ends) == (10.0, "0")
    assert fits(c, 2, Shape(), *ends, most=4) == (10.0, "0-1")


def test_units_in_groups_come_together_from_several_ends() -> None:
    """A group is on one node: single units of two nodes do not make one. GPUs bound the groups of a node."""
    c = running(("a", "0 4", None), ("b", "1 8-9", None), ("c", "2-3 5-7 10-11", None))
    ends = (10.0, "a"), (20.0, "b"), (30.0, "c")
    assert fits(c, 2, Shape(chunk=2), *ends) == (20.0, "0-1")
    assert fits(c, 4, Shape(chunk=2), *ends) == (20.0, "0-1 8-9")
    assert fits(c, 6, Shape(chunk=2), *ends) == (30.0, "0-5")
    assert fits(c, 2, Shape(chunk=1, gpus_per_chunk=1), *ends) == (20.0, "8-9")
    assert fits(c, 3, Shape(chunk=1, gpus_per_chunk=1), *ends) is None
    holds = Shape(chunk=1, gpus_per_chunk=1)
    c = running(("a", "8", holds), ("b", "9", holds))
    assert fits(c, 1, holds, (10.0, "a"), (20.0, "b")) == (10.0, "8")
    assert fits(c, 2, holds, (10.0, "a"), (20.0, "b")) == (20.0, "8-9")

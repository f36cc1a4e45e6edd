"""The inventory of a Flux instance as units, GPUs and Rs; and the queue of alloc requests."""

from __future__ import annotations

import sys
from math import inf
from random import Random
from typing import Any

import msgspec
import pytest

from pilothouse.formats import resource_set
from pilothouse.formats.resource_set import RankResources, ResourceSet
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Shape
from pilothouse.protocols.rfc27 import payloads as p
from pilothouse.protocols.rfc27.job_conversion import our_id, shape_of, to_jobspec
from pilothouse.protocols.rfc27.machine import Machine
from pilothouse.protocols.rfc27.managed_job import LEAST_HEAP, Alloc, AllocQueue, ManagedJob, merged, priority_of

RANKS = (
    RankResources(0, IdSet.of([0, 1, 2, 3]), IdSet.of([0, 1])),
    RankResources(2, IdSet.of([4, 5, 6]), IdSet.of([1, 3, 4])),
    RankResources(3, IdSet.of([1, 3, 8])),
    RankResources(5, IdSet()),
    RankResources(6, IdSet.of([2])),
)
CORE_OF = dict(enumerate((entry.rank, core) for entry in RANKS for core in entry.cores))


def machine(**more: Any) -> Machine:
    return Machine(ResourceSet(ranks=RANKS, hosts=("a", "b", "c", "d", "e"), **more))


def cores_in(resources: bytes) -> set[tuple[int, int]]:
    return {(entry.rank, core) for entry in resource_set.parse(resources).ranks for core in entry.cores}


def test_units_are_the_cores_in_order() -> None:
    made = machine()
    assert [(node.name, node.first, node.count, node.gpus, node.cores) for node in made.nodes()] == [
        ("a", 0, 4, 2, 4), ("b", 4, 3, 3, 3), ("c", 7, 3, 0, 3), ("d", 10, 0, 0, 0), ("e", 10, 1, 0, 1),
    ]  # fmt: skip
    assert made.units == IdSet.span(0, 11)
    assert [node.name for node in made.nodes_of(IdSet.of([2, 6, 9]))] == ["b", "e"]
    assert made.units_on(IdSet.of([2, 3, 9])) == IdSet.span(4, 6)
    assert made.ranks_of_hosts() == {"a": ["0"], "b": ["2"], "c": ["3"], "d": ["5"], "e": ["6"]}


def test_any_units_are_written_and_read_as_their_cores() -> None:
    made, random = machine(), Random(3)
    for _ in range(200):
        units = IdSet.of(sorted(random.sample(range(11), random.randrange(1, 12))))
        resources = made.resources(units, 2.5, 7.5)
        assert cores_in(resources) == {CORE_OF[unit] for unit in units}
        found = resource_set.parse(resources)
        assert made.units_in(found) == units and (found.start_s, found.expiration_s) == (2.5, 7.5)
        assert [rank for rank, _ in made.ranks_in(units)] == sorted({CORE_OF[unit][0] for unit in units})
        assert [mask for _, mask in made.ranks_in(units)] == [
            sum(1 << unit for unit in units if CORE_OF[unit][0] == rank) for rank in sorted({CORE_OF[unit][0] for unit in units})
        ]
        grant = made.grant(Job("f!1", len(units)), units, 2, 2.5)
        assert cores_in(grant.resources) == cores_in(resources)
    assert cores_in(made.resources(IdSet.of([0, 50]))) == {(0, 0)}


def test_unknown_ranks_and_cores_of_an_r_are_left_out() -> None:
    foreign = ResourceSet(ranks=(RankResources(0, IdSet.of([3, 4, 9])), RankResources(3, IdSet.of([0, 3])),
                                 RankResources(9, IdSet.of([0]))))  # fmt: skip
    assert machine().units_in(foreign) == IdSet.of([3, 8])


def test_units_may_begin_anywhere() -> None:
    made = Machine(ResourceSet(ranks=RANKS[:2], hosts=("a", "b")), [10, 20])
    assert [(node.first, node.count) for node in made.nodes()] == [(10, 4), (20, 3)]
    assert cores_in(made.resources(IdSet.of([10, 13, 14, 21]))) == {(0, 0), (0, 3), (2, 5)}
    assert made.units == IdSet.of([10, 11, 12, 13, 20, 21, 22])


def test_names_of_ranks_without_hosts_or_on_one_host() -> None:
    assert [node.name for node in Machine(ResourceSet(ranks=RANKS[:2])).nodes()] == ["rank0", "rank2"]
    assert [node.name for node in Machine(ResourceSet(ranks=RANKS[:2], hosts=("a", "a"))).nodes()] == ["a@0", "a@2"]


@pytest.mark.parametrize(
    ("shape", "units", "gpus"),
    [
        (None, [0, 4], {}),
        (Shape(nodes=2, gpus_per_node=1), [0, 4], {0: [0], 2: [1]}),
        (Shape(nodes=2, gpus_per_node=2), [0, 1, 4], {0: [0, 1], 2: [1, 3]}),
        (Shape(nodes=2), [0, 4], {}),
        (Shape(nodes=2, exclusive=True), [0, 1, 2, 3, 4, 5, 6], {0: [0, 1], 2: [1, 3, 4]}),
        (Shape(chunk=1, gpus_per_chunk=1), [0, 1, 4, 7], {0: [0, 1], 2: [1]}),
        (Shape(chunk=2, gpus_per_chunk=1), [0, 1, 2, 3, 4, 5], {0: [0, 1], 2: [1]}),
        (Shape(chunk=2, gpus_per_chunk=2), [4, 5, 6], {2: [1, 3]}),
        (Shape(chunk=0, gpus_per_chunk=1), [4, 5], {2: [1, 3]}),
    ],
)
def test_the_lowest_free_gpus_of_each_rank_are_taken(shape: Shape | None, units: list[int], gpus: dict[int, list[int]]) -> None:
    made = machine()
    job = Job("f!1", len(units), shape=shape)
    grant = made.grant(job, IdSet.of(units), 1, 0.0)
    entries = resource_set.parse(grant.resources).ranks
    assert {entry.rank: list(entry.gpus) for entry in entries if entry.gpus} == gpus
    assert grant.gpus == tuple((rank, sum(1 << gpu for gpu in found)) for rank, found in gpus.items())
    assert made.gpus_in(resource_set.parse(grant.resources)) == grant.gpus
    # they are in use until they are given back; unknown ranks do not matter
    if gpus:
        everything = Job("f!2", 1, shape=Shape(nodes=2, exclusive=True))
        left = made.grant(everything, IdSet.of([0, 4]), 1, 0.0).gpus
        assert all(mask & dict(grant.gpus).get(rank, 0) == 0 for rank, mask in left)
        made.give_back(left)
        made.give_back(((9, 1), *grant.gpus))
        assert made.grant(everything, IdSet.of([0, 4]), 1, 0.0).gpus == ((0, 0b11), (2, 0b11010))
        made.give_back(((0, 0b11), (2, 0b11010)))
        made.take(((9, 1), *grant.gpus))
        assert made.grant(everything, IdSet.of([0, 4]), 1, 0.0).gpus == left


@pytest.mark.parametrize(
    ("walltime", "ends", "expiration"),
    [(inf, 0.0, 0.0), (60.0, 0.0, 70.0), (inf, 50.0, 50.0), (60.0, 50.0, 50.0), (60.0, 90.0, 70.0)],
)
def test_when_a_job_ends(walltime: float, ends: float, expiration: float) -> None:
    made = machine(expiration_s=ends)
    assert made.ends_s == ends
    grant = made.grant(Job("f!1", 3, walltime), IdSet.of([0, 1, 7]), 5, 10.0)
    found = resource_set.parse(grant.resources)
    assert (found.start_s, found.expiration_s, found.slots, found.hosts) == (10.0, expiration, 5, ("a", "c"))


@pytest.mark.parametrize(
    ("units", "summary"),
    [
        ([0], "rank0/core0"), ([0, 1], "rank0/core[0-1]"), ([0, 1, 4], "rank0/core[0-1],gpu0 rank2/core4,gpu1"),
        ([4, 7], "rank2/core4,gpu1 rank3/core1"), ([7, 9], "rank3/core[1,8]"),
    ],
)  # fmt: skip
def test_the_human_form(units: list[int], summary: str) -> None:
    shape = Shape(nodes=1, gpus_per_node=1) if "gpu" in summary else None
    made = machine()
    assert made.grant(Job("f!1", 1, shape=shape), IdSet.of(units), 1, 0.0).summary == summary
    both = Machine(ResourceSet(ranks=(RankResources(0, IdSet.span(0, 4), IdSet.span(0, 2)),
                                      RankResources(1, IdSet.span(0, 4), IdSet.span(0, 2)))))  # fmt: skip
    wide = both.grant(Job("f!1", 2, shape=Shape(nodes=2, gpus_per_node=2)), IdSet.of([0, 4]), 1, 0.0)
    assert wide.summary == "rank[0-1]/core0,gpu[0-1]"


def test_an_r_has_the_properties_of_its_ranks() -> None:
    made = machine(properties={"fast": IdSet.of([0, 2]), "+local": IdSet.of([0]), "far": IdSet.of([6])})
    for written in (made.resources(IdSet.of([0, 7])), made.grant(Job("f!1", 2), IdSet.of([0, 7]), 1, 0.0).resources):
        assert resource_set.parse(written).properties == {"fast": IdSet.of([0])}
    for written in (made.resources(IdSet.of([7])), made.grant(Job("f!1", 1), IdSet.of([7]), 1, 0.0).resources):
        assert b"properties" not in written
    assert made.nodes()[0].properties == {"fast": "", "+local": "", "rank": "0", "host": "a"}


# ---- jobs and their queue


@pytest.mark.parametrize(
    ("shape", "units", "expected"),
    [
        (None, 0, {"slots": 1, "cores_per_slot": 1}),
        (None, 4, {"slots": 4, "cores_per_slot": 1}),
        (Shape(nodes=2), 3, {"slots": 3, "cores_per_slot": 1, "nodes": 2}),
        (Shape(nodes=2, gpus_per_node=2), 3, {"slots": 1, "cores_per_slot": 3, "nodes": 2, "gpus_per_slot": 2}),
        (Shape(nodes=2), 0, {"slots": 1, "cores_per_slot": 1, "nodes": 2, "exclusive": True}),
        (Shape(nodes=2, exclusive=True), 1, {"slots": 1, "nodes": 2, "exclusive": True}),
        (Shape(exclusive=True, queue="q"), 1, {"slots": 1, "exclusive": True, "queue": "q"}),
        (Shape(chunk=3, gpus_per_chunk=2), 7, {"slots": 2, "cores_per_slot": 3, "gpus_per_slot": 2}),
        (Shape(chunk=3), 2, {"slots": 1, "cores_per_slot": 3}),
    ],
)
def test_jobs_as_jobspecs(shape: Shape | None, units: int, expected: dict[str, Any]) -> None:
    found = to_jobspec(Job("w!job", units, 9.0, shape=shape))
    everything = {"slots": 1, "cores_per_slot": 1, "gpus_per_slot": 0, "nodes": 0, "exclusive": False, "queue": "", **expected}
    assert {name: getattr(found, name) for name in everything} == everything
    assert found.duration_s == 9.0 and found.command == ("job",)
    assert to_jobspec(Job("w!job", units)).duration_s == 0.0


@pytest.mark.parametrize(
    ("more", "shape"),
    [
        ({}, None),
        ({"cores_per_slot": 2}, Shape(chunk=2)),
        ({"gpus_per_slot": 1}, Shape(chunk=1, gpus_per_chunk=1)),
        ({"exclusive": True}, Shape(exclusive=True)),
        ({"queue": "q"}, Shape(queue="q")),
        ({"nodes": 2, "gpus_per_slot": 2, "slots": 3}, Shape(nodes=2, gpus_per_node=6)),
        ({"nodes": 2, "exclusive": True, "queue": "q"}, Shape(nodes=2, exclusive=True, queue="q")),
    ],
)
def test_the_shapes_of_jobspecs(more: dict[str, Any], shape: Shape | None) -> None:
    spec = msgspec.structs.replace(to_jobspec(Job("w!1", 1)), **more)
    assert shape_of(spec) == shape


def queued(number: int, priority: int, submitted_s: float = 0.0) -> ManagedJob:
    return ManagedJob(number, 0, 16, priority, submitted_s, b"")


def test_the_queue_is_sorted_by_priority_then_date_then_id() -> None:
    """Against a list that is sorted each time, with priorities that change, and jobs that go and come back."""
    random, queue, waiting = Random(5), AllocQueue(), list[ManagedJob]()
    jobs = [queued(number, random.randrange(4), float(random.randrange(3))) for number in range(400)]
    for _ in range(4000):
        kind = random.choice(("push", "push", "drop", "pop", "change", "first"))
        if kind == "push" and jobs:
            waiting.append(jobs.pop(random.randrange(len(jobs))))
            queue.push(waiting[-1])
            assert waiting[-1].alloc is Alloc.QUEUED
        elif kind == "change" and waiting:
            job = random.choice(waiting)
            job.priority = random.randrange(4)
            queue.push(job)
        elif kind == "drop" and waiting:
            jobs.append(waiting.pop(random.randrange(len(waiting))))
            queue.drop(jobs[-1])
            queue.drop(jobs[-1])
            assert jobs[-1].alloc is Alloc.NONE
        waiting.sort(key=lambda job: (-job.priority, job.submitted_s, job.id))
        assert queue.first() is (waiting[0] if waiting else None) and len(queue) == len(waiting)
        if kind == "pop" and waiting:
            assert queue.pop() is waiting[0] and waiting[0].alloc is Alloc.NONE
            jobs.append(waiting.pop(0))


def test_jobs_that_were_dropped_are_released() -> None:
    queue, jobs = AllocQueue(), [queued(number, 16) for number in range(200)]
    before = sum(sys.getrefcount(job) for job in jobs)
    for job in jobs:
        queue.push(job)
    for job in jobs:
        queue.drop(job)
    assert sum(sys.getrefcount(job) for job in jobs) - before <= LEAST_HEAP and len(queue) == 0 and queue.first() is None


def test_urgencies_and_annotations() -> None:
    assert [priority_of(urgency) for urgency in (0, 1, 16, 30, 31)] == [0, 1, 16, 30, p.MOST_PRIORITY]
    deep: dict[str, Any] = {}
    for _ in range(80):
        deep = {"a": deep, "b": None}
    found: Any = merged(None, deep)
    levels = 0
    while "b" not in found:
        found, levels = found["a"], levels + 1
    assert levels == 65, "what is deeper replaces"
    assert merged({"a": {"b": 1}, "c": 2}, {"a": {"b": None, "d": {"e": None}}, "c": None}) == {"a": {"d": {}}}
    assert our_id(0) == "flux!f1"

"""The nodes by position: which of them own units, suit a request or satisfy a constraint, and what jobs have left of them."""

from __future__ import annotations

import msgspec
import pytest

from pilothouse.core.cluster import Cluster
from pilothouse.core.node_index import FreeNodes, NodeTable, positions, satisfies
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node, Shape

NODES = (
    Node("late", 6, 3, gpus=2, memory_mb=1000),
    Node("early", 1, 4, gpus=1, memory_mb=500),  # units 0 and 5 belong to no node
    Node("last", 9, 1),
)


def table() -> NodeTable:
    return NodeTable(NODES, ())


@pytest.mark.parametrize(
    ("units", "parts"),
    [
        ("", []),
        ("0 5 10-70", []),
        ("1", [(1, 0b1)]),
        ("4", [(1, 0b1000)]),
        ("5-6", [(0, 0b1)]),
        ("0-10", [(1, 0b1111), (0, 0b111), (2, 0b1)]),
        ("2-3 7 9", [(1, 0b110), (0, 0b10), (2, 0b1)]),
        ("8-9", [(0, 0b100), (2, 0b1)]),
        ("4 6", [(1, 0b1000), (0, 0b1)]),
    ],
)
def test_units_are_found_on_their_nodes_and_those_of_no_node_are_left_out(units: str, parts: list[tuple[int, int]]) -> None:
    assert table().parts(IdSet.parse(units).mask) == parts


def test_the_parts_of_a_running_job_follow_its_units() -> None:
    run, made = e.Running(Job("a", 3), IdSet.parse("1-3"), 0.0), table()
    assert made.parts_of(run) == made.parts_of(run) == [(1, 0b111)]
    run.units = IdSet.parse("1 3")
    assert made.parts_of(run) == [(1, 0b101)]
    assert made.parts_of(e.Running(run.job, IdSet.parse("6"), 9.0)) == [(0, 0b1)], "it runs elsewhere now"


@pytest.mark.parametrize(
    ("units", "shape", "suitable"),
    [
        (9, Shape(), [0, 1, 2]),
        (3, Shape(nodes=1), [0, 1]),
        (4, Shape(nodes=1), [1]),
        (5, Shape(nodes=1), []),
        (0, Shape(nodes=1), [0, 1, 2]),
        (9, Shape(chunk=3), [0, 1]),
        (9, Shape(chunk=4), [1]),
        (1, Shape(nodes=1, gpus_per_node=1), [0, 1]),
        (1, Shape(nodes=1, gpus_per_node=2), [0]),
        (1, Shape(chunk=1, gpus_per_chunk=2), [0]),
        (1, Shape(chunk=1, gpus_per_node=1, gpus_per_chunk=2), [0]),
        (1, Shape(nodes=1, memory_mb_per_node=500), [0, 1]),
        (1, Shape(nodes=1, memory_mb_per_node=501), [0]),
        (1, Shape(nodes=1, constraint=msgspec.Raw(b'{"hostlist": ["last", "late"]}')), [0, 2]),
        (3, Shape(nodes=1, constraint=msgspec.Raw(b'{"hostlist": ["last", "late"]}')), [0]),
        (1, Shape(nodes=1, constraint=msgspec.Raw(b'{"hostlist": ["early"]}')), [1]),
    ],
)
def test_nodes_that_suit_a_request_whatever_runs_on_them(units: int, shape: Shape, suitable: list[int]) -> None:
    holds = Job("a", 1, shape=Shape(nodes=1, gpus_per_node=1, memory_mb_per_node=500))
    made = NodeTable(NODES, (e.Running(holds, IdSet.parse("1 6"), 0.0),))
    for _ in range(2):  # the second time by what was kept of the first
        assert list(positions(made.suitable(Job("b", units, shape=shape), shape))) == suitable


def test_requests_are_told_apart_by_all_that_they_ask_for() -> None:
    made = table()
    found = []
    for units in (1, 4):
        for gpus in (0, 2):
            for memory_mb in (0, 700):
                for constraint in (None, msgspec.Raw(b'{"hostlist": ["late"]}')):
                    shape = Shape(nodes=1, gpus_per_node=gpus, memory_mb_per_node=memory_mb, constraint=constraint)
                    found.append(list(positions(made.suitable(Job("a", units, shape=shape), shape))))
    one, four = [[0, 1, 2], [0], [0], [0], [0], [0], [0], [0]], [[1], [], [], [], [], [], [], []]
    assert found == one + four


def test_gpus_and_memory_are_taken_and_given_back_on_each_node() -> None:
    made = table()
    each = Job("a", 1, shape=Shape(nodes=2, gpus_per_node=1, memory_mb_per_node=300))
    made.count_extras(each, IdSet.parse("1 7").mask, 1)
    assert (made.gpus, made.memory_mb, made.free_gpus) == ([1, 0, 0], [700, 200, 0], 1)
    groups = Job("b", 2, shape=Shape(chunk=2, gpus_per_chunk=1))
    made.count_extras(groups, IdSet.parse("6 8").mask, 1)
    assert (made.gpus, made.memory_mb, made.free_gpus) == ([0, 0, 0], [700, 200, 0], 0)
    assert made.with_extras(Shape(gpus_per_node=1)) == 0
    made.count_extras(each, IdSet.parse("1 7").mask, -1)
    made.count_extras(Job("c", 3), IdSet.parse("2-4").mask, 1)
    made.count_extras(Job("d", 3, shape=Shape(nodes=1)), IdSet.parse("2-4").mask, 1)
    assert (made.gpus, made.memory_mb, made.free_gpus) == ([1, 1, 0], [1000, 500, 0], 2)
    assert list(positions(made.with_extras(Shape(gpus_per_node=1)))) == [0, 1]


def test_nodes_with_gpus_and_memory_enough_left() -> None:
    made = table()

    def left(shape: Shape, *, memory: bool = True) -> list[int]:
        return list(positions(made.with_extras(shape, memory=memory) & 0b111))

    assert left(Shape()) == [0, 1, 2]
    assert left(Shape(gpus_per_chunk=1)) == [0, 1]
    assert left(Shape(gpus_per_node=2)) == [0]
    assert left(Shape(memory_mb_per_node=500)) == [0, 1]
    assert left(Shape(memory_mb_per_node=501)) == [0]
    assert left(Shape(memory_mb_per_node=501), memory=False) == [0, 1, 2]
    assert left(Shape(memory_mb_per_node=501, gpus_per_node=1), memory=False) == [0, 1]
    made.count_extras(Job("a", 1, shape=Shape(nodes=1, memory_mb_per_node=501)), IdSet.parse("6").mask, 1)
    assert left(Shape(memory_mb_per_node=500)) == list(positions(made.with_extras(Shape(memory_mb_per_node=500)) & 0b111)) == [1]
    assert left(Shape(memory_mb_per_node=499)) == [0, 1]


def test_a_first_node_without_gpus_is_none_of_those_that_have_some() -> None:
    made = NodeTable((Node("x", 0, 4), Node("y", 4, 4, gpus=3), Node("z", 8, 4, gpus=3)), ())
    assert [made.with_extras(Shape(gpus_per_node=count)) for count in (1, 3, 4)] == [0b110, 0b110, 0]
    made.count_extras(Job("a", 1, shape=Shape(nodes=1, gpus_per_node=2)), 1 << 4, 1)
    assert [made.with_extras(Shape(gpus_per_node=count)) for count in (1, 2, 3)] == [0b110, 0b100, 0b100]
    made.count_extras(Job("b", 1, shape=Shape(nodes=1, gpus_per_node=2)), 1 << 8, 1)
    assert [made.with_extras(Shape(gpus_per_node=count)) for count in (1, 2)] == [0b110, 0]


def test_free_units_by_node_follow_the_mask() -> None:
    view = FreeNodes(table())

    def seen(free: str) -> tuple[list[int], list[int], list[list[int]]]:
        view.update(IdSet.parse(free).mask)
        return view.free, list(positions(view.whole)), [list(positions(view.with_units(count))) for count in (1, 2, 4)]

    assert (view.free, view.whole, view.with_units(1)) == ([0, 0, 0], 0, 0)
    assert seen("0-9") == ([0b111, 0b1111, 1], [0, 1, 2], [[0, 1, 2], [0, 1], [1]])
    assert seen("0-9") == ([0b111, 0b1111, 1], [0, 1, 2], [[0, 1, 2], [0, 1], [1]])
    assert seen("2-4 8") == ([0b100, 0b1110, 0], [], [[0, 1], [1], []])
    assert seen("1-4 9") == ([0, 0b1111, 1], [1, 2], [[1, 2], [1], [1]])


NODE = Node("n7", 0, properties={"fast": "", "rank": "7"})
YES, NO = {"properties": ["fast"]}, {"properties": ["slow"]}


@pytest.mark.parametrize(
    ("constraint", "satisfied"),
    [
        ({}, True), ([], False), (None, False), ("fast", False),
        (YES, True), (NO, False), ({"properties": []}, True),
        ({"properties": ["fast", "rank"]}, True), ({"properties": ["fast", "slow"]}, False),
        ({"properties": ["slow", "fast"]}, False),
        ({"properties": ["^slow"]}, True), ({"properties": ["^fast"]}, False), ({"properties": ["fast", "^slow"]}, True),
        ({"properties": ["fast", "^rank"]}, False),
        ({"and": [YES, YES]}, True), ({"and": [YES, NO]}, False), ({"and": [NO, NO]}, False), ({"and": []}, True),
        ({"or": [YES, YES]}, True), ({"or": [NO, YES]}, True), ({"or": [NO, NO]}, False), ({"or": []}, False),
        ({"not": [YES]}, False), ({"not": [NO]}, True), ({"not": [YES, NO]}, True), ({"not": [YES, YES]}, False),
        ({"hostlist": ["n6", "n7"]}, True), ({"hostlist": ["n6"]}, False),
        ({"ranks": ["7"]}, True), ({"ranks": ["6"]}, False),
        ({"unheard of": []}, False), ({"unheard of": ["fast"]}, False),
        ({**YES, "hostlist": ["n7"]}, True), ({**YES, "hostlist": ["n6"]}, False), ({"hostlist": ["n7"], **NO}, False),
    ],
)  # fmt: skip
def test_constraints_are_those_of_rfc_31(constraint: object, satisfied: bool) -> None:
    assert satisfies(NODE, constraint) is satisfied


def test_a_forecast_knows_the_units_that_a_job_holds_by_now() -> None:
    c = Cluster(e.Begins(nodes=(Node("n", 0, 4),)), "tester")
    c.observe(e.JobSubmitted(0.0, Job("a", 4)))
    c.start(c.waiting["a"])
    whole = Job("whole", 0, shape=Shape(nodes=1))
    assert c.when_fits(whole, [(10.0, "a")]) == (10.0, 0b1111)
    c.observe(e.UnitsFreed(1.0, "a", IdSet.parse("0")))
    c.observe(e.JobSubmitted(1.0, Job("b", 1)))
    c.start(c.waiting["b"])
    assert c.when_fits(whole, [(10.0, "a")]) is None
    assert c.when_fits(whole, [(10.0, "a"), (20.0, "b")]) == (20.0, 0b1111)

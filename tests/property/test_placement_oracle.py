"""Where jobs with a shape go, against a slow, obvious placement: sets, loops over nodes, nothing remembered."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from pilothouse.core.cluster import Cluster
from pilothouse.core.place import misfit
from pilothouse.model import events as e
from pilothouse.model.answers import Never, NotNow, Placed
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node, Shape
from pilothouse.model.lifecycle import JobState

NODES = (
    Node("n0", 0, 4, gpus=2, memory_mb=1000, properties={"fast": ""}),
    Node("n1", 4, 2),
    Node("n2", 6, 4, gpus=1, memory_mb=500),
    Node("n3", 10, 3, gpus=4, memory_mb=2000, properties={"fast": "", "big": ""}),
    Node("n4", 14, 4),  # unit 13 belongs to no node
)
CONSTRAINTS = {
    None: lambda node: True,
    '{"properties": ["fast"]}': lambda node: "fast" in node.properties,
    '{"properties": ["^fast"]}': lambda node: "fast" not in node.properties,
    '{"or": [{"properties": ["big"]}, {"hostlist": ["n1"]}]}': lambda node: "big" in node.properties or node.name == "n1",
    '{"not": [{"properties": ["fast", "big"]}]}': lambda node: not {"fast", "big"} <= set(node.properties),
}


@dataclass
class Left:
    """What a node has left."""

    node: Node
    free: set[int]
    gpus: int
    memory_mb: int


@dataclass
class Room:
    """All nodes, and what the running jobs hold of them."""

    held: dict[str, tuple[Job, set[int]]] = field(default_factory=dict)

    def left(self, without: tuple[str, ...] = (), avoid: frozenset[int] = frozenset()) -> list[Left]:
        found = []
        for node in NODES:
            units = set(range(node.first, node.first + node.count))
            gpus, memory_mb, free = node.gpus, node.memory_mb, units - avoid
            for name, (job, where) in self.held.items():
                here = where & units
                if name in without or not here:
                    continue
                free -= here
                if job.shape is not None:
                    gpus -= job.shape.gpus_per_node
                    gpus -= job.shape.gpus_per_chunk * (len(here) // max(1, job.shape.chunk))
                    memory_mb -= job.shape.memory_mb_per_node
                    memory_mb -= job.shape.memory_mb_per_chunk * (len(here) // max(1, job.shape.chunk))
            found.append(Left(node, free, gpus, memory_mb))
        return found


def place(job: Job, nodes: list[Left], *, least: bool, last: Collection[int] = ()) -> set[int] | None:
    """The units that a job gets, those of `last` after all others; None: it does not fit."""
    shape = job.shape
    assert shape is not None

    def in_turn(units: Iterable[int]) -> list[int]:
        return sorted(units, key=lambda unit: (unit in last, unit))

    whole = shape.exclusive or (shape.nodes > 0 and job.units == 0)
    suits = CONSTRAINTS[None if shape.constraint is None else bytes(shape.constraint).decode()]
    enough = max(1, job.units if shape.nodes else shape.chunk)
    total = sum(len(left.free) for left in Room().left())
    able = [
        left for left in nodes
        if suits(left.node) and left.gpus >= max(shape.gpus_per_node, shape.gpus_per_chunk)
        and left.memory_mb >= shape.memory_mb_per_node + shape.memory_mb_per_chunk
        and left.node.count >= (job.units if shape.nodes else shape.chunk)
        and (len(left.free) == left.node.count if whole else len(left.free) >= enough)
    ]  # fmt: skip
    if shape.nodes:
        most = shape.nodes if least else max(shape.nodes, shape.most_nodes)
        if shape.parts and not least:
            most = max(shape.nodes, len(NODES) // shape.parts)
        chosen = able[:most]
        if len(chosen) < shape.nodes:
            return None
        each = job.units if least else job.most_units or job.units
        return {unit for left in chosen for unit in (left.free if whole else in_turn(left.free)[:each])}
    if shape.chunk or whole:
        taken: set[int] = set()
        missing = job.units
        for left in able:
            if missing > 0:
                usable = min(missing, in_chunks(left, shape))
                missing -= usable
                taken |= left.free if whole else set(in_turn(left.free)[:usable])
        return taken if missing <= 0 else None
    free = in_turn(unit for left in able for unit in left.free)
    most = job.units if least else job.most_units or job.units
    if shape.parts and not least:
        most = max(job.units, total // shape.parts)
    return set(free[:most]) if len(free) >= job.units else None


def in_chunks(left: Left, shape: Shape) -> int:
    if not shape.chunk:
        return len(left.free)
    chunks = len(left.free) // shape.chunk
    if shape.gpus_per_chunk:
        chunks = min(chunks, left.gpus // shape.gpus_per_chunk)
    if shape.memory_mb_per_chunk:
        chunks = min(chunks, (left.memory_mb - shape.memory_mb_per_node) // shape.memory_mb_per_chunk)
    return chunks * shape.chunk


def shapes() -> st.SearchStrategy[tuple[int, int, Shape]]:
    extras = st.tuples(st.sampled_from([0, 0, 1, 2]), st.sampled_from([0, 0, 400, 900]), st.sampled_from([*CONSTRAINTS, None]))

    def made(kind: str, units: int, more: int, nodes: int, extra: tuple[int, int, str | None]) -> tuple[int, int, Shape]:
        gpus, memory_mb, text = extra
        constraint = None if text is None else msgspec.Raw(text.encode())
        most = units + more if more else 0
        common = {"memory_mb_per_node": memory_mb, "constraint": constraint}
        if kind == "nodes":
            return units - 1, most, Shape(nodes=nodes, most_nodes=nodes + more - 1, gpus_per_node=gpus, **common)
        if kind == "exclusive":
            return units, 0, Shape(nodes=nodes - 1, exclusive=True, gpus_per_node=gpus, **common)
        if kind == "chunks":
            each = 0 if more == 0 else 100 * more
            return 2 * units, 0, Shape(chunk=2, gpus_per_chunk=gpus, memory_mb_per_chunk=each, **common)
        if kind == "parts":
            return units, 0, Shape(parts=1 + more, nodes=nodes - 1, **common)
        return units, most, Shape(**common)

    kinds = st.sampled_from(["nodes", "exclusive", "chunks", "parts", "anywhere"])
    return st.builds(made, kinds, st.integers(1, 4), st.integers(0, 3), st.integers(1, 3), extras)


STEPS = st.lists(
    st.tuples(shapes(), st.booleans(), st.sampled_from([0, 0, 0b11, 0b1111 << 6]), st.integers(0, 5)), min_size=1, max_size=14
)


@settings(max_examples=250)
@given(STEPS)
def test_the_same_units(steps: list[tuple[tuple[int, int, Shape], bool, int, int]]) -> None:
    cluster = Cluster(e.Begins(nodes=NODES), "tester")
    room = Room()
    assert cluster.total == 17
    for number, ((units, most, shape), least, avoid, ends) in enumerate(steps):
        job = Job(f"j{number}", units, 100.0, most_units=most, shape=shape)
        cluster.observe(e.JobSubmitted(0.0, job))
        ever = place(job, Room().left(), least=True)
        never = cluster.could_ever_run(job)
        assert (never is not None) == (ever is None or (units == 0 and not shape.nodes)), never
        assert_same_forecast(cluster, room, job, never)
        answer = cluster.start(job, least=least, avoid=avoid)
        expected = place(job, room.left(avoid=frozenset(IdSet(avoid))), least=least)
        if never is not None:
            assert isinstance(answer, Never)
        elif expected is None:
            assert isinstance(answer, NotNow)
        else:
            assert isinstance(answer, Placed) and set(answer.units) == expected
            assert misfit(cluster_before(room), job, answer.units.mask) is None
            assert units == 0 or misfit(cluster_before(room), job, answer.units.mask & 0) is not None
            room.held[job.id] = (job, expected)
        if ends < len(room.held):
            name = list(room.held)[ends]
            _, where = room.held.pop(name)
            cluster.observe(e.JobEnded(0.0, name, JobState.SUCCEEDED, 0, IdSet.of(where)))
        assert set(cluster.free_units) == {unit for left in room.left() for unit in left.free}


def cluster_before(room: Room) -> Cluster:
    """A fresh cluster in the same state."""
    running = tuple(e.Running(job, IdSet.of(where), 0.0) for job, where in room.held.values())
    return Cluster(e.Begins(nodes=NODES, running=running), "tester")


def assert_same_forecast(cluster: Cluster, room: Room, job: Job, never: Never | None) -> None:
    """When and where the job could start if the running jobs ended two at a time."""
    names = list(room.held)
    ends = [(float(index // 2), name) for index, name in enumerate(names)]
    expected = None
    assert job.shape is not None
    free = set() if job.shape.has_extras else {unit for left in room.left() for unit in left.free}
    for date in sorted({date for date, _ in ends}):
        gone = tuple(name for when, name in ends if when <= date)
        units = place(job, room.left(without=gone), least=True, last=free)
        if units is not None and never is None:
            expected = (date, units)
            break
    found = cluster.when_fits(job, ends) if never is None else None
    assert (None if found is None else (found[0], set(IdSet(found[1])))) == expected


def test_constraints_are_json() -> None:
    assert all(text is None or json.loads(text) for text in CONSTRAINTS)

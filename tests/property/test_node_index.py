"""Jobs with a shape get the units that a slow and obvious placement would give them, whatever happened before.

The index of nodes (core/node_index.py) is kept up to date by small steps. The twin here keeps nothing: it looks at all
nodes, running jobs and free units anew for each question.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from math import inf
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from pilothouse.core import place
from pilothouse.core.cluster import Cluster
from pilothouse.model import events as e
from pilothouse.model.answers import Never, NotNow
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node, Shape
from pilothouse.model.lifecycle import JobState

CONSTRAINTS = (
    None,
    {"properties": ["fast"]},
    {"not": [{"properties": ["fast"]}]},
    {"or": [{"properties": ["^fast", "big"]}, {"hostlist": ["n0", "n3"]}]},
)


@dataclass
class Twin:
    """Everything that placement depends on, in the plainest form."""

    nodes: list[Node]
    off: set[int] = field(default_factory=set)
    running: dict[str, tuple[Job, set[int]]] = field(default_factory=dict)

    def free_of(self, node: Node, avoid: set[int]) -> list[int]:
        busy = {unit for _, units in self.running.values() for unit in units}
        return [unit for unit in range(node.first, node.first + node.count) if unit not in busy | self.off | avoid]

    def extras_of(self, node: Node) -> tuple[int, int]:
        """GPUs and memory that are left of a node."""
        gpus, memory = node.gpus, node.memory_mb
        for job, units in self.running.values():
            here = len(units & set(range(node.first, node.first + node.count)))
            if job.shape is not None and here:
                gpus -= job.shape.gpus_per_node + here // max(1, job.shape.chunk) * job.shape.gpus_per_chunk
                memory -= job.shape.memory_mb_per_node
        return gpus, memory

    def place(self, job: Job, avoid: set[int], last: Collection[int] = ()) -> set[int] | None:
        """The units of a shaped job now, those of `last` after all others; None: they are not there."""
        shape = job.shape
        assert shape is not None
        whole = shape.exclusive or (shape.nodes > 0 and job.units == 0)
        taken: set[int] = set()
        count = 0
        most = max(shape.nodes, shape.most_nodes)
        most_units = job.most_units or job.units
        if shape.parts:
            most = max(shape.nodes, len(self.nodes) // shape.parts)
            if not shape.nodes:
                most_units = max(job.units, sum(node.count for node in self.nodes) // shape.parts)
        for node in self.nodes:
            free = sorted(self.free_of(node, avoid), key=lambda unit: (unit in last, unit))
            gpus, memory = self.extras_of(node)
            least = max(1, job.units if shape.nodes else shape.chunk)
            if len(free) < (node.count if whole else least) or node.count < least:
                continue
            if gpus < max(shape.gpus_per_node, shape.gpus_per_chunk) or memory < shape.memory_mb_per_node:
                continue
            if shape.constraint is not None and not suits(node, msgspec.json.decode(shape.constraint)):
                continue
            if shape.nodes:
                if count == most:
                    break
                count += 1
                taken |= set(free if whole else free[:most_units])
                continue
            if not (shape.chunk or whole):
                count += len(free)
                taken |= set(free)
                continue
            if count >= job.units:
                break
            usable = len(free)
            if shape.chunk:
                chunks = usable // shape.chunk
                if shape.gpus_per_chunk:
                    chunks = min(chunks, gpus // shape.gpus_per_chunk)
                usable = chunks * shape.chunk
            usable = min(usable, job.units - count)
            count += usable
            taken |= set(free if whole else free[:usable])
        if count < (shape.nodes or job.units):
            return None
        if not (shape.nodes or shape.chunk or whole):
            taken = set(sorted(taken, key=lambda unit: (unit in last, unit))[:most_units])
        return taken


def suits(node: Node, constraint: dict[str, Any]) -> bool:
    """RFC 31, for the constraints above."""
    (operator, values), *_ = constraint.items()
    if operator == "properties":
        return all((value.lstrip("^") in node.properties) is not value.startswith("^") for value in values)
    if operator == "hostlist":
        return node.name in values
    if operator == "not":
        return not all(suits(node, value) for value in values)
    return any(suits(node, value) for value in values)


@st.composite
def machines(draw: st.DrawFn) -> list[Node]:
    found, first = [], 0
    for number in range(draw(st.integers(1, 6))):
        count = draw(st.integers(1, 6))
        properties = {name: "" for name in ("fast", "big") if draw(st.booleans())}
        gpus, memory = draw(st.integers(0, 3)), draw(st.sampled_from((200, 100, 0)))
        found.append(Node(f"n{number}", first, count, gpus=gpus, memory_mb=memory, properties=properties))
        first += count + draw(st.integers(0, 2))  # numbers that belong to no node
    return found


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, int, Shape]:
    nodes = draw(st.integers(0, 3))
    chunk = 0 if nodes else draw(st.integers(0, 3))
    units = draw(st.integers(0 if nodes else 1, 4)) * max(1, chunk)
    moldable = not chunk and draw(st.booleans())
    constraint = draw(st.sampled_from((None, None, *CONSTRAINTS)))
    shape = Shape(
        nodes=nodes,
        most_nodes=nodes + draw(st.integers(0, 2)) if nodes and moldable else 0,
        exclusive=draw(st.sampled_from((False, False, False, True))),
        gpus_per_node=0 if chunk else draw(st.integers(0, 2)),
        memory_mb_per_node=draw(st.sampled_from((60, 150, 0))),
        parts=draw(st.integers(0, 3)) if moldable and units else 0,
        chunk=chunk,
        gpus_per_chunk=draw(st.integers(0, 2)) if chunk else 0,
        constraint=None if constraint is None else msgspec.Raw(msgspec.json.encode(constraint)),
    )
    most = units + draw(st.integers(0, 3)) if moldable and units and not shape.parts else 0
    return units, most, shape


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), requests(), st.integers(0, 2**36)),
        st.tuples(st.just("plain"), st.integers(1, 8), st.just(0)),
        st.tuples(st.just("end"), st.integers(0, 100), st.just(0)),
        st.tuples(st.just("off"), st.integers(0, 40), st.just(0)),
        st.tuples(st.just("on"), st.integers(0, 40), st.just(0)),
        st.tuples(st.just("join"), st.integers(1, 4), st.just(0)),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=300)
@given(machines(), STEPS)
def test_shaped_jobs_get_the_units_of_the_slow_placement(nodes: list[Node], steps: list[tuple[str, Any, int]]) -> None:
    cluster, twin = Cluster(e.Begins(nodes=tuple(nodes)), "tester"), Twin(list(nodes))
    for number, (what, value, avoid) in enumerate(steps):
        now = float(number)
        if what == "start":
            units, most, shape = value
            job = Job(f"j{number}", units, 10.0 + number % 7, shape=shape, most_units=most)
            cluster.observe(e.JobSubmitted(now, job))
            compare(cluster, twin, job, avoid if number % 2 else 0)
        elif what == "plain":
            job = Job(f"j{number}", value, 5.0 + number % 3)
            cluster.observe(e.JobSubmitted(now, job))
            cluster.start(job)
            note(cluster, twin, job)
        elif what == "end" and twin.running:
            job_id = sorted(twin.running)[value % len(twin.running)]
            _, held = twin.running.pop(job_id)
            cluster.observe(e.JobEnded(now, job_id, JobState.SUCCEEDED, 0, IdSet(mask_of(held))))
        elif what in ("off", "on"):
            unit = IdSet(1 << value) & cluster.units
            if what == "off":
                twin.off |= set(unit)
                cluster.observe(e.UnitsUnavailable(now, unit))
            else:
                twin.off -= set(unit)
                cluster.observe(e.UnitsAvailable(now, unit))
        elif what == "join":
            node = Node(f"x{number}", max(one.first + one.count for one in twin.nodes), value, gpus=value % 2)
            twin.nodes.append(node)
            cluster.observe(e.NodesJoined(now, (node,)))


def note(cluster: Cluster, twin: Twin, job: Job) -> None:
    if job.id in cluster.running:
        twin.running[job.id] = (job, set(cluster.running[job.id].units))


def mask_of(units: set[int]) -> int:
    return sum(1 << unit for unit in units)


def compare(cluster: Cluster, twin: Twin, job: Job, avoid: int) -> None:
    """What would be chosen, now and later, and then the start itself."""
    left_alone = {unit for unit in range(avoid.bit_length()) if avoid >> unit & 1}
    expected = twin.place(job, left_alone)
    found = place.choose(cluster, job, avoid=avoid)
    if expected is None:
        assert isinstance(found, NotNow | Never)
        alone = Twin(twin.nodes).place(job, set())
        assert isinstance(found, Never) is (alone is None), "Never: not even on the empty machine"
    else:
        assert found == mask_of(expected)
        assert place.misfit(cluster, job, mask_of(expected)) is None
    if not isinstance(found, Never):
        ends = sorted((cluster.expected_end(job_id), job_id) for job_id in twin.running)
        assert place.when(cluster, job, ends) == slow_when(twin, job, ends)
    cluster.start(job, avoid=avoid)
    assert (job.id in cluster.running) is (expected is not None)
    note(cluster, twin, job)


def slow_when(twin: Twin, job: Job, ends: list[tuple[float, str]]) -> tuple[float, int] | None:
    """The first date at which enough has ended, and the units at that date: first those that are busy now."""
    shape = job.shape
    assert shape is not None
    rigid = Job(job.id, job.units, inf, shape=msgspec.structs.replace(shape, most_nodes=0, parts=0))
    for date in sorted({date for date, _ in ends}):
        over = {job_id for end, job_id in ends if end <= date}
        left = {job_id: run for job_id, run in twin.running.items() if job_id not in over}
        free = {unit for node in twin.nodes for unit in twin.free_of(node, set())}
        units = Twin(twin.nodes, twin.off, left).place(rigid, set(), set() if shape.has_extras else free)
        if units is not None:
            return date, mask_of(units)
    return None

"""The timetable of nodes against a slow, obvious one: every node by itself, every date tried."""

from __future__ import annotations

from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from pilothouse.core.cluster import Cluster
from pilothouse.core.node_index import gpus_taken, memory_taken_mb
from pilothouse.core.node_timetable import NodeTimetable
from pilothouse.model.events import Begins, Running
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node, Shape

NODES = (
    Node("a", 0, 2, gpus=1, memory_mb=10),
    Node("b", 2, 4, gpus=2, memory_mb=20),
    Node("c", 6, 4, memory_mb=20),
    Node("d", 10, 3, gpus=3, memory_mb=5),
)
Booking = tuple[Job, dict[int, int], float, float]
"""A job, its units of each node, and from when to when it holds them."""

shapes = st.one_of(
    st.none(),
    st.builds(Shape, nodes=st.integers(1, 3), exclusive=st.booleans(), gpus_per_node=st.integers(0, 2)),
    st.builds(Shape, nodes=st.integers(1, 2), memory_mb_per_node=st.integers(0, 12)),
    st.builds(Shape, chunk=st.integers(1, 2), gpus_per_chunk=st.integers(0, 1), memory_mb_per_chunk=st.integers(0, 6)),
    st.builds(Shape, memory_mb_per_node=st.integers(1, 8)),
)
requests = st.tuples(shapes, st.integers(0, 6), st.integers(1, 9))


def left(position: int, at: float, bookings: list[Booking]) -> tuple[int, int, int]:
    node = NODES[position]
    units, gpus, memory_mb = node.count, node.gpus, node.memory_mb
    for job, parts, start, end in bookings:
        if start <= at < end and position in parts:
            shape, taken = job.shape or Shape(), parts[position]
            units, gpus = units - taken, gpus - gpus_taken(shape, taken)
            memory_mb -= memory_taken_mb(shape, taken)
    return units, gpus, memory_mb


def usable(job: Job, position: int, start: float, end: float, bookings: list[Booking]) -> int:
    """How much a job can use of a node for all that time."""
    shape, found = job.shape or Shape(), inf
    for at in [start, *(date for booking in bookings for date in booking[2:] if start < date < end)]:
        units, gpus, memory_mb = left(position, at, bookings)
        whole = shape.exclusive or (shape.nodes and not job.units)
        if units < (NODES[position].count if whole else 1) or gpus < max(shape.gpus_per_node, shape.gpus_per_chunk):
            return 0
        if memory_mb < shape.least_memory_mb:
            return 0
        if shape.nodes:
            found = min(found, 1 if units >= job.units else 0)
            continue
        groups = units // max(1, shape.chunk)
        if shape.gpus_per_chunk:
            groups = min(groups, gpus // shape.gpus_per_chunk)
        if shape.memory_mb_per_chunk:
            groups = min(groups, (memory_mb - shape.memory_mb_per_node) // shape.memory_mb_per_chunk)
        found = min(found, groups * max(1, shape.chunk))
    return int(found)


def slow_earliest(job: Job, now: float, duration: float, bookings: list[Booking]) -> float | None:
    needed = job.shape.nodes if job.shape is not None and job.shape.nodes else job.units
    for start in sorted({now, *(booking[3] for booking in bookings if now < booking[3] < inf)}):
        if sum(usable(job, position, start, start + duration, bookings) for position in range(len(NODES))) >= needed:
            return start
    return None


@settings(max_examples=150, deadline=None)
@given(running=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), max_size=3), asked=st.lists(requests, max_size=8))
def test_the_same_dates_as_the_obvious_one(
    running: list[tuple[int, int]], asked: list[tuple[Shape | None, int, int]]
) -> None:
    bookings: list[Booking] = []
    runs, ends, first = [], [], 0
    for number, (units, end) in enumerate(running):
        job = Job(f"r{number}", units)
        runs.append(Running(job, IdSet.span(first, units), 0.0))
        parts = {p: n for p, node in enumerate(NODES) if (n := (runs[-1].units.mask & node.mask).bit_count())}
        bookings.append((job, parts, 0.0, float(end)))
        ends.append((float(end), job.id))
        first += units
    cluster = Cluster(Begins(nodes=NODES, running=tuple(runs)), "test")
    timetable = NodeTimetable(cluster, ends)
    now = 0.0
    for number, (shape, units, duration) in enumerate(asked):
        if shape is None or not shape.nodes:
            units = max(1, units) * max(1, 0 if shape is None else shape.chunk)
        job = Job(f"j{number}", units, shape=shape)
        if number == 4:
            now = 1.5
            timetable.forget_before(now)
        found = timetable.earliest(job, float(duration))
        assert (None if found is None else found[0]) == slow_earliest(job, now, float(duration), bookings)
        if found is not None:
            start, shares = found
            for position, count in shares:
                # every share is there for all that time
                assert usable(job, position, start, start + duration, bookings) and count <= NODES[position].count
            timetable.take(job, shares, start, float(duration))
            bookings.append((job, dict(shares), start, start + duration))
            for at in sorted({booking[2] for booking in bookings if booking[2] >= now}):
                assert all(left(position, at, bookings)[0] >= 0 for position in range(len(NODES)))

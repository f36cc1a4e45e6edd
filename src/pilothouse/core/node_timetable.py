"""What nodes have free over time, for reservations of jobs with a shape: units, GPUs and memory of each node.

In: the running jobs with their expected ends, then reservations. Out: the earliest date at which nodes can hold a job for its
whole duration, and what it gets of each of them. Units of one node are alike, so numbers of them are enough.

Nodes with the same future are one group: the cost of a question is the number of groups (about as many as there are jobs), not
that of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import TYPE_CHECKING

from pilothouse.core.node_index import gpus_taken, memory_taken_mb, positions
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Shape
from pilothouse.model.masks import lowest_bits

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster

Step = tuple[float, int, int, int]
"""From this date on: free units, GPUs and memory of a node."""
Future = tuple[int, tuple[Step, ...]]
"""The number of units of a node, and its steps."""
Share = tuple[int, int]
"""The position of a node, and how many units a job gets of it."""
Usable = Callable[[int, int, int, int], int]
"""Size, free units, GPUs and memory of a node -> how much of it a job can use."""

_ANYWHERE = Shape()


class NodeTimetable:
    """The futures of all nodes. `ends`: date and id of running jobs, as they are expected to end."""

    def __init__(self, cluster: Cluster, ends: Iterable[tuple[float, str]]) -> None:
        self._cluster = cluster
        self._table = table = cluster.node_table
        free, now = cluster.free_nodes().free, cluster.now
        self._groups: dict[Future, int] = {}
        for position, node in enumerate(table.nodes):
            future = (node.count, ((now, free[position].bit_count(), table.gpus[position], table.memory_mb[position]),))
            self._groups[future] = self._groups.get(future, 0) | 1 << position
        for date, job_id in ends:
            run = cluster.running[job_id]
            if date < inf:
                parts = table.parts(run.units.mask & ~cluster.off_mask)
                shares = [(position, local.bit_count()) for position, local in parts]
                self._take(run.job.shape or _ANYWHERE, shares, max(date, now), inf, -1)

    def forget_before(self, now: float) -> None:
        """Time goes on."""
        groups: dict[Future, int] = {}
        for (size, steps), nodes in self._groups.items():
            first = 0
            while first + 1 < len(steps) and steps[first + 1][0] <= now:
                first += 1
            future = (size, ((now, *steps[first][1:]), *steps[first + 1 :])) if steps[0][0] < now else (size, steps)
            groups[future] = groups.get(future, 0) | nodes
        self._groups = groups

    def earliest(self, job: Job, duration: float) -> tuple[float, list[Share]] | None:
        """When and where a job can run for `duration`, on as few units as it needs; None: never."""
        shape = job.shape or _ANYWHERE
        suitable = self._table.suitable(job, shape)
        needed, usable = _wanted(job, shape)
        changes: list[tuple[float, int, int]] = []
        """Date, 1 if the change is just after it, and by how much what can be used of all nodes changes."""
        values: list[tuple[int, list[tuple[float, int, int]]]] = []
        for (size, steps), nodes in self._groups.items():
            nodes &= suitable
            if nodes:
                course = _course(size, steps, duration, usable)
                values.append((nodes, course))
                before, count = 0, nodes.bit_count()
                for date, after, value in course:
                    if value != before:
                        changes.append((date, after, (value - before) * count))
                        before = value
        changes.sort()
        have = 0
        for index, (date, after, change) in enumerate(changes):
            have += change
            last = index + 1 == len(changes) or changes[index + 1][:2] != (date, after)
            if last and have >= needed and not after:
                return date, self._shares(job, shape, needed, date, values)
        return None

    def take(self, job: Job, shares: list[Share], start: float, duration: float) -> None:
        """Reserves what a job gets of each node."""
        self._take(job.shape or _ANYWHERE, shares, start, start + duration, 1)

    def units(self, shares: list[Share]) -> IdSet | None:
        """Free units of each node, as many as were reserved; None: some are not free yet."""
        free, mask = self._cluster.free_nodes().free, 0
        for position, count in shares:
            if free[position].bit_count() < count:
                return None
            mask |= lowest_bits(free[position], count) << self._table.nodes[position].first
        return IdSet(mask)

    def _shares(
        self, job: Job, shape: Shape, needed: int, at: float, values: list[tuple[int, list[tuple[float, int, int]]]]
    ) -> list[Share]:
        """What a job gets at that date of the first nodes that can give something."""
        found: list[Share] = []
        for nodes, course in values:
            value = 0
            for date, after, later in course:
                if (date, after) > (at, 0):
                    break
                value = later
            if value:
                found += [(position, value) for position in positions(nodes)]
        found.sort()
        shares: list[Share] = []
        whole = shape.exclusive or (bool(shape.nodes) and job.units == 0)
        for position, value in found:
            if needed <= 0:
                break
            needed -= value
            count = job.units if shape.nodes else min(value, value + needed)
            shares.append((position, self._table.nodes[position].count if whole else count))
        return shares

    def _take(self, shape: Shape, shares: list[Share], start: float, end: float, sign: int) -> None:
        by_count: dict[int, int] = {}
        for position, count in shares:
            by_count[count] = by_count.get(count, 0) | 1 << position
        if end <= start:
            return
        for count, nodes in by_count.items():
            taken = (sign * count, sign * gpus_taken(shape, count), sign * memory_taken_mb(shape, count))
            for future, members in [item for item in self._groups.items() if item[1] & nodes]:
                size, steps = future
                changed = (size, _less(steps, start, end, taken))
                if members & ~nodes:
                    self._groups[future] = members & ~nodes
                else:
                    del self._groups[future]
                self._groups[changed] = self._groups.get(changed, 0) | members & nodes


def _wanted(job: Job, shape: Shape) -> tuple[int, Usable]:
    """How much a job needs, and how much of it a node can give."""
    gpus_each, memory_each, chunk = shape.gpus_per_chunk, shape.memory_mb_per_chunk, max(1, shape.chunk)
    whole = shape.exclusive or (bool(shape.nodes) and job.units == 0)

    def usable(size: int, units: int, gpus: int, memory_mb: int) -> int:
        if gpus < max(shape.gpus_per_node, gpus_each) or memory_mb < shape.least_memory_mb or (whole and units < size):
            return 0
        if shape.nodes:
            return int(units >= max(1, job.units))
        groups = units // chunk
        if gpus_each:
            groups = min(groups, gpus // gpus_each)
        if memory_each:
            groups = min(groups, (memory_mb - shape.memory_mb_per_node) // memory_each)
        return groups * chunk

    return shape.nodes or job.units, usable


def _course(size: int, steps: tuple[Step, ...], duration: float, usable: Usable) -> list[tuple[float, int, int]]:
    """How much of a node a job can use if it starts at a date: (date, 0 or 1: just after it, amount), in order."""
    amounts = [usable(size, units, gpus, memory_mb) for _, units, gpus, memory_mb in steps]
    if len(steps) == 1:
        return [(steps[0][0], 0, amounts[0])]
    now, dates = steps[0][0], [step[0] for step in steps]
    # A later start may reach into a step that an earlier one does not: just after the step's date less the duration.
    moments = [(date, 0, 0) for date in dates]
    moments += [(date - duration, 1, step) for step, date in enumerate(dates) if date - duration >= now]
    moments.sort()
    course: list[tuple[float, int, int]] = []
    first = last = 0
    for date, after, step in moments:
        while first + 1 < len(dates) and dates[first + 1] <= date:
            first += 1
        last = max(first, last, step)
        while last + 1 < len(dates) and dates[last + 1] < date + duration:
            last += 1
        course.append((date, after, min(amounts[first : last + 1])))
    return course


def _less(steps: tuple[Step, ...], start: float, end: float, taken: tuple[int, int, int]) -> tuple[Step, ...]:
    """The steps with so much less from start to end."""
    made: list[Step] = []
    before: Step | None = None
    for step in (*steps, (inf, 0, 0, 0)):
        if before is not None:
            for date in (start, end):
                if before[0] < date < step[0]:
                    made.append((date, *before[1:]))
        if step[0] < inf:
            made.append(step)
        before = step
    units, gpus, memory_mb = taken
    return tuple(
        (date, u - units, g - gpus, m - memory_mb) if start <= date < end else (date, u, g, m) for date, u, g, m in made
    )

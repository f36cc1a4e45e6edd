"""Nodes by position, and an index of them by free units and free GPUs: which nodes could hold a shaped request?

`NodeTable` is what does not depend on free units: the nodes in their order, the GPUs and the memory that jobs have left of
them, and a cache of the nodes that suit a request at all. `FreeNodes` is a view of a mask of free units. It is brought up to
date when it is asked, node by node for what has changed since, so that clusters without shaped jobs do not pay for it.

Sets of nodes are masks of positions. One question costs some operations on them, whatever the number of nodes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

import msgspec

from pilothouse.model.events import Running
from pilothouse.model.job import Job, Node, Shape

Part = tuple[int, int]
"""The position of a node, and a mask of its units that begins with its first unit."""

MOST_CACHED = 4096


class NodeTable:
    """The nodes of a cluster in their order, and what is left of their GPUs and memory."""

    def __init__(self, nodes: Iterable[Node], running: Iterable[Running]) -> None:
        self.nodes = list(nodes)
        self.wholes = [(1 << node.count) - 1 for node in self.nodes]
        """The mask of all units of a node, from its first one on."""
        self.gpus = [node.gpus for node in self.nodes]
        """Free GPUs of each node."""
        self.memory_mb = [node.memory_mb for node in self.nodes]
        self.by_gpus = _by_number(self.gpus)
        self.free_gpus = sum(self.gpus)
        by_first = sorted((node.first, position) for position, node in enumerate(self.nodes))
        self._firsts = [first for first, _ in by_first]
        self._positions = [position for _, position in by_first]
        self._suitable: dict[tuple[object, ...], int] = {}
        self.capacities: dict[tuple[int, ...], int] = {}
        """A cache of core/place.py: kind of request -> units that it can use, or has to take, of an empty machine."""
        self._parts: dict[str, tuple[Running, list[Part]]] = {}
        for run in running:
            self.count_extras(run.job, run.units.mask, 1)

    def parts(self, mask: int) -> list[Part]:
        """The nodes of these units. The cost is the number of nodes."""
        found: list[Part] = []
        base = 0
        while mask:
            unit = base + (mask & -mask).bit_length() - 1
            index = bisect_right(self._firsts, unit) - 1
            end = self._firsts[index] + self.nodes[self._positions[index]].count if index >= 0 else 0
            if unit >= end:
                # A unit of no node.
                mask >>= unit + 1 - base
                base = unit + 1
                continue
            position = self._positions[index]
            found.append((position, mask >> self._firsts[index] - base & self.wholes[position]))
            mask >>= end - base
            base = end
        return found

    def parts_of(self, run: Running) -> list[Part]:
        """The nodes of a running job."""
        known = self._parts.get(run.job.id)
        if known is None or known[0].units is not run.units:
            if len(self._parts) > MOST_CACHED:
                self._parts.clear()
            known = self._parts[run.job.id] = (Running(run.job, run.units, run.started_at), self.parts(run.units.mask))
        return known[1]

    def suitable(self, job: Job, shape: Shape) -> int:
        """The positions of the nodes that could serve a job, if they were free."""
        least = job.units if shape.nodes else shape.chunk
        constraint = None if shape.constraint is None else bytes(shape.constraint)
        gpus = max(shape.gpus_per_node, shape.gpus_per_chunk)
        key = (least, gpus, shape.least_memory_mb, constraint)
        found = self._suitable.get(key)
        if found is None:
            if len(self._suitable) > MOST_CACHED:
                self._suitable.clear()
            wanted = None if constraint is None else msgspec.json.decode(constraint)
            found = 0
            for position, node in enumerate(self.nodes):
                enough = node.count >= least and node.gpus >= gpus and node.memory_mb >= shape.least_memory_mb
                if enough and (wanted is None or satisfies(node, wanted)):
                    found |= 1 << position
            self._suitable[key] = found
        return found

    def with_extras(self, shape: Shape, *, memory: bool = True) -> int:
        """The positions of the nodes that have GPUs and memory enough left; -1: of all."""
        gpus = max(shape.gpus_per_node, shape.gpus_per_chunk)
        found = _at_least(self.by_gpus, gpus) if gpus else -1
        if shape.has_memory and memory:
            for position in positions(found & ((1 << len(self.nodes)) - 1)):
                if self.memory_mb[position] < shape.least_memory_mb:
                    found &= ~(1 << position)
        return found

    def extras_left(self, position: int) -> tuple[int, int]:
        """The GPUs and the memory that are left of a node."""
        return self.gpus[position], self.memory_mb[position]

    def count_extras(self, job: Job, mask: int, sign: int) -> None:
        """A job takes (1) or gives back (-1) the GPUs and the memory that belong to these units."""
        shape = job.shape
        if shape is None or not shape.has_extras:
            return
        for position, local in self.parts(mask):
            gpus = gpus_taken(shape, local.bit_count())
            if gpus:
                _move(self.by_gpus, position, self.gpus[position], self.gpus[position] - sign * gpus)
                self.gpus[position] -= sign * gpus
                self.free_gpus -= sign * gpus
            self.memory_mb[position] -= sign * memory_taken_mb(shape, local.bit_count())


class FreeNodes:
    """The nodes by free units, for one mask of free units."""

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self.free = [0] * len(table.nodes)
        """The mask of the free units of each node, from its first one on."""
        self.whole = 0
        """The positions of the nodes that are free altogether."""
        self._by_units = _by_number(self.free)
        self._seen = 0

    def update(self, free_mask: int) -> None:
        changed = free_mask ^ self._seen
        if not changed:
            return
        self._seen = free_mask
        free, wholes = self.free, self.table.wholes
        for position, part in self.table.parts(changed):
            before = free[position]
            after = free[position] = before ^ part
            _move(self._by_units, position, before.bit_count(), after.bit_count())
            if after == wholes[position]:
                self.whole |= 1 << position
            else:
                self.whole &= ~(1 << position)

    def with_units(self, count: int) -> int:
        """The positions of the nodes with so many free units."""
        return _at_least(self._by_units, count)


def units_of(nodes: tuple[Node, ...]) -> int:
    """All units of these nodes. Neighbours are joined first: each change of a wide mask makes a new one."""
    mask = first = end = 0
    for node in nodes:
        if node.first != end:
            mask |= ((1 << (end - first)) - 1) << first
            first = node.first
        end = node.first + node.count
    return mask | ((1 << (end - first)) - 1) << first


def gpus_taken(shape: Shape, units: int) -> int:
    """The GPUs that a job takes of a node on which it has so many units."""
    return shape.gpus_per_node + units // max(1, shape.chunk) * shape.gpus_per_chunk


def memory_taken_mb(shape: Shape, units: int) -> int:
    """The memory that a job takes of such a node."""
    return shape.memory_mb_per_node + units // max(1, shape.chunk) * shape.memory_mb_per_chunk


def positions(nodes: int) -> Iterator[int]:
    """The positions in a mask, ascending."""
    while nodes:
        low = nodes & -nodes
        yield low.bit_length() - 1
        nodes ^= low


def satisfies(node: Node, constraint: object) -> bool:
    """RFC 31: {"properties": [..]}, {"hostlist": [..]}, and, or, not. A property `^x` is the absence of x."""
    if not isinstance(constraint, dict):
        return False
    return all(_satisfies_one(node, operator, values) for operator, values in constraint.items())


def _satisfies_one(node: Node, operator: str, values: list[object]) -> bool:
    if operator == "properties":
        return all(
            (value[1:] not in node.properties) if value.startswith("^") else (value in node.properties)
            for value in map(str, values)
        )
    if operator == "and":
        return all(satisfies(node, value) for value in values)
    if operator == "or":
        return any(satisfies(node, value) for value in values)
    if operator == "not":
        return not all(satisfies(node, value) for value in values)
    if operator in ("hostlist", "ranks"):
        return node.name in values or node.properties.get("rank") in values
    return False


def _by_number(numbers: list[int]) -> dict[int, int]:
    """Number -> the positions that have it."""
    found: dict[int, int] = {}
    for position, number in enumerate(numbers):
        found[number] = found.get(number, 0) | 1 << position
    return found


def _move(by_number: dict[int, int], position: int, before: int, after: int) -> None:
    by_number[before] ^= 1 << position
    if not by_number[before]:
        del by_number[before]
    by_number[after] = by_number.get(after, 0) | 1 << position


def _at_least(by_number: dict[int, int], least: int) -> int:
    found = 0
    for number, nodes in by_number.items():
        if number >= least:
            found |= nodes
    return found

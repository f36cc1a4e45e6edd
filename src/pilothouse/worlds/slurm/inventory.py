"""The nodes of the steered partition as units: numbers, what is usable, what other jobs hold.

A unit is a whole node, or (`by_cpu`) a CPU. Unit numbers never change; a node that is new gets new ones. Slurm chooses the
cores of a job itself, so the units of a node are only counted: which of them a job holds is ours to say.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pilothouse.formats import slurm_fields as fields
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Node
from pilothouse.worlds.slurm.look import JobRow, NodeRow


class Holding(msgspec.Struct):
    """Units that a job holds which the decider was not told of."""

    counts: dict[str, int]
    """Node -> number of units."""


class Inventory:
    """The nodes of one partition."""

    def __init__(self, partition: str, *, by_cpu: bool, counts_memory: bool = False) -> None:
        self.by_cpu = by_cpu
        self.rows: dict[str, NodeRow] = {}
        self.nodes: dict[str, Node] = {}
        self.off = 0
        """Mask of the units on which nothing may start: of nodes that are down or drained, and those of other jobs."""
        self._partition = partition
        self._counts_memory = counts_memory
        self._others: dict[str, Holding] = {}
        self._used = 0
        """Mask of the units that jobs of the decider hold."""

    def update(self, rows: Iterable[NodeRow]) -> list[Node]:
        """Takes note of what sinfo shows; returns the nodes that are new."""
        self.rows = {row.name: row for row in rows if self._partition in row.partitions}
        new = []
        for row in self.rows.values():
            if row.name not in self.nodes:
                first = sum(node.count for node in self.nodes.values())
                node = self.nodes[row.name] = self._node(row, first)
                new.append(node)
        return new

    def _node(self, row: NodeRow, first: int) -> Node:
        return Node(
            row.name,
            first,
            row.cpus if self.by_cpu else 1,
            fields.gres(row.gres).get("gpu", 0),
            row.memory_mb if self._counts_memory else 0,
            row.cpus,
            dict.fromkeys(row.features, ""),
        )

    def usable(self, name: str) -> bool:
        row = self.rows.get(name)
        return row is not None and row.usable

    def names(self, units: IdSet) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes.values() if node.mask & units.mask)

    # ---- units that are held

    def take(self, units: IdSet) -> None:
        self._used |= units.mask

    def give_back(self, units: IdSet) -> None:
        self._used &= ~units.mask

    def counts(self, row: JobRow) -> dict[str, int]:
        """Node -> the units that a running job holds there. Where its CPUs are uneven over nodes, the most that can be."""
        held = [self.nodes[name] for name in row.node_names if name in self.nodes]
        if not self.by_cpu or row.whole_nodes:
            return {node.name: node.count for node in held}
        most = row.cpus - (len(row.node_names) - 1)
        if row.cpus % max(1, len(row.node_names)) == 0 and row.cpus_per_node * len(row.node_names) == row.cpus:
            most = row.cpus_per_node
        return {node.name: max(1, min(node.count, most)) for node in held}

    def units_of(self, row: JobRow) -> IdSet:
        """Free units for a job that holds nodes already."""
        mask = 0
        for name, count in self.counts(row).items():
            node = self.nodes[name]
            mask |= _lowest(node.mask & ~self._used, count)
        return IdSet(mask)

    def hold(self, row: JobRow) -> None:
        """A job that the decider was not told of holds units."""
        self._others[row.id] = Holding(self.counts(row))

    def release(self, job_id: str) -> None:
        self._others.pop(job_id, None)

    def holds(self, job_id: str) -> bool:
        return job_id in self._others

    def refresh(self) -> tuple[IdSet, IdSet]:
        """Computes `off` anew; returns what became available, and what no longer is."""
        off = 0
        for name, node in self.nodes.items():
            if not self.usable(name):
                off |= node.mask
        wanted: dict[str, int] = {}
        for holding in self._others.values():
            for name, count in holding.counts.items():
                wanted[name] = wanted.get(name, 0) + count
        for name, count in wanted.items():
            node = self.nodes[name]
            free = node.mask & ~self._used
            kept = _lowest(free & self.off, count)
            # The same units as before, as far as they go: an event for each change is enough.
            off |= kept | _lowest(free & ~kept, count - kept.bit_count())
        came, went = IdSet(self.off & ~off), IdSet(off & ~self.off)
        self.off = off
        return came, went


def _lowest(mask: int, count: int) -> int:
    found = 0
    while mask and count > 0:
        low = mask & -mask
        found |= low
        mask ^= low
        count -= 1
    return found

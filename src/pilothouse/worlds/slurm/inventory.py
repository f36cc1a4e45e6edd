"""The nodes of the steered partition as units: numbers, what is usable, what is left of each node.

A unit is a whole node, or (`by_cpu`) a CPU. Unit numbers never change; a node that is new gets new ones. Slurm chooses the
cores of a job itself, so the units of a node are only counted: which of them a job holds is ours to say. Memory and GRES
are counted as Slurm gives them out, by the parts of nodes that jobs hold or were ordered to.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from pilothouse.model.idset import IdSet
from pilothouse.model.job import Node
from pilothouse.model.masks import lowest_bits
from pilothouse.worlds.slurm.look import JobRow, NodeRow
from pilothouse.worlds.slurm.records import Part, covers, gpus_of


class Inventory:
    """The nodes of one partition. `whole_cores`: Slurm gives out all CPUs of a core (CR_Core)."""

    def __init__(self, partition: str, *, by_cpu: bool, counts_memory: bool = False, whole_cores: bool = False) -> None:
        self.by_cpu = by_cpu
        self.counts_memory = counts_memory
        self.rows: dict[str, NodeRow] = {}
        self.nodes: dict[str, Node] = {}
        self.version = 0
        """Raised when nodes came, went, or have other resources than before."""
        self.off = 0
        """Mask of the units of nodes that are down or drained."""
        self.threads = 1
        """How many CPUs are given out together."""
        self._whole_cores = whole_cores
        self._partition = partition
        self._used = 0
        """Mask of the units that jobs hold, or were ordered to."""
        self._held: dict[str, dict[str, Part]] = {}
        """Node -> job id -> what it holds there, or was ordered to."""

    def update(self, rows: Iterable[NodeRow]) -> list[Node]:
        """Takes note of what sinfo shows; returns the nodes that are new."""
        before = self.rows
        self.rows = {row.name: row for row in rows if self._partition in row.partitions}
        if [row.has for row in before.values()] != [row.has for row in self.rows.values()]:
            self.version += 1
        if self._whole_cores:
            self.threads = max((row.threads for row in self.rows.values()), default=1)
        new = []
        # Jobs go to the first nodes that suit them. Large nodes and those with GPUs are left to jobs that need them.
        for row in sorted(self.rows.values(), key=lambda row: (gpus_of(row.gres), row.cpus, row.memory_mb)):
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
            gpus_of(row.gres),
            row.memory_mb if self.counts_memory else 0,
            row.cpus,
            dict.fromkeys(row.features, ""),
        )

    def usable(self, name: str) -> bool:
        row = self.rows.get(name)
        return row is not None and row.usable

    def names(self, units: IdSet) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes.values() if node.mask & units.mask)

    # ---- units that are held

    def take(self, job_id: str, units: IdSet, parts: Mapping[str, Part]) -> None:
        """A job holds these units, or was ordered to them."""
        self._used |= units.mask
        for name, part in parts.items():
            self._held.setdefault(name, {})[job_id] = part

    def give_back(self, job_id: str, units: IdSet, parts: Mapping[str, Part]) -> None:
        self._used &= ~units.mask
        for name in parts:
            self._held.get(name, {}).pop(job_id, None)

    def parts(self, row: JobRow, given: Mapping[str, Part]) -> dict[str, Part]:
        """What a running job holds of each node: what Slurm says in detail, else as much as squeue lets us think."""
        held = [name for name in row.node_names if name in self.nodes]
        if held and all(name in given for name in held):
            return {name: given[name] for name in held}
        most = row.cpus - (len(row.node_names) - 1)
        return {name: Part(max(1, min(self.rows[name].cpus if name in self.rows else 1, most))) for name in held}

    def pick(self, parts: Mapping[str, Part], *, whole: bool) -> IdSet:
        """Free units for a job that holds these parts of nodes."""
        mask = 0
        for name, part in parts.items():
            node = self.nodes[name]
            free, count = node.mask & ~self._used, node.count if whole or not self.by_cpu else part.cpus
            mask |= lowest_bits(free, min(count, free.bit_count()))
        return IdSet(mask)

    def planned(self, units: IdSet, share: Part, *, whole: bool, memory_mb_per_cpu: int) -> dict[str, Part]:
        """The parts of nodes that a job will hold which is started on these units."""
        found: dict[str, Part] = {}
        for name in self.names(units):
            node, row = self.nodes[name], self.rows.get(name)
            cpus = (units.mask & node.mask).bit_count() if self.by_cpu else node.cores
            memory_mb = max(share.memory_mb, cpus * memory_mb_per_cpu)
            if whole and row is not None:
                found[name] = Part(node.cores, row.memory_mb if self.counts_memory else 0, row.gres)
            else:
                found[name] = Part(cpus, memory_mb if self.counts_memory else 0, share.gres)
        return found

    def shortage(self, parts: Mapping[str, Part], *, without: Container[str] = ()) -> str:
        """Why these parts of nodes cannot be had now. Empty: they can."""
        return next(iter(self.shortages(parts, without=without).values()), "")

    def shortages(self, parts: Mapping[str, Part], *, without: Container[str] = ()) -> dict[str, str]:
        """Node -> what it lacks; `without`: jobs that do not count."""
        found: dict[str, str] = {}
        for name, part in parts.items():
            row = self.rows.get(name)
            if row is None:
                found[name] = f"node {name} is gone"
                continue
            held = [theirs for job_id, theirs in self._held.get(name, {}).items() if job_id not in without]
            cpus = row.cpus - sum(theirs.cpus for theirs in held)
            if part.cpus > cpus:
                found[name] = f"node {name} has {max(0, cpus)} CPUs left, and it needs {part.cpus}"
            elif self.counts_memory and part.memory_mb > row.memory_mb - sum(theirs.memory_mb for theirs in held):
                found[name] = f"node {name} has not enough memory left"
            elif part.gres and not covers(_left(row.gres, held), part.gres):
                found[name] = f"node {name} has not enough GRES left"
        return found

    def refresh(self) -> tuple[IdSet, IdSet]:
        """Computes `off` anew; returns what became available, and what no longer is."""
        off = 0
        for name, node in self.nodes.items():
            if not self.usable(name):
                off |= node.mask
        came, went = IdSet(self.off & ~off), IdSet(off & ~self.off)
        self.off = off
        return came, went


def _left(gres: dict[str, int], held: Iterable[Part]) -> dict[str, int]:
    left = dict(gres)
    for part in held:
        for name, number in part.gres.items():
            for kind in [kind for kind in left if kind == name or kind.partition(":")[0] == name]:
                taken = min(left[kind], number)
                left[kind] -= taken
                number -= taken
    return left

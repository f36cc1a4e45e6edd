"""Which cores of which nodes a set of units is, in the words of QCG and Slurm."""

from __future__ import annotations

from typing import NamedTuple

from pilothouse.model.errors import InputError, quoted
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Node

MOST_KNOWN = 1024
"""Sets of units whose shares are remembered: single cores come again and again."""


class Share(NamedTuple):
    """A node's name, and the numbers of the cores that are meant on it."""

    node: str
    cores: tuple[int, ...]


class Layout:
    """The nodes of an allocation in order."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self.nodes = nodes
        self._cores = {node.name: _core_ids(node) for node in nodes}
        self._known: dict[int, list[Share]] = {}

    def add(self, nodes: tuple[Node, ...]) -> None:
        """Nodes that joined later."""
        self.nodes += nodes
        self._cores |= {node.name: _core_ids(node) for node in nodes}
        self._known.clear()

    def shares(self, units: IdSet) -> list[Share]:
        """The nodes that the units are on, each with the cores of it."""
        found = self._known.get(units.mask)
        if found is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            found = self._known[units.mask] = self._found(units)
        return found

    def _found(self, units: IdSet) -> list[Share]:
        found = []
        for node in self.nodes:
            mask = units.mask & node.mask
            if mask:
                cores = self._cores[node.name]
                # A node whose engine was replaced is `name#2` inside the house.
                name = node.name.partition("#")[0]
                found.append(Share(name, tuple(cores[unit - node.first] for unit in IdSet(mask))))
        return found

    def named_cores(self, units: IdSet) -> str:
        """0.14.2: `n0[0:1],n1[0]`."""
        return ",".join(f"{share.node}[{':'.join(map(str, share.cores))}]" for share in self.shares(units))

    def counted_cores(self, units: IdSet) -> str:
        """The specification: `e0003:2`."""
        return ",".join(f"{share.node}:{len(share.cores)}" for share in self.shares(units))


def _core_ids(node: Node) -> list[int]:
    """The operating system's numbers of a node's cores, where they are known; else they count from 0."""
    text = node.properties.get("cores", "")
    ids = list(IdSet.parse(text)) if text else []
    return ids if len(ids) >= node.count else list(range(node.count))


def compressed(counts: list[int]) -> str:
    """Slurm's short form of a list of numbers: `2(x2),1`."""
    parts: list[str] = []
    position = 0
    while position < len(counts):
        end = position
        while end < len(counts) and counts[end] == counts[position]:
            end += 1
        times = end - position
        parts.append(f"{counts[position]}(x{times})" if times > 1 else str(counts[position]))
        position = end
    return ",".join(parts)


def expanded(text: str, nodes: int) -> list[int]:
    """The numbers behind Slurm's short form; one for each of so many nodes. Raises InputError."""
    counts: list[int] = []
    for part in text.split(","):
        number, _, times = part.strip().rstrip(")").partition("(x")
        if not number.isdigit() or not (times or "1").isdigit():
            raise InputError("SLURM_JOB_CPUS_PER_NODE", "not a list of counts", expected="8(x3),4", found=quoted(text))
        counts += [int(number)] * int(times or 1)
    if len(counts) != nodes:
        raise InputError("SLURM_JOB_CPUS_PER_NODE", f"{len(counts)} counts for {nodes} nodes", found=quoted(text))
    return counts

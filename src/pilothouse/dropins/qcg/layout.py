"""Which cores of which nodes a set of units stands for, and how QCG writes them."""

from __future__ import annotations

from typing import NamedTuple

from pilothouse.model.idset import IdSet
from pilothouse.model.job import Node

MOST_CACHED = 1024
"""How many sets of units are cached: single cores recur all the time."""


class Share(NamedTuple):
    """A node, and the numbers of some of its cores."""

    node: str
    cores: tuple[int, ...]


class NodeLayout:
    """The nodes of an allocation in order."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self.nodes = nodes
        self._cores = {node.name: _core_ids(node) for node in nodes}
        self._cache: dict[int, list[Share]] = {}

    def add(self, nodes: tuple[Node, ...]) -> None:
        """Nodes that joined later."""
        self.nodes += nodes
        self._cores |= {node.name: _core_ids(node) for node in nodes}
        self._cache.clear()

    def shares(self, units: IdSet) -> list[Share]:
        """The nodes that the units are on, each with the cores of it."""
        found = self._cache.get(units.mask)
        if found is None:
            if len(self._cache) >= MOST_CACHED:
                self._cache.clear()
            found = self._cache[units.mask] = self._found(units)
        return found

    def _found(self, units: IdSet) -> list[Share]:
        found = []
        for node in self.nodes:
            mask = units.mask & node.mask
            if mask:
                cores = self._cores[node.name]
                # A node whose engine was replaced has joined again as `name#2`.
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
    """The operating system's core numbers where they are known, otherwise numbers from 0."""
    text = node.properties.get("cores", "")
    ids = list(IdSet.parse(text)) if text else []
    return ids if len(ids) >= node.count else list(range(node.count))

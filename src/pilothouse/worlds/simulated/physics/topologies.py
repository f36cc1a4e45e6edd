"""Clusters with a network of their own: tori, fat trees and dragonflies, routed as in SimGrid.

In: the hosts of a <cluster> by their rank, and the numbers of its topo_parameters. Out: the links of each route. Links are
made when a route first needs them; a split-duplex link is two, one up and one down. Each kind of network says `hops`: what
a route crosses, as the name of a cable and its direction, or as the name of a limiter.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from pilothouse.formats.platform_xml import ClusterSpec
from pilothouse.model.errors import InputError
from pilothouse.worlds.simulated.physics.routing import Link, Piece, Point, Zone

UP, DOWN = "_UP", "_DOWN"
Hop = tuple[str, str, int]
"""The name of a cable, its direction, and how many links it is made of; 0: a limiter."""


class ClusterNetwork(Zone):
    """What the three have in common: ranks, links, loopbacks and limiters."""

    __slots__ = ("_links", "_numbers", "_ranks", "_spec")

    def __init__(self, spec: ClusterSpec, zone: Zone, loopback: Link) -> None:
        super().__init__(spec.name, zone, loopback)
        self._spec = spec
        self._numbers = spec.topology
        self._links: dict[str, Link] = {}
        self._ranks: dict[str, int] = {}

    def size(self) -> int:
        """How many hosts the network joins."""
        raise NotImplementedError

    def hops(self, source: int, target: int) -> Iterator[Hop]:
        raise NotImplementedError

    def add(self, point: Point) -> None:
        self._ranks[point.name] = len(self._ranks)
        super().add(point)

    def local_route(self, source: Point, target: Point) -> Piece | None:
        spec, first, last = self._spec, self._ranks[source.name], self._ranks[target.name]
        if source is target and spec.loopback_bandwidth:
            name = f"{self.name}_link_{first}_loopback"
            return Piece((self._link(name, spec.loopback_bandwidth, spec.loopback_latency, shared=False),))
        links = []
        for cable, direction, count in self.hops(first, last):
            if count:
                name = cable + direction if spec.policy == "SPLITDUPLEX" else cable
                links.append(self._link(name, spec.bandwidth * count, spec.latency))
            elif spec.limiter_bandwidth:
                links.append(self._link(f"{cable}_limiter", spec.limiter_bandwidth, 0.0))
        return Piece(links)

    def _link(self, name: str, bandwidth: float, latency: float, *, shared: bool = True) -> Link:
        found = self._links.get(name)
        if found is None:
            found = self._links[name] = Link(name, bandwidth, latency, shared=shared)
        return found

    def _limiter(self, place: object) -> Hop:
        return (f"{self.name}_link_{place}", "", 0)


class Torus(ClusterNetwork):
    """A grid whose rows are rings; routes go through one dimension after the other."""

    __slots__ = ()

    def size(self) -> int:
        return prod(self._numbers[0])

    def hops(self, source: int, target: int) -> Iterator[Hop]:
        here, lengths = source, self._numbers[0]
        while here != target:
            yield self._limiter(here)
            dimension, step = 0, 1
            while (here - target) // step % lengths[dimension] == 0:
                step *= lengths[dimension]
                dimension += 1
            length = lengths[dimension]
            place, goal, start = here // step % length, target // step % length, source // step % length
            half = length // 2
            if start < goal <= start + half or (start > half and (start + half) % length >= goal):
                onward = here + step - (step * length if place == length - 1 else 0)
                yield (f"{self.name}_link_from_{here}_{dimension}", UP, 1)
            else:
                onward = here - step + (step * length if place == 0 else 0)
                yield (f"{self.name}_link_from_{onward}_{dimension}", DOWN, 1)
            here = onward
        yield self._limiter(target)


class FatTree(ClusterNetwork):
    """Hosts below levels of switches. A node is its level and its label, one digit for each level of the tree.

    QUIRK: the positions of hosts, which choose among parallel ways, are counted on over all fat trees of a platform.
    """

    __slots__ = ("first_position",)

    first_position: int

    def size(self) -> int:
        return prod(self._numbers[1])

    def hops(self, source: int, target: int) -> Iterator[Hop]:
        _, children, parents, cables = self._numbers
        here, goal = self._label(source), self._label(target)
        level = 0
        while not level or here[level:] != goal[level:]:
            yield self._limiter((level, *here))
            way = (self.first_position + target) // prod(parents[:level]) % (parents[level] * cables[level])
            above = (*here[:level], way % parents[level], *here[level + 1 :])
            yield self._cable(level, here, above, way // parents[level], UP)
            here, level = above, level + 1
        while level:
            # QUIRK: SimGrid does not begin with the first port again at the switch below.
            port = (self.first_position + source) % cables[level - 1] * children[level - 1]
            while level and port < children[level - 1] * cables[level - 1]:
                if port % children[level - 1] == goal[level - 1]:
                    below = (*here[: level - 1], goal[level - 1], *here[level:])
                    yield self._cable(level - 1, below, here, port // children[level - 1], DOWN)
                    yield self._limiter((level, *here))
                    here, level = below, level - 1
                port += 1
        yield self._limiter((0, *goal))

    def _label(self, position: int) -> tuple[int, ...]:
        digits = []
        for children in self._numbers[1]:
            position, digit = divmod(position, children)
            digits.append(digit)
        return tuple(digits)

    def _cable(self, level: int, below: tuple[int, ...], above: tuple[int, ...], number: int, direction: str) -> Hop:
        return (f"{self.name}_link_from_{level}_{below}_to_{above}_{number}", direction, 1)


class Dragonfly(ClusterNetwork):
    """Groups of chassis of blades, each with a router; router n of the first chassis of a group leads to group n."""

    __slots__ = ()

    def size(self) -> int:
        return prod(numbers[0] for numbers in self._numbers)

    def hops(self, source: int, target: int) -> Iterator[Hop]:
        group, chassis, blade, node = self._place(source)
        to_group, to_chassis, to_blade, to_node = self._place(target)
        yield self._limiter(source)
        yield self._cable("local", (group, chassis, blade), node, node, 1)
        if (group, chassis, blade) != (to_group, to_chassis, to_blade):
            if group != to_group:
                if blade != to_group:
                    yield self._limiter((group, chassis, blade))
                    yield self._cable("green", (group, chassis), blade, to_group, self._numbers[2][1])
                    blade = to_group
                if chassis:
                    yield self._limiter((group, chassis, blade))
                    yield self._cable("black", (group, blade), chassis, 0, self._numbers[1][1])
                    chassis = 0
                yield self._cable("blue", (), group, to_group, self._numbers[0][1])
                yield self._limiter((group, chassis, blade))
                group, blade = to_group, group
            if blade != to_blade:
                yield self._limiter((group, chassis, blade))
                yield self._cable("green", (group, chassis), blade, to_blade, self._numbers[2][1])
                # QUIRK: SimGrid goes on as if the router were in the first chassis.
                chassis, blade = 0, to_blade
            if chassis != to_chassis:
                yield self._limiter((group, chassis, blade))
                yield self._cable("black", (group, blade), chassis, to_chassis, self._numbers[1][1])
        yield self._limiter((to_group, to_chassis, to_blade))
        name, _, count = self._cable("local", (to_group, to_chassis, to_blade), to_node, to_node, 1)
        yield (name, DOWN, count)
        yield self._limiter(target)

    def _place(self, rank: int) -> tuple[int, int, int, int]:
        (_, _), (chassis, _), (blades, _), (nodes,) = self._numbers
        rank, node = divmod(rank, nodes)
        rank, blade = divmod(rank, blades)
        return (*divmod(rank, chassis), blade, node)

    def _cable(self, colour: str, where: tuple[int, ...], start: int, end: int, count: int) -> Hop:
        first, last = min(start, end), max(start, end)
        return (f"{self.name}_{colour}_{where}_{first}_{last}", UP if start <= end else DOWN, count)


_KINDS = {"TORUS": Torus, "FAT_TREE": FatTree, "DRAGONFLY": Dragonfly}


def cluster_network(spec: ClusterSpec, zone: Zone, loopback: Link, fat_tree_hosts: int) -> ClusterNetwork:
    """The zone of a cluster that is not flat; `fat_tree_hosts`: those of fat trees before it in the platform."""
    network = _KINDS[spec.kind](spec, zone, loopback)
    if isinstance(network, FatTree):
        network.first_position = fat_tree_hosts
    declared = sum(last - first + 1 for first, last in spec.radical)
    if declared < network.size():
        raise InputError(spec.where, f"a {spec.kind} of {network.size()} hosts, and the radical has {declared}")
    return network

"""Zones and the routes inside and between them, found when they are asked for.

A Point (host, router or zone) belongs to one zone. `global_route(source, target)` follows SimGrid: inside one zone
the zone itself answers; otherwise the smallest common zone says which links join its two parts and through which
gateways, and the pieces up to and from the gateways are found the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from math import hypot, inf

from pilothouse.model.errors import InputError


class Link:
    """A link; `shared` is False for a fat pipe, whose users do not disturb each other."""

    __slots__ = ("bandwidth", "latency", "name", "shared")

    def __init__(self, name: str, bandwidth: float, latency: float, *, shared: bool = True) -> None:
        self.name = name
        self.bandwidth = bandwidth
        self.latency = latency
        self.shared = shared

    def __repr__(self) -> str:
        return f"Link({self.name})"


class Point:
    """Something that routes lead to: a router, a host, or a zone seen from outside."""

    __slots__ = ("coordinates", "name", "zone")

    def __init__(self, name: str, zone: Zone | None, coordinates: tuple[float, float, float] | None = None) -> None:
        self.name = name
        self.zone = zone
        self.coordinates = coordinates

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


class Piece:
    """The links between two points of one zone; gateways where the points are zones."""

    __slots__ = ("latency", "links", "source_gateway", "target_gateway")

    def __init__(
        self,
        links: Iterable[Link],
        latency: float | None = None,
        source_gateway: Point | None = None,
        target_gateway: Point | None = None,
    ) -> None:
        self.links = tuple(links)
        self.latency = sum(link.latency for link in self.links) if latency is None else latency
        self.source_gateway = source_gateway
        self.target_gateway = target_gateway


class Zone(Point):
    """A part of the platform. This base class has no routes at all (routing None)."""

    __slots__ = ("bypasses", "children", "loopback", "members", "properties")

    def __init__(self, name: str, zone: Zone | None, loopback: Link) -> None:
        super().__init__(name, zone)
        self.properties: dict[str, str] = {}
        self.members: dict[str, Point] = {}
        self.children = 0
        self.loopback = loopback
        self.bypasses: dict[tuple[str, str], Piece] = {}

    def add(self, point: Point) -> None:
        self.members[point.name] = point
        if isinstance(point, Zone):
            self.children += 1

    def local_route(self, source: Point, target: Point) -> Piece | None:
        """The links between two of its members; None: there is no route.

        QUIRK: hosts and routers of one zone that no route joins stand right beside each other; zones do not.
        """
        return None if isinstance(source, Zone) or isinstance(target, Zone) else Piece(())

    def self_route(self) -> Piece | None:
        """What a host pays to talk to itself where nothing else is said: zones of hosts only have a loopback."""
        return Piece((self.loopback,)) if not self.children else None


class FullZone(Zone):
    """Every route is written down."""

    __slots__ = ("routes",)

    def __init__(self, name: str, zone: Zone | None, loopback: Link) -> None:
        super().__init__(name, zone, loopback)
        self.routes: dict[tuple[str, str], Piece] = {}

    def local_route(self, source: Point, target: Point) -> Piece | None:
        piece = self.routes.get((source.name, target.name))
        if piece is None and source is target:
            piece = self.self_route()
        return super().local_route(source, target) if piece is None else piece


class GraphZone(FullZone):
    """Routes are composed of edges with as few links as possible (Floyd's table, or Dijkstra from each source)."""

    __slots__ = ("_floyd", "_predecessors")

    def __init__(self, name: str, zone: Zone | None, loopback: Link, *, floyd: bool) -> None:
        super().__init__(name, zone, loopback)
        self._floyd = floyd
        self._predecessors: dict[str, dict[str, str]] = {}

    def local_route(self, source: Point, target: Point) -> Piece | None:
        if source is target:
            return self.routes.get((source.name, target.name)) or self.self_route()
        if not self._predecessors and self._floyd:
            self._predecessors = self._floyd_table()
        before = self._predecessors.get(source.name)
        if before is None:
            if self._floyd:
                return None
            before = self._predecessors[source.name] = self._dijkstra(source.name)
        hops: list[Piece] = []
        current = target.name
        while current != source.name:
            previous = before.get(current)
            if previous is None:
                return None
            hops.append(self.routes[previous, current])
            current = previous
        hops.reverse()
        return self._joined(hops)

    def _joined(self, hops: list[Piece]) -> Piece | None:
        links: list[Link] = []
        latency = 0.0
        gateway: Point | None = None
        for hop in hops:
            if gateway is not None and hop.source_gateway is not None and gateway is not hop.source_gateway:
                between = global_route(gateway, hop.source_gateway)
                if between is None:
                    return None
                links += between.links
                latency += between.latency
            links += hop.links
            latency += hop.latency
            gateway = hop.target_gateway
        return Piece(links, latency, hops[0].source_gateway, gateway)

    def _edges(self) -> dict[str, list[tuple[str, int]]]:
        edges: dict[str, list[tuple[str, int]]] = {}
        for (source, target), piece in self.routes.items():
            edges.setdefault(source, []).append((target, len(piece.links)))
        return edges

    def _dijkstra(self, source: str) -> dict[str, str]:
        # Among ways of equal length the point that a route names first wins, as in SimGrid.
        named = dict.fromkeys(name for pair in self.routes for name in pair)
        numbers = {name: number for number, name in enumerate(named)}
        if source not in numbers:
            return {}
        edges = self._edges()
        costs = {source: 0}
        before: dict[str, str] = {}
        heap = [(0, numbers[source], source)]
        while heap:
            _, _, here = heappop(heap)
            for there, cost in edges.get(here, ()):
                total = costs[here] + cost
                if total < costs.get(there, inf):
                    costs[there] = total
                    before[there] = here
                    heappush(heap, (total, numbers[there], there))
        return before

    def _floyd_table(self) -> dict[str, dict[str, str]]:
        names = list(self.members)
        costs: dict[str, dict[str, int]] = {name: {} for name in names}
        before: dict[str, dict[str, str]] = {name: {} for name in names}
        for (source, target), piece in self.routes.items():
            costs[source][target] = len(piece.links)
            before[source][target] = source
        for middle in names:
            onward = list(costs[middle].items())
            last = before[middle]
            for source in names:
                row = costs[source]
                first = row.get(middle)
                if first is None:
                    continue
                for target, second in onward:
                    if first + second < row.get(target, inf):
                        row[target] = first + second
                        before[source][target] = last[target]
        return before


class StarZone(Zone):
    """Every member has its own way up and down; a link that both ways share is crossed once (clusters, Vivaldi's
    peers).

    `ways(name)` makes a member's (up, down, loopback) when it is first needed: a cluster of 100,000 hosts makes none
    at load.
    """

    __slots__ = ("_made", "backbone", "ways")

    def __init__(self, name: str, zone: Zone | None, loopback: Link) -> None:
        super().__init__(name, zone, loopback)
        self.ways: Callable[[str], tuple[tuple[Link, ...], tuple[Link, ...], Link | None] | None] = lambda name: None
        self._made: dict[str, tuple[tuple[Link, ...], tuple[Link, ...], Link | None] | None] = {}
        self.backbone: tuple[Link, ...] = ()

    def ways_of(self, name: str) -> tuple[tuple[Link, ...], tuple[Link, ...], Link | None] | None:
        if name not in self._made:
            self._made[name] = self.ways(name)
        return self._made[name]

    def is_own(self, link: Link) -> bool:
        """Whether this link belongs to one member alone (of those whose ways have been made)."""
        if link in self.backbone:
            return False
        return any(way is not None and (link in way[0] or link in way[1]) for way in self._made.values())

    def local_route(self, source: Point, target: Point) -> Piece | None:
        up, down = self.ways_of(source.name), self.ways_of(target.name)
        if up is None or down is None:
            return None
        if source is target and up[2] is not None:
            return Piece((up[2],))
        return Piece(dict.fromkeys(up[0] + down[1]))


class VivaldiZone(StarZone):
    """Distance in coordinates is latency in milliseconds; members without an access link have a free network."""

    __slots__ = ()

    def local_route(self, source: Point, target: Point) -> Piece | None:
        a, b = source.coordinates, target.coordinates
        if a is None or b is None:
            missing = source if a is None else target
            raise InputError(missing.name, f"no coordinates, but zone {self.name} has routing Vivaldi")
        up, down = self.ways_of(source.name), self.ways_of(target.name)
        links = dict.fromkeys((up[0] if up else ()) + (down[1] if down else ()))
        piece = Piece(links)
        piece.latency += (hypot(a[0] - b[0], a[1] - b[1]) + abs(a[2]) + abs(b[2])) / 1000.0
        if isinstance(source, Zone) and isinstance(target, Zone):
            piece.source_gateway, piece.target_gateway = gateway_of(source), gateway_of(target)
        return piece


def gateway_of(zone: Zone) -> Point | None:
    """The router that stands for a zone in a zone of routing Vivaldi."""
    return zone.members.get(f"router_{zone.name}")


def global_route(source: Point, target: Point) -> Piece | None:
    """The links from one point to another, and their latency; None: there is no route."""
    common, above_source, above_target = _common_zone(source, target)
    for one in above_source:
        for other in above_target:
            bypass = common.bypasses.get((one.name, other.name)) if common.bypasses else None
            if bypass is not None:
                return _through(source, bypass, target)
    piece = common.local_route(above_source[-1], above_target[-1])
    if piece is None:
        return None
    return _through(source, piece, target)


def _through(source: Point, piece: Piece, target: Point) -> Piece | None:
    entry, leave = piece.source_gateway, piece.target_gateway
    if (entry is None or entry is source) and (leave is None or leave is target):
        return Piece(piece.links, piece.latency)
    links: list[Link] = []
    latency = 0.0
    for part in (
        global_route(source, entry) if entry is not None and entry is not source else Piece(()),
        piece,
        global_route(leave, target) if leave is not None and leave is not target else Piece(()),
    ):
        if part is None:
            return None
        links += part.links
        latency += part.latency
    return Piece(links, latency)


def _common_zone(source: Point, target: Point) -> tuple[Zone, list[Point], list[Point]]:
    """The smallest zone around both, and for each the chain of points up to the member of that zone."""
    chain_a, chain_b = _chain(source), _chain(target)
    while len(chain_a) > 2 and len(chain_b) > 2 and chain_a[-2] is chain_b[-2]:
        chain_a.pop()
        chain_b.pop()
    zone = chain_a[-1]
    assert isinstance(zone, Zone)
    return zone, chain_a[:-1], chain_b[:-1]


def _chain(point: Point) -> list[Point]:
    chain = [point]
    zone = point.zone
    while zone is not None:
        chain.append(zone)
        zone = zone.zone
    return chain

"""Builds hosts, links and zones from the description of a platform file.

In: a PlatformFile. Out: `Builder.hosts` (by name, in the order of the file), `Builder.links` (those that the file
declares), and the zones behind the hosts, which find routes. The private links of clusters are made when a route
first needs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

from pilothouse.formats.platform_elements import BANDWIDTH_UNITS, TIME_UNITS, quantity
from pilothouse.formats.platform_xml import (
    ClusterSpec,
    HostSpec,
    LinkUse,
    PlatformFile,
    RouteSpec,
    ZoneSpec,
)
from pilothouse.model.errors import InputError
from pilothouse.worlds.simulated.physics.platform import Host
from pilothouse.worlds.simulated.physics.routing import (
    FullZone,
    GraphZone,
    Link,
    Piece,
    Point,
    StarZone,
    VivaldiZone,
    Zone,
)
from pilothouse.worlds.simulated.physics.topologies import cluster_network

Ways = tuple[tuple[Link, ...], tuple[Link, ...], Link | None]

# What SimGrid's model of parallel tasks charges a host for a message to itself when the platform says nothing.
LOOPBACK_BANDWIDTH = 10e9
LOOPBACK_LATENCY = 0.0

# The largest window of TCP in bytes, which caps the rate of a task over long routes.
TCP_GAMMA = 4194304.0


class Builder:
    """One pass over the description; errors name file and line."""

    def __init__(self, file: PlatformFile, generation: int = 5) -> None:
        self._path = file.path
        self._generation = generation
        self.hosts: dict[str, Host] = {}
        self.links: dict[str, Link] = {}
        self._points: dict[str, Point] = {}
        self._fat_tree_hosts = 0
        self._loopback = Link(
            "__loopback__",
            _configured(file, "network/loopback-bw", LOOPBACK_BANDWIDTH),
            _configured(file, "network/loopback-lat", LOOPBACK_LATENCY),
            shared=False,
        )
        self.tcp_gamma = _configured(file, "network/TCP-gamma", TCP_GAMMA)
        root = self._zone(file.root, None)
        self._routes_of(file.root, root)

    def _zone(self, spec: ZoneSpec, parent: Zone | None) -> Zone:
        zone = _new_zone(spec, parent, self._loopback)
        zone.properties = spec.properties
        if parent is not None:
            parent.add(zone)
        self._register(zone, spec.where)
        for link in spec.links:
            self._declare(link.where, link.name, link.bandwidth, link.latency, link.policy)
        if spec.backbone is not None:
            backbone = spec.backbone
            self._declare(backbone.where, backbone.name, backbone.bandwidth, backbone.latency, "SHARED")
        for host in spec.hosts:
            self._host(host, zone)
        for router in spec.routers:
            point = Point(router.name, zone, router.coordinates)
            zone.add(point)
            self._register(point, router.where)
        for cluster in spec.clusters:
            self._cluster(cluster, zone)
        for child in spec.zones:
            self._zone(child, zone)
        if isinstance(zone, StarZone) and spec.routing == "Cluster":
            self._cluster_zone(spec, zone)
        return zone

    def _register(self, point: Point, where: str) -> None:
        if point.name in self._points:
            raise InputError(where, f"{point.name!r} is declared twice")
        self._points[point.name] = point

    def _declare(self, where: str, name: str, bandwidth: float, latency: float, policy: str) -> None:
        if name in self.links or f"{name}_UP" in self.links:
            raise InputError(where, f"link {name!r} is declared twice")
        if policy == "SPLITDUPLEX":
            for direction in ("UP", "DOWN"):
                self.links[f"{name}_{direction}"] = Link(f"{name}_{direction}", bandwidth, latency)
        else:
            self.links[name] = Link(name, bandwidth, latency, shared=policy != "FATPIPE")

    def _host(self, spec: HostSpec, zone: Zone) -> None:
        host = Host(
            spec.name,
            zone,
            spec.speeds,
            pstate=spec.pstate,
            cores=spec.cores,
            properties=spec.properties,
            coordinates=spec.coordinates,
        )
        zone.add(host)
        self._register(host, spec.where)
        self.hosts[spec.name] = host
        if spec.bandwidth_in or spec.bandwidth_out:
            self.links[f"link_{spec.name}_UP"] = Link(f"link_{spec.name}_UP", spec.bandwidth_out, 0.0)
            self.links[f"link_{spec.name}_DOWN"] = Link(f"link_{spec.name}_DOWN", spec.bandwidth_in, 0.0)
            assert isinstance(zone, StarZone)
            zone.ways = self._peer_ways

    def _peer_ways(self, name: str) -> Ways | None:
        up, down = self.links.get(f"link_{name}_UP"), self.links.get(f"link_{name}_DOWN")
        return ((up,), (down,), None) if up is not None and down is not None else None

    def _cluster(self, spec: ClusterSpec, parent: Zone) -> None:
        """A <cluster> is a zone of its own, a <cabinet> some hosts of the zone that it stands in."""
        zone = parent
        if spec.kind != "FLAT":
            self._cluster_network(spec, parent)
            return
        if not spec.cabinet:
            zone = StarZone(spec.name, parent, self._loopback)
            if self._generation <= 4:
                # The SimGrid of Batsim 4 gives a cluster's properties to its zone too, that of Batsim 5 does not.
                zone.properties = spec.properties
            parent.add(zone)
            self._register(zone, spec.where)
            router = Point(spec.router, zone)
            zone.add(router)
            self._register(router, spec.where)
            backbone: tuple[Link, ...] = ()
            if spec.backbone is not None:
                line = spec.backbone
                backbone = (Link(line.name, line.bandwidth, line.latency, shared=line.policy != "FATPIPE"),)
                self.links[line.name] = backbone[0]
            zone.ways = partial(_cluster_ways, spec, backbone)
            zone.backbone = backbone
        points, hosts, members = self._points, self.hosts, zone.members
        for host in self._hosts_of_cluster(spec, zone):
            points[host.name] = hosts[host.name] = members[host.name] = host

    def _hosts_of_cluster(self, spec: ClusterSpec, zone: Zone) -> Iterator[Host]:
        prefix, suffix, speeds, cores, properties = spec.prefix, spec.suffix, spec.speeds, spec.cores, spec.properties
        points = self._points
        for first, last in spec.radical:
            for number in range(first, last + 1):
                name = f"{prefix}{number}{suffix}"
                if name in points:
                    raise InputError(spec.where, f"{name!r} is declared twice")
                yield Host(name, zone, speeds, cores=cores, properties=properties)

    def _cluster_network(self, spec: ClusterSpec, parent: Zone) -> None:
        zone = cluster_network(spec, parent, self._loopback, self._fat_tree_hosts)
        parent.add(zone)
        self._register(zone, spec.where)
        # QUIRK: what the radical has beyond the network does not exist.
        for host in islice(self._hosts_of_cluster(spec, zone), zone.size()):
            zone.add(host)
            self._points[host.name] = self.hosts[host.name] = host
        if spec.kind == "FAT_TREE":
            self._fat_tree_hosts += zone.size()

    def _cluster_zone(self, spec: ZoneSpec, zone: StarZone) -> None:
        """A zone of routing Cluster: hosts from cabinets or with <host_link>, around one backbone."""
        backbone = (self.links[spec.backbone.name],) if spec.backbone is not None else ()
        explicit: dict[str, Ways] = {}
        for entry in spec.host_links:
            if entry.host not in zone.members:
                raise InputError(entry.where, f"host_link of {entry.host!r}, which is no host of zone {zone.name}")
            up, down = (
                self._link(LinkUse(entry.where, entry.up, "UP")),
                self._link(LinkUse(entry.where, entry.down, "DOWN")),
            )
            explicit[entry.host] = ((up, *backbone), (*backbone, down), None)
        cabinets = {}
        for cabinet in spec.clusters:
            if cabinet.cabinet:
                for first, last in cabinet.radical:
                    for number in range(first, last + 1):
                        cabinets[f"{cabinet.prefix}{number}{cabinet.suffix}"] = cabinet
        routers = {router.name for router in spec.routers}

        def ways(name: str) -> Ways | None:
            if name in routers:
                return backbone, backbone, None
            cabinet = cabinets.get(name)
            if cabinet is None:
                return explicit.get(name)
            up = Link(f"link_{name}_UP", cabinet.bandwidth, cabinet.latency)
            down = Link(f"link_{name}_DOWN", cabinet.bandwidth, cabinet.latency)
            return (up, *backbone), (*backbone, down), None

        zone.ways = ways
        zone.backbone = backbone

    def _routes_of(self, spec: ZoneSpec, zone: Zone) -> None:
        for route in spec.routes:
            self._route(route, spec, zone)
        for child in spec.zones:
            member = zone.members[child.name]
            assert isinstance(member, Zone)
            self._routes_of(child, member)

    def _route(self, spec: RouteSpec, zone_spec: ZoneSpec, zone: Zone) -> None:
        for name in (spec.source, spec.target):
            if name not in zone.members and not spec.bypass:
                raise InputError(spec.where, f"a route of zone {zone.name} names {name!r}, which is not in that zone")
            if name not in self._points:
                raise InputError(spec.where, f"a route names {name!r}, which does not exist")
        gateways: list[Point | None] = [None, None]
        ends = (spec.source, spec.target)
        for index, name in enumerate((spec.source_gateway, spec.target_gateway)):
            if name:
                if name not in self._points:
                    raise InputError(spec.where, f"gateway {name!r} does not exist")
                gateways[index] = self._points[name]
                if not _is_inside(self._points[name], self._points[ends[index]]):
                    raise InputError(spec.where, f"gateway {name!r} is not inside {ends[index]!r}")
        if not spec.source_gateway and any(isinstance(self._points[name], Zone) for name in ends):
            raise InputError(spec.where, "a route between zones needs gateways", hint="write <zoneRoute>")
        piece = Piece([self._link(use) for use in spec.links], None, *gateways)
        table = zone.bypasses if spec.bypass else zone.routes if isinstance(zone, FullZone) else None
        if table is None:
            raise InputError(spec.where, f"a route in zone {zone.name}, whose routing {zone_spec.routing} has none")
        self._enter(table, spec, spec.source, spec.target, piece)
        if spec.symmetrical and not spec.bypass and spec.source != spec.target:
            back = [self._link(LinkUse(use.where, use.name, _OPPOSITE[use.direction])) for use in reversed(spec.links)]
            self._enter(table, spec, spec.target, spec.source, Piece(back, None, gateways[1], gateways[0]))

    def _enter(
        self, table: dict[tuple[str, str], Piece], spec: RouteSpec, source: str, target: str, piece: Piece
    ) -> None:
        if (source, target) in table:
            raise InputError(
                spec.where, f"a second route from {source} to {target}", hint="symmetrical='NO' makes a route one way"
            )
        table[source, target] = piece

    def _link(self, use: LinkUse) -> Link:
        link = self.links.get(f"{use.name}_{use.direction}" if use.direction else use.name)
        if link is None and use.direction:
            link = self.links.get(use.name)
        if link is None:
            if f"{use.name}_UP" in self.links:
                raise InputError(use.where, f"link {use.name!r} is split duplex", hint="say direction='UP' or 'DOWN'")
            raise InputError(use.where, f"link {use.name!r} does not exist")
        return link


def _is_inside(point: Point, outer: Point) -> bool:
    """Whether a point is this zone, or is somewhere inside it."""
    here: Point | None = point
    while here is not None and here is not outer:
        here = here.zone
    return here is outer


_OPPOSITE = {"": "", "UP": "DOWN", "DOWN": "UP"}


def _new_zone(spec: ZoneSpec, parent: Zone | None, loopback: Link) -> Zone:
    match spec.routing:
        case "Full":
            return FullZone(spec.name, parent, loopback)
        case "Floyd":
            return GraphZone(spec.name, parent, loopback, floyd=True)
        case "Dijkstra" | "DijkstraCache":
            return GraphZone(spec.name, parent, loopback, floyd=False)
        case "Vivaldi":
            return VivaldiZone(spec.name, parent, loopback)
        case "Cluster":
            return StarZone(spec.name, parent, loopback)
        case _:
            return Zone(spec.name, parent, loopback)


def _cluster_ways(spec: ClusterSpec, backbone: tuple[Link, ...], name: str) -> Ways:
    """The private links of one host of a cluster; the cluster's router has only the backbone."""
    if name == spec.router:
        return backbone, backbone, None
    number = name[len(spec.prefix) : len(name) - len(spec.suffix)]
    base = f"{spec.name}_link_{number}"
    if spec.policy == "SPLITDUPLEX":
        up, down = Link(f"{base}_UP", spec.bandwidth, spec.latency), Link(f"{base}_DOWN", spec.bandwidth, spec.latency)
    else:
        up = down = Link(base, spec.bandwidth, spec.latency)  # QUIRK: FATPIPE means nothing here.
    limiter = (Link(f"{base}_limiter", spec.limiter_bandwidth, 0.0),) if spec.limiter_bandwidth else ()
    loopback = None
    if spec.loopback_bandwidth:
        loopback = Link(f"{base}_loopback", spec.loopback_bandwidth, spec.loopback_latency, shared=False)
    return (*limiter, up, *backbone), (*backbone, down, *limiter), loopback


def _configured(file: PlatformFile, name: str, default: float) -> float:
    """A setting of SimGrid that the platform may make; the old spelling has underscores."""
    text = file.configuration.get(name, file.configuration.get(name.replace("-", "_")))
    if text is None:
        return default
    value = quantity(text, BANDWIDTH_UNITS if name.endswith("bw") else TIME_UNITS)
    if value is None:
        raise InputError(file.path, f"configuration {name}: {text!r} is not a number")
    return value

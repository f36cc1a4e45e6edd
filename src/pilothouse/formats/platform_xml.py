"""SimGrid platform files: reads the XML into plain descriptions of zones, hosts, links and routes.

In: a path, or the text of a file. Out: a `PlatformFile` whose numbers are in flop/s, bytes/s and seconds. An element,
attribute, unit or availability trace that is not understood is an InputError with file and line; nothing is ignored
silently. The simulated world numbers the hosts and computes the routes.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from pathlib import Path

import msgspec

from pilothouse.formats.platform_elements import BANDWIDTH_UNITS, SPEED_UNITS, TIME_UNITS, Element, read_elements
from pilothouse.model.errors import InputError, quoted
from pilothouse.model.numerals import whole_number

MOST_HOSTS = 2_000_000
"""No platform may declare more hosts: a typing error in a radical must not ask for gigabytes."""

ROUTINGS = ("Full", "Floyd", "Dijkstra", "DijkstraCache", "Cluster", "Vivaldi", "None")
SHARING_POLICIES = ("SHARED", "FATPIPE", "SPLITDUPLEX")


class HostSpec(msgspec.Struct):
    where: str
    name: str
    speeds: tuple[float, ...]
    pstate: int = 0
    cores: int = 1
    coordinates: tuple[float, float, float] | None = None
    properties: dict[str, str] = {}
    bandwidth_in: float = 0.0
    """A peer's own access link, in and out; 0 for a plain host."""
    bandwidth_out: float = 0.0


class LinkSpec(msgspec.Struct):
    where: str
    name: str
    bandwidth: float
    latency: float
    policy: str = "SHARED"


class LinkUse(msgspec.Struct):
    """A link in a route; direction is "UP", "DOWN" or "" (links that are not split duplex)."""

    where: str
    name: str
    direction: str = ""


class RouteSpec(msgspec.Struct):
    where: str
    source: str
    target: str
    links: list[LinkUse]
    source_gateway: str = ""
    target_gateway: str = ""
    symmetrical: bool = True
    bypass: bool = False


class ClusterSpec(msgspec.Struct):
    """A cluster, or (with `cabinet`) some more hosts of an enclosing zone of routing Cluster."""

    where: str
    name: str
    prefix: str
    suffix: str
    radical: list[tuple[int, int]]
    speeds: tuple[float, ...]
    bandwidth: float
    latency: float
    cores: int = 1
    policy: str = "SPLITDUPLEX"
    backbone: LinkSpec | None = None
    loopback_bandwidth: float = 0.0
    loopback_latency: float = 0.0
    limiter_bandwidth: float = 0.0
    router: str = ""
    cabinet: bool = False
    properties: dict[str, str] = {}
    kind: str = "FLAT"
    topology: tuple[tuple[int, ...], ...] = ()
    """The numbers of topo_parameters, where the kind is not FLAT."""


class HostLinkSpec(msgspec.Struct):
    """The private links of a host in a zone of routing Cluster."""

    where: str
    host: str
    up: str
    down: str


class RouterSpec(msgspec.Struct):
    where: str
    name: str
    coordinates: tuple[float, float, float] | None = None


class ZoneSpec(msgspec.Struct):
    where: str
    name: str
    routing: str
    properties: dict[str, str] = {}
    hosts: list[HostSpec] = []
    routers: list[RouterSpec] = []
    links: list[LinkSpec] = []
    clusters: list[ClusterSpec] = []
    zones: list[ZoneSpec] = []
    routes: list[RouteSpec] = []
    host_links: list[HostLinkSpec] = []
    backbone: LinkSpec | None = None


class PlatformFile(msgspec.Struct):
    path: str
    root: ZoneSpec
    configuration: dict[str, str] = {}


def read_platform(path: Path | str) -> PlatformFile:
    """Reads a platform file. Raises InputError."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(str(path), f"cannot read the platform: {error.strerror}") from error
    return parse_platform(data, str(path))


def parse_platform(data: bytes, path: str = "platform") -> PlatformFile:
    """Reads the text of a platform file. Raises InputError."""
    body = data.lstrip()  # Blank lines before the declaration are not XML, but platforms in use have them.
    skipped = data[: len(data) - len(body)].count(b"\n")
    root = read_elements(body, path, skipped)
    if root.tag != "platform":
        root.refuse(f"the root element is <{root.tag}>", expected="<platform>")
    root.allow("version")
    version = root.attributes.get("version", "4.1")
    if version not in ("4", "4.0", "4.1"):
        root.refuse("a platform of another generation", expected="version 4 or 4.1", found=quoted(version))
    configuration: dict[str, str] = {}
    zones: list[Element] = []
    for child in root.children:
        if child.tag == "config":
            child.allow("id")
            configuration.update(_properties(child))
        elif child.tag in ("zone", "AS"):
            zones.append(child)
        else:
            child.unknown(root)
    if len(zones) != 1:
        root.refuse("a platform has exactly one outermost zone", found=str(len(zones)))
    return PlatformFile(path, _zone(zones[0]), configuration)


def _properties(element: Element, *, besides: Container[str] = ()) -> dict[str, str]:
    """The properties of an element, whose other children must have one of these tags."""
    found: dict[str, str] = {}
    for child in element.children:
        if child.tag == "prop":
            child.allow("id", "value")
            found[child.text("id")] = child.text("value")
        elif child.tag not in besides:
            child.unknown(element)
    return found


def _zone(element: Element) -> ZoneSpec:
    element.allow("id", "routing")
    routing = element.choice("routing", "None", ROUTINGS)
    zone = ZoneSpec(element.where, element.text("id"), routing, _properties(element, besides=_READERS))
    for child in element.children:
        if child.tag == "prop":
            continue  # read above
        if child.tag not in _READERS:
            child.unknown(element)
        _READERS[child.tag](zone, child)
    return zone


def _speeds(element: Element) -> tuple[float, ...]:
    parts = [part for part in element.text("speed").split(",") if part.strip()]
    speeds = tuple(element.quantity("speed", part, SPEED_UNITS) for part in parts)
    if not speeds or min(speeds) <= 0:
        element.refuse("a speed must be above zero", found=quoted(element.text("speed")))
    return speeds


def _coordinates(element: Element) -> tuple[float, float, float] | None:
    text = element.attributes.get("coordinates", "")
    if not text:
        return None
    try:
        x, y, height = (float(part) for part in text.split())
    except ValueError:
        element.refuse("coordinates", expected="three numbers", found=quoted(text))
    return x, y, height


def _no_traces(element: Element) -> None:
    for name in ("speed_file", "availability_file", "state_file", "bandwidth_file", "latency_file"):
        if element.attributes.get(name):
            element.refuse(f"{name}: profiles of availability over time are not supported")


_HOST_ATTRIBUTES = ("id", "speed", "pstate", "core", "coordinates", "speed_file", "availability_file", "state_file")


def _host(element: Element) -> HostSpec:
    """What a host and a peer have in common."""
    _no_traces(element)
    speeds = _speeds(element)
    pstate = element.integer("pstate", "0", 0)
    if pstate >= len(speeds):
        element.refuse(f"power state {pstate} of {len(speeds)}")
    cores, coordinates = element.integer("core", "1", 1), _coordinates(element)
    properties = _properties(element, besides=("disk",) if element.tag == "host" else ())
    return HostSpec(element.where, element.text("id"), speeds, pstate, cores, coordinates, properties)


def _read_host(zone: ZoneSpec, element: Element) -> None:
    element.allow(*_HOST_ATTRIBUTES)
    for disk in element.children:
        if disk.tag == "disk":  # No job uses one: nothing is kept of it.
            disk.allow("id", "read_bw", "write_bw")
            _bandwidth(disk, "read_bw")
            _bandwidth(disk, "write_bw")
            _properties(disk)
    zone.hosts.append(_host(element))


def _read_peer(zone: ZoneSpec, element: Element) -> None:
    element.allow(*_HOST_ATTRIBUTES, "bw_in", "bw_out", "lat")
    element.expect_routing("Vivaldi", zone.routing)
    host = _host(element)
    host.bandwidth_in = element.number("bw_in", BANDWIDTH_UNITS)
    host.bandwidth_out = element.number("bw_out", BANDWIDTH_UNITS)
    zone.hosts.append(host)


def _read_router(zone: ZoneSpec, element: Element) -> None:
    element.allow("id", "coordinates")
    zone.routers.append(RouterSpec(element.where, element.text("id"), _coordinates(element)))


def _bandwidth(element: Element, name: str) -> float:
    bandwidth = element.number(name, BANDWIDTH_UNITS)
    if bandwidth <= 0:
        element.refuse("a bandwidth must be above zero")
    return bandwidth


def _policy(element: Element, default: str) -> str:
    if element.text("sharing_policy", default) == "FULLDUPLEX":
        return "SPLITDUPLEX"
    return element.choice("sharing_policy", default, SHARING_POLICIES)


def _link(element: Element) -> LinkSpec:
    bandwidth, latency = _bandwidth(element, "bandwidth"), element.number("latency", TIME_UNITS, "0s")
    return LinkSpec(element.where, element.text("id"), bandwidth, latency)


def _read_link(zone: ZoneSpec, element: Element) -> None:
    element.allow("id", "bandwidth", "latency", "sharing_policy", "bandwidth_file", "latency_file", "state_file")
    _no_traces(element)
    _properties(element)
    link = _link(element)
    link.policy = _policy(element, "SHARED")
    zone.links.append(link)


def _read_backbone(zone: ZoneSpec, element: Element) -> None:
    element.allow("id", "bandwidth", "latency")
    element.expect_routing("Cluster", zone.routing)
    zone.backbone = _link(element)


def _radical(element: Element) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for part in element.text("radical").split(","):
        first, dash, last = part.strip().partition("-")
        low, high = whole_number(first), whole_number(last if dash else first)
        if low is None or high is None:
            element.refuse("radical", expected="numbers and ranges such as 0-15,20", found=quoted(part))
        if high < low:
            element.refuse("a range of a radical that runs backwards", found=quoted(part))
        ranges.append((low, high))
    if sum(high - low + 1 for low, high in ranges) > MOST_HOSTS:
        element.refuse(f"more than {MOST_HOSTS} hosts", found=quoted(element.text("radical")))
    return ranges


_CLUSTER_ATTRIBUTES = (
    "id", "prefix", "suffix", "radical", "speed", "core", "bw", "lat", "sharing_policy", "bb_bw", "bb_lat",
    "bb_sharing_policy", "loopback_bw", "loopback_lat", "limiter_link", "router_id", "topology", "topo_parameters",
)  # fmt: skip


def _read_cluster(zone: ZoneSpec, element: Element) -> None:
    element.allow(*_CLUSTER_ATTRIBUTES)
    cluster = _hosts_of_cluster(element)
    cluster.kind = element.choice("topology", "FLAT", ("FLAT", *_TOPOLOGIES))
    if cluster.kind != "FLAT":
        cluster.topology = _topology(element, cluster.kind)
    cluster.policy = _policy(element, "SPLITDUPLEX")
    if "bb_bw" in element.attributes or "bb_lat" in element.attributes:
        bandwidth = element.number("bb_bw", BANDWIDTH_UNITS)
        latency = element.number("bb_lat", TIME_UNITS, "0s")
        backbone_policy = element.choice("bb_sharing_policy", "SHARED", ("SHARED", "FATPIPE"))
        cluster.backbone = LinkSpec(element.where, f"{cluster.name}_backbone", bandwidth, latency, backbone_policy)
    if "loopback_bw" in element.attributes or "loopback_lat" in element.attributes:
        cluster.loopback_bandwidth = element.number("loopback_bw", BANDWIDTH_UNITS)
        cluster.loopback_latency = element.number("loopback_lat", TIME_UNITS, "0s")
    if "limiter_link" in element.attributes:
        cluster.limiter_bandwidth = element.number("limiter_link", BANDWIDTH_UNITS)
    cluster.router = element.text("router_id", f"{cluster.prefix}{cluster.name}_router{cluster.suffix}")
    cluster.properties = _properties(element)
    zone.clusters.append(cluster)


_Rows = tuple[tuple[int, ...], ...]
_TOPOLOGIES: dict[str, tuple[str, Callable[[_Rows], bool]]] = {
    "TORUS": ("the length of each dimension, as in 4,4,2", lambda rows: len(rows) == 1),
    "FAT_TREE": (
        "levels; children; parents; cables for each level, as in 2;4,4;1,2;1,2",
        lambda rows: len(rows) == 4 and all(len(row) == rows[0][0] for row in rows[1:]) and len(rows[0]) == 1,
    ),
    "DRAGONFLY": (
        "groups,cables; chassis,cables; blades,cables; nodes, as in 2,2;2,1;2,2;2, and no more groups than blades",
        lambda rows: [len(row) for row in rows] == [2, 2, 2, 1] and rows[0][0] <= rows[2][0],
    ),
}
"""What topo_parameters are, and what holds of them."""


def _topology(element: Element, kind: str) -> _Rows:
    text = element.text("topo_parameters")
    expected, is_sound = _TOPOLOGIES[kind]
    rows = tuple(tuple(whole_number(word.strip()) or 0 for word in part.split(",")) for part in text.split(";"))
    if not all(map(all, rows)) or not is_sound(rows):
        element.refuse(f"topo_parameters of a {kind}", expected=expected, found=quoted(text))
    if max(map(max, rows)) > MOST_HOSTS:
        element.refuse(f"more than {MOST_HOSTS} hosts", found=quoted(text))
    return rows


def _read_cabinet(zone: ZoneSpec, element: Element) -> None:
    element.allow("id", "prefix", "suffix", "radical", "speed", "bw", "lat")
    element.expect_routing("Cluster", zone.routing)
    cluster = _hosts_of_cluster(element)
    cluster.cabinet = True
    zone.clusters.append(cluster)


def _hosts_of_cluster(element: Element) -> ClusterSpec:
    return ClusterSpec(
        element.where,
        element.text("id"),
        element.text("prefix", ""),
        element.text("suffix", ""),
        _radical(element),
        _speeds(element),
        _bandwidth(element, "bw"),
        element.number("lat", TIME_UNITS),
        element.integer("core", "1", 1),
    )


def _read_route(zone: ZoneSpec, element: Element) -> None:
    between_zones = element.tag.lower().endswith(("zoneroute", "asroute"))
    gateways = ("gw_src", "gw_dst") if between_zones else ()
    element.allow("src", "dst", "symmetrical", *gateways)
    route = RouteSpec(element.where, element.text("src"), element.text("dst"), [])
    if between_zones:
        route.source_gateway, route.target_gateway = element.text("gw_src"), element.text("gw_dst")
    route.bypass = element.tag.startswith("bypass")
    route.symmetrical = element.choice("symmetrical", "YES", ("YES", "NO", "yes", "no")).upper() == "YES"
    for child in element.children:
        if child.tag != "link_ctn":
            child.unknown(element)
        child.allow("id", "direction")
        direction = child.choice("direction", "NONE", ("UP", "DOWN", "NONE"))
        route.links.append(LinkUse(child.where, child.text("id"), "" if direction == "NONE" else direction))
    zone.routes.append(route)


def _read_host_link(zone: ZoneSpec, element: Element) -> None:
    element.allow("id", "up", "down")
    element.expect_routing("Cluster", zone.routing)
    zone.host_links.append(HostLinkSpec(element.where, element.text("id"), element.text("up"), element.text("down")))


def _read_trace(zone: ZoneSpec, element: Element) -> None:
    """Nothing is connected with it: <trace_connect> is refused."""
    element.allow("id", "file", "periodicity")
    element.text("id")
    element.number("periodicity", TIME_UNITS)


_READERS: dict[str, Callable[[ZoneSpec, Element], None]] = {
    "trace": _read_trace,
    "zone": lambda zone, element: zone.zones.append(_zone(element)),
    "AS": lambda zone, element: zone.zones.append(_zone(element)),
    "host": _read_host,
    "peer": _read_peer,
    "router": _read_router,
    "link": _read_link,
    "backbone": _read_backbone,
    "cluster": _read_cluster,
    "cabinet": _read_cabinet,
    "host_link": _read_host_link,
    **dict.fromkeys(("route", "zoneRoute", "ASroute", "bypassRoute", "bypassZoneRoute", "bypassASroute"), _read_route),
}

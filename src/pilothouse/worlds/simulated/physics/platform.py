"""The platform: hosts with their numbers, storages, the master, and routes between them.

In: a description read by formats/platform_xml.py, or just a number of hosts ("100"), or nodes by cores ("4x28").
Out: `Platform.hosts` (the index is the unit's number: compute hosts, then storages), `route(a, b)`, `nodes()`.
Numbers follow the generation that is stood in for: Batsim 4 sorts names as plain text (a10 before a2), Batsim 5 by
the value of the digits in them. Routes are made when they are first asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from pilothouse.formats import slurm_fields, slurm_resources
from pilothouse.formats.platform_xml import PlatformFile, read_platform
from pilothouse.formats.text_input import read_bytes
from pilothouse.model.errors import InputError, quoted
from pilothouse.model.job import Node
from pilothouse.worlds.simulated.physics.routing import Link, Piece, Point, Zone, global_route

MASTER: Final = -1
"""The number that stands for the master host in `route`."""

MOST_HOSTS = 2_000_000
MOST_ROUTES = 200_000
"""So many routes are remembered; then all are forgotten, and made again when they are needed."""
ROLES = ("", "compute_node", "master", "storage")
_NODES_BY_CORES = re.compile("([1-9][0-9]{0,17})(?:x([1-9][0-9]{0,17}))?")
_DIGITS = re.compile(r"(\d+)")


class Host(Point):
    """A machine. `number` is its unit number, -1 for the master and for hosts beyond the limit."""

    __slots__ = ("cores", "number", "properties", "pstate", "role", "speeds")

    def __init__(
        self,
        name: str,
        zone: Zone | None,
        speeds: tuple[float, ...],
        *,
        pstate: int = 0,
        cores: int = 1,
        properties: dict[str, str] | None = None,
        coordinates: tuple[float, float, float] | None = None,
    ) -> None:
        super().__init__(name, zone, coordinates)
        self.speeds = speeds
        self.pstate = pstate
        self.cores = cores
        self.properties: dict[str, str] = {} if properties is None else properties
        self.role = "compute_node"
        self.number = -1

    @property
    def zone_properties(self) -> dict[str, str]:
        """Properties of the zones around it; those of inner zones win."""
        chain: list[Zone] = []
        zone = self.zone
        while zone is not None:
            chain.append(zone)
            zone = zone.zone
        merged: dict[str, str] = {}
        for zone in reversed(chain):
            merged.update(zone.properties)
        return merged


class Route:
    """The way between two hosts: links, latency in seconds, the smallest bandwidth on it (inf without links). A link that
    is crossed twice has half its bandwidth.
    """

    __slots__ = ("bandwidth", "latency", "links")

    def __init__(self, links: tuple[Link, ...], latency: float) -> None:
        self.links = links
        self.latency = latency
        self.bandwidth = min((link.bandwidth / links.count(link) for link in links), default=inf)

    def message_cost(self, size_bytes: float = 1.0) -> float:
        """How long a small message takes that has the way for itself."""
        return self.latency + size_bytes / self.bandwidth


class Platform:
    """All hosts under their numbers. Built by `load`, `of_hosts`, `of_nodes` or `named`."""

    def __init__(
        self,
        compute: list[Host],
        storage: list[Host] | None = None,
        master: Host | None = None,
        *,
        where: str = "platform",
        networked: bool = True,
        units_per_node: int = 1,
        nodes: tuple[Node, ...] = (),
        links: Iterable[Link] = (),
        tcp_gamma: float = inf,
    ) -> None:
        self.where = where
        self.compute_count = len(compute)
        self.hosts: list[Host] = [*compute, *(storage or ())]
        for number, host in enumerate(self.hosts):
            host.number = number
        self.master = master
        self.networked = networked
        self.units_per_node = units_per_node
        self._nodes = nodes
        self.tcp_gamma = tcp_gamma
        self._declared_links = {link.name: link for link in links}
        self._routes: dict[tuple[int, int], Route] = {}

    def __len__(self) -> int:
        return len(self.hosts)

    @property
    def storage(self) -> list[Host]:
        return self.hosts[self.compute_count :]

    @classmethod
    def of_hosts(cls, count: int, *, speed: float = 1e9) -> Platform:
        """Just a number of hosts of one speed, with a network that costs nothing."""
        return cls.of_nodes(count, 1, speed=speed)

    @classmethod
    def of_nodes(cls, nodes: int, cores: int, *, speed: float = 1e9) -> Platform:
        """Nodes of several cores, one unit for each core, with a network that costs nothing."""
        if not 0 < nodes * cores <= MOST_HOSTS:
            raise InputError("platform", "number of hosts", expected=f"1 to {MOST_HOSTS}", found=str(nodes * cores))
        speeds = (speed,)
        if cores == 1:
            hosts = [Host(f"host{i}", None, speeds) for i in range(nodes)]
        else:
            hosts = [Host(f"node{i}:{core}", None, speeds) for i in range(nodes) for core in range(cores)]
        return cls(hosts, networked=False, units_per_node=cores)

    @classmethod
    def of_slurm(cls, text: str, where: str) -> Platform:
        """The nodes of a Slurm, with their names: one unit for each CPU."""
        return cls.of_table(
            [
                Node(
                    node.name,
                    0,
                    node.cpus,
                    slurm_fields.gres(node.gres).get("gpu", 0),
                    node.memory_mb,
                    properties=dict.fromkeys(node.features, ""),
                )
                for node in slurm_resources.read_nodes(text, where)
            ]
        )

    @classmethod
    def of_table(cls, nodes: Sequence[Node]) -> Platform:
        """Nodes of any sizes, one unit for each core (`Node.count`), with a network that costs nothing. Their units are
        numbered here, in the order of the nodes."""
        total = sum(node.count for node in nodes)
        if not 0 < total <= MOST_HOSTS:
            raise InputError("platform", "number of units", expected=f"1 to {MOST_HOSTS}", found=str(total))
        numbered: list[Node] = []
        hosts: list[Host] = []
        for node in nodes:
            speeds = node.speeds or (1e9,)
            numbered.append(structs.replace(node, first=len(hosts), cores=node.count, speeds=speeds))
            hosts += [Host(f"{node.name}:{core}", None, speeds) for core in range(node.count)]
        if len({node.name for node in numbered}) < len(numbered):
            raise InputError("platform", "two nodes have one name")
        return cls(hosts, networked=False, nodes=tuple(numbered))

    @classmethod
    def named(cls, text: str, **options: Any) -> Platform:
        """What a user writes after `-p`: a number ("100"), nodes by cores ("4x28"), or the path of a platform file."""
        match = _NODES_BY_CORES.fullmatch(text.strip())
        if match is not None and not Path(text).is_file():
            return cls.of_nodes(int(match[1]), int(match[2] or 1))
        if not Path(text).suffix and not Path(text).exists():
            expected = "a SimGrid file, a number of hosts (100), or nodes x cores (4x28)"
            raise InputError("platform", "no such file, and no number of hosts", expected=expected, found=quoted(text))
        return cls.load(text, **options)

    @classmethod
    def load(cls, path: Path | str, **options: Any) -> Platform:
        """Reads a SimGrid platform, or what `scontrol -o show node` printed; the options are those of `from_file`."""
        data = read_bytes(path)
        if data.startswith(slurm_resources.NODES):
            return cls.of_slurm(data.decode("utf-8", "replace"), str(path))
        return cls.from_file(read_platform(path), **options)

    @classmethod
    def from_file(
        cls,
        file: PlatformFile,
        *,
        generation: int = 5,
        master_host: str = "master_host",
        roles: Mapping[str, str] | None = None,
        most_hosts: int = 0,
        needs_master: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> Platform:
        """`generation` (4 or 5) chooses how hosts are numbered; most_hosts 0: no limit. `settings` of SimGrid win over
        those of the file.
        """
        from pilothouse.worlds.simulated.physics.platform_builder import Builder

        file.configuration.update(settings or {})
        builder = Builder(file, generation)
        hosts = builder.hosts
        added = roles or {}
        for name, role in added.items():
            if name not in hosts and generation == 5 and needs_master:
                continue  # QUIRK: nobody notices.
            before = hosts[name].properties.get("role", "") if name in hosts else ""
            # QUIRK: Batsim 5 puts an added role behind the host's own, and understands one role only.
            _give_role(hosts, name, f"{before},{role}" if before and generation == 5 else role, file.path)
        chosen = master_host in added and generation == 5
        if master_host in hosts and not chosen and hosts[master_host].properties.get("role", "") != "master":
            _give_role(hosts, master_host, "master", file.path)
        compute: list[Host] = []
        storage: list[Host] = []
        masters: list[Host] = []
        for host in hosts.values():
            role = host.properties.get("role", "")
            if role not in ROLES:
                raise InputError(
                    file.path, f"host {host.name}: unknown role {role!r}", expected="compute_node, master or storage"
                )
            host.role = role or "compute_node"
            (masters if role == "master" else storage if role == "storage" else compute).append(host)
        if len(masters) > 1:
            names = ", ".join(host.name for host in masters[:4])
            raise InputError(
                file.path, f"{len(masters)} master hosts ({names})", expected="one host with the role master"
            )
        if not masters and needs_master:
            hint = "give a host the property role=master, or name it"
            raise InputError(
                file.path, f'no host has the "master" role, and no host is called {master_host!r}', hint=hint
            )
        compute.sort(
            key=(lambda host: host.name.encode()) if generation <= 4 else (lambda host: natural_key(host.name))
        )
        storage.sort(key=lambda host: host.name.encode())
        if most_hosts:
            compute = compute[:most_hosts]
        if not compute and not (generation == 5 and needs_master):
            raise InputError(file.path, "no compute host")
        return cls(
            compute,
            storage,
            masters[0] if masters else None,
            where=file.path,
            links=builder.links.values(),
            tcp_gamma=builder.tcp_gamma,
        )

    def host(self, number: int) -> Host:
        """The host of a number, or the master."""
        if number == MASTER:
            if self.master is None:
                raise InputError(self.where, "the platform has no master host")
            return self.master
        return self.hosts[number]

    def route(self, source: int, target: int) -> Route:
        """The way between two hosts by their numbers (MASTER: the master host), also from a host to itself."""
        found = self._routes.get((source, target))
        if found is None:
            if len(self._routes) >= MOST_ROUTES:
                self._routes.clear()
            found = self._routes[source, target] = self._find_route(self.host(source), self.host(target))
        return found

    def _find_route(self, source: Host, target: Host) -> Route:
        if not self.networked:
            return Route((), 0.0)
        piece: Piece | None = global_route(source, target)
        if piece is None:
            raise InputError(self.where, f"no route from host {source.name} to host {target.name}")
        return Route(piece.links, piece.latency)

    def link(self, name: str) -> Link | None:
        """A link that the file declares itself, or that a route has used, by its name."""
        found = self._declared_links.get(name)
        if found is None:
            for route in self._routes.values():
                for link in route.links:
                    self._declared_links.setdefault(link.name, link)
            found = self._declared_links.get(name)
        return found

    def storage_nodes(self) -> tuple[Node, ...]:
        """The storages as deciders see them; their numbers follow those of the compute hosts."""
        return tuple(_node(host) for host in self.storage)

    def nodes(self) -> tuple[Node, ...]:
        """What deciders see: one node for each compute host, or for each group of cores."""
        if self._nodes:
            return self._nodes
        if self.units_per_node > 1:
            per = self.units_per_node
            count = self.compute_count // per
            return tuple(Node(f"node{i}", i * per, per, cores=per, speeds=self.hosts[0].speeds) for i in range(count))
        return tuple(_node(host) for host in self.hosts[: self.compute_count])


def _node(host: Host) -> Node:
    return Node(
        host.name,
        host.number,
        cores=host.cores,
        properties=host.properties,
        zone_properties=host.zone_properties if host.zone is not None else {},
        speeds=host.speeds,
        power_state=host.pstate,
    )


def natural_key(name: str) -> tuple[tuple[object, ...], bytes]:
    """Sorts runs of digits by their value, the rest as text; equal ones as plain text."""
    parts = _DIGITS.split(name)
    return tuple((1, int(part), "") if i % 2 else (0, 0, part) for i, part in enumerate(parts)), name.encode()


def _give_role(hosts: dict[str, Host], name: str, role: str, where: str) -> None:
    host = hosts.get(name)
    if host is None:
        raise InputError(where, f"cannot give the role {role!r} to host {name!r}: there is no such host")
    if role not in ROLES:
        raise InputError(where, f"unknown role {quoted(role)}", expected="compute_node, master or storage")
    host.properties = {**host.properties, "role": role}

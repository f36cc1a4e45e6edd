"""What a parallel task asks of hosts and links: executors, flop and bytes become the amounts of a Flow.

In: the hosts of the executors (a host may have several), flop for each, bytes for each ordered pair. Out: a Flow. The
latency of a task is the largest among the routes that it uses; its rate is capped by the speed of one core for each
executor, and by TCP's window over each route.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from pilothouse.worlds.simulated.platform import Host, Platform
from pilothouse.worlds.simulated.routing import Link, StarZone, VivaldiZone
from pilothouse.worlds.simulated.sharing import Constraint, Flow, Use


class Processor(Constraint):
    """A host's cores as a constraint: capacity is all cores together, `speed` one core, both in the present power
    state.
    """

    __slots__ = ("cores", "number", "speed")

    def __init__(self, host: Host) -> None:
        self.speed = host.speeds[host.pstate]
        self.cores = host.cores
        self.number = host.number
        super().__init__(host.name, self.speed * self.cores)


class Demands:
    """Makes flows. Knows the constraints of the platform, and makes those of links when they are first used."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self.processors = [Processor(host) for host in platform.hosts]
        self.links: dict[Link, Constraint] = {}
        self._tcp_gamma = platform.tcp_gamma
        self._stars: dict[int, _Place] = {}

    def constraint(self, link: Link) -> Constraint:
        """A link as a constraint."""
        found = self.links.get(link)
        if found is None:
            found = self.links[link] = Constraint(link.name, link.bandwidth, shared=link.shared)
        return found

    def task(
        self,
        hosts: Sequence[int],
        flop: Sequence[float],
        matrix: Sequence[float],
        done: Callable[[Flow], None],
    ) -> Flow:
        """Any parallel task; `matrix` is row-major (row = sender) or empty."""
        uses: dict[Constraint, Use] = {}
        self._add_flop(uses, hosts, flop)
        amounts: dict[Link, float] = {}
        latency = heaviest = 0.0
        count = len(hosts)
        if count == 1 or not self._platform.networked:
            matrix = ()  # QUIRK: what a single executor sends to itself costs nothing in SimGrid.
        route = self._platform.route
        for place, size in enumerate(matrix):
            if size > 0:
                sender, receiver = divmod(place, count)
                way = route(hosts[sender], hosts[receiver])
                latency = max(latency, way.latency)
                heaviest = max(heaviest, way.latency * size)
                for link in way.links:
                    amounts[link] = amounts.get(link, 0.0) + size if link.shared else max(amounts.get(link, 0.0), size)
        flow = self._flow(uses, amounts, latency, heaviest, done=done)
        flow.hosts = hosts
        return flow

    def homogeneous(
        self,
        hosts: Sequence[int],
        flop: float,
        size: float,
        done: Callable[[Flow], None],
    ) -> Flow:
        """The same flop for every executor and the same bytes for every ordered pair of different ones."""
        count = len(hosts)
        if not self._platform.networked:
            size = 0.0
        star = self._common_star(hosts) if size > 0 and count > 1 else None
        if star is None:
            matrix: Sequence[float] = ()
            if size > 0 and count > 1:
                matrix = [0.0 if i == j else size for i in range(count) for j in range(count)]
            return self.task(hosts, (flop,) * count, matrix, done)
        uses: dict[Constraint, Use] = {}
        places = [self._stars[number] for number in hosts]
        slowest = inf
        if flop > 0:
            use = (flop, flop, 1)
            for place in places:
                processor = place.processor
                uses[processor] = use
                slowest = min(slowest, processor.speed)
        each = size * (count - 1)
        by_times = ((size, size, 1), (each, each, 1), (2 * each, 2 * each, 1))
        for place in places:
            for constraint, times in place.own:
                uses[constraint] = by_times[times]
        latency = _farthest([place.up_s for place in places], [place.down_s for place in places])
        for link in star.backbone:
            amount = each * count if link.shared else size
            uses[self.constraint(link)] = (amount, amount, 1)
            latency += link.latency
        flow = Flow(uses, done, latency=latency)
        flow.hosts = hosts
        flow.network_bound = self._tcp_gamma / (2.0 * latency * size) if latency > 0 else inf
        flow.bound = min(flow.network_bound, slowest / flop if flop > 0 else inf)
        return flow

    def message(self, source: int, target: int, size: float, done: Callable[[Flow], None]) -> Flow:
        """One transfer from host to host, also from a host to itself."""
        way = self._platform.route(source, target)
        amounts = dict.fromkeys(way.links, size)
        flow = self._flow({}, amounts, way.latency, way.latency * size, done=done)
        flow.hosts = (source, target)
        return flow

    def add(self, first: Flow, second: Flow) -> None:
        """Puts the amounts of a second task, not started, into the first: they become one task."""
        for constraint, use in second.uses.items():
            mine = first.uses.get(constraint)
            if mine is None:
                first.uses[constraint] = use
            elif isinstance(constraint, Processor):
                first.uses[constraint] = (mine[0] + use[0], max(mine[1], use[1]), mine[2] + use[2])
            else:
                amount = mine[0] + use[0] if constraint.shared else max(mine[0], use[0])
                first.uses[constraint] = (amount, amount, 1)
        first.hosts = (*first.hosts, *second.hosts)
        first.latency = max(first.latency, second.latency)
        first.network_bound = min(first.network_bound, second.network_bound)
        first.bound = self.bound_of(first)

    def bound_of(self, flow: Flow) -> float:
        """The highest rate of a flow at the present speeds."""
        bound = flow.network_bound
        for constraint, use in flow.uses.items():
            if type(constraint) is Processor:
                bound = min(bound, constraint.speed / use[1])
        return bound

    def _add_flop(self, uses: dict[Constraint, Use], hosts: Sequence[int], flop: Sequence[float]) -> None:
        processors = self.processors
        for number, amount in zip(hosts, flop, strict=False):
            if amount > 0:
                processor = processors[number]
                before = uses.get(processor)
                if before is None:
                    uses[processor] = (amount, amount, 1)
                else:
                    uses[processor] = (before[0] + amount, max(before[1], amount), before[2] + 1)

    def _flow(
        self,
        uses: dict[Constraint, Use],
        amounts: dict[Link, float],
        latency: float,
        heaviest: float,
        *,
        done: Callable[[Flow], None],
    ) -> Flow:
        known = self.links
        for link, amount in amounts.items():
            constraint = known.get(link)
            if constraint is None:
                constraint = self.constraint(link)
            uses[constraint] = (amount, amount, 1)
        flow = Flow(uses, done, latency=latency)
        flow.network_bound = self._tcp_gamma / (2.0 * heaviest) if heaviest > 0 else inf
        flow.bound = self.bound_of(flow)
        return flow

    def _common_star(self, hosts: Sequence[int]) -> StarZone | None:
        """The star that all these different hosts belong to, if there is one: their routes need not be made one by
        one.
        """
        zone = self._platform.hosts[hosts[0]].zone
        if not isinstance(zone, StarZone) or isinstance(zone, VivaldiZone) or len(set(hosts)) != len(hosts):
            return None
        stars = self._stars
        for number in hosts:
            place = stars.get(number)
            if place is None:
                place = stars[number] = self._place_in_star(number)
            if place.zone is not zone:
                return None
        return zone

    def _place_in_star(self, number: int) -> _Place:
        host = self._platform.hosts[number]
        zone = host.zone
        ways = zone.ways_of(host.name) if isinstance(zone, StarZone) else None
        if ways is None:
            return _Place(None, self.processors[number], (), 0.0, 0.0)
        assert isinstance(zone, StarZone)
        up = [link for link in ways[0] if link not in zone.backbone]
        down = [link for link in ways[1] if link not in zone.backbone]
        own = tuple(
            (self.constraint(link), (up + down).count(link) if link.shared else 0) for link in dict.fromkeys(up + down)
        )
        up_s, down_s = sum(link.latency for link in up), sum(link.latency for link in down)
        return _Place(zone, self.processors[number], own, up_s, down_s)


class _Place:
    """A host in a star: its own links, and how often each is used by what it sends and receives (0: a pipe)."""

    __slots__ = ("down_s", "own", "processor", "up_s", "zone")

    def __init__(
        self,
        zone: StarZone | None,
        processor: Processor,
        own: tuple[tuple[Constraint, int], ...],
        up_s: float,
        down_s: float,
    ) -> None:
        self.zone = zone
        self.processor = processor
        self.own = own
        self.up_s = up_s
        self.down_s = down_s


def _farthest(ups: list[float], downs: list[float]) -> float:
    """The largest sum of one host's way up and another host's way down."""
    up, down = max(ups), max(downs)
    if ups.count(up) > 1 or downs.count(down) > 1 or ups.index(up) != downs.index(down):
        return up + down
    place = ups.index(up)
    return max(
        up + max(value for i, value in enumerate(downs) if i != place),
        down + max(value for i, value in enumerate(ups) if i != place),
    )

"""What a parallel task asks of hosts and links: executors, flop and bytes become the amounts of a Flow.

In: the hosts of the executors (a host may have several), flop for each, bytes for each ordered pair. Out: a Flow. The
latency of a task is the largest among the routes that it uses; its rate is capped by the speed of one core for each
executor, and by TCP's window over each route.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from pilothouse.worlds.simulated.physics.platform import Host, Platform
from pilothouse.worlds.simulated.physics.routing import Link, StarZone, VivaldiZone
from pilothouse.worlds.simulated.physics.sharing import Constraint, Flow, Use


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
        self._places: dict[int, _Place] = {}
        self._middles: dict[tuple[StarZone, StarZone], tuple[Link, ...] | None] = {}
        self.ranks_report = True
        """Ranks of a replay tell the job's first host that they are over, with a message; else it is known at once."""
        self.alarm: Callable[[float, Callable[[Any], None]], int] | None = None
        """Enters the walltime of a parallel task; None: as any entry of the agenda."""
        self.linger: Callable[[str, Flow], None] | None = None
        """Takes over the flow of a job (by id) whose task reached the walltime; None: such flows stop."""

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
        stars = self._stars_of(hosts) if size > 0 and count > 1 else None
        if stars is None:
            matrix: Sequence[float] = ()
            if size > 0 and count > 1:
                matrix = [0.0 if i == j else size for i in range(count) for j in range(count)]
            return self.task(hosts, (flop,) * count, matrix, done)
        uses: dict[Constraint, Use] = {}
        slowest = inf
        if flop > 0:
            use = (flop, flop, 1)
            for number in hosts:
                processor = self.processors[number]
                uses[processor] = use
                slowest = min(slowest, processor.speed)
        each = size * (count - 1)
        by_times = ((size, size, 1), (each, each, 1), (2 * each, 2 * each, 1))
        for places in stars.values():
            for place in places:
                for constraint, times in place.own:
                    uses[constraint] = by_times[times]
        amounts: dict[Link, float] = {}
        latency = self._between_stars(stars, size, amounts)
        for link, amount in amounts.items():
            uses[self.constraint(link)] = (amount, amount, 1)
        flow = Flow(uses, done, latency=latency)
        flow.hosts = hosts
        flow.network_bound = self._tcp_gamma / (2.0 * latency * size) if latency > 0 else inf
        flow.bound = min(flow.network_bound, slowest / flop if flop > 0 else inf)
        return flow

    def _between_stars(self, stars: dict[StarZone, list[_Place]], size: float, amounts: dict[Link, float]) -> float:
        """What shared links carry; returns the largest latency of all routes."""
        longest = 0.0
        for star, places in stars.items():
            if len(places) > 1:
                pairs = len(places) * (len(places) - 1)
                latency = _farthest([place.up_s for place in places], [place.down_s for place in places])
                longest = max(longest, latency + _load(star.backbone, pairs, size, amounts))
            for other, others in stars.items():
                if other is not star:
                    middle = self._middle(places[0], others[0]) or ()
                    ends = max(place.up_s for place in places) + max(place.down_s for place in others)
                    longest = max(longest, ends + _load(middle, len(places) * len(others), size, amounts))
        return longest

    def _middle(self, source: _Place, target: _Place) -> tuple[Link, ...] | None:
        """The links of a route between two stars that are the same for all their hosts; None if there are other ones."""
        star, other = source.zone, target.zone
        assert star is not None and other is not None
        if (star, other) not in self._middles:
            route = self._platform.route(source.processor.number, target.processor.number)
            own = {*source.links, *target.links}
            middle = tuple(link for link in route.links if link not in own)
            # A star that is entered through one of its hosts has routes that differ from host to host.
            same_for_all = not any(star.is_own(link) or other.is_own(link) for link in middle)
            self._middles[star, other] = middle if same_for_all else None
        return self._middles[star, other]

    def message(self, source: int, target: int, size: float, done: Callable[[Flow], None]) -> Flow:
        """One transfer from host to host, also from a host to itself."""
        way = self._platform.route(source, target)
        amounts = {link: size * way.links.count(link) if link.shared else size for link in way.links}
        flow = self._flow({}, amounts, way.latency, way.latency * size, done=done)
        flow.hosts = (source, target)
        return flow

    def add(self, first: Flow, second: Flow) -> None:
        """Puts the amounts of a second task, not started, into the first: they become one task of the same executors."""
        for constraint, use in second.uses.items():
            mine = first.uses.get(constraint)
            if mine is None:
                first.uses[constraint] = use
            elif isinstance(constraint, Processor):
                first.uses[constraint] = (mine[0] + use[0], mine[1] + use[1], max(mine[2], use[2]))
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

    def _stars_of(self, hosts: Sequence[int]) -> dict[StarZone, list[_Place]] | None:
        """These different hosts by the stars they belong to; None if routes must be made pair by pair."""
        if len(set(hosts)) != len(hosts):
            return None
        found: dict[StarZone, list[_Place]] = {}
        known = self._places
        for number in hosts:
            place = known.get(number)
            if place is None:
                place = known[number] = self._place_in_star(number)
            if place.zone is None:
                return None
            found.setdefault(place.zone, []).append(place)
        if len(found) > 1:
            firsts = [places[0] for places in found.values()]
            if any(self._middle(a, b) is None for a in firsts for b in firsts if a is not b):
                return None
        return found

    def _place_in_star(self, number: int) -> _Place:
        host = self._platform.hosts[number]
        zone = host.zone
        ways = zone.ways_of(host.name) if isinstance(zone, StarZone) else None
        if ways is None or isinstance(zone, VivaldiZone):
            return _Place(None, self.processors[number], (), 0.0, 0.0, ())
        assert isinstance(zone, StarZone)
        up = [link for link in ways[0] if link not in zone.backbone]
        down = [link for link in ways[1] if link not in zone.backbone]
        own = tuple(
            (self.constraint(link), (up + down).count(link) if link.shared else 0) for link in dict.fromkeys(up + down)
        )
        up_s, down_s = sum(link.latency for link in up), sum(link.latency for link in down)
        return _Place(zone, self.processors[number], own, up_s, down_s, (*up, *down))


class _Place:
    """A host in a star: its own links, and how often each is used by what it sends and receives (0: a pipe)."""

    __slots__ = ("down_s", "links", "own", "processor", "up_s", "zone")

    def __init__(
        self,
        zone: StarZone | None,
        processor: Processor,
        own: tuple[tuple[Constraint, int], ...],
        up_s: float,
        down_s: float,
        links: tuple[Link, ...],
    ) -> None:
        self.zone = zone
        self.processor = processor
        self.own = own
        self.up_s = up_s
        self.down_s = down_s
        self.links = links


def _load(links: Sequence[Link], pairs: int, size: float, amounts: dict[Link, float]) -> float:
    """Puts what so many pairs send onto links; returns their latency."""
    for link in links:
        amounts[link] = amounts.get(link, 0.0) + pairs * size if link.shared else size
    return sum(link.latency for link in links)


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

"""Probes: measurements of hosts and links that a decider asks for.

In: CreateProbe, TriggerProbe, ResetProbe, StopProbe. Out: ProbeData events. What is measured:

    power                      watts of hosts (energy must be simulated)
    computation load           flop/s of hosts; normalized: share of their capacity
    network load               bytes/s of links; normalized: share of their bandwidth

Without accumulation a measurement is the value of the moment. With it, it is the integral over time (sum: watts become
joules), the least or the largest value, since the probe was created or last reset; `per_second` divides by that time.
The joules of hosts count from 0 as long as the probe is never reset, as in Batsim 5. Over resources, values are
listed, added, averaged, or their quantile is taken (linear between ranks). Over time, the exponential moving average
has the weight 1/2, the sliding window the last ten measurements. A filter keeps data back unless a value passes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from math import floor, inf
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING

from pilothouse.model import decisions as d
from pilothouse.model.errors import RunError
from pilothouse.model.events import ProbeData
from pilothouse.worlds.simulated.physics.sharing import Constraint, Flow

if TYPE_CHECKING:
    from pilothouse.worlds.simulated.physics.execution import Physics

WINDOW_SIZE = 10
MOVING_WEIGHT = 0.5
_COMPARE: dict[d.Comparison, Callable[[float, float], bool]] = {
    d.Comparison.GREATER: gt,
    d.Comparison.GREATER_OR_EQUAL: ge,
    d.Comparison.LESS: lt,
    d.Comparison.LESS_OR_EQUAL: le,
}


class Gauge:
    """The value of one resource over time: its integral and its extremes since `began`."""

    __slots__ = ("began", "integral", "last", "least", "most", "read")

    def __init__(self, read: Callable[[], float], now: float) -> None:
        self.read = read
        self.restart(now, 0.0)

    def restart(self, now: float, value: float) -> None:
        self.began = self.last = now
        self.integral = value
        self.least, self.most = inf, -inf

    def touch(self, now: float) -> None:
        """Accounts for the time since the last touch; the value has not changed in between."""
        value = self.read()
        self.integral += value * (now - self.last)
        if now > self.last:
            self.least, self.most = min(self.least, value), max(self.most, value)
        self.last = now


class Probe:
    """One live probe."""

    __slots__ = ("emitted", "entry", "gauges", "left", "request", "smoothed", "triggered", "was_reset", "window")

    def __init__(self, request: d.CreateProbe, gauges: list[Gauge]) -> None:
        self.request = request
        self.gauges = gauges
        self.entry = 0
        self.left = request.count
        self.emitted = self.triggered = 0
        self.smoothed: list[float] | None = None
        self.window: deque[list[float]] = deque(maxlen=WINDOW_SIZE)
        self.was_reset = False


class Probes:
    """All probes of one simulation; `tell` takes their data."""

    def __init__(self, physics: Physics, tell: Callable[[ProbeData], None]) -> None:
        self._physics = physics
        self._tell = tell
        self._probes: dict[str, Probe] = {}
        self._watched: dict[Constraint, list[Gauge]] = {}

    @property
    def ids(self) -> list[str]:
        return list(self._probes)

    @property
    def due(self) -> bool:
        """Whether measurements are still to come by themselves, and not without end."""
        return any(probe.entry and (probe.request.count or probe.request.period is None) for probe in self._probes.values())

    # ---- decisions

    def create(self, request: d.CreateProbe) -> None:
        if request.probe_id in self._probes:
            raise RunError(f"probe {request.probe_id!r} exists already")
        if request.period is not None and request.period <= 0:
            raise RunError(f"probe {request.probe_id!r}: a period must be above 0")
        if not 0 <= request.quantile <= 1:
            raise RunError(f"probe {request.probe_id!r}: a quantile is from 0 to 1")
        now = self._physics.agenda.now
        gauges = []
        for constraint, read in self._resources(request):
            gauge = Gauge(read, now)
            gauges.append(gauge)
            self._watched.setdefault(constraint, []).append(gauge)
        probe = self._probes[request.probe_id] = Probe(request, gauges)
        self._plan(probe)

    def trigger(self, request: d.TriggerProbe) -> None:
        self._measure(self._probe(request.probe_id), by_hand=True, forced=request.force_emission)

    def reset(self, request: d.ResetProbe) -> None:
        probe = self._probe(request.probe_id)
        self._restart(probe, request.value)

    def stop(self, request: d.StopProbe) -> None:
        self._drop(self._probe(request.probe_id))

    def _probe(self, probe_id: str) -> Probe:
        found = self._probes.get(probe_id)
        if found is None:
            raise RunError(f"there is no probe {probe_id!r}")
        return found

    # ---- what changes values

    def before_change(self, flows: Iterable[Flow]) -> None:
        """The rates of these flows are about to change."""
        if self._watched:
            now = self._physics.agenda.now
            for flow in flows:
                for constraint in flow.uses:
                    for gauge in self._watched.get(constraint, ()):
                        gauge.touch(now)

    def before_power_state(self, constraint: Constraint) -> None:
        for gauge in self._watched.get(constraint, ()):
            gauge.touch(self._physics.agenda.now)

    # ---- resources

    def _resources(self, request: d.CreateProbe) -> Iterable[tuple[Constraint, Callable[[], float]]]:
        demands, name = self._physics.demands, request.probe_id
        if bool(request.units) == bool(request.links):
            raise RunError(f"probe {name!r} must name hosts or links, and not both")
        on_links = request.metric in (d.Metric.NETWORK_LOAD, d.Metric.NORMALIZED_NETWORK_LOAD)
        if on_links is bool(request.units):
            raise RunError(f"probe {name!r}: {request.metric.value} is measured on {'links' if on_links else 'hosts'}")
        normalized = request.metric in (d.Metric.NORMALIZED_NETWORK_LOAD, d.Metric.NORMALIZED_COMPUTATION_LOAD)
        for link_name in request.links:
            assert self._physics.platform is not None
            link = self._physics.platform.link(link_name)
            if link is None:
                raise RunError(f"probe {name!r}: there is no link {link_name!r}")
            constraint = demands.constraint(link)
            yield constraint, _load_of(constraint, normalized)
        for number in request.units:
            if number >= len(demands.processors):
                raise RunError(f"probe {name!r}: there is no host {number}")
            processor = demands.processors[number]
            if request.metric is d.Metric.POWER:
                yield processor, self._power_of(number, name)
            else:
                yield processor, _load_of(processor, normalized)

    def _power_of(self, number: int, name: str) -> Callable[[], float]:
        machines = self._physics.machines
        if machines is None or not machines.meters:
            raise RunError(f"probe {name!r}: power is known only where energy is simulated")
        return lambda: machines.power_w(number)

    # ---- measurements

    def _plan(self, probe: Probe) -> None:
        agenda, request = self._physics.agenda, probe.request
        if request.period is not None:
            when = (floor(agenda.now / request.period + 1e-9) + 1) * request.period
            probe.entry = agenda.at(when, self._due, probe)
        elif request.when is not None and not probe.triggered:
            probe.entry = agenda.at(max(request.when, agenda.now), self._due, probe)

    def _due(self, probe: Probe) -> None:
        probe.entry = 0
        self._physics.settle()
        self._measure(probe, by_hand=False, forced=False)
        probe.left = max(0, probe.left - 1) if probe.request.count else 0
        if probe.request.period is None or (probe.request.count and not probe.left):
            self._drop(probe)
        else:
            self._plan(probe)

    def _measure(self, probe: Probe, *, by_hand: bool, forced: bool) -> None:
        request, now = probe.request, self._physics.agenda.now
        probe.triggered += 1
        values = [self._value(probe, gauge, now) for gauge in probe.gauges]
        if request.accumulate is d.Cumulative.SUM and request.metric is d.Metric.POWER and not probe.was_reset:
            machines = self._physics.machines
            assert machines is not None
            if not request.per_second:
                values = [machines.energy_j((number,)) for number in request.units]
        values = _smooth(probe, _aggregate(request, values))
        passes = request.only_if is None or any(_COMPARE[request.only_if](value, request.threshold) for value in values)
        if not (passes or forced):
            return
        probe.emitted += 1
        aggregated = request.aggregation is not d.Aggregation.NONE
        data = ProbeData(now, request.probe_id, tuple(values), aggregated, by_hand, probe.emitted, probe.triggered)
        if request.reset_to is not None:
            self._restart(probe, request.reset_to)
        self._tell(data)

    def _value(self, probe: Probe, gauge: Gauge, now: float) -> float:
        gauge.touch(now)
        match probe.request.accumulate:
            case None:
                return gauge.read()
            case d.Cumulative.SUM:
                value = gauge.integral
            case d.Cumulative.MINIMUM:
                value = min(gauge.least, gauge.read())
            case d.Cumulative.MAXIMUM:
                value = max(gauge.most, gauge.read())
        if probe.request.per_second:
            value = value / (now - gauge.began) if now > gauge.began else gauge.read()
        return value

    def _restart(self, probe: Probe, value: float) -> None:
        probe.was_reset = True
        for gauge in probe.gauges:
            gauge.restart(self._physics.agenda.now, value)

    def _drop(self, probe: Probe) -> None:
        if probe.entry:
            self._physics.agenda.cancel(probe.entry)
        del self._probes[probe.request.probe_id]
        gone = set(map(id, probe.gauges))
        for constraint, gauges in list(self._watched.items()):
            kept = [gauge for gauge in gauges if id(gauge) not in gone]
            if kept:
                self._watched[constraint] = kept
            else:
                del self._watched[constraint]


def _load_of(constraint: Constraint, normalized: bool) -> Callable[[], float]:
    if normalized:
        return lambda: constraint.load() / constraint.capacity
    return constraint.load


def _aggregate(request: d.CreateProbe, values: list[float]) -> list[float]:
    match request.aggregation:
        case d.Aggregation.NONE:
            return values
        case d.Aggregation.SUM:
            return [sum(values)]
        case d.Aggregation.MEAN:
            return [sum(values) / len(values)]
        case d.Aggregation.QUANTILE:
            return [_quantile(values, request.quantile)]


def _quantile(values: list[float], quantile: float) -> float:
    ranked = sorted(values)
    place = quantile * (len(ranked) - 1)
    low = floor(place)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (ranked[high] - ranked[low]) * (place - low)


def _smooth(probe: Probe, values: list[float]) -> list[float]:
    if probe.request.temporal == "moving":
        before = probe.smoothed
        if before is not None:
            values = [MOVING_WEIGHT * new + (1 - MOVING_WEIGHT) * old for new, old in zip(values, before, strict=True)]
        probe.smoothed = values
    elif probe.request.temporal == "window":
        probe.window.append(values)
        values = [sum(column) / len(probe.window) for column in zip(*probe.window, strict=True)]
    return values

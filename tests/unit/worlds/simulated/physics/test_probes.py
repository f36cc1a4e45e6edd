"""Probes: every metric, accumulation, aggregation, filter and trigger."""

from __future__ import annotations

from typing import Any

import pytest

from pilothouse.model import decisions as d
from pilothouse.model.errors import RunError
from pilothouse.model.events import ProbeData
from pilothouse.model.idset import IdSet
from pilothouse.model.profile import HomogeneousTask, ParallelTask
from pilothouse.worlds.simulated.physics.probes import Probes
from unit.worlds.simulated.lab import Lab, platform_of

BODY = """
<host id="a" speed="100f"><prop id="wattage_per_state" value="10:60"/></host>
<host id="b" speed="100f"><prop id="wattage_per_state" value="20:60"/></host>
<link id="l" bandwidth="10Bps" latency="0s"/><route src="a" dst="b"><link_ctn id="l"/></route>
"""
BOTH = IdSet.parse("0-1")


class Setup:
    def __init__(self) -> None:
        self.lab = Lab(platform_of(BODY), energy=True)
        self.told: list[ProbeData] = []
        self.probes: Probes = self.lab.physics.need_probes(self.told.append)

    def create(self, metric: d.Metric = d.Metric.POWER, **options: Any) -> None:
        options.setdefault("units", BOTH if "links" not in options else IdSet())
        self.probes.create(d.CreateProbe(0.0, "p", metric, **options))

    def values(self) -> list[tuple[float, ...]]:
        return [one.values for one in self.told]


@pytest.fixture
def setup() -> Setup:
    return Setup()


def test_power_of_the_moment_periodically(setup: Setup) -> None:
    setup.create(period=2.0, count=3)
    setup.lab.start("j", HomogeneousTask(300.0, 0.0), "0")
    setup.lab.run()
    assert setup.values() == [(60.0, 20.0), (10.0, 20.0), (10.0, 20.0)]
    assert [(one.at, one.emitted, one.triggered) for one in setup.told] == [(2.0, 1, 1), (4.0, 2, 2), (6.0, 3, 3)]
    assert not setup.probes.ids, "a finite series ends by itself"


def test_energy_since_the_beginning(setup: Setup) -> None:
    setup.lab.agenda.run_until(1.0)
    setup.create(period=2.0, count=1, accumulate=d.Cumulative.SUM)
    setup.lab.run()
    assert setup.values() == [(pytest.approx(20.0), pytest.approx(40.0))]


def test_energy_with_reset(setup: Setup) -> None:
    setup.create(period=2.0, count=3, accumulate=d.Cumulative.SUM, reset_to=0.0, aggregation=d.Aggregation.SUM)
    setup.lab.start("j", HomogeneousTask(300.0, 0.0), "0")
    setup.lab.run()
    assert setup.values()[1:] == [(pytest.approx(60 + 10 + 40),), (pytest.approx(60.0),)]
    assert all(one.aggregated for one in setup.told)


def test_mean_power_over_time(setup: Setup) -> None:
    setup.create(units=IdSet.of([0]), period=4.0, count=1, accumulate=d.Cumulative.SUM, per_second=True)
    setup.lab.start("j", HomogeneousTask(300.0, 0.0), "0")
    setup.lab.run()
    assert setup.values() == [(pytest.approx((3 * 60 + 10) / 4),)]


@pytest.mark.parametrize(("function", "expected"), [(d.Cumulative.MINIMUM, 10.0), (d.Cumulative.MAXIMUM, 60.0)])
def test_extremes_between_measurements(setup: Setup, function: d.Cumulative, expected: float) -> None:
    setup.create(units=IdSet.of([0]), period=10.0, count=1, accumulate=function)
    setup.lab.start("j", HomogeneousTask(300.0, 0.0), "0", at=2.0)
    setup.lab.run()
    assert setup.values() == [(expected,)]


def test_loads_of_hosts_and_links(setup: Setup) -> None:
    task = ParallelTask((250.0, 500.0), (0.0, 40.0, 0.0, 0.0))
    for metric, options, expected in [
        (d.Metric.COMPUTATION_LOAD, {}, (50.0, 100.0)),
        (d.Metric.NORMALIZED_COMPUTATION_LOAD, {}, (0.5, 1.0)),
        (d.Metric.NETWORK_LOAD, {"links": ("l",)}, (8.0,)),
        (d.Metric.NORMALIZED_NETWORK_LOAD, {"links": ("l",)}, (0.8,)),
    ]:
        one = Setup()
        one.create(metric, when=1.0, **options)
        one.lab.start("j", task)
        one.lab.run()
        assert one.values() == [pytest.approx(expected)], metric


def test_bytes_over_a_link(setup: Setup) -> None:
    setup.create(d.Metric.NETWORK_LOAD, links=("l",), when=20.0, accumulate=d.Cumulative.SUM)
    setup.lab.start("j", ParallelTask((0.0, 0.0), (0.0, 40.0, 30.0, 0.0)), at=1.0)
    setup.lab.run()
    assert setup.values() == [(pytest.approx(70.0),)]


@pytest.mark.parametrize(
    ("aggregation", "quantile", "expected"),
    [
        (d.Aggregation.SUM, 0.5, 30.0),
        (d.Aggregation.MEAN, 0.5, 15.0),
        (d.Aggregation.QUANTILE, 0.0, 10.0),
        (d.Aggregation.QUANTILE, 0.25, 12.5),
        (d.Aggregation.QUANTILE, 1.0, 20.0),
    ],
)
def test_aggregations(setup: Setup, aggregation: d.Aggregation, quantile: float, expected: float) -> None:
    setup.create(when=1.0, aggregation=aggregation, quantile=quantile)
    setup.lab.run()
    assert setup.values() == [(pytest.approx(expected),)]


def test_smoothing_over_time() -> None:
    for temporal, expected in (("moving", [60.0, 35.0, 22.5]), ("window", [60.0, 35.0, 80 / 3])):
        setup = Setup()
        setup.create(units=IdSet.of([0]), period=1.0, count=3, temporal=temporal)
        setup.lab.start("j", HomogeneousTask(150.0, 0.0), "0")
        setup.lab.run()
        assert [values[0] for values in setup.values()] == [pytest.approx(value) for value in expected]


def test_filter_keeps_data_back(setup: Setup) -> None:
    setup.create(units=IdSet.of([0]), period=1.0, count=4, only_if=d.Comparison.GREATER, threshold=50.0)
    setup.lab.start("j", HomogeneousTask(150.0, 0.0), "0")
    setup.lab.run()
    assert [(one.at, one.emitted, one.triggered) for one in setup.told] == [(1.0, 1, 1)]


def test_triggered_by_hand(setup: Setup) -> None:
    setup.create(only_if=d.Comparison.LESS, threshold=0.0)
    setup.probes.trigger(d.TriggerProbe(0.0, "p", force_emission=False))
    assert setup.told == []
    setup.probes.trigger(d.TriggerProbe(0.0, "p"))
    assert setup.told[0].triggered_by_hand and setup.told[0].triggered == 2 and setup.told[0].emitted == 1
    setup.probes.stop(d.StopProbe(0.0, "p"))
    with pytest.raises(RunError, match="there is no probe 'p'"):
        setup.probes.trigger(d.TriggerProbe(0.0, "p"))


def test_reset_by_hand(setup: Setup) -> None:
    setup.create(units=IdSet.of([0]), accumulate=d.Cumulative.SUM)
    setup.lab.agenda.run_until(5.0)
    setup.probes.reset(d.ResetProbe(5.0, "p", 7.0))
    setup.lab.agenda.run_until(6.0)
    setup.probes.trigger(d.TriggerProbe(6.0, "p"))
    assert setup.values() == [(pytest.approx(17.0),)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"units": IdSet()}, "must name hosts or links"),
        ({"units": IdSet.of([9])}, "there is no host 9"),
        ({"metric": d.Metric.NETWORK_LOAD}, "is measured on links"),
        ({"links": ("l",)}, "is measured on hosts"),
        ({"metric": d.Metric.NETWORK_LOAD, "links": ("x",)}, "there is no link 'x'"),
        ({"period": 0.0}, "a period must be above 0"),
        ({"quantile": 2.0}, "a quantile is from 0 to 1"),
    ],
)
def test_refused_probes(setup: Setup, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=message):
        setup.create(**options)


def test_power_needs_energy() -> None:
    lab = Lab(platform_of(BODY))
    with pytest.raises(RunError, match="only where energy is simulated"):
        lab.physics.need_probes(lambda data: None).create(d.CreateProbe(0.0, "p", d.Metric.POWER, units=BOTH))

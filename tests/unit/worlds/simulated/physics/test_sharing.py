"""Concurrent parallel tasks against SimGrid, and small cases of the fluid worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pilothouse.model.profile import ParallelTask
from pilothouse.worlds.simulated.physics import sharing
from pilothouse.worlds.simulated.physics.agenda import Agenda
from pilothouse.worlds.simulated.physics.demand import Demands
from pilothouse.worlds.simulated.physics.platform import Platform
from pilothouse.worlds.simulated.physics.sharing import Constraint, Flow, Fluid
from unit.worlds.simulated.lab import TWO_HOSTS, Lab, platform_of

FIXTURES = Path(__file__).parents[4] / "golden/physics"
CASES = json.loads((FIXTURES / "sharing.json").read_text())


@pytest.mark.parametrize("compiled", [True, False], ids=["as built", "pure Python"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_tasks_end_when_simgrid_says(case: dict[str, Any], compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded from SimGrid 3.32: random tasks on a star, on small_platform and on graphene, up to 25 at once.

    Latencies, several cores and executors, pipes, limiters, loopbacks, caps by core and by TCP's window all take part.
    """
    monkeypatch.setattr(sharing, "COMPILED_FROM", 0 if compiled else 10**9)
    platform = platform_of(case["body"]) if "body" in case else Platform.load(FIXTURES / "inputs" / case["file"])
    numbers = {host.name: host.number for host in platform.hosts}
    agenda, demands, ends = Agenda(), Demands(platform), {}
    fluid = Fluid(agenda)

    def start(argument: tuple[int, list[int], list[float], list[float]]) -> None:
        number, hosts, flop, matrix = argument
        places = [numbers[case["hosts"][host]] for host in hosts]
        fluid.start(demands.task(places, flop, matrix, lambda _: ends.__setitem__(number, agenda.now)))

    for number, (date, *task) in enumerate(case["tasks"]):
        agenda.at(date, start, (number, *task))
    agenda.run_until(1e300)
    assert [ends[number] for number in range(len(ends))] == [pytest.approx(end, rel=1e-12) for end in case["ends"]]


def test_a_pipe_loses_in_a_round_what_its_slowest_flow_takes() -> None:
    """As in SimGrid: the second flow has fifty times the capacity here."""
    agenda = Agenda()
    fluid, ends = Fluid(agenda), {}
    pipe, host = Constraint("pipe", 100.0, shared=False), Constraint("host", 100.0)
    slow = Flow({pipe: (100.0, 100.0, 1), host: (10000.0, 10000.0, 1)}, lambda _: ends.update(slow=agenda.now))
    fast = Flow({pipe: (10000.0, 10000.0, 1)}, lambda _: ends.update(fast=agenda.now))
    fluid.start(slow)
    fluid.start(fast)
    agenda.run_until(1e6)
    assert ends == {"slow": pytest.approx(100.0), "fast": pytest.approx(2.0 / 1.01)}


def test_two_ranks_on_one_host_beside_a_slow_task_on_the_same_loopback() -> None:
    """What SimGrid 3.32 says: the ranks are bound by TCP's window alone, at 230 times the bandwidth of the loopback."""
    platform = Platform.load(FIXTURES / "inputs/v4/platforms/small_platform.xml", generation=4)
    numbers = {host.name: host.number for host in platform.hosts}
    agenda, demands, ends = Agenda(), Demands(platform), {}
    fluid = Fluid(agenda)
    for name, start, flop, size in (("Jupiter", 0.0, 1e9, 1e6), ("Fafard", 0.1, 0.0, 1e7)):
        hosts, matrix = [numbers[name]] * 2, [0.0, size, 0.0, 0.0]
        flow = demands.task(hosts, [flop] * 2, matrix, lambda _, name=name: ends.__setitem__(name, agenda.now))
        agenda.at(start, lambda _, flow=flow: fluid.start(flow))
    agenda.run_until(1e6)
    assert ends == {"Jupiter": pytest.approx(26.213709034, abs=1e-9), "Fafard": pytest.approx(0.100086526, abs=1e-9)}


def test_what_shares_nothing_is_not_solved_again() -> None:
    agenda = Agenda()
    fluid = Fluid(agenda)
    hosts = [Constraint(str(i), 100.0) for i in range(3)]
    flows = [Flow({host: (1000.0, 1000.0, 1)}, lambda _: None) for host in hosts]
    for flow in flows:
        fluid.start(flow)
    agenda.run_until(1.0)
    before = fluid.solves
    fluid.start(Flow({hosts[0]: (1000.0, 1000.0, 1)}, lambda _: None))
    agenda.run_until(2.0)
    assert fluid.solves == before + 1
    assert [flow.rate for flow in flows] == [0.05, 0.1, 0.1]


def test_a_single_executor_talks_to_itself_for_nothing() -> None:
    lab = Lab(platform_of(TWO_HOSTS))
    lab.start("one", ParallelTask((100.0,), (1e12,)), "0")
    lab.run()
    assert lab.end("one") == pytest.approx(1.0)


def test_a_stopped_flow_tells_what_was_left() -> None:
    agenda = Agenda()
    fluid = Fluid(agenda)
    host = Constraint("host", 100.0)
    flow = Flow({host: (1000.0, 1000.0, 1)}, lambda _: None, latency=1.0)
    fluid.start(flow)
    agenda.run_until(0.5)
    assert fluid.left(flow) == 1.0
    agenda.run_until(6.0)
    assert fluid.stop(flow) == pytest.approx(0.5)
    assert not host.users and agenda.next_date() == float("inf")

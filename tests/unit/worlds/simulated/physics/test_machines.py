"""Power states, switches, machine states and energy, worked out by hand."""

from __future__ import annotations

import pytest

from pilothouse.model.errors import InputError, RunError
from pilothouse.model.idset import IdSet
from pilothouse.model.profile import Delay, HomogeneousTask, Sequence
from pilothouse.worlds.simulated.physics.machines import Machines, MachineState, Tracer
from unit.worlds.simulated.lab import SWITCHABLE, Lab, platform_of

A, B = IdSet.of([0]), IdSet.of([1])


class Rows(Tracer):
    """What a tracer is told."""

    def __init__(self) -> None:
        self.changes: list[tuple[float, str, int]] = []
        self.counts: list[list[int]] = []

    def machines_changed(self, machines: Machines) -> None:
        self.counts.append(list(machines.counts))

    def power_state_changed(self, machines: Machines, units: IdSet, power_state: int) -> None:
        self.changes.append((machines.now, str(units), power_state))


@pytest.fixture
def lab() -> Lab:
    return Lab(platform_of(SWITCHABLE), energy=True)


def machines_of(lab: Lab) -> Machines:
    assert lab.physics.machines is not None
    return lab.physics.machines


def test_idle_and_computing_energy(lab: Lab) -> None:
    machines = machines_of(lab)
    lab.start("delay", Delay(4.0), "0")
    lab.start("compute", HomogeneousTask(300.0, 0.0), "1")
    lab.agenda.run_until(10.0)
    assert machines.energy_j(A) == pytest.approx(10 * 10.0), "a delay uses no processor"
    assert machines.energy_j(B) == pytest.approx(3 * 60.0 + 7 * 10.0)
    assert machines.energy_j() == pytest.approx(100.0 + 250.0)
    assert machines.least_power_w() == 30.0


def test_power_grows_with_load_from_epsilon() -> None:
    body = '<host id="a" speed="100f" core="4"><prop id="wattage_per_state" value="10:20:60"/></host>'
    lab = Lab(platform_of(body), energy=True)
    lab.start("one", HomogeneousTask(100.0, 0.0), "0")
    lab.agenda.run_until(0.5)
    assert machines_of(lab).power_w(0) == pytest.approx(20 + 40 / 4)
    lab.agenda.run_until(2.0)
    assert machines_of(lab).energy_j() == pytest.approx(30.0 + 10.0)


def test_speed_changes_under_a_running_task(lab: Lab) -> None:
    machines = machines_of(lab)
    lab.start("j", HomogeneousTask(1000.0, 0.0), "0")
    lab.agenda.at(4.0, lambda _: machines.set_pstate(A, 1))
    lab.run()
    assert lab.end("j") == pytest.approx(4 + 600 / 50)
    assert machines.energy_j(A) == pytest.approx(4 * 60 + 12 * 30)


def test_speed_changes_during_the_latency_of_a_task() -> None:
    body = """
    <host id="a" speed="100f,400f" core="2"/><host id="b" speed="400f" core="2"/>
    <link id="l" bandwidth="1GBps" latency="2s"/><route src="a" dst="b"><link_ctn id="l"/></route>
    """
    lab = Lab(platform_of(body), machines=True)
    lab.start("j", HomogeneousTask(400.0, 1.0))
    lab.agenda.at(1.0, lambda _: machines_of(lab).set_pstate(A, 1))
    lab.run()
    assert lab.end("j") == pytest.approx(2.0 + 1.0)


def test_switching_off_and_on(lab: Lab) -> None:
    machines, rows, done = machines_of(lab), Rows(), []
    machines.tracers.append(rows)
    machines.switch(A, 2, lambda: done.append(lab.agenda.now))
    assert machines[0].state is MachineState.SWITCHING_OFF
    lab.agenda.run_until(5.0)
    assert machines[0].state is MachineState.SLEEPING
    machines.switch(A, 0, lambda: done.append(lab.agenda.now))
    lab.run()
    assert done == [2.0, 15.0]
    assert machines.energy_j(A) == pytest.approx(2 * 7 + 3 * 1 + 10 * 9)
    assert machines[0].state is MachineState.IDLE
    assert rows.changes == [(0.0, "0", -2), (2.0, "0", 2), (5.0, "0", -1), (15.0, "0", 0)]
    assert machines.seconds[MachineState.SLEEPING] == pytest.approx(3.0)
    assert machines.seconds[MachineState.SWITCHING_ON] == pytest.approx(10.0)
    assert (machines.switched_machines, machines.grouped_switches) == (2, 2)


def test_switches_that_make_no_sense(lab: Lab) -> None:
    machines = machines_of(lab)
    with pytest.raises(RunError, match="Asked to turn ON a host already in a computing pstate"):
        machines.switch(A, 1, lambda: None)
    with pytest.raises(RunError, match="it has no pstate 2"):
        machines.switch(B, 2, lambda: None)
    lab.start("j", Delay(1.0), "0")
    lab.agenda.run_until(0.5)
    with pytest.raises(RunError, match="jobs are running"):
        machines.switch(A, 2, lambda: None)
    lab.agenda.run_until(2.0)
    machines.switch(A, 2, lambda: None)
    with pytest.raises(RunError, match="it is switching_off already"):
        machines.switch(A, 0, lambda: None)
    with pytest.raises(RunError, match="no power state 9"):
        machines.set_pstate(B, 9)


def test_machines_return_to_idle(lab: Lab) -> None:
    rows = Rows()
    machines = machines_of(lab)
    machines.tracers.append(rows)
    lab.start("first", Delay(1.0), "0-1")
    lab.start("second", Delay(2.0), "0")
    lab.run()
    idle, computing = MachineState.IDLE, MachineState.COMPUTING
    assert [(counts[idle], counts[computing]) for counts in rows.counts] == [(0, 2), (0, 2), (1, 1), (2, 0)]
    assert machines.seconds[computing] == pytest.approx(2.0 + 1.0)


def test_unavailable_machines(lab: Lab) -> None:
    machines = machines_of(lab)
    lab.start("j", Delay(3.0), "0")
    lab.agenda.run_until(1.0)
    machines.go_away(A, lab.agenda.now)
    assert machines.counts[MachineState.UNAVAILABLE] == 1
    lab.agenda.run_until(2.0)
    machines.come_back(A, lab.agenda.now)
    assert machines[0].state is MachineState.COMPUTING
    lab.run()
    assert machines[0].state is MachineState.IDLE


def test_exact_meters_do_not_count_latency_as_load() -> None:
    body = """
    <host id="a" speed="100f"><prop id="wattage_per_state" value="10:60"/></host>
    <host id="b" speed="100f"><prop id="wattage_per_state" value="10:60"/></host>
    <link id="l" bandwidth="1GBps" latency="1s"/><route src="a" dst="b"><link_ctn id="l"/></route>
    """
    energies = []
    for exact in (False, True):
        lab = Lab(platform_of(body), energy=True, exact_energy=exact)
        lab.start("j", HomogeneousTask(100.0, 1.0))
        lab.run()
        energies.append(machines_of(lab).energy_j())
    assert energies == [pytest.approx(2 * 2 * 60.0), pytest.approx(2 * (10.0 + 60.0))]


def test_meters_are_read_when_simgrid_reads_them() -> None:
    """Recorded from SimGrid's plugin: the second host's idle time counts with the load of the task that follows."""
    body = """
    <host id="a" speed="100f"><prop id="wattage_per_state" value="10:20:110"/></host>
    <host id="b" speed="100f"><prop id="wattage_per_state" value="10:20:110"/></host>
    """
    for exact, expected in ((False, [600.0, 1100.0]), (True, [600.0, 600.0])):
        lab = Lab(platform_of(body), energy=True, exact_energy=exact)
        lab.profile("sleep", Delay(5.0))
        lab.profile("compute", HomogeneousTask(500.0, 0.0))
        lab.start("j", Sequence(("sleep", "compute")))
        lab.run()
        assert [machines_of(lab).energy_j(unit) for unit in (A, B)] == [pytest.approx(value) for value in expected]


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ("", "has no property wattage_per_state"),
        ('<prop id="wattage_per_state" value="10:a"/>', "not a power"),
        ('<prop id="wattage_per_state" value="10"/>', "not a power"),
    ],
)
def test_bad_powers(properties: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Lab(platform_of(f'<host id="a" speed="1f">{properties}</host>'), energy=True)

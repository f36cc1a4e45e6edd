"""The states of machines as Batsim keeps them, and how long they lasted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pilothouse.model.idset import IdSet
from pilothouse.worlds.simulated.physics.machines import MachineState, MachineStates, numbers_of
from pilothouse.worlds.simulated.physics.platform import Host

ALL = IdSet.span(0, 2)
FIRST = IdSet.span(0, 1)


def book() -> MachineStates:
    return MachineStates([Host(name, None, (1.0,)) for name in ("a", "b", "disk")], 2)


def test_time_is_added_up_when_a_state_changes() -> None:
    machines = book()
    machines.occupy(ALL, "w0!1", 10.0)
    machines.release(ALL, "w0!1", 15.0)
    assert machines.seconds[MachineState.IDLE] == 20.0 and machines.seconds[MachineState.COMPUTING] == 10.0
    assert machines.counts[MachineState.IDLE] == 2 and machines.idle_mask == 0b111


def test_shared_machines_are_idle_when_the_last_job_left() -> None:
    machines = book()
    machines.occupy(FIRST, "w0!1", 0.0)
    machines.occupy(FIRST, "w0!2", 1.0)
    machines.release(FIRST, "w0!1", 2.0)
    assert machines[0].state is MachineState.COMPUTING and machines[0].users == ["w0!2"]
    machines.release(FIRST, "w0!2", 3.0)
    assert machines[0].state is MachineState.IDLE


def test_storage_is_not_counted() -> None:
    machines = book()
    machines.occupy(IdSet.span(2, 1), "w0!1", 1.0)
    assert machines.counts[MachineState.COMPUTING] == 0 and machines.counts[MachineState.IDLE] == 2


def test_machines_that_go_away_and_come_back() -> None:
    machines = book()
    assert not machines.go_away(FIRST, 1.0)
    assert machines.go_away(ALL, 2.0) == FIRST, "the first was away already"
    assert not machines.come_back(ALL, 5.0)
    assert machines.come_back(FIRST, 6.0) == FIRST, "it was there"
    assert machines.seconds[MachineState.UNAVAILABLE] == 7.0


def test_a_machine_that_comes_back_under_a_running_job_computes() -> None:
    machines = book()
    machines.occupy(FIRST, "w0!1", 0.0)
    machines.go_away(FIRST, 1.0)
    machines.come_back(FIRST, 2.0)
    assert machines[0].state is MachineState.COMPUTING
    machines.release(FIRST, "w0!1", 3.0)
    assert machines[0].state is MachineState.IDLE


def test_a_machine_stays_away_when_the_job_on_it_ends() -> None:
    machines = book()
    machines.occupy(FIRST, "w0!1", 0.0)
    machines.go_away(FIRST, 1.0)
    machines.release(FIRST, "w0!1", 3.0)
    assert machines[0].state is MachineState.UNAVAILABLE


@given(st.sets(st.integers(0, 200)))
def test_the_numbers_of_an_allocation_ascend(units: set[int]) -> None:
    assert numbers_of(IdSet.of(units).mask) == tuple(sorted(units))

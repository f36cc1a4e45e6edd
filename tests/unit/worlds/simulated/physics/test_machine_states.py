"""The states of machines as Batsim keeps them, and how long they lasted."""

from __future__ import annotations

from random import Random

import pytest
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


COUNT, COMPUTE = 6, 4
"""Machines, of which so many compute; the others are storages."""


class ObviousBook:
    """One state, one date and one list of users for each machine; everything else is counted when it is asked for."""

    def __init__(self, stays: bool) -> None:
        self.state = [MachineState.IDLE] * COUNT
        self.since = [0.0] * COUNT
        self.users: list[list[str]] = [[] for _ in range(COUNT)]
        self.seconds = dict.fromkeys(MachineState, 0.0)
        self.stays = stays

    def to(self, unit: int, state: MachineState, now: float) -> None:
        self.seconds[self.state[unit]] += now - self.since[unit]
        self.state[unit], self.since[unit] = state, now

    def occupy(self, units: IdSet, job_id: str, now: float) -> None:
        for unit in units:
            self.users[unit].append(job_id)
            if self.state[unit] is not MachineState.COMPUTING or self.stays:
                self.to(unit, MachineState.COMPUTING, now)

    def release(self, units: IdSet, job_id: str, now: float) -> None:
        for unit in units:
            self.users[unit].remove(job_id)
            if not self.stays and not self.users[unit] and self.state[unit] is MachineState.COMPUTING:
                self.to(unit, MachineState.IDLE, now)

    def go_away(self, units: IdSet, now: float) -> IdSet:
        already = IdSet.of(unit for unit in units if self.state[unit] is MachineState.UNAVAILABLE)
        for unit in units - already:
            self.to(unit, MachineState.UNAVAILABLE, now)
        return already

    def come_back(self, units: IdSet, now: float) -> IdSet:
        present = IdSet.of(unit for unit in units if self.state[unit] is not MachineState.UNAVAILABLE)
        for unit in units - present:
            self.to(unit, MachineState.COMPUTING if self.users[unit] else MachineState.IDLE, now)
        return present

    def mask(self, *states: MachineState) -> int:
        return sum(1 << unit for unit in range(COUNT) if self.state[unit] in states)


@pytest.mark.parametrize("stays", [False, True], ids=["idle again", "stays computing"])
def test_states_counts_and_times_are_those_of_an_obvious_book(stays: bool) -> None:
    for seed in range(60):
        random = Random(seed)
        machines = MachineStates([Host(f"h{n}", None, (1.0,)) for n in range(COUNT)], COMPUTE, stay_computing=stays)
        book, now, running = ObviousBook(stays), 0.0, dict[str, IdSet]()
        for number in range(40):
            now += random.choice((0.0, 1.0, 2.5))
            units = IdSet.of(random.sample(range(COUNT), random.randint(1, 3)))
            kind = random.choice(("occupy", "occupy", "release", "release", "go_away", "come_back"))
            if kind == "occupy":
                running[f"j{number}"] = units
                machines.occupy(units, f"j{number}", now)
                book.occupy(units, f"j{number}", now)
            elif kind == "release" and running:
                name = random.choice(list(running))
                units = running.pop(name)
                machines.release(units, name, now)
                book.release(units, name, now)
            elif kind != "release":
                assert getattr(machines, kind)(units, now) == getattr(book, kind)(units, now)
            assert [machine.state for machine in machines] == book.state, (seed, number)
            assert [machine.users for machine in machines] == book.users
            assert machines.counts == [book.state[:COMPUTE].count(state) for state in MachineState]
            assert machines.idle_mask == book.mask(MachineState.IDLE)
            assert machines.unable_mask == -1 << COUNT | book.mask(MachineState.UNAVAILABLE)
            assert machines.seconds == pytest.approx([book.seconds[state] for state in MachineState])
            spent = [book.seconds[state] for state in MachineState]
            for unit in range(COUNT):
                spent[book.state[unit]] += now + 1.0 - book.since[unit]
            assert machines.spent(now + 1.0) == pytest.approx(spent)


def test_machines_by_power_state_with_and_without_storage() -> None:
    machines = book()
    machines[1].power_state = 3
    machines[2].power_state = 3
    assert machines.by_power_state() == [(0, FIRST), (3, IdSet.span(1, 1))]
    assert machines.by_power_state(with_storage=True) == [(0, FIRST), (3, IdSet.span(1, 2))]
    assert len(machines) == 3 and [machine.name for machine in machines] == ["a", "b", "disk"]

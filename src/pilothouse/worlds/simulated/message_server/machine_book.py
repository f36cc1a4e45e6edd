"""The states of machines as Batsim keeps them: who computes, sleeps, switches or is away, and for how long they did.

In: what happens to machines, each with its date. Out: the state of each machine, how many are in which state, and the
machine-seconds spent in each. QUIRK: time is added up only when a state changes, so what comes after a machine's last
change is not counted; tests/golden compares the sums with recordings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

from pilothouse.model.idset import IdSet
from pilothouse.model.job import Node
from pilothouse.model.power_states import SleepState, sleep_states
from pilothouse.worlds.simulated.physics.machines import MachineState

_IDLE, _COMPUTING = MachineState.IDLE, MachineState.COMPUTING


@lru_cache(maxsize=4096)
def numbers_of(mask: int) -> tuple[int, ...]:
    """The machines of an allocation, ascending. The same few numbers are asked for again and again."""
    numbers: list[int] = []
    base = 0
    while mask:
        skip = (mask & -mask).bit_length() - 1
        mask >>= skip
        run = (~mask & (mask + 1)).bit_length() - 1
        base += skip + run
        numbers += range(base - run, base)
        mask >>= run
    return tuple(numbers)


class Machine(msgspec.Struct, eq=False):
    """One machine. `users` are the jobs that run on it."""

    number: int
    name: str
    power_states: int = 1
    power_state: int = 0
    sleep_states: Mapping[int, SleepState] = {}
    state: MachineState = MachineState.IDLE
    since: float = 0.0
    users: list[str] = []

    def is_computation_state(self, power_state: int) -> bool:
        """Whether jobs can run in that power state."""
        return power_state < self.power_states and not any(
            power_state in (sleep.asleep, sleep.going_off, sleep.coming_on) for sleep in self.sleep_states.values()
        )


class MachineBook:
    """All machines, by number. Storage machines have no state of their own here: only compute machines are counted."""

    def __init__(self, nodes: Sequence[Node], storage: Sequence[Node] = ()) -> None:
        self.compute_count = len(nodes)
        self.machines = [
            Machine(
                node.first,
                node.name,
                max(1, len(node.speeds)),
                node.power_state,
                sleep_states(node),
                users=[],
            )
            for node in (*nodes, *storage)
        ]
        self.idle_mask = (1 << len(self.machines)) - 1
        self._compute_mask = (1 << self.compute_count) - 1
        self.counts = dict.fromkeys(MachineState, 0)
        self.counts[MachineState.IDLE] = self.compute_count
        self.seconds = dict.fromkeys(MachineState, 0.0)
        self.switched_machines = 0
        self.grouped_switches = 0

    def __getitem__(self, number: int) -> Machine:
        return self.machines[number]

    def __len__(self) -> int:
        return len(self.machines)

    def to(self, machine: Machine, state: MachineState, now: float) -> None:
        """A machine changes its state."""
        self.seconds[machine.state] += now - machine.since
        if machine.number < self.compute_count:
            self.counts[machine.state] -= 1
            self.counts[state] += 1
        if state is MachineState.IDLE:
            self.idle_mask |= 1 << machine.number
        elif machine.state is MachineState.IDLE:
            self.idle_mask &= ~(1 << machine.number)
        machine.state = state
        machine.since = now

    def occupy(self, units: IdSet, job_id: str, now: float) -> None:
        machines, mask = self.machines, units.mask
        if mask & ~self.idle_mask:
            for unit in numbers_of(mask):
                machines[unit].users.append(job_id)
                if machines[unit].state is not _COMPUTING:
                    self.to(machines[unit], _COMPUTING, now)
            return
        idle_s = self.seconds[_IDLE]  # What to() does, without a call for each machine.
        for unit in numbers_of(mask):
            machine = machines[unit]
            machine.users.append(job_id)
            machine.state = _COMPUTING
            idle_s += now - machine.since
            machine.since = now
        self.seconds[_IDLE] = idle_s
        self.idle_mask ^= mask
        counted = (mask & self._compute_mask).bit_count()
        self.counts[_IDLE] -= counted
        self.counts[_COMPUTING] += counted

    def release(self, units: IdSet, job_id: str, now: float) -> None:
        """Machines that are away stay away when the job that ran on meanwhile ends."""
        machines, mask = self.machines, units.mask
        computing_s = self.seconds[_COMPUTING]
        for unit in numbers_of(mask):
            machine = machines[unit]
            machine.users.remove(job_id)
            if machine.users or machine.state is not _COMPUTING:
                mask ^= 1 << unit
            else:
                machine.state = _IDLE
                computing_s += now - machine.since
                machine.since = now
        self.seconds[_COMPUTING] = computing_s
        self.idle_mask |= mask
        counted = (mask & self._compute_mask).bit_count()
        self.counts[_COMPUTING] -= counted
        self.counts[_IDLE] += counted

    def go_away(self, units: IdSet, now: float) -> IdSet:
        """Machines become unavailable; returns those that were so already."""
        already = IdSet.of(unit for unit in units if self.machines[unit].state is MachineState.UNAVAILABLE)
        for unit in units - already:
            self.to(self.machines[unit], MachineState.UNAVAILABLE, now)
        return already

    def come_back(self, units: IdSet, now: float) -> IdSet:
        """Machines become available; returns those that were not away."""
        present = IdSet.of(unit for unit in units if self.machines[unit].state is not MachineState.UNAVAILABLE)
        for unit in units - present:
            machine = self.machines[unit]
            self.to(machine, MachineState.COMPUTING if machine.users else MachineState.IDLE, now)
        return present

    def by_power_state(self) -> Iterable[tuple[int, IdSet]]:
        """Which compute machines are in which power state, ascending."""
        found: dict[int, int] = {}
        for machine in self.machines[: self.compute_count]:
            found[machine.power_state] = found.get(machine.power_state, 0) | 1 << machine.number
        return [(state, IdSet(mask)) for state, mask in sorted(found.items())]


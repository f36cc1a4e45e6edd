"""The state of each machine: which compute, sleep, switch or are unavailable, and for how long they did.

In: what happens to machines, each with its date. Out: the state of each machine, how many compute machines are in which
state, and the machine-seconds spent in each. `seconds` grows only when a machine changes its state. So what comes after
a machine's last change is not in it, as in Batsim (tests/golden compares the sums with recordings); `spent` adds it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec

from pilothouse.model.idset import IdSet
from pilothouse.model.power_states import SleepState, sleep_states
from pilothouse.worlds.simulated.physics.platform import Host


class MachineState(enum.IntEnum):
    SLEEPING = 0
    SWITCHING_ON = 1
    SWITCHING_OFF = 2
    IDLE = 3
    COMPUTING = 4
    UNAVAILABLE = 5


_IDLE, _COMPUTING = MachineState.IDLE, MachineState.COMPUTING
_IDLE_AT, _COMPUTING_AT = _IDLE.value, _COMPUTING.value
"""Where lists have them: Python finds items by plain numbers faster than by members."""


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
    speeds: tuple[float, ...]
    power_state: int
    sleep_states: Mapping[int, SleepState]
    state: MachineState = MachineState.IDLE
    since: float = 0.0
    users: list[str] = []

    def is_computation_state(self, power_state: int) -> bool:
        """Whether the machine has that power state, and jobs can run in it."""
        return 0 <= power_state < len(self.speeds) and not any(
            power_state in (sleep.asleep, sleep.going_off, sleep.coming_on) for sleep in self.sleep_states.values()
        )


class MachineStates:
    """All machines, by number. Only the first `compute_count` are counted: the others are storages.

    `stay_computing` is a QUIRK of Batsim 5: a machine is not idle again after its last job, and its time is added up at
    each start of a job.
    """

    def __init__(self, hosts: Sequence[Host], compute_count: int, *, stay_computing: bool = False) -> None:
        self.machines = [
            Machine(number, host.name, host.speeds, host.pstate, sleep_states(host), users=[])
            for number, host in enumerate(hosts)
        ]
        self.compute_count = compute_count
        self.idle_mask = (1 << len(hosts)) - 1
        self.unable_mask = -1 << len(hosts)
        """The machines that cannot compute now: asleep, on their way, unavailable, or not there at all."""
        self.counts = [0] * len(MachineState)
        self.counts[_IDLE_AT] = compute_count
        self.seconds = [0.0] * len(MachineState)
        self.switched_machines = self.grouped_switches = 0
        self._compute_mask = (1 << compute_count) - 1
        if stay_computing:
            self.occupy, self.release = self._occupy_for_good, self._release_users  # type: ignore[method-assign]

    def __getitem__(self, number: int) -> Machine:
        return self.machines[number]

    def __len__(self) -> int:
        return len(self.machines)

    def __iter__(self) -> Iterator[Machine]:
        return iter(self.machines)

    def to(self, machine: Machine, state: MachineState, now: float) -> None:
        """A machine changes its state."""
        self.seconds[machine.state] += now - machine.since
        bit = 1 << machine.number
        if bit & self._compute_mask:
            self.counts[machine.state] -= 1
            self.counts[state] += 1
        self.idle_mask = self.idle_mask | bit if state is _IDLE else self.idle_mask & ~bit
        able = state is _IDLE or state is _COMPUTING
        self.unable_mask = self.unable_mask & ~bit if able else self.unable_mask | bit
        machine.state = state
        machine.since = now

    def occupy(self, units: IdSet, job_id: str, now: float) -> None:
        """A job takes machines. Those that are unavailable compute again."""
        machines, mask = self.machines, units.mask
        if mask & ~self.idle_mask:
            for unit in numbers_of(mask):
                machines[unit].users.append(job_id)
                if machines[unit].state is not _COMPUTING:
                    self.to(machines[unit], _COMPUTING, now)
            return
        idle_s = self.seconds[_IDLE_AT]  # What to() does, without a call for each machine.
        for unit in numbers_of(mask):
            machine = machines[unit]
            machine.users.append(job_id)
            machine.state = _COMPUTING
            idle_s += now - machine.since
            machine.since = now
        self.seconds[_IDLE_AT] = idle_s
        self.idle_mask ^= mask
        counted = (mask & self._compute_mask).bit_count()
        self.counts[_IDLE_AT] -= counted
        self.counts[_COMPUTING_AT] += counted

    def release(self, units: IdSet, job_id: str, now: float) -> None:
        """A job leaves its machines. Those that became unavailable meanwhile stay so."""
        machines, mask = self.machines, units.mask
        computing_s = self.seconds[_COMPUTING_AT]
        for unit in numbers_of(mask):
            machine = machines[unit]
            machine.users.remove(job_id)
            if machine.users or machine.state is not _COMPUTING:
                mask ^= 1 << unit
            else:
                machine.state = _IDLE
                computing_s += now - machine.since
                machine.since = now
        self.seconds[_COMPUTING_AT] = computing_s
        self.idle_mask |= mask
        counted = (mask & self._compute_mask).bit_count()
        self.counts[_COMPUTING_AT] -= counted
        self.counts[_IDLE_AT] += counted

    def _occupy_for_good(self, units: IdSet, job_id: str, now: float) -> None:
        busy_s, machines = 0.0, self.machines
        for unit in numbers_of(units.mask):
            machine = machines[unit]
            if machine.state is _COMPUTING:
                busy_s += now - machine.since
                machine.since = now
            else:
                self.to(machine, _COMPUTING, now)
            machine.users.append(job_id)
        self.seconds[_COMPUTING_AT] += busy_s

    def _release_users(self, units: IdSet, job_id: str, now: float) -> None:
        del now
        for unit in numbers_of(units.mask):
            self.machines[unit].users.remove(job_id)

    def go_away(self, units: IdSet, now: float) -> IdSet:
        """Machines become unavailable; returns those that were so already."""
        already = IdSet.of(unit for unit in units if self.machines[unit].state is MachineState.UNAVAILABLE)
        for unit in units - already:
            self.to(self.machines[unit], MachineState.UNAVAILABLE, now)
        return already

    def come_back(self, units: IdSet, now: float) -> IdSet:
        """Machines become available; returns those that were available already."""
        present = IdSet.of(unit for unit in units if self.machines[unit].state is not MachineState.UNAVAILABLE)
        for unit in units - present:
            machine = self.machines[unit]
            self.to(machine, _COMPUTING if machine.users else _IDLE, now)
        return present

    def spent(self, now: float) -> list[float]:
        """Machine-seconds in each state up to now."""
        seconds = list(self.seconds)
        for machine in self.machines:
            seconds[machine.state] += now - machine.since
        return seconds

    def by_power_state(self, *, with_storage: bool = False) -> list[tuple[int, IdSet]]:
        """Which machines are in which power state, ascending."""
        found: dict[int, int] = {}
        for machine in self.machines if with_storage else self.machines[: self.compute_count]:
            found[machine.power_state] = found.get(machine.power_state, 0) | 1 << machine.number
        return [(state, IdSet(mask)) for state, mask in sorted(found.items())]

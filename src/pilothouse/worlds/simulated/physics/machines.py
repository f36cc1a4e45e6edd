"""Machines: what each host is doing, in which power state it is, and what energy it has used.

In: starts and ends of jobs, changes of power state, switches on and off. Out: counts and times by state, energy, and
calls of each `Tracer`. A switch goes through a transition state: the host computes one flop at that state's speed, so it
takes 1/speed seconds. Computation states (model/power_states.py) change at once, also under running jobs.

The times by state (`seconds`) grow only when a machine changes its state. So what comes after a machine's last change is
not in them, as in Batsim (tests/golden compares the sums with recordings); `spent` adds it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from operator import add
from typing import TYPE_CHECKING

import msgspec

from pilothouse.model.errors import RunError
from pilothouse.model.idset import IdSet
from pilothouse.model.lifecycle import JobState
from pilothouse.model.power_states import SleepState, sleep_states
from pilothouse.worlds.simulated.physics.demand import Processor
from pilothouse.worlds.simulated.physics.energy import Meter, PowerRange, power_ranges
from pilothouse.worlds.simulated.physics.platform import Host
from pilothouse.worlds.simulated.physics.sharing import Flow

if TYPE_CHECKING:
    from pilothouse.worlds.simulated.physics.execution import Physics

TO_COMPUTATION, TO_SLEEP = -1, -2
"""What a switch is traced as until it is done."""


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
        self.sleep_mask = 0
        """The machines whose power state is not one for computation."""
        for machine in self.machines:
            self.note_power(machine)
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

    def note_power(self, machine: Machine) -> None:
        """A machine has this power state now."""
        bit = 1 << machine.number
        computes = machine.is_computation_state(machine.power_state)
        self.sleep_mask = self.sleep_mask & ~bit if computes else self.sleep_mask | bit

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


class Tracer:
    """Watches machines. Every method may be left out."""

    def began(self, machines: Machines) -> None:
        """Called first."""

    def job_due(self, machines: Machines) -> None:
        """Jobs are about to be submitted (message servers only)."""

    def job_started(self, machines: Machines, job_id: str, units: IdSet) -> None:
        """A job has taken machines."""

    def job_ended(self, machines: Machines, job_id: str, units: IdSet, state: JobState) -> None:
        """A job has left its machines."""

    def machines_changed(self, machines: Machines) -> None:
        """The number of machines in some state has changed."""

    def before_switch(self, machines: Machines) -> None:
        """Power states are about to change."""

    def power_state_changed(self, machines: Machines, units: IdSet, power_state: int) -> None:
        """Machines are in a new power state, or on their way: TO_COMPUTATION, TO_SLEEP."""


class Machines(MachineStates):
    """All machines of one simulation, with power and energy."""

    def __init__(
        self, physics: Physics, *, energy: bool = True, exact: bool = False, stay_computing: bool = False
    ) -> None:
        platform = physics.platform
        if platform is None:
            raise RunError("this world has no platform: its hosts have no power states")
        super().__init__(platform.hosts, platform.compute_count, stay_computing=stay_computing)
        self._physics = physics
        self.agenda = physics.agenda
        self._exact = exact
        self.tracers: list[Tracer] = []
        self._energy_before: dict[str, float] = {}
        self.meters: list[Meter] = []
        if energy:
            known: dict[str, list[PowerRange]] = {}
            self.meters = [
                Meter(host, processor, power_ranges(host, platform.where, known))
                for host, processor in zip(platform.hosts, physics.demands.processors, strict=True)
            ]

    @property
    def now(self) -> float:
        return self.agenda.now

    def add(self, tracer: Tracer) -> None:
        """From now on this tracer is called."""
        self.tracers.append(tracer)
        tracer.began(self)

    def tell(self) -> None:
        """The number of machines in some state has changed."""
        for tracer in self.tracers:
            tracer.machines_changed(self)

    # ---- jobs

    def join(self, units: IdSet, job_id: str) -> None:
        """A job starts here."""
        self.occupy(units, job_id, self.agenda.now)
        if self.meters or self.tracers:
            self.note_start(units, job_id)

    def leave(self, units: IdSet, job_id: str, state: JobState = JobState.SUCCEEDED) -> float | None:
        """A job that joined is over; the joules of its machines meanwhile, if energy is simulated."""
        self.release(units, job_id, self.agenda.now)
        return self.note_end(units, job_id, state) if self.meters or self.tracers else None

    def note_start(self, units: IdSet, job_id: str) -> None:
        """A job has occupied machines: its energy counts from now on."""
        if self.meters:
            self._energy_before[job_id] = self.energy_j(units)
        for tracer in self.tracers:
            tracer.job_started(self, job_id, units)
            tracer.machines_changed(self)

    def note_end(self, units: IdSet, job_id: str, state: JobState) -> float | None:
        """A job has released machines; the joules that they used meanwhile."""
        before = self._energy_before.pop(job_id, None) if self.meters else None
        for tracer in self.tracers:
            tracer.job_ended(self, job_id, units, state)
            tracer.machines_changed(self)
        return None if before is None else self.energy_j(units) - before

    # ---- power states

    def set_pstate(self, units: IdSet, pstate: int) -> None:
        """Changes the power state at once; running tasks go on at the new speed."""
        self.tell_switch()
        for number in units:
            self.change(self.machines[number], pstate)
        self.tell_power(units, pstate)

    def tell_switch(self) -> None:
        """Power states are about to change, or have changed at the end of a switch."""
        for tracer in self.tracers:
            tracer.before_switch(self)

    def tell_power(self, units: IdSet, pstate: int) -> None:
        for tracer in self.tracers:
            tracer.power_state_changed(self, units, pstate)

    def change(self, machine: Machine, pstate: int) -> None:
        """Gives one machine another power state."""
        if not 0 <= pstate < len(machine.speeds):
            raise RunError(f"host {machine.name} has no power state {pstate}: it has {len(machine.speeds)}")
        number, physics = machine.number, self._physics
        if self.meters:
            self.meters[number].read(self.now, machine.power_state)
        processor: Processor = physics.demands.processors[number]
        if physics.probes is not None:
            physics.probes.before_power_state(processor)
        machine.power_state = pstate
        self.note_power(machine)
        processor.speed = machine.speeds[pstate]
        physics.fluid.set_capacity(processor, processor.speed * processor.cores, physics.demands.bound_of)

    def switch(self, units: IdSet, pstate: int, done: Callable[[], None]) -> None:
        """Switches machines on or off through their transition states; `done` is called when all have arrived."""
        transitions = self.begin_switch(units, pstate)
        left = len(transitions)

        def arrived(machine: Machine) -> None:
            nonlocal left
            self.end_switch(machine, pstate)
            left -= 1
            if not left:
                self.tell_power(units, pstate)
                self.tell()
                done()

        for machine, transition in transitions:
            self.agenda.after(1.0 / machine.speeds[transition], arrived, machine)

    def begin_switch(self, units: IdSet, pstate: int) -> list[tuple[Machine, int]]:
        """Sends machines on their way; returns each with its transition state. RunError: why there is no way."""
        ways = [(self.machines[unit], self._transition(self.machines[unit], pstate)) for unit in units]
        self.tell_switch()
        self.grouped_switches += 1
        self.switched_machines += len(ways)
        goes_off = bool(ways) and pstate in ways[0][0].sleep_states
        state = MachineState.SWITCHING_OFF if goes_off else MachineState.SWITCHING_ON
        for machine, transition in ways:
            self.change(machine, transition)
            self.to(machine, state, self.now)
        self.tell_power(units, TO_SLEEP if goes_off else TO_COMPUTATION)
        self.tell()
        return ways

    def end_switch(self, machine: Machine, pstate: int) -> None:
        """One machine has arrived."""
        self.change(machine, pstate)
        asleep = pstate in machine.sleep_states
        self.to(machine, MachineState.SLEEPING if asleep else MachineState.IDLE, self.now)

    @staticmethod
    def _transition(machine: Machine, target: int) -> int:
        """The transition state on the way from the present power state to another, or why there is none."""
        name = f"Invalid turning ON/OFF of host {machine.number} ('{machine.name}')"
        states = f"(current: {machine.power_state} target: {target})"
        if machine.users:
            raise RunError(f"{name}: jobs are running on machine {machine.number}")
        if machine.state in (MachineState.SWITCHING_ON, MachineState.SWITCHING_OFF):
            raise RunError(f"{name}: it is {machine.state.name.lower()} already {states}")
        if target >= len(machine.speeds):
            raise RunError(f"{name}: it has no pstate {target}")
        asleep = machine.sleep_states.get(machine.power_state)
        if asleep is None:
            if target not in machine.sleep_states:
                raise RunError(f"{name}: Asked to turn ON a host already in a computing pstate {states}")
            return machine.sleep_states[target].going_off
        if not machine.is_computation_state(target):
            raise RunError(f"{name}: Asked to turn OFF a host already in a sleep pstate {states}")
        return asleep.coming_on

    # ---- energy

    def energy_j(self, units: Iterable[int] | None = None) -> float:
        """Joules since 0 of these machines, or of all."""
        now, machines, meters = self.now, self.machines, self.meters
        if not meters:
            raise RunError("energy is not simulated in this run")
        numbers = range(len(meters)) if units is None else units
        # One after another, as Batsim adds them: since Python 3.12 `sum` corrects its rounding, and would differ in the last bit.
        return reduce(add, (meters[number].read(now, machines[number].power_state) for number in numbers), 0)

    def power_w(self, number: int) -> float:
        """What a machine draws at this moment."""
        return self.meters[number].power(self.machines[number].power_state)

    def least_power_w(self) -> float:
        """What all machines draw when each computes as little as possible."""
        return sum(
            meter.range(machine.power_state).epsilon for meter, machine in zip(self.meters, self.machines, strict=True)
        )

    def before_rates_change(self, flows: Iterable[Flow]) -> None:
        """The time before counts with the old rates, if meters are exact."""
        if self._exact:
            for flow in flows:
                self.read(flow)

    def before_start(self, flow: Flow) -> None:
        """A flow is about to start: the time before counts without it.

        QUIRK: SimGrid reads no meter when a task on several hosts starts, so that the time since the last reading counts
        with its load; only an exact meter, or a task on one host, is read (test_machines.py).
        """
        if self._exact or len(flow.hosts) == 1:
            self.read(flow)

    def woke(self, number: int) -> None:
        """A job has slept on this host; SimGrid reads the host's meter then."""
        if self.meters:
            self.meters[number].read(self.now, self.machines[number].power_state)

    def read(self, flow: Flow) -> None:
        """A flow is about to end on these machines."""
        if self.meters:
            now = self.now
            for number in flow.hosts:
                self.meters[number].read(now, self.machines[number].power_state)

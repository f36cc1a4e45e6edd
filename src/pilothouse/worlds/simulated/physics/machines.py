"""Machines with power: what each host is doing, in which power state it is, and what energy it has used.

In: starts and ends of jobs, changes of power state, switches on and off. Out: counts and times by state, energy, and
calls of each `Tracer`. A switch goes through a transition state: the host computes one flop at that state's speed, so it
takes 1/speed seconds. Computation states (model/power_states.py) change at once, also under running jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pilothouse.model.errors import RunError
from pilothouse.model.idset import IdSet
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.simulated.physics.demand import Processor
from pilothouse.worlds.simulated.physics.energy import Meter, PowerRange, power_ranges
from pilothouse.worlds.simulated.physics.machine_states import Machine, MachineState, MachineStates
from pilothouse.worlds.simulated.physics.sharing import Flow

if TYPE_CHECKING:
    from pilothouse.worlds.simulated.physics.execution import Physics

TO_COMPUTATION, TO_SLEEP = -1, -2
"""What a switch is traced as until it is done."""


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
    """All machines of one simulation."""

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
        return sum(meters[number].read(now, machines[number].power_state) for number in numbers)

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

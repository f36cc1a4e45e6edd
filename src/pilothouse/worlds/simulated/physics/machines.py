"""Machines: what each host is doing, in which power state it is, and what energy it has used.

In: starts and ends of jobs, changes of power state, switches on and off. Out: counts and times by state, energy, and
rows for whoever traces (`Tracer`). A switch goes through a transition state: the host computes one flop at that
state's speed, so it takes 1/speed seconds. Computation states (model/power_states.py) change at once, also under
running jobs.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pilothouse.model.errors import RunError
from pilothouse.model.idset import IdSet
from pilothouse.model.power_states import sleep_states
from pilothouse.worlds.simulated.physics.demand import Processor
from pilothouse.worlds.simulated.physics.energy import Meter, PowerRange, power_ranges
from pilothouse.worlds.simulated.physics.platform import Platform
from pilothouse.worlds.simulated.physics.sharing import Flow

if TYPE_CHECKING:
    from pilothouse.worlds.simulated.physics.execution import Physics


class MachineState(enum.IntEnum):
    SLEEPING = 0
    SWITCHING_ON = 1
    SWITCHING_OFF = 2
    IDLE = 3
    COMPUTING = 4
    UNAVAILABLE = 5


class Tracer:
    """Gets told what happens to machines; every method may be left out."""

    def began(self, machines: Machines) -> None:
        """The first thing that is told."""

    def job_started(self, machines: Machines) -> None:
        """A job has taken machines."""

    def job_ended(self, machines: Machines) -> None:
        """A job has left its machines."""

    def machines_changed(self, machines: Machines) -> None:
        """The number of machines in some state is another one now."""

    def power_state_changed(self, now: float, units: IdSet, pstate: int) -> None:
        """Machines are in a new power state; -1: on their way to computing, -2: to sleep."""


class Machines:
    """All machines of one simulation."""

    def __init__(self, physics: Physics, *, energy: bool = True, exact: bool = False) -> None:
        platform = physics.platform
        if platform is None:
            raise RunError("this world has no platform: its hosts have no power states")
        self._physics = physics
        self._platform: Platform = platform
        self._exact = exact
        self.tracers: list[Tracer] = []
        hosts = platform.hosts
        self.states = [MachineState.IDLE] * len(hosts)
        self.pstates = [host.pstate for host in hosts]
        self.counts = [0] * len(MachineState)
        self.counts[MachineState.IDLE] = len(hosts)
        self.seconds = [0.0] * len(MachineState)
        """Machine-seconds in each state, summed when a machine leaves it."""
        self.switches = 0
        self.switched_groups = 0
        self._since = [0.0] * len(hosts)
        self._jobs = [0] * len(hosts)
        self._energy_before: dict[str, float] = {}
        known: dict[str, list[PowerRange]] = {}
        processors = physics.demands.processors
        self.meters = (
            [
                Meter(host, processor, power_ranges(host, platform.where, known))
                for host, processor in zip(hosts, processors, strict=True)
            ]
            if energy
            else []
        )

    @property
    def now(self) -> float:
        return self._physics.agenda.now

    def add(self, tracer: Tracer) -> None:
        """From now on this tracer is told everything."""
        self.tracers.append(tracer)
        tracer.began(self)

    def spent(self) -> list[float]:
        """Machine-seconds in each state up to now."""
        seconds = list(self.seconds)
        for state, since in zip(self.states, self._since, strict=True):
            seconds[state] += self.now - since
        return seconds

    # ---- jobs

    def job_started(self, units: IdSet) -> None:
        for number in units:
            self._jobs[number] += 1
            if self._jobs[number] == 1:
                self._enter(number, MachineState.COMPUTING)
        self._tell()

    def job_ended(self, units: IdSet) -> None:
        for number in units:
            self._jobs[number] -= 1
            if not self._jobs[number] and self.states[number] is MachineState.COMPUTING:
                self._enter(number, MachineState.IDLE)
        self._tell()

    def join(self, units: IdSet, job_id: str) -> None:
        """A job starts here: its energy counts from now on."""
        self.job_started(units)
        for tracer in self.tracers:
            tracer.job_started(self)
        if self.meters:
            self._energy_before[job_id] = self.energy_j(units)

    def leave(self, units: IdSet, job_id: str) -> float | None:
        """A job that joined is over; the joules of its machines meanwhile, if energy is simulated."""
        self.job_ended(units)
        for tracer in self.tracers:
            tracer.job_ended(self)
        before = self._energy_before.pop(job_id, None)
        return None if before is None else self.energy_j(units) - before

    def set_available(self, units: IdSet, available: bool) -> None:
        """Machines may be taken away for new jobs; what runs goes on."""
        for number in units:
            if available and self.states[number] is MachineState.UNAVAILABLE:
                self._enter(number, MachineState.COMPUTING if self._jobs[number] else MachineState.IDLE)
            elif not available:
                self._enter(number, MachineState.UNAVAILABLE)
        self._tell()

    def _enter(self, number: int, state: MachineState) -> None:
        now = self._physics.agenda.now
        old = self.states[number]
        self.seconds[old] += now - self._since[number]
        self._since[number] = now
        self.counts[old] -= 1
        self.counts[state] += 1
        self.states[number] = state

    def _tell(self) -> None:
        for tracer in self.tracers:
            tracer.machines_changed(self)

    # ---- power states

    def set_pstate(self, units: IdSet, pstate: int) -> None:
        """Changes the power state at once; running tasks go on at the new speed."""
        for number in units:
            self._change(number, pstate)
        for tracer in self.tracers:
            tracer.power_state_changed(self._physics.agenda.now, units, pstate)

    def _change(self, number: int, pstate: int) -> None:
        host = self._platform.hosts[number]
        if not 0 <= pstate < len(host.speeds):
            raise RunError(f"host {host.name} has no power state {pstate}: it has {len(host.speeds)}")
        if self.meters:
            self.meters[number].read(self._physics.agenda.now, self.pstates[number])
        demands = self._physics.demands
        processor: Processor = demands.processors[number]
        if self._physics.probes is not None:
            self._physics.probes.before_power_state(processor)
        self.pstates[number] = pstate
        processor.speed = host.speeds[pstate]
        self._physics.fluid.set_capacity(processor, processor.speed * processor.cores, demands.bound_of)

    def switch(self, units: IdSet, pstate: int, done: Callable[[], None]) -> None:
        """Switches machines on or off through their transition states; `done` is called when all have arrived."""
        ways = [self._way(number, pstate) for number in units]
        left = len(ways)
        self.switched_groups += 1
        self.switches += left

        def arrived(number: int) -> None:
            nonlocal left
            self._change(number, pstate)
            self._enter(
                number, MachineState.SLEEPING if ways[0][1] is MachineState.SWITCHING_OFF else MachineState.IDLE
            )
            left -= 1
            if not left:
                for tracer in self.tracers:
                    tracer.power_state_changed(self._physics.agenda.now, units, pstate)
                self._tell()
                done()

        agenda = self._physics.agenda
        for number, (transition, state) in zip(units, ways, strict=True):
            self._change(number, transition)
            self._enter(number, state)
            agenda.at(agenda.now + 1.0 / self._platform.hosts[number].speeds[transition], arrived, number)
        goes_on = ways[0][1] is MachineState.SWITCHING_ON
        for tracer in self.tracers:
            tracer.power_state_changed(agenda.now, units, -1 if goes_on else -2)
        self._tell()

    def _way(self, number: int, pstate: int) -> tuple[int, MachineState]:
        """The transition state on the way from the present power state to another, or why there is none."""
        host = self._platform.hosts[number]
        sleeps = sleep_states(host)
        asleep = sleeps.get(self.pstates[number])
        if self.states[number] in (MachineState.SWITCHING_ON, MachineState.SWITCHING_OFF):
            raise RunError(f"host {host.name} is being switched already")
        if self._jobs[number]:
            raise RunError(f"host {host.name} cannot be switched: jobs are running on it")
        if asleep is None and pstate not in sleeps:
            raise RunError(f"host {host.name} is on, and {pstate} is no sleep state: nothing to switch")
        if asleep is not None and pstate in sleeps:
            raise RunError(f"host {host.name} sleeps, and {pstate} is a sleep state: nothing to switch")
        if asleep is None:
            return sleeps[pstate].going_off, MachineState.SWITCHING_OFF
        return asleep.coming_on, MachineState.SWITCHING_ON

    # ---- energy

    def energy_j(self, units: Iterable[int] | None = None) -> float:
        """Joules since 0 of these machines, or of all."""
        now, pstates, meters = self._physics.agenda.now, self.pstates, self.meters
        if not meters:
            raise RunError("energy is not simulated in this run")
        numbers = range(len(meters)) if units is None else units
        return sum(meters[number].read(now, pstates[number]) for number in numbers)

    def power_w(self, number: int) -> float:
        """What a machine draws at this moment."""
        return self.meters[number].power(self.pstates[number])

    def least_power_w(self) -> float:
        """What all machines would draw if none computed."""
        return sum(meter.range(pstate).idle for meter, pstate in zip(self.meters, self.pstates, strict=True))

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
            self.meters[number].read(self._physics.agenda.now, self.pstates[number])

    def read(self, flow: Flow) -> None:
        """A flow is about to end on these machines."""
        if self.meters:
            now = self._physics.agenda.now
            for number in flow.hosts:
                self.meters[number].read(now, self.pstates[number])


"""Decisions about power: switches of machines, power states, energy.

In: SetPowerState and SwitchUnits, which Batsim 4 has under one name, and MeasureEnergy. Out: UnitsSwitched once all
machines of a request are there, PowerStateChanged, EnergyMeasured. Computation states change at once. On the way to
sleep and back a machine is in a transition state for as long as one flop takes there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import RunError
from pilothouse.model.idset import IdSet
from pilothouse.worlds.simulated.message_server.rounds import Actor, Mailbox, receive
from pilothouse.worlds.simulated.message_server.unit_messages import send_from
from pilothouse.worlds.simulated.physics.machines import TO_COMPUTATION, TO_SLEEP, Machine, MachineState
from pilothouse.worlds.simulated.physics.sharing import Flow

if TYPE_CHECKING:
    from pilothouse.worlds.simulated.message_server.server import Server

TO_NOWHERE = -42
"""What a request for a transition state is traced as (Batsim 4)."""


def _arrival(server: Server, units: IdSet, target: int) -> Callable[[IdSet], bool]:
    """A function that notes machines of a request that are there. The last ones are told; then it returns True."""
    missing = units

    def arrived(there: IdSet) -> bool:
        nonlocal missing
        missing -= there
        if missing:
            return False
        if server.rules.switch_ends_metered:
            server.machines.tell_switch()
        server.machines.tell_power(units, target)
        server.tell(e.UnitsSwitched(server.agenda.now, units, target))
        return True

    return arrived


def _transit(server: Server, machine: Machine, target: int, arrived: Callable[[IdSet], bool]) -> Actor:
    """A machine that is in a transition state: it computes one flop, enters the target state, and tells the server."""
    here = Mailbox()

    def computed(_: Flow) -> None:
        if here.receiver is not None:
            server.rounds.start(here.receiver)
            here.receiver = None

    server.physics.start_flow(server.physics.demands.task((machine.number,), (1.0,), (), computed))
    yield receive(here)
    server.machines.end_switch(machine, target)

    def heard(_: object) -> None:
        server.pending -= 1
        if arrived(IdSet(1 << machine.number)):
            server.machines.tell()

    yield from send_from(server, machine.number, heard)


# ---- Batsim 5


def on_power_state(server: Server, decision: d.SetPowerState) -> None:
    """At once, also under running jobs."""
    units, target = decision.units, decision.power_state
    for machine in _machines(server, units):
        if target >= len(machine.speeds):
            detail = f"machine {machine.number} ('{machine.name}') has {len(machine.speeds)} pstates"
            raise server.refuse("pstate", f"Cannot change to pstate {target}: {detail}")
    server.machines.set_pstate(units, target)
    server.tell(e.PowerStateChanged(server.agenda.now, units, target))


def _machines(server: Server, units: IdSet) -> list[Machine]:
    unknown = units.mask >> len(server.machines)
    if unknown:
        first = IdSet(unknown << len(server.machines)).first()
        raise server.refuse("unknown machine", f"Machine {first} does not exist")
    return [server.machines[unit] for unit in units]


def on_switch(server: Server, decision: d.SwitchUnits) -> Sequence[Actor]:
    units, target = decision.units, decision.power_state
    if not _machines(server, units):
        raise server.refuse("empty switch", "Asked to switch no host at all")
    try:
        transitions = server.machines.begin_switch(units, target)
    except RunError as problem:
        raise server.refuse("switch", str(problem)) from None
    server.pending += len(transitions)
    arrived = _arrival(server, units, target)
    return [_transit(server, machine, target, arrived) for machine, _ in transitions]


# ---- Batsim 4


def on_resource_state(server: Server, decision: d.SetPowerState | d.SwitchUnits) -> Sequence[Actor]:
    if not server.begins.energy:
        raise server.refuse("energy", "a power state was asked for, and energy is not enabled (-E)")
    return _set_resource_state(server, decision)


def on_resource_state_of_2(server: Server, decision: d.SetPowerState | d.SwitchUnits) -> Sequence[Actor]:
    """Batsim 2 does not ask whether energy is enabled, and changes no machine that computes."""
    for unit in decision.units:
        if unit < len(server.machines) and (users := server.machines[unit].users):
            name = server.machines[unit].name
            raise server.refuse("machine in use", f"the state of {name} cannot change: {', '.join(users)} run on it")
    return _set_resource_state(server, decision)


def _set_resource_state(server: Server, decision: d.SetPowerState | d.SwitchUnits) -> Sequence[Actor]:
    units, target, machines = decision.units, decision.power_state, server.machines
    if not units:
        raise server.refuse("empty set", "no resource was named")
    if units.mask >> len(machines):
        raise server.refuse("unknown resource", f"there is no resource {units}")
    for tracer in machines.tracers:
        tracer.before_switch(machines)
    machines.grouped_switches += 1
    machines.switched_machines += len(units)
    first = machines[units.first()]
    mark = TO_SLEEP if target in first.sleep_states else TO_NOWHERE
    machines.tell_power(units, TO_COMPUTATION if first.is_computation_state(target) else mark)
    arrived = _arrival(server, units, target)
    actors: list[Actor] = []
    for unit in units:
        actors += _switch_one(server, machines[unit], target, arrived)
    machines.tell()
    return actors


def _switch_one(
    server: Server, machine: Machine, target: int, arrived: Callable[[IdSet], bool]
) -> Sequence[Actor]:
    count = len(machine.speeds)
    if not 0 <= target < count:
        detail = f"{machine.name} has the power states 0 to {count - 1}, and {target} was asked for"
        raise server.refuse("unknown power state", detail)
    machines = server.machines
    asleep = machine.sleep_states.get(machine.power_state)
    to_computation = machine.is_computation_state(target)
    if machine.is_computation_state(machine.power_state):
        if to_computation:
            machines.change(machine, target)
            arrived(IdSet(1 << machine.number))
            return ()
        if target not in machine.sleep_states:
            # QUIRK: a transition state is no state to be in; Batsim logs an error, does nothing, and never answers.
            return ()
        if machine.users:
            raise server.refuse("machine in use", f"{machine.name} cannot sleep: {', '.join(machine.users)} run on it")
        transition, state = machine.sleep_states[target].going_off, MachineState.SWITCHING_OFF
    elif asleep is None:
        return ()  # QUIRK: it is on its way between two states; Batsim logs that too, and never answers.
    elif not to_computation:
        raise server.refuse("power state", f"{machine.name} sleeps, and can only be switched to a computation state")
    else:
        transition, state = asleep.coming_on, MachineState.SWITCHING_ON
    machines.to(machine, state, server.agenda.now)
    machines.change(machine, transition)
    server.pending += 1
    return (_transit(server, machine, target, arrived),)


def on_measure_energy(server: Server, decision: d.MeasureEnergy) -> None:
    if not server.begins.energy:
        raise server.refuse("energy", "the consumed energy was asked for, and energy is not enabled (-E)")
    server.tell(e.EnergyMeasured(server.agenda.now, server.machines.energy_j()))


def on_measure_energy_of_2(server: Server, decision: d.MeasureEnergy) -> None:
    """Batsim 2 answers -1 where energy is not enabled."""
    joules = server.machines.energy_j() if server.begins.energy else -1.0
    server.tell(e.EnergyMeasured(server.agenda.now, joules))

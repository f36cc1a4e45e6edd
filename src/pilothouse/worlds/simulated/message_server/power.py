"""How a message server switches machines: at once between computation states, through a transition to sleep and back.

In: the orders SetPowerState and SwitchUnits, which Batsim 4 has under one name. Out: UnitsSwitched once all machines
of a request are there. A transition takes as long as one flop takes at the speed of the transition's own power state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.worlds.simulated.message_server.machine_book import Machine
from pilothouse.worlds.simulated.message_server.rounds import Actor, sleep
from pilothouse.worlds.simulated.physics.machines import MachineState

if TYPE_CHECKING:
    from pilothouse.worlds.simulated.message_server.server import Server

TO_COMPUTATION, TO_SLEEP, TO_NOWHERE = -1, -2, -42
"""What a request is traced as until it is done: going to a computation state, to sleep, or to no state to be in."""


class Switch(msgspec.Struct, eq=False):
    """One request: which machines still are on their way."""

    units: IdSet
    power_state: int
    missing: IdSet


def on_power_state(server: Server, order: d.SetPowerState | d.SwitchUnits) -> Sequence[Actor]:
    units, target = order.units, order.power_state
    if not server.begins.energy:
        raise server.refuse("energy", "a power state was asked for, and energy is not enabled (-E)")
    if not units:
        raise server.refuse("empty set", "no resource was named")
    if units.mask >> len(server.machines):
        raise server.refuse("unknown resource", f"there is no resource {units}")
    server.watcher.before_switch(server)
    switch = Switch(units, target, units)
    server.machines.grouped_switches += 1
    server.machines.switched_machines += len(units)
    server.watcher.switch_asked(server, units, _trace_mark(server.machines[units.first()], target))
    actors: list[Actor] = []
    for unit in units:
        actors.extend(_switch_one(server, server.machines[unit], switch))
    server.watcher.machines_changed(server)
    return actors


def _trace_mark(first: Machine, target: int) -> int:
    if first.is_computation_state(target):
        return TO_COMPUTATION
    return TO_SLEEP if target in first.sleep_states else TO_NOWHERE


def _switch_one(server: Server, machine: Machine, switch: Switch) -> Sequence[Actor]:
    target, now = switch.power_state, server.agenda.now
    if target >= machine.power_states or target < 0:
        detail = f"{machine.name} has the power states 0 to {machine.power_states - 1}, and {target} was asked for"
        raise server.refuse("unknown power state", detail)
    asleep = machine.sleep_states.get(machine.power_state)
    if machine.is_computation_state(machine.power_state):
        if machine.is_computation_state(target):
            _set(server, machine, target)
            _done(server, machine, switch)
            return ()
        sleep_state = machine.sleep_states.get(target)
        if sleep_state is None:
            # QUIRK: a transition state is no state to be in; Batsim logs an error, does nothing, and never answers.
            return ()
        if machine.users:
            raise server.refuse("machine in use", f"{machine.name} cannot sleep: {', '.join(machine.users)} run on it")
        server.machines.to(machine, MachineState.SWITCHING_OFF, now)
        server.pending += 1
        return (_transit(server, machine, switch, sleep_state.going_off),)
    if asleep is None:
        return ()  # QUIRK: it is on its way between two states; Batsim logs that too, and never answers.
    if not machine.is_computation_state(target):
        raise server.refuse("power state", f"{machine.name} sleeps, and can only be switched to a computation state")
    server.machines.to(machine, MachineState.SWITCHING_ON, now)
    server.pending += 1
    return (_transit(server, machine, switch, asleep.coming_on),)


def _set(server: Server, machine: Machine, power_state: int) -> None:
    machine.power_state = power_state
    assert server.physics.machines is not None
    server.physics.machines.set_pstate(IdSet(1 << machine.number), power_state)


def _transit(server: Server, machine: Machine, switch: Switch, transition: int) -> Actor:
    """An actor on the machine itself: the transition's power state for one flop, then the target's."""
    _set(server, machine, transition)
    yield sleep(1.0 / server.speed(machine.number, transition))
    _set(server, machine, switch.power_state)
    to_sleep = switch.power_state in machine.sleep_states
    server.machines.to(machine, MachineState.SLEEPING if to_sleep else MachineState.IDLE, server.agenda.now)
    yield server.send(lambda _: _on_switched(server, machine, switch), unit=machine.number)


def _on_switched(server: Server, machine: Machine, switch: Switch) -> None:
    server.pending -= 1
    if _done(server, machine, switch):
        server.watcher.machines_changed(server)


def _done(server: Server, machine: Machine, switch: Switch) -> bool:
    switch.missing -= IdSet(1 << machine.number)
    if switch.missing:
        return False
    server.watcher.switch_done(server, switch.units, switch.power_state)
    server.tell(e.UnitsSwitched(server.agenda.now, switch.units, switch.power_state))
    return True


def on_measure_energy(server: Server, order: d.MeasureEnergy) -> None:
    if not server.begins.energy:
        raise server.refuse("energy", "the consumed energy was asked for, and energy is not enabled (-E)")
    server.tell(e.EnergyMeasured(server.agenda.now, server.energy_j()))

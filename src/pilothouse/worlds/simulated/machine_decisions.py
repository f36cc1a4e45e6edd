"""Decisions that concern machines rather than the queue: power states, switches, energy, probes, messages to jobs.

In: a decision and the physics. Out: events through `tell`. A world hands every decision of these kinds to `carry_out`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import RunError
from pilothouse.model.idset import IdSet
from pilothouse.worlds.simulated.physics.execution import Physics, Run
from pilothouse.worlds.simulated.physics.machines import Machines


class MachineDecisions:
    """Carries out decisions about machines. `runs` are the jobs that run at present, by id."""

    def __init__(self, physics: Physics, runs: Mapping[str, Run], tell: Callable[[e.Event], None]) -> None:
        self._physics = physics
        self._runs = runs
        self._tell = tell
        self._kinds: dict[type, Callable[[Any], None]] = {
            d.SetPowerState: self._set_power_state,
            d.SwitchUnits: self._switch,
            d.MeasureEnergy: self._measure,
            d.CreateProbe: lambda decision: physics.need_probes(tell).create(decision),
            d.TriggerProbe: lambda decision: physics.need_probes(tell).trigger(decision),
            d.ResetProbe: lambda decision: physics.need_probes(tell).reset(decision),
            d.StopProbe: lambda decision: physics.need_probes(tell).stop(decision),
            d.SendToJob: self._send,
        }

    KINDS = (
        d.SetPowerState,
        d.SwitchUnits,
        d.MeasureEnergy,
        d.CreateProbe,
        d.TriggerProbe,
        d.ResetProbe,
        d.StopProbe,
        d.SendToJob,
    )

    def carry_out(self, decision: d.Decision) -> None:
        self._kinds[type(decision)](decision)

    def _machines(self, units: IdSet) -> Machines:
        known = self._physics.machines is not None
        machines = self._physics.need_machines()
        if not known:  # The jobs that run already are new to them.
            for run in self._runs.values():
                machines.occupy(run.units, run.job.id, machines.now)
        if not units or units.mask >> len(machines):
            raise RunError(f"machines {str(units)!r} do not all exist")
        return machines

    def _set_power_state(self, decision: d.SetPowerState) -> None:
        self._machines(decision.units).set_pstate(decision.units, decision.power_state)
        self._tell(e.PowerStateChanged(self._physics.agenda.now, decision.units, decision.power_state))

    def _switch(self, decision: d.SwitchUnits) -> None:
        def done() -> None:
            self._tell(e.UnitsSwitched(self._physics.agenda.now, decision.units, decision.power_state))

        self._machines(decision.units).switch(decision.units, decision.power_state, done)

    def _measure(self, decision: d.MeasureEnergy) -> None:
        del decision
        machines = self._physics.machines
        if machines is None:
            raise RunError("energy is not simulated in this run")
        self._tell(e.EnergyMeasured(self._physics.agenda.now, machines.energy_j()))

    def _send(self, decision: d.SendToJob) -> None:
        run = self._runs.get(decision.job_id)
        if run is None:
            raise RunError(f"job {decision.job_id!r} does not run: the message has no receiver")
        run.messages.append(decision.message)

"""The tables of machines: machine_states.csv, pstate_changes.csv and consumed_energy.csv, as Batsim writes them.

In: what a Tracer is told. Out: the tables that were asked for, written as the run goes, and the figures of machines for
the summary.
"""

from __future__ import annotations

from collections.abc import Callable
from math import fsum
from operator import itemgetter, sub
from typing import TextIO

from pilothouse.launch.output_files import opened
from pilothouse.model.idset import IdSet
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.simulated.physics.machines import Machines, MachineState, Tracer

Figures = dict[str, float | int | str]

_COUNTED = (
    MachineState.SLEEPING,
    MachineState.SWITCHING_ON,
    MachineState.SWITCHING_OFF,
    MachineState.IDLE,
    MachineState.COMPUTING,
)
_of_states = itemgetter(*(state.value for state in _COUNTED))


class MachineTables(Tracer):
    """`prefix` is what the names of files begin with. `opens` opens a file for writing."""

    lists_storage = False
    """Storages are among the machines of the first rows of pstate_changes.csv."""
    energy_format = "f"
    """How numbers are written in consumed_energy.csv."""

    def __init__(
        self,
        prefix: str,
        *,
        energy: bool,
        machine_states: bool = True,
        pstate_changes: bool = True,
        opens: Callable[[str], TextIO] = opened,
    ) -> None:
        self._prefix = prefix
        self._opens = opens
        columns = ",".join(["time", *(f"nb_{state.name.lower()}" for state in _COUNTED)])
        self._states = self._table("machine_states", columns, machine_states)
        self._energy = self._table("consumed_energy", "time,energy,event_type,wattmin,epower", energy)
        self._pstates = self._table("pstate_changes", "time,machine_id,new_pstate", pstate_changes)
        self._machines: Machines | None = None
        self._last_energy: tuple[float, list[float]] = (0.0, [])
        self._joules_at_first_submission: float | None = None
        self._joules_at_last_end = -1.0

    @property
    def tracers(self) -> list[Tracer]:
        """What to give to a world: nothing if no table was asked for."""
        return [self] if self._states or self._energy or self._pstates else []

    def _table(self, name: str, columns: str, wanted: bool) -> TextIO | None:
        if not wanted:
            return None
        stream = self._opens(f"{self._prefix}{name}.csv")
        stream.write(columns + "\n")
        return stream

    # ---- what happens

    def began(self, machines: Machines) -> None:
        self._machines = machines
        if self._pstates is not None:
            for power_state, units in machines.by_power_state(with_storage=self.lists_storage):
                self._pstates.write(f"0,{units},{power_state}\n")

    def job_due(self, machines: Machines) -> None:
        """The energy of the drop-ins' summaries counts from the first submission on."""
        if self._energy is not None and self._joules_at_first_submission is None:
            self._joules_at_first_submission = machines.energy_j()

    def job_started(self, machines: Machines, job_id: str, units: IdSet) -> None:
        if self._energy is not None:
            self._write_energy(machines, "s")

    def job_ended(self, machines: Machines, job_id: str, units: IdSet, state: JobState) -> None:
        if self._energy is not None:
            self._joules_at_last_end = self._write_energy(machines, "e")

    def machines_changed(self, machines: Machines) -> None:
        if self._states is not None:
            sleeping, on, off, idle, computing = _of_states(machines.counts)
            self._states.write(f"{machines.agenda.now:g},{sleeping},{on},{off},{idle},{computing}\n")

    def before_switch(self, machines: Machines) -> None:
        if self._energy is not None:
            self._write_energy(machines, "p")

    def power_state_changed(self, machines: Machines, units: IdSet, power_state: int) -> None:
        if self._pstates is not None:
            self._pstates.write(f"{machines.agenda.now:g},{units},{power_state}\n")

    def _write_energy(self, machines: Machines, kind: str) -> float:
        """Writes a row of consumed_energy.csv; returns the joules so far."""
        assert self._energy is not None
        machines.energy_j()
        now, joules = machines.agenda.now, [meter.joules for meter in machines.meters]
        before, joules_before = self._last_energy
        # Machine by machine: the difference of two large sums would lose what a short time adds.
        added = fsum(map(sub, joules, joules_before)) if joules_before else fsum(joules)
        spec = self.energy_format
        power = f"{added / (now - before):{spec}}" if now > before else "NA"
        total = fsum(joules)
        self._energy.write(f"{now:{spec}},{total:{spec}},{kind},{machines.least_power_w():{spec}},{power}\n")
        self._last_energy = (now, joules)
        return total

    # ---- the end

    def close(self) -> None:
        for stream in (self._states, self._energy, self._pstates):
            if stream is not None:
                stream.close()

    def figures(self) -> Figures:
        """What schedule.json of `pilothouse simulate` says of machines."""
        machines = self._machines
        if machines is None:
            return {}
        found = switch_figures(machines) | time_figures(machines.spent(machines.agenda.now))
        if machines.meters:
            found["consumed_joules"] = machines.energy_j()
        return found


def switch_figures(machines: Machines) -> Figures:
    return {"nb_grouped_switches": machines.grouped_switches, "nb_machine_switches": machines.switched_machines}


def time_figures(seconds: list[float]) -> Figures:
    return {f"time_{state.name.lower()}": seconds[state] for state in MachineState}

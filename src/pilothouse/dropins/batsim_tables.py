"""What the output files of Batsim 4 and of Batsim 5 share: tables that are written as the run goes, and a summary.

In: what a message server lets a Watcher see. Out: `machine_states.csv`, `pstate_changes.csv`, the opening of
`consumed_energy.csv`, and the figures of the summary.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isnan, nan
from operator import itemgetter
from typing import TextIO

from pilothouse.launch.outputs import opened
from pilothouse.model.idset import IdSet
from pilothouse.model.lifecycle import JobState
from pilothouse.model.record import JobRecord
from pilothouse.worlds.simulated.message_server.server import Known, Server, Watcher
from pilothouse.worlds.simulated.physics.machines import MachineState

Figures = dict[str, float | int | str]

_STATES = (
    MachineState.SLEEPING,
    MachineState.SWITCHING_ON,
    MachineState.SWITCHING_OFF,
    MachineState.IDLE,
    MachineState.COMPUTING,
)
_of_states = itemgetter(*_STATES)


class Tables(Watcher):
    """`prefix` is what the names of files begin with, to the letter."""

    def __init__(
        self,
        prefix: str,
        *,
        energy: bool,
        machine_states: bool,
        pstate_changes: bool,
        opens: Callable[[str], TextIO] = opened,
    ) -> None:
        self._prefix = prefix
        self._opens = opens
        columns = ",".join(["time", *(f"nb_{state.name.lower()}" for state in _STATES)])
        self._states = self._table("machine_states", columns, machine_states)
        self._energy = self._table("consumed_energy", "time,energy,event_type,wattmin,epower", energy)
        self._pstates = self._table("pstate_changes", "time,machine_id,new_pstate", pstate_changes)
        self._energy_at_last_end = -1.0
        self.summary = Summary()

    def _table(self, name: str, columns: str, wanted: bool) -> TextIO | None:
        if not wanted:
            return None
        stream = self._opens(f"{self._prefix}{name}.csv")
        stream.write(columns + "\n")
        return stream

    # ---- what happens

    def began(self, server: Server) -> None:
        if self._pstates is not None:
            for power_state, units in server.machines.by_power_state():
                self._pstates.write(f"0,{units},{power_state}\n")

    def job_started(self, server: Server, known: Known) -> None:
        if self._energy is not None:
            assert known.run is not None
            known.energy_j = -server.energy_j(known.run.units)
            self._trace_energy(server, "s")
        self.machines_changed(server)

    def job_left(self, server: Server, known: Known) -> None:
        if self._energy is not None:
            assert known.run is not None and known.energy_j is not None
            known.energy_j += server.energy_j(known.run.units)
            self._energy_at_last_end = self._trace_energy(server, "e")
        self.machines_changed(server)

    def before_switch(self, server: Server) -> None:
        if self._energy is not None:
            self._trace_energy(server, "p")

    def switch_asked(self, server: Server, units: IdSet, mark: int) -> None:
        self._trace_power(server, units, mark)

    def switch_done(self, server: Server, units: IdSet, power_state: int) -> None:
        self._trace_power(server, units, power_state)

    def machines_changed(self, server: Server) -> None:
        if self._states is not None:
            sleeping, on, off, idle, computing = _of_states(server.machines.counts)
            self._states.write(f"{server.agenda.now:g},{sleeping},{on},{off},{idle},{computing}\n")

    def _trace_power(self, server: Server, units: IdSet, power_state: int) -> None:
        if self._pstates is not None:
            self._pstates.write(f"{server.agenda.now:g},{units},{power_state}\n")

    def _trace_energy(self, server: Server, kind: str) -> float:
        """Writes a row of consumed_energy.csv; returns the joules so far. How they are added up differs."""
        raise NotImplementedError

    # ---- the end

    def close_tables(self) -> None:
        for stream in (self._states, self._energy, self._pstates):
            if stream is not None:
                stream.close()

    def figures(self, server: Server) -> Figures:
        """What both summaries hold."""
        machines = server.machines
        return self.summary.columns() | {
            "nb_grouped_switches": machines.grouped_switches,
            "nb_machine_switches": machines.switched_machines,
            **{f"time_{state.name.lower()}": machines.seconds[state] for state in MachineState},
        }


class Summary:
    """Means divide by all jobs, the rejected ones included."""

    def __init__(self) -> None:
        self.jobs = self.finished = self.succeeded = 0
        self.makespan = 0.0
        self._waiting = self._turnaround = self._slowdown = 0.0
        self._most_waiting = self._most_turnaround = self._most_slowdown = 0.0

    def add(self, record: JobRecord) -> None:
        self.jobs += 1
        start = record.started_at
        if start is None:
            return
        self.finished += 1
        self.succeeded += record.state is JobState.SUCCEEDED
        ended, submitted = record.ended_at, record.job.submitted_at
        if ended > self.makespan:
            self.makespan = ended
        waiting, turnaround = start - submitted, ended - submitted
        slowdown = turnaround / (ended - start if record.execution_s is None else record.execution_s)
        self._waiting += waiting
        self._turnaround += turnaround
        self._slowdown += slowdown
        if waiting > self._most_waiting:
            self._most_waiting = waiting
        if turnaround > self._most_turnaround:
            self._most_turnaround = turnaround
        if slowdown > self._most_slowdown:
            self._most_slowdown = slowdown

    def columns(self) -> Figures:
        columns: Figures = {
            "makespan": self.makespan,
            "nb_jobs": self.jobs,
            "nb_jobs_finished": self.finished,
            "nb_jobs_killed": self.finished - self.succeeded,
            "nb_jobs_rejected": self.jobs - self.finished,
            "nb_jobs_success": self.succeeded,
            "success_rate": self.succeeded / self.jobs if self.jobs else nan,
        }
        for name, total, most in (
            ("waiting_time", self._waiting, self._most_waiting),
            ("turnaround_time", self._turnaround, self._most_turnaround),
            ("slowdown", self._slowdown, self._most_slowdown),
        ):
            columns[f"mean_{name}"] = total / self.jobs if self.jobs else nan
            columns[f"max_{name}"] = most
        return columns


def written(value: float | int) -> str:
    """QUIRK: means over no job are written as -nan, also where that is no JSON (golden: do_nothing_ok)."""
    if isinstance(value, float):
        return "-nan" if isnan(value) else f"{value:f}"
    return str(value)

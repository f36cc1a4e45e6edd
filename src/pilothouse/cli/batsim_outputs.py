"""The files that Batsim 5 leaves behind: PREFIX + jobs.csv, schedule.json, real_exec_info.json, and what was asked for.

In: what a message server lets a Watcher see. Out: the files, in Batsim 5's formats. They are written as the run goes,
and kept whatever happens; the summary only of a run that came to its end.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isnan, nan
from pathlib import Path
from typing import TextIO

from pilothouse.cli.batsim4_outputs import Summary
from pilothouse.cli.batsim_options import VERSION
from pilothouse.cli.outputs import opened
from pilothouse.formats.jobs_csv import JobsCsv
from pilothouse.model.idset import IdSet
from pilothouse.model.record import JobRecord
from pilothouse.worlds.simulated.control import Known, Server, Watcher
from pilothouse.worlds.simulated.execution import SHORTEST_RUN_S
from pilothouse.worlds.simulated.machines import MachineState

_STATES = (
    MachineState.SLEEPING,
    MachineState.SWITCHING_ON,
    MachineState.SWITCHING_OFF,
    MachineState.IDLE,
    MachineState.COMPUTING,
)


class Batsim5Outputs(Watcher):
    """`finish` writes the summary."""

    def __init__(
        self,
        prefix: str,
        *,
        energy: bool = False,
        machine_states: bool = False,
        pstate_changes: bool = False,
        opened_to_keep: Callable[[str], TextIO] | None = None,
    ) -> None:
        """`opened_to_keep` opens files that keep what is written to them whatever happens: then nothing waits here."""
        self._prefix = prefix
        self._opened = opened_to_keep or opened
        self._jobs = JobsCsv(self._opened(prefix + "jobs.csv"))
        self._at_once = opened_to_keep is not None
        self._states = self._table(
            "machine_states", "time," + ",".join(f"nb_{state.name.lower()}" for state in _STATES), machine_states
        )
        self._energy = self._table("consumed_energy", "time,energy,event_type,wattmin,epower", energy)
        self._pstates = self._table("pstate_changes", "time,machine_id,new_pstate", pstate_changes)
        self._last_energy = (0.0, 0.0)
        self._energy_at_first_submission: float | None = None
        self._energy_at_last_end = -1.0
        self._first_submission = 0.0
        self.summary = Summary()

    def _table(self, name: str, columns: str, wanted: bool) -> TextIO | None:
        if not wanted:
            return None
        stream = self._opened(f"{self._prefix}{name}.csv")
        stream.write(columns + "\n")
        return stream

    # ---- what happens

    def began(self, server: Server) -> None:
        if self._pstates is not None:
            for power_state, units in server.machines.by_power_state():
                self._pstates.write(f"0,{units},{power_state}\n")

    def note_first_submission(self, server: Server) -> int:
        """Where the summary's energy starts; returns how many hosts had to be asked."""
        if self._energy_at_first_submission is None:
            self._energy_at_first_submission = server.energy_j()
        return len(server.machines)

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

    def job_over(self, record: JobRecord) -> None:
        if record.started_at is not None:
            if record.ended_at <= record.started_at:
                record.ended_at = record.started_at + SHORTEST_RUN_S
            self._first_submission = min(self._first_submission, record.job.submitted_at)
        if self._at_once:
            self._jobs.write_all([record])
        else:
            self._jobs.write(record)
        self.summary.add(record)

    def before_switch(self, server: Server) -> None:
        if self._energy is not None:
            self._trace_energy(server, "p")

    def switch_asked(self, server: Server, units: IdSet, mark: int) -> None:
        self._trace_power(server, units, mark)

    def switch_done(self, server: Server, units: IdSet, power_state: int) -> None:
        self._trace_power(server, units, power_state)

    def machines_changed(self, server: Server) -> None:
        if self._states is not None:
            counts = server.machines.counts
            numbers = ",".join(str(counts[state]) for state in _STATES)
            self._states.write(f"{server.agenda.now:g},{numbers}\n")

    def _trace_power(self, server: Server, units: IdSet, power_state: int) -> None:
        if self._pstates is not None:
            self._pstates.write(f"{server.agenda.now:g},{units},{power_state}\n")

    def _trace_energy(self, server: Server, kind: str) -> float:
        assert self._energy is not None and server.physics.machines is not None
        machines = server.physics.machines
        watts = sum(m.range(pstate).epsilon for m, pstate in zip(machines.meters, machines.pstates, strict=True))
        now, joules = server.agenda.now, server.energy_j()
        before, joules_before = self._last_energy
        power = f"{(joules - joules_before) / (now - before):f}" if now > before else "NA"
        self._energy.write(f"{now:f},{joules:f},{kind},{watts:f},{power}\n")
        self._last_energy = (now, joules)
        return joules

    # ---- the end

    def close(self) -> None:
        """Everything that was written so far reaches the disk."""
        self._jobs.close()
        for stream in (self._states, self._energy, self._pstates):
            if stream is not None:
                stream.close()

    def finish(self, server: Server, *, edc_s: float, simulation_s: float) -> dict[str, float | int | str]:
        """Writes the summary; returns its figures."""
        columns = self.summary.columns()
        makespan = columns["makespan"]
        assert isinstance(makespan, float)
        columns |= {
            "batsim_version": VERSION,
            # QUIRK: counted from 0, or from a submission before it (golden: exec1by1_same_subtime).
            "makespan": makespan - self._first_submission if self.summary.finished else 0.0,
            "consumed_joules": self._joules(),
            "nb_computing_machines": server.machines.compute_count,
            "nb_grouped_switches": server.machines.grouped_switches,
            "nb_machine_switches": server.machines.switched_machines,
        }
        columns |= {f"time_{state.name.lower()}": server.machines.seconds[state] for state in MachineState}
        lines = [f'  "{name}": {_written(columns[name])}' for name in sorted(columns)]
        with opened(self._prefix + "schedule.json") as stream:
            stream.write("{\n" + ",\n".join(lines) + "\n}\n")
        peaks = _memory_peaks()
        info = {**peaks, "time_in_edc_seconds": edc_s, "time_in_simu_seconds": simulation_s - edc_s}
        with opened(self._prefix + "real_exec_info.json") as stream:
            body = ",\n".join(f'  "{name}": {_written(value)}' for name, value in sorted(info.items()))
            stream.write("{\n" + body + "\n}\n")
        return columns

    def _joules(self) -> float:
        if self._energy is None:
            return 0.0
        return self._energy_at_last_end - (self._energy_at_first_submission or 0.0)


def _written(value: float | int | str) -> str:
    """QUIRK: means over no job are written as -nan, which is not JSON (golden: do_nothing_ok)."""
    if isinstance(value, float):
        return "-nan" if isnan(value) else f"{value:f}"
    return str(value) if isinstance(value, int) else f'"{value}"'


def _memory_peaks() -> dict[str, int | float]:
    """The peaks of this process's memory in kB, as the kernel tells them."""
    found: dict[str, int | float] = {"memory_VmHWM_kB": nan, "memory_VmPeak_kB": nan}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if f"memory_{name}_kB" in found:
            found[f"memory_{name}_kB"] = int(rest.split()[0])
    return found

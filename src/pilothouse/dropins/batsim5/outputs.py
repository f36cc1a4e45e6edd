"""The files that Batsim 5 leaves behind: PREFIX + jobs.csv, schedule.json, real_exec_info.json, and what was asked for.

In: what a message server lets a Watcher see. Out: the files, in Batsim 5's formats. They are written as the run goes,
and kept whatever happens; the summary only of a run that came to its end.
"""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from pathlib import Path
from typing import TextIO

from pilothouse.dropins.batsim5.options import VERSION
from pilothouse.dropins.batsim_tables import Figures, Tables, written
from pilothouse.formats.jobs_csv import JobsCsv
from pilothouse.launch.outputs import opened
from pilothouse.model.record import JobRecord
from pilothouse.worlds.simulated.message_server.server import Server
from pilothouse.worlds.simulated.physics.execution import SHORTEST_RUN_S


class Batsim5Outputs(Tables):
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
        opens = opened_to_keep or opened
        self._jobs = JobsCsv(opens(prefix + "jobs.csv"))
        super().__init__(
            prefix, energy=energy, machine_states=machine_states, pstate_changes=pstate_changes, opens=opens
        )
        self._at_once = opened_to_keep is not None
        self._last_energy = (0.0, 0.0)
        self._energy_at_first_submission: float | None = None
        self._first_submission = 0.0

    # ---- what happens

    def note_first_submission(self, server: Server) -> int:
        """Where the summary's energy starts; returns how many hosts had to be asked."""
        if self._energy_at_first_submission is None:
            self._energy_at_first_submission = server.energy_j()
        return len(server.machines)

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
        self.close_tables()

    def finish(self, server: Server, *, edc_s: float, simulation_s: float) -> Figures:
        """Writes the summary; returns its figures."""
        columns = self.figures(server)
        makespan = columns["makespan"]
        assert isinstance(makespan, float)
        columns |= {
            "batsim_version": VERSION,
            # QUIRK: counted from 0, or from a submission before it (golden: exec1by1_same_subtime).
            "makespan": makespan - self._first_submission if self.summary.finished else 0.0,
            "consumed_joules": self._joules(),
            "nb_computing_machines": server.machines.compute_count,
        }
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
    return f'"{value}"' if isinstance(value, str) else written(value)


def _memory_peaks() -> dict[str, int | float]:
    """The peaks of this process's memory in kB, as the kernel tells them."""
    found: dict[str, int | float] = {"memory_VmHWM_kB": nan, "memory_VmPeak_kB": nan}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if f"memory_{name}_kB" in found:
            found[f"memory_{name}_kB"] = int(rest.split()[0])
    return found

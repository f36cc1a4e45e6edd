"""The files that Batsim 5 leaves behind: PREFIX + jobs.csv, schedule.json, real_exec_info.json, and what was asked for.

In: what happens to machines and jobs. Out: the files, in Batsim 5's formats. They are written as the run goes, and kept
whatever happens; the summary only of a run that came to its end.
"""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from pathlib import Path
from typing import TextIO

from pilothouse.dropins.batsim5.options import VERSION
from pilothouse.dropins.batsim_tables import BatsimTables, written
from pilothouse.formats.jobs_csv import JobsCsv
from pilothouse.launch.machine_outputs import Figures
from pilothouse.launch.output_files import opened
from pilothouse.model.record import JobRecord
from pilothouse.worlds.simulated.physics.machines import Machines


class Batsim5Outputs(BatsimTables):
    """`finish` writes the summary. QUIRK: storages count as computing machines (golden: random)."""

    lists_storage = True

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
        super().__init__(
            prefix,
            JobsCsv(opens(prefix + "jobs.csv")),
            energy=energy,
            machine_states=machine_states,
            pstate_changes=pstate_changes,
            opens=opens,
        )
        self.writes_at_once = opened_to_keep is not None
        self._first_submission = 0.0

    def record(self, record: JobRecord) -> None:
        if record.started_at is not None and record.job.submitted_at < self._first_submission:
            self._first_submission = record.job.submitted_at
        super().record(record)

    def finish(self, machines: Machines, *, edc_s: float, simulation_s: float) -> Figures:
        """Writes the summary; returns its figures."""
        figures = self.figures_of(machines, VERSION, len(machines))
        # QUIRK: counted from 0, or from a submission before it (golden: exec1by1_same_subtime).
        figures["makespan"] = self.summary.makespan - self._first_submission if self.summary.finished else 0.0
        self._write_json("schedule.json", figures)
        times: Figures = {"time_in_edc_seconds": edc_s, "time_in_simu_seconds": simulation_s - edc_s}
        self._write_json("real_exec_info.json", _memory_peaks() | times)
        return figures

    def _write_json(self, name: str, figures: Figures) -> None:
        """Strings are quoted; numbers are as Batsim writes them, which may be no JSON."""
        lines = [
            f'  "{key}": ' + (f'"{value}"' if isinstance(value, str) else written(value))
            for key, value in sorted(figures.items())
        ]
        with opened(self._prefix + name) as stream:
            stream.write("{\n" + ",\n".join(lines) + "\n}\n")


def _memory_peaks() -> Figures:
    """The peaks of this process's memory in kB, as the kernel tells them."""
    found: Figures = {"memory_VmHWM_kB": nan, "memory_VmPeak_kB": nan}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if f"memory_{name}_kB" in found:
            found[f"memory_{name}_kB"] = int(rest.split()[0])
    return found

"""What the output files of Batsim 4 and of Batsim 5 share: jobs.csv, the tables of machines, and a summary."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan, nan
from typing import TextIO

from pilothouse.formats.jobs_csv import JobsCsv
from pilothouse.launch.machine_outputs import Figures, MachineTables, switch_figures, time_figures
from pilothouse.launch.output_files import opened
from pilothouse.model.lifecycle import JobState
from pilothouse.model.record import JobRecord
from pilothouse.worlds.simulated.physics.execution import SHORTEST_RUN_S
from pilothouse.worlds.simulated.physics.machines import Machines


class BatsimTables(MachineTables):
    """`record` takes a job that is over; `close` makes the tables complete; `figures_of` is what a summary holds."""

    jobs: JobsCsv
    writes_at_once = False
    """No row of a job waits here for others."""
    joules_before_submission = -1.0
    """The energy at the first submission of a run without any."""

    def __init__(
        self,
        prefix: str,
        jobs: JobsCsv,
        *,
        energy: bool,
        machine_states: bool,
        pstate_changes: bool,
        opens: Callable[[str], TextIO] = opened,
    ) -> None:
        self.jobs = jobs
        super().__init__(
            prefix, energy=energy, machine_states=machine_states, pstate_changes=pstate_changes, opens=opens
        )
        self.summary = Summary()

    def record(self, record: JobRecord) -> None:
        start = record.started_at
        if start is not None and record.ended_at <= start:
            record.ended_at = start + SHORTEST_RUN_S
            record.execution_s = SHORTEST_RUN_S
        if self.writes_at_once:
            self.jobs.write_all([record])
        else:
            self.jobs.write(record)
        self.summary.add(record)

    def close(self) -> None:
        self.jobs.close()
        super().close()

    def figures_of(self, machines: Machines, version: str, machine_count: int) -> Figures:
        return (
            self.summary.columns()
            | switch_figures(machines)
            | time_figures(machines.seconds)
            | {
                "batsim_version": version,
                "consumed_joules": self._consumed(),
                "nb_computing_machines": machine_count,
            }
        )

    def _consumed(self) -> float:
        if self._energy is None:
            return 0.0
        first = self._joules_at_first_submission
        return self._joules_at_last_end - (self.joules_before_submission if first is None else first)


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


def written(value: float | int | str) -> str:
    """QUIRK: means over no job are written as -nan, also where that is no JSON (golden: do_nothing_ok)."""
    if isinstance(value, float):
        return "-nan" if isnan(value) else f"{value:f}"
    return str(value)

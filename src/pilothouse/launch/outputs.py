"""The files of a simulation: PREFIX + jobs.csv, schedule.json and what else was asked for, written as jobs end.

Nothing is overwritten before all input has been read; what was written is kept when a run breaks off.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from pilothouse import __version__
from pilothouse.formats import schedule_json, swf
from pilothouse.formats.jobs_csv import JobsCsv
from pilothouse.formats.jobs_jsonl import JobsJsonl
from pilothouse.launch.output_files import opened
from pilothouse.model.record import JobRecord
from pilothouse.views.documents import SCHEMA
from pilothouse.views.metrics import Collector, Metrics

COMPANIONS = (
    *("run.json", "schedule.json", "jobs.jsonl", "now.json"),
    *("machine_states.csv", "pstate_changes.csv", "consumed_energy.csv", "estimates.csv"),
)
"""Removed when a run begins: views would take those of an earlier run for this one's."""


class Outputs:
    """Takes records, and hands them to `also` too; `close(...)` writes the summary."""

    def __init__(
        self, prefix: str, exports: tuple[str, ...] = (), tau: float = 10.0, *also: Callable[[list[JobRecord]], object],
        window: tuple[float, float] | None = None,
    ) -> None:  # fmt: skip
        self._prefix = prefix
        self._csv = JobsCsv(opened(prefix + "jobs.csv"))
        for name in COMPANIONS:
            Path(prefix + name).unlink(missing_ok=True)
        sinks: list[Callable[[list[JobRecord]], object]] = [self._csv.write_all, *also]
        self._jsonl = JobsJsonl(opened(prefix + "jobs.jsonl")) if "jsonl" in exports else None
        if self._jsonl is not None:
            sinks.append(self._jsonl.write_all)
        self._kept: list[JobRecord] | None = None
        if "swf" in exports:
            self._kept = []
            sinks.append(self._kept.extend)
        self.collector = Collector(tau, *sinks, window=window)
        self.record = self.collector.add
        self._late: dict[str, str] = {}

    def annotate(self, job_id: str, text: str) -> None:
        """Metadata of a job that has ended."""
        self._late[job_id] = text

    def describe(self, **fields: object) -> None:
        """Writes run.json: what was run."""
        with opened(self._prefix + "run.json") as stream:
            stream.write(msgspec.json.format(msgspec.json.encode({"schema": SCHEMA, **fields})).decode() + "\n")

    def flush(self) -> None:
        """Writes what is known so far to the files, for views of a run that goes on."""
        self.collector.flush()
        self._csv.flush()

    def close(
        self, units: int, *, complete: bool, ranks: bool = True, extra: dict[str, float | int | str] | None = None
    ) -> Metrics:
        """Flushes everything. schedule.json is only written for a run that came to its end."""
        self.collector.flush()
        if self._late:
            self._csv.annotate(self._late)
        self._csv.close()
        if self._jsonl is not None:
            self._jsonl.close()
        if self._kept is not None:
            with opened(self._prefix + "jobs.swf") as stream:
                stream.write(swf.write(self._kept, units))
        metrics = self.collector.metrics(units, ranks=ranks)
        if complete:
            with opened(self._prefix + "schedule.json") as stream:
                stream.write(schedule_json.encode({**_summary(metrics, units), **(extra or {})}))
        return metrics


def _summary(m: Metrics, units: int) -> dict[str, float | int | str]:
    started = m.jobs - m.rejected
    share = started / m.jobs if m.jobs else 0.0

    def mean(value: float) -> float:
        # Batsim's means divide by all jobs, the rejected ones included.
        return value * share if started else 0.0

    def most(value: float) -> float:
        return value if started else 0.0

    busy = m.utilisation * units * m.makespan
    return {
        "batsim_version": f"pilothouse {__version__}",
        "consumed_joules": 0.0,
        "makespan": m.makespan,
        "max_slowdown": most(m.slowdown.max),
        "max_turnaround_time": most(m.turnaround.max),
        "max_waiting_time": most(m.wait.max),
        "mean_slowdown": mean(m.slowdown.mean),
        "mean_turnaround_time": mean(m.turnaround.mean),
        "mean_waiting_time": mean(m.wait.mean),
        "nb_computing_machines": units,
        "nb_grouped_switches": 0,
        "nb_jobs": m.jobs,
        "nb_jobs_finished": started,
        "nb_jobs_killed": started - m.succeeded,
        "nb_jobs_rejected": m.rejected,
        "nb_jobs_success": m.succeeded,
        "nb_machine_switches": 0,
        "success_rate": m.succeeded / m.jobs if m.jobs else 0.0,
        "time_computing": busy,
        "time_idle": units * m.makespan - busy,
        "time_sleeping": 0.0,
        "time_switching_off": 0.0,
        "time_switching_on": 0.0,
        "time_unavailable": 0.0,
    }

"""What `pilothouse.simulate` and `pilothouse.compare` return: jobs as a table, metrics, figures, explanations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pilothouse.campaign.frames import frame, jobs_frame
from pilothouse.model.errors import InputError
from pilothouse.views.metrics import TAU, Metrics
from pilothouse.views.schedule import Schedule
from pilothouse.views.story import story
from pilothouse.views.tables import COLUMNS, comparison, run_summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Result:
    """One simulated run."""

    def __init__(self, schedule: Schedule, metrics: Metrics, *, waiting: tuple[str, ...] = (), problem: str = "",
                 notes: tuple[str, ...] = (), cpu_s: float = 0.0) -> None:  # fmt: skip
        self.schedule = schedule
        """The run as columns."""
        self.metrics = metrics
        """Waits, turnarounds, slowdowns (mean, median, p95, max), utilisation, makespan and counts."""
        self.waiting = waiting
        """Jobs that never started: a deadlock if there are any."""
        self.problem = problem
        """Why the run did not come to its end; "" if it did."""
        self.notes = notes
        """What was odd about the input: jobs that were left out or changed."""
        self._cpu_s = cpu_s

    @property
    def policy(self) -> str:
        """The policy's name."""
        return self.schedule.policy

    @cached_property
    def jobs(self) -> Any:
        """A row for each job, in order of submission: a polars or pandas frame, or a list of dictionaries."""
        return jobs_frame(self.schedule)

    def plot(self, path: str = "", kinds: str = "") -> Figure:
        """The run as a figure, written to `path` if one is given. `kinds` are those of `pilothouse plot --kind`."""
        return _plot([self.schedule], path, kinds, self.metrics.tau)

    def explain(self, job: object) -> str:
        """Why a job started when it did, in a sentence."""
        found = story(self.schedule, str(getattr(job, "id", job)))
        if found is None:
            raise InputError(self.schedule.name, f"there is no job {str(job)!r} in it")
        return found.sentence

    def to_report(self, path: str = "report.html") -> str:
        """Writes the run as one HTML file, as `pilothouse report` does, and returns its path."""
        return _report([self.schedule], path, self.metrics.tau)

    def __repr__(self) -> str:
        lines = [*(f"note: {note}" for note in self.notes)]
        lines.append(run_summary(self.metrics, self.schedule.units, self.policy, self._cpu_s))
        if self.waiting or self.problem:
            lines.append(f"  deadlock: {self.problem or f'{len(self.waiting):,} jobs will never start'}")
        return "\n".join(lines)


class Comparison(Mapping[str, Result]):
    """Several runs of one workload, by the names of their policies."""

    def __init__(self, results: dict[str, Result], failed: dict[str, str]) -> None:
        self._results = results
        self.failed = failed
        """Policy -> why it did not come to the end."""
        self._tau = next((result.metrics.tau for result in results.values()), TAU)

    def __getitem__(self, policy: str) -> Result:
        return self._results[policy]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    @cached_property
    def metrics(self) -> Any:
        """A row for each policy: a polars or pandas frame, or a list of dictionaries."""
        columns: dict[str, list[Any]] = {"policy": list(self)}
        for name, value in COLUMNS.items():
            columns[name] = [value(result.metrics) for result in self.values()]
        return frame(columns)

    @cached_property
    def jobs(self) -> Any:
        """The jobs of all runs, one below the other, with a column `policy`."""
        from pilothouse.campaign.frames import JOB_COLUMNS, rows_of

        rows = [(name, row) for name, result in self.items() for row in rows_of(result.jobs, "jobs")]
        return frame({"policy": [name for name, _ in rows]} | {key: [row[key] for _, row in rows] for key in JOB_COLUMNS})

    def plot(self, path: str = "", kinds: str = "") -> Figure:
        """All runs in one figure, written to `path` if one is given."""
        return _plot([result.schedule for result in self.values()], path, kinds, self._tau)

    def to_report(self, path: str = "report.html") -> str:
        """Writes all runs as one HTML file, as `pilothouse report` does, and returns its path."""
        return _report([result.schedule for result in self.values()], path, self._tau)

    def __repr__(self) -> str:
        lines = [comparison({name: result.metrics for name, result in self.items()})] if self._results else []
        return "\n".join([*lines, *(f"{name} did not come to the end: {why}" for name, why in self.failed.items())])


def _plot(runs: list[Schedule], path: str, kinds: str, tau: float) -> Figure:
    from pilothouse.views import plots
    from pilothouse.views.plot_style import check_figure, pyplot

    if path:
        check_figure(path)
    made = plots.figure(runs, plots.kinds_of(kinds, runs), tau=tau)
    if path:
        made.savefig(path, dpi=200)
    pyplot().close(made)  # a notebook shows what a cell returns; an open figure would be shown twice
    return made


def _report(runs: list[Schedule], path: str, tau: float) -> str:
    from pilothouse.views.report.html import check_report, write_report

    check_report(path, len(runs))
    write_report(runs, path, tau)
    return path

"""Forecast of a task file: its tasks in simulated time, on any number of nodes.

In: the lines of a task file, a platform, how long tasks take (`TaskDurations`), a policy. Out: a `Forecast`, one phase per
barrier: nothing below a barrier starts before everything above it has ended, so the phases are simulated one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from math import inf
from pathlib import Path

import msgspec

from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.formats.task_file import LineKind, TaskLine
from pilothouse.journal.read import read_durations, read_tasks
from pilothouse.model.errors import InputError, quoted
from pilothouse.model.events import Begins
from pilothouse.model.job import Job
from pilothouse.model.profile import Delay, Profile
from pilothouse.model.record import JobRecord
from pilothouse.policies.base import Policy
from pilothouse.worlds.simulated.physics.platform import Platform
from pilothouse.worlds.simulated.world import SimulatedWorld


class Phase(msgspec.Struct, frozen=True):
    """The tasks between two barriers."""

    tasks: int
    ends_at: float


class Forecast(msgspec.Struct, frozen=True):
    units: int
    phases: tuple[Phase, ...]
    busy_unit_s: float
    guessed: int
    """Tasks that were not in the earlier run: they are given the mean of their line, or of all."""

    @property
    def tasks(self) -> int:
        return sum(phase.tasks for phase in self.phases)

    @property
    def seconds(self) -> float:
        return self.phases[-1].ends_at if self.phases else 0.0

    @property
    def utilisation(self) -> float:
        return self.busy_unit_s / (self.units * self.seconds) if self.seconds else 0.0


class TaskDurations:
    """How long tasks take: the same for all, or what an earlier run of the file took."""

    def __init__(self, default_s: float, known: dict[tuple[int, int], float] | None = None) -> None:
        self._known = known or {}
        self.mean_s = default_s
        """Where nothing else is known."""
        self._of_line: dict[int, float] = {}
        for line, group in groupby(sorted(self._known.items()), key=lambda item: item[0][0]):
            taken = [seconds for _, seconds in group]
            self._of_line[line] = sum(taken) / len(taken)
        self.guessed = 0

    @classmethod
    def named(cls, text: str) -> TaskDurations:
        """A number of seconds, or the folder of an earlier run."""
        if Path(text).is_dir():
            rows = [row for row in read_tasks(Path(text)) if row.ended is not None and row.started is not None]
            known = {(row.line, row.repeat_index): (row.ended or 0.0) - (row.started or 0.0) for row in rows}
            if not known:
                raise InputError(text, "no task of this run has ended")
            return cls(sum(known.values()) / len(known), known)
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < inf:
            raise InputError("--duration", "no duration", expected="seconds, or a run's folder", found=quoted(text))
        return cls(seconds)

    @classmethod
    def so_far(cls, folder: Path) -> TaskDurations | None:
        """Those of a run that goes on; None: no task has succeeded yet."""
        mean_s, of_lines = read_durations(folder)
        return None if mean_s is None else cls(mean_s, of_lines)

    def of(self, task: TaskLine) -> float:
        known = self._known.get((task.line_number, task.repeat_index))
        if known is not None:
            return known
        if self._known:
            self.guessed += 1
        return self._of_line.get(task.line_number, self.mean_s)


def forecast(
    lines: Iterable[TaskLine],
    platform: str,
    durations: TaskDurations,
    policy: Callable[[], Policy],
    *,
    units: int = 1,
    walltime: float = inf,
) -> Forecast:
    """Simulates the phases of the file, each under a fresh policy. InputError if a task is larger than the platform."""
    machine = Platform.named(platform)
    total = machine.compute_count
    if units > total:
        raise InputError("--units", "tasks are larger than the platform", expected=f"at most {total}", found=str(units))
    busy: list[float] = []

    def record(ended: JobRecord) -> None:
        if ended.started_at is not None:
            busy.append((ended.ended_at - ended.started_at) * units)

    phases: list[Phase] = []
    for jobs in _phases(lines, durations, units, walltime):
        begins = Begins(nodes=machine.nodes())
        outcome = Session(SimulatedWorld(begins, jobs, platform=machine, record=record), PolicyDecider(policy())).run()
        start = phases[-1].ends_at if phases else 0.0
        phases.append(Phase(len(jobs), start + outcome.ended_at))
    return Forecast(total, tuple(phases), sum(busy), durations.guessed)


def _phases(lines: Iterable[TaskLine], durations: TaskDurations, units: int, walltime: float) -> Iterator[list[Job]]:
    """The tasks between barriers, as jobs that all wait from the phase's beginning on. What engines do when they join
    or leave is left out: the file does not say how often that will be."""
    barriers = (LineKind.BARRIER, LineKind.CHECK)
    for is_barrier, group in groupby(lines, key=lambda line: line.kind in barriers):
        if not is_barrier:
            tasks = [line for line in group if line.kind is LineKind.TASK]
            if tasks:
                yield [_job(task, durations.of(task), units, walltime) for task in tasks]


def _job(task: TaskLine, seconds: float, units: int, walltime: float) -> Job:
    profile = Profile(f"{seconds}s", Delay(seconds))
    return Job(f"{task.task_id}", units, walltime, profile=profile, runtime=seconds)

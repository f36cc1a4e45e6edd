"""The driver's work without engines, for simulations of a run: which tasks reach the decider when. Sans-IO.

In: the records of a journal, or nothing but the lines of a task file. Out: a `RunStart` (where the simulation begins) and, for
each simulation, a `TaskFeed`: the driver's own feeder and backlog, so that requests, dependencies, barriers, bundles and the
number of jobs that the decider sees at once are those of a live run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf

import msgspec

from pilothouse.formats.task_file import TaskLine
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.driver.flow import enough
from pilothouse.worlds.live.driver.restore import restore
from pilothouse.worlds.live.driver.state import DriverState, new_state
from pilothouse.worlds.live.feeder import Feeder
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.wire.messages import Task


class RunningGroup(msgspec.Struct, frozen=True):
    """A job that runs when the simulation begins."""

    job: Job
    units: IdSet
    tasks: tuple[Task, ...]
    """The first of them runs, the others follow it."""
    age_s: float
    """How long the first task has run."""
    held_s: float
    """How long the job has had its units."""


class RunStart(msgspec.Struct, frozen=True, kw_only=True):
    """Where a simulation of a run begins: before its first task, or in its middle."""

    options: LiveOptions
    nodes: tuple[Node, ...]
    lines: list[TaskLine]
    """The lines of the task file without the tasks that succeeded."""
    failed: frozenset[int] = frozenset()
    """Those of them that have failed for good."""
    running: tuple[RunningGroup, ...] = ()
    jobs: tuple[tuple[Job, Task], ...] = ()
    """Submitted jobs that wait, or will be submitted at a date of the simulation."""
    mean_s: float = inf
    """How long tasks take, as the driver has seen it: short ones are bundled."""
    overhead_s: float = 0.0
    """For how long a job has its units besides running its tasks."""

    @property
    def units(self) -> int:
        return sum(node.count for node in self.nodes)


class TaskFeed:
    """What a driver would hand to its decider, in one simulation."""

    def __init__(self, start: RunStart) -> None:
        driver = new_state(start.options)
        self._done, self._backlog, self._options, self._units = driver.done, driver.backlog, start.options, start.units
        for task_id in start.failed:
            self._done.add(task_id, JobState.FAILED, 1)
        if start.mean_s < inf:
            self._backlog.pace.note(start.mean_s)
        self._backlog.total = len(start.lines)
        self._backlog.held = {task.task_id for group in start.running for task in group.tasks}
        self._backlog.feeder = self._feeder = Feeder(iter(start.lines), self._done.known)

    @property
    def nothing_more(self) -> bool:
        return self._feeder.nothing_more

    def next_jobs(self, waiting: int, busy: int, now: float) -> list[tuple[Job, list[Task]]]:
        """The jobs that the decider is told of now, with so many waiting and so many running."""
        window = self._options.window or enough(self._units, busy * self._options.units)
        return [(group.job, list(group.tasks.values())) for group in self._backlog.groups(window - waiting, self._units, now)]

    def ended(self, task: Task, state: JobState, seconds: float) -> None:
        if task.line_number:
            self._done.add(task.task_id, state, task.attempt)
            self._backlog.pace.note(seconds)
            self._backlog.ended(task.task_id, failed=state is not JobState.SUCCEEDED)


def present_start(
    options: LiveOptions, records: list[r.Record], lines: Iterable[TaskLine], last_ends: Mapping[str, float], now: float
) -> RunStart:
    """Where a run stands. `last_ends`: when the last task of each open job ended. Dates are seconds since 1970."""
    driver = new_state(options, unix_offset=now)
    restore(driver, records, 0.0)
    since = {record.job_id: record.at for record in records if type(record) is r.Assigned and record.job_id}
    running = []
    for job_id, group in driver.groups.items():
        if group.tasks:
            # The tasks of a group follow each other: the next one began when the last one ended.
            age_s = max(0.0, now - max(since[job_id], last_ends.get(job_id, 0.0)))
            held_s = max(0.0, now - since[job_id])
            running.append(RunningGroup(group.job, group.units, tuple(group.tasks.values()), age_s, held_s))
    return RunStart(
        options=options,
        nodes=tuple(proxy.node for proxy in driver.engines.present.values()),
        lines=[line for line in lines if driver.done.known(line) is not False],
        failed=frozenset(driver.done.failed),
        running=tuple(running),
        jobs=_jobs(driver, lambda job: 0.0),
    )


def first_start(
    options: LiveOptions, records: list[r.Record], lines: Iterable[TaskLine], submitted_at: Callable[[Job], float]
) -> RunStart:
    """Where a run began, with all engines that were not lost."""
    lost = {record.engine for record in records if type(record) is r.EngineLeft and record.lost}
    driver = new_state(options)
    restore(driver, [record for record in records if type(record) in (r.EngineJoined, r.JobKnown)], 0.0)
    present = driver.engines.present.values()
    nodes = tuple(proxy.node for proxy in present if proxy.id not in lost)
    return RunStart(
        options=options, nodes=nodes or tuple(proxy.node for proxy in present), lines=list(lines),
        jobs=_jobs(driver, submitted_at),
    )  # fmt: skip


def _jobs(driver: DriverState, submitted_at: Callable[[Job], float]) -> tuple[tuple[Job, Task], ...]:
    """The submitted jobs that wait, without those dependencies that are met."""
    found = []
    for group in (*driver.backlog.jobs, *driver.dependencies.held.values()):
        job = group.job
        after = tuple(name for name in job.after if not driver.outcomes.get(name))
        job = msgspec.structs.replace(job, after=after, submitted_at=submitted_at(job))
        found.append((job, next(iter(group.tasks.values()))))
    return tuple(found)

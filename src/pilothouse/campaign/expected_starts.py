"""When waiting jobs would start: a simulation that begins with the present state of a machine.

In: nodes, running jobs with the time that they have left, waiting jobs with the time that they will take, a policy. Out: seconds
from now until each waiting job starts. `expected_start` does this for a task of a live run, with the durations of the tasks that
have ended in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf
from pathlib import Path

import msgspec

from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.formats.task_file import LineKind, TaskLine
from pilothouse.journal.read import read_durations
from pilothouse.journal.waiting import Present, WaitingTask
from pilothouse.model import events as e
from pilothouse.model.errors import PilothouseError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node, Shape
from pilothouse.model.profile import Delay, Profile
from pilothouse.model.record import JobRecord
from pilothouse.policies.base import Policy
from pilothouse.worlds.simulated.world import SimulatedWorld

AFTER_S = 1.0
"""Waiting jobs are submitted so much later than those that run, which therefore start first."""
MOST_TASKS = 100_000
"""Waiting tasks that are simulated."""
_NO_HOPE = ("driver", "engine", "node")
"""Nothing that the run does by itself ends these waits."""


def expected_starts(
    nodes: tuple[Node, ...], unavailable: IdSet, running: Iterable[tuple[e.Running, float]], waiting: list[Job], policy: Policy
) -> dict[str, float]:  # fmt: skip
    """Job id -> seconds from now until it starts (inf: never), if no job is submitted. With each running job comes the time that
    it has left; waiting jobs know theirs (`runtime`)."""
    jobs: list[Job] = []
    for run, left_s in running:
        names = [node.name for node in nodes if node.mask & run.units.mask]
        there = msgspec.Raw(msgspec.json.encode({"hostlist": names}))
        shape = msgspec.structs.replace(run.job.shape or Shape(), nodes=len(names), most_nodes=len(names), constraint=there)
        # One whose node has left does not hold up others, and those that wait for it go on.
        units, where = (len(run.units) // len(names), shape) if names else (1, None)
        jobs.append(_simulated(run.job, left_s + AFTER_S, units, where))
    jobs += [_simulated(job, job.runtime or 0.0, job.units, job.shape, AFTER_S) for job in waiting]
    starts: dict[str, float] = {}
    wanted = {job.id for job in waiting}

    def record(ended: JobRecord) -> None:
        if ended.job.id in wanted:
            starts[ended.job.id] = inf if ended.started_at is None else max(0.0, ended.started_at - AFTER_S)

    begins = e.Begins(nodes=nodes, unavailable=unavailable)
    if jobs:
        Session(SimulatedWorld(begins, jobs, record=record), PolicyDecider(policy)).run()
    return starts


def _simulated(job: Job, run_s: float, units: int, shape: Shape | None, later: float = 0.0) -> Job:
    walltime = job.walltime if job.walltime < inf else run_s + 1.0
    return Job(
        job.id, units, max(walltime, run_s), later, Profile(f"{run_s:g}s", Delay(run_s)), priority=job.priority, user=job.user,
        after=job.after, shape=shape, runtime=run_s,
    )  # fmt: skip


class TaskDurations:
    """How long tasks of a run take: the mean of their line, or of all."""

    def __init__(self, mean_s: float, of_lines: dict[tuple[int, int], float] | None = None) -> None:
        self.mean_s = mean_s
        self._of_line = {line: seconds for (line, _), seconds in (of_lines or {}).items()}

    @classmethod
    def so_far(cls, folder: Path) -> TaskDurations | None:
        """Those of a run that goes on; None: no task has succeeded yet."""
        mean_s, of_lines = read_durations(folder)
        return None if mean_s is None else cls(mean_s, of_lines)

    def of(self, task: TaskLine) -> float:
        return self._of_line.get(task.line_number, self.mean_s)


class ExpectedStart(msgspec.Struct, frozen=True):
    at: float | None
    """A date; None: none can be told."""
    why: str
    """What it rests on, or why none can be told."""


def expected_start(
    task: WaitingTask, waiting: Iterator[WaitingTask], lines: Iterable[TaskLine], present: Present,
    durations: TaskDurations | None, policy: Callable[[], Policy] | None,
) -> ExpectedStart:  # fmt: skip
    """`waiting`: all tasks that wait, in order; `lines`: the unfinished lines of the file. `durations`: None if no task has
    succeeded; `policy`: None if the decider is a foreign one."""
    if task.wait.what in _NO_HOPE:
        return ExpectedStart(None, f"it waits for {task.wait.text}")
    if policy is None:
        return ExpectedStart(None, f"{present.decider} decides outside of this program")
    if durations is None:
        return ExpectedStart(None, "no task of this run has ended, so it is not known how long tasks take")
    if task.ahead >= MOST_TASKS:
        return ExpectedStart(None, f"{task.ahead:,} tasks are before it, more than are simulated ({MOST_TASKS:,})")
    jobs = list(_jobs(task, waiting, lines, present, durations))
    left_s = _left_s(present, durations)
    running = [(run, left_s.get(run.job.id, 0.0)) for run in present.running]
    try:
        starts = expected_starts(present.nodes, IdSet(), running, jobs, policy())
    except PilothouseError as problem:
        return ExpectedStart(None, f"the policy {present.decider} cannot be asked: {problem}")
    after_s = starts.get(task.job.id, inf)
    if after_s == inf:
        return ExpectedStart(None, f"under {present.decider} it would not start on the nodes that are there")
    return ExpectedStart(present.now + after_s, f"if tasks take as long as those that ended, under {present.decider}")


def _left_s(present: Present, durations: TaskDurations) -> dict[str, float]:
    """Running job -> the time that its tasks have left."""
    left: dict[str, float] = {}
    for task in present.held.values():
        spent_s = 0.0 if task.before else present.now - task.since
        left[task.job_id] = left.get(task.job_id, 0.0) + max(0.0, durations.mean_s - spent_s)
    return left


def _jobs(
    task: WaitingTask, waiting: Iterator[WaitingTask], lines: Iterable[TaskLine], present: Present, durations: TaskDurations
) -> Iterator[Job]:  # fmt: skip
    """The task and those before it. A barrier is a job that takes no time: it waits for all before it, and all behind it wait
    for it."""
    by_name: dict[str, list[str]] = {}
    before: list[str] = []
    barrier: tuple[str, ...] = ()
    known = {one.task_id: one for one in _up_to(task, waiting)}
    for line in lines:
        if line.kind is not LineKind.TASK:
            name = f"barrier {line.task_id}"
            yield Job(name, 1, runtime=0.0, after=tuple(before) + barrier)
            before, barrier = [], (name,)
            continue
        one, held = known.get(line.task_id), present.held.get(line.task_id)
        job_id = held.job_id if held is not None else str(line.task_id)
        if line.request is not None and line.request.name:
            by_name.setdefault(line.request.name, []).append(job_id)
        before.append(job_id)
        if one is not None:
            after = [job for name in (line.request.after if line.request is not None else ()) for job in by_name.get(name, ())]
            yield msgspec.structs.replace(one.job, after=(*barrier, *after), runtime=durations.of(line))
        if line.task_id == task.task_id:
            return
    open_jobs = {job.id for _, job in present.submitted}
    for one in known.values():
        if one.line is None:
            after_jobs = tuple(name for name in one.job.after if name in open_jobs)
            yield msgspec.structs.replace(one.job, after=after_jobs, runtime=durations.mean_s)


def _up_to(task: WaitingTask, waiting: Iterator[WaitingTask]) -> Iterator[WaitingTask]:
    for one in waiting:
        yield one
        if one.task_id == task.task_id:
            return

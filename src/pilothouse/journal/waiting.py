"""What tasks of a live run wait for: one answer, in the same words for every view. No IO here.

In: the tasks of the file in their order, submitted jobs, and a `Present` (journal/present.py reads it). Out: each task that
waits, with what it waits for. A task that would fit, by the engines and assignments that the journal has, waits for the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator

import msgspec

from pilothouse.core.cluster import Cluster
from pilothouse.core.explain import shortage
from pilothouse.formats.task_file import LineKind, TaskLine
from pilothouse.journal.run_state import Wait, behind_others
from pilothouse.model import events as e
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState
from pilothouse.model.task_request import TaskRequest
from pilothouse.worlds.live.feeder import DoneIds

_BARRIERS = (LineKind.BARRIER, LineKind.CHECK)
_NEVER = "so it will not run"


class HeldTask(msgspec.Struct, frozen=True):
    """A task that an engine has and that has not ended."""

    task_id: int
    attempt: int
    job_id: str
    node: str
    slots: str
    """Of its engine, counted from 0."""
    since: float
    """When it began, as far as the driver knows; for one that waits, when the engine got it."""
    before: int = 0
    """Tasks of its bundle that run first."""
    line: int = 0
    name: str = ""
    command: str = ""

    @property
    def wait(self) -> Wait | None:
        """None: it runs."""
        return behind_others(self.before, self.node)


class Progress:
    """What the ends in a journal say, noted as they come."""

    def __init__(self) -> None:
        self.done = DoneIds()
        self.bad_names: dict[str, set[int]] = {}
        """Names of tasks that did not succeed, and which these are."""
        self.free_since = 0.0
        """When the last barrier was passed."""
        self.names_ended: dict[str, float] = {}
        """Name -> when the last attempt of a task of this name ended."""
        self.tried: dict[int, tuple[int, float]] = {}
        """Tasks that are to be tried again -> the last attempt, and when it ended."""
        self.jobs_ended: dict[str, tuple[bool, float]] = {}
        """Submitted jobs -> whether they succeeded, and when they ended."""

    def note(
        self, task_id: int, attempt: int, kind: str, state: str, ended_at: float, final: int, name: str, job_id: str, line: int
    ) -> None:  # fmt: skip
        """One row of the journal's table of ends."""
        if kind == "P":
            return
        if name:
            self.names_ended[name] = max(ended_at, self.names_ended.get(name, 0.0))
        if not final:
            self.tried[task_id] = (attempt, ended_at)
            return
        succeeded = state == JobState.SUCCEEDED.value
        self.tried.pop(task_id, None)
        self.done.add(task_id, JobState.SUCCEEDED if succeeded else JobState.FAILED, attempt)
        if kind in ("B", "C"):
            self.free_since = max(self.free_since, ended_at)
        if name and not succeeded:
            self.bad_names.setdefault(name, set()).add(task_id)
        if job_id and not line:
            self.jobs_ended[job_id] = (succeeded, ended_at)

    def reopened(self, task_id: int, ended_at: float) -> None:
        """A task that did not succeed, and ended then, is run once more."""
        _, attempt = self.done.reopen(task_id)
        self.tried[task_id] = (attempt, ended_at)
        self.bad_names = {name: rest for name, ids in self.bad_names.items() if (rest := ids - {task_id})}

    def has_ended(self, task_id: int, attempt: int) -> bool:
        return task_id in self.done or (task_id in self.tried and self.tried[task_id][0] >= attempt)

    def tried_until(self, task_id: int) -> float:
        """When its last attempt ended; 0: there was none."""
        return self.tried[task_id][1] if task_id in self.tried else 0.0


class Present(msgspec.Struct):
    """A live run now."""

    now: float
    started_at: float
    driven: bool
    """A driver is at work on it."""
    decider: str
    nodes: tuple[Node, ...]
    running: tuple[e.Running, ...]
    held: dict[int, HeldTask]
    progress: Progress
    submitted: list[tuple[int, Job]] = []
    """Jobs that came in by themselves and have not ended, with their task ids."""

    def cluster(self) -> Cluster:
        return Cluster(e.Begins(self.nodes, running=self.running, started_at=self.now), self.decider)


class WaitingTask(msgspec.Struct, frozen=True):
    """A task that no engine has, and that has no final result."""

    task_id: int
    job: Job
    wait: Wait
    since: float
    ahead: int
    """Tasks before it that wait as well."""
    line: TaskLine | None = None
    """None: it was submitted as a job."""
    barriers: int = 0
    """Barriers before it that have not been passed."""


class UnfinishedLines:
    """The lines of a task file whose tasks have no final result, in order. Reads no further than it is asked to, and drops what
    has ended, so that one can ask again and again."""

    def __init__(self, lines: Iterator[TaskLine], done: DoneIds) -> None:
        self._lines = lines
        self._done = done
        self._read: list[TaskLine] = []

    def __iter__(self) -> Iterator[TaskLine]:
        self._read = [line for line in self._read if line.task_id not in self._done]
        yield from list(self._read)
        for line in self._lines:
            if line.kind in (LineKind.ENGINE_START, LineKind.ENGINE_STOP) or line.task_id in self._done:
                continue
            self._read.append(line)
            yield line


def waiting_tasks(
    lines: Iterable[TaskLine], present: Present, job_of: Callable[[TaskLine], Job]
) -> Iterator[WaitingTask]:
    """The tasks that wait, in the order of the file, then submitted jobs. `lines`: unfinished ones."""
    queue = _Queue(present)
    progress = present.progress
    unfinished = barriers = 0
    barrier: Wait | None = None
    names: dict[str, list[int]] = {}
    """Name -> its tasks that have not ended."""
    jobs: dict[TaskRequest | None, Job] = {}
    for line in lines:
        if line.kind in _BARRIERS:
            barriers += 1
            if barrier is None:
                rest = f"{unfinished:,} task{'s' * (unfinished != 1)} before it {'have' if unfinished != 1 else 'has'} not ended"
                barrier = Wait("barrier", f"the barrier of line {line.line_number}: {rest}")
            continue
        unfinished += 1
        request = line.request
        if request is not None and request.name:
            names.setdefault(request.name, []).append(line.task_id)
        if line.task_id in present.held:
            continue
        if request not in jobs:
            jobs[request] = job_of(line)
        job = msgspec.structs.replace(jobs[request], id=str(line.task_id))
        after = request.after if request is not None else ()
        since = [progress.tried_until(line.task_id), *(progress.names_ended.get(name, 0.0) for name in after)]
        wait = barrier or _dependency(after, names, progress.bad_names, present.held) or queue.enter(job, jobs[request])
        yield queue.waiting(line.task_id, job, wait, max(progress.free_since, *since), line, barriers)
    open_jobs = {job.id: [task_id] for task_id, job in present.submitted}
    bad = {job_id for job_id, (succeeded, _) in progress.jobs_ended.items() if not succeeded}
    for task_id, job in present.submitted:
        if task_id not in present.held:
            ends = [progress.jobs_ended[name][1] for name in job.after if name in progress.jobs_ended]
            wait = _dependency(job.after, open_jobs, bad, present.held) or queue.enter(job, job)
            yield queue.waiting(task_id, job, wait, max([progress.tried_until(task_id), *ends]))


def _dependency(
    after: Iterable[str], names: dict[str, list[int]], bad: Container[str], held: dict[int, HeldTask]
) -> Wait | None:
    for name in after:
        if name in bad:
            return Wait("dependency", f"{name}, which did not succeed, {_NEVER}")
        tasks = names.get(name)
        if tasks:
            first = tasks[0]
            how = "runs" if first in held and not held[first].before else "waits"
            more = f", and {len(tasks) - 1:,} more of that name" if len(tasks) > 1 else ""
            return Wait("dependency", f"{name}: task {first} {how}{more}")
    return None


class _Queue:
    """Tasks that only wait for a decision, in order. As long as they fit they are about to start; of one that does not fit, it is
    known what it lacks; one behind it that would fit waits for the policy."""

    def __init__(self, present: Present) -> None:
        self._present = present
        self._cluster = present.cluster()
        self._ahead = 0
        self._stuck: tuple[str, str] | None = None
        """The first task that does not fit, and what it waits for."""
        self._known: dict[int, Wait] = {}
        """Answers by the request, as long as nothing is booked."""

    def waiting(
        self, task_id: int, job: Job, wait: Wait, since: float, line: TaskLine | None = None, barriers: int = 0
    ) -> WaitingTask:
        self._ahead += 1
        return WaitingTask(task_id, job, wait, max(self._present.started_at, since), self._ahead - 1, line, barriers)

    def enter(self, job: Job, request: Job) -> Wait:
        """`request`: the same object for tasks that ask for the same."""
        known = self._known.get(id(request))
        if known is None:
            known = self._judge(job)
            if self._stuck is not None:
                self._known[id(request)] = known
        return known

    def _judge(self, job: Job) -> Wait:
        present, cluster = self._present, self._cluster
        if not present.driven:
            return Wait("driver", "a driver: none is at work (pilothouse run --resume)")
        if not present.nodes:
            return Wait("engine", "an engine: none is there")
        lacks = shortage(cluster, job)
        if lacks is not None:
            words = {"node": "a node that is large enough", "gpus": "GPUs"}.get(lacks.what, lacks.what)
            self._stuck = self._stuck or (job.id, words)
            return Wait(lacks.what, f"{words}: {lacks.detail}")
        free = f"{cluster.free} of {cluster.total} cores are free"
        if self._stuck is not None:
            before, what = self._stuck
            held_for = f"it would fit now ({free}), but task {before}, which waits for {what}, is before it"
            return Wait("policy", f"the policy ({present.decider}): {held_for}")
        cluster.waiting[job.id] = job
        cluster.start(job)
        return Wait("policy", f"the policy ({present.decider}): it fits ({free}), and may start with the next decision")

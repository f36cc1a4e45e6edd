"""Task groups, and the backlog that they come from. Sans-IO.

A group is what the decider knows as one job: the one task of a submitted job, one line of the task file, or a bundle of
lines (Pace). An engine gives back the tasks of a bundle that a slow one would hold up. The backlog makes the next groups
from the lines of the file and from submitted jobs. Templates say which job the decider gets for what a line asks for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from math import ceil

import msgspec

from pilothouse.formats.task_file import TaskLine
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Command, Job, Shape
from pilothouse.model.lifecycle import JobState, Stimulus, step
from pilothouse.model.task_request import TaskRequest, asked, shape_for
from pilothouse.worlds.live.feeder import DoneIds, Feeder, Pace
from pilothouse.worlds.live.wire.messages import Task, TaskEnvironment

CUT_S = 0.8
"""A bundle that has run for longer gives back what it has not begun."""
NODE_LOST = "a node of it was lost"
MOST_TEMPLATES = 10_000
_NO_COMMAND = Command()


class TaskGroup(msgspec.Struct, eq=False, gc=False):
    """One job of the decider's, and the tasks of it that have not ended."""

    job: Job
    tasks: dict[int, Task]
    environment: TaskEnvironment
    state: JobState = JobState.KNOWN
    from_file: bool = True
    assignment: int = 0
    engine: str = ""
    units: IdSet = IdSet()
    gpus: dict[str, tuple[str, ...]] = {}
    """Engine -> names of its GPUs that this job has."""
    kill_reason: str = ""
    worst: JobState = JobState.SUCCEEDED
    """The worst final state of its tasks so far."""
    code: int = 0
    size: int = 1

    @property
    def killed(self) -> bool:
        """A user or the decider wants it ended."""
        return self.kill_reason not in ("", NODE_LOST)

    def step(self, stimulus: Stimulus) -> None:
        self.state = step(self.state, stimulus)


def group_of_job(job: Job, task_id: int, attempt: int, *, bind: bool) -> TaskGroup:
    """The group of a submitted job."""
    task = task_for(job.command or _NO_COMMAND, task_id, attempt)
    return TaskGroup(job, {task_id: task}, environment_for(job, bind=bind), from_file=False)


def task_for(command: Command, task_id: int, attempt: int) -> Task:
    return Task(
        task_id, attempt=attempt, line=command.line.encode("utf-8", "surrogateescape"),
        argv=tuple(word.encode("utf-8", "surrogateescape") for word in command.argv),
    )  # fmt: skip


def environment_for(job: Job, *, bind: bool) -> TaskEnvironment:
    command = job.command or _NO_COMMAND
    return TaskEnvironment(
        job.walltime, command.cwd, command.stdin, command.stdout, command.stderr, command.env, bind,
        command.memory_mb,
    )  # fmt: skip


def task_of_line(line: TaskLine) -> Task:
    command = line.command.encode("utf-8", "surrogateescape")
    return Task(line.task_id, line.line_number, line.repeat_index, 1, command, (), line.request)


class Backlog:
    """Groups come from submitted jobs, then from tasks that came back, then from the file."""

    def __init__(self, template: Job, environment: TaskEnvironment, most_bundled: int, done: DoneIds) -> None:
        self.feeder: Feeder | None = None
        self.pace = Pace(most_bundled)
        self.total: int | None = None
        """Tasks in the file, where that was counted beforehand."""
        self.last_given = -1
        """Every task of the file up to this id has been given out or skipped."""
        self._templates = TaskTemplates(template, environment)
        self._returned: deque[Task] = deque()
        self._jobs: deque[TaskGroup] = deque()
        self._serial = 0
        self._done = done
        self.attempts: dict[int, int] = {}
        """The next attempt of tasks that have failed or were lost before."""
        self.held: set[int] = set()
        """Tasks of the file that engines had in hand when the driver was restarted."""
        self.cancelled: set[int] = set()
        """Tasks that a user has cancelled and that have not ended."""
        self.withdrawn: list[Task] = []
        """Those of them that came up and were not given to the decider. Their ends have to be recorded."""

    def give_back(self, task: Task) -> None:
        """A task of the file that needs another decision."""
        self._returned.append(task)

    def came_back(self, task_id: int) -> bool:
        """Whether the task is one of those that came back."""
        return any(task.task_id == task_id for task in self._returned)

    def withdraw_cancelled(self) -> list[Task]:
        """Takes the cancelled tasks out of those that came back, and returns them with those that came up."""
        withdrawn = self.withdrawn + [task for task in self._returned if task.task_id in self.cancelled]
        self._returned = deque(task for task in self._returned if task.task_id not in self.cancelled)
        self.withdrawn = []
        return withdrawn

    def add(self, group: TaskGroup) -> None:
        """A submitted job that waits for nothing."""
        self._jobs.append(group)

    def withdraw(self, job_id: str) -> TaskGroup | None:
        """Takes back a submitted job that the decider does not know yet."""
        for group in self._jobs:
            if group.job.id == job_id:
                self._jobs.remove(group)
                return group
        return None

    @property
    def jobs(self) -> tuple[TaskGroup, ...]:
        """Submitted jobs that wait for nothing and that the decider does not know yet."""
        return tuple(self._jobs)

    @property
    def empty(self) -> bool:
        return not self._returned and not self._jobs and (self.feeder is None or self.feeder.over)

    @property
    def waiting_here(self) -> int:
        return len(self._returned) + len(self._jobs)

    def ended(self, task_id: int, *, failed: bool) -> None:
        """A task of the file has its final result."""
        if self.feeder is not None and task_id <= self.last_given:
            self.feeder.ended(failed=failed, task_id=task_id)

    def groups(self, most: int, units: int, now: float) -> Iterator[TaskGroup]:
        """Up to `most` groups that may run now."""
        while most > 0 and self._jobs:
            most -= 1
            yield self._jobs.popleft()
        while most > 0:
            came_back = bool(self._returned)
            tasks = self._next_tasks(units)
            if not tasks:
                return
            most -= 1
            yield self._group(tasks, now, came_back=came_back)

    def _next_tasks(self, units: int) -> list[Task]:
        size = self.pace.bundle(self._remaining(), units)
        if self._returned:
            size = min(size, 1 + len(self._returned) // (2 * max(1, units)))
            return list(self._take_returned(size))
        while self.feeder is not None:
            lines = self.feeder.take(size)
            if not lines:
                return []
            self.last_given = max(self.last_given, lines[-1].task_id)
            if not self.held and not self.attempts and not self.cancelled:
                return [task_of_line(line) for line in lines]
            tasks = [self._task(line) for line in lines if line.task_id not in self.held]
            fresh = [task for task in tasks if task.task_id not in self.cancelled]
            self.withdrawn += [task for task in tasks if task.task_id in self.cancelled]
            for line in lines:
                if line.task_id in self._done:
                    # It ended between being read and being given out.
                    self.feeder.ended(failed=line.task_id in self._done.failed, task_id=line.task_id)
            if fresh:
                return fresh
        return []

    def _take_returned(self, most: int) -> Iterator[Task]:
        """Tasks that came back, as many of the same request as may be bundled."""
        request = self._returned[0].request
        if request is not None and not request.can_be_bundled:
            most = 1
        while most and self._returned and self._returned[0].request == request:
            most -= 1
            yield self._returned.popleft()

    def _task(self, line: TaskLine) -> Task:
        task = task_of_line(line)
        task.attempt = self.attempts.get(line.task_id, 1)
        return task

    def _remaining(self) -> int | None:
        if self.total is None or self.feeder is None:
            return None
        return max(0, self.total - self.feeder.given_out)

    def _group(self, tasks: list[Task], now: float, *, came_back: bool) -> TaskGroup:
        self.pace.longest_bytes = max(self.pace.longest_bytes, *(len(task.line) for task in tasks))
        first = tasks[0]
        job_id = str(first.task_id) if len(tasks) == 1 else f"{first.task_id}+{len(tasks) - 1}"
        if first.attempt > 1 and len(tasks) == 1:
            job_id += f"#{first.attempt}"
        if len(tasks) > 1 or came_back:
            # Tasks that came back may be bundled alike again, and no two jobs may have one id.
            self._serial += 1
            job_id += f"@{self._serial}"
        return self.named_group(job_id, {task.task_id: task for task in tasks}, now)

    def taken(self, job_id: str) -> None:
        """A job of an earlier driver has this name: no other gets it."""
        serial = job_id.partition("@")[2]
        if serial.isdecimal():
            self._serial = max(self._serial, int(serial))

    def named_group(self, job_id: str, tasks: dict[int, Task], now: float = 0.0) -> TaskGroup:
        """A group of the file under a name that it already has."""
        first = next(iter(tasks.values()), None)
        template, environment = self._templates.of(None if first is None else first.request)
        job = Job(
            job_id, template.units, template.walltime, now, most_units=template.most_units, shape=template.shape,
            command=template.command,
        )  # fmt: skip
        return TaskGroup(job, tasks, environment, size=len(tasks))


class TaskTemplates:
    """The job that the decider gets for a request, and how its tasks are run; `job` and `environment` are those of no request.

    Requests for the same resources share one Shape, so that the Cluster knows that they fit alike.
    """

    def __init__(self, job: Job, environment: TaskEnvironment) -> None:
        self._default = (job, environment)
        self._kept: dict[TaskRequest, tuple[Job, TaskEnvironment]] = {}
        self._shapes: dict[tuple[int, int, int, int], Shape | None] = {}

    def of(self, request: TaskRequest | None) -> tuple[Job, TaskEnvironment]:
        if request is None:
            return self._default
        found = self._kept.get(request)
        if found is None:
            if len(self._kept) >= MOST_TEMPLATES:
                self._kept.clear()
            found = self._kept[request] = self._make(request)
        return found

    def _make(self, request: TaskRequest) -> tuple[Job, TaskEnvironment]:
        job, environment = self._default
        wanted = asked(request, job)
        key = wanted[:4]
        shape = self._shapes.setdefault(key, shape_for(*key))
        job = Job("", wanted.cores, wanted.walltime, shape=shape, command=job.command)
        env = {**environment.env, **dict(request.env)} if request.env else environment.env
        return job, msgspec.structs.replace(environment, walltime=wanted.walltime, env=env, memory_mb=wanted.memory_mb)


def with_more_memory(task: Task, used_mb: int, factor: float, most_mb: int) -> Task | None:
    """The task with a request for more memory than it had, at most that of the largest node; None: it had that already."""
    if used_mb >= most_mb:
        return None
    request = msgspec.structs.replace(task.request or TaskRequest(), memory_mb=min(most_mb, ceil(used_mb * factor)))
    return msgspec.structs.replace(task, request=request)

"""The driver's backlog: where the next job for the decider comes from. Sans-IO."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from pilothouse.formats.task_file import TaskLine
from pilothouse.model.job import Job
from pilothouse.worlds.live.driver.task_groups import TaskGroup, task_of_line
from pilothouse.worlds.live.feeder import Feeder
from pilothouse.worlds.live.pace import Pace
from pilothouse.worlds.live.wire.messages import Task, TaskEnvironment


class DoneIds:
    """Which tasks have their final result: all below a mark, and a few above it. Failed ones are remembered."""

    def __init__(self) -> None:
        self.count = 0
        self.failed: set[int] = set()
        self._mark = 0
        self._above: set[int] = set()

    def add(self, task_id: int, *, failed: bool) -> None:
        self.count += 1
        if failed:
            self.failed.add(task_id)
        if task_id != self._mark:
            self._above.add(task_id)
            return
        self._mark += 1
        while self._mark in self._above:
            self._above.remove(self._mark)
            self._mark += 1

    def known(self, line: TaskLine) -> bool | None:
        """For a Feeder: None: the task must run; else whether it failed."""
        return line.task_id in self.failed if line.task_id in self else None

    def __contains__(self, task_id: object) -> bool:
        return isinstance(task_id, int) and (task_id < self._mark or task_id in self._above)


class Backlog:
    """Groups come from submitted jobs, then from tasks that came back, then from the file."""

    def __init__(self, template: Job, environment: TaskEnvironment, most_bundled: int, done: DoneIds) -> None:
        self.feeder: Feeder | None = None
        self.pace = Pace(most_bundled)
        self.total: int | None = None
        """Tasks in the file, where that was counted beforehand."""
        self.last_given = -1
        """Every task of the file up to this id has been given out or skipped."""
        self._template = template
        self._environment = environment
        self._returned: deque[Task] = deque()
        self._jobs: deque[TaskGroup] = deque()
        self._serial = 0
        self._came_back = False
        self._done = done
        self.attempts: dict[int, int] = {}
        """The next attempt of tasks that have failed or were lost before."""
        self.held: set[int] = set()
        """Tasks of the file that engines had in hand when the driver was restarted."""

    def give_back(self, task: Task) -> None:
        """A task of the file that needs another decision."""
        self._returned.append(task)

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
    def empty(self) -> bool:
        return not self._returned and not self._jobs and (self.feeder is None or self.feeder.over)

    @property
    def waiting_here(self) -> int:
        return len(self._returned) + len(self._jobs)

    def ended(self, task_id: int, *, failed: bool) -> None:
        """A task of the file has its final result."""
        if self.feeder is not None and task_id <= self.last_given:
            self.feeder.ended(failed=failed)

    def groups(self, most: int, units: int, now: float) -> Iterator[TaskGroup]:
        """Up to `most` groups that may run now."""
        while most > 0 and self._jobs:
            most -= 1
            yield self._jobs.popleft()
        while most > 0:
            tasks = self._next_tasks(units)
            if not tasks:
                return
            most -= 1
            yield self._group(tasks, now)

    def _next_tasks(self, units: int) -> list[Task]:
        size = self.pace.bundle(self._remaining(), units)
        if self._returned:
            size = min(size, 1 + len(self._returned) // (2 * max(1, units)))
            self._came_back = True
            return [self._returned.popleft() for _ in range(size)]
        self._came_back = False
        while self.feeder is not None:
            lines = self.feeder.take(size)
            if not lines:
                return []
            self.last_given = lines[-1].task_id
            if not self.held and not self.attempts:
                return [task_of_line(line) for line in lines]
            fresh = [self._task(line) for line in lines if line.task_id not in self.held]
            for line in lines:
                if line.task_id in self._done:
                    # It ended between being read and being given out.
                    self.feeder.ended(failed=line.task_id in self._done.failed)
            if fresh:
                return fresh
        return []

    def _task(self, line: TaskLine) -> Task:
        task = task_of_line(line)
        task.attempt = self.attempts.get(line.task_id, 1)
        return task

    def _remaining(self) -> int | None:
        if self.total is None or self.feeder is None:
            return None
        return max(0, self.total - self.feeder.given_out)

    def _group(self, tasks: list[Task], now: float) -> TaskGroup:
        self.pace.longest_bytes = max(self.pace.longest_bytes, *(len(task.line) for task in tasks))
        first = tasks[0]
        job_id = str(first.task_id) if len(tasks) == 1 else f"{first.task_id}+{len(tasks) - 1}"
        if first.attempt > 1 and len(tasks) == 1:
            job_id += f"#{first.attempt}"
        if len(tasks) > 1 or self._came_back:
            # Tasks that came back may be bundled alike again, and no two jobs may have one id.
            self._serial += 1
            job_id += f"@{self._serial}"
        return self.named_group(job_id, {task.task_id: task for task in tasks}, now)

    def named_group(self, job_id: str, tasks: dict[int, Task], now: float = 0.0) -> TaskGroup:
        """A group of the file under a name that it already has."""
        template = self._template
        job = Job(
            job_id, template.units, template.walltime, now, most_units=template.most_units, shape=template.shape,
            command=template.command,
        )  # fmt: skip
        return TaskGroup(job, tasks, self._environment, size=len(tasks))

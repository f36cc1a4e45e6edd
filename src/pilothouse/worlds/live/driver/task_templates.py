"""What the tasks of a file ask for: the job that the decider gets for a request, and how its tasks are run. Sans-IO.

Tasks without a request are as the run's options say. Requests for the same resources share one Shape, so that the Cluster knows
that they fit alike.
"""

from __future__ import annotations

from math import ceil

import msgspec

from pilothouse.model.job import Job, Shape
from pilothouse.model.task_request import TaskRequest, asked, shape_for
from pilothouse.worlds.live.wire.messages import Task, TaskEnvironment

MOST_KEPT = 10_000


class TaskTemplates:
    """Jobs and environments by request; `job` and `environment` are those of tasks without one."""

    def __init__(self, job: Job, environment: TaskEnvironment) -> None:
        self._default = (job, environment)
        self._kept: dict[TaskRequest, tuple[Job, TaskEnvironment]] = {}
        self._shapes: dict[tuple[int, int, int, int], Shape | None] = {}

    def of(self, request: TaskRequest | None) -> tuple[Job, TaskEnvironment]:
        if request is None:
            return self._default
        found = self._kept.get(request)
        if found is None:
            if len(self._kept) >= MOST_KEPT:
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

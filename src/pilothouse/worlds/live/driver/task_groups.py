"""Task groups: what the decider knows as one job, and the tasks of it that have not ended. Sans-IO.

A group is the one task of a submitted job, one line of the task file, or a bundle of lines (pace.py). An engine gives
back the tasks of a bundle that a slow one would hold up.
"""

from __future__ import annotations

import msgspec

from pilothouse.formats.task_file import TaskLine
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Command, Job
from pilothouse.model.lifecycle import JobState, Stimulus, step
from pilothouse.worlds.live.wire.messages import Task, TaskEnvironment

CUT_S = 0.8
"""A bundle that has run for longer gives back what it has not begun."""
NODE_LOST = "a node of it was lost"
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
    gpus: tuple[str, ...] = ()
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
        job.walltime, command.cwd, command.stdin, command.stdout, command.stderr, command.env, bind
    )  # fmt: skip


def task_of_line(line: TaskLine) -> Task:
    return Task(line.task_id, line.line_number, line.repeat_index, 1, line.command.encode("utf-8", "surrogateescape"))

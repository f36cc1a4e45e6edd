"""The files that a task's standard streams were asked to be: names with placeholders, made when the task starts."""

from __future__ import annotations

import os
from pathlib import Path

from pilothouse.worlds.live.wire.messages import Task, TaskEnvironment


def open_files(
    task: Task, environment: TaskEnvironment, cwd: str, fds: tuple[int, int, int], opened: list[int]
) -> tuple[int, int, int]:
    """`fds`, with a file in place of each that the environment names one for. What was opened is entered in `opened`."""
    stdin, out, err = fds
    if environment.stdin:
        stdin = os.open(_path(environment.stdin, task, cwd), os.O_RDONLY)
        opened.append(stdin)
    if environment.stdout:
        out = _writable(environment.stdout, task, cwd)
        opened.append(out)
    if environment.stderr and environment.stderr == environment.stdout:
        err = out
    elif environment.stderr:
        err = _writable(environment.stderr, task, cwd)
        opened.append(err)
    return stdin, out, err


def _path(template: str, task: Task, cwd: str) -> Path:
    try:
        name = template.format(task=task.task_id, line=task.line_number, repeat=task.repeat_index, attempt=task.attempt)
    except (KeyError, IndexError, ValueError, AttributeError, TypeError, MemoryError):
        name = template  # braces that mean nothing here belong to the name
    return Path(cwd, name)


def _writable(template: str, task: Task, cwd: str) -> int:
    path = _path(template, task, cwd)
    path.parent.mkdir(parents=True, exist_ok=True)
    if task.attempt > 1 and "{attempt" not in template and path.is_file():
        # What an earlier attempt wrote stays, under another name.
        path.rename(path.with_name(f"{path.name}.attempt{task.attempt - 1}"))
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)

"""Where the tasks of a run come from: a file, standard input, or commands from arguments.

In: what the command line names. Out: a `TaskSource` that is checked before anything runs, and the lines of a run, also of one
that is resumed. What comes from elsewhere than a file is kept in the run's folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import click
import msgspec

from pilothouse.access.files import open_own
from pilothouse.formats.command_template import in_one_line
from pilothouse.formats.task_file import LineKind, Problem, TaskLine
from pilothouse.formats.task_request import words_of
from pilothouse.formats.task_table import check_tasks, read_tasks, reader_for
from pilothouse.launch.commands import ArgumentCommands
from pilothouse.model.errors import InputError
from pilothouse.worlds.live.stream_lines import StreamLines

TASKS_FILE = "tasks.txt"
"""In the run's folder: tasks that come from standard input or are made from arguments."""
_CHUNK_BYTES = 1 << 16


class TaskSource(msgspec.Struct):
    """The tasks of a new run."""

    file: str
    """The task file; "" : there is none."""
    total: int | None = None
    """Tasks in all, where that is known beforehand."""
    made: BinaryIO | None = None
    """Task lines that were made from arguments."""
    stream: Callable[[Path | None], Iterable[bytes]] | None = None
    """Task lines as they come; they are kept in the file that it is given, if any."""

    @classmethod
    def named(cls, given: str | ArgumentCommands, *, kind: str = "", lenient: bool) -> TaskSource:
        """Raises InputError for a file that cannot be read or holds a mistake."""
        if isinstance(given, ArgumentCommands):
            return cls("", stream=_streamed(given)) if given.streams else cls._made(given)
        if given == "-" or _put_on_standard_input(given):
            return cls("", stream=_standard_input)
        if not lenient:
            return cls(given, check_tasks(Path(given), kind=kind))
        if not Path(given).is_file():
            raise InputError(given, "no such task file")
        return cls(given)

    @classmethod
    def _made(cls, commands: ArgumentCommands) -> TaskSource:
        made, total = cast(BinaryIO, tempfile.TemporaryFile()), 0  # noqa: SIM115 - read when the run has a folder
        for line in commands.lines(_standard_input(None)):
            made.write(line + b"\n")
            total += 1
        made.seek(0)
        return cls("", total, made)

    def lines(self) -> Iterable[bytes]:
        """All task lines, for a look at them: nothing is kept."""
        if self.stream is not None:
            return self.stream(None)
        return self.made or _open(self.file)

    def may_repeat(self) -> bool:
        """Whether several tasks may come from one line."""
        return self.stream is not None or (self.made is None and b"REPEAT" in Path(self.file).read_bytes().upper())

    def settle(self, folder: Path) -> Path:
        """The file of the run's tasks. Commands from arguments are written to one."""
        if self.file:
            return Path(self.file).absolute()
        path = folder / TASKS_FILE
        if self.made is not None:
            with _appending(path) as kept:
                shutil.copyfileobj(self.made, kept)
        return path


def task_lines(
    path: str, stream: Iterable[bytes] | None, wake: Callable[[], None], *, kind: str, lenient: bool, on_problem: Problem
) -> Iterator[TaskLine | None]:
    """The tasks of a run, for a Feeder: those of the stream, else those of the file."""
    if stream is not None:
        reader = reader_for("standard input", kind=kind, lenient=lenient, on_problem=on_problem)
        return iter(StreamLines(stream, reader, wake))
    return read_tasks(_open(path), path, kind=kind, lenient=lenient, on_problem=on_problem)


def show_tasks(tasks: Iterable[TaskLine]) -> int:
    """Prints tasks as lines of a task file that would do the same; how many they are."""
    count = 0
    asked = None
    for task in tasks:
        if task.request != asked:
            asked = task.request
            click.echo(f"#PILOTHOUSE {words_of(asked)}" if asked is not None else "")
        command = in_one_line(task.command)
        if task.kind is LineKind.TASK:
            count += 1
            if task.repeat_index >= 0:
                command = f"#DISBATCH REPEAT 1 start {task.repeat_index} {command}"
        elif task.kind in (LineKind.ENGINE_START, LineKind.ENGINE_STOP):
            command = f"#DISBATCH PERENGINE {task.kind.value[1:]} {command}"
        click.echo(os.fsencode(command))
    return count


def digest(path: Path) -> bytes:
    """Tells whether a task file is as it was. Raises InputError if it cannot be read."""
    with _open(str(path)) as stream:
        return hashlib.file_digest(stream, "blake2b").digest()  # type: ignore[arg-type]


def _open(path: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        raise InputError(path, f"cannot read the task file: {error.strerror}") from error


def _put_on_standard_input(name: str) -> bool:
    """A named pipe, as `<(command)` makes one, can be read only once: it replaces standard input. False for other files."""
    try:
        mode = os.stat(name).st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            return False
        pipe = os.open(name, os.O_RDONLY)
    except OSError:
        return False  # the reader of the file reports the error
    os.dup2(pipe, 0)
    os.close(pipe)
    return True


def _standard_input(copy: Path | None) -> Iterator[bytes]:
    """The lines of standard input as they come, without their ends. `copy` gets all that was read."""
    rest: list[bytes] = []  # of a line, joined once: a line may be long
    with _appending(copy) as kept:
        while chunk := os.read(0, _CHUNK_BYTES):
            kept.write(chunk)
            kept.flush()
            first, *others = chunk.split(b"\n")
            rest.append(first)
            for other in others:
                yield b"".join(rest)
                rest = [other]
    if last := b"".join(rest):
        yield last


def _streamed(commands: ArgumentCommands) -> Callable[[Path | None], Iterable[bytes]]:
    return lambda path: _kept(commands.lines(_standard_input(None)), path)


def _kept(lines: Iterable[bytes], path: Path | None) -> Iterator[bytes]:
    """The same lines, each written to the file first."""
    with _appending(path) as copy:
        for line in lines:
            copy.write(line + b"\n")
            copy.flush()
            yield line


def _appending(path: Path | None) -> BinaryIO:
    if path is None:
        return open(os.devnull, "wb")
    return os.fdopen(open_own(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab")

"""Shows what tasks wrote: printed, followed, searched, as JSON, or exported to files."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from pilothouse.formats.output_pack import STDERR, STDOUT
from pilothouse.journal.output import OutputReader, TaskOutput
from pilothouse.journal.read import is_over
from pilothouse.model.errors import InputError

FOLLOW_S = 0.3
Write = Callable[[bytes], object]
_NAMES = {STDOUT: "stdout", STDERR: "stderr"}


class Printer:
    """Writes outputs to a terminal or a pipe. `streams`: which of stdout and stderr."""

    def __init__(self, write: Write, warn: Callable[[str], object], streams: tuple[int, ...], *, headers: bool) -> None:
        self._write = write
        self._warn = warn
        self._streams = streams
        self._headers = headers
        self._shown: dict[tuple[int, int], list[int]] = {}
        """By task and attempt: bytes of each stream that were written already."""

    def show(self, output: TaskOutput) -> None:
        """All of it that was not shown yet."""
        key = (output.task, output.attempt)
        if self._headers and key not in self._shown:
            code = "" if output.exit_code is None else f", exit {output.exit_code}"
            self._write(f"==> task {output.task} ({output.state}{code}) <==\n".encode())
        shown = self._shown.setdefault(key, [0, 0])
        for chunk in output.chunks:
            if chunk.stream in self._streams and chunk.position + len(chunk.data) > shown[chunk.stream]:
                if chunk.position > shown[chunk.stream]:
                    self._write(f"[... {chunk.position - shown[chunk.stream]:,} bytes left out ...]\n".encode())
                self._write(chunk.data[max(0, shown[chunk.stream] - chunk.position) :])
                shown[chunk.stream] = chunk.position + len(chunk.data)
        if output.left_out:
            why = "--output-limit, or a full disk"
            self._warn(f"task {output.task}: {output.left_out:,} bytes of its output were not kept ({why})")


def show_all(reader: OutputReader, tasks: list[int] | None, printer: Printer) -> list[int]:
    """Prints the output of these tasks (None: of all that ended). Those of which nothing is known."""
    missing = set(tasks or ())
    for _, output in reader.read(tasks):
        printer.show(output)
        missing.discard(output.task)
    for output in reader.read_running(missing) if missing else ():
        printer.show(output)
        missing.discard(output.task)
    return sorted(missing)


def follow(folder: Path, reader: OutputReader, tasks: list[int] | None, printer: Printer) -> None:
    """Prints output as it comes, until these tasks have ended or the run is over."""
    last, open_tasks = 0, None if tasks is None else set(tasks)
    while open_tasks is None or open_tasks:
        over = is_over(folder)
        for number, output in reader.read(None if open_tasks is None else sorted(open_tasks), last if tasks is None else 0):
            printer.show(output)
            last = max(last, number)
            if open_tasks is not None and output.state != "running":
                open_tasks.discard(output.task)
        for output in reader.read_running(open_tasks) if open_tasks else ():
            printer.show(output)
        if over:
            return
        time.sleep(FOLLOW_S)


def search(outputs: Iterator[tuple[int, TaskOutput]], pattern: str, streams: tuple[int, ...], write: Write) -> bool:
    """Writes the lines that match, with their task in front. Whether there were any."""
    try:
        wanted = re.compile(pattern.encode())
    except re.error as error:
        raise InputError("--grep", f"not a regular expression: {error}", found=pattern) from None
    found = False
    for _, output in outputs:
        for stream in streams:
            for line in output.text(stream).splitlines():
                if wanted.search(line):
                    write(b"%d: %s\n" % (output.task, line))
                    found = True
    return found


def as_json(output: TaskOutput) -> bytes:
    """One object; bytes that are not UTF-8 are replaced."""
    texts = {name: output.text(stream).decode("utf-8", "replace") for stream, name in _NAMES.items()}
    known = {"task": output.task, "attempt": output.attempt, "state": output.state, "exit_code": output.exit_code}
    return msgspec.json.encode({**known, **texts, "left_out": output.left_out, "damage": output.damage})


def export(outputs: Iterator[tuple[int, TaskOutput]], streams: tuple[int, ...], folder: Path) -> int:
    """Writes TASK.stdout and TASK.stderr, where there is output, and TASK.stdout.damaged where only a part could be read. Returns
    the number of files. Existing ones are never overwritten."""
    count = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for _, output in outputs:
            for stream in streams:
                if text := output.text(stream):
                    name = f"{output.task}.{_NAMES[stream]}{'.damaged' if output.damage else ''}"
                    with (folder / name).open("xb") as file:
                        file.write(text)
                    count += 1
    except OSError as error:
        raise InputError(str(error.filename), f"cannot be written: {error.strerror}", hint="name an empty folder") from None
    return count

"""disBatch's status file: one tab-separated line per finished task, in the order of their ends.

In: results (`StatusLine`) to write; status files of earlier runs to resume from. Out: the same bytes that disBatch
would write, and the answer to "does this task have to run?".

    flags id line repeat node pid code elapsed start finish out-bytes out-snippet err-bytes err-snippet command

The four flags: R (code is not 0), O and E (output leaked), and P per-engine, S skipped, Z a late report of a task
already given up. Barriers have `B` or `C` and four blanks. The command comes last because it may hold tabs.

Edition 2 is the file of disBatch in 2021: commands are quoted (Python's repr), bytes of output that are no UTF-8 are left out,
and the lines of skipped tasks count when a run is resumed from them.
"""

from __future__ import annotations

import os
from ast import literal_eval
from bisect import bisect_right
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

import msgspec

from pilothouse.formats.task_file import TaskLine
from pilothouse.model.errors import InputError, RunError, quoted

HEADER = (
    "ROE[ PSZ]\tTaskID\tLineNum\tRepeatIndex\tNode\tPID\tReturnCode\tElapsed\tStart\tFinish"
    "\tBytesOfLeakedOutput\tOutputSnippet\tBytesOfLeakedError\tErrorSnippet\tCommand"
)
FIELDS = 15
SNIPPET_BYTES = 40
"""So many bytes of the beginning, and so many of the end of what follows them."""


class StatusKind(StrEnum):
    TASK = "N"
    PER_ENGINE = "P"
    SKIPPED = "S"
    LATE = "Z"
    BARRIER = "B"
    CHECK = "C"


class StatusLine(msgspec.Struct, frozen=True, gc=False):
    """One result. `command` holds bytes that are no UTF-8 as surrogate escapes."""

    task_id: int
    line_number: int
    repeat_index: int
    node: str
    pid: int
    return_code: int
    start: float
    finish: float
    command: str
    out_bytes: int = 0
    out_snippet: str = ""
    err_bytes: int = 0
    err_snippet: str = ""
    kind: StatusKind = StatusKind.TASK

    @property
    def flags(self) -> str:
        if self.kind in (StatusKind.BARRIER, StatusKind.CHECK):
            return self.kind + "    "
        marks = ("R" if self.return_code else " ") + ("O" if self.out_bytes else " ") + ("E" if self.err_bytes else " ")
        return marks + (" " if self.kind is StatusKind.TASK else self.kind)

    def __str__(self) -> str:
        return self.text()

    def text(self, edition: int = 3) -> str:
        command = _shown_command(self.command) if edition == 3 else repr(self.command)
        return (
            f"{self.flags}\t{self.task_id}\t{self.line_number}\t{self.repeat_index}\t{self.node}\t{self.pid}"
            f"\t{self.return_code}\t{self.finish - self.start:.3f}\t{self.start:.3f}\t{self.finish:.3f}"
            f"\t{self.out_bytes}\t{self.out_snippet!r}\t{self.err_bytes}\t{self.err_snippet!r}"
            f"\t{command}"
        )

    def skipped(self) -> StatusLine:
        """The line that a resumed run writes for it."""
        return msgspec.structs.replace(self, kind=StatusKind.SKIPPED)


def parse_line(text: str, edition: int = 3) -> StatusLine:
    """Reads one line back. Raises ValueError, SyntaxError."""
    fields = text.split("\t", FIELDS - 1)
    if len(fields) != FIELDS or len(fields[0]) < 4:
        raise ValueError(f"{len(fields)} fields where a status line has {FIELDS}")
    flags = fields[0]
    mark = flags[3] if flags[3] in "PSZ" else flags[0] if flags[0] in "BC" else "N"
    # QUIRK: in 2021 the snippets of skipped tasks were written as they had been read, and so quoted twice (test_disbatch2021).
    out_snippet, err_snippet = map(_snippet if edition == 3 else str, (fields[11], fields[13]))
    return StatusLine(
        int(fields[1]), int(fields[2]), int(fields[3]), fields[4], int(fields[5]), int(fields[6]),
        float(fields[8]), float(fields[9]), _read_command(fields[14]) if edition == 3 else _literal(fields[14]),
        int(fields[10]), out_snippet, int(fields[12]), err_snippet, StatusKind(mark),
    )  # fmt: skip


class StatusWriter:
    """Appends lines, whole ones: who reads the file while the run goes on sees no torn line.

    What a full disk did not take is kept and written with the next lines.
    """

    def __init__(self, path: Path, *, header: bool = False, edition: int = 3) -> None:
        self.path = path
        self._edition = edition
        self._unwritten = bytearray()
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o664)
        except OSError as error:
            raise InputError(str(path), f"cannot write the status file: {error.strerror}") from error
        if header:
            self._unwritten += HEADER.encode() + b"\n"
            self.write([])

    def write(self, lines: Iterable[StatusLine]) -> bool:
        """Whether everything is in the file now."""
        for line in lines:
            self._unwritten += line.text(self._edition).encode("utf-8", "backslashreplace") + b"\n"
        try:
            while self._unwritten:
                written = os.write(self._fd, self._unwritten)
                del self._unwritten[:written]
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Raises RunError if lines would be lost."""
        complete = self.write([])
        os.close(self._fd)
        if not complete:
            raise RunError(f"{self.path}: the disk took no more; the last lines are missing")


class EarlierRuns:
    """What status files of earlier runs know, and which tasks need not run because of it.

    Only where a task's line is is kept in memory, so that a million results cost some hundred bytes each.
    """

    def __init__(self, *, retry: bool = False, force: bool = False, edition: int = 3) -> None:
        self._edition = edition
        self.retry = retry
        self.force = force
        self.unreadable = 0
        self._files: list[tuple[int, BinaryIO]] = []
        self._size = 0
        self._lines: dict[int, int] = {}
        """Task id -> where its line begins in all files together, doubled, plus one if it failed."""

    def __len__(self) -> int:
        return len(self._lines)

    def read(self, path: Path) -> None:
        """Adds a status file. A torn line (the run was killed while it wrote) is counted and passed over."""
        try:
            file = path.open("rb")
            self._files.append((self._size, file))
            at = self._size
            for line in file:
                self._add(line, at)
                at += len(line)
        except OSError as error:
            raise InputError(str(path), f"cannot read the status file: {error.strerror}") from error
        self._size = at

    def result_of(self, line: TaskLine) -> StatusLine | None:
        """The known result of a task that need not run again; None: it must run. Raises InputError on a mismatch."""
        where = self._lines.get(line.task_id)
        if where is None or (self.retry and where & 1):
            return None
        found = self._fetch(where >> 1)
        if found.command == repr(line.command):
            found = msgspec.structs.replace(found, command=line.command)  # the same command, quoted: a file of edition 2
        if not self.force and (found.line_number, found.repeat_index, found.command) != (
            line.line_number,
            line.repeat_index,
            line.command,
        ):
            raise InputError(
                f"task {line.task_id}",
                "is another one than in the status file",
                expected=quoted(f"line {found.line_number} repeat {found.repeat_index}: {found.command}", 200),
                found=quoted(f"line {line.line_number} repeat {line.repeat_index}: {line.command}", 200),
                hint="use --force-resume to proceed anyway",
            )
        return found

    def close(self) -> None:
        for _, file in self._files:
            file.close()

    def _fetch(self, at: int) -> StatusLine:
        index = bisect_right(self._files, at, key=lambda entry: entry[0]) - 1
        base, file = self._files[index]
        file.seek(at - base)
        return parse_line(file.readline().decode("utf-8").removesuffix("\n"), self._edition)

    def _add(self, data: bytes, at: int) -> None:
        if data == HEADER.encode() + b"\n":
            return
        try:
            if not data.endswith(b"\n"):
                raise ValueError("torn")
            line = parse_line(data[:-1].decode("utf-8"), self._edition)
        except (ValueError, SyntaxError):
            self.unreadable += 1
            return
        known = self._lines.get(line.task_id)
        # A success in any of the files counts; disBatch means the same but prefers a task killed by a signal.
        counts = line.kind is StatusKind.TASK or (line.kind is StatusKind.SKIPPED and self._edition == 2)
        if counts and (known is None or known & 1):
            self._lines[line.task_id] = at << 1 | (line.return_code != 0)


def snippet_text(count: int, kept: bytes, edition: int = 3) -> str:
    """A snippet as it is written: text, with signs for bytes that are no UTF-8, and dots after the first 40 of many bytes.

    `kept` is all of an output of up to 80 bytes, else its two ends already joined by dots.
    """
    if SNIPPET_BYTES < count <= 2 * SNIPPET_BYTES:
        kept = kept[:SNIPPET_BYTES] + b"..." + kept[SNIPPET_BYTES:]
    return kept.decode("utf-8", "replace" if edition == 3 else "ignore")


def _shown_command(command: str) -> str:
    try:
        command.encode("utf-8")
    except UnicodeEncodeError:
        return str(os.fsencode(command))
    return command


def _read_command(text: str) -> str:
    if text[:2] in ("b'", 'b"') and text[-1:] == text[1:2]:
        try:
            data = literal_eval(text)
        except (ValueError, SyntaxError):
            return text
        # Only bytes that are no UTF-8 are written in this form; a command may just look like it.
        if isinstance(data, bytes) and str(data) == text and "\\x" in text:
            return data.decode("utf-8", "surrogateescape")
    return text


def _snippet(text: str) -> str:
    return "" if text == "''" else _literal(text)


def _literal(text: str) -> str:
    try:
        value = literal_eval(text)
    except (MemoryError, RecursionError) as error:
        raise ValueError("not a text in quotes") from error
    if not isinstance(value, str):
        raise ValueError(f"not a text in quotes: {text}")
    return value

"""Tasks as rows of a table: CSV or TSV with a header, or JSON lines.

In: lines as they come. Out: TaskLines. The column `command` holds the command (in JSON lines a text or a list of words); others
are named as the keys of a request (task_request.py): cores, mem, gpus, walltime, ... `read_tasks` and `check_tasks` take any task
file, and know a table by the end of its name.
"""

from __future__ import annotations

import csv
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from pilothouse.formats import task_request
from pilothouse.formats.tables import table_kind
from pilothouse.formats.task_file import (
    MOST_LINE_BYTES,
    NO_REPEAT,
    LineKind,
    Problem,
    RequestNames,
    TaskLine,
    TaskReader,
    check_file,
)
from pilothouse.model.errors import InputError, quoted
from pilothouse.model.task_request import TaskRequest

COMMAND = "command"
FORMATS = ("lines", "csv", "tsv", "jsonl")
MOST_ROW_LINES = 10_000
"""A quoted value of CSV may span so many lines: a quotation mark that is never closed is found before all is in memory."""


class Reader(Protocol):
    """Lines of a task file to TaskLines."""

    @property
    def over(self) -> bool: ...

    def feed(self, item: bytes) -> Iterator[TaskLine]: ...

    def read(self, items: Iterable[bytes]) -> Iterator[TaskLine]: ...


class TableReader:
    """Reads the rows of one table."""

    over = False

    def __init__(self, name: str, kind: str) -> None:
        self._name = name
        self._kind = kind
        self._line = 0
        self._next_id = 0
        self._columns: list[str] = []
        self._pending: list[str] = []
        """The lines of a row that is not complete."""
        self._in_quotes = False
        self._names = RequestNames()
        self._known: dict[TaskRequest, TaskRequest] = {}
        self._decode = msgspec.json.Decoder(dict[str, object]).decode

    def read(self, items: Iterable[bytes]) -> Iterator[TaskLine]:
        for item in items:
            yield from self.feed(item)
        if self._pending:
            raise self._error("a quotation mark is not closed")

    def feed(self, item: bytes) -> Iterator[TaskLine]:
        """The task of one line, if it completes a row. Raises InputError."""
        self._line += 1
        if self._line == 1:
            item = item.removeprefix(b"\xef\xbb\xbf")
        row = self._object(item) if self._kind == "jsonl" else self._row(item)
        if row is None:
            return
        where = f"{self._name}:{self._line}"
        command = self._command(row.pop(COMMAND, None))
        asked = task_request.from_columns(row, where)
        self._names.note(asked, where)
        if asked is not None:
            asked = self._known.setdefault(asked, asked)
        yield TaskLine(self._next_id, self._line, NO_REPEAT, command, LineKind.TASK, 0, "", asked)
        self._next_id += 1

    def _object(self, item: bytes) -> dict[str, object] | None:
        if not item.strip():
            return None
        try:
            row = self._decode(item)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            raise self._error(f"not a JSON object on one line: {problem}") from None
        self._check_columns(list(row))
        return row

    def _row(self, item: bytes) -> dict[str, object] | None:
        text = item.decode("utf-8", "surrogateescape").removesuffix("\n")
        self._pending.append(text + "\n")
        self._in_quotes ^= bool(text.count('"') % 2)
        if self._in_quotes:
            if len(self._pending) > MOST_ROW_LINES:
                raise self._error(f"a value of more than {MOST_ROW_LINES:,} lines: a quotation mark is not closed")
            return None
        lines, self._pending = self._pending, []
        try:
            values = next(csv.reader(lines, delimiter="\t" if self._kind == "tsv" else ",", strict=True), [])
        except csv.Error as problem:
            raise self._error(f"not {self._kind.upper()}: {problem}") from None
        if not values:
            return None
        if not self._columns:
            self._columns = [value.strip() for value in values]
            self._check_columns(self._columns)
            return None
        if len(values) != len(self._columns):
            raise self._error(f"{len(values)} values for {len(self._columns)} columns")
        return dict(zip(self._columns, values, strict=True))

    def _check_columns(self, columns: list[str]) -> None:
        known = (COMMAND, *task_request.KEYS)
        for column in columns:
            if column not in known or columns.count(column) > 1:
                what = "a column that no task has" if column not in known else "a column twice"
                raise self._error(what, expected=", ".join(known), found=quoted(column))
        if COMMAND not in columns:
            raise self._error("no command", expected=f"a column named {COMMAND}", found=quoted(", ".join(columns)))

    def _command(self, given: object) -> str:
        if isinstance(given, list) and given and all(isinstance(word, str) for word in given):
            given = shlex.join(given)
        if not isinstance(given, str) or not given.strip() or "\0" in given:
            raise self._error("not a command", expected="a line for the shell", found=quoted(given))
        if len(given.encode("utf-8", "surrogateescape")) > MOST_LINE_BYTES:
            raise self._error(f"more than a command can have ({MOST_LINE_BYTES:,} bytes)", found=quoted(given[:100]))
        return given

    def _error(self, problem: str, *, expected: str = "", found: str = "") -> InputError:
        return InputError(f"{self._name}:{self._line}", problem, expected=expected, found=found)


def reader_for(name: str, *, kind: str = "", lenient: bool = False, on_problem: Problem | None = None) -> Reader:
    """What reads this task file; `kind` is one of FORMATS, "" : by the name."""
    kind = kind or table_kind(name)
    if kind in ("", "lines"):
        return TaskReader(name, lenient=lenient, requests=True, on_problem=on_problem)
    return TableReader(name, kind)


def read_tasks(
    stream: BinaryIO, name: str, *, kind: str = "", lenient: bool = False, on_problem: Problem | None = None
) -> Iterator[TaskLine]:
    """The tasks of an open file or pipe, one row in memory at a time."""
    return reader_for(name, kind=kind, lenient=lenient, on_problem=on_problem).read(stream)


def check_tasks(path: Path, *, kind: str = "") -> int:
    """How many tasks a file holds. Raises InputError (file:line) at the first mistake."""
    if (kind or table_kind(str(path))) in ("", "lines"):
        return check_file(path).tasks
    try:
        with path.open("rb") as stream:
            return sum(1 for _ in TableReader(str(path), kind or table_kind(str(path))).read(stream))
    except OSError as error:
        raise InputError(str(path), f"cannot read the task file: {error.strerror}") from error

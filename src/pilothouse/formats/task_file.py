"""The task file language: one shell command per line, and directives that begin with `#DISBATCH`.

In: lines of bytes (a file, a pipe, items taken from a KVS), never more than one of them in memory.
Out: `TaskLine`s, in order, with the ids, line numbers and repeat indices that disBatch would give them.

    text                                                one task
    # text, or nothing                                  skipped
    #DISBATCH PREFIX text | SUFFIX text                 put before / after every later command, as it stands
    #DISBATCH REPEAT n [start s] [step k] [command]     n tasks with repeat index s, s+k, ...
    #DISBATCH BARRIER [key] | BARRIER CHECK [key]       all earlier tasks must end first (CHECK: and well)
    #DISBATCH PERENGINE START|STOP command              once per engine; only before the first task
    #PILOTHOUSE cores=4 mem=8G ...                      what the tasks below ask for (task_request.py), up to an empty line

By default a malformed or late directive is an InputError that names file and line; `check_file` finds it before any
task runs. With `lenient` the reader does what disBatch does: an unknown directive is reported and ignored, and a late
PERENGINE ends the file. A correct file is read the same way in both modes, but for `requests`: for disBatch a `#PILOTHOUSE` line
is a comment.

With `edition` 2 the language is that of disBatch in 2021: `PERENGINE command` (or PERNODE) may be anywhere and takes a task id,
as barriers do; `BARRIER CHECK` takes no key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

import msgspec

from pilothouse.formats import task_request
from pilothouse.model.errors import InputError, quoted
from pilothouse.model.task_request import TaskRequest

NO_REPEAT = -1
"""The repeat index of a task that no REPEAT made."""

MARK = b"#DISBATCH"
REQUEST_MARK = b"#PILOTHOUSE"

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Some editors begin a file with it; disBatch takes it for a part of the first command."""
_BLOCK_BYTES = 1 << 20
_HASH = ord("#")

_REPEAT = re.compile(rb"REPEAT\s+(\d{1,18})(?:\s+start\s+(\d{1,18}))?(?:\s+step\s+(\d{1,18}))?(?: (.+))?\s*", re.I)
_PER_ENGINE = re.compile(rb"PERENGINE (START|STOP) (.*)", re.I)
_PER_ENGINE_2 = re.compile(rb"(?:PERENGINE|PERNODE) (.*)", re.I)
_BARRIER_2 = re.compile(rb"BARRIER(?: (.*))?", re.I)
_AFFIX = re.compile(rb"(PREFIX|SUFFIX) (.*)", re.I)
_MISPLACED_WORD = re.compile(rb"(?:start|step)(?:\s|$)", re.I)
_ORDINARY = re.compile(rb"^[^\S\n]*+[^\s#]", re.M)


_NOT_PLAIN = (b"\n" + MARK, b"\n" + REQUEST_MARK, b"\r", b"\0")
"""What a block must not hold to be only counted."""


class LineKind(StrEnum):
    """What a line asks for; the letters are those of disBatch's status file where it has one."""

    TASK = "N"
    BARRIER = "B"
    CHECK = "C"
    ENGINE_START = "PSTART"
    ENGINE_STOP = "PSTOP"
    PER_ENGINE = "P"
    """Of edition 2: once on each engine, before the tasks below it."""


class TaskLine(msgspec.Struct, frozen=True, gc=False):
    """One task, barrier or per-engine command.

    `age` counts the synchronisation events (per-engine commands, barriers) before it. `command` holds bytes that are
    no UTF-8 as surrogate escapes: `os.fsencode` gives the bytes of the file back. `key` is a barrier's KVS key.
    Tasks, barriers and the per-engine commands of edition 2 share one sequence of ids; START and STOP commands have one each.
    """

    task_id: int
    line_number: int
    repeat_index: int
    command: str
    kind: LineKind = LineKind.TASK
    age: int = 0
    key: str = ""
    request: TaskRequest | None = None
    """The same object for tasks that ask for the same; None: as the run's options say."""


class Totals(msgspec.Struct, frozen=True):
    """What a whole file holds; `tasks` counts repeats."""

    lines: int
    tasks: int
    barriers: int
    per_engine: int


Problem = Callable[[int, str], None]
"""Called with (line number, what is wrong) for each line that a lenient reader ignores."""


class _Statement(msgspec.Struct, frozen=True, gc=False):
    """One line, before repeats are expanded: `count` tasks that differ by id and index."""

    kind: LineKind
    command: bytes
    count: int = 1
    index: int = NO_REPEAT
    step: int = 0
    key: bytes = b""


MOST_LINE_BYTES = 32 * 4096 - 1
"""Linux executes no longer argument (MAX_ARG_STRLEN), and a line is one argument of the shell."""


class TaskReader:
    """Reads items (of one or more lines each) into TaskLines; keeps the state of the language between lines.

    Each item gets one line number: it is a line of a file, or a whole text from the KVS.
    """

    def __init__(
        self,
        name: str,
        *,
        lenient: bool = False,
        requests: bool | None = None,
        on_problem: Problem | None = None,
        edition: int = 3,
    ) -> None:
        """`requests`: whether `#PILOTHOUSE` lines count; by default they do unless lenient. Edition 2 is read leniently."""
        self.name = name
        self.edition = edition
        self.lenient = lenient
        self._requests = requests if requests is not None else not lenient
        self._request: TaskRequest | None = None
        self._names = RequestNames()
        self.line_number = 0
        self.next_id = 0
        self.age = 0
        self.over = False
        self._on_problem = on_problem
        self._per_engine_allowed = True
        self._per_engine_ids = {LineKind.ENGINE_START: 0, LineKind.ENGINE_STOP: 0}
        self._prefix = b""
        self._suffix = b""

    def read(self, items: Iterable[bytes]) -> Iterator[TaskLine]:
        """All TaskLines of the items, lazily. Raises InputError unless lenient."""
        for item in items:
            if not self.line_number:
                item = self._without_mark(item)
            line = item.removesuffix(b"\n")
            head = line.lstrip()
            if head and head[0] != _HASH and b"\n" not in line and b"\r" not in line and self.edition == 3:
                # The common case, in one piece because a file may hold millions of them.
                self.line_number += 1
                self._per_engine_allowed = False
                command = self._command(line)
                yield TaskLine(
                    self.next_id, self.line_number, NO_REPEAT, _text(command), LineKind.TASK, self.age, "", self._request
                )  # fmt: skip
                self.next_id += 1
            else:
                yield from self.feed(item)
                if self.over:
                    return

    def feed(self, item: bytes) -> Iterator[TaskLine]:
        """The TaskLines of one item."""
        for said in self._statements(item):
            command = _text(said.command)
            index = said.index
            if said.kind in self._per_engine_ids:
                task_id = self._per_engine_ids[said.kind]
                self._per_engine_ids[said.kind] += 1
                yield TaskLine(task_id, self.line_number, index, command, said.kind, self.age)
            for _ in range(said.count if said.kind not in self._per_engine_ids else 0):
                asked = self._request if said.kind is LineKind.TASK else None
                yield TaskLine(self.next_id, self.line_number, index, command, said.kind, self.age, _text(said.key), asked)
                self.next_id += 1
                index += said.step
            if said.kind is not LineKind.TASK:
                self.age += 1

    def count(self, item: bytes) -> tuple[int, int, int]:
        """How many tasks, barriers and per-engine commands an item holds."""
        tasks = barriers = per_engine = 0
        for said in self._statements(item):
            if said.kind is LineKind.TASK:
                tasks += said.count
            elif said.kind in self._per_engine_ids or said.kind is LineKind.PER_ENGINE:
                per_engine += 1
            else:
                barriers += 1
        return tasks, barriers, per_engine

    def count_plain(self, lines: int, tasks: int) -> None:
        """Skips lines that hold no directive."""
        self.line_number += lines
        if tasks:
            self._per_engine_allowed = False

    def _without_mark(self, item: bytes) -> bytes:
        return item if self.lenient else item.removeprefix(_BYTE_ORDER_MARK)

    def _statements(self, item: bytes) -> Iterator[_Statement]:
        if not self.line_number:
            item = self._without_mark(item)
        self.line_number += 1
        for line in self._lines(item) or (b"",):
            if self._requests and line.startswith(REQUEST_MARK):
                self._ask(line)
            elif line.startswith(MARK):
                said = self._directive(line)
                if said is not None:
                    yield said
                if self.over:
                    return
            elif (head := line.lstrip()) and head[0] != _HASH:
                self._per_engine_allowed = False
                yield _Statement(LineKind.TASK, self._command(line))
            elif not head:
                self._request = None

    def _lines(self, item: bytes) -> list[bytes]:
        if self.edition == 3:
            return item.splitlines()
        # QUIRK: in 2021 items were text, which Python splits at form feeds and other characters too (test_the_language_of_2021).
        return [os.fsencode(line) for line in os.fsdecode(item).splitlines()]

    def _ask(self, line: bytes) -> None:
        """A `#PILOTHOUSE` line: what the tasks below it ask for."""
        where, words = f"{self.name}:{self.line_number}", line[len(REQUEST_MARK) :]
        try:
            if words and not words[:1].isspace():
                raise InputError(where, "a request needs one blank after #PILOTHOUSE", found=quoted(_text(line)))
            asked = task_request.parse_words(_text(words), where)
            self._names.note(asked, where)
            self._request = asked
        except InputError as problem:
            if not self.lenient:
                raise
            if self._on_problem is not None:
                self._on_problem(self.line_number, str(problem))

    def _command(self, line: bytes) -> bytes:
        if b"\0" in line and not self.lenient:
            raise self._error(line, "a NUL byte, which no command can hold")
        if len(line) > MOST_LINE_BYTES and not self.lenient:
            raise self._error(line[:100], f"{len(line):,} bytes, more than a command can have ({MOST_LINE_BYTES:,})")
        return self._prefix + line + self._suffix

    def _directive(self, line: bytes) -> _Statement | None:
        rest = line[len(MARK) + 1 :]
        if self.edition == 2:
            return self._directive_2(line, rest)
        if not line.startswith(MARK + b" "):
            if not self.lenient:
                raise self._error(line, "a directive needs one blank after #DISBATCH")
            # QUIRK: disBatch hands such a line to the shell, for which it is a comment (test_mark_without_blank).
            self._per_engine_allowed = False
            return _Statement(LineKind.TASK, self._command(line))
        if match := _PER_ENGINE.fullmatch(rest):
            return self._per_engine(match, line)
        if match := _AFFIX.fullmatch(rest):
            self._affix(match)
            return None
        # Even a directive that is then ignored closes the block of per-engine commands.
        self._per_engine_allowed = False
        if match := _REPEAT.fullmatch(rest):
            return self._repeat(match, line)
        if rest.startswith(b"BARRIER"):
            return self._barrier(rest[len(b"BARRIER") :], line)
        self._problem(line, _advice(rest))
        return None

    def _directive_2(self, line: bytes, rest: bytes) -> _Statement | None:
        if not line.startswith(MARK + b" "):
            return None  # a comment
        if match := _AFFIX.fullmatch(rest):
            self._affix(match)
            return None
        if match := _REPEAT.fullmatch(rest):
            return self._repeat(match, line)
        if match := _PER_ENGINE_2.fullmatch(rest):
            return _Statement(LineKind.PER_ENGINE, self._command(match[1]))
        if match := _BARRIER_2.fullmatch(rest):
            check = match[1] == b"CHECK"
            return _Statement(LineKind.CHECK if check else LineKind.BARRIER, line, key=b"" if check else match[1] or b"")
        self._problem(line, "unknown directive; known are PREFIX, SUFFIX, REPEAT, BARRIER, PERENGINE")
        return None

    def _affix(self, match: re.Match[bytes]) -> None:
        if match[1].upper() == b"PREFIX":
            self._prefix = match[2]
        else:
            self._suffix = match[2]

    def _per_engine(self, match: re.Match[bytes], line: bytes) -> _Statement | None:
        if not self._per_engine_allowed:
            self._problem(line, "PERENGINE after the first task; per-engine commands must come before all tasks")
            self.over = True
            return None
        kind = LineKind.ENGINE_START if match[1].upper() == b"START" else LineKind.ENGINE_STOP
        return _Statement(kind, self._command(match[2]))

    def _repeat(self, match: re.Match[bytes], line: bytes) -> _Statement:
        count, start, step, given = match.groups()
        if not self.lenient and given and _MISPLACED_WORD.match(given.lstrip()):
            hint = "REPEAT takes `n [start s] [step k] [command]` in this order; write ./start for a program so named"
            raise self._error(line, hint)
        return _Statement(LineKind.TASK, self._command(given or b""), int(count), int(start or 0), int(step or 1))

    def _barrier(self, rest: bytes, line: bytes) -> _Statement:
        kind = LineKind.BARRIER
        if rest.startswith(b" CHECK"):
            kind, rest = LineKind.CHECK, rest[6:]
        if rest and not rest.startswith(b" "):
            # QUIRK: for disBatch BARRIERS and BARRIER CHECKED are barriers without a key (test_barrier_with_a_tail).
            if not self.lenient:
                raise self._error(line, "expected `BARRIER [key]` or `BARRIER CHECK [key]`")
            rest = b""
        return _Statement(kind, line, key=rest[1:])

    def _problem(self, line: bytes, problem: str) -> None:
        if not self.lenient:
            raise self._error(line, problem)
        if self._on_problem is not None:
            self._on_problem(self.line_number, f"{problem}: {quoted(_text(line))}")

    def _error(self, line: bytes, problem: str) -> InputError:
        return InputError(f"{self.name}:{self.line_number}", problem, found=quoted(_text(line)))


class RequestNames:
    """The names that tasks were given. A name is complete when a task waits for it, so that no ring can arise."""

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._waited_for: set[str] = set()

    def note(self, asked: TaskRequest | None, where: str) -> None:
        """Raises InputError for a name that is not known yet, or that is given after a task waits for it."""
        if asked is None:
            return
        for name in asked.after:
            if name not in self._given:
                raise InputError(where, f"after={name}: no task above has this name")
            self._waited_for.add(name)
        if asked.name in self._waited_for:
            raise InputError(where, f"name={asked.name}: tasks above wait for this name already")
        if asked.name:
            self._given.add(asked.name)


def read_file(
    stream: BinaryIO, name: str, *, lenient: bool = False, on_problem: Problem | None = None
) -> Iterator[TaskLine]:
    """The TaskLines of an open file or pipe, one line in memory at a time."""
    return TaskReader(name, lenient=lenient, on_problem=on_problem).read(stream)


def check_stream(stream: BinaryIO, name: str, *, lenient: bool = False, edition: int = 3) -> Totals:
    """Reads a whole file without making its tasks. Raises InputError (file:line) at the first mistake unless lenient.

    Blocks that hold no directive are only counted, so that a million lines take a fraction of a second.
    """
    reader = TaskReader(name, lenient=lenient, edition=edition)
    tasks = barriers = per_engine = 0
    while not reader.over and (block := stream.read(_BLOCK_BYTES)):
        block += stream.readline()
        if not reader.line_number and not lenient:
            block = block.removeprefix(_BYTE_ORDER_MARK)
        if not (block.startswith((MARK, REQUEST_MARK)) or any(mark in block for mark in _NOT_PLAIN)):
            found = len(_ORDINARY.findall(block))
            tasks += found
            reader.count_plain(block.count(b"\n") + (not block.endswith(b"\n")), found)
            continue
        for line in block.removesuffix(b"\n").split(b"\n"):
            counted = reader.count(line)
            tasks += counted[0]
            barriers += counted[1]
            per_engine += counted[2]
            if reader.over:
                break
    return Totals(reader.line_number, tasks, barriers, per_engine)


def check_file(path: Path) -> Totals:
    """`check_stream` of a file by name."""
    try:
        with path.open("rb") as stream:
            return check_stream(stream, str(path))
    except OSError as error:
        raise InputError(str(path), f"cannot read the task file: {error.strerror}") from error


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _advice(rest: bytes) -> str:
    word = next(iter(rest.upper().split()), b"")
    usage = {
        b"PREFIX": "expected `PREFIX text`",
        b"SUFFIX": "expected `SUFFIX text`",
        b"REPEAT": "expected `REPEAT n [start s] [step k] [command]`, numbers without sign",
        b"PERENGINE": "expected `PERENGINE START command` or `PERENGINE STOP command`",
        b"BARRIER": "expected `BARRIER [key]` or `BARRIER CHECK [key]`, in capitals",
    }
    return usage.get(word, "unknown directive; known are PREFIX, SUFFIX, REPEAT, BARRIER, PERENGINE")

"""What the tasks of a run wrote to stdout and stderr: found by the journal, read from packs or the files of --out and --err."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import msgspec

from pilothouse.formats.output_pack import STDERR, STDOUT, Chunk, pack_path, read_backwards, scan
from pilothouse.journal.plan import plan_of
from pilothouse.journal.read import in_hand, numbers_of, reading
from pilothouse.journal.store import columns_of
from pilothouse.model.errors import InputError
from pilothouse.model.numerals import whole_number

MOST_NAMED = 20
"""Damaged outputs that a message names."""


class TaskOutput(msgspec.Struct, frozen=True):
    """One attempt of one task."""

    task: int
    attempt: int
    state: str
    exit_code: int | None
    chunks: list[Chunk]
    left_out: int = 0
    """Bytes that were not kept: beyond the limit, or the disk was full."""
    damage: str = ""
    """Where the pack is damaged, if it is: `chunks` are then what could be read."""

    def text(self, stream: int) -> bytes:
        return b"".join(chunk.data for chunk in self.chunks if chunk.stream == stream)


class OutputReader:
    """Reads outputs of the run in `folder`, while it goes on or afterwards."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._packs: dict[str, BinaryIO] = {}
        self._damaged: dict[int, str] = {}
        """Tasks whose output could not be read whole -> where their pack is damaged."""
        with reading(folder) as db:
            if "output" not in columns_of(db, "ends"):
                raise InputError(str(folder), "its tasks' output was not kept: an earlier version made this run")
            plan = plan_of(dict(db.execute("SELECT name, value FROM notes WHERE name = 'plan'")))
            self._keys: dict[int, str] = {rank: key or "" for rank, key in db.execute("SELECT rank, key FROM engines")}
        self._cwd = Path(plan.cwd)
        self._files = (plan.options.out, plan.options.err)
        """Patterns of the files that were asked for."""

    def numbers(self, names: Iterable[str]) -> list[int]:
        """The tasks of these names or numbers."""
        found: dict[int, None] = {}
        for name in names:
            numbers, number = numbers_of(self._folder, name), whole_number(name)
            if number is not None:
                numbers = numbers or [number]
            if not numbers:
                raise InputError(str(self._folder), f"no task {name} has ended", expected="a number or a name")
            found.update(dict.fromkeys(numbers))
        return list(found)

    def read(self, tasks: Iterable[int] | None, after: int = 0) -> Iterator[tuple[int, TaskOutput]]:
        """The last attempt of each of these tasks that ended, or of all that ended, in the order of the tasks.

        With each comes its row in the journal: those up to `after` are left out.
        """
        columns = """rowid, task_id, attempt, state, return_code, rank, line_number, repeat_index, output, left_out,
                     out_bytes + err_bytes"""
        where = "kind = 'N' AND rowid > ?"
        with reading(self._folder) as db:
            if tasks is None:
                rows = db.execute(f"SELECT {columns} FROM ends WHERE {where} AND final ORDER BY task_id", (after,))
                yield from (self._output(row) for row in rows)
                return
            for task in tasks:
                query = f"SELECT {columns} FROM ends WHERE {where} AND task_id = ? ORDER BY rowid DESC LIMIT 1"
                row = db.execute(query, (after, task)).fetchone()
                if row is not None:
                    yield self._output(row)

    def read_running(self, tasks: Iterable[int]) -> Iterator[TaskOutput]:
        """What tasks that have not ended have written so far."""
        wanted = set(tasks)
        with reading(self._folder) as db:
            held = {(row.task, row.attempts): self._key_of(db, row.node) for row in in_hand(db) if row.task in wanted}
        for (task, attempt), key in held.items():
            pack = self._pack(key)
            chunks, damage = _whole(chunk for _, chunk in scan(pack, 0, pack.name)) if pack is not None else ([], "")
            if damage:
                self._damaged[task] = damage
            own = [chunk for chunk in chunks if chunk.task_id == task and chunk.attempt == attempt]
            yield TaskOutput(task, attempt, "running", None, own, damage=damage)

    @staticmethod
    def _key_of(db: sqlite3.Connection, node: str) -> str:
        row = db.execute("SELECT key FROM engines WHERE node = ? ORDER BY rank DESC", (node,)).fetchone()
        return str(row[0] or "") if row else ""

    def _output(self, row: tuple[int, int, int, str, int, int, int, int, int | None, int | None, int]) -> tuple[int, TaskOutput]:
        number, task, attempt, state, code, rank, line, repeat, place, left_out, written = row
        chunks: list[Chunk] = []
        damage = ""
        pack = self._pack(self._keys.get(rank, "")) if place else None
        if place and pack is not None:
            chunks, damage = _whole(read_backwards(pack, place, pack.name))
            chunks.reverse()
            if damage:
                self._damaged[task] = damage
        elif place:
            left_out = written
        for stream, pattern in ((STDOUT, self._files[0]), (STDERR, self._files[1])):
            if pattern and not (stream == STDERR and self._files[0] == pattern):
                path = self._cwd / pattern.format(task=task, line=line, repeat=repeat, attempt=attempt)
                if path.is_file():
                    chunks.append(Chunk(stream, attempt, task, 0, path.read_bytes()))
        return number, TaskOutput(task, attempt, state, code, chunks, left_out or 0, damage)

    def _pack(self, key: str) -> BinaryIO | None:
        """The pack of the engine with this key; None: it has none (yet)."""
        if key not in self._packs:
            try:
                self._packs[key] = open(pack_path(self._folder, key), "rb")  # noqa: SIM115 - kept until `close`
            except OSError:
                return None
        return self._packs[key]

    def check(self) -> None:
        """After reading: raises InputError if some output could not be read whole."""
        if self._damaged:
            some = ", ".join(map(str, list(self._damaged)[:MOST_NAMED])) + (", ..." if len(self._damaged) > MOST_NAMED else "")
            count = len(self._damaged)
            problem = f"the output of {count:,} task{'s' if count != 1 else ''} is damaged ({some}), the rest is whole"
            raise InputError(str(self._folder), problem, found=next(iter(self._damaged.values())))

    def close(self) -> None:
        for pack in self._packs.values():
            pack.close()


def _whole(chunks: Iterator[Chunk]) -> tuple[list[Chunk], str]:
    """The chunks up to the first damaged one, and what is wrong with that."""
    whole: list[Chunk] = []
    try:
        whole.extend(chunks)
    except InputError as error:
        return whole, str(error)
    return whole, ""


def open_outputs(folder: Path) -> closing[OutputReader]:
    return closing(OutputReader(folder))

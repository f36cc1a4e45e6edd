"""Reading the journal of a run, while it goes on or afterwards. Never writes, never disturbs the driver."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from math import inf
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import msgspec

from pilothouse.journal.lock import is_free
from pilothouse.journal.run_state import behind_others
from pilothouse.journal.store import FILE_NAME, check_version, columns_of, decode_tasks, undamaged
from pilothouse.model.errors import InputError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Node
from pilothouse.model.lifecycle import JobState

Row = TypeVar("Row", bound=msgspec.Struct)
UNFINISHED = "unfinished"
"""The state of a task that was cut off, or failed and will be tried again."""
_CLOCKS_DIFFER_S = 1.0
"""Engines date the beginning of a task by their own clock, the driver dates assignments by its own."""


class TaskRow(msgspec.Struct, frozen=True):
    """`pilothouse tasks --json`, a line for each: one task of a run, as it stands. Dates are seconds since 1970; null: not known
    (yet)."""

    task: int
    line: int
    repeat_index: int
    state: str
    exit_code: int | None
    attempts: int
    node: str
    started: float | None
    ended: float | None
    reason: str
    command: str
    job: str = ""
    out_bytes: int = 0
    out: str = ""
    err_bytes: int = 0
    err: str = ""
    rank: int = -1
    """Of the engine that ran it; -1: none did."""
    engine: str = ""
    units: str = ""
    """The units that it was given, in all."""
    slots: str = ""
    """The same as slots of its engine, counted from 0."""
    name: str = ""
    """As its request names it."""
    cpu_s: float = 0.0
    memory_kb: int = 0
    """The most that it used."""
    last_line: str = ""
    """The last line that a task that did not succeed wrote to standard error."""
    submitted: float | None = None
    """When its line of the file was read and the decider was told of it."""


def read_tasks(folder: Path, *, failed: bool = False, last: int | None = None) -> Iterator[TaskRow]:
    """Every task that was begun or ended, by id: finished ones first, then those that were cut off (by Ctrl-C, with an
    engine) or will be tried again, then those in hand, if not only `failed`. `last`: of those that ended, the last ones.
    """
    with reading(folder) as db:
        rowid = db.execute("SELECT coalesce(max(rowid), 0) FROM ends").fetchone()[0]
        after = 0 if last is None else max(0, rowid - last)
        places = _Places(db) if not after else _Places(
            db, "closed_at IS NULL OR job_id IN (SELECT job_id FROM ends WHERE rowid > ?)", (after,)
        )  # fmt: skip
        recent = f" AND rowid > {after:d}" if after else ""
        yield from _ends(db, "final AND kind = 'N'" + (" AND state != 'succeeded'" if failed else "") + recent, places)
        running = [places.placed(row) for row in in_hand(db)]
        held = {row.task for row in running}
        unfinished = f"""rowid IN (SELECT max(rowid) FROM ends WHERE kind = 'N' AND task_id IN
                  (SELECT task_id FROM ends WHERE NOT final AND kind = 'N'{recent}) GROUP BY task_id HAVING NOT max(final))"""
        for row in _ends(db, unfinished, places):
            if row.task not in held:
                yield msgspec.structs.replace(row, state=UNFINISHED)
        if not failed:
            yield from running


def read_attempts(folder: Path, task_id: int) -> tuple[list[TaskRow], bool]:
    """Every attempt of a task that has ended, in order; and whether the last one is its final result."""
    with reading(folder) as db:
        own = f"task_id = {task_id:d} AND kind IN ('N', 'S')"
        jobs = "job_id IN (SELECT job_id FROM ends WHERE task_id = ?)"
        rows = list(_ends(db, own, _Places(db, jobs, (task_id,))))
        (final,) = db.execute(f"SELECT max(final) FROM ends WHERE {own}").fetchone()
    return rows, bool(final)


def numbers_of(folder: Path, name: str) -> list[int]:
    """The tasks that have ended under this name, or were submitted as the job of this name."""
    with reading(folder) as db:
        named = "SELECT DISTINCT task_id FROM ends WHERE name = ? AND name != ''" if "name" in columns_of(db, "ends") else ""
        rows = db.execute(named, (name,)).fetchall() if named else []
        rows = rows or db.execute("SELECT task_id FROM jobs WHERE job_id = ?", (name,)).fetchall()
    return [number for (number,) in rows]


class JobRow(msgspec.Struct, frozen=True):
    """One submitted job of a run."""

    job_id: str
    units: IdSet
    """Of its last start; none if it was never started."""
    cwd: str = ""
    state: JobState | None = None
    """Its final state; None while it waits or runs."""
    started: float = 0.0
    ended: float = 0.0
    exit_code: int = 0
    pid: int = -1


def read_jobs(folder: Path) -> list[JobRow]:
    """Every submitted job: those that ended, in order of their ends, then the others."""
    with reading(folder) as db:
        units = dict(db.execute("SELECT job_id, units FROM assignments ORDER BY id"))
        cwds = {job_id: _cwd(data) for job_id, data in db.execute("SELECT job_id, data FROM jobs ORDER BY task_id")}
        query = """SELECT job_id, state, started_at, ended_at, return_code, pid FROM ends
                   WHERE final AND job_id != '' ORDER BY rowid"""
        ends = {job_id: (JobState(state), *rest) for job_id, state, *rest in db.execute(query)}
    return [
        JobRow(job_id, IdSet.parse(units.get(job_id, "")), cwds.get(job_id, ""), *ends.get(job_id, ()))
        for job_id in {**ends, **cwds}
    ]


def read_nodes(folder: Path) -> tuple[Node, ...]:
    """The nodes that engines joined with, by their units."""
    with reading(folder) as db:
        rows = db.execute("SELECT node, first_unit, slots FROM engines ORDER BY first_unit")
        return tuple(Node(*row) for row in rows)


class EngineSpan(msgspec.Struct, frozen=True):
    """An engine, its units, and when it was there. `left_at` is None while it is."""

    engine: str
    rank: int
    context: str
    node: str
    first_unit: int
    slots: int
    joined_at: float
    left_at: float | None = None
    lost: bool = False


class Submission(msgspec.Struct, frozen=True):
    """What the journal knows of a job that came in by itself. `submitted_at` is a date of the run's clock."""

    units: int
    walltime: float = inf
    submitted_at: float = 0.0
    user: str = ""
    id: str = ""
    refused: str | None = None
    """Why it will never start; None: it was not refused."""


def _cwd(data: bytes) -> str:
    """The working directory of a job."""
    command = (msgspec.msgpack.decode(data) or {}).get("command") or {}
    return str(command.get("cwd", ""))


def never_begun(folder: Path) -> int | None:
    """How many tasks of the file have not been begun; None: the number of tasks is not known."""
    with reading(folder) as db:
        total = db.execute("SELECT value FROM notes WHERE name = 'total'").fetchone()
        begun = db.execute("SELECT count(DISTINCT task_id) FROM ends WHERE kind = 'N'").fetchone()[0]
        known = db.execute("SELECT DISTINCT task_id FROM ends WHERE kind = 'N' AND NOT final")
        tried = {task_id for (task_id,) in known}
        waiting = sum(1 for row in in_hand(db) if row.task not in tried)
        return None if total is None else max(0, int(total[0]) - begun - waiting)


def is_over(folder: Path) -> bool:
    """Whether no driver is at work on the run."""
    return is_free(folder)


def read_engines(folder: Path) -> list[EngineSpan]:
    """Every engine that joined, by its units."""
    query = "SELECT engine, rank, context, node, first_unit, slots, joined_at, left_at, lost FROM engines ORDER BY first_unit"
    with reading(folder) as db:
        rows = db.execute(query).fetchall()
    return [
        checked(EngineSpan(engine, rank, context, node, first_unit, slots, joined_at, left_at, bool(lost)))
        for engine, rank, context, node, first_unit, slots, joined_at, left_at, lost in rows
    ]


def read_notes(folder: Path) -> dict[str, bytes]:
    """What was noted about the run, by name."""
    with reading(folder) as db:
        return {str(name): bytes(value) for name, value in db.execute("SELECT name, value FROM notes")}


def read_submissions(folder: Path) -> list[Submission]:
    """The jobs that came in one by one (not as lines of a task file), and which of them were refused."""
    with reading(folder) as db:
        refused = dict(db.execute("SELECT job_id, reason FROM refusals"))
        rows = db.execute("SELECT job_id, data FROM jobs ORDER BY task_id").fetchall()
        return [
            msgspec.structs.replace(msgspec.msgpack.decode(data, type=Submission), id=job_id, refused=refused.get(job_id))
            for job_id, data in rows
        ]


class _Places:
    """Where tasks ran: the assignments of each job, and the engines."""

    def __init__(self, db: sqlite3.Connection, where: str = "1", given: tuple[int, ...] = ()) -> None:
        """`where`: the assignments that matter."""
        query = "SELECT engine, rank, first_unit, slots FROM engines"
        self._engines = {engine: tuple(rest) for engine, *rest in db.execute(query)}
        self._by_job: dict[str, list[tuple[float, str, str, float]]] = {}
        came = "coalesce(submitted_at, 0.0)" if "submitted_at" in columns_of(db, "assignments") else "0.0"
        made = f"SELECT job_id, at, engine, units, {came} FROM assignments WHERE {where} ORDER BY id"
        for job_id, at, engine, units, came_at in db.execute(made, given):
            self._by_job.setdefault(job_id, []).append((at, engine, units, came_at))

    def placed(self, row: TaskRow) -> TaskRow:
        """The row, with engine, units and slots of the assignment that it belongs to: the last one made before it began."""
        made = self._by_job.get(row.job, ())
        begun = [assigned for assigned in made if row.started is None or assigned[0] <= row.started + _CLOCKS_DIFFER_S]
        if not begun:
            return row
        _, engine, units, came_at = begun[-1]
        rank, first, count = self._engines.get(engine, (-1, 0, 0))
        slots = IdSet((IdSet.parse(units).mask >> first) & ((1 << count) - 1)).to_text()
        return msgspec.structs.replace(row, engine=engine, rank=rank, units=units, slots=slots, submitted=came_at or None)


def _ends(db: sqlite3.Connection, where: str, places: _Places) -> Iterator[TaskRow]:
    query = f"""SELECT task_id, line_number, repeat_index, state, return_code, attempt, node, started_at, ended_at,
                reason, command, job_id, out_bytes, out_snippet, err_bytes, err_snippet, {_measured(db)}
                FROM ends WHERE {where} ORDER BY task_id, rowid"""
    for row in db.execute(query):
        task, line, repeat, state, code, attempt, node, started, ended, reason, command, job, *output = row
        out_bytes, out, err_bytes, err, name, cpu_s, memory_kb, said = output
        yield places.placed(checked(TaskRow(
            task, line, repeat, state, code, attempt, node, started, ended, reason, _text(command), job,
            out_bytes, _text(out), err_bytes, _text(err), name=name or "", cpu_s=cpu_s or 0.0, memory_kb=memory_kb or 0,
            last_line=last_line(said) if code else "",
        )))  # fmt: skip


def _measured(db: sqlite3.Connection) -> str:
    """Columns that journals of earlier versions lack."""
    known = {row[1] for row in db.execute("PRAGMA table_info(ends)")}
    measured = "name, cpu_s, memory_kb" if "memory_kb" in known else "NULL, NULL, NULL"
    return f"{measured}, {last_line_column(db)}"


def last_line_column(db: sqlite3.Connection) -> str:
    """Where the last line of standard error is; in journals of earlier versions, at the end of the snippet."""
    known = {row[1] for row in db.execute("PRAGMA table_info(ends)")}
    return "coalesce(last_line, err_snippet)" if "last_line" in known else "err_snippet"


def last_line(data: bytes | None) -> str:
    """The last line that is not empty."""
    lines = _text(data or b"").strip().splitlines()
    return lines[-1].strip() if lines else ""


def in_hand(db: sqlite3.Connection) -> Iterator[TaskRow]:
    """Tasks that an engine has and that have not ended."""
    query = """SELECT a.tasks, a.at, e.node, a.job_id FROM assignments a JOIN engines e ON a.engine = e.engine
               WHERE a.closed_at IS NULL ORDER BY a.id"""
    for tasks, at, node, job in db.execute(query):
        before = 0
        for order in decode_tasks(tasks):
            ended = "SELECT 1 FROM ends WHERE task_id = ? AND attempt >= ? AND kind = 'N' LIMIT 1"
            if db.execute(ended, (order.task_id, order.attempt)).fetchone() is None:
                command = _text(order.line or b" ".join(order.argv))
                wait = behind_others(before, node)
                before += 1
                yield TaskRow(
                    order.task_id, order.line_number, order.repeat_index, "running", None, order.attempt, node, at,
                    None, str(wait) if wait is not None else "", command, job,
                )  # fmt: skip


def read_note(folder: Path, name: str) -> bytes | None:
    """What a run noted under this name."""
    with reading(folder) as db:
        row = db.execute("SELECT value FROM notes WHERE name=?", (name,)).fetchone()
    return None if row is None else bytes(row[0])


@contextmanager
def reading(folder: Path) -> Iterator[sqlite3.Connection]:
    """The journal while it is read. What shows that it is damaged is an InputError."""
    with undamaged(folder / FILE_NAME), closing(open_for_reading(folder)) as db:
        yield db


def open_for_reading(folder: Path) -> sqlite3.Connection:
    path = folder / FILE_NAME
    if not path.is_file():
        raise InputError(str(folder), "no run was recorded here", expected=f"a folder with {FILE_NAME}")
    with undamaged(path):
        db = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, isolation_level=None)
        check_version(db, path)
        return db


def checked(row: Row) -> Row:
    """The same row. Raises ValidationError if a field has another type than it should: SQLite keeps whatever is written."""
    return msgspec.convert(msgspec.structs.asdict(row), type(row))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")

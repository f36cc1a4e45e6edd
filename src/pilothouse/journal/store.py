"""The journal of a run: one SQLite file in its folder, written in batches.

In: the records of a live run (worlds/live/records.py); `write` keeps a whole batch or nothing. Out: the same records,
for a restarted driver (`replay`), and rows for views (journal/read.py). WAL mode: readers never disturb the writer; a
killed process loses nothing that was committed.
"""

from __future__ import annotations

import sqlite3
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec.structs import astuple

from pilothouse.access.files import make_private
from pilothouse.model.errors import InputError, PeerError, RunError
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.wire.messages import Task

FILE_NAME = "journal.sqlite"
VERSION = 1
"""Of the schema, kept as SQLite's user_version; 0 in journals of before it was kept. Raised with every change after which an
older version would misread the file; columns that it may ignore do not raise it."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS engines (
    engine TEXT PRIMARY KEY, rank INTEGER, context TEXT, node TEXT, slots INTEGER, first_unit INTEGER, pid INTEGER,
    joined_at REAL, key TEXT, gpus TEXT, memory_mb INTEGER, cores INTEGER,
    left_at REAL, reason TEXT, lost INTEGER);
CREATE TABLE IF NOT EXISTS jobs (job_id TEXT PRIMARY KEY, task_id INTEGER, data BLOB);
CREATE TABLE IF NOT EXISTS assignments (
    id INTEGER PRIMARY KEY, job_id TEXT, engine TEXT, units TEXT, at REAL, tasks BLOB, gpus TEXT,
    memory_mb INTEGER, submitted_at REAL, closed_at REAL);
CREATE INDEX IF NOT EXISTS open_assignments ON assignments (id) WHERE closed_at IS NULL;
CREATE TABLE IF NOT EXISTS ends (
    task_id INTEGER, line_number INTEGER, repeat_index INTEGER, attempt INTEGER, kind TEXT, state TEXT,
    return_code INTEGER, rank INTEGER, node TEXT, pid INTEGER, started_at REAL, ended_at REAL, out_bytes INTEGER,
    out_snippet BLOB, err_bytes INTEGER, err_snippet BLOB, command BLOB, reason TEXT, final INTEGER, job_id TEXT,
    cpu_s REAL, memory_kb INTEGER, name TEXT, last_line BLOB, output INTEGER, left_out INTEGER);
CREATE INDEX IF NOT EXISTS ends_by_task ON ends (task_id);
CREATE TABLE IF NOT EXISTS reopened (task_id INTEGER, at REAL);
CREATE TABLE IF NOT EXISTS refusals (job_id TEXT, at REAL, reason TEXT);
"""
_SESSION = "SELECT value FROM notes WHERE name='session'"
_OUTPUT = ("last_line BLOB", "output INTEGER", "left_out INTEGER")
_LATER = {
    "ends": ("cpu_s REAL", "memory_kb INTEGER", "name TEXT", *_OUTPUT),
    "assignments": ("gpus TEXT", "memory_mb INTEGER", "submitted_at REAL"),
}
"""Columns that journals of earlier versions lack."""
_BY_NAME = "CREATE INDEX IF NOT EXISTS ends_by_name ON ends (name) WHERE name != ''"


def _insert(table: str, record: type[msgspec.Struct]) -> str:
    fields = record.__struct_fields__
    return f"INSERT INTO {table} ({','.join(fields)}) VALUES ({','.join('?' * len(fields))})"


_INSERT_END = _insert("ends", r.TaskEnded)
_INSERT: dict[type, str] = {
    r.Assigned: _insert("assignments", r.Assigned),
    r.EngineJoined: "INSERT INTO engines VALUES (?,?,?,?,?,?,?,?,?,?,?,?,NULL,NULL,NULL)",
    r.JobKnown: "INSERT OR REPLACE INTO jobs VALUES (?,?,?)",
    r.Note: "INSERT OR REPLACE INTO notes VALUES (?,?)",
    r.Refused: "INSERT INTO refusals VALUES (?,?,?)",
    r.Reopened: "INSERT INTO reopened VALUES (?,?)",
}
"""Where columns are not named, a table begins with the fields of its record, in the same order."""
sqlite3.register_adapter(JobState, lambda state: state.value)

_encode = msgspec.msgpack.Encoder().encode
decode_tasks = msgspec.msgpack.Decoder(list[Task]).decode


DAMAGED = "the journal is damaged"
_SIGNS = (
    sqlite3.Error, msgspec.DecodeError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError,
)  # fmt: skip
"""What reading rows of any type where others are expected may raise."""


@contextmanager
def undamaged(path: Path) -> Iterator[None]:
    """While the body reads the journal: what shows that it is damaged becomes an InputError."""
    try:
        yield
    except _SIGNS as error:
        raise InputError(str(path), f"{DAMAGED}: {type(error).__name__}: {error}") from error
    except AssertionError as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        problem = f"what it says breaks a rule of ours ({where}): it is damaged, or pilothouse has a defect"
        raise InputError(str(path), problem, hint="keep the file, and report it") from error


def columns_of(db: sqlite3.Connection, table: str) -> set[str]:
    """The names of its columns, which an earlier version may have had fewer of."""
    return {row[1] for row in db.execute(f"PRAGMA table_info({table})")}


def check_version(db: sqlite3.Connection, path: Path) -> None:
    """Raises InputError, and closes the connection, if a newer version made the journal."""
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found > VERSION:
        db.close()
        raise InputError(
            str(path), "a newer pilothouse made this journal", expected=f"schema {VERSION} or older", found=str(found),
            hint="use that version of pilothouse",
        )  # fmt: skip


class Journal:
    """The writer. One per run at a time (see journal/lock.py)."""

    def __init__(self, folder: Path, *, must_exist: bool = False) -> None:
        self.path = folder / FILE_NAME
        self._session = b""
        self._durable = True
        if must_exist and not self.path.exists():
            raise InputError(str(folder), "no run was recorded here", expected=f"a folder with {FILE_NAME}")
        try:
            make_private(self.path)
            self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            check_version(self._db, self.path)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_SCHEMA)
            self._migrate()
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            raise RunError(f"{self.path}: cannot open the journal: {error}") from error

    def _migrate(self) -> None:
        """Adds columns that this version has and the one that made the file had not, and the index on one of them."""
        for table, columns in _LATER.items():
            known = columns_of(self._db, table)
            for column in columns:
                if column.split()[0] not in known:
                    self._db.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
        self._db.execute(_BY_NAME)
        if self._db.execute("PRAGMA user_version").fetchone() != (VERSION,):
            self._db.execute(f"PRAGMA user_version={VERSION}")

    def write(self, records: list[r.Record], *, durable: bool = True) -> None:
        """All of them in one transaction, in order within each kind; RunError (nothing kept) if that fails. PeerError if another
        driver has begun a session: the lock of the folder may fail (on a file system of several hosts), this does not.
        `durable`: this and all that was written before is on the disk afterwards. Otherwise it is with the next that is durable.
        """
        ends: list[tuple[object, ...]] = []
        with self._transaction(durable=durable):
            if self._session and self._db.execute(_SESSION).fetchone() != (self._session,):
                raise PeerError(str(self.path), "another driver has taken over this run")
            for record in records:
                if type(record) is r.TaskEnded:
                    ends.append(astuple(record))
                    continue
                if type(record) is r.Reopened:  # it changes the row of its end
                    self._db.executemany(_INSERT_END, ends)
                    ends = []
                self._write_one(record)
            self._db.executemany(_INSERT_END, ends)
            if durable and not records:
                self._db.execute(f"PRAGMA user_version={VERSION}")  # an empty transaction would not wait for the disk

    @contextmanager
    def _transaction(self, *, durable: bool = True) -> Iterator[None]:
        """What the body does is kept afterwards, or not done."""
        try:
            if durable != self._durable:
                self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
                self._durable = durable
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise RunError(f"{self.path}: cannot write: {error}") from error

    def _write_one(self, record: r.Record) -> None:
        db = self._db
        match record:
            case r.Returned():
                row = db.execute("SELECT tasks FROM assignments WHERE id=?", (record.id,)).fetchone()
                kept = [order for order in decode_tasks(row[0]) if order.task_id not in record.tasks]
                db.execute("UPDATE assignments SET tasks=? WHERE id=?", (_encode(kept), record.id))
            case r.Closed():
                # The tasks of a closed assignment are in `ends`; keeping them twice would double the file.
                db.execute("UPDATE assignments SET closed_at=?, tasks=NULL WHERE id=?", (record.at, record.id))
            case r.Reopened(task_id):
                db.execute(_INSERT[r.Reopened], astuple(record))
                db.execute("UPDATE ends SET final=0 WHERE final AND kind='N' AND task_id=?", (task_id,))
            case r.EngineLeft(engine, at, reason, lost):
                db.execute("UPDATE engines SET left_at=?, reason=?, lost=? WHERE engine=?", (at, reason, lost, engine))
            case _:
                db.execute(_INSERT[type(record)], [_column(value) for value in astuple(record)])

    def reopen_failed(self, now: float) -> None:
        """Tasks that did not succeed are open again: their ends become those of an attempt that did not count."""
        failed = "final AND kind='N' AND state!='succeeded'"
        with undamaged(self.path), self._transaction():
            self._db.execute(f"INSERT INTO reopened SELECT task_id, ? FROM ends WHERE {failed}", (now,))
            self._db.execute(f"UPDATE ends SET final=0 WHERE {failed}")

    def put_notes(self, **values: object) -> None:
        """Notes bytes as they are and everything else as text; None is left out."""
        known = {name: value for name, value in values.items() if value is not None}
        self.write([r.Note(k, v if isinstance(v, bytes) else str(v).encode()) for k, v in known.items()])

    def note(self, name: str) -> bytes | None:
        """The last value noted under this name."""
        with undamaged(self.path):
            row = self._db.execute("SELECT value FROM notes WHERE name=?", (name,)).fetchone()
        if row is not None and not isinstance(row[0], bytes):
            raise InputError(str(self.path), DAMAGED, found=f"note {name}: {row[0]!r}")
        return None if row is None else row[0]

    def notes(self, prefix: str) -> dict[str, bytes]:
        """The last values noted under names that begin so, by the rest of the name."""
        with undamaged(self.path):
            rows = self._db.execute("SELECT name, value FROM notes ORDER BY name").fetchall()
            return {str(name).removeprefix(prefix): bytes(value) for name, value in rows if str(name).startswith(prefix)}

    def number(self, name: str) -> int:
        """A number that was noted under this name; 0 if none was."""
        with undamaged(self.path):
            return int(self.note(name) or b"0")

    @property
    def noted(self) -> bool:
        """Whether anything was noted, as every run does when it begins."""
        with undamaged(self.path):
            return self._db.execute("SELECT 1 FROM notes LIMIT 1").fetchone() is not None

    def begin_session(self, now: float) -> tuple[int, bool]:
        """The number of a driver's incarnation, and whether there was an earlier one. `now` is in seconds since 1970: numbers
        ascend even if the note of the last one was lost.
        """
        with self._transaction(), undamaged(self.path):
            last = self.note("session")
            session = max(int(last or b"0") + 1, int(now))
            self._session = str(session).encode()
            self._write_one(r.Note("session", self._session))
        return session, last is not None

    def replay(self) -> Iterator[r.Record]:
        """The records that a restarted driver needs, in the order in which it can apply them. Raises InputError."""
        with undamaged(self.path):
            yield from replayed(self._db)

    def close(self) -> None:
        try:
            self._db.close()
        except sqlite3.Error as error:
            raise RunError(f"{self.path}: cannot close the journal: {error}") from error


def replayed(db: sqlite3.Connection) -> Iterator[r.Record]:
    """The records that a restarted driver needs, in the order in which it can apply them."""
    for row in db.execute("SELECT * FROM engines ORDER BY rank"):
        engine, rank, context, node, slots, first_unit, pid, at, key, gpus, memory_mb, cores = row[:12]
        owned = tuple(gpus.split(",")) if gpus else ()
        yield r.EngineJoined(engine, rank, context, node, slots, first_unit, pid, at, key, owned, memory_mb, cores)
    left = "SELECT engine, left_at, reason, lost FROM engines WHERE left_at IS NOT NULL"
    for engine, at, reason, lost in db.execute(left):
        yield r.EngineLeft(engine, at, reason, bool(lost))
    for row in db.execute("SELECT * FROM jobs ORDER BY task_id"):
        yield r.JobKnown(*row)
    for row in db.execute("SELECT * FROM notes"):
        yield r.Note(*row)
    last = db.execute("SELECT max(id) FROM assignments").fetchone()[0]
    if last is not None:
        yield r.Assigned(last, "", "", "", 0.0, [])
        yield r.Closed(last, 0.0)
    columns = "id, job_id, engine, units, at, tasks, gpus, memory_mb"
    for row in db.execute(f"SELECT {columns} FROM assignments WHERE closed_at IS NULL ORDER BY id"):
        yield r.Assigned(row[0], row[1], row[2], row[3], row[4], decode_tasks(row[5]), row[6] or "", row[7] or 0)
    states = {state.value: state for state in JobState}
    query = """SELECT task_id, attempt, kind, state, return_code, final, job_id, out_bytes + err_bytes, output, left_out
               FROM ends ORDER BY rowid"""
    for task_id, attempt, kind, state, code, final, job_id, written, output, left_out in db.execute(query):
        yield r.TaskEnded(
            task_id, 0, -1, attempt, kind, states[state], code, -1, "", -1, 0.0, 0.0, written, b"", 0, b"", b"", "",
            bool(final), job_id, 0.0, 0, "", b"", output, left_out,
        )  # fmt: skip


def _column(value: object) -> object:
    """A field of a record as SQLite keeps it."""
    if isinstance(value, list):
        return _encode(value)
    return ",".join(value) if isinstance(value, tuple) else value

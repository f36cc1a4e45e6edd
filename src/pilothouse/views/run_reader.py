"""Reads a run's journal as it grows, and gives its state now: only what is new is read each time.

In: the run's folder. Out: RunStates. The journal is opened for reading only; its writer is not disturbed.
"""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from pathlib import Path

from pilothouse.journal.lock import is_free
from pilothouse.journal.store import FILE_NAME
from pilothouse.model.errors import InputError
from pilothouse.views.run_state import EngineRow, Failure, RunState

MOST_FAILURES = 200
"""The last failures that are kept for showing."""
_BATCH = 20_000


class RunReader:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / FILE_NAME
        if not self._path.exists():
            raise InputError(str(folder), "no run was recorded here", expected=f"a folder with {FILE_NAME}")
        self._db = sqlite3.connect(f"file:{self._path}?mode=ro", uri=True, isolation_level=None)
        self._last_row = 0
        self._finished = 0
        self._failed = 0
        self._skipped = 0
        self._barriers = 0
        self._first_at: float | None = None
        self._last_at = 0.0
        self._by_rank: dict[int, list[int]] = {}
        self._failures: deque[Failure] = deque(maxlen=MOST_FAILURES)

    def close(self) -> None:
        self._db.close()

    def read(self) -> RunState:
        """The state now."""
        try:
            self._read_ends()
            engines = self._read_engines()
            running = self._read_running(engines)
            notes = dict(self._db.execute("SELECT name, value FROM notes"))
        except sqlite3.Error as error:
            raise InputError(str(self._path), f"cannot be read: {error}") from error
        rows = tuple(self._row(engine, running.get(str(engine[0]), 0)) for engine in engines)
        now = time.time()
        present = any(row.present for row in rows)
        ended_at = _number(notes.get("ended_at"))
        if ended_at is None and not present and rows and not running:
            ended_at = max([self._last_at, *(_number(engine[6]) or 0.0 for engine in engines)])
        joined = [row.joined_at for row in rows]
        begun = [at for at in (_number(notes.get("started")), self._first_at, *joined) if at]
        total = _number(notes.get("total"))
        return RunState(
            name=_name(self.folder),
            started_at=min(begun, default=now),
            now=now,
            finished=self._finished,
            failed=self._failed,
            running=sum(running.values()),
            total=None if total is None else int(total),
            barriers=self._barriers,
            skipped=self._skipped,
            ended_at=ended_at,
            engines=rows,
            failures=tuple(reversed(self._failures)),
            unattended=ended_at is None and is_free(self.folder),
        )

    def _read_ends(self) -> None:
        query = (
            "SELECT rowid, task_id, line_number, kind, return_code, rank, node, started_at, ended_at, reason, "
            "CASE WHEN return_code THEN command END FROM ends WHERE rowid > ? AND final ORDER BY rowid LIMIT ?"
        )
        while True:
            rows = self._db.execute(query, (self._last_row, _BATCH)).fetchall()
            for row, task_id, line, kind, code, rank, node, started_at, ended_at, reason, command in rows:
                self._last_row = row
                if kind in ("B", "C"):
                    self._barriers += 1
                    continue
                if self._first_at is None or started_at < self._first_at:
                    self._first_at = started_at
                self._last_at = max(self._last_at, ended_at)
                counts = self._by_rank.setdefault(rank, [0, 0])
                if kind != "P":
                    self._finished += 1
                    counts[0] += 1
                self._skipped += kind == "S"
                if code:
                    self._failed += 1
                    counts[1] += 1
                    text = bytes(command or b"").decode("utf-8", "replace")
                    self._failures.append(Failure(task_id, line, code, node, ended_at, text, reason or ""))
            if len(rows) < _BATCH:
                return

    def _read_engines(self) -> list[tuple[object, ...]]:
        query = "SELECT engine, rank, context, node, slots, joined_at, left_at, lost FROM engines ORDER BY rank"
        return self._db.execute(query).fetchall()

    def _read_running(self, engines: list[tuple[object, ...]]) -> dict[str, int]:
        """Assignments that are open, by engine."""
        query = "SELECT engine, count(*) FROM assignments WHERE closed_at IS NULL GROUP BY engine"
        return {str(engine): int(count) for engine, count in self._db.execute(query)}

    def _row(self, engine: tuple[object, ...], running: int) -> EngineRow:
        name, rank, context, node, slots, joined_at, left_at, lost = engine
        assert isinstance(rank, int) and isinstance(slots, int)
        state = "running" if left_at is None else "lost" if lost else "gone"
        finished, failed = self._by_rank.get(rank, (0, 0))
        joined = float(joined_at) if isinstance(joined_at, int | float) else 0.0
        return EngineRow(rank, str(name), str(context), str(node), slots, running, finished, failed, state, joined)


def _number(value: object) -> float | None:
    try:
        return float(value.decode() if isinstance(value, bytes) else str(value)) if value is not None else None
    except ValueError:
        return None


def _name(folder: Path) -> str:
    name = folder.resolve().name
    return name.removesuffix("_run") or str(folder)

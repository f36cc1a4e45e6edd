"""Reads a run's journal as it grows, and gives its state now: only what is new is read each time.

In: the run's folder. Out: RunStates. The journal is opened for reading only; its writer is not disturbed.
"""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path

from pilothouse.journal.lock import is_free
from pilothouse.journal.read import checked, open_for_reading
from pilothouse.journal.run_state import EngineRow, Failure, RunState
from pilothouse.journal.store import FILE_NAME, undamaged

MOST_FAILURES = 200
"""The last failures that are kept for showing."""
_BATCH = 20_000


class RunReader:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._db = open_for_reading(folder)
        self._last_row = 0
        self._finished = self._failed = self._skipped = self._barriers = 0
        self._first_at: float | None = None
        self._last_at = 0.0
        self._by_rank: dict[int, list[int]] = {}
        """Finished and failed tasks of each engine."""
        self._failures: deque[Failure] = deque(maxlen=MOST_FAILURES)

    def close(self) -> None:
        self._db.close()

    def read(self) -> RunState:
        """The state now. Raises InputError if the journal is damaged."""
        with undamaged(self.folder / FILE_NAME):
            return self._state()

    def _state(self) -> RunState:
        self._read_ends()
        query = "SELECT engine, count(*) FROM assignments WHERE closed_at IS NULL GROUP BY engine"
        running = dict(self._db.execute(query))
        query = "SELECT engine, rank, context, node, slots, joined_at, left_at, lost FROM engines ORDER BY rank"
        engines = self._db.execute(query).fetchall()
        notes = dict(self._db.execute("SELECT name, value FROM notes"))
        rows: list[EngineRow] = []
        for name, rank, context, node, slots, joined_at, left_at, lost in engines:
            state = "running" if left_at is None else "lost" if lost else "gone"
            finished, failed = self._by_rank.get(rank, (0, 0))
            busy = running.get(name, 0)
            row = EngineRow(rank, name, context, node, slots, busy, finished, failed, state, joined_at or 0.0)
            rows.append(checked(row))
        now = time.time()
        ended_at = _number(notes.get("ended_at"))
        if ended_at is None and rows and not running and not any(row.present for row in rows):
            ended_at = max([self._last_at, *(left_at or 0.0 for *_, left_at, _lost in engines)])
        begun = (_number(notes.get("started")), self._first_at, *(row.joined_at for row in rows))
        total = _number(notes.get("total"))
        return RunState(
            name=self.folder.resolve().name.removesuffix("_run") or str(self.folder),
            started_at=min((at for at in begun if at), default=now),
            now=now,
            finished=self._finished,
            failed=self._failed,
            running=sum(running.values()),
            total=None if total is None else int(total),
            barriers=self._barriers,
            skipped=self._skipped,
            ended_at=ended_at,
            engines=tuple(rows),
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
                    self._failures.append(checked(Failure(task_id, line, code, node, ended_at, text, reason or "")))
            if len(rows) < _BATCH:
                return


def _number(value: bytes | None) -> float | None:
    try:
        return None if value is None else float(value)
    except ValueError:
        return None

"""Reads a run's journal as it grows, and gives its state now: only what is new is read each time.

In: the run's folder. Out: RunStates. The journal is opened for reading only; its writer is not disturbed.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import islice
from pathlib import Path

import msgspec

from pilothouse.journal.lock import is_free
from pilothouse.journal.plan import Plan, plan_of
from pilothouse.journal.present import name_column, read_present
from pilothouse.journal.read import checked, last_line, last_line_column, open_for_reading
from pilothouse.journal.run_state import EngineRow, Failure, QueuedTask, RunningTask, RunState
from pilothouse.journal.store import FILE_NAME, columns_of, decode_tasks, undamaged
from pilothouse.journal.waiting import Progress, UnfinishedLines, WaitingTask, waiting_tasks
from pilothouse.model.errors import InputError
from pilothouse.model.idset import IdSet
from pilothouse.worlds.live.requests import ANSWER_NOTE, Answer, StopContext, StopEngine
from pilothouse.worlds.live.run_clock import date_now

MOST_RUNNING = 1000
"""The running tasks that are shown: those that were assigned first."""
MOST_WAITING = 50
"""The first tasks that wait, which are shown."""
MOST_FAILURES = 200
"""The last failures that are kept for showing."""
_BATCH = 20_000


class RunReader:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._db = open_for_reading(folder)
        with undamaged(folder / FILE_NAME):
            self._said = last_line_column(self._db)
        self._last_row = 0
        self._finished = self._failed = self._skipped = self._barriers = 0
        self._first_at: float | None = None
        self._last_at = 0.0
        self._by_rank: dict[int, list[int]] = {}
        """Finished and failed tasks of each engine."""
        self._ended_in: dict[str, dict[tuple[int, int], float]] = {}
        """Of each job that runs: the tasks and attempts of it that have ended, and when."""
        self._failures: deque[Failure] = deque(maxlen=MOST_FAILURES)
        self._progress = Progress()
        self._plan = Plan()
        self._unfinished: UnfinishedLines | None = None
        self._failed_on: dict[int, tuple[int, float]] = {}
        """The tasks that count as failed: the ranks of their engines, and when they ended."""
        self._last_reopened = 0

    def close(self) -> None:
        self._db.close()

    def read(self) -> RunState:
        """The state now. Raises InputError if the journal is damaged."""
        with undamaged(self.folder / FILE_NAME):
            self._db.execute("BEGIN")  # all queries see the same moment
            try:
                return self._state()
            finally:
                self._db.execute("ROLLBACK")

    def _state(self) -> RunState:
        query = "SELECT job_id, engine, units, at, tasks FROM assignments WHERE closed_at IS NULL ORDER BY id"
        assigned = self._db.execute(query).fetchall()
        running = Counter(engine for _, engine, *_ in assigned)
        self._ended_in = {job_id: self._ended_in.get(job_id, {}) for job_id, *_ in assigned}
        self._read_reopened()  # first: they undo ends that were read before, and rows that are new say how it is now
        self._read_ends()
        query = "SELECT engine, rank, context, node, slots, joined_at, left_at, lost, first_unit FROM engines ORDER BY rank"
        engines = self._db.execute(query).fetchall()
        notes = dict(self._db.execute("SELECT name, value FROM notes"))
        found = answers(notes)
        stopped = {answer.request.engine for answer in found if answer.done and isinstance(answer.request, StopEngine)}
        emptied = {answer.request.context for answer in found if answer.done and isinstance(answer.request, StopContext)}
        rows: list[EngineRow] = []
        for name, rank, context, node, slots, joined_at, left_at, lost, _first in engines:
            leaves = name in stopped or context in emptied
            state = "leaving" if left_at is None and leaves else "running" if left_at is None else "lost" if lost else "gone"
            finished, failed = self._by_rank.get(rank, (0, 0))
            busy = running.get(name, 0)
            row = EngineRow(rank, name, context, node, slots, busy, finished, failed, state, joined_at or 0.0)
            rows.append(checked(row))
        now = date_now(notes)
        ended_at = _number(notes.get("ended_at"))
        if ended_at is None and rows and not running and not any(row.present for row in rows):
            ended_at = max([self._last_at, *(left_at for *_, left_at, _lost, _first in engines)])
        started_at = _number(notes.get("started"))
        if started_at is None:  # engines may have other clocks
            started_at = min((at for at in (self._first_at, *(row.joined_at for row in rows)) if at), default=now)
        total = _number(notes.get("total"))
        queue = self._queue(notes) if ended_at is None else ()
        return RunState(
            name=self.folder.resolve().name.removesuffix("_run") or str(self.folder),
            started_at=started_at,
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
            running_tasks=self._running(assigned, {name: (rank, node, first) for name, rank, _, node, *_, first in engines}),
            waiting=None if total is None else max(0, int(total) - self._finished - running.total()),
            next_task=queue[0].task_id if queue else None,
            waits_for=queue[0].waits_for if queue else "",
            waiting_tasks=queue,
            answers=found,
        )

    def _queue(self, notes: dict[str, bytes]) -> tuple[QueuedTask, ...]:
        """The first tasks that wait; none also if the task file cannot be read any more."""
        try:
            if self._unfinished is None:
                self._plan = plan_of(notes)
                self._unfinished = UnfinishedLines(self._plan.lines(), self._progress.done)
            present = read_present(self._db, self.folder, self._progress)
            waiting = waiting_tasks(self._unfinished, present, self._plan.job_of)
            return tuple(map(_queued, islice(waiting, MOST_WAITING)))
        except InputError:
            return ()

    def _running(
        self, assigned: list[tuple[str, str, str, float, bytes]], engines: dict[str, tuple[int, str, int]]
    ) -> tuple[RunningTask, ...]:
        """The first task of each open assignment that has not ended: the others of its group follow it."""
        found = []
        for job_id, engine, units, at, tasks in assigned[:MOST_RUNNING]:
            ended = self._ended_in[job_id]
            orders = decode_tasks(tasks)
            order = next((order for order in orders if (order.task_id, order.attempt) not in ended), None)
            if order is None:
                continue  # all have ended; the assignment is about to be closed
            rank, node, first = engines.get(engine, (-1, "", 0))
            before = [ended[one.task_id, one.attempt] for one in orders if (one.task_id, one.attempt) in ended]
            command = (order.line or b" ".join(order.argv)).decode("utf-8", "replace")
            slots = IdSet(IdSet.parse(units).mask >> first).to_text()
            found.append(checked(RunningTask(
                order.task_id, order.line_number, max([at, *before]), rank, node, slots, command, order.attempt
            )))  # fmt: skip
        return tuple(sorted(found, key=lambda task: task.since))

    def _read_ends(self) -> None:
        query = (
            "SELECT rowid, task_id, line_number, kind, return_code, rank, node, started_at, ended_at, reason, "
            f"CASE WHEN return_code THEN command END, CASE WHEN return_code THEN {self._said} END, final, job_id, attempt, "
            f"state, {name_column(self._db)} FROM ends WHERE rowid > ? ORDER BY rowid LIMIT ?"
        )
        while True:
            rows = self._db.execute(query, (self._last_row, _BATCH)).fetchall()
            for row, task_id, line, kind, code, rank, node, started_at, ended_at, reason, command, *rest in rows:
                err, final, job_id, attempt, state, name = rest
                self._last_row = row
                self._progress.note(task_id, attempt, kind, state, ended_at, final, name, job_id, line)
                if job_id in self._ended_in:
                    self._ended_in[job_id][task_id, attempt] = ended_at
                if kind in ("B", "C"):
                    self._barriers += 1
                    continue
                if self._first_at is None or started_at < self._first_at:
                    self._first_at = started_at
                self._last_at = max(self._last_at, ended_at)
                if not final:
                    continue
                counts = self._by_rank.setdefault(rank, [0, 0])
                if kind != "P":
                    self._finished += 1
                    counts[0] += 1
                self._skipped += kind == "S"
                if code:
                    self._failed += 1
                    counts[1] += 1
                    if kind != "P":
                        self._failed_on[task_id] = rank, ended_at
                    text = bytes(command or b"").decode("utf-8", "replace")
                    said = last_line(err)
                    self._failures.append(checked(Failure(task_id, line, code, node, ended_at, text, reason or "", said)))
            if len(rows) < _BATCH:
                return

    def _read_reopened(self) -> None:
        """Tasks that had failed and are run once more do not count as failed any longer."""
        if not columns_of(self._db, "reopened"):
            return  # the journal of an earlier version
        query = "SELECT rowid, task_id FROM reopened WHERE rowid > ? ORDER BY rowid"
        again = set()
        for row, task_id in self._db.execute(query, (self._last_reopened,)).fetchall():
            self._last_reopened = row
            if task_id in self._failed_on:
                rank, ended_at = self._failed_on.pop(task_id)
                again.add(task_id)
                self._progress.reopened(task_id, ended_at)
                self._unfinished = None  # its line waits again
                self._finished -= 1
                self._failed -= 1
                counts = self._by_rank[rank]
                counts[0] -= 1
                counts[1] -= 1
        if again:
            kept = [failure for failure in self._failures if failure.task_id not in again]
            self._failures = deque(kept, maxlen=MOST_FAILURES)


def _queued(task: WaitingTask) -> QueuedTask:
    line, command = task.line, task.job.command
    if line is not None:
        name = line.request.name if line.request is not None else ""
        return QueuedTask(task.task_id, task.wait.text, task.since, line.command.encode("utf-8", "replace").decode(), name)
    text = "" if command is None else command.line or " ".join(command.argv)
    return QueuedTask(task.task_id, task.wait.text, task.since, text.encode("utf-8", "replace").decode(), task.job.id)


def answers(notes: dict[str, bytes]) -> tuple[Answer, ...]:
    found = [msgspec.json.decode(value, type=Answer) for name, value in notes.items() if name.startswith(ANSWER_NOTE)]
    return tuple(sorted(found, key=lambda answer: (-answer.at, -answer.number)))


def _number(value: bytes | None) -> float | None:
    try:
        return None if value is None else float(value)
    except ValueError:
        return None

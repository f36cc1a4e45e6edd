"""Reads what is needed to say why tasks of a live run wait: engines, open assignments, submitted jobs, ends. Never writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pilothouse.formats.task_file import NO_REPEAT, TaskLine
from pilothouse.journal.lock import is_free
from pilothouse.journal.plan import Plan, plan_of
from pilothouse.journal.read import TaskRow, reading
from pilothouse.journal.store import columns_of, decode_tasks
from pilothouse.journal.waiting import HeldTask, Present, Progress, UnfinishedLines, WaitingTask, waiting_tasks
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node, Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.live.records import gpus_of_text, job_from
from pilothouse.worlds.live.run_clock import date_now


def read_present(db: sqlite3.Connection, folder: Path, progress: Progress | None = None) -> Present:
    """The run now. `progress`: what its ends say, if that is known already."""
    notes = dict(db.execute("SELECT name, value FROM notes WHERE name IN ('started', 'decider', 'clock')"))
    nodes, engines = [], {}
    columns = "engine, node, first_unit, slots, gpus, memory_mb, cores"
    query = f"SELECT {columns} FROM engines WHERE left_at IS NULL ORDER BY first_unit"
    for engine, node, first, slots, gpus, memory_mb, cores in db.execute(query):
        engines[engine] = (node, first)
        nodes.append(Node(node, first, slots, len(gpus.split(",")) if gpus else 0, memory_mb or 0, cores or 1))
    if progress is None:
        progress = _progress(db)
    running: list[e.Running] = []
    held: dict[int, HeldTask] = {}
    known = "gpus, memory_mb" if "memory_mb" in columns_of(db, "assignments") else "'', 0"
    query = f"SELECT job_id, engine, units, at, tasks, {known} FROM assignments WHERE closed_at IS NULL ORDER BY id"
    for job_id, engine, text, at, tasks, gpus, memory_mb in db.execute(query).fetchall():
        units = IdSet.parse(text)
        per_node = max(map(len, gpus_of_text(gpus or "").values()), default=0)
        shape = Shape(gpus_per_node=per_node, memory_mb_per_node=memory_mb) if per_node or memory_mb else None
        running.append(e.Running(Job(job_id, len(units), shape=shape), units, at))
        node, first = engines.get(engine, ("", 0))
        slots = IdSet(units.mask >> first).to_text()
        orders = decode_tasks(tasks)
        left = [order for order in orders if not progress.has_ended(order.task_id, order.attempt)]
        since = at
        if left and (first_left := orders.index(left[0])):
            last = (orders[first_left - 1].task_id,)
            (ended_at,) = db.execute("SELECT max(ended_at) FROM ends WHERE task_id = ?", last).fetchone()
            since = max(at, ended_at or at)
        for before, order in enumerate(left):
            name = order.request.name if order.request is not None else ""
            command = (order.line or b" ".join(order.argv)).decode("utf-8", "replace")
            held[order.task_id] = HeldTask(
                order.task_id, order.attempt, job_id, node, slots, at if before else since, before, order.line_number, name,
                command,
            )  # fmt: skip
    submitted = [
        (task_id, job_from(data))
        for job_id, task_id, data in db.execute("SELECT job_id, task_id, data FROM jobs ORDER BY task_id")
        if job_id not in progress.jobs_ended and data
    ]
    return Present(
        now=date_now(notes), started_at=float(notes.get("started") or 0.0), driven=not is_free(folder),
        decider=bytes(notes.get("decider") or b"").decode("utf-8", "replace"), nodes=tuple(nodes), running=tuple(running),
        held=held, progress=progress, submitted=submitted,
    )  # fmt: skip


def _progress(db: sqlite3.Connection) -> Progress:
    progress = Progress()
    columns = f"task_id, attempt, kind, state, ended_at, final, {name_column(db)}, job_id, line_number"
    for row in db.execute(f"SELECT {columns} FROM ends ORDER BY rowid"):
        progress.note(*row)
    return progress


def name_column(db: sqlite3.Connection) -> str:
    """Where the name of a task is; journals of earlier versions have none."""
    return "coalesce(name, '')" if "name" in columns_of(db, "ends") else "''"


class WaitingReader:
    """The tasks of a run that wait, at one moment."""

    def __init__(self, db: sqlite3.Connection, folder: Path) -> None:
        self.plan: Plan = plan_of(dict(db.execute("SELECT name, value FROM notes WHERE name = 'plan'")))
        self.present = read_present(db, folder)

    def lines(self) -> Iterator[TaskLine]:
        """The lines of the file without a final result. Raises InputError if the file cannot be read any more."""
        return iter(UnfinishedLines(self.plan.lines(), self.present.progress.done))

    def __iter__(self) -> Iterator[WaitingTask]:
        return waiting_tasks(self.lines(), self.present, self.plan.job_of)


def read_waiting(folder: Path, *, tried: bool = True) -> Iterator[TaskRow]:
    """The tasks that wait, in the order of the file, each with what it waits for. `tried`: also those that are to be tried again.
    Raises InputError if the task file cannot be read any more."""
    with waiting_reader(folder) as reader:
        attempts = reader.present.progress.tried
        for task in reader:
            if not tried and task.task_id in attempts:
                continue
            line, command = task.line, task.job.command
            number, repeat, text, name = (0, NO_REPEAT, "", "")
            if line is not None:
                number, repeat, text = line.line_number, line.repeat_index, line.command
                name = line.request.name if line.request is not None else ""
            elif command is not None:
                text = command.line or " ".join(command.argv)
            count, _ = attempts.get(task.task_id, (0, 0.0))
            job = "" if line is not None else task.job.id
            yield TaskRow(
                task.task_id, number, repeat, JobState.WAITING.value, None, count, "", None, None, str(task.wait), text, job,
                name=name,
            )  # fmt: skip


@contextmanager
def waiting_reader(folder: Path) -> Iterator[WaitingReader]:
    with reading(folder) as db:
        yield WaitingReader(db, folder)

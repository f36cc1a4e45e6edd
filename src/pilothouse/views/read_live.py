"""Reads the journal of a live run into a Schedule: one row a task, as its last attempt went.

Tasks of a task file are submitted when the driver reads their lines and tells the decider of them: it reads on as slots become
free. Journals of earlier versions do not say when; there they are submitted when the run begins. Tasks that have not been begun
have no row; `Schedule.total` counts them where their number is known.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import inf, isnan, nan
from pathlib import Path

from pilothouse.journal.lock import is_free
from pilothouse.journal.read import (
    UNFINISHED,
    EngineSpan,
    Submission,
    TaskRow,
    read_engines,
    read_notes,
    read_submissions,
)
from pilothouse.journal.read import read_tasks as read_task_rows
from pilothouse.journal.store import FILE_NAME, undamaged
from pilothouse.model.job import Node
from pilothouse.model.lifecycle import JobState
from pilothouse.views.schedule import Schedule, Steps, date_or_nan, intervals
from pilothouse.worlds.live.run_clock import date_now

_NO_SUBMISSION = Submission(units=0)
_SINCE_1970 = 1e8
"""A larger date is one since 1970."""


def read_live(folder: Path, name: str, last: int | None = None) -> Schedule:
    """The run that is recorded in the folder, as it stands; `last`: so many of the tasks that ended last, and what runs."""
    with undamaged(folder / FILE_NAME):
        schedule = _read(folder, name, last)
        schedule.check()
    return schedule


def _read(folder: Path, name: str, last: int | None) -> Schedule:
    notes, engines = read_notes(folder), read_engines(folder)
    rows = sorted(read_task_rows(folder, last=last), key=_start)
    submissions = {submission.id: submission for submission in read_submissions(folder)}
    began = _number(notes.get("started"))
    dates = [engine.joined_at for engine in engines] + [row.started for row in rows if row.started]
    origin = began if began is not None else min(dates, default=time.time())
    driven = not is_free(folder)
    over = not driven and not any(engine.left_at is None for engine in engines)
    schedule = Schedule(
        name=name, path=str(folder), live=True, policy=_decider(notes), over=over, clock_began=origin,
        nodes=tuple(Node(engine.node, engine.first_unit, engine.slots) for engine in engines),
        units=max((engine.first_unit + engine.slots for engine in engines), default=0),
        total=int(total) if (total := _number(notes.get("total"))) is not None else None,
        capacity=_capacity(engines, origin),
    )  # fmt: skip
    for row in rows:
        _add_task(schedule, row, submissions.pop(row.job, _NO_SUBMISSION), origin)
    for submission in submissions.values():
        _add_unstarted(schedule, submission, origin)
    known = [date for column in (schedule.started, schedule.ended) for date in column if not isnan(date)]
    schedule.now = date_now(notes) - origin if driven else max(known, default=0.0)
    return schedule


def _start(row: TaskRow) -> float:
    return inf if row.started is None else row.started


def _number(value: bytes | None) -> float | None:
    try:
        return None if value is None else float(value)
    except ValueError:
        return None


def _decider(notes: dict[str, bytes]) -> str:
    return notes.get("decider", b"").decode("utf-8", "replace")


def _capacity(engines: Sequence[EngineSpan], origin: float) -> Steps:
    return Steps.summed(
        (date - origin, slots)
        for engine in engines
        for date, slots in ((engine.joined_at, engine.slots), (engine.left_at, -engine.slots))
        if date is not None
    )


def _add_task(schedule: Schedule, row: TaskRow, submission: Submission, origin: float) -> None:
    number = len(schedule)
    in_hand = row.ended is None
    width = sum(last - first + 1 for first, last in intervals(row.units)) or (1 if row.started is not None else 0)
    schedule.ids.append(row.job if submission is not _NO_SUBMISSION else str(row.task))
    schedule.users.append(submission.user)
    started = date_or_nan(row.started) - origin
    ended = date_or_nan(row.ended) - origin
    if row.submitted is not None:
        schedule.submitted.append(min(max(0.0, row.submitted - origin), started))
    else:
        schedule.submitted.append(_submitted(submission, origin, started))
    schedule.started.append(started)
    schedule.ended.append(started if ended < started else ended)  # a clock may be set back
    schedule.requested.append(submission.units or width)
    schedule.widths.append(width)
    schedule.allocated.append(row.units)
    schedule.walltimes.append(submission.walltime)
    schedule.states.append(
        JobState.RUNNING if in_hand else JobState.LOST if row.state == UNFINISHED else JobState(row.state)
    )
    schedule.exit_codes.append(row.exit_code or 0)
    schedule.commands.append(row.command)
    schedule.places.append(row.node)
    if row.reason:
        schedule.reasons[number] = row.reason
    if row.last_line and schedule.states[number] is not JobState.SUCCEEDED:
        schedule.last_words[number] = row.last_line
    schedule.memory.append(row.memory_kb * 1024.0 if row.memory_kb else nan)
    schedule.cpu.append(row.cpu_s)


def _submitted(submission: Submission, origin: float, started: float) -> float:
    """When a job came, by the run's clock. Drop-ins date their jobs in seconds since 1970, others by the world's clock,
    which begins with the run."""
    return min(on_clock(submission.submitted_at, origin), started)


def on_clock(at: float, origin: float) -> float:
    """A date of a job by the run's clock, which began at `origin`."""
    return max(0.0, at - origin if at > _SINCE_1970 else at)


def _add_unstarted(schedule: Schedule, submission: Submission, origin: float) -> None:
    """A job that waits, or was refused."""
    number = len(schedule)
    refused = submission.refused is not None
    schedule.ids.append(submission.id)
    schedule.users.append(submission.user)
    submitted = _submitted(submission, origin, inf)
    schedule.submitted.append(submitted)
    schedule.started.append(nan)
    schedule.ended.append(submitted if refused else nan)
    schedule.requested.append(submission.units)
    schedule.widths.append(0)
    schedule.allocated.append("")
    schedule.walltimes.append(submission.walltime)
    schedule.states.append(JobState.REFUSED if refused else JobState.WAITING)
    schedule.exit_codes.append(0)
    schedule.commands.append("")
    schedule.places.append("")
    schedule.memory.append(nan)
    schedule.cpu.append(0.0)
    if submission.refused:
        schedule.reasons[number] = submission.refused

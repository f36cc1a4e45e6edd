"""The state of a live run, copied for a simulation: what its journal says, taken up as a restarted driver would.

In: the journal of a run (which goes on, or was cut off), the options and the lines of its tasks. Out: a RunStart, and the tasks
that were observed. The journal is opened for reading only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from math import ceil
from pathlib import Path
from statistics import fmean

import msgspec

from pilothouse.campaign.durations import Observed
from pilothouse.formats.task_file import TaskLine
from pilothouse.journal.read import read_tasks, reading
from pilothouse.journal.store import replayed
from pilothouse.model.lifecycle import JobState
from pilothouse.views.read_live import on_clock
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.task_feed import RunStart, first_start, present_start

_LAST_ASSIGNMENTS = 1000
"""So many of the last assignments tell how long a job has its units besides running."""
_COMMON = 0.99
"""The share of jobs whose time besides running is not uncommonly long."""
_LAST_ENDS = """SELECT job_id, max(ended_at) FROM ends WHERE job_id IN (SELECT job_id FROM assignments WHERE closed_at IS NULL)
                GROUP BY job_id"""


def observed_tasks(folder: Path, now: float | None = None) -> list[Observed]:
    """The tasks of a run that have succeeded (if none has: that have ended), and with `now` those that run."""
    rows = [row for row in read_tasks(folder) if row.started is not None]
    ended = [row for row in rows if row.ended is not None and row.state != "unfinished"]
    good = [row for row in ended if row.state == JobState.SUCCEEDED.value] or ended
    found = [Observed(row.command, row.repeat_index, max(0.0, (row.ended or 0.0) - (row.started or 0.0))) for row in good]
    if now is not None:
        running = [row for row in rows if row.ended is None]
        found += [Observed(row.command, row.repeat_index, max(0.0, now - (row.started or now)), ended=False) for row in running]
    return found


def overhead_s(folder: Path) -> float:
    """For how long a job of the run had its units besides running its tasks: the mean of the last ones, as jobs follow each other
    and it adds up. What took uncommonly long (a driver that was suspended) counts no more than the longest common one."""
    with reading(folder) as db:
        return _overhead_s(db)


def _overhead_s(db: sqlite3.Connection) -> float:
    query = "SELECT job_id, closed_at - at FROM assignments WHERE closed_at IS NOT NULL ORDER BY id DESC LIMIT ?"
    held = dict(db.execute(query, (_LAST_ASSIGNMENTS,)))
    query = "SELECT job_id, ended_at - started_at FROM ends WHERE kind = 'N' ORDER BY rowid DESC LIMIT ?"
    ran: dict[str, list[float]] = {}
    for job_id, seconds in db.execute(query, (_LAST_ASSIGNMENTS,)):
        ran.setdefault(job_id, []).append(seconds)
    alone = [held[job_id] - seconds[0] for job_id, seconds in ran.items() if len(seconds) == 1 and held.get(job_id) is not None]
    common = sorted(alone)[: ceil(_COMMON * len(alone))]
    return max(0.0, fmean(min(seconds, common[-1]) for seconds in alone)) if alone else 0.0


def run_start(folder: Path, options: LiveOptions, lines: Iterable[TaskLine], now: float, mean_s: float) -> RunStart:
    """The run as it stands. `now`: seconds since 1970."""
    with reading(folder) as db:
        db.execute("BEGIN")  # all queries see the same moment
        start = present_start(options, list(replayed(db)), lines, dict(db.execute(_LAST_ENDS)), now)
        return msgspec.structs.replace(start, mean_s=mean_s, overhead_s=_overhead_s(db))


def run_began(folder: Path, options: LiveOptions, lines: Iterable[TaskLine], began: float, mean_s: float) -> RunStart:
    """The run as it was when it began: seconds since 1970."""
    with reading(folder) as db:
        start = first_start(options, list(replayed(db)), lines, lambda job: on_clock(job.submitted_at, began))
        return msgspec.structs.replace(start, mean_s=mean_s, overhead_s=_overhead_s(db))

"""The state of a live run, copied for a simulation: what its journal says, taken up as a restarted driver would.

In: the journal of a run (which goes on, or was cut off), the options and the lines of its tasks. Out: a RunStart, and the tasks
that were observed. The journal is opened for reading only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median

import msgspec

from pilothouse.campaign.durations import Observed
from pilothouse.campaign.task_world import RunningGroup, RunStart
from pilothouse.formats.task_file import TaskLine
from pilothouse.journal.read import read_tasks, reading
from pilothouse.journal.store import replayed
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState
from pilothouse.views.read_live import on_clock
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.driver.restore import restore
from pilothouse.worlds.live.driver.state import DriverState, new_state
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.wire.messages import Task

_LAST_ASSIGNMENTS = 1000
"""So many of the last assignments tell how long a job has its units besides running."""
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
    """For how long a job of the run had its units besides running its tasks: the median of the last ones."""
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
    return max(0.0, median(alone)) if alone else 0.0


def run_start(folder: Path, options: LiveOptions, lines: Iterable[TaskLine], now: float, mean_s: float) -> RunStart:
    """The run as it stands. `now`: seconds since 1970."""
    with reading(folder) as db:
        db.execute("BEGIN")  # all queries see the same moment
        records = list(replayed(db))
        overhead = _overhead_s(db)
        last_ends = dict(db.execute(_LAST_ENDS))
    driver = new_state(options, unix_offset=now)
    restore(driver, records, 0.0)
    assigned = {
        record.job_id: (record.at, last_ends.get(record.job_id, record.at))
        for record in records
        if type(record) is r.Assigned and record.job_id
    }
    return RunStart(
        options=options,
        nodes=tuple(proxy.node for proxy in driver.engines.present.values()),
        lines=[line for line in lines if driver.done.known(line) is not False],
        failed=frozenset(driver.done.failed),
        running=_running(driver, assigned, now),
        jobs=_jobs(driver, lambda job: 0.0),
        mean_s=mean_s,
        overhead_s=overhead,
    )


def first_start(folder: Path, options: LiveOptions, lines: Iterable[TaskLine], began: float, mean_s: float) -> RunStart:
    """The run as it was when it began, with all engines that were not lost. `began`: seconds since 1970."""
    with reading(folder) as db:
        records = list(replayed(db))
        overhead = _overhead_s(db)
    lost = {record.engine for record in records if type(record) is r.EngineLeft and record.lost}
    known = [record for record in records if type(record) in (r.EngineJoined, r.JobKnown)]
    driver = new_state(options)
    restore(driver, known, 0.0)
    nodes = [proxy.node for proxy in driver.engines.present.values() if proxy.id not in lost]
    return RunStart(
        options=options,
        nodes=tuple(nodes) or tuple(proxy.node for proxy in driver.engines.present.values()),
        lines=list(lines),
        jobs=_jobs(driver, lambda job: on_clock(job.submitted_at, began)),
        mean_s=mean_s,
        overhead_s=overhead,
    )


def _jobs(driver: DriverState, submitted_at: Callable[[Job], float]) -> tuple[tuple[Job, Task], ...]:
    """The submitted jobs that wait, without those dependencies that are met."""
    found = []
    for group in (*driver.backlog.jobs, *driver.dependencies.held.values()):
        job = group.job
        after = tuple(name for name in job.after if not driver.outcomes.get(name))
        job = msgspec.structs.replace(job, after=after, submitted_at=submitted_at(job))
        found.append((job, next(iter(group.tasks.values()))))
    return tuple(found)


def _running(driver: DriverState, assigned: dict[str, tuple[float, float]], now: float) -> tuple[RunningGroup, ...]:
    found = []
    for group in driver.groups.values():
        if group.tasks:
            since, last_end = assigned[group.job.id]
            # The tasks of a group follow each other: the next one began when the last one ended.
            age_s = max(0.0, now - max(since, last_end))
            found.append(RunningGroup(group.job, group.units, tuple(group.tasks.values()), age_s, max(0.0, now - since)))
    return tuple(found)

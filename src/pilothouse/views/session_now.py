"""What a session does now, as it leaves it beside its jobs.csv for views: PREFIX + now.json, rewritten about once a second.

jobs.csv has the jobs that have ended. This file has those that run and those that wait, the first MOST of each, and why the
first ones wait. launch/session_files.py writes it; it is gone when the session has ended.
"""

from __future__ import annotations

from math import inf
from pathlib import Path

import msgspec

from pilothouse.formats.text_input import JSON_PROBLEMS, json_error, read_bytes
from pilothouse.model.errors import InputError
from pilothouse.model.lifecycle import JobState
from pilothouse.views.schedule import Schedule, intervals

NAME = "now.json"
MOST = 10_000
MOST_REASONS = 50


class PresentJob(msgspec.Struct, frozen=True):
    """A job that runs or waits."""

    id: str
    submitted_at: float
    requested: int
    walltime: float | None = None
    user: str = ""
    started_at: float | None = None
    """None: it waits."""
    units: str = ""
    why: str = ""
    """Why it waits, where that was looked at."""


class SessionNow(msgspec.Struct, frozen=True):
    """A session at one moment. Dates are of the world's clock."""

    now: float
    units: int
    free: int
    waiting: int
    running: int
    jobs: list[PresentJob] = []


def read_now(prefix: str) -> SessionNow | None:
    """None: no session is at work there, or it does not say. Raises InputError."""
    path = prefix + NAME
    if not Path(path).is_file():
        return None
    data = read_bytes(path)
    try:
        return msgspec.json.decode(data, type=SessionNow)
    except JSON_PROBLEMS as problem:
        raise json_error(path, data, problem) from None


def add_present(schedule: Schedule, prefix: str) -> None:
    """Adds the jobs that run and wait to those that have ended. Raises InputError."""
    now = read_now(prefix)
    if now is None:
        return
    try:
        _add(schedule, now)
        schedule.check()
    except (ValueError, OverflowError) as problem:
        raise InputError(prefix + NAME, f"not what a session writes: {problem}") from None


def _add(schedule: Schedule, now: SessionNow) -> None:
    known = set(schedule.ids)
    for job in now.jobs:
        if job.id in known:
            continue
        waits = job.started_at is None
        schedule.ids.append(job.id)
        schedule.users.append(job.user)
        schedule.submitted.append(job.submitted_at)
        schedule.started.append(float("nan") if job.started_at is None else job.started_at)
        schedule.ended.append(float("nan"))
        schedule.requested.append(job.requested)
        schedule.widths.append(sum(last - first + 1 for first, last in intervals(job.units)))
        schedule.allocated.append(job.units)
        schedule.walltimes.append(inf if job.walltime is None else job.walltime)
        schedule.states.append(JobState.WAITING if waits else JobState.RUNNING)
        schedule.exit_codes.append(0)
    schedule.now = max(schedule.now, now.now)
    schedule.units = max(schedule.units, now.units)

"""The accounting of a resource manager as a workload: its rows, whatever they were read from, become jobs.

In: AccountedJob rows, which the readers of Slurm's, PBS's, LSF's and Flux's logs make. Out: a Workload whose units are CPUs and
whose time begins with the first submission. What could not be known, and what was changed or left out, is counted under
`Workload.oddities`, in the same words for all of them:

* a job is submitted when it became eligible: dependencies, holds and begin times are in that date;
* it runs as long as it did (suspended time left out); where it was cut short, that is less than it would have run;
* jobs that never started, still wait, or still run are left out: how long they would run is not known;
* each run of a requeued job is a job of its own.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from math import inf
from pathlib import Path

import msgspec

from pilothouse.formats.workload import Workload
from pilothouse.model.errors import InputError
from pilothouse.model.job import Job
from pilothouse.model.profile import Delay, Profile

GUESSED_MORE_S = 1.0
"""A job whose limit is its run time would be ended by it (Batsim's rule: only what is shorter succeeds)."""


class Fate(enum.Enum):
    """What had become of a job when its row was written."""

    FINISHED = "finished"
    """By itself, well or badly."""
    TIME_LIMIT = "time limit"
    CUT_SHORT = "cut short"
    """Cancelled, preempted or lost, running or waiting."""
    REQUEUED = "requeued"
    WAITING = "waiting"
    RUNNING = "running"


class AccountedJob(msgspec.Struct):
    """One run of a job. Dates are seconds since 1970; None: not known."""

    id: str
    fate: Fate
    cpus: int | None
    submitted_at: float | None
    eligible_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    run_s: float | None = None
    """Without suspended time; None: from the dates."""
    suspended_s: float = 0.0
    limit_s: float | None = None
    """inf: it had none, and the log says so."""
    user: str = ""
    part: bool = False
    """Of a heterogeneous job, whose other parts have rows of their own."""


class _Oddities:
    NEVER_STARTED = "left out: never started"
    WAITS = "left out: still waiting when the log ends"
    RUNS = "left out: still running when the log ends"
    NO_CPUS = "left out: no number of CPUs"
    NO_DATE = "left out: date of submission unknown"
    TOO_LARGE = "left out: larger than the machine"
    NO_END = "left out: date of end unknown"
    UNLIMITED = "without a time limit, by its own request"
    NO_LIMIT = "walltime guessed, the run time and a second: no limit was told"
    OVERRAN = "cut at the time limit: ran longer"
    TIMED_OUT = "ended by the time limit: would have run longer"
    CUT_SHORT = "cancelled, preempted or lost while running: would have run longer"
    SUSPENDED = "suspended for a while: that time is left out"
    REQUEUED = "an earlier run of a requeued job"
    LATER = "submitted when it became eligible (dependency, begin time, hold)"
    BEFORE = "queued or running already when the log begins"
    HETEROGENEOUS = "a part of a heterogeneous job"


def workload(
    rows: Iterable[AccountedJob], path: str | Path, name: str, *, units: int, left_out: Mapping[str, int] | None = None
) -> Workload:
    """`units`: larger jobs are left out (0: none is); `left_out`: what the reader left out, and how often."""
    oddities: dict[str, int] = {f"left out: {what}": count for what, count in (left_out or {}).items() if count}
    kept: list[tuple[float, AccountedJob, float]] = []
    runs: dict[str, int] = {}

    def odd(what: str) -> None:
        oddities[what] = oddities.get(what, 0) + 1

    for row in rows:
        reason = _left_out(row, units)
        if reason:
            odd(reason)
            continue
        assert row.submitted_at is not None and row.started_at is not None
        run_s = row.run_s if row.run_s is not None else (row.ended_at or row.started_at) - row.started_at
        submitted = row.submitted_at
        if row.eligible_at is not None and row.submitted_at < row.eligible_at <= row.started_at:
            odd(_Oddities.LATER)
            submitted = row.eligible_at
        _note(row, odd)
        kept.append((submitted, row, max(0.0, run_s)))
    if not kept:
        raise InputError(str(path), "no job in it that ran", hint="; ".join(f"{n} {what}" for what, n in oddities.items()))
    kept.sort(key=lambda item: (item[0], item[1].id))
    zero = kept[0][0]
    first_end = min((row.ended_at for _, row, _ in kept if row.ended_at is not None), default=zero)
    early = sum(submitted < first_end for submitted, _, _ in kept)
    if 1 < early < len(kept):
        # Logs are cut by activity (sacct -S): nothing that ended before the first date is in them.
        oddities[_Oddities.BEFORE] = early
    profiles: dict[float, Profile] = {}
    jobs = []
    for submitted, row, run_s in kept:
        runs[row.id] = runs.get(row.id, 0) + 1
        job_id = row.id if runs[row.id] == 1 else f"{row.id}#{runs[row.id]}"
        jobs.append(_job(row, f"{name}!{job_id}", submitted - zero, run_s, profiles, name, odd))
    by_name = {profile.name: profile for profile in profiles.values()}
    return Workload(name, str(Path(path).absolute()), 0, jobs, by_name, oddities)


def _left_out(row: AccountedJob, units: int) -> str:
    if row.fate is Fate.WAITING:
        return _Oddities.WAITS
    if row.started_at is None:
        return _Oddities.NEVER_STARTED
    if row.fate is Fate.RUNNING:
        return _Oddities.RUNS
    if row.ended_at is None and row.run_s is None:
        return _Oddities.NO_END
    if row.submitted_at is None:
        return _Oddities.NO_DATE
    if not row.cpus:
        return _Oddities.NO_CPUS
    return _Oddities.TOO_LARGE if units and row.cpus > units else ""


_NOTES = {Fate.TIME_LIMIT: _Oddities.TIMED_OUT, Fate.REQUEUED: _Oddities.REQUEUED, Fate.CUT_SHORT: _Oddities.CUT_SHORT}


def _note(row: AccountedJob, odd: Callable[[str], None]) -> None:
    if row.fate in _NOTES:
        odd(_NOTES[row.fate])
    if row.suspended_s > 0:
        odd(_Oddities.SUSPENDED)
    if row.part:
        odd(_Oddities.HETEROGENEOUS)


def _job(
    row: AccountedJob, job_id: str, submitted: float, run_s: float, profiles: dict[float, Profile], name: str,
    odd: Callable[[str], None],
) -> Job:  # fmt: skip
    assert row.cpus is not None
    walltime = row.limit_s
    if walltime is None or walltime <= 0:
        odd(_Oddities.NO_LIMIT)
        walltime = run_s + GUESSED_MORE_S
    elif run_s > walltime:
        if row.fate is Fate.TIME_LIMIT:
            run_s = walltime  # managers look at limits now and then, Slurm once a minute
        else:
            odd(_Oddities.OVERRAN)
    elif walltime == inf:
        odd(_Oddities.UNLIMITED)
    profile = profiles.get(run_s)
    if profile is None:
        profile = profiles[run_s] = Profile(f"{name}!delay{run_s:g}", Delay(run_s))
    return Job(job_id, row.cpus, walltime, submitted, profile, user=row.user, runtime=run_s)

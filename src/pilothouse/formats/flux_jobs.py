"""What `flux jobs -a --json` prints: `{"jobs": [...]}`, or one job alone, as rows.

Dates are seconds since 1970 with fractions: t_submit, t_depend (its dependencies were met), t_run, t_cleanup, t_inactive; a
state that a job has not been in has no date, or 0. `duration` is the time limit in seconds, 0 for none. Old versions of Flux
tell no `ncores`: then `ntasks` is taken, and counted.
"""

from __future__ import annotations

from math import inf, isfinite
from pathlib import Path
from typing import Any

import msgspec

from pilothouse.formats.accounting import AccountedJob, Fate, workload
from pilothouse.formats.text_input import JSON_PROBLEMS, json_error, read_bytes
from pilothouse.formats.workload import Workload
from pilothouse.model.errors import InputError, quoted

MOST = 2**60
"""Larger numbers are taken for damage."""
BY_TASKS = "size taken from the number of tasks: none of cores was told"
_PENDING = ("NEW", "DEPEND", "PRIORITY", "SCHED")
_RUNNING = ("RUN", "CLEANUP")
_STATE_BITS = {1: "NEW", 2: "DEPEND", 4: "PRIORITY", 8: "SCHED", 16: "RUN", 32: "CLEANUP"}
_RESULT_NUMBERS = {4: "CANCELED", 8: "TIMEOUT"}
"""All others (INACTIVE, COMPLETED, FAILED) are ends that nothing cut short."""


def read(path: str | Path, name: str = "w0", *, units: int = 0) -> Workload:
    """Reads a log. Larger jobs than `units` cores are left out."""
    data = read_bytes(path)
    try:
        found = msgspec.json.decode(data)
    except JSON_PROBLEMS as problem:
        raise json_error(path, data, problem) from None
    jobs = found.get("jobs", [found]) if isinstance(found, dict) else None
    if not isinstance(jobs, list):
        raise InputError(str(path), "not the output of flux jobs --json", expected="a list `jobs`")
    rows = []
    by_tasks = 0
    for number, job in enumerate(jobs):
        if not isinstance(job, dict):
            raise InputError(f"{path}: jobs[{number}]", "not a job", expected="an object", found=quoted(job))
        row = _row(job)
        if _count(job.get("ncores")) is None and row.started_at is not None and row.cpus:
            by_tasks += 1
        rows.append(row)
    made = workload(rows, path, name, units=units)
    if by_tasks:
        made.oddities[BY_TASKS] = by_tasks
    return made


def _row(job: dict[str, Any]) -> AccountedJob:
    started = _date(job.get("t_run"))
    limit = _number(job.get("duration"))
    return AccountedJob(
        str(job.get("id", "")),
        _fate(job),
        _count(job.get("ncores")) or _count(job.get("ntasks")),
        _date(job.get("t_submit")),
        _date(job.get("t_depend")),
        started,
        _date(job.get("t_cleanup")) or _date(job.get("t_inactive")),
        limit_s=None if limit is None else limit or inf,
        user=str(job.get("username") or job.get("userid") or ""),
    )


def _fate(job: dict[str, Any]) -> Fate:
    state, result = job.get("state", ""), job.get("result", "")
    state = _STATE_BITS.get(state, "") if isinstance(state, int) else str(state).upper()
    result = _RESULT_NUMBERS.get(result, "") if isinstance(result, int) else str(result).upper()
    if state in _PENDING:
        return Fate.WAITING
    if state in _RUNNING:
        return Fate.RUNNING
    return {"TIMEOUT": Fate.TIME_LIMIT, "CANCELED": Fate.CUT_SHORT}.get(result, Fate.FINISHED)


def _number(value: object) -> float | None:
    """None for what is no number: "" stands for "not known"."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > MOST or not isfinite(value):
        return None
    return float(value)


def _count(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number >= 1 else None


def _date(value: object) -> float | None:
    number = _number(value)
    return number if number is not None and number > 0 else None

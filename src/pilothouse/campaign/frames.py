"""Tables in and out of Python: data frames of polars or pandas, or plain lists of rows, as workloads, platforms and results.

In: any object with columns (polars, pandas), or an iterable of mappings. Out: jobs of a Workload, nodes, and frames of the
library that the user has: the one that is imported already, else polars, else pandas, else a list of dictionaries.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from math import inf, isfinite, isnan
from typing import Any

from pilothouse.formats.workload import Workload
from pilothouse.model.errors import InputError, quoted, suggestion
from pilothouse.model.job import Job, Node
from pilothouse.model.profile import Delay, Profile
from pilothouse.views.schedule import Schedule

Row = Mapping[str, Any]
LIBRARIES = ("polars", "pandas")
JOB_COLUMNS = ("id", "user", "submitted_at", "units", "walltime", "runtime", "started_at", "ended_at", "wait", "state",
               "allocated")  # fmt: skip
"""Columns of a result's jobs. The first six make a workload."""
NODE_COLUMNS = ("name", "cores", "gpus", "memory_mb", "speed")


def frame(columns: dict[str, list[Any]]) -> Any:
    """A data frame, or a list of rows where neither library is installed."""
    library = next((name for name in LIBRARIES if name in sys.modules), None)
    library = library or next((name for name in LIBRARIES if find_spec(name) is not None), None)
    if library is None:
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    module = __import__(library)
    return module.DataFrame(columns)


def rows_of(table: Any, where: str) -> list[Row]:
    """The rows of a frame or of an iterable of mappings. InputError for anything else."""
    if hasattr(table, "to_dicts"):  # polars
        return list(table.to_dicts())
    if hasattr(table, "to_dict") and hasattr(table, "columns"):  # pandas
        return list(table.to_dict("records"))
    rows = list(table) if isinstance(table, Iterable) and not isinstance(table, str | bytes | Mapping) else None
    if rows is None or not all(isinstance(row, Mapping) for row in rows):
        found = quoted(type(table).__name__)
        raise InputError(where, "not a table", expected="a data frame, or a list of dictionaries", found=found)
    return rows


def jobs_frame(run: Schedule) -> Any:
    """The jobs of a run in order of submission: JOB_COLUMNS. Dates that are not known are null."""
    order = sorted(range(len(run)), key=lambda row: (run.submitted[row], row))

    def known(value: float) -> float | None:
        return None if isnan(value) else value

    started, ended = [known(run.started[row]) for row in order], [known(run.ended[row]) for row in order]
    submitted = [run.submitted[row] for row in order]
    runs = [None if s is None or e is None else e - s for s, e in zip(started, ended, strict=True)]
    return frame({
        "id": [run.ids[row] for row in order],
        "user": [run.users[row] for row in order],
        "submitted_at": submitted,
        "units": [run.requested[row] for row in order],
        "walltime": [run.walltimes[row] for row in order],
        "runtime": runs,
        "started_at": started,
        "ended_at": ended,
        "wait": [None if s is None else s - at for s, at in zip(started, submitted, strict=True)],
        "state": [run.states[row].value for row in order],
        "allocated": [run.allocated[row] for row in order],
    })  # fmt: skip


def workload_of(table: Any, name: str = "w0") -> Workload:
    """A workload of jobs, or of a table: `units` and `runtime` must be there; `id`, `submitted_at`, `walltime` and `user`
    may be. A row without units or run time is left out and counted; so are those without a date, which are submitted at 0 s,
    and those without a walltime, which have no limit. A column that is nearly called `submitted_at` or `walltime` is a mistake.
    """
    if isinstance(table, Iterable) and not isinstance(table, str | bytes | Mapping) and not hasattr(table, "columns"):
        table = list(table)
        if table and all(isinstance(job, Job) for job in table):
            return _of_jobs(table, name)
    rows = rows_of(table, "workload")
    if not rows:
        raise InputError("workload", "no job in it")
    columns = [str(column) for column in rows[0]]
    others = [column for column in columns if column not in JOB_COLUMNS]
    for column in ("units", "runtime", "submitted_at", "walltime"):
        meant = suggestion(column, others)
        if column not in columns and (meant or column in ("units", "runtime")):
            raise InputError("workload", f"no column {column!r}", found=", ".join(columns), hint=meant)
    oddities: dict[str, int] = {}

    def odd(what: str) -> None:
        oddities[what] = oddities.get(what, 0) + 1

    jobs = []
    for number, row in enumerate(rows, 1):
        where = f"workload, row {number}"
        units, runtime = _number(row, "units", where), _number(row, "runtime", where)
        submitted, walltime = _number(row, "submitted_at", where), _number(row, "walltime", where)
        if units is None or units < 1 or units == inf:
            odd("left out: no number of units")
            continue
        if runtime is None or not 0 <= runtime < inf:
            odd("left out: run time unknown")
            continue
        if submitted is None:
            odd("submitted at 0 s: date of submission unknown")
        if walltime is None:
            odd("without a limit: walltime unknown")
        local = row.get("id")
        user = row.get("user")
        jobs.append(
            Job(str(number if _missing(local) else local), int(units), inf if walltime is None else walltime, submitted or 0.0,
                user="" if _missing(user) else str(user), runtime=runtime)
        )  # fmt: skip
    made = _of_jobs(jobs, name)
    made.oddities = oddities
    return made


def nodes_of(table: Any) -> list[Node]:
    """Nodes, or rows with `cores` and perhaps `name`, `gpus`, `memory_mb`, `speed` (flop/s), as nodes."""
    given = list(table) if isinstance(table, Iterable) and not hasattr(table, "columns") else table
    if isinstance(given, list) and given and all(isinstance(node, Node) for node in given):
        return given
    nodes = []
    for number, row in enumerate(rows_of(given, "platform"), 1):
        where = f"platform, row {number}"
        values = {key: _number(row, key, where) for key in NODE_COLUMNS[1:]}
        cores = values["cores"]
        if cores is None or cores < 1:
            raise InputError(where, "no number of cores", expected="a column cores", found=quoted(dict(row)))
        name = row.get("name")
        speed = values["speed"]
        nodes.append(
            Node(f"node{number - 1}" if _missing(name) else str(name), 0, int(cores), int(values["gpus"] or 0),
                 int(values["memory_mb"] or 0), speeds=(speed,) if speed else ())
        )  # fmt: skip
    return nodes


def _of_jobs(jobs: list[Job], name: str) -> Workload:
    """Jobs under full names, with the profile that their run time stands for. The given jobs stay as they are."""
    from msgspec import structs

    profiles: dict[str, Profile] = {}
    made: list[Job] = []
    seen: set[str] = set()
    for job in sorted(jobs, key=lambda job: job.submitted_at):
        full = job.id if "!" in job.id else f"{name}!{job.id}"
        if full in seen:
            raise InputError("workload", "two jobs have one id", found=quoted(job.id))
        seen.add(full)
        profile = job.profile
        if profile is None:
            if job.runtime is None:
                raise InputError(f"job {job.id}", "neither a profile nor a runtime", hint="Job(..., runtime=60.0)")
            profile = Profile(f"{name}!delay{job.runtime!r}", Delay(job.runtime))
        profiles[profile.name] = profile
        made.append(structs.replace(job, id=full, profile=profile))
    return Workload(name, "", 0, made, profiles)


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and isnan(value))


def _number(row: Row, key: str, where: str) -> float | None:
    """None where it is not known: absent, null, or not a number at all in the sense of floats."""
    value = row.get(key)
    if _missing(value):
        return None
    try:
        found = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise InputError(where, f"{key} is not a number", found=quoted(value)) from None
    if isnan(found):
        return None
    if not isfinite(found) and key not in ("walltime", "runtime", "units"):
        raise InputError(where, f"{key} is infinite")
    return found

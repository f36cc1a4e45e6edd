"""What sacct prints, as rows: columns with any delimiter (`sacct -P`, `--delimiter=...`), and `sacct --json`.

A header names the columns; their order does not matter, and unknown ones are ignored. `--json` changed in 23.02: numbers
became objects with `set`, `infinite` and `number`, and states became lists. Both forms are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from pilothouse.formats import slurm_fields as fields
from pilothouse.formats.accounting import AccountedJob, workload
from pilothouse.formats.text_input import JSON_PROBLEMS, json_error, read_bytes
from pilothouse.formats.workload import Workload
from pilothouse.model.errors import InputError, quoted

COLUMNS = "JobID,JobIDRaw,User,Submit,Eligible,Start,End,ElapsedRaw,Suspended,TimelimitRaw,ReqCPUS,NCPUS,State"
HINT = f"sacct -a -X -P -D -o {COLUMNS}"
_FIRST_NAME = re.compile(r"[A-Za-z]+")


def read(path: str | Path, name: str = "w0", *, units: int = 0) -> Workload:
    """Reads a log of either form. Larger jobs than `units` CPUs are left out."""
    data = read_bytes(path)
    if data.lstrip()[:1] == b"{":
        return workload(_json_rows(data, path), path, name, units=units)
    rows, broken = _column_rows(data.decode("utf-8", "replace"), path)
    shifted = "a field holds the delimiter (use sacct --delimiter, or leave JobName out)"
    return workload(rows, path, name, units=units, left_out={shifted: broken})


# ---- columns


def _column_rows(text: str, path: str | Path) -> tuple[list[AccountedJob], int]:
    lines = text.split("\n")
    header = lines[0].rstrip("\r")
    found = _FIRST_NAME.match(header.lstrip())
    rest = header.lstrip()[found.end() :] if found is not None else ""
    delimiter = re.split(r"[A-Za-z]", rest)[0]
    if not delimiter or not delimiter.strip(" "):
        raise InputError(f"{path}:1", "columns that are aligned with blanks cannot be told apart", hint=f"use {HINT}")
    names = [column.strip() for column in header.lstrip().split(delimiter)]
    if names and not names[-1]:
        names.pop()  # sacct -p ends each line with the delimiter.
    index = {column.lower(): position for position, column in enumerate(names)}
    for needed in (("jobid", "jobidraw"), ("submit",), ("start",), ("end", "elapsedraw", "elapsed"), _CPUS):
        if not any(column in index for column in needed):
            raise InputError(f"{path}:1", f"no column {needed[0]}", expected=COLUMNS, found=quoted(header), hint=f"use {HINT}")
    rows: list[AccountedJob] = []
    broken = 0
    for line in lines[1:]:
        cells = line.rstrip("\r").split(delimiter)
        if len(cells) == 1 and not cells[0]:
            continue
        if len(cells) == len(names) + 1 and not cells[-1]:
            cells.pop()
        if len(cells) != len(names):
            broken += 1
            continue
        row = _row(lambda column, cells=cells: cells[index[column]].strip() if column in index else "")  # type: ignore[misc]
        if row is not None:
            rows.append(row)
    if not rows:
        raise InputError(str(path), "no job in it", expected=f"lines of {len(names)} fields", hint=f"use {HINT}")
    return rows, broken


_CPUS = ("reqcpus", "ncpus", "alloccpus", "reqtres", "alloctres")


def _row(cell: Callable[[str], str]) -> AccountedJob | None:
    """None: a step of a job, or an array that has not been split up."""
    job_id = cell("jobid") or cell("jobidraw")
    if not job_id or "." in job_id or "[" in job_id:
        return None
    cpus = fields.count(cell("reqcpus")) or fields.count(cell("ncpus")) or fields.count(cell("alloccpus"))
    cpus = cpus or fields.count(fields.tres(cell("reqtres") or cell("alloctres")).get("cpu", ""))
    elapsed = fields.count(cell("elapsedraw"))
    minutes = fields.count(cell("timelimitraw"))
    limit_s = minutes * 60.0 if minutes is not None else fields.time_limit(cell("timelimitraw"))
    return AccountedJob(
        job_id,
        fields.fate(cell("state")),
        cpus,
        fields.date(cell("submit")),
        fields.date(cell("eligible")),
        fields.date(cell("start")),
        fields.date(cell("end")),
        float(elapsed) if elapsed is not None else fields.time_limit(cell("elapsed")),
        fields.time_limit(cell("suspended")) or 0.0,
        limit_s if limit_s is not None else fields.time_limit(cell("timelimit")),
        cell("user"),
        "+" in job_id,
    )


# ---- JSON


def _json_rows(data: bytes, path: str | Path) -> list[AccountedJob]:
    try:
        found = msgspec.json.decode(data)
    except JSON_PROBLEMS as problem:
        raise json_error(path, data, problem) from None
    jobs = found.get("jobs") if isinstance(found, dict) else None
    if not isinstance(jobs, list):
        raise InputError(str(path), "not the output of sacct --json", expected="a list `jobs`")
    rows = []
    for number, job in enumerate(jobs):
        where = f"{path}: jobs[{number}]"
        if not isinstance(job, dict):
            raise InputError(where, "not a job", expected="an object", found=quoted(job))
        rows.append(_json_row(job))
    return rows


def _json_row(job: dict[str, Any]) -> AccountedJob:
    time, state = _part(job, "time"), _part(job, "state").get("current", "")
    limit = _number(time.get("limit"))
    return AccountedJob(
        _json_id(job),
        fields.fate(str(state[0] if isinstance(state, list) and state else state)),
        _json_cpus(job),
        _date(time.get("submission")),
        _date(time.get("eligible")),
        _date(time.get("start")),
        _date(time.get("end")),
        _number(time.get("elapsed")),
        _number(time.get("suspended")) or 0.0,
        None if limit is None else limit * 60.0,
        str(job.get("user") or ""),
    )


def _json_id(job: dict[str, Any]) -> str:
    array, task = _number(_part(job, "array").get("job_id")), _number(_part(job, "array").get("task_id"))
    if array and task is not None:
        return f"{int(array)}_{int(task)}"
    return str(int(_number(job.get("job_id")) or 0))


def _json_cpus(job: dict[str, Any]) -> int | None:
    for kind in ("requested", "allocated"):
        listed = _part(job, "tres").get(kind)
        for item in listed if isinstance(listed, list) else ():
            if isinstance(item, dict) and item.get("type") == "cpu":
                number = _number(item.get("count"))
                if number:
                    return int(number)
    number = _number(_part(job, "required").get("CPUs"))
    return int(number) if number and number < inf else None


def _part(job: dict[str, Any], key: str) -> dict[str, Any]:
    found = job.get(key)
    return found if isinstance(found, dict) else {}


def _number(value: object) -> float | None:
    """A plain number (22.05), or one with `set` and `infinite` (23.02 and later)."""
    if isinstance(value, dict):
        if value.get("infinite"):
            return inf
        return _number(value.get("number")) if value.get("set", True) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**53 else None


def _date(value: object) -> float | None:
    number = _number(value)
    return number if number and number < inf else None

"""The Standard Workload Format of the Parallel Workloads Archive: 18 columns a job, `;` comments, -1 for "unknown".

What a simulation makes of a line (and counts under `Workload.oddities` where it is not plain):

* units: requested processors (column 8), else used ones (5); a job without either is left out;
* walltime: requested time (9), else the run time (4); a job that ran longer than it asked for is cut at its request;
* a job whose run time or date of submission is unknown is left out; one that ran 0 s starts and ends at one date;
* a request larger than the machine is left out (`units` given);
* lines need not be sorted; jobs of one date are submitted in the order of their numbers.

Cost: 3 µs a job; profiles are shared by jobs of equal run time.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, isfinite
from pathlib import Path

from pilothouse.formats.text_input import read_bytes
from pilothouse.formats.workload import Workload
from pilothouse.model.errors import InputError, quoted
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState
from pilothouse.model.numerals import whole_number
from pilothouse.model.profile import Delay, Profile
from pilothouse.model.record import JobRecord

COLUMNS = 18


class _Oddities:
    """What was changed or left out, in the words that the user sees."""

    NO_UNITS = "left out: no number of processors"
    NO_RUNTIME = "left out: run time unknown"
    NO_DATE = "left out: date of submission unknown"
    TOO_LARGE = "left out: larger than the machine"
    NO_REQUEST = "walltime taken from the run time: none was requested"
    OVERRAN = "cut at the requested time: ran longer"
    INSTANT = "ran 0 s"
    UNSORTED = "not in order of submission"


def read(path: str | Path, name: str = "w0", *, units: int = 0) -> Workload:
    """Reads a log, plain or gzipped. With `units`, larger requests are left out."""
    text = read_bytes(path).decode("utf-8", "replace")
    machine = 0
    oddities: dict[str, int] = {}
    profiles: dict[float, Profile] = {}
    rows: list[tuple[float, int, Job]] = []
    seen: set[int] = set()
    latest = -inf

    def odd(what: str) -> None:
        oddities[what] = oddities.get(what, 0) + 1

    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith(";"):
            machine = _machine_size(line) or machine
            continue
        fields = line.split()
        if not fields:
            continue
        job_number, submit, run, processors, walltime, user = _columns(path, number, fields, line)
        if job_number in seen:
            raise InputError(f"{path}:{number}", "a job of that number exists already", found=str(job_number))
        seen.add(job_number)
        if processors <= 0:
            odd(_Oddities.NO_UNITS)
        elif run < 0:
            odd(_Oddities.NO_RUNTIME)
        elif submit < 0:
            odd(_Oddities.NO_DATE)
        elif units and processors > units:
            odd(_Oddities.TOO_LARGE)
        else:
            if submit < latest:
                odd(_Oddities.UNSORTED)
            latest = max(latest, submit)
            if walltime <= 0:
                odd(_Oddities.NO_REQUEST)
                walltime = run or 1.0
            elif run > walltime:
                odd(_Oddities.OVERRAN)
            if run == 0:
                odd(_Oddities.INSTANT)
            profile = profiles.get(run)
            if profile is None:
                profile = profiles[run] = Profile(f"{name}!delay{run:g}", Delay(run))
            job = Job(f"{name}!{job_number}", processors, walltime, submit, profile, user=user, runtime=run)
            rows.append((submit, job_number, job))
    if not seen:
        raise InputError(str(path), "no job in it", expected=f"lines of {COLUMNS} numbers")
    rows.sort(key=lambda row: (row[0], row[1]))
    jobs, by_name = [row[2] for row in rows], {profile.name: profile for profile in profiles.values()}
    return Workload(name, str(Path(path).absolute()), machine, jobs, by_name, oddities)


def _columns(path: str | Path, number: int, fields: list[str], line: str) -> tuple[int, float, float, int, float, str]:
    where = f"{path}:{number}"
    if len(fields) < COLUMNS:
        found = f"{len(fields)}: {quoted(line)}"
        raise InputError(where, "not an SWF line", expected=f"{COLUMNS} columns", found=found)
    try:
        processors = int(float(fields[7]))
        if processors <= 0:
            processors = int(float(fields[4]))
        dates = float(fields[1]), float(fields[3]), float(fields[8])
        if not all(map(isfinite, dates)):
            raise ValueError("not a finite number")
        return int(fields[0]), dates[0], dates[1], processors, dates[2], fields[11]
    except (ValueError, OverflowError):
        raise InputError(where, "not an SWF line", expected=f"{COLUMNS} numbers", found=quoted(line)) from None


def _machine_size(comment: str) -> int:
    """The header `; MaxProcs: 100` (or MaxNodes), 0 if this comment is another."""
    key, _, value = comment.lstrip("; \t").partition(":")
    words = value.split()
    return whole_number(words[0]) or 0 if key.strip() in ("MaxProcs", "MaxNodes") and words else 0


_STATUS = {JobState.SUCCEEDED: 1, JobState.FAILED: 0, JobState.TIMED_OUT: 0, JobState.KILLED: 5}


def write(records: Iterable[JobRecord], units: int) -> str:
    """Finished jobs as a log of our own, numbered in order of submission; times rounded to three decimals."""
    lines = ["; Version: 2.2", f"; MaxProcs: {units}", "; Note: written by pilothouse"]
    for number, record in enumerate(sorted(records, key=_submission), 1):
        job = record.job
        start = record.started_at
        wait = -1.0 if start is None else start - job.submitted_at
        run = -1.0 if start is None else record.ended_at - start
        request = -1.0 if job.walltime == inf else job.walltime
        user = job.user if whole_number(job.user.removeprefix("-")) is not None else "-1"
        lines.append(
            f"{number} {_number(job.submitted_at)} {_number(wait)} {_number(run)} {len(record.units) or -1} -1 -1 {job.units}"
            f" {_number(request)} -1 {_STATUS.get(record.state, -1)} {user} -1 -1 -1 -1 -1 -1"
        )
    return "\n".join(lines) + "\n"


def write_workload(workload: Workload, units: int) -> tuple[str, dict[str, int]]:
    """A workload as a log, before anything of it has run; and what the format has no place for, counted.

    Names of users become numbers. Column 4 is the run time of jobs that have one; what computes or transfers has none.
    """
    oddities: dict[str, int] = {}
    users: dict[str, int] = {}
    lines = []
    for number, job in enumerate(workload.jobs, 1):
        run_s = job.runtime
        if run_s is None and job.profile is not None and isinstance(job.profile.spec, Delay):
            run_s = job.profile.spec.seconds
        for odd, what in (
            (run_s is None, "written without a run time: they compute or transfer"),
            (bool(job.after), "written without their dependencies"),
            (job.walltime == inf, "written without a walltime: they have no limit"),
            (job.shape is not None, "written as a number of units: nodes, GPUs and memory are left out"),
        ):
            if odd:
                oddities[what] = oddities.get(what, 0) + 1
        known = whole_number(job.user)
        user = known if known is not None else users.setdefault(job.user, len(users) + 1) if job.user else -1
        request = -1.0 if job.walltime == inf else job.walltime
        lines.append(
            f"{number} {_number(job.submitted_at)} -1 {_number(-1.0 if run_s is None else run_s)} -1 -1 -1 {job.least_units}"
            f" {_number(request)} -1 -1 {user} -1 -1 -1 -1 -1 -1"
        )
    header = ["; Version: 2.2", f"; MaxJobs: {len(lines)}", f"; MaxRecords: {len(lines)}"]
    header += [f"; MaxProcs: {units}"] if units else []
    header += [f"; Note: written by pilothouse from {Path(workload.path).name or workload.name}"]
    for what, count in {**workload.oddities, **oddities}.items():
        header.append(f"; Note: {count} job{'s' if count > 1 else ''} {what}")
    return "\n".join([*header, *lines]) + "\n", oddities


def _submission(record: JobRecord) -> tuple[float, int, str]:
    local = record.job.local_id
    return record.job.submitted_at, whole_number(local) or 0, record.job.id


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


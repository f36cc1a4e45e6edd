"""Reads any run into a Schedule: finished or going on, simulated or live. The one place where views find runs.

A run is named by its folder, by what the names of its files begin with (`-e`), by its jobs.csv or journal itself, or by
the status file of a disBatch run. Cost: 6 µs a job of a simulation.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from math import isfinite, isnan
from pathlib import Path

import msgspec

from pilothouse.formats import accounting_logs, jobs_csv, swf
from pilothouse.formats.text_input import JSON_PROBLEMS, json_error, read_bytes, read_text
from pilothouse.formats.workload import Workload
from pilothouse.journal.store import FILE_NAME as JOURNAL
from pilothouse.model.errors import InputError, quoted, suggestion
from pilothouse.model.lifecycle import FROM_BATSIM
from pilothouse.views.documents import SCHEMA
from pilothouse.views.schedule import Schedule, Steps, date_or_nan, intervals
from pilothouse.views.session_now import add_present

JOBS = "jobs.csv"


class RunPath(msgspec.Struct, frozen=True):
    """Where a run is: the folder of its journal, or what the names of its files begin with."""

    name: str
    journal: Path | None = None
    prefix: str = ""


def find(text: str) -> RunPath:
    """The run that a user named. Raises InputError, with the nearest run beside it."""
    path = Path(text)
    if path.is_dir():
        if (path / JOURNAL).is_file():
            return RunPath(_short(path), journal=path)
        if (path / JOBS).is_file():
            return RunPath(_short(path), prefix=f"{text.rstrip('/')}/")
        inside = sorted(child.name for child in path.iterdir() if _is_run(child))
        hint = f"there are runs in it: {', '.join(inside[:5])}" if inside else ""
        raise InputError(text, "no run was recorded here", expected=f"{JOBS} or {JOURNAL}", hint=hint)
    if path.name == JOURNAL and path.is_file():
        return RunPath(_short(path.parent), journal=path.parent)
    if path.is_file() and path.name.endswith(JOBS):
        prefix = text.removesuffix(JOBS)
        return RunPath(_short_prefix(prefix), prefix=prefix)
    for between in ("", "_"):  # Batsim's own prefix is followed by an underscore
        if Path(f"{text}{between}{JOBS}").is_file():
            return RunPath(_short_prefix(text), prefix=text + between)
    beside = Path(text.removesuffix("_status.txt") + "_run")
    if (beside / JOURNAL).is_file():
        return RunPath(_short(beside), journal=beside)
    raise InputError(text, "there is no run of that name", expected="a folder or prefix with jobs.csv, or a run's folder",
                     hint=_suggestion(path))  # fmt: skip


def live_folder(text: str) -> Path:
    """The folder of the live run that a user named. Raises InputError."""
    found = find(text)
    if found.journal is None:
        raise InputError(text, "is a simulation", expected="the folder of a live run", hint="see pilothouse plot and step")
    return found.journal


def read_run(text: str) -> Schedule:
    """The run that a user named, as far as it has come."""
    found = find(text)
    if found.journal is not None:
        from pilothouse.views.read_live import read_live

        return read_live(found.journal, found.name)
    return _read_simulated(found)


def read_runs(texts: tuple[str, ...]) -> list[Schedule]:
    """Several runs. Those of one name are told apart by their folders."""
    runs = [read_run(text) for text in texts]
    names = [run.name for run in runs]
    for run, text in zip(runs, texts, strict=True):
        if names.count(run.name) > 1:
            run.name = f"{run.name} ({text.rstrip('/')})"
    return runs


def _short(folder: Path) -> str:
    return folder.resolve().name.removesuffix("_run")


def _short_prefix(prefix: str) -> str:
    return _short(Path(prefix)) if prefix.endswith("/") or not prefix else Path(prefix).name.rstrip("_-.")


def _is_run(path: Path) -> bool:
    return path.is_dir() and ((path / JOBS).is_file() or (path / JOURNAL).is_file())


def _suggestion(path: Path) -> str:
    if not path.parent.is_dir():
        return ""
    return suggestion(path.name, [child.name for child in path.parent.iterdir() if _is_run(child)])


# ---- simulated runs


class _Described(msgspec.Struct):
    """What run.json says."""

    schema: int = 1
    decider: str = ""
    units: int = 0
    jobs: int | None = None
    steering: bool = False
    """Jobs come from elsewhere: nothing but schedule.json tells that it is over."""
    workloads: list[str] = []


def _read_simulated(found: RunPath) -> Schedule:
    prefix = found.prefix
    described = _described(prefix + "run.json")
    schedule = Schedule(
        name=described.decider or found.name, path=prefix, live=False, policy=described.decider,
        total=described.jobs, workloads=described.workloads,
    )  # fmt: skip
    highest = 0
    for number, row in enumerate(jobs_csv.read(prefix + JOBS)):
        state = FROM_BATSIM.get(row.state)
        if state is None:
            raise InputError(prefix + JOBS, "an unknown final_state", found=quoted(row.state))
        schedule.ids.append(row.id)
        schedule.users.append("")
        schedule.submitted.append(row.submitted_at)
        schedule.started.append(date_or_nan(row.started_at))
        # A job that never started left the queue when it was refused, which is when it came.
        schedule.ended.append(row.submitted_at if row.started_at is None else date_or_nan(row.ended_at))
        schedule.requested.append(row.units)
        schedule.widths.append(row.width)
        schedule.allocated.append(row.allocated)
        schedule.walltimes.append(row.walltime)
        schedule.states.append(state)
        schedule.exit_codes.append(0)
        if row.metadata:
            schedule.reasons[number] = row.metadata
    schedule.now = max((end for end in schedule.ended if not isnan(end)), default=0.0)
    if not described.units:
        highest = max((last + 1 for text in set(schedule.allocated) for _, last in intervals(text)), default=0)
    schedule.units = described.units or highest
    all_ended = not described.steering and (described.jobs is None or len(schedule) >= described.jobs)
    schedule.over = all_ended or Path(prefix + "schedule.json").exists()
    if not schedule.over:
        add_present(schedule, prefix)
    _read_machines(schedule, prefix)
    return schedule


def _described(path: str) -> _Described:
    if not Path(path).exists():
        return _Described()
    data = read_bytes(path)
    try:
        described = msgspec.json.decode(data, type=_Described)
    except JSON_PROBLEMS as problem:
        raise json_error(path, data, problem) from None
    if described.schema > SCHEMA:
        raise InputError(
            path, "a newer pilothouse wrote this run", expected=f"schema {SCHEMA} or older", found=str(described.schema),
            hint="use that version of pilothouse",
        )  # fmt: skip
    return described


def add_users(schedule: Schedule) -> None:
    """Fills in who submitted the jobs of a simulation: from jobs.jsonl, or from the workloads if they are still there.
    Apart from read_run, as it costs as much again and few views need it."""
    if schedule.live:
        return
    users = _users(schedule.path + "jobs.jsonl")
    if not users:
        for number, path in enumerate(schedule.workloads):
            read = _log_reader(path)
            if read is not None:
                users |= {job.id: job.user for job in read(path, f"w{number}").jobs}
    schedule.users = [users.get(job_id, "") for job_id in schedule.ids]


def _log_reader(path: str) -> Callable[..., Workload] | None:
    """What reads a workload that is a log; None: it is none, or is gone."""
    if not Path(path).is_file():
        return None
    return accounting_logs.reader(read_bytes(path)) or (swf.read if path.removesuffix(".gz").endswith(".swf") else None)


class _JsonLine(msgspec.Struct):
    id: str
    user: str = ""


def _users(path: str) -> dict[str, str]:
    """Who submitted each job, from jobs.jsonl. A line that is being written is left out."""
    if not Path(path).exists():
        return {}
    decode = msgspec.json.Decoder(_JsonLine).decode
    found = {}
    lines = read_bytes(path).split(b"\n")
    for number, line in enumerate(lines[:-1], 1):
        try:
            job = decode(line)
        except JSON_PROBLEMS as problem:
            raise json_error(f"{path}:{number}", line, problem) from None
        found[job.id] = job.user
    return found


def _read_machines(schedule: Schedule, prefix: str) -> None:
    """What --energy and --trace-machines recorded."""
    energy = _table(prefix + "consumed_energy.csv", ("time", "energy"))
    if energy.get("time"):
        schedule.energy = _last_of_each_date(energy["time"], energy["energy"])
    states = ("sleeping", "switching_on", "switching_off", "idle", "computing")
    table = _table(prefix + "machine_states.csv", ("time", *(f"nb_{state}" for state in states)))
    if table.get("time"):
        schedule.machine_states = {
            state.replace("_", " "): _last_of_each_date(table["time"], table[f"nb_{state}"]) for state in states
        }


def _table(path: str, columns: tuple[str, ...]) -> dict[str, list[float]]:
    """Columns of numbers of a CSV file that may be absent; a last row that is being written is left out."""
    if not Path(path).exists():
        return {}
    lines = read_text(path).split("\n")
    header = lines[0].split(",")
    if missing := [name for name in columns if name not in header]:
        raise InputError(f"{path}:1", "not a table of machines", expected=f"a column {missing[0]}")
    takes: list[tuple[str, int]] = [(name, header.index(name)) for name in columns]
    found: dict[str, list[float]] = {name: [] for name in columns}
    for number, line in enumerate(lines[1:-1], 2):
        fields = line.split(",")
        try:
            for name, place in takes:
                found[name].append(_finite(fields[place]))
        except (ValueError, LookupError):
            raise InputError(f"{path}:{number}", "not a row of numbers", found=quoted(line)) from None
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError("not a finite number")
    return value


def _last_of_each_date(dates: list[float], values: list[float]) -> Steps:
    """Of several rows of one date the last one counts."""
    merged = dict(zip(dates, values, strict=True))
    known = sorted(merged)
    return Steps(array("d", known), array("d", [merged[date] for date in known]))

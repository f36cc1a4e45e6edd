"""Why a job of a finished run started when it did, from jobs.csv.

The records give what ran and what waited at any date: the free units at the job's submission, the jobs ahead of it, those
that overtook it, and those whose end freed its units.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from pilothouse.formats import jobs_csv
from pilothouse.formats.jobs_csv import Row
from pilothouse.formats.text_input import JSON_PROBLEMS, json_error, read_bytes
from pilothouse.model.errors import InputError


class Story(msgspec.Struct, frozen=True):
    """What happened around one job. Times are None if it never started."""

    job_id: str
    state: str
    submitted_at: float
    started_at: float | None
    waited: float | None
    units: int
    total: int
    free_at_submission: int
    waiting_before: tuple[str, ...]
    """Jobs that had arrived earlier and still waited at its submission."""
    overtaken_by: tuple[str, ...]
    """Jobs that arrived later and started earlier."""
    overtook: tuple[str, ...]
    """Jobs that had arrived earlier and started later."""
    freed_by: tuple[str, ...]
    """Jobs that ended at the date of its start."""
    sentence: str


def explain(prefix: str, job_id: str, *, as_json: bool = False) -> str:
    """The story of a job of the run whose files begin with PREFIX, as a sentence or as JSON."""
    rows = list(jobs_csv.read(prefix + "jobs.csv"))
    total = max((last + 1 for row in rows for _, last in row.allocated.intervals()), default=0)
    decider = ""
    if Path(prefix + "run.json").exists():
        data = read_bytes(prefix + "run.json")
        try:
            described = msgspec.json.decode(data, type=dict[str, object])
        except JSON_PROBLEMS as problem:
            raise json_error(prefix + "run.json", data, problem) from None
        units = described.get("units")
        total = units if isinstance(units, int) else total
        decider = str(described.get("decider", ""))
    found = story(rows, job_id, total)
    if found is None:
        raise InputError(prefix + "jobs.csv", f"there is no job {job_id!r} in it")
    if as_json:
        return msgspec.json.format(msgspec.json.encode(found)).decode()
    return found.sentence + (f" (policy {decider})" if decider else "")


def story(rows: Sequence[Row], job_id: str, total: int) -> Story | None:
    """The story of the job of that id (with or without its workload's name); None if there is none."""
    own = next((row for row in rows if job_id in (row.id, row.id.partition("!")[2])), None)
    if own is None:
        return None
    submitted, start = own.submitted_at, own.started_at
    ran = [(r, r.started_at, r.ended_at or 0.0) for r in rows if r.started_at is not None and r is not own]
    busy = sum(len(r.allocated) for r, begin, end in ran if begin < submitted < end)
    before = [r.id for r, begin, _ in ran if (r.submitted_at, r.id) < (submitted, own.id) and begin > submitted]
    overtaken: list[str] = []
    overtook: list[str] = []
    freed: list[str] = []
    if start is not None:
        overtaken = [r.id for r, begin, _ in ran if r.submitted_at > submitted and begin < start]
        overtook = [r.id for r, begin, _ in ran if r.submitted_at < submitted and begin > start]
        freed = [r.id for r, _, end in ran if end == start]
    sentence = _sentence(own, total - busy, before, overtaken, overtook, freed)
    waited = None if start is None else start - submitted
    return Story(
        own.id, own.state, submitted, start, waited, own.units, total, total - busy, tuple(before), tuple(overtaken),
        tuple(overtook), tuple(freed), sentence,
    )  # fmt: skip


def _sentence(
    own: Row, free: int, before: list[str], overtaken: list[str], overtook: list[str], freed: list[str]
) -> str:
    if own.started_at is None:
        return f"job {own.id} never started: it was rejected" + (f" ({own.metadata})" if own.metadata else "")
    start, waited = own.started_at, own.started_at - own.submitted_at
    needs = f"{own.units} unit{'s' if own.units != 1 else ''}"
    if waited == 0:
        text = f"job {own.id} started at once at {start:.10g} s: it needed {needs} and {free} were free"
        return text + (f"; it was backfilled past {_some(overtook)}" if overtook else "")
    text = f"job {own.id} waited {waited:.10g} s: it needed {needs}"
    if free < own.units:
        text += f" and {free} were free when it came"
    elif before:
        text += f" and {free} were free when it came, but {_some(before)} came before it"
    else:
        text += f" and {free} were free when it came, but the policy held it back"
    if before and free < own.units:
        text += f", with {_some(before)} ahead of it"
    text += f"; it started at {start:.10g} s"
    text += f" when {_some(freed)} ended" if freed else ""
    if overtook:
        text += f", backfilled past {_some(overtook)}"
    if overtaken:
        text += f"; {_some(overtaken)} came later and started earlier"
    return text


def _some(names: list[str]) -> str:
    """Up to three names, and how many more."""
    if len(names) == 1:
        return f"job {names[0]}"
    shown = ", ".join(names[:3])
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"jobs {shown}{more}"

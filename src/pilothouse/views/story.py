"""Why a job of a run started when it did, from its records.

The records give what ran and what waited at any date: the free units at the job's submission, the jobs ahead of it, those
that overtook it, and those whose end freed its units.
"""

from __future__ import annotations

from math import isnan

import msgspec

from pilothouse.model.errors import InputError, suggestion
from pilothouse.views import documents
from pilothouse.views.read_run import read_run
from pilothouse.views.schedule import Schedule


class Story(msgspec.Struct, frozen=True):
    """`pilothouse explain --json`: what happened around one job. Dates are null if it never started."""

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


def explain(run: str, job_id: str, *, as_json: bool = False) -> str:
    """The story of a job of a run, as a sentence or as JSON."""
    schedule = read_run(run)
    found = story(schedule, job_id)
    if found is None:
        raise InputError(schedule.path, f"there is no job {job_id!r} in it", hint=_nearest(schedule, job_id))
    if as_json:
        return documents.text("explanation", found)
    return found.sentence + (f" (policy {schedule.policy})" if schedule.policy else "")


def _nearest(schedule: Schedule, job_id: str) -> str:
    """A job of a similar name. Numbers are not: a similar number is another job."""
    if job_id.partition("!")[2].isdigit() or job_id.isdigit():
        return ""
    return suggestion(job_id, [name for known in schedule.ids for name in (known, known.partition("!")[2])])


def story(schedule: Schedule, job_id: str) -> Story | None:
    """The story of the job of that id (with or without its workload's name); None if there is none."""
    own = schedule.row(job_id)
    if own is None:
        return None
    ids, arrivals, starts = schedule.ids, schedule.submitted, schedule.started
    submitted, start = arrivals[own], starts[own]
    others = [row for row in schedule.ran() if row != own]
    busy = sum(schedule.widths[r] for r in others if starts[r] < submitted < schedule.held_until(r))
    before = [ids[r] for r in others if (arrivals[r], ids[r]) < (submitted, ids[own]) and starts[r] > submitted]
    overtaken: list[str] = []
    overtook: list[str] = []
    freed: list[str] = []
    if not isnan(start):
        overtaken = [ids[r] for r in others if arrivals[r] > submitted and starts[r] < start]
        overtook = [ids[r] for r in others if arrivals[r] < submitted and starts[r] > start]
        freed = [ids[r] for r in others if schedule.ended[r] == start]
    free = schedule.units - busy
    sentence = _sentence(schedule, own, free, before, overtaken, overtook, freed)
    return Story(
        ids[own], schedule.states[own].value, submitted, None if isnan(start) else start,
        None if isnan(start) else start - submitted, schedule.requested[own], schedule.units, free, tuple(before),
        tuple(overtaken), tuple(overtook), tuple(freed), sentence,
    )  # fmt: skip


def _sentence(
    schedule: Schedule, own: int, free: int, before: list[str], overtaken: list[str], overtook: list[str], freed: list[str]
) -> str:
    name, start, units = schedule.ids[own], schedule.started[own], schedule.requested[own]
    if isnan(start):
        if isnan(schedule.ended[own]):
            return f"job {name} waits"
        reason = schedule.reasons.get(own)
        return f"job {name} never started: it was rejected" + (f" ({reason})" if reason else "")
    waited = start - schedule.submitted[own]
    needs = f"{units} unit{'s' if units != 1 else ''}"
    if waited == 0:
        text = f"job {name} started at once at {start:.10g} s: it needed {needs} and {free} were free"
        return text + (f"; it was backfilled past {_some(overtook)}" if overtook else "")
    text = f"job {name} waited {waited:.10g} s: it needed {needs}"
    if free < units:
        text += f" and {free} were free when it came"
    elif before:
        text += f" and {free} were free when it came, but {_some(before)} came before it"
    else:
        text += f" and {free} were free when it came, but the policy held it back"
    if before and free < units:
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

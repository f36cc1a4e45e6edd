"""Behind `pilothouse whatif RUN`: a run under another policy, or on more nodes.

A run that is over is replayed: its jobs take as long as they took. A run that goes on is forecast twice from its present state,
as it is and otherwise, with the same lengths drawn for both.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from pilothouse.campaign.forecast import Forecast, Quantiles, expected_starts, forecast
from pilothouse.campaign.replay import replay_live, replay_simulated
from pilothouse.campaign.run_snapshot import run_began
from pilothouse.formats.task_file import LineKind
from pilothouse.journal.read import is_over, read_note, read_tasks
from pilothouse.launch import naming
from pilothouse.launch.forecasts import lines_of_run, policy_of_run, run_now, with_nodes
from pilothouse.model.errors import InputError
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState
from pilothouse.views.difference import difference
from pilothouse.views.documents import WhatIfDocument, WhatIfForecast
from pilothouse.views.read_run import find, read_run
from pilothouse.views.schedule import Schedule
from pilothouse.worlds.live.wire.messages import Task

SAME_S = 0.1
"""Starts of a live run that are no further apart count as the same."""


def whatif_run(text: str, policy: str = "", add_nodes: int = 0) -> WhatIfDocument:
    """`text`: the folder of a live run, or a simulation as views name it. Raises InputError."""
    if policy:
        naming.policy(policy)
    elif not add_nodes:
        raise InputError("whatif", "what should be otherwise?", expected="--policy, --add-nodes or both")
    found = find(text)
    if found.journal is None:
        return _simulated(read_run(text), policy, add_nodes)
    if is_over(found.journal):
        return _finished(found.journal, policy, add_nodes)
    return _going_on(found.journal, policy, add_nodes)


def start_in_run(text: str, policy: str, job: Job) -> WhatIfDocument:
    """When a job would start that is submitted now to a live run that goes on. Raises InputError."""
    folder = find(text).journal
    if folder is None or is_over(folder):
        raise InputError(text, "nothing can be submitted to a run that is over", expected="a run that goes on, or --world")
    run = run_now(folder)
    name, make = policy_of_run(folder, policy, run.notes)
    start = msgspec.structs.replace(run.start, jobs=(*run.start.jobs, (job, Task(0))))
    found = expected_starts(start, run.durations, make, [job.id])[job.id]
    waits = WhatIfForecast(policy=name, slots=start.units, seconds=found.median, low=found.low, high=found.high)
    return WhatIfDocument(submitted=waits, notes=run.notes)


def _simulated(run: Schedule, policy: str, add_nodes: int) -> WhatIfDocument:
    name = policy or run.policy
    try:
        decides = naming.policy(name)
    except InputError:
        raise InputError(run.path, f"{name or 'what decided'} cannot be simulated here", expected="--policy") from None
    other = replay_simulated(run, decides, _named(name, add_nodes), run.units + add_nodes)
    waiting = sum(state in (JobState.WAITING, JobState.RUNNING) for state in run.states)
    notes = ["running times are those of the run"]
    if waiting:
        notes.append(f"{waiting:,} jobs that had not ended are left out")
    return WhatIfDocument(difference=difference(run, other), notes=notes)


def _finished(folder: Path, policy: str, add_nodes: int) -> WhatIfDocument:
    notes: list[str] = []
    rows = [row for row in read_tasks(folder) if row.started is not None and row.ended is not None]
    if not rows:
        raise InputError(str(folder), "no task of this run has ended")
    took = {row.task: max(0.0, (row.ended or 0.0) - (row.started or 0.0)) for row in rows}
    began = min(row.started or 0.0 for row in rows)
    really_s = max(row.ended or 0.0 for row in rows) - began
    options, lines = lines_of_run(folder, notes)
    start = run_began(
        folder, options, [line for line in lines if line.kind is not LineKind.TASK or line.task_id in took],
        float(read_note(folder, "started") or began), sum(took.values()) / len(took),
    )  # fmt: skip
    start = msgspec.structs.replace(start, jobs=tuple(job for job in start.jobs if job[1].task_id in took))
    left_out = sum(line.kind is LineKind.TASK for line in lines) - sum(line.kind is LineKind.TASK for line in start.lines)
    if left_out:
        notes.append(f"{left_out:,} tasks that have not ended are left out")
    before, make = policy_of_run(folder, "", notes)
    run = replay_live(str(folder), start, took, make(), before)
    notes.append(f"replayed as it was, the run takes {run.now:.4g} s; it took {really_s:.4g} s")
    name, make = policy_of_run(folder, policy, [])
    other = replay_live(str(folder), with_nodes(start, add_nodes), took, make(), _named(name, add_nodes))
    return WhatIfDocument(difference=difference(run, other, tolerance_s=SAME_S), notes=notes)


def _going_on(folder: Path, policy: str, add_nodes: int) -> WhatIfDocument:
    run = run_now(folder)
    before, make = policy_of_run(folder, "", run.notes)
    now = forecast(run.start, run.durations, make)
    name, make = policy_of_run(folder, policy, [])
    other = forecast(with_nodes(run.start, add_nodes), run.durations, make)
    sooner = Quantiles.of(a - b for a, b in zip(now.outcomes, other.outcomes, strict=True))
    return WhatIfDocument(
        now=_summary(before, now), otherwise=_summary(name, other), sooner_s=sooner.median, sooner_low=sooner.low,
        sooner_high=sooner.high, notes=run.notes,
    )  # fmt: skip


def _summary(policy: str, found: Forecast) -> WhatIfForecast:
    seconds = found.seconds
    return WhatIfForecast(policy=policy, slots=found.units, seconds=seconds.median, low=seconds.low, high=seconds.high)


def _named(policy: str, add_nodes: int) -> str:
    return f"{policy} on {add_nodes} more node{'s' * (add_nodes != 1)}" if add_nodes else policy

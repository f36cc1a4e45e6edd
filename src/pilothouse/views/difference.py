"""The difference of two schedules: the first decision that differs, which jobs moved by how much, and what that did.

Jobs are the same if their ids are. Up to the first difference both runs are in the same state, so the units that were free
then and the jobs that waited explain it. Deltas are B minus A: a job with a negative one started earlier in B.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, isnan
from typing import TypeVar

from pilothouse.views.documents import (
    DifferenceDocument,
    FirstDifference,
    MetricDifference,
    MovedJob,
    StartedJob,
    WaitingJob,
)
from pilothouse.views.metrics import metrics_of
from pilothouse.views.schedule import Schedule
from pilothouse.views.tables import ROWS, number

SHOWN = 5
"""Jobs of each list that the terminal shows."""
ROUNDING_S = 1e-6
"""jobs.csv has six decimals."""
Item = TypeVar("Item")
_Start = tuple[float, str]
"""When and where a job started; infinitely late if it never did."""


def difference(a: Schedule, b: Schedule, *, tolerance_s: float = ROUNDING_S, tau: float = 10.0) -> DifferenceDocument:
    """Compares two runs. Starts that are no more than `tolerance_s` apart count as the same."""
    rows_a, rows_b = ({job_id: row for row, job_id in enumerate(run.ids)} for run in (a, b))
    both = [job_id for job_id in a.ids if job_id in rows_b]
    moves = _moves(a, b, [(rows_a[job_id], rows_b[job_id]) for job_id in both], tolerance_s)
    return DifferenceDocument(
        a=a.path,
        b=b.path,
        policy_a=a.name,
        policy_b=b.name,
        jobs=len(both),
        only_a=[job_id for job_id in a.ids if job_id not in rows_b],
        only_b=[job_id for job_id in b.ids if job_id not in rows_a],
        first=_first(a, b, rows_a, rows_b, tolerance_s),
        earlier=sum(move.delta is not None and move.delta < 0 for move in moves),
        later=sum(move.delta is not None and move.delta > 0 for move in moves),
        metrics=_metrics(a, b, tau),
        moves=sorted(moves, key=lambda move: -inf if move.delta is None else move.delta),
    )


def _start(run: Schedule, row: int) -> _Start:
    start = run.started[row]
    return (inf, "") if isnan(start) else (start, run.allocated[row])


def _moves(a: Schedule, b: Schedule, pairs: list[tuple[int, int]], tolerance_s: float) -> list[MovedJob]:
    moves = []
    for row_a, row_b in pairs:
        start_a, start_b = a.started[row_a], b.started[row_b]
        neither = isnan(start_a) and isnan(start_b)
        if neither or abs(start_b - start_a) <= tolerance_s:
            continue
        known = not (isnan(start_a) or isnan(start_b))
        moves.append(MovedJob(
            job=a.ids[row_a], units=a.requested[row_a], start_a=None if isnan(start_a) else start_a,
            start_b=None if isnan(start_b) else start_b, delta=start_b - start_a if known else None,
        ))  # fmt: skip
    return moves


def _first(
    a: Schedule, b: Schedule, rows_a: dict[str, int], rows_b: dict[str, int], tolerance_s: float
) -> FirstDifference | None:
    """The earliest start of a job that the other run did not start then; where all starts agree, the first on other
    units."""
    never: _Start = (inf, "")
    at = elsewhere = inf
    for job_id in {**rows_a, **rows_b}:
        start_a = _start(a, rows_a[job_id]) if job_id in rows_a else never
        start_b = _start(b, rows_b[job_id]) if job_id in rows_b else never
        if abs(start_a[0] - start_b[0]) > tolerance_s:
            at = min(at, start_a[0], start_b[0])
        elif start_a[1] != start_b[1]:
            elsewhere = min(elsewhere, start_a[0])
    only_units = at == inf
    at = elsewhere if only_units else at
    if at == inf:
        return None
    here_a, here_b = (
        {run.ids[row]: row for row in run.ran() if abs(run.started[row] - at) <= tolerance_s} for run in (a, b)
    )
    differ = [
        job_id
        for job_id in {**here_a, **here_b}
        if job_id not in here_a
        or job_id not in here_b
        or (only_units and a.allocated[here_a[job_id]] != b.allocated[here_b[job_id]])
    ]
    before = [row for row in a.ran() if a.started[row] < at - tolerance_s and a.held_until(row) > at]
    waiting = [
        row
        for row, submit in enumerate(a.submitted)
        if submit <= at and not (a.started[row] < at - tolerance_s) and not (a.ended[row] <= at and isnan(a.started[row]))
    ]
    waiting.sort(key=lambda row: a.submitted[row])
    return FirstDifference(
        at=at,
        only_a=[_started(a, here_a[job_id]) for job_id in differ if job_id in here_a],
        only_b=[_started(b, here_b[job_id]) for job_id in differ if job_id in here_b],
        free=a.units - sum(a.widths[row] for row in before),
        waiting=[WaitingJob(job=a.ids[row], units=a.requested[row], submitted=a.submitted[row]) for row in waiting],
    )


def _started(run: Schedule, row: int) -> StartedJob:
    return StartedJob(
        job=run.ids[row], units=run.requested[row], allocated=run.allocated[row], submitted=run.submitted[row],
        walltime=None if run.walltimes[row] == inf else run.walltimes[row],
    )  # fmt: skip


def _metrics(a: Schedule, b: Schedule, tau: float) -> list[MetricDifference]:
    one, other = metrics_of(a, tau), metrics_of(b, tau)
    return [
        MetricDifference(
            metric=f"{heading} {statistic}".strip(), a=value(one), b=value(other), difference=value(other) - value(one)
        )
        for heading, statistic, value, _ in ROWS
    ]


# ---- in the terminal


def as_text(found: DifferenceDocument) -> str:
    a, b = found.policy_a, found.policy_b
    lines = [f"A {a}  ({found.a})", f"B {b}  ({found.b})", f"{found.jobs:,} jobs in both"]
    for name, jobs in (("A", found.only_a), ("B", found.only_b)):
        if jobs:
            lines.append(f"{len(jobs):,} jobs only in {name}: {_some(jobs, str)}")
    if found.first is None:
        return "\n".join([*lines, "no decision differs"])
    lines += ["", *_first_lines(found.first), "", *_move_lines(found), "", *_metric_lines(found)]
    return "\n".join(lines)


def _first_lines(first: FirstDifference) -> list[str]:
    lines = [f"first difference at {first.at:.10g} s, with {first.free:,} units free and {len(first.waiting):,} jobs waiting:"]
    for name, other, started in (("A", "B", first.only_a), ("B", "A", first.only_b)):
        what = _some(started, lambda job: f"{job.job} ({job.units} unit{'s' * (job.units != 1)} on {job.allocated})")
        lines.append(f"  {name} started {what}" if started else f"  {name} started nothing that {other} did not")
    lines.append(f"  waiting: {_some(first.waiting, lambda job: f'{job.job} ({job.units})')}")
    return lines


def _move_lines(found: DifferenceDocument) -> list[str]:
    known = [move for move in found.moves if move.delta is not None]
    lines = [f"{len(found.moves):,} jobs moved: {found.earlier:,} start earlier in B, {found.later:,} later"]
    unknown = len(found.moves) - len(known)
    if unknown:
        lines[0] += f", {unknown:,} start in one run only"
    if not known:
        return lines
    total = sum(move.delta or 0.0 for move in known)
    lines.append(f"together they start {number(abs(total))} s {'earlier' if total < 0 else 'later'}")
    for title, shown in (("most earlier", known[:SHOWN]), ("most later", known[: -SHOWN - 1 : -1])):
        right = [move for move in shown if ((move.delta or 0.0) < 0) == (title == "most earlier")]
        for place, move in enumerate(right):
            label = title if not place else ""
            lines.append(
                f"  {label:<13} {move.job:<16} {number(move.delta or 0.0):>14} s   ({number(move.start_a or 0.0)} to "
                f"{number(move.start_b or 0.0)})"
            )
    return lines


def _metric_lines(found: DifferenceDocument) -> list[str]:
    lines = [f"{'':<24}{'A':>16}{'B':>16}{'B - A':>16}"]
    for row in found.metrics:
        lines.append(f"{row.metric:<24}{number(row.a):>16}{number(row.b):>16}{number(row.difference):>16}")
    return lines


def _some(values: Sequence[Item], text: Callable[[Item], str]) -> str:
    shown = ", ".join(text(value) for value in values[:SHOWN])
    return shown + (f" and {len(values) - SHOWN:,} more" if len(values) > SHOWN else "")

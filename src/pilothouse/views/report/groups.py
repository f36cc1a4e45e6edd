"""Tables of a report: jobs by user, by width, by length; failures of one kind together; the slowest tasks.

In: a Schedule. Out: tables of text and numbers, ready to be shown. Waits and slowdowns are those of views/metrics.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from math import isnan

import msgspec

from pilothouse.model.lifecycle import JobState
from pilothouse.views.metrics import spread
from pilothouse.views.schedule import Schedule

MOST_ROWS = 50
EXAMPLES = 3
_FINE = (JobState.SUCCEEDED, JobState.RUNNING, JobState.WAITING, JobState.KNOWN, JobState.HELD, JobState.STARTING)
_LENGTHS = (60.0, 600.0, 3600.0, 6 * 3600.0, 86400.0)
_LENGTH_NAMES = ("under 1 min", "1 to 10 min", "10 min to 1 h", "1 to 6 h", "6 to 24 h", "a day and more")

Cell = str | float | None


class Table(msgspec.Struct, frozen=True):
    """A heading, the names of the columns, the rows. Numbers stay numbers: the page aligns and formats them."""

    title: str
    columns: list[str]
    rows: list[list[Cell]]
    note: str = ""


def tables(run: Schedule, tau: float) -> list[Table]:
    """Every table that the run has something for."""
    ended = [row for row in run.ran() if not isnan(run.ended[row])]
    made = []
    if any(run.users):
        made.append(_grouped("Users", "user", run, ended, tau, lambda row: run.users[row] or "unknown"))
    if len({run.requested[row] for row in ended}) > 1:
        made.append(_grouped("Width", "units", run, ended, tau, lambda row: _width(run.requested[row]), by_name=True))
    made.append(_grouped("Length", "run time", run, ended, tau, lambda row: _length(run, row), by_name=True))
    if failures := _failures(run):
        made.append(failures)
    if run.live:
        made.append(_slowest(run))
    return [table for table in made if table.rows]


def _width(units: int) -> tuple[int, str]:
    low = 1 << (max(1, units).bit_length() - 1)
    return low, f"{low:,}" if low == 1 else f"{low:,} to {2 * low - 1:,}"


def _length(run: Schedule, row: int) -> tuple[int, str]:
    place = bisect_right(_LENGTHS, run.ended[row] - run.started[row])
    return place, _LENGTH_NAMES[place]


def _grouped(
    title: str, name: str, run: Schedule, rows: Iterable[int], tau: float,
    key: Callable[[int], str | tuple[int, str]], *, by_name: bool = False,
) -> Table:  # fmt: skip
    groups: dict[str | tuple[int, str], list[int]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    submitted, started, ended = run.submitted, run.started, run.ended
    measured: list[tuple[str | tuple[int, str], float, list[Cell]]] = []
    for group, members in groups.items():
        waits = spread([started[row] - submitted[row] for row in members])
        slowdowns = [
            max(1.0, (ended[row] - submitted[row]) / max(tau, ended[row] - started[row])) for row in members
        ]
        area = sum([(ended[row] - started[row]) * run.widths[row] for row in members])
        label = group if isinstance(group, str) else group[1]
        mean_slowdown = sum(slowdowns) / len(members)
        cells: list[Cell] = [label, len(members), area / 3600, waits.mean, waits.p95, mean_slowdown]
        measured.append((group, area, cells))
    measured.sort(key=(lambda row: row[0]) if by_name else (lambda row: -row[1]))
    shown = [cells for _, _, cells in measured[:MOST_ROWS]]
    left = len(measured) - len(shown)
    columns = [name, "jobs", "unit hours", "mean wait s", "p95 wait s", "mean bounded slowdown"]
    return Table(title, columns, shown, f"{left:,} more with fewer unit hours" if left else "")


def _failures(run: Schedule) -> Table | None:
    """Failures whose state, reason and last line agree, numbers aside, are one kind."""
    kinds: dict[tuple[str, str], list[int]] = {}
    for row, state in enumerate(run.states):
        if state not in _FINE:
            code = run.exit_codes[row]
            why = run.last_words.get(row) or run.reasons.get(row) or (f"exit code {code}" if code else "")
            kinds.setdefault((state.value, re.sub(r"\d+", "#", why)), []).append(row)
    if not kinds:
        return None
    rows: list[list[Cell]] = []
    for (name, _), members in sorted(kinds.items(), key=lambda kind: -len(kind[1]))[:MOST_ROWS]:
        last = members[-1]
        reason = run.reasons.get(last) or (f"exit code {run.exit_codes[last]}" if run.exit_codes[last] else "")
        names = ", ".join(run.ids[row] for row in members[:EXAMPLES]) + (" ..." if len(members) > EXAMPLES else "")
        rows.append([name, len(members), reason, run.last_words.get(last, "")[:300], names])
    return Table("Failures", ["state", "jobs", "reason", "last line of standard error", "for example"], rows)


def _slowest(run: Schedule) -> Table:
    rows = sorted(run.ran(), key=lambda row: run.started[row] - run.held_until(row))[:20]
    return Table(
        "Slowest tasks", ["task", "seconds", "state", "node", "command"],
        [
            [run.ids[row], run.held_until(row) - run.started[row], run.states[row].value, run.places[row],
             run.commands[row][:200]]
            for row in rows
        ],
    )  # fmt: skip

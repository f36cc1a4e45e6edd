"""Tables for the terminal: one run, or several side by side with the best value of each row marked."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from math import isfinite, isnan, nan
from operator import attrgetter

import msgspec

from pilothouse.views.metrics import Metrics, Spread

Value = Callable[[Metrics], float]



def _rejected(metrics: Metrics) -> float:
    return float(metrics.rejected)


ROWS: tuple[tuple[str, str, Value, bool | None], ...] = (
    *(
        (spread.replace("_", " "), statistic, attrgetter(f"{spread}.{statistic}"), False)
        for spread in ("wait", "turnaround", "slowdown", "bounded_slowdown")
        for statistic in Spread.__struct_fields__
    ),
    ("utilisation", "%", lambda m: 100 * m.utilisation, True),
    ("makespan", "s", lambda m: m.makespan, False),
    ("backfilled", "%", lambda m: 100 * m.backfilled, None),
    ("jobs rejected", "", _rejected, False),
)
"""Heading, statistic, value, and whether more is better (None: neither)."""

COLUMNS: dict[str, Value] = {
    (f"{heading}_{statistic}" if statistic.isalnum() and statistic != "s" else heading).replace(" ", "_"): value
    for heading, statistic, value, _ in ROWS
}
"""The same as columns of a data frame: `wait_mean`, `utilisation` (in percent), `jobs_rejected`."""

_COLUMN = 14
_BOLD, _GREEN, _RED, _DIM, _PLAIN = "\x1b[1m", "\x1b[32m", "\x1b[31m", "\x1b[2m", "\x1b[0m"


def number(value: float) -> str:
    """At least four significant digits, thousands grouped."""
    if not isfinite(value):
        return "-" if isnan(value) else f"{value}"
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
    return f"{value:.4f}" if abs(value) < 100 else f"{value:.3f}"


def run_summary(metrics: Metrics, units: int, name: str, cpu_seconds: float) -> str:
    """One run in a few lines."""
    lines = [
        f"{name}: {metrics.jobs:,} jobs on {units:,} units, makespan {number(metrics.makespan)} s, "
        f"utilisation {100 * metrics.utilisation:.1f} %, {100 * metrics.backfilled:.1f} % backfilled",
        f"  wait              {_spread(metrics.wait)}",
        f"  bounded slowdown  {_spread(metrics.bounded_slowdown)}   (tau {metrics.tau:g} s)",
    ]
    odd = [
        f"{count:,} {what}"
        for what, count in (
            ("failed", metrics.failed),
            ("cut at their walltime", metrics.timed_out),
            ("killed", metrics.killed),
            ("rejected", metrics.rejected),
        )
        if count
    ]
    if odd:
        lines.append(f"  jobs: {', '.join(odd)}")
    rate = metrics.jobs / cpu_seconds if cpu_seconds else 0.0
    lines.append(f"  simulated in {cpu_seconds:.2f} CPU s ({rate:,.0f} jobs/s)")
    return "\n".join(lines)


def _spread(values: Spread) -> str:
    return "  ".join(f"{name} {number(getattr(values, name))}" for name in Spread.__struct_fields__)


def terminal_width() -> int | None:
    """Columns of the terminal; None where the output goes elsewhere, and COLUMNS does not say."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return None
    return shutil.get_terminal_size().columns


class _Cell(msgspec.Struct, frozen=True):
    text: str
    colour: str = ""

    def shown(self, width: int, colour: bool) -> str:
        padded = f"{self.text:>{width}}"
        return f"{self.colour}{padded}{_PLAIN}" if colour and self.colour else padded


def comparison(runs: dict[str, Metrics], *, colour: bool = False, width: int | None = None) -> str:
    """Policies side by side; `*` marks the best of a row, colours the best and the worst where they differ.

    A policy that ran fewer jobs than another competes for no mark: what it left out would have cost it. Where `width` is
    too small for one column a policy, policies are rows.
    """
    most = max(map(_ran, runs.values()))
    cells = {
        (heading, statistic): _row(runs, value, more_is_better, most) for heading, statistic, value, more_is_better in ROWS
    }
    needed = 26 + sum(max(_COLUMN, len(name) + 2) for name in runs)
    if width is not None and needed > width:
        return "\n".join(_policies_as_rows(list(runs), cells, colour, width))
    return "\n".join(_policies_as_columns(list(runs), cells, colour))


def _ran(metrics: Metrics) -> int:
    return metrics.jobs - metrics.rejected


def _row(runs: dict[str, Metrics], value: Value, more_is_better: bool | None, most: int) -> dict[str, _Cell]:
    values = {name: value(metrics) if _ran(metrics) or value is _rejected else nan for name, metrics in runs.items()}
    compared = [v for name, v in values.items() if not isnan(v) and _ran(runs[name]) == most]
    best = worst = None
    if more_is_better is not None and compared and max(compared) != min(compared):
        best, worst = (max(compared), min(compared)) if more_is_better else (min(compared), max(compared))
    cells = {}
    for name, v in values.items():
        marked = _ran(runs[name]) == most
        star = "*" if marked and v == best else " "
        tint = _GREEN if marked and v == best else _RED if marked and v == worst else ""
        cells[name] = _Cell(number(v) + star, tint)
    return cells


_Cells = dict[tuple[str, str], dict[str, _Cell]]


def _policies_as_columns(names: list[str], cells: _Cells, colour: bool) -> list[str]:
    widths = {name: max(_COLUMN, len(name) + 2) for name in names}
    header = " " * 26 + "".join(f"{name:>{widths[name]}}" for name in names)
    lines = [f"{_BOLD}{header}{_PLAIN}" if colour else header]
    shown = ""
    for (heading, statistic), row in cells.items():
        label = "" if heading == shown else heading
        shown = heading
        lines.append(f"{label:<17} {statistic:<8}" + "".join(row[name].shown(widths[name], colour) for name in names))
    return lines


def _policies_as_rows(names: list[str], cells: _Cells, colour: bool, width: int) -> list[str]:
    """A small table for each heading; those of one statistic share one."""
    blocks: dict[str, list[tuple[str, str]]] = {}
    for heading, statistic in cells:
        blocks.setdefault(heading if statistic in Spread.__struct_fields__ else "", []).append((heading, statistic))
    widest = max(map(len, [*names, *blocks]))
    lines: list[str] = []
    for block, columns in blocks.items():
        titles = [key[1] if block else " ".join(filter(None, key)) for key in columns]
        room = [max(12, len(title) + 2) for title in titles]
        first = max(8, min(widest, width - sum(room)))
        header = f"{block:<{first}}" + "".join(f"{title:>{size}} "[-size:] for title, size in zip(titles, room, strict=True))
        lines += [""] if lines else []
        lines.append(f"{_BOLD}{header}{_PLAIN}" if colour else header.rstrip())
        for name in names:
            short = name if len(name) <= first else name[: first - 1] + "…"
            row = "".join(cells[key][name].shown(size, colour) for key, size in zip(columns, room, strict=True))
            lines.append(f"{short:<{first}}" + (row if colour else row.rstrip()))
    return lines

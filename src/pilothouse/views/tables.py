"""Tables for the terminal: one run, or several side by side with the best value of each row marked."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from operator import attrgetter

from pilothouse.views.metrics import Metrics, Spread

Value = Callable[[Metrics], float]

ROWS: tuple[tuple[str, str, Value, bool | None], ...] = (
    *(
        ("" if place else spread.replace("_", " "), statistic, attrgetter(f"{spread}.{statistic}"), False)
        for spread in ("wait", "turnaround", "slowdown", "bounded_slowdown")
        for place, statistic in enumerate(("mean", "median", "p95", "max"))
    ),
    ("utilisation", "%", lambda m: 100 * m.utilisation, True),
    ("makespan", "s", lambda m: m.makespan, False),
    ("backfilled", "%", lambda m: 100 * m.backfilled, None),
    ("jobs rejected", "", lambda m: float(m.rejected), False),
)
"""Heading, statistic, value, and whether more is better (None: neither)."""

_BOLD, _GREEN, _RED, _DIM, _PLAIN = "\x1b[1m", "\x1b[32m", "\x1b[31m", "\x1b[2m", "\x1b[0m"


def number(value: float) -> str:
    """At least four significant digits, thousands grouped."""
    if isnan(value):
        return "-"
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


def comparison(runs: dict[str, Metrics], *, colour: bool = False) -> str:
    """Policies side by side; `*` marks the best of a row, colours the best and the worst where they differ."""
    names = list(runs)
    widths = [max(14, len(name) + 2) for name in names]
    header = " " * 26 + "".join(f"{name:>{width}}" for name, width in zip(names, widths, strict=True))
    lines = [f"{_BOLD}{header}{_PLAIN}" if colour else header]
    for heading, statistic, value, more_is_better in ROWS:
        values = [value(runs[name]) for name in names]
        label = f"{heading:<17} {statistic:<8}"
        known = [v for v in values if not isnan(v)]
        differ = more_is_better is not None and known and max(known) != min(known)
        best = (max(known) if more_is_better else min(known)) if differ else None
        worst = (min(known) if more_is_better else max(known)) if differ else None
        cells = []
        for v, width in zip(values, widths, strict=True):
            text = number(v) + ("*" if v == best else " ")
            cell = f"{text:>{width}}"
            if colour and v == best:
                cell = _GREEN + cell + _PLAIN
            elif colour and v == worst:
                cell = _RED + cell + _PLAIN
            cells.append(cell)
        lines.append(label + "".join(cells))
    return "\n".join(lines)

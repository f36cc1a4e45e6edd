"""The results of a sweep: one tidy table as CSV and Parquet, tables with intervals of confidence, and verdicts in words.

In: cells and the metrics of each. Out: rows in the order of the grid. The same results give the same bytes, wherever and in
whatever order cells were simulated.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from math import isfinite, nan
from pathlib import Path

import msgspec

from pilothouse.campaign.grid import Cell
from pilothouse.campaign.significance import (
    ALPHA,
    FEWEST,
    Difference,
    Interval,
    Repetition,
    by_week,
    differences,
    interval,
)
from pilothouse.model.errors import InputError, suggestion
from pilothouse.views.tables import COLUMNS, number

Value = float | int | str | None
METRICS = ("wait_mean", "bounded_slowdown_mean", "utilisation", "makespan")
"""What tables, verdicts and plots show unless others are asked for."""


class Row(msgspec.Struct, frozen=True):
    """A cell and what came of it."""

    cell: Cell
    options: Mapping[str, str]
    units: int
    values: Mapping[str, Value] | None
    """None: it did not come to the end."""
    waiting: int
    problem: str

    def number(self, metric: str) -> float:
        """NaN where it is not known, and for a run that left jobs waiting: what it left out would have cost it."""
        value = None if self.values is None or self.waiting else self.values[metric]
        return nan if value is None else float(value)

    @property
    def ran(self) -> int:
        """Measured jobs that it started."""
        return 0 if self.values is None else int(self.values["jobs"] or 0) - int(self.values["rejected"] or 0)


Case = tuple[str, str, float]


class Results(msgspec.Struct, frozen=True):
    """All rows, in the order of the grid."""

    rows: Sequence[Row]

    def columns(self) -> dict[str, list[Value]]:
        """Names of columns -> values. A column of options is empty for policies that do not have it."""
        rows = self.rows
        options = list(dict.fromkeys(key for row in rows for key in row.options))
        measured = list(next((row.values for row in rows if row.values is not None), ()))
        return {
            **{name: [getattr(row.cell, name) for row in rows] for name in ("workload", "platform", "load", "week", "policy")},
            **{f"option_{key}": [row.options.get(key) for row in rows] for key in options},
            "seed": [row.cell.seed for row in rows],
            "units": [row.units if row.values is not None else None for row in rows],
            **{name: [None if row.values is None else row.values[name] for row in rows] for name in measured},
            "waiting": [row.waiting for row in rows],
            "problem": [row.problem for row in rows],
        }

    def csv(self) -> str:
        """Empty where a value is not known."""
        columns = self.columns()
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        return text.getvalue()

    def write_parquet(self, path: Path) -> bool:
        """Whether it was written: it needs polars."""
        if find_spec("polars") is None:
            return False
        import polars

        reals = {"load", *COLUMNS}
        whole = {"week", "seed", "units", "waiting"}
        made = {}
        for name, values in self.columns().items():
            text = name in ("workload", "platform", "policy", "problem") or name.startswith("option_")
            kind = polars.Float64 if name in reals else polars.Int64 if name in whole or not text else polars.String
            if name in reals:
                values = [None if value is None else float(value) for value in values]
            made[name] = polars.Series(name, values, dtype=kind)
        polars.DataFrame(made).write_parquet(path, compression="zstd")
        return True

    def cases(self) -> dict[Case, dict[str, list[Row]]]:
        """Case -> policy -> its repetitions."""
        found: dict[Case, dict[str, list[Row]]] = {}
        for row in self.rows:
            found.setdefault(row.cell.case, {}).setdefault(row.cell.policy, []).append(row)
        return found


def repetitions(rows: Sequence[Row], metric: str) -> dict[Repetition, float]:
    return {row.cell.repetition: row.number(metric) for row in rows}


def mean_of(rows: Sequence[Row], metric: str) -> Interval:
    """Mean and interval over the repetitions that came to the end. With weeks, a week is one: its seeds share its jobs. No metric
    is below 0, so no interval is."""
    found = repetitions(rows, metric)
    weekly = any(week is not None for week, _ in found)
    values = [value for value in (by_week(found) if weekly else found).values() if isfinite(value)]
    if not values:
        return Interval(nan, nan, nan)
    mean = interval(values)
    return msgspec.structs.replace(mean, low=max(0.0, mean.low))


def check_metrics(metrics: Sequence[str]) -> None:
    for name in metrics:
        if name not in COLUMNS:
            expected = ", ".join(COLUMNS)
            raise InputError("--metric", f"no such metric: {name}", expected=expected, hint=suggestion(name, COLUMNS))


def verdicts(policies: Mapping[str, Sequence[Row]], metrics: Sequence[str], base: str = "") -> list[Difference]:
    """Differences to the base. A repetition in which a policy ran fewer jobs than another is left out, as in `compare`."""
    found = []
    rows_of_all = [row for rows in policies.values() for row in rows]
    one_workload = any(row.cell.seed is None for row in rows_of_all)

    def same_jobs(row: Row) -> object:
        return row.cell.week if one_workload else row.cell.repetition

    most: dict[object, int] = {}
    for row in rows_of_all:
        most[same_jobs(row)] = max(row.ran, most.get(same_jobs(row), 0))
    whole = {policy: [row for row in rows if row.ran == most[same_jobs(row)]] for policy, rows in policies.items()}
    for metric in metrics:
        values = {policy: repetitions(rows, metric) for policy, rows in whole.items()}
        found += differences(metric.replace("_", " "), values, base)
    return found


def summary(results: Results, metrics: Sequence[str] = METRICS, base: str = "") -> str:
    """For each case a table of means with intervals, and which differences to the base are significant."""
    lines: list[str] = []
    for case, policies in results.cases().items():
        lines += ["", *_table(case, policies, metrics)] if lines else _table(case, policies, metrics)
        judged = verdicts(policies, metrics, base)
        if judged and repeated(policies)[0] < FEWEST:
            lines.append(f"not judged: significance needs {FEWEST} repetitions (weeks or seeds) at least")
        else:
            lines += [difference.sentence() for difference in judged]
    return "\n".join(lines) + "\n"


def case_text(case: Case) -> str:
    workload, platform, load = case
    return f"{workload} on {platform}" + (f", load {load:g}" if load != 1.0 else "")


def _table(case: Case, policies: Mapping[str, Sequence[Row]], metrics: Sequence[str]) -> list[str]:
    most, kind = repeated(policies)
    over = f": means of {most} {kind}, and their {100 * (1 - ALPHA):g} % intervals" if most > 1 else ""
    cells = [[policy, *(_shown(mean_of(rows, metric), most) for metric in metrics)] for policy, rows in policies.items()]
    heads = ["", *(metric.replace("_", " ") for metric in metrics)]
    widths = [max(len(row[i]) for row in [heads, *cells]) for i in range(len(heads))]
    lines = [case_text(case) + over]
    for row in [heads, *cells]:
        shown = [f"{row[0]:<{widths[0]}}", *(f"{text:>{size}}" for text, size in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(shown).rstrip())
    return lines


def repeated(policies: Mapping[str, Sequence[Row]]) -> tuple[int, str]:
    """How often a case was repeated, and in what: weeks or seeds."""
    cells = [row.cell for rows in policies.values() for row in rows]
    weeks = {cell.week for cell in cells if cell.week is not None}
    return (len(weeks), "weeks") if weeks else (max(map(len, policies.values())), "seeds")


def _shown(found: Interval, count: int) -> str:
    return number(found.mean) if count < FEWEST else f"{number(found.mean)} [{number(found.low)}, {number(found.high)}]"

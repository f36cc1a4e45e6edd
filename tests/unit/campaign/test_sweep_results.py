"""The table, the summary and the figure of a sweep say what the cells found."""

from __future__ import annotations

import csv
import io
from math import inf
from pathlib import Path

import pytest
from msgspec import structs

from pilothouse.campaign.grid import Cell
from pilothouse.campaign.sweep_results import Results, Row, Value, check_metrics, mean_of, summary
from pilothouse.model.errors import InputError
from pilothouse.views.tables import COLUMNS


def row(policy: str, week: int | None, wait: float | None, *, load: float = 1.0, seed: int | None = None, **options: str) -> Row:
    values: dict[str, Value] | None = None
    if wait is not None:
        values = {"jobs": 5, "rejected": 0, **dict.fromkeys(COLUMNS, wait), "slowdown_max": "inf", "slowdown_mean": None}
    cell = Cell("log.swf", "8", load, week, seed, policy)
    return Row(cell, options, 8, values, 0, "" if wait is not None else "it broke, \"here\"\nand there")


RESULTS = Results([
    *(row("fcfs", week, 100.0 * week + 50) for week in range(6)),
    *(row("easy:estimate=2x", week, 100.0 * week + 40 - week, estimate="2x") for week in range(6)),
    row("bad.py:Bad", 0, None),
])  # fmt: skip


def test_the_table() -> None:
    rows = list(csv.DictReader(io.StringIO(RESULTS.csv())))
    assert len(rows) == 13
    assert rows[7]["policy"] == "easy:estimate=2x" and rows[7]["option_estimate"] == "2x" and rows[0]["option_estimate"] == ""
    assert (rows[7]["week"], rows[7]["seed"], rows[7]["wait_mean"], rows[7]["units"]) == ("1", "", "139.0", "8")
    assert rows[0]["slowdown_max"] == "inf" and rows[0]["slowdown_mean"] == ""
    assert rows[12]["wait_mean"] == rows[12]["units"] == "" and rows[12]["problem"].startswith('it broke, "here"')


def test_parquet_holds_the_same(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    assert RESULTS.write_parquet(tmp_path / "one.parquet") and RESULTS.write_parquet(tmp_path / "two.parquet")
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()
    frame = polars.read_parquet(tmp_path / "one.parquet")
    assert frame.columns == list(RESULTS.columns())
    assert frame["slowdown_max"][0] == inf and frame["slowdown_mean"][0] is None and frame["wait_mean"][12] is None
    assert frame["week"].dtype == polars.Int64 and frame["jobs"].dtype == polars.Int64 and frame["load"].dtype == polars.Float64


def test_the_summary_names_cases_and_what_is_significant() -> None:
    text = summary(RESULTS, ["wait_mean"])
    assert text.startswith("log.swf on 8: means of 6 weeks, and their 95 % intervals\n")
    assert "wait mean: easy:estimate=2x is significantly lower than fcfs, by 12.5000" in text
    assert "bad.py:Bad against fcfs: not judged, 0 comparable repetitions" in text
    other = summary(RESULTS, ["wait_mean"], base="easy:estimate=2x")
    assert "fcfs is significantly higher than easy:estimate=2x" in other
    few = summary(Results(RESULTS.rows[:2] + RESULTS.rows[6:8]), ["wait_mean"])
    assert "not judged: significance needs 5 repetitions" in few and "[" not in few
    loads = summary(Results([row("fcfs", None, 1.0), row("fcfs", None, 2.0, load=1.5)]), ["wait_mean"])
    assert "log.swf on 8\n" in loads and "log.swf on 8, load 1.5\n" in loads


def test_seeds_of_a_week_are_one_repetition() -> None:
    rows = [row("random", week, 10.0 * week + seed, seed=seed) for week in range(5) for seed in (1, 2, 3)]
    alone = [row("random", week, 10.0 * week + 2) for week in range(5)]
    assert mean_of(rows, "wait_mean") == mean_of(alone, "wait_mean")


@pytest.mark.parametrize("how", ["waiting", "rejected"])
def test_a_policy_that_ran_fewer_jobs_is_not_judged(how: str) -> None:
    rows = list(RESULTS.rows[:12])
    for number in range(6, 9):
        row_ = rows[number]
        assert row_.values is not None
        if how == "waiting":
            rows[number] = structs.replace(row_, waiting=2)
        else:
            rows[number] = structs.replace(row_, values={**row_.values, "rejected": 1})
    assert "not judged, 3 comparable repetitions of 5 needed" in summary(Results(rows), ["wait_mean"])


def test_unknown_metrics_get_a_suggestion() -> None:
    check_metrics(["wait_mean", "utilisation"])
    with pytest.raises(InputError, match="did you mean wait_mean"):
        check_metrics(["wait_men"])


@pytest.mark.parametrize("several", [False, True])
def test_the_figure_shows_these_numbers(several: bool) -> None:
    pytest.importorskip("matplotlib")
    from pilothouse.campaign.sweep_plot import figure
    from pilothouse.views.plot_style import pyplot

    rows = list(RESULTS.rows)
    if several:
        rows += [row("fcfs", week, 900.0 + week, load=2.0) for week in range(6)]
    made = figure(Results(rows), ["wait_mean", "utilisation"])
    drawn = {line.get_gid(): line for line in made.axes[0].get_lines() if line.get_gid()}
    assert len(made.axes) == 2
    if several:
        assert list(drawn["fcfs"].get_xdata()) == [1.0, 2.0] and list(drawn["fcfs"].get_ydata()) == [300.0, 902.5]
    else:
        assert list(drawn["fcfs"].get_xdata()) == [300.0] and list(drawn["easy:estimate=2x"].get_xdata()) == [287.5]
        spans = [list(line.get_xdata()) for line in made.axes[0].get_lines() if not line.get_gid()]
        found = mean_of(RESULTS.rows[:6], "wait_mean")
        assert [found.low, found.high] in spans
    pyplot().close(made)


def test_no_interval_of_a_metric_is_below_zero() -> None:
    one_long_week = [row("fcfs", week, 1000.0 if week == 0 else 1.0) for week in range(5)]
    found = mean_of(one_long_week, "wait_mean")
    assert found.low == 0 < found.mean < found.high

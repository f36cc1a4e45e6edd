"""The difference of two schedules: its first decision, its deltas, its metrics."""

from __future__ import annotations

from array import array
from math import nan
from pathlib import Path

import pytest

import components
from pilothouse.core.session import Session
from pilothouse.launch import naming
from pilothouse.launch.simulation import load
from pilothouse.model.lifecycle import JobState
from pilothouse.views.difference import as_text, difference
from pilothouse.views.metrics import Collector
from pilothouse.views.schedule import Schedule


def simulated(policy: str, trace: str) -> Schedule:
    setup = load("100", [trace])
    schedule = Schedule(name=policy, path=f"{policy}/", live=False, policy=policy, units=100)
    collector = Collector(10.0, schedule.take)
    Session(setup.world(collector.add), naming.decider(policy), name=policy).run()
    collector.flush()
    return schedule


def hand_made(*jobs: tuple[str, float, float, float, str]) -> Schedule:
    """Id, submission, start, end, units."""
    schedule = Schedule(name="x", path="x/", live=False, units=4, now=100.0)
    for job, submitted, started, ended, allocated in jobs:
        schedule.ids.append(job)
        schedule.submitted.append(submitted)
        schedule.started.append(started)
        schedule.ended.append(ended)
        schedule.allocated.append(allocated)
        schedule.requested.append(2)
        schedule.widths.append(2 if allocated else 0)
        schedule.walltimes.append(100.0)
        schedule.states.append(JobState.SUCCEEDED if allocated else JobState.REFUSED)
    return schedule


def test_easy_and_easy_sjbf_on_a_part_of_kth_sp2() -> None:
    compare(str(components.ROOT / "examples/kth-sp2-5000.swf.gz"))


def test_easy_and_easy_sjbf_on_kth_sp2(shared_dir: Path) -> None:
    compare(str(shared_dir / "traces/sc15-KTH-SP2-filtered.swf.gz"))


def compare(trace: str) -> None:
    a, b = simulated("easy", trace), simulated("easy-sjbf", trace)
    found = difference(a, b)
    first = found.first
    assert first is not None
    starts_a, starts_b = (
        {(start, job) for start, job in zip(run.started, run.ids, strict=True)} for run in (a, b)
    )
    expected_at = min(start for start, _ in starts_a ^ starts_b)
    assert first.at == expected_at
    assert [job.job for job in first.only_a] == [job for start, job in sorted(starts_a - starts_b) if start == expected_at]
    assert [job.job for job in first.only_b] == [job for start, job in sorted(starts_b - starts_a) if start == expected_at]
    assert {job.job for job in (*first.only_a, *first.only_b)} <= {job.job for job in first.waiting}
    assert all(job.units <= first.free for job in (*first.only_a, *first.only_b))
    of_means = next(row for row in found.metrics if row.metric == "wait mean")
    assert sum(move.delta or 0.0 for move in found.moves) / len(a) == pytest.approx(of_means.difference, rel=1e-9)
    assert of_means.difference == of_means.b - of_means.a
    assert found.earlier + found.later == len(found.moves)
    assert [move.delta for move in found.moves] == sorted(move.delta or 0.0 for move in found.moves)
    shown = as_text(found)
    assert first.only_a[0].job in shown
    assert max(map(len, shown.splitlines())) <= 110


def test_equal_runs() -> None:
    run = hand_made(("a", 0, 0, 10, "0-1"), ("r", 5, nan, 5, ""))
    found = difference(run, run)
    assert found.first is None
    assert not found.moves
    assert "no decision differs" in as_text(found)


def test_the_same_starts_on_other_units() -> None:
    found = difference(
        hand_made(("a", 0, 0, 10, "0-1"), ("b", 0, 3, 9, "2-3")), hand_made(("b", 0, 3, 9, "0-1"), ("a", 0, 0, 10, "2-3"))
    )
    assert found.first is not None
    assert found.first.at == 0
    assert [job.allocated for job in found.first.only_a] == ["0-1"]
    assert not found.moves


def test_a_start_counts_before_units_do() -> None:
    found = difference(
        hand_made(("a", 0, 0, 10, "0-1"), ("b", 0, 3, 9, "2-3")), hand_made(("a", 0, 0, 10, "2-3"), ("b", 0, 4, 9, "0-1"))
    )
    assert found.first is not None
    assert found.first.at == 3
    assert [job.job for job in found.first.only_a] == ["b"]
    assert found.first.free == 2


def test_jobs_that_only_one_run_started() -> None:
    found = difference(hand_made(("a", 0, nan, 0, "")), hand_made(("a", 0, 7, 10, "0-1"), ("new", 0, 20, 30, "0-1")))
    assert found.first is not None
    assert found.first.at == 7
    assert found.only_b == ["new"]
    assert [(move.job, move.delta) for move in found.moves] == [("a", None)]
    assert "start in one run only" in as_text(found)


def test_what_is_no_further_apart_than_the_tolerance_is_the_same() -> None:
    a, b = hand_made(("a", 0, 1.0, 2, "0-1")), hand_made(("a", 0, 1.4, 2, "0-1"))
    assert difference(a, b).first is not None
    assert difference(a, b, tolerance_s=0.5).first is None


def test_columns_may_be_in_any_order() -> None:
    a = hand_made(("a", 0, 1, 2, "0-1"), ("b", 0, 2, 3, "0-1"))
    b = hand_made(("b", 0, 2, 3, "0-1"), ("a", 0, 1, 2, "0-1"))
    assert difference(a, b).first is None
    assert array("d", a.started) != b.started

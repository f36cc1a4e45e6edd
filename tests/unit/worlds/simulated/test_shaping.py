"""Loads, weeks, warm-up and cool-down: which jobs are simulated, when, and which are measured."""

from __future__ import annotations

import pytest

from pilothouse import Job, simulate
from pilothouse.campaign.frames import workload_of
from pilothouse.formats.workload import Workload
from pilothouse.model.errors import InputError
from pilothouse.worlds.simulated.shaping import AS_IT_IS, WEEK_S, Shaping, weeks, weeks_text

DAY_S = 86400.0


def daily(days: int, first: float = 5.0) -> Workload:
    return workload_of([Job(str(day), 1, 100.0, first + day * DAY_S, runtime=60.0) for day in range(days)])


def test_load_divides_gaps() -> None:
    before = daily(3)
    after = Shaping(load=2.0).of(before)
    assert [job.submitted_at for job in after.jobs] == [2.5, 2.5 + DAY_S / 2, 2.5 + DAY_S]
    assert [job.submitted_at for job in before.jobs] == [5.0, 5.0 + DAY_S, 5.0 + 2 * DAY_S], "the given one stays"


def test_weeks_are_counted_from_the_first_submission() -> None:
    log = daily(17)
    assert weeks(log) == [0, 1] and weeks(daily(3)) == [0]
    second = Shaping(week=1).of(log)
    assert [job.local_id for job in second.jobs] == [str(day) for day in range(7, 14)]
    assert [job.submitted_at for job in second.jobs] == [day * DAY_S for day in range(7)]
    assert [job.submitted_at for job in Shaping(load=2.0, week=1).of(log).jobs] == [day * DAY_S / 2 for day in range(7)]
    assert len(Shaping(week=2).of(log).jobs) == 3, "a week that is not whole may be asked for"
    with pytest.raises(InputError, match="no job in week 3; expected one of 0 to 1"):
        Shaping(week=3).of(log)


def test_a_dependency_on_another_week_is_cut_and_counted() -> None:
    jobs = [Job("a", 1, 9.0, 0.0, runtime=1.0), Job("b", 1, 9.0, WEEK_S, runtime=1.0, after=("w0!a",)),
            Job("c", 1, 9.0, WEEK_S + 1, runtime=1.0, after=("w0!b",))]  # fmt: skip
    found = Shaping(week=1).of(workload_of(jobs))
    assert [job.after for job in found.jobs] == [(), ("w0!b",)]
    assert found.oddities == {"waits no more for a job of another week": 1}


def test_warm_up_and_cool_down_are_cut_from_the_metrics() -> None:
    """Jobs of 10 s on one unit, submitted every 5 s: the n-th waits 5 n seconds."""
    jobs = [Job(str(n), 1, 10.0, 5.0 * n, runtime=10.0) for n in range(9)]
    whole = simulate(workload=jobs, platform=1, policy="fcfs")
    cut = simulate(workload=jobs, platform=1, policy="fcfs", warm_up=10.0, cool_down=15.0)
    assert whole.metrics.jobs == 9 and whole.metrics.wait.mean == 20.0 and whole.metrics.utilisation == 1.0
    assert cut.metrics.jobs == 4, "those submitted from 10 s to 25 s"
    assert cut.metrics.wait.mean == pytest.approx((10 + 15 + 20 + 25) / 4)
    assert cut.metrics.utilisation == 1.0 and cut.metrics.makespan == 60.0 - 10.0
    assert len(cut.jobs) == 9, "all are simulated"


def test_utilisation_is_that_of_the_window() -> None:
    jobs = [Job("a", 2, 10.0, 0.0, runtime=10.0), Job("b", 1, 40.0, 20.0, runtime=40.0), Job("c", 1, 5.0, 30.0, runtime=5.0)]
    found = simulate(workload=jobs, platform=2, warm_up=5.0, cool_down=0.0)
    assert found.metrics.jobs == 2
    assert found.metrics.utilisation == pytest.approx((2 * 5 + 10) / (2 * 25)), "from 5 s to the last submission at 30 s"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"load": 0.0}, "load: not a factor"), ({"load": float("nan")}, "load: not a factor"), ({"week": -1}, "no such week"),
        ({"warm_up": -1.0}, "warm-up: not a length"), ({"cool_down": float("inf")}, "cool-down: not a length"),
        ({"warm_up": 50.0}, "no job is left to measure"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(wrong: dict[str, float], says: str) -> None:
    jobs = [Job(str(n), 1, 10.0, 5.0 * n, runtime=10.0) for n in range(9)]
    with pytest.raises(InputError, match=says):
        simulate(workload=jobs, platform=1, **wrong)  # type: ignore[arg-type]


def jobs_at(*dates: float) -> list[Job]:
    return [Job(str(number), 1, 10.0, date, runtime=1.0) for number, date in enumerate(dates)]


@pytest.mark.parametrize(
    "shaping",
    [Shaping(), Shaping(load=0.01), Shaping(week=0), Shaping(warm_up=0.5), Shaping(cool_down=0.5), Shaping(2.0, 1, 0.0, 0.0)],
)
def test_what_makes_sense_is_taken(shaping: Shaping) -> None:
    shaping.check()


@pytest.mark.parametrize(
    "shaping",
    [Shaping(load=-1.0), Shaping(load=float("inf")), Shaping(week=-1), Shaping(warm_up=-0.5), Shaping(cool_down=float("nan"))],
)
def test_what_makes_no_sense_is_refused(shaping: Shaping) -> None:
    with pytest.raises(InputError):
        shaping.check()


def test_a_workload_as_it_is_is_the_same_object() -> None:
    log = daily(20)
    assert AS_IT_IS.of(log) is log and AS_IT_IS.window(log.jobs) is None
    assert [job.local_id for job in Shaping(week=0).of(log).jobs] == [str(day) for day in range(7)]


@pytest.mark.parametrize(
    ("shaping", "window"),
    [
        (Shaping(warm_up=4.0), (14.0, 50.0)),
        (Shaping(cool_down=4.0), (10.0, 46.0)),
        (Shaping(warm_up=1.0, cool_down=2.0), (11.0, 48.0)),
        (Shaping(warm_up=20.0, cool_down=20.0), (30.0, 30.0)),
        (Shaping(warm_up=40.0), (50.0, 50.0)),
    ],
)
def test_the_window_is_cut_at_both_ends_and_holds_its_bounds(shaping: Shaping, window: tuple[float, float]) -> None:
    assert shaping.window(jobs_at(10.0, 30.0, 50.0)) == window


@pytest.mark.parametrize(
    ("shaping", "dates", "says"),
    [
        (Shaping(warm_up=41.0), (10.0, 30.0, 50.0), "within 40 s; warm-up and cool-down take 41 s"),
        (Shaping(warm_up=15.0, cool_down=24.5), (10.0, 30.0, 50.0), "within 40 s; warm-up and cool-down take 39.5 s"),
        (Shaping(cool_down=3.0), (), "within 0 s; warm-up and cool-down take 3 s"),
    ],
)
def test_a_window_without_jobs_is_refused(shaping: Shaping, dates: tuple[float, ...], says: str) -> None:
    with pytest.raises(InputError, match=says):
        shaping.window(jobs_at(*dates))


def test_weeks_with_jobs() -> None:
    day = WEEK_S / 7
    cases = {
        (5.0,): ([0], "0 to 0"),
        (5.0, 5.0 + WEEK_S - 1): ([0], "0 to 0"),
        (5.0, 5.0 + WEEK_S): ([0], "0 to 0"),
        (5.0, 5.0 + WEEK_S, 5.0 + 2 * WEEK_S): ([0, 1], "0 to 1"),
        (5.0, 5.0 + 2 * WEEK_S + day, 5.0 + 4 * WEEK_S): ([0, 2], "0, 2"),
    }
    for dates, (numbers, text) in cases.items():
        log = workload_of(jobs_at(*dates))
        assert (weeks(log), weeks_text(log)) == (numbers, text), dates


def test_a_week_ends_before_the_next_begins() -> None:
    log = workload_of(jobs_at(5.0, 4.0 + WEEK_S, 5.0 + WEEK_S, 6.0 + WEEK_S))
    assert [(job.local_id, job.submitted_at) for job in Shaping(week=0).of(log).jobs] == [("0", 0.0), ("1", WEEK_S - 1)]
    assert [(job.local_id, job.submitted_at) for job in Shaping(week=1).of(log).jobs] == [("2", 0.0), ("3", 1.0)]
    assert Shaping(week=1).of(log).oddities == log.oddities


def test_dependencies_that_are_cut_are_counted_by_job() -> None:
    early = Job("a", 1, 9.0, 0.0, runtime=1.0)
    cut = [Job(name, 1, 9.0, WEEK_S, runtime=1.0, after=("w0!a", "w0!x")) for name in ("b", "c")]
    whole = Job("d", 1, 9.0, WEEK_S, runtime=1.0, after=("w0!b", "w0!c"))
    found = Shaping(week=1).of(workload_of([early, *cut, whole]))
    assert [job.after for job in found.jobs] == [(), (), ("w0!b", "w0!c")]
    assert found.oddities == {"waits no more for a job of another week": 2}

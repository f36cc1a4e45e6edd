"""How long tasks take: learned from the same task, from similar ones, and from those that still run."""

from __future__ import annotations

from random import Random
from statistics import fmean, median

import pytest

from pilothouse.campaign.durations import (
    ASSUMED_DRIFT,
    ASSUMED_SPREAD,
    LearnedDurations,
    Lengths,
    Match,
    Observed,
    groups_of,
)
from pilothouse.campaign.forecast import Quantiles
from pilothouse.worlds.live.wire.messages import Task


def drawn(known: LearnedDurations, command: str, age: float = 0.0, repeat: int = -1) -> list[float]:
    task = Task(1, 1, repeat, line=command.encode())
    return [known.draw(Random(seed))(task, age) for seed in range(300)]


def test_the_same_task_takes_as_long_again_give_or_take() -> None:
    known = LearnedDurations([[Observed("fit 1", -1, 10.0), Observed("fit 2", -1, 1000.0)]])
    assert not known.measured_spread
    found = drawn(known, "fit 1")
    assert median(found) == pytest.approx(10, rel=0.03)
    most = 10 * (1 + 6 * (ASSUMED_SPREAD + ASSUMED_DRIFT))
    assert max(found) < most, "the other task of the program says nothing about this one"


def test_two_runs_tell_how_much_tasks_vary() -> None:
    runs = [[Observed(f"fit {n}", -1, 10.0 * (4 ** (sign * (-1) ** n / 2))) for n in range(50)] for sign in (1, -1)]
    known = LearnedDurations(runs)
    assert known.spread == pytest.approx(0.98, abs=0.02) and known.drift == pytest.approx(0)
    assert max(drawn(known, "fit 7")) > 40


def test_two_runs_tell_how_much_all_tasks_vary_together() -> None:
    """The sum of many tasks varies as much as one of them: nothing averages out."""
    runs = [[Observed(f"fit {n}", -1, 10.0 * factor) for n in range(50)] for factor in (0.5, 2.0)]
    known = LearnedDurations(runs)
    assert known.spread == pytest.approx(0) and known.drift == pytest.approx(0.98, abs=0.01)
    tasks = [Task(n, 1, -1, line=f"fit {n}".encode()) for n in range(50)]
    sums = []
    for seed in range(100):
        draw = known.draw(Random(seed))
        sums.append(sum(draw(task, 0.0) for task in tasks))
    assert min(sums) < 250 and max(sums) > 1000
    assert LearnedDurations(runs[:1]).drift == ASSUMED_DRIFT


def test_another_task_takes_as_long_as_similar_ones_or_those_of_its_program() -> None:
    known = LearnedDurations([[Observed(f"fit --n {n}", -1, 10.0 + n) for n in range(5)] + [Observed("plot", -1, 1.0)] * 5])
    for command in ("fit --n 77", "fit --other"):
        found = drawn(known, command)
        assert median(found) == pytest.approx(12, rel=0.05)
        assert 5 < min(found) < max(found) < 30
    assert min(drawn(known, "unheard of")) < 2
    assert known.match([("fit --n 3", -1), ("fit --n 8", -1), ("plot", -1), ("x", -1)]) == Match(1, 2, 1)


def test_tasks_that_still_run_make_the_others_longer() -> None:
    """Of ten tasks that began together five took 1 s, and five still run after 50 s."""
    seen = [Observed("a 1", -1, 1.0)] * 5 + [Observed("a 2", -1, 50.0, ended=False)] * 5
    found = drawn(LearnedDurations([seen]), "a 3")
    assert 0.35 < fmean(length > 50 for length in found) < 0.65
    running = drawn(LearnedDurations([seen]), "a 2", age=50.0)
    assert min(running) > 50


def test_what_has_run_for_longer_than_any_takes_up_to_as_long_again() -> None:
    lengths, random = Lengths([Observed("a", -1, 3.0), Observed("a", -1, 5.0)]), Random(1)
    found = [lengths.likely(random)(0.0) for _ in range(200)]
    assert median(found) == pytest.approx(4, rel=0.25)
    assert min(lengths.likely(random)(4.0) for _ in range(50)) >= 4
    same = Lengths([Observed("a", -1, 3.0)] * 5)
    assert {round(same.likely(random)(0.0), 9) for _ in range(50)} == {3.0}
    assert all(20 <= lengths.likely(random)(20.0) <= 40 for _ in range(50))


@pytest.mark.parametrize("count", [1, 2, 5, 50])
def test_a_new_task_may_be_longer_or_shorter_than_any_observed_one(count: int) -> None:
    """It is the longest of all, or the shortest, with the probability that any of them is."""
    random = Random(7)
    beyond = before = rounds = 0
    for _ in range(300):
        taken = [random.expovariate(0.1) for _ in range(count)]
        draw = Lengths([Observed("a", -1, seconds) for seconds in taken]).likely(random)
        for length in (draw(0.0) for _ in range(20)):
            beyond += length > max(taken)
            before += length < min(taken)
            rounds += 1
    expected = 1 / (count + 1)
    assert beyond / rounds == pytest.approx(expected, abs=0.01 + expected / 5)
    assert before / rounds == pytest.approx(expected, abs=0.01 + expected / 5)


@pytest.mark.parametrize("sigma", [0.3, 1.0])
@pytest.mark.parametrize("count", [10, 40])
def test_nine_in_ten_sums_of_new_tasks_lie_in_the_range(count: int, sigma: float) -> None:
    random = Random(3)
    held = 0
    for _ in range(200):
        taken = [random.lognormvariate(0, sigma) for _ in range(count)]
        lengths = Lengths([Observed("a", -1, seconds) for seconds in taken])
        sums = []
        for _ in range(40):
            draw = lengths.likely(random)
            sums.append(sum(draw(0.0) for _ in range(30)))
        told = Quantiles.of(sums)
        held += told.low <= sum(random.lognormvariate(0, sigma) for _ in range(30)) <= told.high
    assert 178 <= held <= 197


def test_how_long_a_task_goes_on_depends_on_how_long_it_has_run() -> None:
    lengths = Lengths([Observed("a", -1, seconds) for seconds in (1.0, 2.0, 4.0, 8.0, 16.0, 100.0)])
    random = Random(5)

    def halfway(age: float) -> float:
        return median([lengths.likely(random)(age) for _ in range(400)])

    assert 4 < halfway(0.5) < halfway(3.0) < halfway(10.0) < halfway(50.0)
    assert all(lengths.likely(random)(10.0) >= 10.0 for _ in range(100))


def test_groups_differ_in_what_is_left_out() -> None:
    assert groups_of("./sim --seed 12 --dt 1.5e-3")[1:] == groups_of("./sim --seed 9 --dt 2")[1:]
    assert groups_of("./sim a")[1] != groups_of("./sim b")[1]
    assert groups_of("./sim a")[2] == groups_of("./sim b")[2]
    assert groups_of("")[3] == groups_of("x")[3]


def test_several_tasks_of_one_command_are_like_each_other_and_not_like_others() -> None:
    seen = [Observed("sleep 1", -1, 1.0), Observed("sleep 1", -1, 1.1), Observed("sleep 90", -1, 90.0)]
    assert max(drawn(LearnedDurations([seen]), "sleep 1")) < 5

"""Intervals of confidence and verdicts: they hold as often as they say, pairs cancel what they share, few values say nothing."""

from __future__ import annotations

from random import Random

import pytest

from pilothouse.campaign.significance import differences, interval, widening


@pytest.mark.parametrize(("count", "kind"), [(5, "normal"), (12, "normal"), (8, "skewed")])
def test_an_interval_holds_the_mean_as_often_as_it_says(count: int, kind: str) -> None:
    rng = Random(f"{kind}{count}")
    draw = (lambda: rng.gauss(7.0, 3.0)) if kind == "normal" else (lambda: rng.expovariate(1 / 7.0))
    held = 0
    for _ in range(100):
        found = interval([draw() for _ in range(count)])
        held += found.low <= 7.0 <= found.high
    assert held >= (88 if kind == "normal" else 75)  # 95 of 100; few values of a skewed distribution miss its tail


def test_the_same_values_give_the_same_interval() -> None:
    values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0]
    assert interval(values) == interval(list(values))
    assert interval([2.0]).low == interval([2.0, 2.0]).high == 2.0


def weekly(*values: float) -> dict[tuple[int | None, int | None], float]:
    return {(week, None): value for week, value in enumerate(values)}


def test_pairs_show_what_means_hide() -> None:
    """Weeks differ by hundreds; the second policy is better by one to two in each."""
    base = weekly(100, 900, 300, 700, 500, 200)
    better = {key: value - 1 - key[0] / 5 for key, value in base.items() if key[0] is not None}
    (found,) = differences("wait", {"fcfs": base, "easy": better})
    assert found.significant and "easy is significantly lower than fcfs, by 1.5" in found.sentence()
    (back,) = differences("wait", {"fcfs": base, "easy": better}, base="easy")
    assert back.significant and "fcfs is significantly higher than easy" in back.sentence()


def test_chance_is_not_significant() -> None:
    base = weekly(10, 12, 9, 14, 11, 10)
    other = weekly(12, 9, 11, 12, 10, 12)
    (found,) = differences("wait", {"fcfs": base, "easy": other})
    assert not found.significant and "does not differ significantly" in found.sentence()
    (same,) = differences("wait", {"fcfs": base, "easy": base})
    assert not same.significant and "equals fcfs in all 6" in same.sentence()


def test_more_comparisons_are_held_to_more() -> None:
    base, other = weekly(1, 2, 3, 4, 5, 6), weekly(2, 2.5, 3.9, 5, 5.2, 7.5)
    one = differences("wait", {"a": base, "b": other})[0].interval
    many = differences("wait", {"a": base, "b": other, **{f"c{n}": base for n in range(9)}})[0].interval
    assert one is not None and many is not None and many.low < one.low < one.high < many.high


def test_few_repetitions_are_not_judged() -> None:
    (found,) = differences("wait", {"a": weekly(1, 2, 3, 4), "b": weekly(5, 6, 7, 8)})
    assert found.interval is None and "not judged, 4 comparable repetitions of 5 needed" in found.sentence()
    (unknown,) = differences("wait", {"a": weekly(1, 2, 3, 4, 5), "b": weekly(5, 6, 7, 8, float("inf"))})
    assert unknown.pairs == 4


def test_a_policy_without_chance_is_paired_with_the_mean_of_seeds() -> None:
    fixed = weekly(*range(10, 16))
    random = {(week, seed): 10.0 + week + 2 + (seed - 2) * 0.5 for week in range(6) for seed in (1, 2, 3)}
    (found,) = differences("wait", {"fcfs": fixed, "random": random})
    assert found.pairs == 6 and found.interval is not None and found.interval.mean == pytest.approx(2.0)


def test_few_values_widen_an_interval() -> None:
    """Quantiles of Student's distribution from a table (0.95; one, two, four and thirty degrees of freedom)."""
    for count, quantile in ((2, 6.3138), (3, 2.9200), (5, 2.1318), (31, 1.6973)):
        assert widening(count, 0.1) == pytest.approx((count / (count - 1)) ** 0.5 * quantile / 1.64485, rel=0.004)

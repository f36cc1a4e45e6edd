"""Which differences between policies are more than chance: paired bootstrap over repetitions (weeks or seeds).

In: for each policy the values of a metric, one for each repetition. Out: means with intervals of confidence, differences to
the first policy, and a verdict in words. Pairs share their workload, so that what differs between weeks cancels out.

An interval is that of the percentiles of RESAMPLES resampled means, widened by the ratio of Student's to the normal
distribution and by sqrt(n / (n - 1)): resampling few values understates their spread. Where several policies are compared
with one, each is held to ALPHA / comparisons (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import isfinite, pi, sqrt, tan
from operator import itemgetter
from random import Random
from statistics import NormalDist

import msgspec

from pilothouse.views.tables import number

RESAMPLES = 4000
FEWEST = 5
"""Below so many repetitions nothing is said about significance."""
ALPHA = 0.05

Repetition = tuple[int | None, int | None]
"""Week and seed."""


class Interval(msgspec.Struct, frozen=True):
    mean: float
    low: float
    high: float


class Difference(msgspec.Struct, frozen=True):
    """How one policy differs from the one that it is compared with, in one metric."""

    policy: str
    base: str
    metric: str
    pairs: int
    base_mean: float
    interval: Interval | None
    """Of the mean difference; None: too few repetitions."""
    confidence: float = 1 - ALPHA

    @property
    def significant(self) -> bool:
        return self.interval is not None and (self.interval.low > 0 or self.interval.high < 0)

    def sentence(self) -> str:
        found = self.interval
        if found is None:
            counted = f"{self.pairs} comparable repetition{'s' if self.pairs != 1 else ''}"
            return f"{self.metric}: {self.policy} against {self.base}: not judged, {counted} of {FEWEST} needed"
        ends = " to ".join(f"{'+' if end > 0 else ''}{number(end)}" for end in (found.low, found.high))
        span = f"{100 * self.confidence:.4g} % interval {ends}, {self.pairs} pairs"
        if found.low == found.high == 0:
            return f"{self.metric}: {self.policy} equals {self.base} in all {self.pairs} repetitions"
        if not self.significant:
            return f"{self.metric}: {self.policy} does not differ significantly from {self.base} ({span})"
        share = f" ({100 * found.mean / self.base_mean:+.1f} %)" if self.base_mean else ""
        word = "lower" if found.mean < 0 else "higher"
        by = f"{number(abs(found.mean))}{share} ({span})"
        return f"{self.metric}: {self.policy} is significantly {word} than {self.base}, by {by}"


def interval(values: Sequence[float], alpha: float = ALPHA) -> Interval:
    """The mean, and the interval that holds it with probability 1 - alpha. The same values give the same interval."""
    count = len(values)
    mean = sum(values) / count
    if count < 2 or min(values) == max(values):
        return Interval(mean, mean, mean)
    means = sorted(sum(drawn(values)) for drawn in _samples(count))
    widen = widening(count, alpha)
    low, high = (means[min(RESAMPLES - 1, int(RESAMPLES * share))] / count for share in (alpha / 2, 1 - alpha / 2))
    return Interval(mean, mean - (mean - low) * widen, mean + (high - mean) * widen)


@lru_cache(maxsize=4)
def _samples(count: int) -> list[itemgetter[tuple[float, ...]]]:
    """Draws with replacement, the same ones for all metrics and policies."""
    rng = Random(count)
    return [itemgetter(*rng.choices(range(count), k=count)) for _ in range(RESAMPLES)]


def widening(count: int, alpha: float = ALPHA) -> float:
    """By how much the mean of so many values is less certain than resampling them says."""
    share = 1 - alpha / 2
    return sqrt(count / (count - 1)) * _student(share, count - 1) / NormalDist().inv_cdf(share)


def _student(share: float, freedom: int) -> float:
    """A quantile of Student's distribution: exact for one and two degrees, then by the expansion of Cornish and Fisher."""
    if freedom == 1:
        return tan(pi * (share - 0.5))
    if freedom == 2:
        return (2 * share - 1) / sqrt(2 * share * (1 - share))
    z = NormalDist().inv_cdf(share)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def differences(metric: str, by_policy: Mapping[str, Mapping[Repetition, float]], base: str = "") -> list[Difference]:
    """Every policy against the base, by default the first."""
    base = base or next(iter(by_policy), "")
    others = [policy for policy in by_policy if policy != base]
    found = []
    for policy in others:
        pairs = list(_pairs(by_policy[policy], by_policy[base]))
        alpha = ALPHA / len(others)
        between = interval([one - two for one, two in pairs], alpha) if len(pairs) >= FEWEST else None
        base_mean = sum(two for _, two in pairs) / len(pairs) if pairs else 0.0
        found.append(Difference(policy, base, metric, len(pairs), base_mean, between, 1 - alpha))
    return found


def _pairs(one: Mapping[Repetition, float], two: Mapping[Repetition, float]) -> Iterable[tuple[float, float]]:
    """Values of one repetition. A policy without chance ran once for all seeds: its value is paired with the mean of the
    other's seeds, or each seed would count as a repetition of it."""
    if {seed for _, seed in one} == {seed for _, seed in two}:
        pairs = [(one[key], two[key]) for key in one if key in two]
    else:
        ones, twos = by_week(one), by_week(two)
        pairs = [(ones[week], twos[week]) for week in ones if week in twos]
    return [pair for pair in pairs if all(map(isfinite, pair))]


def by_week(values: Mapping[Repetition, float]) -> dict[int | None, float]:
    """The mean over the seeds of each week."""
    weeks: dict[int | None, list[float]] = {}
    for (week, _), value in values.items():
        weeks.setdefault(week, []).append(value)
    return {week: sum(found) / len(found) for week, found in weeks.items()}

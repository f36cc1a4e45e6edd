"""The compiled timetable of conservative backfilling against the one in Python."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.policies.conservative import PlainTimetable, Timetable

DATES = st.integers(0, 40).map(float) | st.floats(0.0, 40.0)
STEPS = st.lists(
    st.tuples(st.sampled_from(["give", "place", "forget"]), DATES, st.integers(0, 12), DATES | st.just(inf)), max_size=40
)


@pytest.mark.skipif(Timetable is PlainTimetable, reason="not compiled")
@given(st.integers(0, 12), STEPS)
def test_both_place_alike(free: int, steps: list[tuple[str, float, int, float]]) -> None:
    ours, plain = Timetable(0.0, free), PlainTimetable(0.0, free)
    now = 0.0
    for kind, date, units, duration in steps:
        if kind == "give":
            ours.give(max(date, now), units)
            plain.give(max(date, now), units)
        elif kind == "forget":
            now = max(now, date)
            ours.forget_before(now)
            plain.forget_before(now)
        start = plain.earliest(units, duration)
        assert ours.earliest(units, duration) == start
        if kind == "place" and start < inf:
            ours.take(start, start + duration, units)
            plain.take(start, start + duration, units)

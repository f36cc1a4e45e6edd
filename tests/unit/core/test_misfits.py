"""Answers to equal requests are remembered for the same units to avoid, and for no others."""

from __future__ import annotations

from pilothouse.core.misfits import Misfits
from pilothouse.model.answers import NotNow
from pilothouse.model.job import Job, Shape

NO = NotNow("no room")


def test_answers_hold_for_equal_requests_and_the_same_units() -> None:
    made, shape = Misfits(), Shape(nodes=1)
    wide, same, shaped = Job("a", 4), Job("b", 4), Job("c", 4, shape=shape)
    made.add(wide, False, 0, NO)
    assert made.answer(same, False, 0) is NO
    assert made.answer(same, True, 0) is None
    assert made.answer(Job("d", 5), False, 0) is None
    assert made.answer(Job("e", 4, most_units=8), False, 0) is None
    assert made.answer(shaped, False, 0) is None
    made.add(shaped, False, 0, NO)
    assert made.answer(Job("f", 4, shape=shape), False, 0) is NO
    assert made.answer(Job("g", 4, shape=Shape(nodes=1)), False, 0) is None


def test_other_units_to_avoid_make_other_answers() -> None:
    made, job = Misfits(), Job("a", 4)
    first, equal, other = 1 << 70, 1 << 70, 1 << 71
    made.add(job, False, first, NO)
    assert made.answer(job, False, equal) is NO
    assert made.answer(job, False, 0) is None
    assert made.answer(job, False, other) is None
    assert made.answer(job, False, first) is None  # they were forgotten
    made.add(job, False, other, NO)
    assert made.answer(job, False, first) is None


def test_everything_is_forgotten_when_something_is_free() -> None:
    made, job = Misfits(), Job("a", 4)
    made.add(job, False, 0, NO)
    made.add(job, False, 1 << 70, NO)
    made.clear()
    assert made.answer(job, False, 0) is None
    assert made.answer(job, False, 1 << 70) is None

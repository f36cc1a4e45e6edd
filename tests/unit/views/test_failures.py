"""Failures in words and groups."""

from __future__ import annotations

import pytest

from pilothouse.views.failures import MOST_GROUPS, Failures, code_text, why


@pytest.mark.parametrize(
    ("code", "reason", "text"),
    [(3, "", "exit code 3"), (-11, "", "ended by SEGV"), (-100, "", "exit code -100"), (-15, "walltime", "walltime")],
)
def test_why(code: int, reason: str, text: str) -> None:
    assert why(code, reason) == text


def test_codes() -> None:
    assert [code_text(code) for code in (0, 139, -9, -100)] == ["0", "139", "KILL", "-100"]


def test_failures_are_grouped_by_their_end_and_last_line() -> None:
    failures = Failures()
    for task in range(40):
        failures.add(task, task + 1, 1, "", "n1", 0.25, b"fit %d" % task, b"ValueError: bad input")
    failures.add(40, 41, -11, "", "n2", 1.0, b"fit 40", b"")
    first, second = failures.groups()
    assert (first.count, first.task, second.task) == (40, 0, 40)
    assert first.text() == "40 x exit code 1: ValueError: bad input  (first: task 0 (line 1) on n1, 0.2 s: fit 0)"
    assert second.text() == "task 40 (line 41) on n2, 1.0 s: ended by SEGV: fit 40"


def test_there_are_few_groups() -> None:
    failures = Failures()
    for task in range(3 * MOST_GROUPS):
        failures.add(task, 1, 1, "", "", 0.0, b"", b"%d" % task)
    assert len(failures.groups()) == MOST_GROUPS + 1 and sum(group.count for group in failures.groups()) == 3 * MOST_GROUPS

"""The status of one job as clients see it: its history, and a start that is undone."""

from __future__ import annotations

import pytest

from pilothouse.dropins.qcg.registry import JobStatus, duration_text
from pilothouse.model.lifecycle import JobState, Stimulus


def started() -> JobStatus:
    status = JobStatus()
    for at, stimulus in enumerate((Stimulus.QUEUED, Stimulus.ALLOCATED, Stimulus.LAUNCHED)):
        status.step(stimulus, float(at))
    return status


def test_a_start_that_is_undone_leaves_no_trace() -> None:
    status = started()
    before = [entry for entry in status.history if entry[0] not in (JobState.STARTING, JobState.RUNNING)]
    assert len(status.history) > len(before) > 0
    status.undo_start()
    assert status.state is JobState.WAITING
    assert status.history == before
    assert status.runtime is None


def test_a_start_that_was_allocated_only_can_be_undone_too() -> None:
    status = JobStatus()
    status.step(Stimulus.QUEUED, 0.0)
    before = list(status.history)
    status.step(Stimulus.ALLOCATED, 1.0)
    status.undo_start()
    assert (status.state, status.history) == (JobState.WAITING, before)


def test_messages_are_lines() -> None:
    status = JobStatus()
    assert status.messages is None
    status.say("one")
    status.say("two")
    assert status.messages == "one\ntwo"
    assert not status.final


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0:00:00.000000"), (0.25, "0:00:00.250000"), (6.082136, "0:00:06.082136"), (59.9999999, "0:01:00.000000"),
        (60.0, "0:01:00.000000"), (3661.5, "1:01:01.500000"), (-1.0, "0:00:00.000000"), (90000.0, "1 day, 1:00:00.000000"),
    ],
)  # fmt: skip
def test_durations_always_have_a_fraction(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text

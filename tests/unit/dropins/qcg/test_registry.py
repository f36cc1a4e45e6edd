"""The status of one job as clients see it: its history, and a start that is undone."""

from __future__ import annotations

from pilothouse.dropins.qcg.registry import JobStatus
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

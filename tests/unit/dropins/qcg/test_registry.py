"""The registry: what clients see of a job, its iterations and its history."""

from __future__ import annotations

import time

import pytest

from pilothouse.dropins.qcg.registry import (
    Iterations,
    JobStatus,
    Registry,
    Runtime,
    Usage,
    date_text,
    duration_text,
    split_name,
    state_name,
    visible_history,
)
from pilothouse.formats.qcg_description import Description, Execution, Iteration
from pilothouse.formats.qcg_dialect import LATER, SPECIFICATION
from pilothouse.formats.qcg_requests import SubmittedJob
from pilothouse.model.lifecycle import JobState, LifecycleError, Stimulus

SEEN = (
    JobState.WAITING, JobState.STARTING, JobState.RUNNING,
    JobState.SUCCEEDED, JobState.FAILED, JobState.KILLED, JobState.OMITTED,
)  # fmt: skip


def described(name: str) -> Description:
    return Description(name, Execution("/bin/true"))


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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0000004, "0:00:00.000000"), (0.0000005, "0:00:00.000001"), (1.0, "0:00:01.000000"), (59.0, "0:00:59.000000"),
        (59.9999994, "0:00:59.999999"), (59.9999995, "0:01:00.000000"), (61.0, "0:01:01.000000"), (60.000001, "0:01:00.000001"),
    ],
)  # fmt: skip
def test_short_durations_are_rounded_like_long_ones(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_dates_have_microseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    date_text.cache_clear()
    assert date_text(86400.25) == "1970-01-02 00:00:00.250000"
    assert date_text(0.0) == "1970-01-01 00:00:00.000000"
    monkeypatch.undo()
    time.tzset()
    date_text.cache_clear()


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("job", ("job", None)), ("job:3", ("job", 3)), ("job:-1", ("job", -1)), ("job:03", ("job", 3)), ("job:", ("job:", None)),
        ("job:x", ("job:x", None)), ("a:1:2", ("a:1:2", None)), (":2", ("", 2)), ("", ("", None)),
    ],
)  # fmt: skip
def test_names_of_iterations(name: str, parts: tuple[str, int | None]) -> None:
    assert split_name(name) == parts


def test_states_in_both_dialects() -> None:
    ends = ["SUCCEED", "FAILED", "CANCELED", "OMITTED"]
    assert [state_name(state) for state in SEEN] == ["QUEUED", "SCHEDULED", "EXECUTING", *ends]
    assert [state_name(state, SPECIFICATION) for state in SEEN] == ["QUEUED", "QUEUED", "EXECUTING", *ends]
    status = started()
    assert visible_history(status, LATER) == [("QUEUED", 0.0), ("SCHEDULED", 1.0), ("EXECUTING", 2.0)]
    assert visible_history(status, SPECIFICATION) == [("QUEUED", 0.0), ("EXECUTING", 2.0)]


def test_where_a_job_runs_and_ran() -> None:
    runtime = Runtime("n0[0:1]", "n0:2", wd="/wd")
    assert runtime.shown(LATER) == {"allocation": "n0[0:1]", "wd": "/wd"}
    assert runtime.shown(SPECIFICATION) == {"allocation": "n0:2"}, "as in the example of the specification"
    runtime.rtime, runtime.exit_code, runtime.pid, runtime.program = "0:00:01.000000", 0, 7, "true"
    ran = {"allocation": "n0[0:1]", "wd": "/wd", "rtime": "0:00:01.000000", "exit_code": "0", "pid": "7", "pname": "true"}
    assert runtime.shown(LATER) == ran
    assert runtime.shown(SPECIFICATION) == {"allocation": "n0:2", "wd": "/wd", "rtime": "0:00:01.000000"}


def test_only_changes_that_clients_can_see_are_in_the_history() -> None:
    status = JobStatus()
    assert status.step(Stimulus.QUEUED, 1.0)
    assert status.step(Stimulus.SUCCEEDED, 2.0), "a loop: its own start is not seen"
    assert status.history == [(JobState.WAITING, 1.0), (JobState.SUCCEEDED, 2.0)]
    assert status.final


def test_iterations_that_never_began_are_omitted_together() -> None:
    loop = Iterations(Iteration(2, 6))
    assert (loop.unfinished, loop.unsuccessful) == (4, 0)
    assert loop.state(3) is loop.shown(3).state is JobState.WAITING
    assert list(loop.counts()) == [(JobState.WAITING, 4)]
    begun = loop.status(3)
    assert loop.status(3) is loop.shown(3) is begun and loop.shown(4) is not loop.shown(4)
    begun.step(Stimulus.ALLOCATED, 1.0)
    assert list(loop.counts()) == [(JobState.STARTING, 1), (JobState.WAITING, 3)]
    loop.omit_rest()
    assert (loop.unfinished, loop.unsuccessful) == (1, 3)
    assert [loop.state(index) for index in (2, 3)] == [JobState.OMITTED, JobState.STARTING]


def test_usage_is_shown_under_any_names() -> None:
    assert Usage(2, 6, 1).shown("n", "c", "u", "f") == {"n": 2, "c": 6, "u": 1, "f": 5}


def test_entries_are_numbered_and_found_by_name_and_index() -> None:
    registry = Registry()
    first, second = (registry.add(SubmittedJob(name, described(name)), 5.0) for name in "ab")
    second.iterations = Iterations(Iteration(1, 3))
    assert [(each.number, each.arrived_at, each.cancelled, each.queue_position) for each in (first, second)] == [
        (1, 5.0, False, None), (2, 5.0, False, None),
    ]  # fmt: skip
    assert registry.unfinished == 2 and first.status.history == [(JobState.WAITING, 5.0)]
    assert [registry.find(name) for name in ("a", "a:0", "b", "b:0", "b:1", "b:2", "b:3", "c")] == [
        (first, None), None, (second, None), None, (second, 1), (second, 2), None, None,
    ]  # fmt: skip
    assert (first.full_name(None), second.full_name(2)) == ("a", "b:2")
    second.status_of(1).step(Stimulus.ALLOCATED, 6.0)
    assert (second.state_of(None), second.state_of(1), second.state_of(2)) == (
        JobState.WAITING, JobState.STARTING, JobState.WAITING,
    )  # fmt: skip
    assert second.status_of(None) is second.status


def test_statistics_count_jobs_and_iterations_by_their_groups() -> None:
    registry = Registry()
    paths = {
        "queued": (), "scheduled": (Stimulus.ALLOCATED,), "runs": (Stimulus.ALLOCATED, Stimulus.LAUNCHED),
        "done": (Stimulus.SUCCEEDED,), "failed": (Stimulus.FAILED,), "killed": (Stimulus.KILLED,), "omitted": (Stimulus.OMITTED,),
    }  # fmt: skip
    for name, stimuli in paths.items():
        entry = registry.add(SubmittedJob(name, described(name)), 5.0)
        for stimulus in stimuli:
            entry.status.step(stimulus, 6.0)
    plain = {"InSchedule": 2, "Failed": 2, "Finished": 2, "Executing": 1}
    assert registry.statistics() == (plain, plain)
    loop = registry.add(SubmittedJob("loop", described("loop")), 5.0)
    loop.iterations = Iterations(Iteration(0, 4))
    loop.status_of(2).step(Stimulus.FAILED, 6.0)
    assert registry.statistics() == ({**plain, "InSchedule": 3}, {**plain, "InSchedule": 5, "Failed": 3})


def test_every_change_is_seen_or_not_by_the_names_of_the_states() -> None:
    unseen = 0
    for state in JobState:
        for stimulus in Stimulus:
            status = JobStatus(state)
            try:
                seen = status.step(stimulus, 3.0)
            except LifecycleError:
                continue
            differs = state is JobState.KNOWN or state_name(state) != state_name(status.state)
            unseen += not differs
            assert (seen, status.history) == (differs, [(status.state, 3.0)] if differs else []), (state, stimulus)
    assert unseen

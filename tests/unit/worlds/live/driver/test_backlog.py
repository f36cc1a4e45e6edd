"""Bundles, finished tasks, dependencies and calls: the small sans-IO parts of the driver."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from pilothouse.model.decisions import CallAt, CallEvery, StopCalls
from pilothouse.model.job import Command, Job
from pilothouse.model.lifecycle import Stimulus
from pilothouse.worlds.live.driver.backlog import DoneIds
from pilothouse.worlds.live.driver.calls import Calls
from pilothouse.worlds.live.driver.dependencies import Dependencies
from pilothouse.worlds.live.driver.pace import BUNDLE_BYTES, BUNDLE_S, Pace
from pilothouse.worlds.live.driver.task_groups import TaskGroup, group_of_job


@given(st.permutations(range(40)), st.sets(st.integers(0, 39)))
def test_done_ids_against_a_set(order: list[int], failed: set[int]) -> None:
    done, model = DoneIds(), set()
    for task_id in order:
        done.add(task_id, failed=task_id in failed)
        model.add(task_id)
        assert all((other in done) == (other in model) for other in range(41))
    assert done.failed == failed
    assert done.count == 40


def test_long_tasks_are_never_bundled() -> None:
    pace = Pace(1000)
    assert pace.bundle(10_000, 2) == 1  # nothing is known yet
    for _ in range(100):
        pace.note(0.2)
    assert pace.bundle(10_000, 2) == 1


def test_short_tasks_are_bundled_and_bundles_shrink_towards_the_end() -> None:
    pace = Pace(1000)
    for _ in range(100):
        pace.note(0.001)
    assert abs(pace.bundle(None, 2) - BUNDLE_S / 0.001) <= 1
    assert pace.bundle(600, 2) == 100
    assert pace.bundle(10, 2) == 20  # a few milliseconds: not worth shrinking further
    assert Pace(1).bundle(None, 2) == 1
    pace.longest_bytes = BUNDLE_BYTES // 3
    assert pace.bundle(None, 2) == 3


def group(job: Job) -> TaskGroup:
    return group_of_job(job, 0, 1, bind=False)


def job(job_id: str, *after: str) -> Job:
    return Job(job_id, 1, inf, after=after, command=Command(line="true"))


def test_dependencies_release_and_omit() -> None:
    known = Dependencies()
    first, second, third = job("a"), job("b", "a"), job("c", "a", "b")
    assert known.add(first, group(first)) is Stimulus.QUEUED
    held, also_held = group(second), group(third)
    assert known.add(second, held) is Stimulus.HELD
    assert known.add(third, also_held) is Stimulus.HELD
    assert known.ended("a", succeeded=True) == ([held], [])
    assert known.waiting == 1
    assert known.ended("b", succeeded=False) == ([], [also_held])
    late = job("d", "b")
    assert known.add(late, group(late)) is Stimulus.OMITTED


def test_calls() -> None:
    calls = Calls()
    calls.order(CallAt(0.0, 5.0, "once"))
    calls.order(CallEvery(0.5, 2.0, "thrice", 3))
    calls.order(CallEvery(0.5, 1.0, "stopped"))
    calls.order(StopCalls(0.6, "stopped"))
    seen = [(now, call.call_id, call.last) for now in (1.0, 2.0, 4.0, 5.0, 6.0, 8.0) for call in calls.due(now)]
    assert seen == [(2.0, "thrice", False), (4.0, "thrice", False), (5.0, "once", True), (6.0, "thrice", True)]
    assert calls.next_at == inf

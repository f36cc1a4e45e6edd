"""Users cancel single tasks, and have tasks that did not succeed run once more."""

from __future__ import annotations

import pytest

from pilothouse.formats.task_file import TaskLine
from pilothouse.model import events as e
from pilothouse.model.decisions import StartJob
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Command, Job
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.live.driver.decisions import apply
from pilothouse.worlds.live.driver.engine_frames import frames, hear
from pilothouse.worlds.live.driver.flow import begins, settle, stop, submit
from pilothouse.worlds.live.driver.state import new_state
from pilothouse.worlds.live.driver.task_requests import Refusal, cancel_task, look_at_cancelled, retry_task
from pilothouse.worlds.live.feeder import Feeder
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.records import TaskEnded
from pilothouse.worlds.live.wire import messages as m


class Desk:
    """A driver whose decider has been told of all that waits, and one engine."""

    def __init__(self, tasks: int, *, bundle: int = 1, slots: int = 2) -> None:
        self.driver = new_state(LiveOptions(bundle=bundle))
        self.driver.feed(Feeder(TaskLine(number, number + 1, -1, "true") for number in range(tasks)))
        self.driver.backlog.pace.note(0.001)
        hello = m.Hello(context="c", node="n", slots=slots, pid=1, started_at=0.0)
        hear(self.driver, m.EngineFrame(m.VERSION, "a", 0, 0, 0, [hello]), 0.0)
        begins(self.driver, 0.0)
        self._seq = 0
        self.settle()

    def settle(self) -> list[m.FromDriver]:
        """What the engine is sent."""
        settle(self.driver, 1.0)
        return [body for frame in frames(self.driver, 1.0) for body in frame.bodies]

    def start(self, task: int, unit: int = 0) -> m.Assignment:
        group = next(group for group in self.driver.groups.values() if task in group.tasks)
        apply(self.driver, StartJob(0.0, group.job.id, IdSet.of([unit])), 0.0)
        sent = [body for body in self.settle() if type(body) is m.Start]
        return sent[-1].assignments[-1]

    def report(self, given: m.Assignment, *ends: tuple[int, int], closed: bool = True, returned: tuple[int, ...] = ()) -> None:
        """(task, return code) of tasks that ended."""
        attempts = {task.task_id: task.attempt for task in given.tasks}
        results = [m.Result(task, attempts[task], code, 7, 0.0, 1.0) for task, code in ends]
        self._seq += 1
        report = m.Report([m.Finished(given.id, results, closed, returned)])
        hear(self.driver, m.EngineFrame(m.VERSION, "a", 1, self._seq, 9, [report]), 1.0)
        self.settle()

    def ends(self) -> dict[int, tuple[JobState, str]]:
        found = [entry for entry in self.driver.records if type(entry) is TaskEnded and entry.final]
        assert len({entry.task_id for entry in found}) == len(found), "no task ends twice"
        return {entry.task_id: (entry.state, entry.reason) for entry in found}

    def withdrawn(self) -> list[str]:
        return [event.job_id for event in self.driver.events if isinstance(event, e.JobWithdrawn)]


CANCELLED = (JobState.KILLED, "cancelled")


def test_a_task_that_waits_ends_at_once() -> None:
    desk = Desk(3)
    assert cancel_task(desk.driver, 1, 1.0) == "task 1 will not be run"
    assert desk.ends() == {1: CANCELLED} and desk.withdrawn() == ["1"]
    assert sorted(desk.driver.groups) == ["0", "2"] and desk.driver.waiting == 2
    for task in (0, 2):
        desk.report(desk.start(task), (task, 0))
    assert desk.driver.nothing_to_do and desk.driver.counts[JobState.KILLED] == 1


def test_one_task_of_a_bundle_that_waits_ends_alone() -> None:
    desk = Desk(6, bundle=3, slots=1)
    (group, *_) = [group for group in desk.driver.groups.values() if len(group.tasks) > 1]
    first, *rest = group.tasks
    cancel_task(desk.driver, first, 1.0)
    assert desk.ends() == {first: CANCELLED} and not desk.withdrawn()
    assert [task.task_id for task in desk.start(rest[0]).tasks] == rest


def test_a_task_that_was_not_read_yet_ends_when_its_turn_comes() -> None:
    desk = Desk(2000, slots=1)
    assert 1500 not in {task for group in desk.driver.groups.values() for task in group.tasks}, "the file is read as it is needed"
    assert "when its turn comes" in cancel_task(desk.driver, 1500, 1.0)
    assert not desk.ends()
    for task in range(2000):
        if task != 1500:
            desk.report(desk.start(task), (task, 0))
    assert desk.ends()[1500] == CANCELLED
    assert desk.driver.nothing_to_do and not desk.driver.backlog.cancelled


def test_a_task_that_runs_alone_is_killed_once() -> None:
    desk = Desk(1)
    given = desk.start(0)
    assert "task 0 is ended" in cancel_task(desk.driver, 0, 1.0)
    assert [body for body in desk.settle() if type(body) is m.Kill] == [m.Kill((given.id,), "killed")]
    look_at_cancelled(desk.driver, 2.0)  # as with every tick
    assert not [body for body in desk.settle() if type(body) is m.Kill]
    assert not desk.ends()


def test_a_task_of_a_bundle_that_runs_ends_when_it_is_given_back() -> None:
    desk = Desk(3, bundle=3, slots=1)
    given = desk.start(0)
    assert len(given.tasks) == 3
    cancel_task(desk.driver, 2, 1.0)
    assert not [body for body in desk.settle() if type(body) is m.Kill], "its neighbours run"
    desk.report(given, (0, 0), closed=False, returned=(2,))
    look_at_cancelled(desk.driver, 2.0)  # as with every tick
    assert desk.ends() == {0: (JobState.SUCCEEDED, ""), 2: CANCELLED}
    desk.report(given, (1, 0))
    assert desk.driver.nothing_to_do


def test_a_submitted_job_is_cancelled_by_its_number() -> None:
    desk = Desk(1)
    number = submit(desk.driver, Job("mine", 1, command=Command(line="true")), 1.0)
    desk.settle()
    assert cancel_task(desk.driver, number, 1.0) == "job mine is ended"
    assert desk.ends()[number][0] is JobState.KILLED


@pytest.mark.parametrize("task", [-1, 3, 99])
def test_there_is_no_such_task(task: int) -> None:
    desk = Desk(3)
    with pytest.raises(Refusal, match=f"there is no task {task}"):
        cancel_task(desk.driver, task, 1.0)


def test_what_has_ended_can_only_be_tried_again() -> None:
    desk = Desk(3)
    desk.report(desk.start(0), (0, 0))
    desk.report(desk.start(1), (1, 9))
    for task in (0, 1):
        with pytest.raises(Refusal, match=f"task {task} has ended"):
            cancel_task(desk.driver, task, 1.0)
    for task in (0, 2):
        with pytest.raises(Refusal, match=f"task {task} has not failed"):
            retry_task(desk.driver, task, 1.0)
    assert retry_task(desk.driver, 1, 1.0) == "task 1 waits for attempt 2"
    with pytest.raises(Refusal, match="has not failed"):
        retry_task(desk.driver, 1, 1.0)
    assert desk.driver.counts[JobState.FAILED] == 0 and 1 not in desk.driver.done
    desk.settle()
    again = desk.start(1)
    assert [(task.task_id, task.attempt) for task in again.tasks] == [(1, 2)]
    desk.report(desk.start(2, 1), (2, 0))
    assert not desk.driver.nothing_to_do
    desk.report(again, (1, 0))
    assert desk.driver.nothing_to_do
    assert (desk.driver.counts[JobState.SUCCEEDED], desk.driver.counts[JobState.FAILED]) == (3, 0)


def test_a_task_that_came_back_can_be_cancelled() -> None:
    desk = Desk(2)
    desk.report(desk.start(0), (0, 9))
    retry_task(desk.driver, 0, 1.0)
    assert "task 0" in cancel_task(desk.driver, 0, 1.0)
    desk.settle()
    look_at_cancelled(desk.driver, 2.0)  # as with every tick
    last = [entry for entry in desk.driver.records if type(entry) is TaskEnded][-1]
    assert (last.task_id, last.state, last.attempt) == (0, JobState.KILLED, 2)
    desk.report(desk.start(1), (1, 0))
    assert desk.driver.nothing_to_do


def test_nothing_is_done_for_users_while_the_run_ends() -> None:
    desk = Desk(3)
    desk.report(desk.start(0), (0, 9))
    desk.start(1)
    stop(desk.driver, "asked to", 1.0)
    with pytest.raises(Refusal, match="the run ends"):
        cancel_task(desk.driver, 1, 1.0)
    with pytest.raises(Refusal, match="--retry-failed"):
        retry_task(desk.driver, 0, 1.0)

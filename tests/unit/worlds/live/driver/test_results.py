"""What becomes of tasks when an engine reports: final ends, further attempts, what is given back, and the counts that follow."""

from __future__ import annotations

import pytest

from pilothouse.formats.task_file import TaskLine
from pilothouse.model import events as e
from pilothouse.model.decisions import StartJob
from pilothouse.model.idset import IdSet
from pilothouse.model.lifecycle import JobState
from pilothouse.model.task_request import TaskRequest
from pilothouse.worlds.live.driver.decisions import apply
from pilothouse.worlds.live.driver.engine_frames import engine_vanished, frames, hear, tick
from pilothouse.worlds.live.driver.flow import MOST_AHEAD, begins, cancel, settle, stop
from pilothouse.worlds.live.driver.state import new_state
from pilothouse.worlds.live.feeder import Feeder
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.records import Returned, TaskEnded
from pilothouse.worlds.live.wire import messages as m

MEMORY_MB = 1000


class Lab:
    """A driver with one engine of two slots, whose first task runs."""

    def __init__(self, options: LiveOptions, *lines: TaskLine) -> None:
        self.driver = new_state(options)
        self.driver.feed(Feeder(iter(lines)))
        self.driver.backlog.pace.note(0.001)  # short tasks are bundled
        hello = m.Hello(context="c", node="n", slots=2, pid=1, started_at=0.0, memory_mb=MEMORY_MB)
        hear(self.driver, m.EngineFrame(m.VERSION, "a", 0, 0, 0, [hello]), 0.0)
        begins(self.driver, 0.0)
        self._seq = 0
        self.given = self.start()

    def start(self) -> m.Assignment:
        """The first job that waits is started; what its engine gets."""
        settle(self.driver, 0.0)
        self.driver.events.clear()
        job = next(group.job for group in self.driver.groups.values() if group.state is JobState.WAITING)
        apply(self.driver, StartJob(0.0, job.id, IdSet.of([0])), 0.0)
        found = [body for frame in frames(self.driver, 0.0) for body in frame.bodies if type(body) is m.Start]
        return found[-1].assignments[-1]

    def report(self, *results: m.Result, closed: bool = True, returned: tuple[int, ...] = ()) -> list[TaskEnded]:
        """The ends that are recorded."""
        self._seq += 1
        body = m.Report([m.Finished(self.given.id, list(results), closed, returned)])
        before = len(self.driver.records)
        hear(self.driver, m.EngineFrame(m.VERSION, "a", 1, self._seq, 9, [body]), 1.0)
        return [entry for entry in self.driver.records[before:] if type(entry) is TaskEnded]


def lab(options: LiveOptions | None = None, request: TaskRequest | None = None, tasks: int = 1) -> Lab:
    lines = [TaskLine(number, number + 1, -1, "true", request=request) for number in range(tasks)]
    return Lab(options or LiveOptions(bundle=tasks), *lines)


def ended(code: int = 0, reason: str = "", task: int = 0, attempt: int = 1) -> m.Result:
    return m.Result(task, attempt, code, 7, 0.0, 1.0, reason=reason)


@pytest.mark.parametrize(
    ("code", "reason", "state"),
    [
        (0, "", JobState.SUCCEEDED), (1, "", JobState.FAILED), (-9, "", JobState.FAILED), (-15, "walltime", JobState.TIMED_OUT),
        (-15, "killed", JobState.KILLED), (127, "no such program", JobState.FAILED),
    ],
)  # fmt: skip
def test_states_of_ends(code: int, reason: str, state: JobState) -> None:
    made = lab()
    [record] = made.report(ended(code, reason))
    assert (record.state, record.final, record.return_code) == (state, True, code)
    assert made.driver.counts[state] == 1
    proxy = made.driver.engines.present["a"]
    assert (proxy.done, proxy.failed) == ((1, 0) if state is JobState.SUCCEEDED else (0, 1))
    assert made.driver.running_tasks == 0


@pytest.mark.parametrize(
    ("of_run", "of_task", "attempts"),
    [(0, None, 1), (2, None, 3), (2, 0, 1), (0, 1, 2), (1, 3, 4)],
)
def test_attempts_of_a_task_that_fails(of_run: int, of_task: int | None, attempts: int) -> None:
    request = TaskRequest(retries=of_task) if of_task is not None else TaskRequest(cores=1)
    made = lab(LiveOptions(bundle=1, retries=of_run), request)
    for attempt in range(1, attempts + 1):
        assert made.driver.running_tasks == 1
        [record] = made.report(ended(1, attempt=attempt))
        assert (record.attempt, record.final) == (attempt, attempt == attempts)
        assert made.driver.running_tasks == 0
        if attempt < attempts:
            made.given = made.start()
            assert made.given.tasks[0].attempt == attempt + 1
    settle(made.driver, 1.0)
    assert made.driver.nothing_to_do


def test_what_succeeded_or_was_killed_is_not_tried_again() -> None:
    for code, reason in ((0, ""), (-15, "killed")):
        [record] = lab(LiveOptions(bundle=1, retries=5)).report(ended(code, reason))
        assert record.final


@pytest.mark.parametrize(("asks_mb", "final", "next_mb"), [(100, False, 200), (800, False, MEMORY_MB), (MEMORY_MB, True, 0)])
def test_a_task_that_ran_out_of_memory_asks_for_more(asks_mb: int, final: bool, next_mb: int) -> None:
    made = lab(LiveOptions(bundle=1, retry_memory=2.0), TaskRequest(memory_mb=asks_mb))
    [record] = made.report(ended(-9, f"{m.OUT_OF_MEMORY}: it used much"))
    assert record.final is final
    if not final:
        request = made.start().tasks[0].request
        assert request is not None
        assert request.memory_mb == next_mb


def test_a_lost_attempt_is_no_failed_one() -> None:
    """A task whose cylinder was killed runs again, and has all its retries still."""
    made = lab(LiveOptions(bundle=1, retries=1))
    [record] = made.report(ended(m.LOST_CODE, m.CYLINDER_KILLED))
    assert (record.state, record.final) == (JobState.LOST, False)
    made.given = made.start()
    [record] = made.report(ended(1, attempt=2))
    assert not record.final
    made.given = made.start()
    [record] = made.report(ended(1, attempt=3))
    assert record.final


def test_an_old_attempt_and_an_unknown_assignment_are_not_heard() -> None:
    made = lab()
    assert made.report(ended(attempt=2), closed=False) == []
    assert made.report(ended(task=5), closed=False) == []
    made.given = m.Assignment(made.given.id + 1, (0,), [])
    assert made.report(ended()) == []
    assert made.driver.running_tasks == 1


def test_tasks_that_are_given_back_wait_again() -> None:
    made = lab(tasks=3)
    assert made.driver.running_tasks == 3
    made.report(ended(), closed=False, returned=(1, 2))
    assert any(type(entry) is Returned and set(entry.tasks) == {1, 2} for entry in made.driver.records)
    assert made.driver.running_tasks == 0
    made.report(closed=True)
    settle(made.driver, 1.0)
    waits = [task for group in made.driver.groups.values() if group.state is JobState.WAITING for task in group.tasks]
    assert sorted(waits) == [1, 2]


def test_a_stopped_run_withdraws_what_waits_and_keeps_no_end_of_what_is_cut_off() -> None:
    made = lab(LiveOptions(bundle=1), tasks=3)
    settle(made.driver, 1.0)
    made.driver.events.clear()
    waiting = {group.job.id for group in made.driver.groups.values() if group.state is JobState.WAITING}
    assert waiting
    stop(made.driver, "enough", 1.0)
    assert {event.job_id for event in made.driver.events if type(event) is e.JobWithdrawn} == waiting
    assert made.driver.waiting == 0
    [record] = made.report(ended(-15, "killed"))
    assert (record.state, record.final) == (JobState.KILLED, False)
    assert made.driver.running_tasks == 0


@pytest.mark.parametrize("units", [1, 2])
def test_so_many_jobs_wait_that_a_decider_has_a_choice(units: int) -> None:
    """One for every free unit and some more."""
    lines = [TaskLine(number, number + 1, -1, "true") for number in range(500)]
    driver = new_state(LiveOptions(bundle=1, units=units))
    driver.feed(Feeder(iter(lines)))
    hello = m.Hello(context="c", node="n", slots=200, pid=1, started_at=0.0)
    hear(driver, m.EngineFrame(m.VERSION, "a", 0, 0, 0, [hello]), 0.0)
    begins(driver, 0.0)
    settle(driver, 0.0)
    assert driver.waiting == 200 + MOST_AHEAD
    for number, job_id in enumerate(list(driver.groups)[:90]):
        apply(driver, StartJob(0.0, job_id, IdSet.of(range(number * units, (number + 1) * units))), 0.0)
    settle(driver, 0.0)
    assert driver.waiting == max(200 + MOST_AHEAD - 90, 200 - 90 * units + MOST_AHEAD)


def test_signs_of_life_are_due_at_their_date() -> None:
    made = lab()
    frames(made.driver, 0.0)
    due = made.driver.engines.present["a"].speaks_at
    tick(made.driver, due - 0.1)
    assert "a" not in made.driver.speak_to
    tick(made.driver, due)
    assert "a" in made.driver.speak_to


LOST, KILLED = JobState.LOST, JobState.KILLED


@pytest.mark.parametrize(
    ("options", "fate", "state", "final"),
    [
        (LiveOptions(bundle=1), "", LOST, False), (LiveOptions(bundle=1, reissue=False), "", LOST, True),
        (LiveOptions(bundle=1, at_most_once=True), "", LOST, True), (LiveOptions(bundle=1, most_losses=1), "", LOST, True),
        (LiveOptions(bundle=1), "cancelled", KILLED, True), (LiveOptions(bundle=1), "stopped", LOST, False),
        (LiveOptions(bundle=1, reissue=False), "stopped", LOST, True),
    ],
)  # fmt: skip
def test_a_task_that_is_lost_with_its_engine(options: LiveOptions, fate: str, state: JobState, final: bool) -> None:
    made = lab(options)
    driver = made.driver
    if fate == "cancelled":
        cancel(driver, "0", 0.0)
    elif fate == "stopped":
        stop(driver, "enough", 0.0)
    driver.events.clear()
    engine_vanished(driver, "a", "gone", 1.0)
    (record,) = [entry for entry in driver.records if type(entry) is TaskEnded]
    assert (record.state, record.final, record.return_code, record.reason) == (state, final, m.LOST_CODE, "gone")
    assert driver.running_tasks == 0 and not driver.assignments
    waits_again = not final and not fate
    assert [type(event) for event in driver.events] == [e.JobRequeued if waits_again else e.JobEnded, e.NodesLeft]
    assert bool(driver.groups) is waits_again and driver.waiting == waits_again
    assert driver.counts[state] == final
    if waits_again:
        assert [task.attempt for task in driver.groups["0"].tasks.values()] == [2]


@pytest.mark.parametrize("begun", [set[int](), {0}, {0, 1, 2}])
def test_tasks_that_a_dead_engine_had_not_begun_are_not_lost(begun: set[int]) -> None:
    made = lab(LiveOptions(bundle=3), tasks=3)
    driver = made.driver
    (group,) = driver.groups.values()
    engine_vanished(driver, "a", "gone", 1.0, [m.Finished(made.given.id, [])], begun)
    assert {entry.task_id for entry in driver.records if type(entry) is TaskEnded} == begun
    assert {task.task_id: task.attempt for task in group.tasks.values()} == {number: 1 + (number in begun) for number in range(3)}
    assert driver.waiting == 1 and driver.running_tasks == 0 and group.state is JobState.WAITING


@pytest.mark.parametrize(("fail_fast", "code"), [(False, 1), (True, 0), (True, 1)])
def test_with_fail_fast_a_failed_task_stops_the_run(fail_fast: bool, code: int) -> None:
    made = lab(LiveOptions(bundle=1, fail_fast=fail_fast), tasks=3)
    made.report(ended(code))
    settle(made.driver, 2.0)
    assert made.driver.stopped_because == ("a task failed" if fail_fast and code else "")
    assert bool(made.driver.groups) is not bool(made.driver.stopped_because)

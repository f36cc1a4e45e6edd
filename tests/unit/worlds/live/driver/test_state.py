"""What the driver's state says of a run, and what single records change in it."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import msgspec
import pytest

from pilothouse.formats.task_file import LineKind, TaskLine
from pilothouse.model.decisions import CallAt, StartJob
from pilothouse.model.events import NoMoreJobs
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Command, Job
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.driver.decisions import apply
from pilothouse.worlds.live.driver.engine_frames import ask_to_leave, engine_vanished, frames, hear
from pilothouse.worlds.live.driver.flow import begins, settle, submit
from pilothouse.worlds.live.driver.state import MOST_FAILED_TASKS, DriverState, new_state, record
from pilothouse.worlds.live.feeder import Feeder
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.requests import ANSWER_NOTE, Answer, CancelTask
from pilothouse.worlds.live.wire import messages as m


def line(number: int) -> TaskLine:
    return TaskLine(number, number + 1, -1, "true")


def hello(engine: str = "a") -> m.EngineFrame:
    return m.EngineFrame(m.VERSION, engine, 0, 0, 0, [m.Hello(context="c", node="n", slots=1, pid=1, started_at=0.0)])


def waiting() -> DriverState:
    """Two tasks wait, an engine is idle, and the decider has been told of everything."""
    driver = new_state(LiveOptions(bundle=1))
    driver.feed(Feeder(iter([line(0), line(1)])))
    hear(driver, hello(), 0.0)
    begins(driver, 0.0)
    settle(driver, 0.0)
    driver.events.clear()
    return driver


def start(driver: DriverState) -> None:
    apply(driver, StartJob(0.0, "0", IdSet.of([0])), 0.0)


def expect(driver: DriverState) -> None:
    driver.engines.present["a"].welcomed = False


def close_all(driver: DriverState) -> None:
    ask_to_leave(driver, "a", "asked", 0.0)
    driver.events.clear()


def lose_all(driver: DriverState) -> None:
    engine_vanished(driver, "a", "gone", 0.0)
    driver.events.clear()


def feed_slowly(driver: DriverState) -> None:
    driver.feed(Feeder(iter([None])))


NOT_STUCK: dict[str, Callable[[DriverState], object]] = {
    "a task runs": start,
    "the decider has not been told all": lambda driver: driver.events.append(NoMoreJobs(0.0)),
    "the run is stopped": lambda driver: setattr(driver, "stopped_because", "enough"),
    "the decider will be called": lambda driver: apply(driver, CallAt(0.0, 5.0), 0.0),
    "an engine has not been heard": expect,
    "all engines leave": close_all,
    "there is no engine": lose_all,
    "more jobs may come": lambda driver: setattr(driver, "no_more", False),
    "the decider knows nothing yet": lambda driver: setattr(driver, "begun", False),
    "more lines may come": feed_slowly,
    "no job waits": lambda driver: setattr(driver, "waiting", 0),
}


def test_a_run_is_stuck_when_jobs_wait_and_nothing_is_to_come() -> None:
    driver = waiting()
    assert driver.stuck
    hear(driver, hello("b"), 0.0)
    driver.events.clear()
    ask_to_leave(driver, "b", "asked", 0.0)
    driver.events.clear()
    assert driver.stuck, "one engine is open"
    driver.backlog.feeder = None
    assert driver.stuck


@pytest.mark.parametrize("case", NOT_STUCK)
def test_a_run_is_not_stuck_while(case: str) -> None:
    driver = waiting()
    NOT_STUCK[case](driver)
    assert not driver.stuck


def test_a_line_that_is_not_asked_for_yet_is_none_to_wait_for() -> None:
    driver = waiting()
    driver.feed(Feeder(iter([line(5), None])))
    assert driver.stuck


def test_names_of_waiting_tasks() -> None:
    driver = waiting()
    submit(driver, Job("mine", 1, command=Command(line="true")), 0.0)
    settle(driver, 0.0)
    start(driver)
    assert driver.waiting_tasks == ("1", "mine")


def test_when_an_engine_comes_too_late() -> None:
    driver = waiting()
    assert not driver.too_late
    for name, value in (("stopped_because", "enough"), ("over", True), ("parting_until", 5.0)):
        driver = waiting()
        setattr(driver, name, value)
        assert driver.too_late is True


def test_a_service_waits_for_more() -> None:
    driver = new_state(LiveOptions(service=True))
    driver.feed(Feeder(iter([])))
    assert not driver.no_more and not driver.nothing_to_do
    driver.no_more = True
    assert driver.nothing_to_do
    submit(driver, Job("b", 1, after=("a",)), 0.0)
    assert not driver.nothing_to_do, "it is held"


@pytest.mark.parametrize(("kind", "has"), [(LineKind.TASK, False), (LineKind.ENGINE_START, True), (LineKind.ENGINE_STOP, True)])
def test_commands_of_engines(kind: LineKind, has: bool) -> None:
    driver = new_state(LiveOptions())
    assert not driver.has_engine_commands
    driver.feed(Feeder(iter([TaskLine(0, 1, -1, "x", kind)])))
    assert driver.has_engine_commands is has


def test_only_the_last_failed_tasks_are_remembered() -> None:
    driver = new_state(LiveOptions())
    for number in range(MOST_FAILED_TASKS + 2):
        driver.remember_failed(m.Task(number))
    assert len(driver.failed_tasks) == MOST_FAILED_TASKS
    assert next(iter(driver.failed_tasks)) == 2


def test_what_an_earlier_life_of_the_run_knows_of_a_line() -> None:
    driver = new_state(LiveOptions())
    driver.done.add(0, JobState.SUCCEEDED, 1)
    driver.done.add(1, JobState.FAILED, 1)
    assert [driver.known(line(number)) for number in range(3)] == [False, True, None]
    assert list(driver.failed_tasks) == [1], "a user may have it run once more"


@pytest.mark.parametrize(("session", "first"), [(1, 1), (2, 2**28 + 1)])
def test_numbers_of_assignments_begin_anew_with_each_session(session: int, first: int) -> None:
    assert new_state(LiveOptions(), session).next_assignment == first


def test_a_new_state() -> None:
    driver = new_state(LiveOptions(units=3, walltime=9.0, output_bytes=70, context_limits={"c": 4}))
    assert (driver.session, driver.unix_offset, driver.output_room, driver.context_limits) == (1, 0.0, 70, {"c": 4})
    group = driver.backlog.named_group("x", {})
    assert (group.job.units, group.job.walltime) == (3, 9.0)
    assert not (driver.begun or driver.over or driver.no_more or driver.told_no_more or driver.task_failed)
    assert (driver.parting_until, driver.next_task, driver.waiting, driver.answered) == (inf, 0, 0, 0)
    assert set(driver.counts.values()) == {0}


def ended(task: int, state: JobState = JobState.SUCCEEDED, *, job: str = "", number: int = 1, **more: object) -> r.TaskEnded:
    fields: dict[str, object] = {"out_bytes": 0, "err_bytes": 0, "kind": "N", "attempt": 1, **more}
    return r.TaskEnded(
        task_id=task, line_number=number, repeat_index=-1, state=state, return_code=0, rank=0, node="n", pid=1, started_at=0.0,
        ended_at=1.0, out_snippet=b"", err_snippet=b"", command=b"", job_id=job, **fields,  # type: ignore[arg-type]
    )  # fmt: skip


def test_output_that_is_kept_takes_room() -> None:
    driver = new_state(LiveOptions(output_bytes=100))
    record(driver, ended(0, out_bytes=30, err_bytes=20, left_out=5, output=9), 0.0)
    assert driver.output_room == 100 - 45
    record(driver, ended(1, out_bytes=30, err_bytes=20), 0.0)
    assert driver.output_room == 55, "nothing of it is kept"
    record(driver, ended(0, kind="P", out_bytes=1, output=9), 0.0)
    assert driver.output_room == 54 and driver.done.count == 2, "commands of engines are no tasks"


def test_losses_and_attempts_are_counted_until_a_task_has_ended() -> None:
    driver = new_state(LiveOptions())
    record(driver, ended(0, JobState.LOST, final=False), 0.0)
    record(driver, ended(0, JobState.FAILED, final=False, attempt=2), 0.0)
    record(driver, ended(0, JobState.LOST, final=False, attempt=3), 0.0)
    assert driver.losses == {0: 2} and driver.backlog.attempts == {0: 4}
    assert driver.counts[JobState.LOST] == 0 and 0 not in driver.done
    driver.backlog.cancelled.add(0)
    record(driver, ended(0, JobState.FAILED, attempt=4), 0.0)
    assert not driver.losses and not driver.backlog.attempts and not driver.backlog.cancelled
    assert driver.counts[JobState.FAILED] == 1 and driver.done.failed == {0: (JobState.FAILED, 4)}
    record(driver, r.Reopened(0, 0.0), 0.0)
    assert driver.counts[JobState.FAILED] == 0 and driver.backlog.attempts == {0: 5}


def test_barriers_are_no_tasks() -> None:
    driver = new_state(LiveOptions())
    record(driver, ended(0, kind="B"), 0.0)
    assert 0 in driver.done and driver.counts[JobState.SUCCEEDED] == 0 and not driver.just_ended


def test_ends_of_submitted_jobs_are_kept_for_those_that_wait_for_them() -> None:
    driver = new_state(LiveOptions())
    record(driver, r.JobKnown("j", 4, b""), 0.0)
    assert driver.next_task == 5 and "j" in driver.known_jobs
    record(driver, ended(4, job="j", number=0), 0.0)
    record(driver, ended(7, JobState.KILLED, job="k", number=0), 0.0)
    assert driver.outcomes == {"j": True, "k": False} and driver.just_ended == ["j", "k"]
    assert driver.next_task == 8 and not driver.known_jobs


def test_notes() -> None:
    driver = new_state(LiveOptions())
    record(driver, r.Note("limit of c", b"3"), 0.0)
    record(driver, r.Note("cancelled task 8", b""), 0.0)
    for number in (4, 2):
        answer = Answer(number, 0.0, CancelTask(1), done=True, text="x")
        record(driver, r.Note(f"{ANSWER_NOTE}{number}", msgspec.json.encode(answer)), 0.0)
    record(driver, r.Note("end of 5", b"killed"), 0.0)
    record(driver, r.Note("anything", b"else"), 0.0)
    assert (driver.context_limits, driver.backlog.cancelled, driver.answered) == ({"c": 3}, {8}, 4)
    assert not driver.restored_kills, "only a restarted driver needs it"


def test_a_welcome_says_all_that_an_engine_must_know() -> None:
    options = LiveOptions(
        heartbeat_s=3.0, lost_after_s=8.0, grace_s=5.0, linger_s=0.5, wait_for_driver_s=70.0, env={"A": "b"}, task_env="T={task}"
    )
    driver = new_state(options)
    driver.kept_output["k"] = 12
    commands = [TaskLine(0, 1, -1, "prepare", LineKind.ENGINE_START), TaskLine(0, 2, -1, "save", LineKind.ENGINE_STOP)]
    driver.feed(Feeder(iter([*commands, line(0)])))
    said = m.Hello(context="c", node="n", slots=1, pid=1, started_at=0.0, properties={"key": "k"})
    hear(driver, m.EngineFrame(m.VERSION, "a", 0, 0, 0, [said]), 0.0)
    ((welcome,),) = [frame.bodies for frame in frames(driver, 0.0)]
    own = {"PILOTHOUSE_ENGINE": "0", "PILOTHOUSE_NODE": "n", "DISBATCH_ENGINE_RANK": "0"}
    assert welcome == m.Welcome(
        rank=0, env={"A": "b", **own}, task_env="T={task}", heartbeat_s=2.0, wait_for_driver_s=70.0, grace_s=5.0, first_unit=0,
        on_join=[m.Task(0, 1, line=b"prepare")], on_leave=[m.Task(0, 2, line=b"save")], linger_s=0.5, kept=12,
    )  # fmt: skip

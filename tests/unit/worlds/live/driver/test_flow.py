"""Work on its way to the decider: jobs that wait for others, windows, what is stopped, and when a run is over."""

from __future__ import annotations

from math import inf

import msgspec
import pytest

from pilothouse.formats.task_file import LineKind, TaskLine
from pilothouse.model import events as e
from pilothouse.model.decisions import RejectJob, StartJob, StopWorld
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Command, Job, Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, Profile
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.driver.decisions import apply
from pilothouse.worlds.live.driver.engine_frames import ask_to_leave, engine_vanished, frames, hear, tick
from pilothouse.worlds.live.driver.flow import (
    FIRST_SUBMITTED,
    MOST_AHEAD,
    PARTING_S,
    begins,
    cancel,
    enough,
    settle,
    stop,
    submit,
)
from pilothouse.worlds.live.driver.restore import restore
from pilothouse.worlds.live.driver.state import DriverState, new_state
from pilothouse.worlds.live.feeder import Feeder
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.wire import messages as m


def joined(driver: DriverState, engine: str = "a", slots: int = 2, ends_at: float = inf) -> None:
    hello = m.Hello(context="c", node=engine, slots=slots, pid=1, started_at=0.0, ends_at=ends_at)
    hear(driver, m.EngineFrame(m.VERSION, engine, 0, 0, 0, [hello]), 0.0)


def begun(options: LiveOptions | None = None, *lines: TaskLine | None) -> DriverState:
    """A driver whose decider knows one engine of two slots."""
    driver = new_state(options or LiveOptions(bundle=1), unix_offset=100.0)
    if lines:
        driver.feed(Feeder(iter(lines), driver.known))
    joined(driver)
    begins(driver, 0.0)
    frames(driver, 0.0)
    settle(driver, 0.0)
    return driver


def tasks(count: int) -> list[TaskLine]:
    return [TaskLine(number, number + 1, -1, "true") for number in range(count)]


def told(driver: DriverState, kind: type[e.Event]) -> list[e.Event]:
    return [event for event in driver.events if type(event) is kind]


def ends(driver: DriverState) -> dict[str, tuple[JobState, str]]:
    return {entry.job_id: (entry.state, entry.reason) for entry in driver.records if type(entry) is r.TaskEnded}


def job(name: str, *after: str) -> Job:
    return Job(name, 1, after=after, command=Command(line="true"))


def test_a_job_is_held_until_those_before_it_have_succeeded() -> None:
    driver = begun()
    for name, after in (("a", ()), ("b", ("a",)), ("c", ("b",))):
        submit(driver, job(name, *after), 0.0)
    settle(driver, 0.0)
    assert list(driver.groups) == ["a"] and [group.state for group in driver.dependencies.held.values()] == [JobState.HELD] * 2
    apply(driver, StartJob(0.0, "a", IdSet.of([0])), 0.0)
    report(driver, 1, m.Result(0, 1, 0, 7, 0.0, 1.0))
    settle(driver, 0.0)
    assert list(driver.groups) == ["b"]
    apply(driver, RejectJob(1.0, "b", "too large"), 1.0)
    settle(driver, 1.0)
    assert ends(driver)["b"] == (JobState.REFUSED, "too large")
    assert ends(driver)["c"] == (JobState.OMITTED, "job b did not succeed")
    submit(driver, job("d", "b"), 1.0)
    assert ends(driver)["d"] == (JobState.OMITTED, "a job that it waits for did not succeed")
    assert not driver.dependencies.held and not driver.groups and not driver.waiting


def report(driver: DriverState, seq: int, *results: m.Result, closed: bool = True) -> None:
    number = next(iter(driver.assignments))
    body = m.Report([m.Finished(number, list(results), closed)])
    hear(driver, m.EngineFrame(m.VERSION, "a", driver.session, seq, 9, [body]), 1.0)


def test_a_job_can_be_cancelled_wherever_it_is() -> None:
    driver = begun(LiveOptions(window=1))
    for name, after in (("shown", ()), ("queued", ()), ("held", ("shown",))):
        submit(driver, job(name, *after), 0.0)
    settle(driver, 0.0)
    assert list(driver.groups) == ["shown"]
    for name in ("queued", "held", "shown"):
        assert cancel(driver, name, 0.0)
        assert ends(driver)[name] == (JobState.KILLED, "cancelled")
        assert not cancel(driver, name, 0.0), "it is over"
    assert told(driver, e.JobWithdrawn) == [e.JobWithdrawn(0.0, "shown")], "of the others the decider was never told"
    settle(driver, 0.0)
    assert not driver.groups and driver.waiting == 0 and driver.backlog.empty
    assert not cancel(driver, "unknown", 0.0)


def test_a_job_that_runs_is_killed_when_it_is_cancelled() -> None:
    driver = begun()
    submit(driver, job("a"), 0.0)
    settle(driver, 0.0)
    apply(driver, StartJob(0.0, "a", IdSet.of([0])), 0.0)
    frames(driver, 0.0)
    assert cancel(driver, "a", 0.0)
    (frame,) = frames(driver, 0.0)
    assert frame.bodies == [m.Kill((1,), "killed")] and "a" in driver.groups


@pytest.mark.parametrize("spent", [False, True])
def test_a_job_whose_node_is_about_to_leave_waits_for_another_decision(spent: bool) -> None:
    driver = begun(None, *tasks(1))
    if spent:
        driver.context_limits["c"] = 0
    else:
        ask_to_leave(driver, "a", "asked", 0.0)
    apply(driver, StartJob(0.0, "0", IdSet.of([0])), 0.0)
    (event,) = told(driver, e.JobRequeued)
    assert event == e.JobRequeued(0.0, "0", "its node left before it started")
    assert driver.waiting == 1 and not driver.assignments and driver.groups["0"].units == IdSet()


def test_a_job_that_is_started_when_its_engine_is_gone_or_the_run_is_stopped() -> None:
    driver = begun(None, *tasks(2))
    engine_vanished(driver, "a", "gone", 0.0)
    apply(driver, StartJob(0.0, "0", IdSet.of([0])), 0.0)
    assert [event.job_id for event in told(driver, e.JobRequeued)] == ["0"]  # type: ignore[union-attr]
    joined(driver, "b")
    stop(driver, "enough", 0.0)
    driver.events.clear()
    apply(driver, StartJob(0.0, "1", IdSet.of([2])), 0.0)
    assert driver.events == [e.JobEnded(0.0, "1", JobState.KILLED, -15, IdSet.of([2]))], "it was withdrawn in the same batch"


def test_what_comes_back_after_a_stop_is_left_for_a_resumed_run() -> None:
    driver = begun(None, *tasks(1))
    apply(driver, StartJob(0.0, "0", IdSet.of([1])), 0.0)
    apply(driver, StopWorld(0.0), 0.0)
    assert driver.stopped_because == "the decider stopped the run"
    report(driver, 1)
    assert told(driver, e.JobEnded) == [e.JobEnded(1.0, "0", JobState.SUCCEEDED, 0, IdSet.of([1]))]
    assert not ends(driver) and driver.nothing_to_do and driver.running_tasks == 0


def test_a_spanning_job_that_lost_a_node_ends_with_the_stopped_run() -> None:
    driver = begun()
    joined(driver, "b")
    submit(driver, Job("wide", 3, command=Command(line="true")), 0.0)
    settle(driver, 0.0)
    apply(driver, StartJob(0.0, "wide", IdSet.of([0, 1, 2])), 0.0)
    assert driver.spanning == {"wide"}
    engine_vanished(driver, "b", "gone", 0.0)
    stop(driver, "enough", 0.0)
    report(driver, 1)
    (ended,) = told(driver, e.JobEnded)
    assert ended == e.JobEnded(1.0, "wide", JobState.KILLED, -15, IdSet.of([0, 1, 2])) and not driver.spanning


def test_a_second_reason_to_stop_changes_nothing() -> None:
    driver = begun(None, *tasks(1))
    stop(driver, "first", 0.0)
    frames(driver, 0.0)
    stop(driver, "second", 0.0)
    assert driver.stopped_because == "first" and driver.no_more and not frames(driver, 0.0)


@pytest.mark.parametrize(("stopped", "commands"), [(False, False), (True, False), (True, True)])
def test_a_run_is_over_when_its_engines_have_had_time_to_leave(stopped: bool, commands: bool) -> None:
    line = TaskLine(0, 1, -1, "save", LineKind.ENGINE_STOP)
    driver = begun(None, *([line] if commands else []), *(tasks(1) if stopped else []))
    driver.no_more = True
    if stopped:
        stop(driver, "enough", 5.0)
    settle(driver, 5.0)
    assert driver.parting_until == 5.0 + PARTING_S and driver.too_late and not driver.over
    settle(driver, 5.0 + PARTING_S)
    assert not driver.over
    settle(driver, 5.1 + PARTING_S)
    assert driver.over


def test_a_run_is_over_at_once_when_the_last_engine_has_left() -> None:
    driver = begun()
    driver.no_more = True
    settle(driver, 1.0)
    assert [frame.bodies for frame in frames(driver, 1.0)] == [[m.Leave("all work is done", False)]]
    hear(driver, m.EngineFrame(m.VERSION, "a", 1, 1, 9, [m.Bye()]), 2.0)
    assert not told(driver, e.NodesLeft), "no news for a decider any more"
    settle(driver, 2.0)
    assert driver.over


def test_no_more_jobs_is_said_once_and_not_before_the_file_ends() -> None:
    driver = begun(LiveOptions(bundle=1, window=2), *tasks(4))
    assert not told(driver, e.NoMoreJobs), "two tasks have not been read"
    for seq in range(1, 5):
        apply(driver, StartJob(0.0, str(seq - 1), IdSet.of([0])), 0.0)
        report(driver, seq, m.Result(seq - 1, 1, 0, 7, 0.0, 1.0))
        settle(driver, 1.0)
    assert told(driver, e.NoMoreJobs) == [e.NoMoreJobs(1.0)]


@pytest.mark.parametrize("has_file", [False, True])
def test_numbers_of_submitted_jobs_are_above_those_of_the_file(has_file: bool) -> None:
    driver = begun(LiveOptions(service=True), *(tasks(1) if has_file else []))
    numbers = [submit(driver, Job(name, 1), 0.0) for name in ("a", "b")]
    first = FIRST_SUBMITTED if has_file else 0
    assert numbers == [first, first + 1]
    settle(driver, 0.0)
    assert cancel(driver, "b", 0.0)
    again = new_state(LiveOptions(), 2)
    restore(again, driver.records, 0.0)
    assert again.next_task == first + 2, "its end is known, though it was never given a command"
    assert again.outcomes == {"b": False}


def test_the_record_of_a_job_has_what_a_live_run_needs() -> None:
    driver = begun()
    raw = msgspec.Raw(b'{"x": 1}')
    shape = Shape(nodes=1, most_nodes=1, gpus_per_node=1, queue="q")
    for number, changed in enumerate(
        (
            Job("0", 1, 5.0, shape=shape),
            Job("0", 1, 5.0, shape=msgspec.structs.replace(shape, constraint=raw)),
            Job("0", 1, 5.0, shape=shape, profile=Profile("p", Delay(1.0))),
            Job("0", 1, 5.0, shape=shape, source=raw),
        )
    ):
        changed.id, changed.command, changed.user, changed.after = str(number), Command(line="true"), "me", ("x",)
        submit(driver, changed, 0.0)
    known = [entry for entry in driver.records if type(entry) is r.JobKnown]
    for number, entry in enumerate(known):
        found = r.job_from(entry.data)
        assert (found.id, entry.job_id, found.units, found.walltime, found.user) == (str(number), str(number), 1, 5.0, "me")
        assert (found.shape, found.profile, found.source, found.after) == (shape, None, None, ("x",))
    submit(driver, Job("4", 1, command=Command(line="true"), source=raw), 0.0)
    last = driver.records[-1]
    assert type(last) is r.JobKnown and r.job_from(last.data).shape is None


@pytest.mark.parametrize(
    ("units", "busy", "jobs"),
    [(0, 0, 8), (1, 0, 8), (6, 6, 9), (20, 0, 30), (100, 0, 150), (1000, 0, 1000 + MOST_AHEAD), (1000, 1000, MOST_AHEAD)],
)
def test_how_many_jobs_are_enough(units: int, busy: int, jobs: int) -> None:
    assert enough(units, busy) == jobs
    assert enough(units, units + 5) == enough(units, units), "bundles may be larger than what is there"


@pytest.mark.parametrize(("walltime", "sizes"), [(inf, [4]), (9.0, [1, 1, 1, 1])])
def test_tasks_with_a_walltime_are_not_bundled(walltime: float, sizes: list[int]) -> None:
    driver = new_state(LiveOptions(walltime=walltime))
    driver.feed(Feeder(iter(tasks(4))))
    driver.backlog.pace.note(0.001)
    joined(driver)
    begins(driver, 0.0)
    settle(driver, 0.0)
    assert [len(group.tasks) for group in driver.groups.values()] == sizes


def test_an_engine_that_comes_too_early_is_answered_once_without_a_word() -> None:
    """It will say hello again: the source may still name a command that it must run first."""
    driver = new_state(LiveOptions(), 3)
    driver.feed(Feeder(iter([None, None, *tasks(1)])))
    joined(driver)
    assert frames(driver, 0.0) == [m.DriverFrame(m.VERSION, "a", 3, 0, 0, [])] and frames(driver, 0.0) == []
    joined(driver)
    assert [type(body) for frame in frames(driver, 0.0) for body in frame.bodies] == [m.Welcome]


@pytest.mark.parametrize(("mean_s", "walltime", "task_s"), [(inf, inf, 0.0), (4.0, inf, 4.0), (4.0, 30.0, 30.0)])
def test_an_engine_gets_no_work_that_its_allocation_does_not_outlast(mean_s: float, walltime: float, task_s: float) -> None:
    driver = new_state(LiveOptions(walltime=walltime, grace_s=10.0), unix_offset=100.0)
    if mean_s != inf:
        driver.backlog.pace.note(mean_s)
    joined(driver, ends_at=100.0 + 60.0)
    begins(driver, 0.0)
    proxy = driver.engines.present["a"]
    assert proxy.ends_at == 60.0
    last = 60.0 - task_s - 10.0
    proxy.heard_at = last
    reasons = []
    for at in (last, last + 0.1):
        tick(driver, at)
        reasons.append(proxy.closed_for)
    assert reasons == ["", "its allocation ends"]
    assert told(driver, e.UnitsUnavailable) == [e.UnitsUnavailable(last + 0.1, IdSet.of([0, 1]))]
    tick(driver, last + 0.2)
    assert len(told(driver, e.UnitsUnavailable)) == 1


@pytest.mark.parametrize(
    ("code", "reason", "state"),
    [
        (0, "", JobState.SUCCEEDED), (1, "", JobState.FAILED), (-15, "walltime", JobState.TIMED_OUT),
        (-15, "killed", JobState.KILLED),
    ],
)  # fmt: skip
def test_a_job_ends_as_its_tasks_did(code: int, reason: str, state: JobState) -> None:
    driver = begun(None, *tasks(1))
    group = driver.groups["0"]
    states = [group.state]
    apply(driver, StartJob(0.0, "0", IdSet.of([1])), 0.0)
    states.append(group.state)
    report(driver, 1, m.Result(0, 1, code, 7, 0.0, 1.0, reason=reason))
    assert [*states, group.state] == [JobState.WAITING, JobState.RUNNING, state]
    assert told(driver, e.JobEnded) == [e.JobEnded(1.0, "0", state, code, IdSet.of([1]))]


@pytest.mark.parametrize(("omitted", "state"), [(False, JobState.REFUSED), (True, JobState.OMITTED)])
def test_a_job_that_is_rejected(omitted: bool, state: JobState) -> None:
    driver = begun(None, *tasks(1))
    group = driver.groups["0"]
    apply(driver, RejectJob(2.0, "0", omitted=omitted), 2.0)
    assert group.state is state and ends(driver) == {"0": (state, state.value)}
    assert [entry for entry in driver.records if type(entry) is r.Refused] == [r.Refused("0", 102.0, "")]
    apply(driver, RejectJob(2.0, "0"), 2.0)
    assert len(ends(driver)) == 1 and driver.waiting == 0


def test_an_engine_on_which_a_job_of_several_nodes_runs_is_not_idle() -> None:
    driver = begun(LiveOptions(retire_idle=True))
    for engine in "bcd":
        joined(driver, engine)
    for number, units in enumerate((range(1, 3), range(5, 7))):
        submit(driver, Job(f"wide{number}", 2, command=Command(line="true")), 0.0)
        settle(driver, 0.0)
        apply(driver, StartJob(0.0, f"wide{number}", IdSet.of(units)), 0.0)
    joined(driver, "e")
    driver.no_more = True
    settle(driver, 0.0)
    assert driver.spanning == {"wide0", "wide1"} and driver.told_no_more
    assert {name for name, proxy in driver.engines.present.items() if proxy.closed_for} == {"e"}
    assert driver.engines.present["e"].closed_for == "no more tasks"


def test_gpus_are_given_by_name_and_given_back() -> None:
    driver = new_state(LiveOptions(bundle=1, shape=Shape(gpus_per_node=1, memory_mb_per_node=50)))
    driver.feed(Feeder(iter(tasks(3))))
    hello = m.Hello(context="c", node="n", slots=2, pid=1, started_at=0.0, gpus=("g0", "g1"))
    hear(driver, m.EngineFrame(m.VERSION, "a", 0, 0, 0, [hello]), 0.0)
    begins(driver, 0.0)
    settle(driver, 0.0)

    def start(name: str, unit: int) -> tuple[tuple[str, ...], str, int]:
        frames(driver, 0.0)
        apply(driver, StartJob(0.0, name, IdSet.of([unit])), 0.0)
        (start,) = [body for frame in frames(driver, 0.0) for body in frame.bodies if type(body) is m.Start]
        (assignment,) = start.assignments
        (given,) = [entry for entry in driver.records if type(entry) is r.Assigned and entry.job_id == name]
        return assignment.gpus, given.gpus, given.memory_mb

    free = driver.engines.present["a"].free_gpus
    assert start("0", 0) == (("g0",), "a=g0", 50) and free == ["g1"]
    assert start("1", 1) == (("g1",), "a=g1", 50) and free == []
    report(driver, 1, m.Result(0, 1, 0, 7, 0.0, 1.0))
    assert free == ["g0"]
    assert start("2", 0) == (("g0",), "a=g0", 50)
    engine_vanished(driver, "a", "gone", 2.0)
    assert all(not group.gpus for group in driver.groups.values())

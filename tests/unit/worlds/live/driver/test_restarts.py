"""What a restarted driver must know of the one before: names of jobs, limits of contexts, what was to be ended."""

from __future__ import annotations

import pytest

from pilothouse.formats.task_file import TaskLine
from pilothouse.model import events as e
from pilothouse.model.decisions import KillJobs, StartJob
from pilothouse.model.idset import IdSet
from pilothouse.worlds.live.driver.decisions import apply
from pilothouse.worlds.live.driver.engine_frames import engine_vanished, frames, hear
from pilothouse.worlds.live.driver.flow import begins, settle
from pilothouse.worlds.live.driver.restore import restore
from pilothouse.worlds.live.driver.state import KILL_NOTE, DriverState, new_state
from pilothouse.worlds.live.feeder import Feeder
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.records import Assigned, EngineJoined, EngineLeft, Note
from pilothouse.worlds.live.wire import messages as m


def hello(**properties: str) -> m.EngineFrame:
    said = m.Hello(context="c", node="n", slots=4, pid=1, started_at=0.0, properties=properties)
    return m.EngineFrame(m.VERSION, "a", 0, 0, 0, [said])


def fed(driver: DriverState, tasks: int) -> DriverState:
    driver.feed(Feeder((TaskLine(number, number + 1, -1, "true") for number in range(tasks)), driver.known))
    driver.backlog.pace.note(0.001)
    return driver


def shown(driver: DriverState) -> list[str]:
    """The jobs that the decider is told of."""
    settle(driver, 0.0)
    found = [event.job.id for event in driver.events if type(event) is e.JobSubmitted]
    driver.events.clear()
    return found


def test_no_job_has_the_name_of_one_that_an_earlier_driver_started() -> None:
    """Of a bundle of three the first task failed and is tried again, the others still run. The next bundle begins with that
    task and has three tasks as well."""
    options = LiveOptions(bundle=3, retries=1, window=1)
    driver = fed(new_state(options), 9)
    hear(driver, hello(), 0.0)
    begins(driver, 0.0)
    (name,) = shown(driver)
    apply(driver, StartJob(0.0, name, IdSet.of([0])), 0.0)
    (number,) = driver.assignments
    frames(driver, 0.0)
    failed = m.Report([m.Finished(number, [m.Result(0, 1, 1, 7, 0.0, 0.001)])])
    hear(driver, m.EngineFrame(m.VERSION, "a", 1, 1, 1, [failed]), 0.0)
    again = new_state(LiveOptions(bundle=5, retries=1, window=1), 2)
    restore(again, driver.records, 0.0)
    assert list(again.groups) == [name] and set(again.groups[name].tasks) == {1, 2}
    fed(again, 9)
    begins(again, 0.0)
    (another,) = shown(again)
    assert list(again.groups[another].tasks) == [0, 3, 4]
    assert name != another and set(again.groups) == {name, another}


def test_the_limit_that_an_engine_announced_holds_after_a_restart() -> None:
    driver = fed(new_state(LiveOptions(bundle=1)), 5)
    hear(driver, hello(task_limit="2"), 0.0)
    hear(driver, hello(task_limit="9"), 0.0)
    again = new_state(LiveOptions(bundle=1), 2)
    restore(again, driver.records, 0.0)
    assert again.context_limits == driver.context_limits == {"c": 2}


def test_a_limit_of_the_run_comes_before_that_of_an_engine() -> None:
    driver = new_state(LiveOptions(context_limits={"c": 7}))
    hear(driver, hello(task_limit="2"), 0.0)
    assert driver.context_limits == {"c": 7}


@pytest.mark.parametrize(
    ("limit", "reason"), [("0", "task limit of its context"), ("1", ""), ("", ""), ("x", ""), ("-1", "")]
)
def test_an_engine_whose_context_may_be_given_nothing_is_asked_to_leave(limit: str, reason: str) -> None:
    driver = fed(new_state(LiveOptions()), 1)
    hear(driver, hello(task_limit=limit), 0.0)
    assert driver.engines.present["a"].closed_for == reason
    assert driver.context_limits == ({"c": int(limit)} if limit.isdigit() else {})


def test_jobs_are_killed_in_the_order_of_the_decision() -> None:
    names = [str(number) for number in range(4)]
    driver = fed(new_state(LiveOptions(bundle=1)), 4)
    hear(driver, hello(), 0.0)
    begins(driver, 0.0)
    for unit, name in enumerate(shown(driver)):
        apply(driver, StartJob(0.0, name, IdSet.of([unit])), 0.0)
    for wanted in (["3", "1", "0", "2"], names):
        driver.records.clear()
        apply(driver, KillJobs(0.0, tuple(wanted)), 0.0)
        assert [record.name for record in driver.records if type(record) is Note] == [f"{KILL_NOTE}{name}" for name in wanted]


def test_a_job_that_spans_a_lost_node_is_sent_again_with_the_nodes_that_are_left_and_ended() -> None:
    """Its engine had not got it when the driver ended; meanwhile a node of it was lost."""
    driver = new_state(LiveOptions(), 2)
    joined = [EngineJoined(name, rank, "c", name, 2, rank * 2, 1, 0.0) for rank, name in enumerate("abc")]
    given = Assigned(5, "7", "a", "0-5", 0.0, [m.Task(7, line=b"x")])
    restore(driver, [*joined, given, EngineLeft("b", 1.0, "gone", True)], 0.0)
    hear(driver, hello(), 0.0)
    ((frame, welcome),) = [(frame, frame.bodies[0]) for frame in frames(driver, 0.0) if frame.engine == "a"]
    assert type(welcome) is m.Welcome and welcome.assignments == (5,)
    start, kill = frame.bodies[1:]
    assert type(start) is m.Start and start.assignments[0].nodes == "a:2,c:2"
    assert kill == m.Kill((5,), "a node of it was lost")


def test_the_first_event_of_a_restarted_run_is_its_beginning() -> None:
    """Its engine was found gone before the decider was there: the job waits."""
    driver = new_state(LiveOptions(), 2)
    joined = EngineJoined("a", 0, "c", "n", 4, 0, 1, 0.0)
    restore(driver, [joined, Assigned(5, "7", "a", "0", 0.0, [m.Task(7, line=b"x")])], 0.0)
    assert not driver.restored, "nothing of it is needed any more"
    engine_vanished(driver, "a", "gone", 1.0)
    begins(driver, 2.0)
    began, submitted = driver.events
    assert type(began) is e.Began and not began.begins.nodes
    assert type(submitted) is e.JobSubmitted and submitted.job.id == "7"


def test_what_a_decider_is_told_of_engines_that_have_not_been_heard() -> None:
    driver = new_state(LiveOptions(), 2)
    joined = [EngineJoined(name, rank, "c", name, 2, rank * 2, 1, 0.0) for rank, name in enumerate("ab")]
    restore(driver, [*joined, Assigned(5, "7", "a", "0-1", 0.0, [m.Task(7, line=b"x")])], 0.0)
    hear(driver, hello(), 1.0)
    found = begins(driver, 2.0)
    assert [node.name for node in found.nodes] == ["a", "b"] and found.started_at == 2.0 and not found.time_waits
    assert found.unavailable == IdSet.of([2, 3]), "b has not been heard"
    (running,) = found.running
    assert (running.job.id, running.units, running.started_at) == ("7", IdSet.of([0, 1]), 2.0)

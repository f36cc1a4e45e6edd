"""The driver on its own: what it asks of engines, step by step."""

from __future__ import annotations

from math import inf

import msgspec
import pytest

from pilothouse.formats.task_file import LineKind, TaskLine
from pilothouse.model.decisions import KillJobs, StartJob
from pilothouse.model.events import JobsKilled
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Command, Job
from pilothouse.worlds.live.driver.decisions import apply
from pilothouse.worlds.live.driver.engine_frames import ask_to_leave, engine_vanished, frames, hear, tick
from pilothouse.worlds.live.driver.engines import SPARE_UNITS, ProxyState
from pilothouse.worlds.live.driver.flow import begins, bind, settle, stop, submit
from pilothouse.worlds.live.driver.restore import restore
from pilothouse.worlds.live.driver.state import DriverState, new_state
from pilothouse.worlds.live.engine.engine import Engine, EngineState
from pilothouse.worlds.live.engine.instructions import Go
from pilothouse.worlds.live.feeder import Feeder, Feeding
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.records import Assigned, EngineJoined, EngineLeft, JobKnown, TaskEnded
from pilothouse.worlds.live.wire.messages import (
    VERSION,
    Assignment,
    Bye,
    Dismiss,
    DriverFrame,
    EngineFrame,
    Finished,
    FromDriver,
    FromEngine,
    Hello,
    Kill,
    Leave,
    Report,
    Result,
    Start,
    Task,
)


class Table:
    """A driver, and the engines that talk with it."""

    def __init__(self, options: LiveOptions | None = None, tasks: int = 0) -> None:
        self.driver = new_state(options or LiveOptions(bundle=1))
        if tasks:
            self.driver.feed(Feeder(TaskLine(i, i + 1, -1, "true") for i in range(tasks)))
        self._seq: dict[str, int] = {}
        self._acks: dict[str, int] = {}

    def join(self, engine: str, slots: int = 1, properties: dict[str, str] | None = None, *, node: str = "") -> None:
        hello = Hello(
            context="c", node=node or engine, slots=slots, pid=1, started_at=0.0, properties=properties or {}
        )  # fmt: skip
        hear(self.driver, EngineFrame(VERSION, engine, 0, 0, 0, [hello]), 0.0)

    def say(self, engine: str, *bodies: FromEngine) -> None:
        seq = self._seq[engine] = self._seq.get(engine, 0) + 1
        ack = self._acks.get(engine, 0)
        hear(self.driver, EngineFrame(VERSION, engine, 1, seq, ack, list(bodies)), 1.0)

    def sent(self, kind: type[FromDriver]) -> list[tuple[str, FromDriver]]:
        """What engines are told now, of one kind."""
        settle(self.driver, 1.0)
        found = []
        for frame in frames(self.driver, 1.0):
            self._acks[frame.engine] = frame.seq
            found += [(frame.engine, body) for body in frame.bodies if type(body) is kind]
        return found


def _started(table: Table, *units: int) -> list[Start]:
    """Starts what waits, each on a unit, and returns what engines are told."""
    table.sent(Start)
    for job_id, unit in zip(list(table.driver.groups), units, strict=False):
        apply(table.driver, StartJob(0.0, job_id, IdSet.of([unit])), 0.0)
    return [start for _, start in table.sent(Start) if isinstance(start, Start)]


def test_engines_without_work_leave_while_others_work() -> None:
    table = Table(LiveOptions(bundle=1, retire_idle=True), tasks=2)
    for engine in ("a", "b", "c"):
        table.join(engine)
    begins(table.driver, 0.0)
    first, second = _started(table, 0, 1)
    assert [engine for engine, _ in table.sent(Leave)] == []  # Start and Leave went out together.
    assert table.driver.engines.present["c"].closed_for == "no more tasks"
    assert not table.driver.engines.present["a"].closed_for
    (done,) = first.assignments
    result = Result(done.tasks[0].task_id, 1, 0, 7, 0.0, 1.0)
    table.say("a", Report([Finished(done.id, [result], closed=True)]))
    assert [engine for engine, _ in table.sent(Leave)] == ["a"]
    table.say("c", Bye())
    # The last engine that works is lost: its task waits, and an engine that comes gets it.
    engine_vanished(table.driver, "b", "gone", 1.0)
    table.join("d")
    assert not table.driver.engines.present["d"].closed_for
    (again,) = _started(table, table.driver.engines.present["d"].node.first)
    assert again.assignments[0].tasks[0].task_id == second.assignments[0].tasks[0].task_id


def test_engines_stay_where_their_run_says_so_and_while_work_may_come() -> None:
    table = Table(tasks=1)
    table.join("a")
    table.join("b")
    begins(table.driver, 0.0)
    _started(table, 0)
    assert not table.driver.engines.present["b"].closed_for
    table = Table(LiveOptions(bundle=1, retire_idle=True))
    lines = [TaskLine(0, 1, -1, "true"), TaskLine(1, 2, -1, "", LineKind.BARRIER), TaskLine(2, 3, -1, "true")]
    table.driver.feed(Feeder(iter(lines)))
    table.join("a")
    table.join("b")
    begins(table.driver, 0.0)
    _started(table, 0)
    assert not table.driver.engines.present["b"].closed_for, "a task comes after the barrier"


def _spanning_two(table: Table) -> Start:
    """Starts a job on the units 0 and 1; returns what the first of their engines is told."""
    submit(table.driver, Job("wide", 2, command=Command(line="true")), 0.0)
    begins(table.driver, 0.0)
    table.sent(Start)
    apply(table.driver, StartJob(0.0, "wide", IdSet.of([0, 1])), 0.0)
    ((engine, start),) = table.sent(Start)
    assert engine == "a"
    assert isinstance(start, Start)
    return start


def test_a_job_is_recorded_when_it_is_bound_to_a_command() -> None:
    table, again = Table(), Table()
    submit(table.driver, Job("later", 1), 0.0)
    table.join("a")
    begins(table.driver, 0.0)
    table.sent(Start)
    assert not [record for record in table.driver.records if type(record) is JobKnown]
    command = Command(argv=("echo", "4"), cwd="/tmp")
    bind(table.driver, "unknown", command, 0.0)
    bind(table.driver, "later", command, 0.0)
    (start,) = _started(table, 0)
    (assignment,) = start.assignments
    assert (assignment.tasks[0].argv, assignment.environment.cwd) == ((b"echo", b"4"), "/tmp")
    restore(again.driver, table.driver.records, 0.0)
    assert again.driver.groups["later"].job.command == command


def test_a_bundle_is_cut_to_what_its_context_may_be_given() -> None:
    table = Table(LiveOptions(bundle=100, context_limits={"c": 3}), tasks=50)
    table.driver.backlog.pace.note(0.001)
    table.join("a")
    begins(table.driver, 0.0)
    (start,) = _started(table, 0)
    assert [order.task_id for order in start.assignments[0].tasks] == [0, 1, 2]
    assert start.assignments[0].cut_after == inf  # it gives nothing back, or it would run fewer
    assert table.driver.engines.present["a"].state is ProxyState.LEAVING
    rest = len(table.driver.waiting_tasks) + table.driver.backlog.waiting_here
    assert rest == 47  # for others


def test_limits_and_kills_survive_the_driver() -> None:
    table = Table(LiveOptions(bundle=1), tasks=50)
    table.join("a", 2, {"task_limit": "3"})
    begins(table.driver, 0.0)
    _started(table, 0)
    apply(table.driver, KillJobs(0.0, ("0",)), 0.0)
    again = Table(LiveOptions(bundle=1))
    again.driver.session = 2
    restore(again.driver, table.driver.records, 0.0)
    again.join("a", 2, {"task_limit": "3"})
    ((engine, kill),) = again.sent(Kill)
    assert (engine, kill) == ("a", Kill((1,), "killed"))
    again.driver.feed(Feeder(TaskLine(i, i + 1, -1, "true") for i in range(1, 50)))
    begins(again.driver, 0.0)
    again.sent(Start)
    for job_id in ("1", "2"):
        apply(again.driver, StartJob(0.0, job_id, IdSet.of([1])), 0.0)
    assert [engine for engine, _ in again.sent(Leave)] == ["a"]


def _engine() -> Engine:
    return Engine("late", Hello(context="c", node="n", slots=1, pid=1, started_at=0.0), 0.0)


def _talk(engine: Engine, driver: DriverState, now: float) -> list[Go]:
    """Lets both say what they have to say; whether the engine goes."""
    engine.tick(now)
    goes = []
    for instruction in engine.take(now):
        if type(instruction) is EngineFrame:
            hear(driver, instruction, now)
        elif type(instruction) is Go:
            goes.append(instruction)
    settle(driver, now)
    for frame in frames(driver, now):
        engine.hear(frame, now)
    return goes + [last for last in engine.take(now) if type(last) is Go]


def test_an_engine_that_comes_when_the_run_is_over_goes_at_once() -> None:
    """After --fail-fast it would look for a driver for ten minutes."""
    table = Table(tasks=5)
    table.join("a")
    begins(table.driver, 0.0)
    stop(table.driver, "a task failed", 0.0)
    assert _talk(_engine(), table.driver, 1.0)


def test_an_engine_that_comes_while_the_others_leave_sets_nothing_up() -> None:
    table = Table(tasks=1)
    table.join("a")
    begins(table.driver, 0.0)
    (start,) = _started(table, 0)
    table.say("a", Report([Finished(start.assignments[0].id, [Result(0, 1, 0, 1, 0.0, 0.0)], True)]))
    assert table.sent(Leave)
    assert _talk(_engine(), table.driver, 1.0)


def test_an_engine_waits_patiently_while_the_source_has_not_said_what_to_run_first() -> None:
    table = Table()
    lines: list[TaskLine | None] = [None] * 3600
    table.driver.feed(Feeder(iter(lines)))
    engine = _engine()
    for second in range(1000):
        assert not _talk(engine, table.driver, float(second))
    assert engine.state is EngineState.SEEKING


def test_an_engine_is_welcomed_as_soon_as_the_source_has_said_what_to_run_first() -> None:
    table = Table()
    start = TaskLine(0, 1, -1, "prepare", LineKind.ENGINE_START)
    lines: list[TaskLine | None] = [start, None, None, TaskLine(0, 2, -1, "true"), None]
    table.driver.feed(Feeder(iter(lines)))
    engine = _engine()
    for second in range(8):
        _talk(engine, table.driver, float(second))
    assert engine.state is EngineState.PREPARING


def test_an_engine_that_never_hears_a_driver_leaves() -> None:
    engine = _engine()
    engine.tick(119.0)
    assert not [last for last in engine.take(119.0) if type(last) is Go]
    engine.tick(121.0)
    assert [last for last in engine.take(121.0) if type(last) is Go]


def test_an_engine_leaves_only_when_jobs_that_span_it_have_ended() -> None:
    """It was not assigned the job itself, and would go at once: the job would be killed and run again."""
    table = Table()
    table.join("a")
    table.join("b")
    start = _spanning_two(table)
    assert ask_to_leave(table.driver, "b", "asked", 1.0)
    assert not table.sent(Leave)
    table.say("a", Report([Finished(start.assignments[0].id, [Result(0, 1, 0, 1, 0.0, 0.0)], True)]))
    assert [engine for engine, _ in table.sent(Leave)] == ["b"]


def test_stop_commands_are_waited_for_as_long_as_they_take() -> None:
    """They may copy gigabytes, and the end of the run is the end of the allocation."""
    table = Table()
    stop_line = TaskLine(0, 1, -1, "save everything", LineKind.ENGINE_STOP)
    table.driver.feed(Feeder(iter([stop_line, TaskLine(0, 2, -1, "true", age=1)])))
    table.join("a")
    begins(table.driver, 0.0)
    (start,) = _started(table, 0)
    table.say("a", Report([Finished(start.assignments[0].id, [Result(0, 1, 0, 1, 0.0, 0.0)], True)]))
    assert table.sent(Leave)
    for second in range(2, 300):
        hear(table.driver, EngineFrame(VERSION, "a", 1, 0, 0, []), float(second))
        tick(table.driver, float(second))
        settle(table.driver, float(second))
        assert not table.driver.over
    table.say("a", Report([], [Result(-1, 1, 0, 1, 0.0, 0.0)]), Bye("done"))
    settle(table.driver, 301.0)
    assert table.driver.over
    assert [record.command for record in table.driver.records if type(record) is TaskEnded and record.kind == "P"]


def test_a_check_minds_engines_that_could_not_be_set_up() -> None:
    table = Table()
    start_line = TaskLine(0, 1, -1, "set up", LineKind.ENGINE_START)
    check = TaskLine(1, 3, -1, "", LineKind.CHECK, age=1)
    feeder = Feeder(iter([start_line, TaskLine(0, 2, -1, "true", age=1), check, TaskLine(2, 4, -1, "true", age=2)]))
    table.driver.feed(feeder)
    table.join("a")
    begins(table.driver, 0.0)
    (start,) = _started(table, 0)
    done = Finished(start.assignments[0].id, [Result(0, 1, 0, 1, 0.0, 0.0)], True)
    table.say("a", Report([], [Result(0, 1, 4, 1, 0.0, 0.0)]), Report([done]))
    assert feeder.check_failed and feeder.state is Feeding.STOPPED


def test_a_job_that_comes_back_when_the_run_was_stopped_keeps_nobody_waiting() -> None:
    """It spans two engines; one was lost, so it would wait again, for ever."""
    table = Table()
    table.join("a")
    table.join("b")
    start = _spanning_two(table)
    engine_vanished(table.driver, "b", "lost", 1.0)
    stop(table.driver, "interrupted", 1.0)
    table.say("a", Report([Finished(start.assignments[0].id, [], True, (0,))]))
    assert table.driver.nothing_to_do
    assert [engine for engine, _ in table.sent(Leave)] == ["a"]


def test_a_stopped_run_needs_no_driver_to_end() -> None:
    """Whoever presses ^C twice ends the driver: its engines must know by then that they are to go."""
    table = Table(tasks=3)
    table.join("a")
    table.join("b")
    begins(table.driver, 0.0)
    _started(table, 0)
    stop(table.driver, "interrupted", 1.0)
    assert sorted(table.sent(Leave)) == [("a", Leave("interrupted", True)), ("b", Leave("interrupted", True))]


def test_the_numbers_of_units_do_not_grow_with_all_engines_that_ever_were() -> None:
    """Sets of units are as wide as the highest number, and every task costs some of them."""
    table = Table()
    begins(table.driver, 0.0)
    for number in range(1000):
        table.join(f"e{number}", 8)
        if number >= 100:
            engine_vanished(table.driver, f"e{number - 100}", "lost", 1.0)
    engines = table.driver.engines.present.values()
    assert len(engines) == 100
    assert max(proxy.node.first for proxy in engines) < SPARE_UNITS
    again = Table()
    joined = [record for record in table.driver.records if type(record) is EngineJoined]
    left = [record for record in table.driver.records if type(record) is EngineLeft]
    restore(again.driver, [*joined, *left], 0.0)  # as a journal tells it
    again.join("new", 8)
    units = [unit for proxy in again.driver.engines.present.values() for unit in proxy.units]
    assert len(units) == len(set(units)) == 101 * 8
    assert all(again.driver.engines.owner(proxy.node.first) is proxy for proxy in again.driver.engines.present.values())


def test_whoever_takes_the_place_of_a_lost_engine_has_its_units() -> None:
    """A scheduler that knows only the machines of the beginning can go on with it."""
    table = Table()
    for name in ("a", "b"):
        table.join(name, 4, node="host")
    begins(table.driver, 0.0)
    engine_vanished(table.driver, "a", "lost", 1.0)
    table.join("elsewhere", 4, node="other")
    table.join("smaller", 2, node="host")
    table.join("again", 4, node="host")
    table.join("late", 4, node="host")
    first = {name: proxy.node.first for name, proxy in table.driver.engines.present.items()}
    assert first == {"b": 4, "elsewhere": 8, "smaller": 12, "again": 0, "late": 14}


def test_units_that_a_running_job_holds_are_nobody_elses() -> None:
    """One of its nodes was lost, and it has not been ended yet: a newcomer gets other units."""
    table = Table()
    table.driver.engines.spare_units = 0
    table.join("wide", 40)
    engine_vanished(table.driver, "wide", "lost", 0.0)
    for name in ("a", "b", "c"):
        table.join(name)
    start = _spanning_two(table)
    engine_vanished(table.driver, "b", "lost", 1.0)
    table.join("d")
    table.say("a", Report([Finished(start.assignments[0].id, [], True, (0,))]))
    table.join("e")
    first = {name: proxy.node.first for name, proxy in table.driver.engines.present.items()}
    assert first == {"a": 0, "c": 2, "d": 3, "e": 1}


@pytest.mark.parametrize("at_most_once", [False, True])
def test_tasks_of_an_assignment_whose_results_are_gone_are_lost(at_most_once: bool) -> None:
    """The engine had handed in their results, and the records of that were lost with the power."""
    table = Table(LiveOptions(bundle=1, at_most_once=at_most_once), tasks=1)
    table.join("a")
    begins(table.driver, 0.0)
    (start,) = _started(table, 0)
    table.say("a", Report([Finished(start.assignments[0].id, [], closed=True, forgotten=True)]))
    (ended,) = [record for record in table.driver.records if type(record) is TaskEnded]
    assert (ended.state.value, ended.final) == ("lost", at_most_once)
    assert bool(_started(table, 0)) is not at_most_once


def test_an_engine_closes_assignments_that_it_had_and_whose_results_are_gone() -> None:
    engine_hello = Hello(context="c", node="a", slots=1, pid=1, started_at=0.0)
    engine, number = Engine("a", engine_hello, 0.0), 5

    def welcomed(session: int, *more: FromDriver) -> list[Finished]:
        """The engine hears a driver, and what it then reports."""
        driver = new_state(LiveOptions(), session)
        hear(driver, EngineFrame(VERSION, "a", 0, 0, 0, [engine_hello]), 0.0)
        (frame,) = frames(driver, 0.0)
        welcome = msgspec.structs.replace(frame.bodies[0], assignments=(number,))
        engine.hear(msgspec.structs.replace(frame, bodies=[welcome, *more]), 0.0)
        out = [body for step in engine.take(0.0) if type(step) is EngineFrame for body in step.bodies]
        return [finished for body in out if type(body) is Report for finished in body.finished]

    start = Start([Assignment(number, (0,), [Task(0, line=b"true")])])
    assert welcomed(1, start) == []
    assert welcomed(2) == [], "it has it"
    engine.report(0, Finished(number, [Result(0, 1, 0, 7, 0.0, 1.0)], True), 0.0)
    assert [len(finished.results) for finished in welcomed(3)] == [1], "it has its results"
    engine.hear(DriverFrame(VERSION, "a", 3, 2, 1, []), 0.0)
    assert welcomed(4) == [Finished(number, [], closed=True, forgotten=True)]


def test_an_engine_whose_slots_another_has_is_sent_away() -> None:
    table = Table(tasks=1)
    table.driver.leases = {"new"}
    for key, leased in (("old", True), ("new", True), ("guest", False)):
        hello = Hello(context="c", node=key, slots=1, pid=1, started_at=0.0, properties={"key": key}, leased=leased)
        hear(table.driver, EngineFrame(VERSION, key, 0, 0, 0, [hello]), 0.0)
    assert set(table.driver.engines.present) == {"new", "guest"}
    assert [(engine, body.over) for engine, body in table.sent(Dismiss) if isinstance(body, Dismiss)] == [("old", True)]


def test_what_a_restarted_driver_knows_of_gpus_and_lost_engines() -> None:
    table = Table()
    joined = [EngineJoined(name, rank, "c", name, 2, rank * 2, 1, 0.0, name, ("0", "1"), 0, 2) for rank, name in enumerate("ab")]
    tasks = [Task(7, line=b"x")]
    held = Assigned(5, "7", "a", "0-3", 0.0, tasks, "a=1 b=0,1 gone=0")
    restore(table.driver, [*joined, held], 0.0)
    assert {name: proxy.free_gpus for name, proxy in table.driver.engines.present.items()} == {"a": ["0"], "b": []}
    assert table.driver.groups["7"].gpus == {"a": ("1",), "b": ("0", "1")}
    assert table.driver.spanning == {"7"} and table.driver.running_tasks == 1
    assert not table.driver.lost_engines
    engine_vanished(table.driver, "b", "gone", 1.0)
    assert [lost.engine for lost in table.driver.lost_engines] == ["b"], "its context may start another"
    again = Table()
    restore(again.driver, [*joined, EngineLeft("b", 1.0, "gone", True)], 0.0)
    assert not again.driver.lost_engines, "an earlier driver saw to that"


def test_keys_of_engines_are_remembered_when_they_have_left() -> None:
    table = Table()
    for engine in ("a", "b"):
        table.join(engine, properties={"key": f"key of {engine}"})
    engines = table.driver.engines
    assert engines.keys_seen == {"key of a", "key of b"} and engines.by_key("key of a") == "a"
    engine_vanished(table.driver, "a", "lost", 1.0)
    assert engines.keys_seen == {"key of a", "key of b"} and engines.by_key("key of a") is None
    table.join("c", properties={"key": "key of a"})
    assert engines.by_key("key of a") == "c" and engines.by_key("key of b") == "b"


def test_a_kill_of_several_jobs_is_confirmed_with_the_last_of_them() -> None:
    table = Table(tasks=2)
    table.join("a", 2)
    begins(table.driver, 0.0)
    given = [assignment for start in _started(table, 0, 1) for assignment in start.assignments]
    apply(table.driver, KillJobs(0.0, ("0", "1")), 0.0)
    table.driver.events.clear()
    for number, assignment in enumerate(given):
        result = Result(assignment.tasks[0].task_id, 1, -15, 7, 0.0, 1.0, reason="killed")
        table.say("a", Report([Finished(assignment.id, [result], closed=True)]))
        confirmed = [event.job_ids for event in table.driver.events if isinstance(event, JobsKilled)]
        assert confirmed == ([("0", "1")] if number == 1 else [])
    assert not table.driver.kills


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_task_is_given_up_when_it_was_lost_too_often(most: int) -> None:
    table = Table(LiveOptions(bundle=1, most_losses=most), tasks=1)
    for loss in range(1, most + 1):
        table.join(f"e{loss}")
        if loss == 1:
            begins(table.driver, 0.0)
        _started(table, table.driver.engines.present[f"e{loss}"].node.first)
        engine_vanished(table.driver, f"e{loss}", "lost", 1.0)
        ends = [record for record in table.driver.records if type(record) is TaskEnded]
        assert len(ends) == loss and ends[-1].final is (loss == most)


def test_numbers_of_units_are_used_again_only_in_large_runs() -> None:
    table = Table()
    table.driver.engines.spare_units = 8
    for number in range(6):
        table.join(f"e{number}", 2)
        assert table.driver.engines.present[f"e{number}"].node.first == (number * 2 if number < 4 else 0)
        table.say(f"e{number}", Bye())
    for number in range(4):
        table.join(f"f{number}", 4)
    firsts = [proxy.node.first for proxy in table.driver.engines.present.values()]
    assert len(set(firsts)) == 4 and max(firsts) <= 2 * 16

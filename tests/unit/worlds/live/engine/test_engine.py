"""The engine's state machine: act, take its instructions, compare. The storms (tests/simtest) drive it under faults."""

from __future__ import annotations

from math import inf

import pytest

from pilothouse.worlds.live.engine.engine import (
    FIRST_WORD_S,
    HELLO_EVERY_S,
    PARTING_S,
    TRANSITIONS,
    Engine,
    EngineState,
    EngineStimulus,
)
from pilothouse.worlds.live.engine.instructions import Go, Renamed, TellCylinder
from pilothouse.worlds.live.engine.shipping import PIECE_BYTES
from pilothouse.worlds.live.wire import messages as m

STARTED_AT = 1000.0
SLOTS = 2
EXTRA = SLOTS
"""The cylinder of START and STOP commands."""


class Lab:
    """An engine of two slots, and a driver of which only the frames exist."""

    def __init__(self, **options: object) -> None:
        hello = m.Hello(context="lab", node="n1", slots=SLOTS, pid=7, started_at=STARTED_AT)
        self.engine = Engine("e", hello, 0.0, **options)  # type: ignore[arg-type]
        self.now = 0.0
        self._seq = 0
        self._session = 1

    def tell(self, *bodies: m.FromDriver, ack: int = 0, session: int | None = None) -> list[object]:
        """A frame of the driver. A new session numbers its frames anew."""
        if session is not None and session != self._session:
            self._session, self._seq = session, 0
        self._seq += 1
        frame = m.DriverFrame(m.VERSION, self.engine.id, self._session, self._seq, ack, list(bodies))
        self.engine.hear(frame, self.now)
        return self.take()

    def take(self) -> list[object]:
        return list(self.engine.take(self.now))

    def tick(self, now: float) -> list[object]:
        self.now = now
        self.engine.tick(now)
        return self.take()

    def report(self, cylinder: int, finished: m.Finished) -> list[object]:
        self.engine.report(cylinder, finished, self.now)
        return self.take()

    def welcomed(self, **more: object) -> list[object]:
        return self.tell(welcome(**more))


def welcome(**more: object) -> m.Welcome:
    told: dict[str, object] = {"rank": 3, "env": {"A": "1"}, "task_env": "T={task}", "heartbeat_s": 2.0}
    return m.Welcome(**{**told, "wait_for_driver_s": 600.0, "grace_s": 5.0, "first_unit": 0, **more})  # type: ignore[arg-type]


def assignment(number: int, *tasks: int, slots: tuple[int, ...] = (0,), bind: bool = False) -> m.Assignment:
    return m.Assignment(number, slots, [m.Task(task) for task in tasks], m.TaskEnvironment(bind=bind))


def result(task: int) -> m.Result:
    return m.Result(task, 1, 0, 77, 1.0, 2.0)


def bodies(instructions: list[object]) -> list[object]:
    """What goes to the driver, apart from signs of life."""
    return [body for frame in instructions if type(frame) is m.EngineFrame for body in frame.bodies]


def told(instructions: list[object]) -> list[tuple[int, object]]:
    """What goes to cylinders."""
    return [(each.cylinder, each.message) for each in instructions if type(each) is TellCylinder]


def works(instructions: list[object]) -> list[tuple[int, int]]:
    """(cylinder, assignment) of what is begun."""
    return [(cylinder, message.assignment.id) for cylinder, message in told(instructions) if type(message) is m.Work]


def test_the_table_is_total() -> None:
    assert set(TRANSITIONS) == {(state, stimulus) for state in EngineState for stimulus in EngineStimulus}


def test_hello_is_said_every_second_until_a_driver_answers() -> None:
    lab = Lab()
    [hello] = bodies(lab.tick(0.0))
    assert isinstance(hello, m.Hello)
    assert (hello.node, hello.slots, hello.held, hello.leaving) == ("n1", SLOTS, (), False)
    assert bodies(lab.tick(HELLO_EVERY_S / 2)) == []
    assert lab.engine.wakes_at() == HELLO_EVERY_S
    assert bodies(lab.tick(HELLO_EVERY_S)) == [hello]
    lab.welcomed()
    assert bodies(lab.tick(10.0)) == []


def test_an_engine_that_no_driver_answers_gives_up() -> None:
    lab = Lab()
    assert not any(type(each) is Go for each in lab.tick(FIRST_WORD_S))
    assert Go("the driver was not heard for too long") in lab.tick(FIRST_WORD_S + 0.1)
    assert lab.engine.state is EngineState.GONE
    assert lab.tick(FIRST_WORD_S + 10.0) == []


def test_a_welcome_prepares_every_cylinder_and_the_extra_one() -> None:
    lab = Lab(slot_env={"GPU": ("a", "b"), "NONE": ()})
    prepared = {cylinder: message for cylinder, message in told(lab.welcomed()) if isinstance(message, m.Prepare)}
    assert list(prepared) == [0, 1, 2]
    assert prepared[0].env == {"A": "1", "PILOTHOUSE_SLOT": "0", "DISBATCH_CYLINDER_RANK": "0", "GPU": "a"}
    assert prepared[1].env == {"A": "1", "PILOTHOUSE_SLOT": "1", "DISBATCH_CYLINDER_RANK": "1", "GPU": "b"}
    assert prepared[EXTRA].env == {"A": "1", "PILOTHOUSE_SLOT": "-1", "DISBATCH_CYLINDER_RANK": "-1", "GPU": "a"}
    assert prepared[0].task_env == "T={task}"
    assert prepared[0].grace_s == 5.0
    assert (lab.engine.state, lab.engine.rank, lab.engine.wait_for_driver_s) == (EngineState.WORKING, 3, 600.0)


def test_frames_for_another_engine_or_of_an_earlier_driver_are_not_heard() -> None:
    lab = Lab()
    lab.engine.hear(m.DriverFrame(m.VERSION, "other", 1, 1, 0, [welcome()]), 0.0)
    assert lab.engine.state is EngineState.SEEKING
    lab.tell(welcome(), session=2)
    lab.engine.hear(m.DriverFrame(m.VERSION, "e", 1, 2, 0, [m.Start([assignment(1, 10)])]), 0.0)
    assert works(lab.take()) == []


def test_assignments_begin_after_the_start_commands() -> None:
    lab = Lab()
    begun = lab.welcomed(on_join=[m.Task(0), m.Task(1)])
    assert works(begun) == [(EXTRA, -1)]
    assert works(lab.tell(m.Start([assignment(1, 10, slots=(1,))]))) == []
    assert bodies(lab.report(EXTRA, m.Finished(-1, [result(0)]))) == [m.Report([], [result(0)])]
    assert lab.engine.state is EngineState.PREPARING
    out = lab.report(EXTRA, m.Finished(-1, [result(1)], True))
    assert works(out) == [(1, 1)]
    assert bodies(out) == [m.Report([], [result(1)])]
    assert lab.engine.state is EngineState.WORKING


def test_commands_that_come_later_hold_back_only_what_comes_after_them() -> None:
    lab = Lab()
    lab.welcomed()
    assert works(lab.tell(m.Start([assignment(1, 10)]))) == [(0, 1)]
    assert works(lab.tell(m.Commands([m.Task(4)]))) == [(EXTRA, -1)]
    assert works(lab.tell(m.Commands([m.Task(4), m.Task(7)]), m.Start([assignment(2, 11, slots=(1,))]))) == []
    assert works(lab.report(EXTRA, m.Finished(-1, [result(4)], True))) == [(EXTRA, -1)]
    assert works(lab.report(EXTRA, m.Finished(-1, [result(7)], True))) == [(1, 2)]
    assert works(lab.tell(m.Commands([m.Task(4), m.Task(7)]))) == []


def test_an_assignment_that_comes_twice_is_begun_once() -> None:
    lab = Lab()
    lab.welcomed()
    assert works(lab.tell(m.Start([assignment(4, 10)]))) == [(0, 4)]
    assert works(lab.tell(m.Start([assignment(4, 10), assignment(3, 9), assignment(5, 11, slots=(1,))]))) == [(1, 5)]


def test_results_are_kept_until_the_driver_has_them() -> None:
    lab = Lab()
    lab.welcomed()
    lab.tell(m.Start([assignment(1, 10, 11)]))
    part = m.Finished(1, [result(10)])
    [frame] = lab.report(0, part)
    assert isinstance(frame, m.EngineFrame)
    assert (frame.session, frame.seq, frame.ack, frame.bodies) == (1, 1, 2, [m.Report([part])])
    lab.tell(ack=0)
    assert lab.engine.unacked == [(1, part)]
    lab.report(0, m.Finished(1, [result(11)], True))
    lab.tell(ack=1)
    assert lab.engine.unacked == [(2, m.Finished(1, [result(11)], True))]
    lab.tell(ack=2)
    assert lab.engine.unacked == []


def test_reports_of_what_is_not_held_are_dropped() -> None:
    lab = Lab()
    lab.welcomed()
    assert lab.report(0, m.Finished(9, [result(1)], True)) == []


def test_the_environment_and_cores_of_an_assignment() -> None:
    lab = Lab(cores=(4, 5, 6, 7))
    lab.welcomed()
    given = m.Assignment(1, (1,), [m.Task(1)], m.TaskEnvironment(bind=True), ("g0", "g1"), "a:2,b:1")
    [(cylinder, work)] = told(lab.tell(m.Start([given])))
    assert isinstance(work, m.Work)
    assert (cylinder, work.cores) == (1, (6, 7))
    assert work.env == {"PILOTHOUSE_NODES": "a:2,b:1", "CUDA_VISIBLE_DEVICES": "g0,g1"}
    [(_, free)] = told(lab.tell(m.Start([assignment(2, 2)])))
    assert isinstance(free, m.Work)
    assert (free.env, free.cores) == ({}, ())
    [(_, both)] = told(lab.tell(m.Start([assignment(3, 2, slots=(0, 1), bind=True)])))
    assert isinstance(both, m.Work)
    assert both.cores == (4, 5, 6, 7)


def test_more_slots_than_cores_share_them() -> None:
    lab = Lab(cores=(8,))
    lab.welcomed()
    out = told(lab.tell(m.Start([assignment(1, 1, bind=True), assignment(2, 2, slots=(1,), bind=True)])))
    assert [work.cores for _, work in out if isinstance(work, m.Work)] == [(8,), (8,)]


def test_a_kill_stops_what_runs_and_gives_back_what_waits() -> None:
    lab = Lab()
    lab.welcomed(on_join=[m.Task(0)])
    lab.tell(m.Start([assignment(1, 10, 11)]))
    out = lab.tell(m.Kill((1, 99), "walltime"))
    assert bodies(out) == [m.Report([m.Finished(1, [], True, (10, 11))])]
    lab.report(EXTRA, m.Finished(-1, [], True))
    lab.tell(m.Start([assignment(2, 12)]))
    assert told(lab.tell(m.Kill((2,), "walltime"))) == [(0, m.Stop(2, "walltime"))]


def test_a_leaving_engine_finishes_runs_stop_commands_and_says_goodbye() -> None:
    lab = Lab()
    lab.welcomed(on_leave=[m.Task(0)])
    lab.tell(m.Start([assignment(1, 10)]))
    assert told(lab.tell(m.Leave("bored"))) == []
    assert lab.engine.state is EngineState.LEAVING
    out = lab.report(0, m.Finished(1, [result(10)], True))
    assert works(out) == [(EXTRA, -2)]
    lab.tell(m.Leave("bored"))  # again: they do not run twice
    out = lab.report(EXTRA, m.Finished(-2, [result(0)], True))
    assert bodies(out) == [m.Report([], [m.Result(-1, 1, 0, 77, 1.0, 2.0)]), m.Bye("done")]
    assert lab.engine.state is EngineState.PARTING
    assert not any(type(each) is Go for each in lab.tick(1.0))
    lab.tell(ack=99)
    assert Go("done") in lab.tick(1.1)
    assert lab.engine.state is EngineState.GONE


def test_a_goodbye_that_no_driver_hears_has_a_limit() -> None:
    lab = Lab()
    lab.welcomed()
    assert bodies(lab.tell(m.Leave())) == [m.Bye("done")]
    assert not any(type(each) is Go for each in lab.tick(PARTING_S))
    assert Go("done") in lab.tick(PARTING_S + 0.1)


def test_an_engine_that_must_leave_at_once_ends_its_tasks() -> None:
    lab = Lab()
    lab.welcomed()
    lab.tell(m.Start([assignment(1, 10), assignment(2, 11, slots=(1,))]))
    assert told(lab.tell(m.Leave("now", now=True))) == [(0, m.Stop(1, "killed")), (1, m.Stop(2, "killed"))]
    assert lab.engine.state is EngineState.LEAVING


@pytest.mark.parametrize("stop_commands", [True, False])
def test_work_that_comes_after_stop_commands_or_goodbye_is_given_back(stop_commands: bool) -> None:
    """A driver that was taken for dead asked it to leave, and the one that took over does not know."""
    lab = Lab()
    on_leave = [m.Task(0)] if stop_commands else []
    lab.welcomed(on_leave=on_leave)
    lab.tell(m.Leave())
    out = lab.tell(welcome(on_leave=on_leave), m.Start([assignment(1, 10, 11)]), session=2)
    assert works(out) == []
    assert m.Report([m.Finished(1, [], True, (10, 11))]) in bodies(out)
    if stop_commands:
        assert lab.engine.state is EngineState.LEAVING
        out = lab.report(EXTRA, m.Finished(-2, [], True))
    assert m.Bye("done") in bodies(out)


def test_work_that_comes_before_the_stop_commands_is_done() -> None:
    lab = Lab()
    lab.welcomed(on_leave=[m.Task(0)])
    lab.tell(m.Start([assignment(1, 10)]), m.Leave())
    assert works(lab.tell(welcome(assignments=(1,)), m.Start([assignment(2, 11, slots=(1,))]), session=2)) == [(1, 2)]


def test_a_later_driver_gets_everything_again() -> None:
    lab = Lab()
    lab.welcomed()
    lab.tell(m.Start([assignment(1, 10), assignment(2, 11, slots=(1,))]))
    done = m.Finished(1, [result(10)], True)
    lab.report(0, done)
    assert bodies(lab.tell(session=2)) != []  # a driver that does not know us yet: hello
    out = lab.tell(welcome(assignments=(1, 2)), session=3)
    assert bodies(out) == [m.Report([done])]
    assert told(out) == []
    assert lab.engine.session == 3
    assert lab.engine.unacked == [(1, done)]
    lab.tell(ack=1)
    assert lab.engine.unacked == []


def test_hello_to_a_later_driver_names_what_is_held() -> None:
    lab = Lab()
    lab.welcomed()
    lab.tell(m.Start([assignment(2, 10), assignment(3, 11, slots=(1,))]))
    lab.report(1, m.Finished(3, [result(11)], True))
    lab.tell(m.Leave())
    [hello] = bodies(lab.tell(session=2))
    assert isinstance(hello, m.Hello)
    assert (hello.held, hello.leaving) == ((2, 3), True)
    assert bodies(lab.tell(session=2)) == []  # not with every frame


def test_a_driver_that_lost_records_is_told_what_is_forgotten_and_does_not_get_what_it_does_not_know() -> None:
    lab = Lab()
    lab.welcomed()
    lab.tell(m.Start([assignment(1, 10), assignment(2, 11, slots=(1,))]))
    lab.report(0, m.Finished(1, [result(10)], True))
    lab.tell(ack=1)
    out = lab.tell(welcome(assignments=(1, 7)), session=2)
    assert bodies(out) == [m.Report([m.Finished(1, [], True, forgotten=True)])]
    assert told(out) == [(1, m.Stop(2, "dismissed", at_once=True))]


def test_a_dismissed_engine_ends_its_tasks_and_joins_under_a_new_name() -> None:
    lab = Lab(new_identity=lambda: "f")
    lab.welcomed()
    lab.tell(m.Start([assignment(1, 10)]))
    lab.report(0, m.Finished(1, [result(10)]))
    out = lab.tell(m.Dismiss("gone"))
    assert told(out) == [(0, m.Stop(1, "dismissed", at_once=True))]
    assert Renamed("f") in out
    assert (lab.engine.id, lab.engine.state, lab.engine.session) == ("f", EngineState.SEEKING, 0)
    assert lab.engine.unacked == []
    [hello] = bodies(lab.tick(0.0))
    assert isinstance(hello, m.Hello)
    assert hello.held == ()
    assert lab.report(0, m.Finished(1, [result(10)], True)) == []


@pytest.mark.parametrize("seq", [0, 1])
def test_a_dismissal_counts_though_its_frame_is_not_the_next(seq: int) -> None:
    lab = Lab()
    lab.welcomed()
    lab.engine.hear(m.DriverFrame(m.VERSION, "e", 1, seq, 0, [m.Dismiss("gone")]), 0.0)
    assert lab.engine.id == "e+"


@pytest.mark.parametrize("over", [False, True])
def test_an_engine_that_leaves_or_comes_too_late_goes_when_dismissed(over: bool) -> None:
    lab = Lab()
    if over:
        out = lab.tell(m.Dismiss("over", over=True), session=5)
    else:
        lab.welcomed()
        lab.tell(m.Leave())
        out = lab.tell(m.Dismiss("gone"))
    assert Go("dismissed") in out
    assert not any(type(each) is Renamed for each in out)
    assert lab.engine.state is EngineState.GONE


def test_signs_of_life_are_sent_when_nothing_else_is() -> None:
    lab = Lab()
    lab.welcomed()
    assert lab.tick(1.9) == []
    [frame] = lab.tick(2.0)
    assert isinstance(frame, m.EngineFrame)
    assert (frame.seq, frame.bodies) == (0, [])
    lab.tell(m.Start([assignment(1, 10)]))
    lab.now = 3.0
    lab.report(0, m.Finished(1, [result(10)], True))
    assert lab.engine.wakes_at() == 5.0


def test_an_engine_waits_for_its_driver_and_not_longer() -> None:
    lab = Lab()
    lab.now = 50.0
    lab.welcomed(wait_for_driver_s=30.0)
    assert not any(type(each) is Go for each in lab.tick(80.0))
    assert Go("the driver was not heard for too long") in lab.tick(80.1)


def test_a_killed_cylinder_loses_its_running_task_alone() -> None:
    lab = Lab()
    lab.welcomed()
    lab.tell(m.Start([assignment(1, 10, 11, 12, 13), assignment(2, 14, slots=(1,))]))
    lab.now = 8.0
    lab.engine.cylinder_died(0, 1, [result(10)], 11, lab.now)
    out = lab.take()
    assert [message for cylinder, message in told(out) if cylinder == 0 and isinstance(message, m.Prepare)]
    lost = m.Result(11, 1, m.LOST_CODE, -1, STARTED_AT + 8.0, STARTED_AT + 8.0, reason=m.CYLINDER_KILLED)
    assert bodies(out) == [m.Report([m.Finished(1, [result(10), lost], True, (12, 13))])]
    assert works(lab.tell(m.Start([assignment(3, 12)]))) == [(0, 3)]


def test_an_assignment_that_a_killed_cylinder_had_not_begun_is_given_back_whole() -> None:
    lab = Lab()
    lab.welcomed()
    lab.tell(m.Start([assignment(1, 10)]), m.Start([assignment(2, 11)]))
    lab.engine.cylinder_died(0, 1, [result(10)], None, 1.0)
    first = m.Finished(1, [result(10)], True)
    assert bodies(lab.take()) == [m.Report([first]), m.Report([m.Finished(2, [], True, (11,))])]


def test_start_commands_that_a_killed_cylinder_had_not_done_are_lost() -> None:
    lab = Lab()
    lab.welcomed(on_join=[m.Task(0), m.Task(1)])
    lab.engine.cylinder_died(EXTRA, -1, [result(0)], 1, 0.0)
    [report] = bodies(lab.take())
    assert isinstance(report, m.Report)
    assert [(each.task_id, each.return_code) for each in report.per_engine] == [(0, 0), (1, m.LOST_CODE)]
    assert lab.engine.state is EngineState.WORKING


def cylinder_messages(instructions: list[object], cylinder: int) -> list[object]:
    told = [told for told in instructions if type(told) is TellCylinder and told.cylinder == cylinder]
    return [type(each.message) for each in told]


def test_work_that_came_in_the_round_of_a_cylinders_death_is_given_back_and_not_begun() -> None:
    lab = Lab()
    lab.welcomed()
    start = m.DriverFrame(m.VERSION, "e", 1, 2, 0, [m.Start([assignment(1, 10, 11), assignment(2, 12, slots=(1,))])])
    lab.engine.hear(start, lab.now)
    lab.engine.cylinder_died(0, None, [], None, lab.now)
    instructions = lab.take()
    assert cylinder_messages(instructions, 0) == [m.Prepare], "its work does not reach the new cylinder"
    assert cylinder_messages(instructions, 1) == [m.Work]
    assert bodies(instructions) == [m.Report([m.Finished(1, [], True, (10, 11))])]


@pytest.mark.parametrize("news", [m.Kill((1,)), m.Leave("bye", True), m.Dismiss("gone")])
def test_work_that_is_taken_away_in_the_round_in_which_it_came_is_not_begun(news: m.FromDriver) -> None:
    lab = Lab(new_identity=lambda: "f")
    lab.welcomed()
    instructions = lab.tell(m.Start([assignment(1, 10)]), news)
    assert cylinder_messages(instructions, 0) == []


def test_work_that_came_after_a_cylinders_death_is_begun_by_the_new_one() -> None:
    lab = Lab()
    lab.welcomed()
    lab.engine.cylinder_died(0, None, [], None, lab.now)
    instructions = lab.tell(m.Start([assignment(1, 10)]))
    assert cylinder_messages(instructions, 0) == [m.Prepare, m.Work] and not bodies(instructions)


@pytest.mark.parametrize("same_round", [True, False])
def test_start_commands_that_a_killed_cylinder_had_not_begun_are_begun_by_the_new_one(same_round: bool) -> None:
    lab = Lab()
    lab.engine.hear(m.DriverFrame(m.VERSION, "e", 1, 1, 0, [welcome(on_join=[m.Task(0)])]), 0.0)
    if not same_round:
        lab.take()
    lab.engine.cylinder_died(EXTRA, None, [], None, 0.0)
    assert cylinder_messages(lab.take(), EXTRA) == [m.Prepare, m.Work]
    lab.report(EXTRA, m.Finished(-1, [result(0)], True))
    assert lab.engine.state is EngineState.WORKING


def test_an_idle_extra_cylinder_that_is_killed_reports_nothing_again() -> None:
    lab = Lab()
    lab.welcomed(on_join=[m.Task(0)], on_leave=[m.Task(0)])
    lab.report(EXTRA, m.Finished(-1, [result(0)], True))
    lab.engine.cylinder_died(EXTRA, -1, [result(0)], None, 0.0)
    assert not bodies(lab.take())
    lab.tell(m.Leave("bye"))
    lab.engine.cylinder_died(EXTRA, -1, [result(0)], None, 0.0)
    assert cylinder_messages(lab.take(), EXTRA) == [m.Prepare, m.Work], "the STOP commands are given to the new one"


def test_results_of_start_commands_are_reported_once() -> None:
    lab = Lab()
    lab.welcomed(on_join=[m.Task(0), m.Task(1)])
    assert bodies(lab.report(EXTRA, m.Finished(-1, [result(0)]))) == [m.Report([], [result(0)])]
    lab.engine.cylinder_died(EXTRA, -1, [result(0)], 1, 0.0)
    (report,) = bodies(lab.take())
    assert isinstance(report, m.Report) and [told.task_id for told in report.per_engine] == [1]


def test_a_cylinder_that_dies_before_any_driver_was_found_is_not_prepared() -> None:
    lab = Lab()
    lab.engine.cylinder_died(0, None, [], None, 0.0)
    assert lab.take() == []


def test_an_engine_that_gave_up_without_a_driver_wakes_no_more() -> None:
    lab = Lab()
    lab.tick(FIRST_WORD_S + 0.1)
    assert lab.engine.wakes_at() == inf


class LongPack:
    """More output than goes into one frame."""

    def size(self) -> int:
        return 2 * PIECE_BYTES

    def read(self, at: int, most: int) -> bytes:
        return bytes(min(most, self.size() - at))


def test_a_dismissed_engine_says_no_goodbye() -> None:
    lab = Lab(pack=LongPack(), window_bytes=1)
    assert [type(body) for body in bodies(lab.welcomed())] == [m.Output]
    lab.tell(m.Start([assignment(1, 10)]))
    done = m.Finished(1, [result(10)], True)
    assert bodies(lab.report(0, done)) == [], "half of the output has not been sent"
    assert bodies(lab.tell(m.Leave())) == [], "goodbye is behind the result, which is behind its output"
    assert (lab.engine.state, lab.engine.results) == (EngineState.PARTING, [done])
    assert lab.tell(m.Dismiss("gone")) == [Go("dismissed")]
    assert (lab.engine.results, lab.take()) == ([], [])


def test_goodbye_is_said_behind_the_last_output() -> None:
    lab = Lab(pack=LongPack(), window_bytes=1)
    lab.welcomed()
    lab.tell(m.Start([assignment(1, 10)]))
    done = m.Finished(1, [result(10)], True)
    lab.report(0, done)
    lab.tell(m.Leave())
    lab.now = PARTING_S
    last, report, goodbye = bodies(lab.tell(ack=1))
    assert isinstance(last, m.Output)
    assert (last.at, report, goodbye) == (PIECE_BYTES, m.Report([done]), m.Bye("done"))
    assert not any(type(each) is Go for each in lab.tick(2 * PARTING_S)), "each piece that arrives gives it more time"
    assert Go("done") in lab.tick(2 * PARTING_S + 0.1)

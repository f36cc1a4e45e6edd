"""Frames of engines that are lost, late, leaving or unknown, and what they are answered."""

from __future__ import annotations

import pytest

from pilothouse.formats.task_file import TaskLine
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.worlds.live.driver.engine_frames import (
    ACK_WITHIN_S,
    ask_to_leave,
    engine_vanished,
    frames,
    hear,
    stop_context,
    tick,
)
from pilothouse.worlds.live.driver.engines import ProxyState
from pilothouse.worlds.live.driver.flow import begins, stop
from pilothouse.worlds.live.driver.restore import restore
from pilothouse.worlds.live.driver.state import DriverState, new_state
from pilothouse.worlds.live.feeder import Feeder
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.records import EngineJoined
from pilothouse.worlds.live.wire import messages as m

DISMISSED = m.Dismiss("not of this run any more", False)


def hello(engine: str = "a", *, leaving: bool = False, context: str = "c") -> m.EngineFrame:
    said = m.Hello(context=context, node="n", slots=1, pid=1, started_at=0.0, leaving=leaving)
    return m.EngineFrame(m.VERSION, engine, 0, 0, 0, [said])


def begun(*engines: str) -> DriverState:
    driver = new_state(LiveOptions(heartbeat_s=2.0, lost_after_s=60.0, return_within_s=20.0))
    driver.feed(Feeder(iter([TaskLine(0, 1, -1, "true")])))
    for engine in engines:
        hear(driver, hello(engine), 0.0)
    begins(driver, 0.0)
    driver.events.clear()
    frames(driver, 0.0)
    for engine in engines:  # it has got its welcome
        hear(driver, m.EngineFrame(m.VERSION, engine, 1, 0, 1, []), 0.0)
    return driver


def restarted(*engines: str) -> DriverState:
    driver = new_state(LiveOptions(return_within_s=20.0), 2)
    restore(driver, [EngineJoined(name, rank, "c", name, 1, rank, 1, 0.0) for rank, name in enumerate(engines)], 0.0)
    return driver


def sent(driver: DriverState, now: float = 1.0) -> list[tuple[str, m.FromDriver]]:
    return [(frame.engine, body) for frame in frames(driver, now) for body in frame.bodies]


def test_an_engine_that_is_not_heard_for_too_long_is_dismissed() -> None:
    driver = begun("a")
    tick(driver, 60.0)
    assert "a" in driver.engines.present
    tick(driver, 60.1)
    assert driver.engines.departed["a"].state is ProxyState.LOST
    assert driver.events == [e.NodesLeft(60.1, ("n",), IdSet.of([0]), may_return=True)]
    assert sent(driver, 60.1) == [("a", DISMISSED)]
    hear(driver, m.EngineFrame(m.VERSION, "a", 1, 1, 0, []), 61.0)
    hear(driver, hello("a"), 61.0)
    assert sent(driver, 61.0) == [("a", DISMISSED), ("a", DISMISSED)], "whenever it is heard"


def test_an_engine_of_an_earlier_driver_has_less_time_to_come_back() -> None:
    driver = restarted("a")
    tick(driver, 20.0)
    assert driver.engines.present["a"].state is ProxyState.EXPECTED
    tick(driver, 20.1)
    assert driver.engines.departed["a"].state is ProxyState.LOST and sent(driver) == [("a", DISMISSED)]


def test_an_engine_that_said_goodbye_is_not_dismissed() -> None:
    driver = begun("a")
    hear(driver, m.EngineFrame(m.VERSION, "a", 1, 1, 1, [m.Bye()]), 1.0)
    assert driver.events == [e.NodesLeft(1.0, ("n",), IdSet.of([0]), may_return=False)]
    acknowledged = [m.DriverFrame(m.VERSION, "a", 1, 0, 1, [])]
    assert frames(driver, 1.0) == acknowledged
    hear(driver, m.EngineFrame(m.VERSION, "a", 1, 1, 1, [m.Bye()]), 1.5)
    assert frames(driver, 1.5) == acknowledged, "it has not got the answer"
    hear(driver, m.EngineFrame(m.VERSION, "a", 0, 0, 0, []), 2.0)
    assert sent(driver) == [("a", DISMISSED)], "it is of another session"


def test_an_unknown_engine_is_dismissed_unless_it_says_hello() -> None:
    driver = begun()
    hear(driver, m.EngineFrame(m.VERSION, "x", 1, 1, 0, [m.Report([])]), 1.0)
    assert sent(driver) == [("x", DISMISSED)] and not driver.engines.present
    hear(driver, hello("x"), 1.0)
    assert [type(body) for _, body in sent(driver)] == [m.Welcome]
    assert [type(event) for event in driver.events] == [e.NodesJoined]
    stop(driver, "enough", 1.0)
    sent(driver)
    hear(driver, hello("y"), 1.0)
    assert sent(driver) == [("y", m.Dismiss("not of this run any more", True))]


@pytest.mark.parametrize("leaving", [False, True])
def test_an_engine_that_an_earlier_driver_had_asked_to_leave_still_leaves(leaving: bool) -> None:
    driver = restarted("a")
    begins(driver, 0.0)
    driver.events.clear()
    hear(driver, hello("a", leaving=leaving), 1.0)
    proxy = driver.engines.present["a"]
    assert proxy.state is (ProxyState.LEAVING if leaving else ProxyState.JOINED)
    assert proxy.closed_for == ("it was leaving" if leaving else "")
    bodies = [body for _, body in sent(driver)]
    assert type(bodies[0]) is m.Welcome and bodies[1:] == ([m.Leave("it was leaving")] if leaving else [])
    units = IdSet.of([0])
    assert driver.events == [e.UnitsAvailable(1.0, units), *([e.UnitsUnavailable(1.0, units)] if leaving else [])]


def test_an_engine_that_is_asked_to_leave_before_it_is_heard_again() -> None:
    driver = restarted("a")
    begins(driver, 0.0)
    driver.events.clear()
    assert ask_to_leave(driver, "a", "asked", 0.0) and sent(driver) == []
    hear(driver, hello("a"), 1.0)
    assert [body for _, body in sent(driver)][1:] == [m.Leave("asked")]
    assert not driver.events, "its units were never free"


def test_an_engine_is_asked_once_and_once_more_to_hurry() -> None:
    driver = begun("a")
    for at_once, bodies in ((False, [m.Leave("first", False)]), (False, []), (True, [m.Leave("first", True)]), (True, [])):
        assert ask_to_leave(driver, "a", "first" if bodies else "again", 1.0, at_once=at_once)
        assert [body for _, body in sent(driver)] == bodies
    assert driver.events == [e.UnitsUnavailable(1.0, IdSet.of([0]))]
    assert not ask_to_leave(driver, "nobody", "asked", 1.0)


def test_all_engines_of_a_context_are_asked() -> None:
    driver = begun("a", "b")
    hear(driver, hello("other", context="d"), 0.0)
    frames(driver, 0.0)
    assert stop_context(driver, "c", "enough", 1.0) == 2 and stop_context(driver, "none", "enough", 1.0) == 0
    assert sent(driver) == [("a", m.Leave("enough")), ("b", m.Leave("enough"))]


def test_frames_of_another_session_are_answered_with_this_one() -> None:
    driver = begun("a")
    hear(driver, m.EngineFrame(m.VERSION, "a", 7, 1, 0, [m.Bye()]), 0.5)
    assert "a" in driver.engines.present
    assert frames(driver, 0.5) == [m.DriverFrame(m.VERSION, "a", 1, 0, 0, [])]


def test_a_frame_is_acknowledged_soon_and_taken_once() -> None:
    driver = begun("a")
    for _ in range(2):
        hear(driver, m.EngineFrame(m.VERSION, "a", 1, 1, 1, [m.Report([])]), 1.0)
        proxy = driver.engines.present["a"]
        assert (proxy.heard_at, proxy.speaks_at, proxy.channel.received) == (1.0, 1.0 + ACK_WITHIN_S, 1)
    assert frames(driver, 1.0) == []
    tick(driver, 1.0 + ACK_WITHIN_S)
    assert frames(driver, 1.0 + ACK_WITHIN_S) == [m.DriverFrame(m.VERSION, "a", 1, 0, 1, [])]
    assert proxy.speaks_at == 1.0 + ACK_WITHIN_S + 2.0


def test_an_engine_that_vanished_unknown_to_the_run_changes_nothing() -> None:
    driver = begun("a")
    engine_vanished(driver, "nobody", "gone", 1.0)
    assert not driver.events and list(driver.engines.present) == ["a"]

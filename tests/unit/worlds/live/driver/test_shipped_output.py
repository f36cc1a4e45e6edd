"""Parts of packs that engines send, and a run that can go nowhere."""

from __future__ import annotations

from itertools import count

import pytest

from pilothouse.formats.task_file import TaskLine
from pilothouse.model.decisions import CallAt, StartJob
from pilothouse.model.idset import IdSet
from pilothouse.worlds.live.driver.decisions import apply
from pilothouse.worlds.live.driver.engine_frames import frames, hear
from pilothouse.worlds.live.driver.flow import begins, settle, stop
from pilothouse.worlds.live.driver.state import DriverState, new_state
from pilothouse.worlds.live.feeder import Feeder
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.records import EngineJoined
from pilothouse.worlds.live.wire import messages as m


def driver_with(key: str, tasks: int = 1) -> DriverState:
    driver = new_state(LiveOptions(bundle=1))
    driver.feed(Feeder(TaskLine(number, number + 1, -1, "true") for number in range(tasks)))
    hello = m.Hello(context="c", node="n", slots=2, pid=1, started_at=0.0, properties={"key": key})
    hear(driver, m.EngineFrame(m.VERSION, "a", 0, 0, 0, [hello]), 0.0)
    return driver


@pytest.mark.parametrize(
    ("parts", "kept"),
    [
        ([(0, b"abc"), (3, b"de")], [(0, b"abc"), (3, b"de")]),
        ([(0, b"abc"), (0, b"abcde")], [(0, b"abc"), (3, b"de")]),
        ([(0, b"abc"), (1, b"bc")], [(0, b"abc")]),
        ([(0, b"abc"), (2, b"cdef")], [(0, b"abc"), (3, b"def")]),
        ([(0, b"abc"), (4, b"e"), (3, b"d"), (4, b"e")], [(0, b"abc"), (3, b"d"), (4, b"e")]),
        ([(-1, b"abc"), (0, b"x")], [(0, b"x")]),
        ([(0, b"")], []),
    ],
)
def test_parts_of_a_pack_are_kept_once_and_in_order(parts: list[tuple[int, bytes]], kept: list[tuple[int, bytes]]) -> None:
    driver = driver_with("k")
    numbers = count(1)
    for at, data in parts:
        hear(driver, m.EngineFrame(m.VERSION, "a", 1, next(numbers), 0, [m.Output(at, data)]), 1.0)
    assert driver.outputs == [("k", at, data) for at, data in kept]
    assert driver.kept_output.get("k", 0) == sum(len(data) for _, data in kept)


@pytest.mark.parametrize("key", ["", "../k"])
def test_an_engine_without_a_proper_key_ships_nothing(key: str) -> None:
    driver = driver_with(key)
    hear(driver, m.EngineFrame(m.VERSION, "a", 1, 1, 0, [m.Output(0, b"abc")]), 1.0)
    assert not driver.outputs and not driver.kept_output


def test_what_is_there_already_is_not_written_again() -> None:
    driver = driver_with("k")
    driver.kept_output["k"] = 2
    hear(driver, m.EngineFrame(m.VERSION, "a", 1, 1, 0, [m.Output(0, b"abc")]), 1.0)
    assert driver.outputs == [("k", 2, b"c")]


def test_a_run_is_stuck_only_when_nothing_can_happen() -> None:
    driver = driver_with("k")
    settle(driver, 0.0)
    assert not driver.stuck, "the decider knows nothing yet"
    begins(driver, 0.0)
    settle(driver, 0.0)
    assert driver.waiting and not driver.stuck, "it will be asked"
    list(frames(driver, 0.0))
    driver.events.clear()
    assert driver.stuck
    driver.calls.ask(CallAt(0.0, 9.0, "c"), 0.0)
    assert not driver.stuck, "it asked to be called"
    driver.calls.clear()
    assert driver.stuck
    proxy = driver.engines.present["a"]
    proxy.closed_for = "full"
    assert not driver.stuck, "another engine may come"
    proxy.closed_for, proxy.welcomed = "", False
    assert not driver.stuck
    proxy.welcomed = True
    driver.no_more = False
    assert not driver.stuck, "more jobs may come"
    driver.no_more = True
    apply(driver, StartJob(0.0, "0", IdSet.of([0])), 0.0)
    assert not driver.stuck, "it runs"


def test_a_run_that_was_stopped_is_not_stuck() -> None:
    driver = driver_with("k")
    begins(driver, 0.0)
    settle(driver, 0.0)
    driver.events.clear()
    stop(driver, "asked to", 0.0)
    driver.events.clear()
    assert not driver.stuck


def test_records_have_dates_of_the_calendar() -> None:
    driver = new_state(LiveOptions(bundle=1), 1, 1_000_000.0)
    hello = m.Hello(context="c", node="n", slots=1, pid=1, started_at=0.0, ends_at=1_000_900.0)
    hear(driver, m.EngineFrame(m.VERSION, "a", 0, 0, 0, [hello]), 25.0)
    (joined,) = [record for record in driver.records if type(record) is EngineJoined]
    assert joined.at == 1_000_025.0 and driver.engines.present["a"].ends_at == 900.0

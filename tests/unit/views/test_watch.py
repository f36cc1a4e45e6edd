"""The screen of `pilothouse watch`: it fits, and shows what matters."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.journal.run_state import EngineRow, Failure, RunningTask, RunState
from pilothouse.views.clock import clock
from pilothouse.views.rate import RateMeter, time_left_s
from pilothouse.views.terminal import press
from pilothouse.views.watch import Screen, share

rich_console = pytest.importorskip("rich.console")


def engine(rank: int, state: str = "running", context: str = "SSH0") -> EngineRow:
    return EngineRow(rank, f"e{rank}", context, f"node{rank}.cluster.example.org", 8, 3, 100 * rank, rank, state)


def a_run(count: int = 3, bad_count: int = 2, **changes: object) -> RunState:
    rows = tuple(engine(rank) for rank in range(count))
    bad = tuple(Failure(i, i + 1, 2, "node1", 10.0, f"do something [b]{'long ' * 50} {i}") for i in range(bad_count))
    fields: dict[str, object] = {
        "name": "tasks.txt", "started_at": 0.0, "now": 100.0, "finished": 400, "failed": bad_count, "running": 9,
        "total": 1000, "engines": rows, "failures": bad,
    }  # fmt: skip
    return RunState(**{**fields, **changes})  # type: ignore[arg-type]


def text(screen: Screen, state: RunState, width: int = 80, height: int = 24, *, interactive: bool = True) -> list[str]:
    console = rich_console.Console(file=io.StringIO(), width=width, height=height)
    console.print(screen.draw(state, 4.0, width, height, interactive=interactive))
    return str(console.file.getvalue()).splitlines()


@pytest.mark.parametrize(("engines", "failures"), [(0, 0), (1, 0), (3, 2), (200, 0), (200, 50), (2, 50)])
def test_it_fits_on_80_by_24(engines: int, failures: int) -> None:
    lines = text(Screen(), a_run(engines, failures))
    assert len(lines) <= 24
    assert all(len(line) <= 80 for line in lines)
    assert "q quit" in lines[-1]


def test_it_says_how_far_it_is() -> None:
    shown = "\n".join(text(Screen(), a_run()))
    for word in ("tasks.txt", "running", "0:01:40", "about 0:02:30 left", "tasks 400/1000", "failed 2", "4/s", "40.0%"):
        assert word in shown
    assert "[b]" in shown, "commands are shown as they are, not as markup"


def test_contexts_have_a_line() -> None:
    rows = (engine(0, context="one"), engine(1, context="two"), engine(2, "gone", context="two"))
    assert "one 1 engine, 8 slots, 0 done   two 1 engine, 8 slots, 300 done" in text(Screen(), a_run(0, 0, engines=rows))[2]


def test_the_cursor_stays_in_sight_and_on_an_engine() -> None:
    screen, state = Screen(), a_run(200, 5)
    for _ in range(300):
        screen.move(1, state)
    chosen = screen.chosen(state)
    assert chosen is not None and chosen.rank == 199
    assert any(line.startswith("> ") and "199 " in line for line in text(screen, state))
    screen.move(-500, state)
    assert any(line.startswith("> ") and "node0." in line for line in text(screen, state))
    assert screen.chosen(a_run(0)) is None


def test_lost_engines_stay_and_gone_ones_go() -> None:
    rows = (engine(0, "gone"), engine(1, "lost"), engine(2))
    shown = "\n".join(text(Screen(), a_run(0, 0, engines=rows)))
    assert "lost" in shown and "gone" not in shown
    over = "\n".join(text(Screen(), a_run(0, 0, engines=rows, ended_at=50.0)))
    assert "gone" in over and "ended" in over


def test_a_run_without_driver_says_how_to_go_on() -> None:
    assert "--resume" in text(Screen(), a_run(unattended=True))[0]


def test_a_question_takes_the_last_line() -> None:
    screen = Screen()
    screen.question = "Stop engine 3? (y/n)"
    assert text(screen, a_run())[-1].startswith("Stop engine 3?")


def test_without_keys_nothing_is_offered() -> None:
    assert not any("quit" in line for line in text(Screen(), a_run(), interactive=False))


def test_the_rate_is_that_of_the_last_minute() -> None:
    meter = RateMeter()
    for second in range(0, 200, 10):
        meter.note(second, 0 if second < 100 else (second - 100) * 2)
    state = a_run(now=190.0, finished=180)
    assert meter.per_second(state) == pytest.approx(2.0)
    assert time_left_s(state, 2.0) == pytest.approx(410)
    assert RateMeter().per_second(a_run(now=100.0, finished=400)) == pytest.approx(4.0)


def test_clock() -> None:
    assert [clock(s) for s in (0, 61, 3723, 90061)] == ["0:00:00", "0:01:01", "1:02:03", "1d 01:01"]


def busy_run(running: int = 300, failures: int = 60) -> RunState:
    tasks = tuple(RunningTask(i, i + 1, float(i), 0, "node0", "0-3", f"train --seed {i}") for i in range(running))
    bad = tuple(Failure(i, i, 3, "node1", 9.0, f"fit {i}", last_words=f"ValueError: {i}") for i in range(failures))
    return a_run(40, 0, running_tasks=tasks, failures=bad, failed=failures, waiting=7)


def test_the_oldest_task_is_on_top_and_failures_have_their_last_words() -> None:
    lines = text(Screen(), busy_run())
    assert len(lines) == 24
    assert all(len(line) <= 80 for line in lines)
    first = next(place for place, line in enumerate(lines) if line.startswith("running"))
    assert "0:01:40" in lines[first + 1] and "train --seed 0" in lines[first + 1]
    bad = next(place for place, line in enumerate(lines) if line.startswith("failed"))
    assert "fit 0" in lines[bad + 1] and "ValueError: 0" in lines[bad + 2]
    assert "waiting 7" in lines[1]
    assert any("███" in line or "██░░ 3/8" in line for line in lines), "the load of engines"


def test_a_section_can_have_all_the_room() -> None:
    screen, state = Screen(), busy_run()
    shown = {}
    for _ in range(4):
        shown[screen.section] = "\n".join(text(screen, state))
        screen.next_section()
    assert screen.section == ""
    assert shown["running"].count("train") > 15
    assert shown["failures"].count("ValueError") >= 8
    assert shown["engines"].count("node") > 15
    assert "train" not in shown["failures"]


def test_search_finds_tasks_failures_and_engines() -> None:
    screen, state = Screen(), busy_run()
    for key in "/seed 77":
        press(key, screen, state, Path())
    press("enter", screen, state, Path())
    assert [task.task_id for task in screen.running(state)] == [77]
    shown = "\n".join(text(screen, state))
    assert "train --seed 77" in shown and "only what has 'seed 77'" in shown
    screen.search = "valueerror: 12"
    assert [bad.task_id for bad in screen.failures(state)] == [12]
    screen.search = "node7."
    assert [row.rank for row in screen.engines(state)] == [7]
    assert screen.chosen(state) is not None
    press("escape", screen, state, Path())
    assert len(screen.running(state)) == 300


def test_keys_ask_before_they_stop_an_engine(tmp_path: Path) -> None:
    screen, state = Screen(), busy_run()
    press("down", screen, state, tmp_path)
    press("e", screen, state, tmp_path)
    assert "Stop engine 1" in screen.question
    press("n", screen, state, tmp_path)
    assert not screen.question
    assert not list(tmp_path.iterdir())
    assert not press("q", screen, state, tmp_path)


@given(st.integers(0, 60), st.lists(st.integers(0, 50), min_size=1, max_size=5))
def test_room_is_shared(room: int, needs: list[int]) -> None:
    rooms = share(room, {str(place): need for place, need in enumerate(needs)})
    assert sum(rooms.values()) <= room
    assert all(rooms[str(place)] <= need for place, need in enumerate(needs))
    if sum(needs) <= room:
        assert list(rooms.values()) == needs


def test_the_time_of_a_run() -> None:
    assert a_run(now=0.25).elapsed_s == 0.25
    assert a_run(started_at=101.0).elapsed_s == 0.0, "its clock was set back"
    assert a_run(ended_at=40.0).elapsed_s == 40.0

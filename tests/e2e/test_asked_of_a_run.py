"""What users ask of a run that goes on, through its folder: cancel, retry, drain, add engines. With real processes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from e2e.live_runs import finish, rows, start, tasks, until
from pilothouse.journal.run_reader import RunReader
from pilothouse.journal.run_state import RunState
from pilothouse.worlds.live.requests import (
    AddContext,
    Answer,
    CancelTask,
    Request,
    RetryTask,
    StopContext,
    StopEngine,
    ask,
)

STATES = "SELECT task_id, state, attempt FROM ends WHERE final AND kind = 'N' ORDER BY task_id"
LONG = "sleep 600\n"


@contextmanager
def opened(folder: Path) -> Iterator[RunReader]:
    until(lambda: rows(folder, "SELECT 1 FROM engines WHERE left_at IS NULL"), "an engine")
    with closing(RunReader(folder)) as reader:
        yield reader


def answer(reader: RunReader, request: Request) -> Answer:
    """Asks, and waits for the answer."""
    before = max((found.number for found in reader.read().answers), default=0)
    ask(reader.folder, request)

    def found() -> list[Answer]:
        return [found for found in reader.read().answers if found.number > before and found.request == request]

    until(found, f"an answer to {request}")
    return found()[0]


def running(state: RunState) -> set[int]:
    return {task.task_id for task in state.running_tasks}


def test_tasks_are_cancelled_wherever_they_are(tmp_path: Path) -> None:
    named = "#PILOTHOUSE name=a\nsleep 600\n\n#PILOTHOUSE after=a\necho held\n\n"
    text = LONG + named + "true\n" * 3 + "#DISBATCH BARRIER\ntrue\n"
    process = start(tmp_path, tasks(tmp_path, text), "--slots", "1", "--dir", "R", "-q")
    with opened(tmp_path / "R") as reader:
        until(lambda: running(reader.read()) == {0}, "the first task runs")
        for task in (7, 4):  # behind the barrier; in the queue
            assert answer(reader, CancelTask(task)).done
        until(lambda: (4, "killed", 1) in rows(tmp_path / "R", STATES), "a waiting task is ended")
        assert answer(reader, CancelTask(0)).done  # it runs
        until(lambda: running(reader.read()) == {1}, "the second task runs")
        assert not answer(reader, CancelTask(0)).done, "it has ended"
        assert not answer(reader, CancelTask(-1)).done
        assert answer(reader, CancelTask(1)).done
    code, _ = finish(process)
    assert code == 1
    states = {task: state for task, state, _ in rows(tmp_path / "R", STATES)}
    assert states == {0: "killed", 1: "killed", 2: "omitted", 3: "succeeded", 4: "killed", 5: "succeeded", 7: "killed"}


def test_a_failed_task_is_run_once_more_and_a_check_minds_only_its_last_end(tmp_path: Path) -> None:
    fails = "test -e good || { echo not good >&2; exit 3; }\n"
    text = fails + "until test -e go; do sleep 0.02; done\n#DISBATCH BARRIER CHECK\ntrue\n"
    process = start(tmp_path, tasks(tmp_path, text), "--slots", "2", "--dir", "R", "-q")
    with opened(tmp_path / "R") as reader:
        until(lambda: reader.read().failed == 1, "the first task fails")
        assert not answer(reader, RetryTask(1)).done, "it runs"
        (tmp_path / "good").touch()
        assert answer(reader, RetryTask(0)).text == "task 0 waits for attempt 2"
        until(lambda: reader.read().finished == 1, "it succeeds")
        state = reader.read()
        assert state.failed == 0 and state.failures == ()
        assert not answer(reader, RetryTask(0)).done, "it has not failed"
        (tmp_path / "go").touch()
    assert finish(process)[0] == 0
    assert rows(tmp_path / "R", STATES) == [(0, "succeeded", 2), (1, "succeeded", 1), (3, "succeeded", 1)]


def test_what_was_asked_survives_the_driver(tmp_path: Path) -> None:
    """Cancelled tasks stay cancelled, tasks that are to run again do, added engines come back."""
    text = "false\n" + LONG + "true\n" * 2
    process = start(tmp_path, tasks(tmp_path, text), "--slots", "1", "--dir", "R", "-q")
    with opened(tmp_path / "R") as reader:
        until(lambda: running(reader.read()) == {1}, "the second task runs")
        assert answer(reader, CancelTask(3)).done
        assert answer(reader, RetryTask(0)).done
        assert answer(reader, AddContext(slots=2)).text == "context added1: starting 1 engine"
        until(lambda: len(reader.read().contexts.get("added1", ())) == 1, "an engine is added")
        until(lambda: running(reader.read()) == {1} and reader.read().finished == 3, "the rest runs on it")
        process.send_signal(signal.SIGINT)
        finish(process)
    again = start(tmp_path, "--resume", "R", "-q")
    with opened(tmp_path / "R") as reader:
        until(lambda: {e.context for e in reader.read().engines if e.present} == {"local", "added1"}, "both contexts are back")
        assert not answer(reader, AddContext(slots=0)).done
        assert not answer(reader, AddContext(hosts="-oProxyCommand=touch${IFS}x:1")).done
        ask(reader.folder, CancelTask(1))
    assert finish(again)[0] == 1
    assert rows(tmp_path / "R", STATES) == [(0, "failed", 2), (1, "killed", 2), (2, "succeeded", 1), (3, "killed", 1)]


def test_an_engine_is_drained_and_shown_as_leaving(tmp_path: Path) -> None:
    process = start(tmp_path, tasks(tmp_path, "until test -e go; do sleep 0.02; done\n" * 2), "--slots", "1", "--dir", "R", "-q")
    with opened(tmp_path / "R") as reader:
        engine = reader.read().engines[0].engine
        until(lambda: running(reader.read()) == {0}, "the first task runs")
        assert answer(reader, StopEngine(engine)).done
        assert reader.read().engines[0].state == "leaving"
        assert not answer(reader, StopEngine("nobody")).done
        assert not answer(reader, StopContext("nobody")).done
        assert answer(reader, AddContext(slots=1)).done
        (tmp_path / "go").touch()
    assert finish(process)[0] == 0
    assert rows(tmp_path / "R", "SELECT count(DISTINCT rank) FROM ends") == [(2,)]

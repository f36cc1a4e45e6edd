"""What users ask of a run that goes on, through its folder: cancel, retry, drain, add engines. With real processes."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from e2e.live_runs import COMMAND, finish, rows, start, tasks, until
from pilothouse.journal.run_reader import RunReader
from pilothouse.journal.run_state import RunState
from pilothouse.worlds.live.requests import AddContext, CancelTask, Request, RetryTask, StopContext, StopEngine, ask

STATES = "SELECT task_id, state, attempt FROM ends WHERE final AND kind = 'N' ORDER BY task_id"
GATE = "until test -e go; do sleep 0.02; done\n"


@contextmanager
def opened(folder: Path) -> Iterator[RunReader]:
    until(lambda: rows(folder, "SELECT 1 FROM engines WHERE left_at IS NULL"), "an engine")
    with closing(RunReader(folder)) as reader:
        yield reader


def answers(reader: RunReader, *requests: Request) -> list[str]:
    """Asks, and waits for the answers: texts of what is done, and `no: ...`."""
    before = max((found.number for found in reader.read().answers), default=0)
    for request in requests:
        ask(reader.folder, request)

    def found() -> dict[Request, str]:
        new = [answer for answer in reader.read().answers if answer.number > before]
        return {answer.request: answer.text if answer.done else f"no: {answer.text}" for answer in new}

    until(lambda: len(found()) == len(requests), f"answers to {requests}")
    return [found()[request] for request in requests]


def running(state: RunState) -> set[int]:
    return {task.task_id for task in state.running_tasks}


def test_tasks_are_cancelled_wherever_they_are(tmp_path: Path) -> None:
    named = "#PILOTHOUSE name=a\nsleep 600\n\n#PILOTHOUSE after=a\necho held\n\n"
    text = "sleep 600\n" + named + "true\n" * 3 + "#DISBATCH BARRIER\ntrue\n"
    process = start(tmp_path, tasks(tmp_path, text), "--slots", "1", "--dir", "R", "-q")
    with opened(tmp_path / "R") as reader:
        until(lambda: running(reader.read()) == {0}, "the first task runs")
        said = answers(reader, CancelTask(7), CancelTask(4), CancelTask(0), CancelTask(-1))
        assert [text.startswith("no: ") for text in said] == [False, False, False, True]
        assert said[1] == "task 4 will not be run", "it was in the queue"
        until(lambda: running(reader.read()) == {1}, "the second task runs")
        assert answers(reader, CancelTask(0), CancelTask(1))[0] == "no: task 0 has ended"
    assert finish(process)[0] == 1
    states = {task: state for task, state, _ in rows(tmp_path / "R", STATES)}
    assert states == {0: "killed", 1: "killed", 2: "omitted", 3: "succeeded", 4: "killed", 5: "succeeded", 7: "killed"}


def test_a_failed_task_is_run_once_more_and_a_check_minds_only_its_last_end(tmp_path: Path) -> None:
    text = "test -e good || { echo not good >&2; exit 3; }\n" + GATE + "#DISBATCH BARRIER CHECK\ntrue\n"
    process = start(tmp_path, tasks(tmp_path, text), "--slots", "2", "--dir", "R", "-q")
    with opened(tmp_path / "R") as reader:
        until(lambda: reader.read().failed == 1, "the first task fails")
        (tmp_path / "good").touch()
        assert answers(reader, RetryTask(0), RetryTask(1)) == ["task 0 waits for attempt 2", "no: task 1 has not failed"]
        until(lambda: reader.read().finished == 1, "it succeeds")
        state = reader.read()
        assert state.failed == 0 and state.failures == ()
        (tmp_path / "go").touch()
    assert finish(process)[0] == 0
    assert rows(tmp_path / "R", STATES) == [(0, "succeeded", 2), (1, "succeeded", 1), (3, "succeeded", 1)]


def test_engines_are_added_and_drained_and_what_was_asked_survives_the_driver(tmp_path: Path) -> None:
    """Cancelled tasks stay cancelled, tasks that are to run again do, added engines come back, drained ones do not."""
    process = start(tmp_path, tasks(tmp_path, "false\n" + GATE + "true\n" * 2), "--slots", "1", "--dir", "R", "-q")
    with opened(tmp_path / "R") as reader:
        until(lambda: running(reader.read()) == {1}, "the second task runs")
        engine = reader.read().engines[0].engine
        said = answers(
            reader, CancelTask(3), RetryTask(0), AddContext(slots=2), StopEngine(engine), StopEngine("no"), StopContext("no"),
            AddContext(slots=0), AddContext(hosts="-oProxyCommand=touch${IFS}x:1"),
        )  # fmt: skip
        assert [text.startswith("no: ") for text in said] == [False] * 4 + [True] * 4
        assert said[2] == "context added1: starting 1 engine"
        assert reader.read().engines[0].state == "leaving"
        until(lambda: reader.read().finished == 3, "the rest runs on the new engine")
        process.send_signal(signal.SIGTERM)
        finish(process)
    again = start(tmp_path, "--resume", "R", "-q")
    with opened(tmp_path / "R") as reader:
        until(lambda: {e.context for e in reader.read().engines if e.present} == {"local", "added1"}, "both contexts are back")
        (tmp_path / "go").touch()
    assert finish(again)[0] == 1
    assert rows(tmp_path / "R", STATES) == [(0, "failed", 2), (1, "succeeded", 2), (2, "succeeded", 1), (3, "killed", 1)]


def test_a_job_of_a_qcg_service_is_seen_and_cancelled(tmp_path: Path) -> None:
    """It came by itself, and not as a line of a file: the service tells its client that it was cancelled."""
    job = {"execution": {"exec": "sleep", "args": ["600"]}, "resources": {"numCores": {"exact": 1}}}
    submit = {"request": "submit", "jobs": [{"name": "long", **job}]}
    (tmp_path / "r.json").write_text(json.dumps([submit, {"request": "control", "command": "finishAfterAllTasksDone"}]))
    command = [*COMMAND, "qcg", "--file-path", "r.json", "--nodes", "1"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    until(lambda: list(tmp_path.glob(".qcg*/journal.sqlite")), "the service begins")
    with opened(next(tmp_path.glob(".qcg*"))) as reader:
        until(lambda: running(reader.read()) == {0}, "the job runs")
        said = answers(reader, AddContext(slots=1), CancelTask(0))
        assert said == ["no: this run takes engines from its own program only", "job long is ended"]
    assert process.wait(60) == 0
    assert (tmp_path / "jobs.report").read_text().startswith("long (CANCELED)\n")

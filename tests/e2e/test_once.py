"""Tasks run once: whatever is killed, tasks are neither lost nor begun twice under at-most-once, and slots are not exceeded."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from e2e.live_runs import alive, engine_pid, finish, lines, rows, run, start, tasks, until


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def once(folder: Path, total: int) -> None:
    """Each task has a final end, none has begun twice, and those that are not lost have ended."""
    begun, ended = Counter(lines(folder / "begun")), set(lines(folder / "ended"))
    assert not [task for task, count in begun.items() if count > 1], "begun twice"
    finals = dict(rows(folder / "R", "SELECT task_id, state FROM ends WHERE final AND kind = 'N'"))
    assert len(finals) == total
    succeeded = {str(task) for task, state in finals.items() if state == "succeeded"}
    assert succeeded & set(begun) <= ended
    assert set(finals.values()) <= {"succeeded", "lost"}


PRINTING = f"#!/bin/sh\necho $1 >> begun\necho {'o' * 100}\necho {'e' * 100} >&2\necho $1 >> ended\n"


def test_tasks_that_print_run_once(tmp_path: Path) -> None:
    """Hundreds of results of one bundle, larger than those of silent tasks, are not reported when the engine dies."""
    (tmp_path / "print").write_text(PRINTING)
    (tmp_path / "print").chmod(0o700)
    # After short tasks bundles are large.
    file = tasks(tmp_path, "true\n" * 2000 + "".join(f"./print {i}\n" for i in range(2000, 4000)))
    process = start(tmp_path, file, "--dir", "R", "--slots", "1", "--once", "at-most")
    for count in (1, 1000):
        until(lambda count=count: len(lines(tmp_path / "begun")) >= count, "tasks began")  # type: ignore[misc]
        engine, seen = engine_pid(tmp_path / "R"), [-2, -1]
        os.kill(engine, signal.SIGSTOP)
        while seen[-1] != seen[-2]:  # the cylinder comes to the end of its bundle
            threading.Event().wait(0.3)
            seen.append(len(lines(tmp_path / "begun")))
        os.kill(engine, signal.SIGKILL)
        until(lambda engine=engine: engine_pid(tmp_path / "R") != engine, "another engine joined")  # type: ignore[misc]
    finish(process)
    once(tmp_path, 4000)


@pytest.mark.parametrize("guilty", ["kill -9 $PPID", "env -i bash -c 'kill -9 $PPID; sleep 300'"])
@pytest.mark.parametrize("mode", ["at-least", "at-most"])
def test_a_task_that_kills_its_parent_harms_no_other(tmp_path: Path, guilty: str, mode: str) -> None:
    long = "echo $PILOTHOUSE_TASK >> begun; until [ -e go ]; do sleep 0.02; done; echo $PILOTHOUSE_TASK >> ended\n"
    file = tasks(tmp_path, f"{long}echo here >> attempts; {guilty}\ntouch go\n" + "echo fine\n" * 5)
    code, said = run(tmp_path, file, "--dir", "R", "--slots", "2", "--once", mode)
    assert code == 1
    assert lines(tmp_path / "begun") == lines(tmp_path / "ended") == ["0"]
    assert rows(tmp_path / "R", "SELECT task_id FROM ends WHERE state = 'lost' AND final") == [(1,)]
    assert len(lines(tmp_path / "attempts")) == (5 if mode == "at-least" else 1)
    assert len(rows(tmp_path / "R", "SELECT * FROM engines")) == 1, said


WAITING = "echo {0} >> begun; until [ -e go ]; do sleep 0.02; done; echo {0} >> ended\n"


@pytest.mark.parametrize("mode", ["at-least", "at-most"])
@pytest.mark.parametrize("victims", ["engine", "warden", "engine and warden"])
def test_ends_while_there_was_no_driver_are_known(tmp_path: Path, victims: str, mode: str) -> None:
    file = tasks(tmp_path, "".join(WAITING.format(i) for i in range(2)) + "".join(f"echo {i} >> begun\n" for i in (2, 3)))
    process = start(tmp_path, file, "--dir", "R", "--slots", "2", "--once", mode)
    until(lambda: len(lines(tmp_path / "begun")) == 2, "two tasks began")
    engine = engine_pid(tmp_path / "R")
    warden = parent(engine)
    process.kill()
    finish(process)
    (tmp_path / "go").touch()
    until(lambda: len(lines(tmp_path / "ended")) == 2, "they ended while there was no driver")
    until(lambda: idle(engine), "and the cylinders know it")
    for pid in [engine] * ("engine" in victims) + [warden] * ("warden" in victims):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(engine), "the engine is gone")
    code, said = run(tmp_path, "--resume", "R")
    assert code == 0, said
    assert lines(tmp_path / "begun") == ["0", "1", "2", "3"], "none ran again"
    until(lambda: not list((tmp_path / "R").glob("*.spool")), "nothing is left to report")


def idle(engine: int) -> bool:
    """No task of its cylinders is left."""
    cylinders = children(parent(engine))
    return not any(children(pid) for pid in cylinders)


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


ESCAPES = [
    "echo $$ >> pids; exec env -i sleep 300",
    "echo $$ >> pids; env -i sh -c 'sleep 300 & echo $! >> pids; wait'",
    "echo $$ >> pids; env -i setsid sh -c 'echo $$ >> pids; sleep 300'; sleep 300",
    "echo $$ >> pids; (env -i setsid sh -c 'echo $$ >> pids; sleep 300' &); sleep 300",
]


@pytest.mark.parametrize("task", ESCAPES)
@pytest.mark.parametrize("victim", ["warden", "engine"])
def test_no_task_outlives_its_engine(tmp_path: Path, task: str, victim: str) -> None:
    """Neither an empty environment nor a session of its own hides a task, and nobody has to come back to end it."""
    process = start(tmp_path, tasks(tmp_path, task + "\n"), "--dir", "R", "--slots", "1", "--wait-for-driver", "1")
    expected = 1 if "exec" in task else 2
    until(lambda: len(lines(tmp_path / "pids")) == expected, "the task began")
    pids = [int(word) for word in lines(tmp_path / "pids")]
    engine = engine_pid(tmp_path / "R")
    warden = parent(engine)
    process.kill()
    finish(process)
    os.kill(warden if victim == "warden" else engine, signal.SIGKILL)
    until(lambda: not any(alive(pid) for pid in pids), "all processes of the task are gone")
    until(lambda: not alive(warden), "its warden does not wait for ever")


@pytest.mark.parametrize("driver_too", [False, True])
def test_a_task_that_no_process_is_left_to_end_does_not_run_beside_its_copy(tmp_path: Path, driver_too: bool) -> None:
    """Warden, engine and all cylinders are killed at once, and the task has neither its environment nor its session."""
    first = "env -i setsid sh -c 'echo $$ > hidden; exec sleep 300'"
    again = "kill -0 $(cat hidden) 2> /dev/null && grep -q sleep /proc/$(cat hidden)/cmdline && touch beside; true"
    file = tasks(tmp_path, f"if [ -e hidden ]; then {again}; else {first}; fi\n")
    process = start(tmp_path, file, "--dir", "R", "--slots", "2")
    until(lambda: lines(tmp_path / "hidden"), "the task began")
    warden = parent(engine_pid(tmp_path / "R"))
    for pid in (*([process.pid] if driver_too else ()), warden, *children(warden)):
        os.kill(pid, signal.SIGKILL)
    code, said = finish(process)
    if driver_too:
        code, said = run(tmp_path, "--resume", "R")
    assert code == 0, said
    assert not (tmp_path / "beside").exists()
    assert not alive(int((tmp_path / "hidden").read_text()))


def test_a_driver_that_was_killed_before_its_engine_joined(tmp_path: Path) -> None:
    """The engine that the first driver started comes late: its slots belong to that of the second."""
    text = "".join(f"date +%s.%N > began{i}; sleep 0.5; date +%s.%N > ended{i}\n" for i in range(6))
    process = start(tmp_path, tasks(tmp_path, text), "--dir", "R", "--slots", "1", "--bundle", "1")
    until(lambda: list((tmp_path / "R").glob("*.spool")), "the engine was started")
    process.kill()
    finish(process)
    early = rows(tmp_path / "R", "SELECT engine FROM engines")
    code, said = run(tmp_path, "--resume", "R")
    assert code == 0, said
    spans = sorted((float((tmp_path / f"began{i}").read_text()), float((tmp_path / f"ended{i}").read_text())) for i in range(6))
    assert all(before[1] <= after[0] for before, after in pairwise(spans)), "one slot, one task at a time"
    assert early or len(rows(tmp_path / "R", "SELECT 1 FROM engines")) == 1


@pytest.mark.parametrize("mode", ["at-least", "at-most"])
@pytest.mark.parametrize("kept", [0.5, 0.7, 0.9])
def test_records_that_were_lost_do_not_stop_a_run(tmp_path: Path, mode: str, kept: float) -> None:
    """A power failure on a disk that had promised to keep its writes: the end of the journal's log is cut off.

    An engine that the second driver does not know may wait for the first one.
    """
    file = tasks(tmp_path, "".join(f"echo {i} >> begun; sleep 0.05\n" for i in range(60)))
    process = start(tmp_path, file, "--dir", "R", "--slots", "2", "--bundle", "1", "--once", mode, "--wait-for-driver", "4")
    until(lambda: len(lines(tmp_path / "begun")) >= 20, "some tasks ran")
    process.kill()
    finish(process)
    log = tmp_path / "R" / "journal.sqlite-wal"
    os.truncate(log, int(log.stat().st_size * kept))
    code, said = run(tmp_path, "--resume", "R")
    assert code in (0, 1), said
    ends = rows(tmp_path / "R", "SELECT count(DISTINCT task_id), count(*) FROM ends WHERE final")
    assert ends == [(60, 60)], said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_task_that_was_begun_is_not_begun_again_after_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    """Its end is final: the summary does not call it "not run", and a resumed run leaves it alone."""
    file = tasks(tmp_path, "".join(f"echo {i} >> begun; [ -e go ] || exec sleep 300\n" for i in range(4)))
    process = start(tmp_path, file, "--dir", "R", "--slots", "2", "--bundle", "1", "--once", "at-most", "--grace", "1")
    until(lambda: len(lines(tmp_path / "begun")) == 2, "two tasks began")
    process.send_signal(number)
    if number == signal.SIGINT:
        assert process.stderr is not None
        while "nothing more is begun" not in process.stderr.readline():  # two signals at once may be one
            pass
        process.send_signal(number)
    _, said = finish(process)
    assert "0 succeeded, 2 killed, 2 not run" in said
    (tmp_path / "go").touch()
    code, said = run(tmp_path, "--resume", "R")
    assert code == 1 and "2 succeeded, 2 killed" in said
    assert lines(tmp_path / "begun") == ["0", "1", "2", "3"]
    code, said = run(tmp_path, "--resume", "R", "--retry-failed")
    assert code == 0 and "4 succeeded" in said

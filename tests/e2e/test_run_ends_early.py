"""Ends before all is done: Ctrl-C once, twice and three times, `run --finish DIR`, and the request of the dashboard's button."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.storms.processes import working_in

from e2e.live_runs import COMMAND, finish, lines, rows, run, start, tasks, until
from pilothouse.worlds.live.requests import EndRun, ask

WAITING = "".join(f"echo {i} >> begun; until [ -e go ]; do sleep 0.02; done; echo {i} >> ended\n" for i in range(6))
DEAF = "".join(f"trap '' TERM; echo {i} >> begun; until [ -e go ]; do sleep 0.02; done\n" for i in range(6))


def begin(folder: Path, text: str = WAITING, *options: str) -> subprocess.Popen[str]:
    process = start(folder, tasks(folder, text), "--dir", "R", "--slots", "2", *options)
    until(lambda: len(lines(folder / "begun")) == 2, "two tasks began")
    return process


def said_line(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.readline()


def ctrl_c(folder: Path, process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)


def command(folder: Path, process: subprocess.Popen[str]) -> None:
    done = subprocess.run([*COMMAND, "run", "--finish", "R"], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stderr == "pilothouse: R: asked to finish what runs; it begins nothing more\n"


def button(folder: Path, process: subprocess.Popen[str]) -> None:
    ask(folder / "R", EndRun("finish"))


def answers(folder: Path) -> str:
    return "".join(str(row[0]) for row in rows(folder / "R", "SELECT value FROM notes WHERE name LIKE 'answer %'"))


@pytest.mark.parametrize(("way", "exit_code", "bundle"), [(ctrl_c, 130, "1000"), (command, 1, "1"), (button, 1, "1000")])
def test_running_tasks_end_and_nothing_more_is_begun(
    tmp_path: Path, way: Callable[[Path, subprocess.Popen[str]], None], exit_code: int, bundle: str
) -> None:
    process = begin(tmp_path, WAITING, "--bundle", bundle)
    way(tmp_path, process)
    until(lambda: "nothing more is begun; 2 tasks still run" in answers(tmp_path), "the request was obeyed")
    if way is ctrl_c:
        assert said_line(process) == "pilothouse: nothing more is begun; 2 tasks still run; Ctrl-C again ends what runs\n"
    (tmp_path / "go").touch()
    code, said = finish(process)
    assert code == exit_code and "2 succeeded, 4 not run" in said and "go on with: pilothouse run --resume" in said
    assert len(lines(tmp_path / "begun")) == 2 and lines(tmp_path / "ended") == lines(tmp_path / "begun")
    assert not working_in(tmp_path)
    assert run(tmp_path, "--resume", "R")[0] == 0
    assert lines(tmp_path / "begun") == lines(tmp_path / "ended") == [str(i) for i in range(6)]


def test_the_second_ctrl_c_ends_what_runs(tmp_path: Path) -> None:
    process = begin(tmp_path)
    process.send_signal(signal.SIGINT)
    assert "2 tasks still run" in said_line(process)
    process.send_signal(signal.SIGINT)
    assert said_line(process) == "pilothouse: nothing more is begun; 2 tasks are ended; one more signal kills what runs\n"
    code, said = finish(process)
    assert code == 130 and "0 succeeded, 6 not run" in said
    assert not working_in(tmp_path)


def test_the_third_ctrl_c_kills_what_runs(tmp_path: Path) -> None:
    """The tasks do not heed TERM, and would have a long grace."""
    process = begin(tmp_path, DEAF, "--grace", "300")
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        said_line(process)
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 130
    assert not working_in(tmp_path)
    (tmp_path / "go").touch()
    assert run(tmp_path, "--resume", "R")[0] == 0


def test_a_run_that_is_over_cannot_be_finished(tmp_path: Path) -> None:
    assert run(tmp_path, tasks(tmp_path, "true\n"), "--dir", "R")[0] == 0
    code, said = run(tmp_path, "--finish", "R")
    assert code == 2 and said == "pilothouse: R: no run goes on here\n"

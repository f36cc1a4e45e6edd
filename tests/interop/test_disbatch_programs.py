"""disBatch's own monitor on our run, tasks from Python programs, a key-value service that others run."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import components
from disbatch_runs import clean_env, drain, read_until, service
from pilothouse.dropins.disbatch.batcher import DisBatcher
from pilothouse.dropins.disbatch.status_file import parse_line
from pilothouse.journal.run_reader import RunReader
from pilothouse.model.errors import PeerError
from pilothouse.worlds.live.services.kvs_server import KvsServer

pytestmark = pytest.mark.peer("disbatch", "its programs (DisBatcher, dbMon, --web) and our driver")


def test_disbatchs_monitor_shows_our_run_and_stops_an_engine(client_env: Callable[[str], Path], tmp_path: Path) -> None:
    python = client_env("disbatch")
    with service(tmp_path, "#DISBATCH REPEAT 1000 sleep 0.1\n") as (script, running):
        contexts = [
            subprocess.Popen([script, "-s", "localhost:1", "-l", name], env=clean_env()) for name in ("one", "two")
        ]
        reader = RunReader(tmp_path / "serv_run")
        components.wait_until(lambda: len(reader.read().engines) == 2, "two engines")
        reader.close()
        pid, screen = pty.fork()
        if pid == 0:
            address = (tmp_path / "serv_kvsinfo.txt").read_text()
            os.environ.update(DISBATCH_KVSSTCP_HOST=address, TERM="xterm", LINES="40", COLUMNS="120")
            os.execv(python, [str(python), "-m", "disbatch.dbMon", "serv"])
        read_until(screen, b"Run label: serv", b"More tasks.", b"one", b"two")
        os.write(screen, b"E")
        read_until(screen, b"[Y]es")
        os.write(screen, b"y")
        components.wait_until(lambda: any(context.poll() == 0 for context in contexts), "an engine to leave")
        assert running.poll() is None
        os.write(screen, b"q")
        drain(screen)
        os.waitpid(pid, 0)
        running.terminate()
        for context in contexts:
            context.wait(60)


def test_tasks_from_a_python_program(tmp_path: Path) -> None:
    prefix = str(tmp_path / "mine")
    with DisBatcher("mine", ["-s", "localhost:2", "-p", prefix]) as batcher:
        ids = [batcher.submit(f"exit {code}") for code in range(3)]
        assert ids == [0, 1, 2]
        results = batcher.syncTasks([0, 1, 2])
        assert [results[i]["ReturnCode"] for i in range(3)] == [0, 1, 2]
        assert batcher.submit("# nothing") is None
        assert batcher.submit("#DISBATCH REPEAT 3 true") == 3
        assert sorted(batcher.syncTasks([3, 4, 5])) == [3, 4, 5]
    lines = [parse_line(line) for line in Path(f"{prefix}_status.txt").read_text().splitlines()]
    assert sorted(line.task_id for line in lines) == list(range(6))


def test_a_run_that_dies_is_not_waited_for(tmp_path: Path) -> None:
    batcher = DisBatcher("mine", ["-s", "nowhere", "-p", str(tmp_path / "mine")])
    batcher.submit("true")
    with pytest.raises(PeerError, match="ended with code 1"):
        batcher.wait_one_task()
    assert batcher.done() == 1


SOURCE = """
import sys
from disbatch.disBatch import DisBatcher
db = DisBatcher(tasksname='theirs', kvsserver=sys.argv[1])
db.submit('exit 5')
print(db.syncTasks([0])[0]['ReturnCode'])
db.done()
"""


def test_a_key_value_service_that_somebody_else_runs(client_env: Callable[[str], Path], tmp_path: Path) -> None:
    with KvsServer() as server:
        run = subprocess.Popen(
            ["disBatch", "-s", "localhost:1", "-p", "x", "--kvsserver", server.address, "--taskserver", server.address],
            cwd=tmp_path, env=clean_env(),
        )  # fmt: skip
        source = subprocess.run(
            [client_env("disbatch"), "-c", SOURCE, server.address], capture_output=True, text=True, check=False, timeout=60
        )
        assert source.stdout == "5\n", source.stderr
        assert run.wait(60) == 0
    assert not (tmp_path / "x_kvsinfo.txt").exists()


DYING_PROGRAM = """
import os, sys
from pilothouse.dropins.disbatch.batcher import DisBatcher
batcher = DisBatcher("mine", ["-s", "localhost:1", "-p", "x"])
for task in range(3):
    batcher.submit(f"echo {task}")
batcher.syncTasks([0])
os.kill(os.getpid(), 9)
"""


def test_a_program_that_dies_leaves_one_line_and_finished_tasks(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DYING_PROGRAM]
    # The run has inherited stderr: `run` returns when the run has ended, too.
    ran = subprocess.run(command, cwd=tmp_path, env=clean_env(), capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == -9
    lines = ran.stderr.splitlines()
    assert len(lines) == 1 and "is gone" in lines[0], ran.stderr
    assert sorted(line.task_id for line in map(parse_line, (tmp_path / "x_status.txt").read_text().splitlines())) == [0, 1, 2]


def test_a_service_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("true\n")
    command = ["disBatch", "-s", "localhost:1", "-p", "x", "--kvsserver", "127.0.0.1:1", "tasks"]
    ran = subprocess.run(command, cwd=tmp_path, env=clean_env(), capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 1 and len(ran.stderr.splitlines()) == 1 and "127.0.0.1:1" in ran.stderr

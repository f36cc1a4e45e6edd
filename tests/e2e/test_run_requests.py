"""Tasks that ask for cores, memory, GPUs and more: `pilothouse run` with real processes on this host."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.live_runs import finish, rows, run, start, tasks, until
from pilothouse.worlds.live.records import gpus_of_text

NODE = ("--dir", "R", "--slots", "4", "--gpu-list", "7,9", "--node-mem", "4G")
MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")
HUNGRY = """python3 -c 'b = bytearray(200_000_000); import time; time.sleep({})'"""


@pytest.fixture
def no_cgroup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTHOUSE_CGROUP", "no")


@pytest.fixture
def cgroup(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = MEMORY_GROUPS / f"test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as problem:
        pytest.skip(f"no cgroup of version 1 can be made here: {problem}")
    monkeypatch.setenv("PILOTHOUSE_CGROUP", str(folder))
    yield folder
    for inner in folder.glob("pilothouse-*"):
        inner.rmdir()
    folder.rmdir()


def test_requests_reach_the_tasks(tmp_path: Path) -> None:
    text = (
        "#PILOTHOUSE cores=2 gpus=2 env=A=1,B='x y' name=first\necho $CUDA_VISIBLE_DEVICES $A $B $C > a\n\n"
        "#PILOTHOUSE gpus=1 after=first retries=1\ncat a > b; test $PILOTHOUSE_ATTEMPT = 2\n"
    )
    code, _ = run(tmp_path, tasks(tmp_path, text), *NODE, "--env", "C=3", "--retries", "0")
    assert code == 0
    assert (tmp_path / "a").read_text() == "7,9 1 x y 3\n" == (tmp_path / "b").read_text()
    found = rows(tmp_path / "R", "SELECT units, gpus, memory_mb FROM assignments ORDER BY id")
    assert [(units, gpus_of_text(str(gpus)).popitem()[1], memory) for units, gpus, memory in found] == [
        ("0-1", ("7", "9"), 0), ("0", ("7",), 0), ("0", ("9",), 0)
    ]  # fmt: skip
    assert rows(tmp_path / "R", "SELECT name, state FROM ends WHERE final ORDER BY task_id") == [
        ("first", "succeeded"), ("", "succeeded")
    ]  # fmt: skip


def test_a_table_of_tasks(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("command,cores,walltime\nsleep 60,1,0.3\ntrue,4,\n")
    code, said = run(tmp_path, "t.csv", *NODE)
    assert code == 1 and "1 succeeded, 1 timed out" in said
    code, said = run(tmp_path, "t.csv", "--dry-run")
    assert code == 0


def test_what_no_node_has_is_refused(tmp_path: Path) -> None:
    code, said = run(tmp_path, tasks(tmp_path, "#PILOTHOUSE mem=5G\ntrue\n#PILOTHOUSE gpus=3\ntrue\n\ntrue\n"), *NODE)
    assert code == 1
    assert "1 succeeded, 2 refused" in said and "5120 MB" in said and "3 GPUs" in said


def test_tasks_that_wait_for_a_failed_one_are_omitted_and_retried_with_it(tmp_path: Path) -> None:
    text = "#PILOTHOUSE name=a\ntest -e go\n#PILOTHOUSE after=a\ntouch after\n"
    code, said = run(tmp_path, tasks(tmp_path, text), *NODE)
    assert code == 1 and "1 failed, 1 omitted" in said
    (tmp_path / "go").touch()
    assert run(tmp_path, "--resume", "R", "--retry-failed")[0] == 0
    assert (tmp_path / "after").exists()


@pytest.mark.usefixtures("no_cgroup")
def test_a_task_that_uses_too_much_memory_is_ended_and_tried_with_more(tmp_path: Path) -> None:
    text = f"#PILOTHOUSE mem=60M\n{HUNGRY.format(60)}\n"
    code, said = run(tmp_path, tasks(tmp_path, text), *NODE)
    assert code == 1 and "out of memory: it used" in said and "may use 60 MB" in said
    text = f"#PILOTHOUSE mem=60M\n{HUNGRY.format(0.5)}\n"
    assert run(tmp_path, tasks(tmp_path, text), "--dir", "S", *NODE[2:], "--retry-mem", "x4")[0] == 0
    assert rows(tmp_path / "S", "SELECT attempt, state FROM ends ORDER BY attempt") == [(1, "failed"), (2, "succeeded")]
    assert rows(tmp_path / "S", "SELECT memory_mb FROM assignments ORDER BY id") == [(60,), (240,)]
    ((used,),) = rows(tmp_path / "S", "SELECT memory_kb FROM ends WHERE final")
    assert 190_000 < int(str(used)) < 240_000


@pytest.mark.usefixtures("no_cgroup")
def test_memory_of_children_counts_and_shared_pages_count_once(tmp_path: Path) -> None:
    program = "import os, time\nb = bytearray(60_000_000)\n{}\ntime.sleep({})\n"
    (tmp_path / "shared.py").write_text(program.format("for _ in range(3): os.fork()", 0.6))
    (tmp_path / "own.py").write_text(program.format("os.fork(); os.fork(); b = b'1' * 60_000_000", 60))
    text = "#PILOTHOUSE mem=150M\npython3 shared.py\npython3 own.py\n"
    run(tmp_path, tasks(tmp_path, text), *NODE)
    assert rows(tmp_path / "R", "SELECT state, reason LIKE 'out of memory%' FROM ends ORDER BY task_id") == [
        ("succeeded", 0), ("failed", 1)
    ]  # fmt: skip


def test_the_kernel_ends_a_task_that_uses_too_much_memory(tmp_path: Path, cgroup: Path) -> None:
    text = f"#PILOTHOUSE mem=60M\n{HUNGRY.format(0)} || true\ntrue\n"
    code, said = run(tmp_path, tasks(tmp_path, text), *NODE)
    assert code == 1 and "1 succeeded, 1 failed" in said and "out of memory" in said
    assert not list(cgroup.glob("pilothouse-*"))


def test_gpus_and_memory_of_running_tasks_are_known_to_a_driver_that_resumes(tmp_path: Path) -> None:
    text = "#PILOTHOUSE gpus=1 mem=3G\necho $CUDA_VISIBLE_DEVICES > a; until [ -e go ]; do sleep 0.05; done\n"
    text += "#PILOTHOUSE gpus=1 mem=1G\necho $CUDA_VISIBLE_DEVICES > b\n#PILOTHOUSE mem=2G\ntouch late\n"
    driver = start(tmp_path, tasks(tmp_path, text), *NODE, "--policy", "filler", "--window", "1")
    until((tmp_path / "a").exists, "the first task runs")
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    (tmp_path / "b").unlink(missing_ok=True)
    again = start(tmp_path, "--resume", "R")
    until(lambda: rows(tmp_path / "R", "SELECT 1 FROM ends WHERE task_id = 1 AND final"), "the second task ends")
    assert not (tmp_path / "late").exists()
    (tmp_path / "go").touch()
    assert finish(again)[0] == 0
    texts = rows(tmp_path / "R", "SELECT gpus FROM assignments WHERE gpus != ''")
    given = [gpus_of_text(str(text)).popitem()[1] for (text,) in texts]
    assert given == [("7",), ("9",)]

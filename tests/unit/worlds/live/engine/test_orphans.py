"""Processes whose warden is gone are found by a mark that they cannot lose by accident."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import components
from pilothouse.worlds.live.engine import task_processes

WARDEN = """
import os, subprocess, sys
from pilothouse.worlds.live.engine.task_processes import mark_of, mark_tasks
mark = mark_of(os.getpid())
if not os.fork():
    mark_tasks(mark)
    task = subprocess.Popen(["env", "-i", "/usr/bin/setsid", "sleep", "600"])
    print(task.pid, flush=True)
    os._exit(0)
sys.stdin.read()
"""


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture
def warden() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that marks what it starts, and a task of it that has hidden in a session of its own."""
    env = {**os.environ, "PYTHONPATH": str(components.ROOT / "src")}
    made = subprocess.Popen([sys.executable, "-c", WARDEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    assert made.stdout is not None
    task = int(made.stdout.readline())
    yield made, task
    made.kill()
    if not gone(task):
        os.kill(task, signal.SIGKILL)
    made.communicate()


def test_a_task_without_environment_and_session_is_ended_when_its_warden_is_gone(
    warden: tuple[subprocess.Popen[str], int],
) -> None:
    process, task = warden
    assert task not in task_processes.end_orphans()
    process.kill()
    components.wait_until(lambda: gone(process.pid), "the warden has ended, unnoticed by its parent")
    assert task in task_processes.end_orphans()
    components.wait_until(lambda: gone(task), "the task has ended")
    assert os.getpid() not in task_processes.end_orphans()


def test_the_mark_names_one_life_of_a_process(warden: tuple[subprocess.Popen[str], int]) -> None:
    process, _ = warden
    mark = task_processes.mark_of(process.pid)
    assert mark == task_processes.mark_of(process.pid)
    assert mark != task_processes.mark_of(os.getpid())
    process.kill()
    process.wait()
    assert mark != task_processes.mark_of(process.pid)


@pytest.mark.parametrize("limit", [(5_000_000, resource.RLIM_INFINITY), (5_000_000, 6_000_000)])
def test_a_limit_of_the_hosts_owner_stays(limit: tuple[int, int]) -> None:
    program = "import resource; from pilothouse.worlds.live.engine.task_processes import mark_of, mark_tasks\n"
    program += f"resource.setrlimit(resource.RLIMIT_RTTIME, {limit})\nmark_tasks(mark_of(1))\n"
    program += "print(resource.getrlimit(resource.RLIMIT_RTTIME))"
    env = {**os.environ, "PYTHONPATH": str(components.ROOT / "src")}
    said = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True).stdout
    assert said == f"{limit}\n"


def test_children_of_children_end_with_them() -> None:
    """Also what has a session of its own."""
    program = "from pilothouse.worlds.live.engine.task_processes import adopt_orphans, end_children\nimport subprocess\n"
    program += "adopt_orphans()\n"
    program += "task = subprocess.Popen(['sh', '-c', 'setsid sleep 600 & echo $!; exec sleep 600'], stdout=subprocess.PIPE)\n"
    program += "print(task.stdout.readline().decode())\nend_children()\n"
    env = {**os.environ, "PYTHONPATH": str(components.ROOT / "src")}
    said = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True, timeout=20)
    assert gone(int(said.stdout))


def test_spared_children_are_left() -> None:
    program = "from pilothouse.worlds.live.engine.task_processes import end_children\nimport subprocess\n"
    program += "a, b = (subprocess.Popen(['sleep', '600']) for _ in range(2))\n"
    program += "end_children((b.pid,))\nprint(b.poll() is None); b.kill(); b.wait()\n"
    env = {**os.environ, "PYTHONPATH": str(components.ROOT / "src")}
    said = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True, timeout=20)
    assert said.stdout == "True\n"

"""Flux-style schedulers decide for our worlds: ours as a process, and one that knows nothing but the RFCs."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(HERE.parent.parent / "src")}
Row = tuple[str, str, str]


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    """Jobs that collide: many dates are shared, sizes reach from one unit to all of them."""
    source = random.Random(7)
    jobs, profiles = [], {}
    for number in range(120):
        runtime = source.choice([3, 7, 7, 20, 45])
        profiles[f"d{runtime}"] = {"type": "delay", "delay": runtime}
        jobs.append({"id": str(number), "subtime": source.randrange(0, 400, 5), "walltime": runtime + source.choice([1, 30]),
                     "res": source.choice([1, 1, 2, 3, 5, 8]), "profile": f"d{runtime}"})  # fmt: skip
    jobs.sort(key=lambda job: (job["subtime"], int(job["id"])))
    path = tmp_path / "w.json"
    path.write_text(json.dumps({"nb_res": 8, "jobs": jobs, "profiles": profiles}))
    return path


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def simulated(workload: Path, by: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pilothouse", "simulate", "-p", "8", "-w", str(workload), "--by", by,
               "-e", f"{workload.parent}/{'foreign' if by.startswith('rfc27') else 'own'}/", *more]  # fmt: skip
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False)


def schedule(workload: Path, name: str) -> dict[str, Row]:
    with (workload.parent / name / "jobs.csv").open() as file:
        return {row["job_id"]: (row["starting_time"], row["finish_time"], row["final_state"]) for row in csv.DictReader(file)}


def serve(path: Path, policy: str, *, once: bool = False) -> list[str]:
    world = f"flux:local://{path}?notes=0&patience=30&once={int(once)}"
    return [sys.executable, "-m", "pilothouse", "steer", "--world", world, "--by", policy]


@pytest.mark.parametrize(("policy", "dialect"), [("easy", ""), ("easy", "?rfc27=1"), ("conservative", ""), ("fcfs", "")])
def test_a_scheduler_process_decides_as_the_policy_in_process(workload: Path, policy: str, dialect: str) -> None:
    """Simulated dates reach the scheduler by sched.quiesce, so that even its estimates are the same."""
    socket = workload.parent / "s"
    command = " ".join(serve(socket, policy, once=True))
    done = simulated(workload, f"rfc27:{socket}{dialect}", "--decider-command", command)
    assert done.returncode == 0, done.stderr
    assert simulated(workload, policy).returncode == 0
    assert schedule(workload, "foreign") == schedule(workload, "own")


@pytest.mark.parametrize("mode", ["unlimited", "single"])
def test_a_scheduler_without_our_extension_is_paced(
    workload: Path, processes: list[subprocess.Popen[bytes]], mode: str
) -> None:
    """It only has to be silent for a moment; fcfs needs no clock, so the schedule is exactly fcfs's."""
    socket = workload.parent / "s"
    processes.append(subprocess.Popen([sys.executable, str(HERE / "plain_flux_scheduler.py"), str(socket), mode]))
    done = simulated(workload, f"rfc27:{socket}?pace=10ms")
    assert done.returncode == 0, done.stderr
    assert simulated(workload, "fcfs").returncode == 0
    assert schedule(workload, "foreign") == schedule(workload, "own")


def test_a_scheduler_that_gives_one_core_to_everybody_cannot_break_the_run(
    workload: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    socket = workload.parent / "s"
    script = [sys.executable, str(HERE / "plain_flux_scheduler.py"), str(socket), "unlimited", "--bad"]
    processes.append(subprocess.Popen(script))
    done = simulated(workload, f"rfc27:{socket}?pace=10ms")
    states = {state for _, _, state in schedule(workload, "foreign").values()}
    assert "REJECTED" in states and states <= {"REJECTED", "COMPLETED_SUCCESSFULLY"}
    assert "the allocation is taken back" in done.stderr
    assert "wrong count" in done.stderr or "already in use" in done.stderr


def test_a_killed_scheduler_is_waited_for_and_nothing_is_lost(
    workload: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    socket = workload.parent / "s"
    processes.append(subprocess.Popen(serve(socket, "fcfs"), env=ENVIRONMENT))
    command = [sys.executable, "-m", "pilothouse", "simulate", "-p", "8", "-w", str(workload), "--by",
               f"rfc27:{socket}", "-e", f"{workload.parent}/foreign/"]  # fmt: skip
    run = subprocess.Popen(command, env=ENVIRONMENT)
    processes.append(run)
    for _ in range(4):
        # a new scheduler for every one that dies, whatever it was doing
        try:
            run.wait(0.5)
            break
        except subprocess.TimeoutExpired:
            processes[-1 if processes[-1] is not run else 0].send_signal(signal.SIGKILL)
            processes.append(subprocess.Popen(serve(socket, "fcfs"), env=ENVIRONMENT))
    assert run.wait(100) == 0
    assert simulated(workload, "fcfs").returncode == 0
    assert schedule(workload, "foreign") == schedule(workload, "own")


def test_nobody_comes(workload: Path) -> None:
    done = simulated(workload, f"rfc27:{workload.parent}/s", "--decider-timeout", "0.3")
    assert done.returncode == 1
    assert "no scheduler became ready within 0.3 s" in done.stderr


@pytest.mark.parametrize(("name", "problem"), [("rfc27:", "no socket is named"), ("rfc27:/x?pace=soon", "not a duration"),
                                               ("rfc27:/x?speed=9", "unknown option 'speed'")])  # fmt: skip
def test_names_that_are_wrong(workload: Path, name: str, problem: str) -> None:
    done = simulated(workload, name)
    assert done.returncode == 2 and problem in done.stderr


def test_real_tasks_of_this_host_scheduled_by_a_flux_scheduler(
    tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    tasks = tmp_path / "tasks"
    tasks.write_text("".join(f"echo {number} >> {tmp_path}/done\n" for number in range(30)))
    processes.append(subprocess.Popen(serve(tmp_path / "s", "fcfs", once=True), env=ENVIRONMENT))
    command = [sys.executable, "-m", "pilothouse", "run", str(tasks), "--slots", "2", "--by",
               f"rfc27:{tmp_path}/s", "--dir", str(tmp_path / "run")]  # fmt: skip
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(map(int, (tmp_path / "done").read_text().split())) == list(range(30))
    assert processes[0].wait(30) == 0

"""The promise of the house: one scheduler, wherever it comes from, decides in simulation and about real processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import components
from e2e.live_runs import finish, gated, kill_engine_while_two_run, lines, start, tasks

Command = Callable[..., subprocess.CompletedProcess[str]]
EXAMPLES = components.ROOT / "examples"
TASKS = "#DISBATCH REPEAT 6 start 1 echo $DISBATCH_REPEAT_INDEX > done-$DISBATCH_REPEAT_INDEX\n"


@contextmanager
def pybatsim(python: Path, port: int, scheduler: str, log: Path) -> Iterator[str]:
    """A scheduler of another project at a socket; its name for `--by`."""
    program = python.parent / "pybatsim"
    events = f"ipc://{log.parent}/e"  # pybatsim 2 would bind one port for onlookers, and two of them would meet there
    command = [str(program), "-s", f"tcp://*:{port}", "-e", events, "-t", "60000", scheduler]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=log.parent)
    try:
        yield f"batsim:tcp://127.0.0.1:{port}"
        process.wait(30)
    finally:
        process.kill()
        process.wait()


@contextmanager
def flux_scheduler(policy: str, folder: Path) -> Iterator[str]:
    """A process that schedules for whoever speaks RFC 27 at a socket, as it would for a Flux broker."""
    path = folder / "sched.sock"
    start = [sys.executable, "-m", "pilothouse", "steer", "--world", f"flux:local://{path}", "--by", policy]
    with (folder / "scheduler.log").open("wb") as out:
        process = subprocess.Popen(start, stdout=out, stderr=out)
    try:
        yield f"rfc27:{path}"
    finally:
        process.kill()
        process.wait()


@contextmanager
def library(policy: str, folder: Path, pilothouse: Command) -> Iterator[str]:
    """A policy as a shared library with Batsim 5's C interface; its name for `--by`."""
    pytest.importorskip("cffi")
    path = folder / "libpolicy.so"
    built = pilothouse("edc-library", policy, "-o", str(path))
    assert built.returncode == 0, built.stdout + built.stderr
    yield f"edc:{path}"


@pytest.fixture(params=["easy", "file", "pybatsim2", "pybatsim3", "flux", "library"])
def decider(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    free_port: Callable[[], int],
    client_env: Callable[[str], Path],
    pilothouse: Command,
) -> Iterator[str]:
    if request.param == "file":
        yield f"{EXAMPLES / 'shortest_first.py'}:ShortestFirst"
    elif request.param.startswith("pybatsim"):
        with pybatsim(client_env(request.param), free_port(), "fillerSched", tmp_path / "scheduler.log") as name:
            # Clients of the second generation end on words that came later.
            yield f"{name}?dialect=2" if request.param == "pybatsim2" else name
    elif request.param == "flux":
        with flux_scheduler("filler", tmp_path) as name:
            yield name
    elif request.param == "library":
        with library("filler", tmp_path, pilothouse) as name:
            yield name
    else:
        yield request.param


def test_it_decides_about_simulated_jobs(decider: str, tmp_path: Path, pilothouse: Command) -> None:
    ran = pilothouse(
        *("simulate", "-p", "4", "-w", str(EXAMPLES / "tiny.json"), "--by", decider, "-e", "out/"), cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = (tmp_path / "out" / "jobs.csv").read_text().splitlines()[1:]
    states = {row.split(",")[0]: row.split(",")[7] for row in rows}
    assert states.pop("5") == "COMPLETED_WALLTIME_REACHED"
    assert states == dict.fromkeys(["1", "2", "3", "4", "6"], "COMPLETED_SUCCESSFULLY")


def test_it_decides_about_real_processes(decider: str, tmp_path: Path, pilothouse: Command) -> None:
    (tmp_path / "tasks").write_text(TASKS)
    ran = pilothouse("run", "tasks", "--slots", "2", "--dir", "run", "--by", decider, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert [(tmp_path / f"done-{number}").read_text() for number in range(1, 7)] == [f"{n}\n" for n in range(1, 7)]


def test_it_goes_on_when_an_engine_was_killed(decider: str, tmp_path: Path) -> None:
    """The engine that takes its place has the same units, so a scheduler that knows only those of the beginning has work
    for it."""
    process = start(tmp_path, tasks(tmp_path, gated(2)), "--dir", "R", "--slots", "2", "--by", decider)
    kill_engine_while_two_run(tmp_path)
    code, said = finish(process)
    assert code == 0, said
    assert lines(tmp_path / "ended") == [str(i) for i in range(8)]


def test_python_itself_is_enough_to_start_the_command() -> None:
    """The entry point works without the shell's PATH: `python -m pilothouse`."""
    ran = subprocess.run(
        [sys.executable, "-m", "pilothouse", "--version"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout.split()[0]) == (0, "pilothouse,"), ran.stderr


def test_a_decider_that_fails_leaves_no_process_behind(tmp_path: Path, pilothouse: Command) -> None:
    (tmp_path / "tasks").write_text("#DISBATCH REPEAT 4 sleep 1000\n")
    (tmp_path / "wrong.py").write_text(
        "from pilothouse import IdSet, Policy\n"
        "class Wrong(Policy):\n"
        "    def schedule(self, cluster):\n"
        "        for job in cluster.queue:\n"
        "            cluster.start(job, IdSet.of([0]))\n"
    )
    ran = pilothouse("run", "tasks", "--slots", "2", "--dir", "run", "--policy", "wrong.py:Wrong", cwd=tmp_path)
    assert ran.returncode == 1
    assert "wrong.py:5" in ran.stderr, ran.stderr
    assert "unit already in use" in ran.stderr
    assert "Traceback" not in ran.stderr
    components.wait_until(lambda: not processes_in(tmp_path), f"{processes_in(tmp_path)} to end", 15)


def processes_in(folder: Path) -> list[str]:
    """Command lines of the processes that work in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if Path(os.readlink(entry / "cwd")) == folder:
                    found.append((entry / "cmdline").read_text().replace("\0", " "))
    return found


@pytest.mark.parametrize(
    "kind", ["batsim:tcp://127.0.0.1:{port}", "edc:tcp://127.0.0.1:{port}", "rfc27:{folder}/socket"]
)
def test_a_scheduler_that_dies_ends_the_run_with_one_line(
    kind: str, tmp_path: Path, free_port: Callable[[], int], pilothouse: Command
) -> None:
    decider = kind.format(port=free_port(), folder=tmp_path)
    ran = pilothouse(
        *("simulate", "-p", "4", "-w", str(EXAMPLES / "tiny.json"), "-e", "out/"),
        *("--by", decider, "--decider-command", "sh -c 'exit 3'"),
        cwd=tmp_path,
        timeout_s=60,
    )
    assert ran.returncode == 1
    assert ran.stderr == "pilothouse: --decider-command: its process ended (exit code 3) while an answer was expected\n"

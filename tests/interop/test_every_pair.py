"""Every decider drives every world: the one rule of the house, shown for all pairs.

Worlds: simulated, live, a Batsim 4 and a Batsim 5 at the other end of their protocols, a Flux-style job manager at the other
end of RFC 27. Deciders: a policy, a scheduler of pybatsim, a Batsim 5 component as a library, a Flux-style scheduler.
Foreign ends that have no package are played by our own other end, in a process of its own.
"""

from __future__ import annotations

import contextlib
import csv
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKLOAD = ROOT / "examples/tiny.json"
PLATFORM_4 = ROOT / "tests/golden/batsim4/inputs/platforms/small_platform.xml"
PLATFORM_5 = ROOT / "tests/golden/batsim5/inputs/small_platform.xml"
JOBS = 6

Beside = contextlib.ExitStack
"""Processes that run beside the one under test, and end with it."""


def pilothouse(*arguments: object) -> list[str]:
    return [sys.executable, "-c", "from pilothouse.cli.main import main; main()", *map(str, arguments)]


@contextlib.contextmanager
def running(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def finish(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr


def assert_all_ran(path: Path) -> None:
    with path.open() as file:
        states = [row["final_state"] for row in csv.DictReader(file)]
    assert len(states) == JOBS
    assert "REJECTED" not in states


# ---- deciders: what stands after --by, and what must run beside


def policy(beside: Beside, folder: Path, request: pytest.FixtureRequest) -> str:
    return "easy"


def pybatsim(beside: Beside, folder: Path, request: pytest.FixtureRequest) -> str:
    port = request.getfixturevalue("free_port")()
    python: Path = request.getfixturevalue("client_env")("pybatsim3")
    scheduler = [
        str(python),
        str(python.parent / "pybatsim"),
        "easyBackfill",
        "-s",
        f"tcp://127.0.0.1:{port}",
        "-t",
        "60000",
    ]
    beside.enter_context(running(scheduler, folder))
    return f"batsim:tcp://127.0.0.1:{port}"


def component(beside: Beside, folder: Path, request: pytest.FixtureRequest) -> str:
    library = folder / "libfcfs.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, ROOT / "tests/edc/fcfs.c"], check=True)
    return f"edc:{library}"


def flux_scheduler(beside: Beside, folder: Path, request: pytest.FixtureRequest) -> str:
    socket = folder / "sched"
    beside.enter_context(running(pilothouse("steer", "--world", f"flux:local://{socket}", "--by", "fcfs"), folder))
    return f"rfc27:{socket}"


DECIDERS = [policy, pybatsim, component, flux_scheduler]


# ---- worlds: each runs its work to the end under the decider


def simulated(by: str, beside: Beside, folder: Path) -> None:
    finish(pilothouse("simulate", "-p", 4, "-w", WORKLOAD, "--by", by, "-e", "out/", "--decider-timeout", 60), folder)
    assert_all_ran(folder / "out/jobs.csv")


def live(by: str, beside: Beside, folder: Path) -> None:
    (folder / "tasks").write_text("".join(f"echo {number} >> ran\n" for number in range(JOBS)))
    finish(pilothouse("run", "tasks", "--slots", 4, "--walltime", 60, "--by", by), folder)
    assert sorted((folder / "ran").read_text().split()) == [str(number) for number in range(JOBS)]


def batsim_4(by: str, beside: Beside, folder: Path) -> None:
    endpoint = f"ipc://{folder}/batsim"
    world = beside.enter_context(
        running(pilothouse("batsim4", "-p", PLATFORM_4, "-w", WORKLOAD, "-e", "out", "-s", endpoint), folder)
    )
    finish(pilothouse("steer", "--world", f"batsim:{endpoint}", "--by", by, "--decider-timeout", 60), folder)
    assert world.wait(60) == 0
    assert_all_ran(folder / "out_jobs.csv")


def batsim_5(by: str, beside: Beside, folder: Path) -> None:
    endpoint = f"ipc://{folder}/batsim"
    world = beside.enter_context(
        running(
            pilothouse("batsim", "-p", PLATFORM_5, "-w", workload_5(folder), "-e", "out/", "-s", endpoint, ""), folder
        )
    )
    finish(pilothouse("steer", "--world", f"batprotocol:{endpoint}", "--by", by, "--decider-timeout", 60), folder)
    assert world.wait(60) == 0
    assert_all_ran(folder / "out/jobs.csv")


def workload_5(folder: Path) -> Path:
    """The same jobs under Batsim 5's names of profiles."""
    path = folder / "tiny5.json"
    path.write_text(WORKLOAD.read_text().replace('"type": "delay"', '"type": "DelayProfile"'))
    return path


def flux(by: str, beside: Beside, folder: Path) -> None:
    socket = folder / "flux"
    beside.enter_context(running(pilothouse("steer", "--world", f"flux:local://{socket}", "--by", by), folder))
    finish(pilothouse("simulate", "-p", 4, "-w", WORKLOAD, "--by", f"rfc27:{socket}", "-e", "out/"), folder)
    assert_all_ran(folder / "out/jobs.csv")


WORLDS = [simulated, live, batsim_4, batsim_5, flux]


@pytest.mark.parametrize("decider", DECIDERS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("world", WORLDS, ids=lambda function: function.__name__)
def test_pair(
    world: Callable[[str, Beside, Path], None],
    decider: Callable[[Beside, Path, pytest.FixtureRequest], str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    with contextlib.ExitStack() as beside:
        world(decider(beside, tmp_path, request), beside, tmp_path)

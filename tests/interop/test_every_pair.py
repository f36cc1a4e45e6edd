"""Every decider drives every world: the one rule of the house, shown for all pairs.

`WORLDS` and `DECIDERS` are the rows and columns of the table in docs/reference/pairs.md, which tools/doc_tables.py makes
from them; `EMPTY` holds the reasons of empty cells. Each other cell is a test. In simulated time every pair must lead to the
same schedule: the workload is one on which FCFS and all kinds of backfilling agree. Foreign ends that have no package
are played by our own other end, in a process of its own.
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLATFORM_4 = ROOT / "tests/golden/batsim4/inputs/platforms/small_platform.xml"
PLATFORM_5 = ROOT / "tests/golden/batsim5/inputs/small_platform.xml"
RESOURCES, RUNTIMES_S, SUBMITTED_S = (3, 4, 4, 2, 2, 1), (100, 50, 20, 30, 40, 10), (0, 5, 10, 200, 201, 202)
STARTS_S = [0, 100, 150, 200, 201, 230]
"""Nothing can overtake: who waits needs all four hosts, or has come last."""
JOBS = len(STARTS_S)
SAME_S = 0.01
"""Messages to and from a Batsim cost a little simulated time."""

BESIDE_LOG = "beside.log"
"""What deciders that run beside a test print."""
Beside = contextlib.ExitStack
"""Processes that run beside the one under test, and end with it."""


def pilothouse(*arguments: object) -> list[str]:
    return [sys.executable, "-c", "from pilothouse.cli.main import main; main()", *map(str, arguments)]


@contextlib.contextmanager
def running(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / BESIDE_LOG).open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def finish(command: list[str], folder: Path, env: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(["timeout", "90", *command], cwd=folder, env=env, capture_output=True, text=True, check=False)
    log = folder / BESIDE_LOG
    assert done.returncode == 0, f"{done.stderr}\nbeside it: {log.read_text()[-2000:] if log.exists() else ''}"


def workload(folder: Path, delay: str = "delay") -> Path:
    """The jobs, with the name that a generation of Batsim has for profiles that wait."""
    jobs = [
        {"id": str(n), "subtime": submitted, "walltime": 2 * seconds, "res": count, "profile": f"d{seconds}"}
        for n, (submitted, count, seconds) in enumerate(zip(SUBMITTED_S, RESOURCES, RUNTIMES_S, strict=True))
    ]
    profiles = {f"d{seconds}": {"type": delay, "delay": seconds} for seconds in RUNTIMES_S}
    path = folder / "jobs.json"
    path.write_text(json.dumps({"nb_res": 4, "jobs": jobs, "profiles": profiles}))
    return path


def assert_same_schedule(path: Path) -> None:
    with path.open() as file:
        starts = {row["job_id"]: float(row["starting_time"] or "nan") for row in csv.DictReader(file)}
    assert [starts.get(str(n)) for n in range(JOBS)] == pytest.approx(STARTS_S, abs=SAME_S)


# ---- deciders: what stands after --by, and what must run beside


def policy(beside: Beside, folder: Path, request: pytest.FixtureRequest) -> str:
    return "easy"


def own_class(beside: Beside, folder: Path, request: pytest.FixtureRequest) -> str:
    path = folder / "mine.py"
    path.write_text(
        "from pilothouse import Policy\n\n\nclass Mine(Policy):\n    def schedule(self, cluster):\n"
        "        for job in cluster.queue:\n            if not cluster.start(job):\n                break\n"
    )
    return f"{path}:Mine"


def pybatsim(client: str, scheduler: str, beside: Beside, folder: Path, request: pytest.FixtureRequest) -> str:
    endpoint = f"tcp://127.0.0.1:{request.getfixturevalue('free_port')()}"
    python: Path = request.getfixturevalue("client_env")(client)
    events = f"ipc://{folder}/e"  # pybatsim 2 would bind one port for onlookers, and two of them would meet there
    command = [str(python), str(python.parent / "pybatsim"), scheduler, "-s", endpoint, "-e", events, "-t", "60000"]
    beside.enter_context(running(command, folder))
    return f"batsim:{endpoint}"


def library(beside: Beside, folder: Path, request: pytest.FixtureRequest) -> str:
    path = folder / "libfcfs.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", path, ROOT / "tests/edc/fcfs.c"], check=True)
    return f"edc:{path}"


def component(beside: Beside, folder: Path, request: pytest.FixtureRequest) -> str:
    path = library(beside, folder, request).removeprefix("edc:")
    endpoint = f"ipc://{folder}/component"
    beside.enter_context(running([sys.executable, str(ROOT / "tests/edc/serve.py"), endpoint, path], folder))
    return f"edc:{endpoint}"


def flux_scheduler(beside: Beside, folder: Path, request: pytest.FixtureRequest) -> str:
    socket = folder / "sched"
    beside.enter_context(running(pilothouse("steer", "--world", f"flux:local://{socket}", "--by", "fcfs"), folder))
    return f"rfc27:{socket}"


Decider = Callable[[Beside, Path, pytest.FixtureRequest], str]
DECIDERS: dict[str, Decider] = {
    "a policy of ours": policy,
    "a Python class": own_class,
    "pybatsim 2": functools.partial(pybatsim, "pybatsim2", "easyBackfill"),
    "pybatsim 3": functools.partial(pybatsim, "pybatsim3", "easyBackfill"),
    "a Batsim 5 library": library,
    "a Batsim 5 process": component,
    "a Flux scheduler": flux_scheduler,
}


# ---- worlds: each runs its work to the end under the decider


def simulated(by: str, beside: Beside, folder: Path, request: pytest.FixtureRequest) -> None:
    command = pilothouse("simulate", "-p", 4, "-w", workload(folder), "--by", by, "-e", "out/", "--decider-timeout", 60)
    finish(command, folder)
    assert_same_schedule(folder / "out/jobs.csv")


def simulated_with_latency(by: str, beside: Beside, folder: Path, request: pytest.FixtureRequest) -> None:
    command = pilothouse("simulate", "-p", PLATFORM_5, "-w", workload(folder), "--by", by, "-e", "out/", "--control-latency")
    finish([*command, "--decider-timeout", "60"], folder)
    assert_same_schedule(folder / "out/jobs.csv")


def live(nodes: str, by: str, beside: Beside, folder: Path, request: pytest.FixtureRequest) -> None:
    (folder / "tasks").write_text("".join(f"echo {number} >> ran\n" for number in range(JOBS)))
    command = pilothouse("run", "tasks", "--walltime", 60, "--by", by)
    env: dict[str, str] | None = None
    if nodes == "local":
        command += ["--slots", "4"]
    elif nodes == "ssh":
        command += ["--ssh", "h1:2,h2:2"]
        env = {**os.environ, **request.getfixturevalue("sshd_hosts").env}
    else:
        command = ["salloc", "-N", "2", "--ntasks-per-node=2", *command, "--slurm"]
        env = request.getfixturevalue("slurm_cluster").env
    finish(command, folder, env)
    assert sorted((folder / "ran").read_text().split()) == [str(number) for number in range(JOBS)]


def batsim_4(by: str, beside: Beside, folder: Path, request: pytest.FixtureRequest) -> None:
    endpoint = f"ipc://{folder}/batsim"
    world = beside.enter_context(
        running(pilothouse("batsim4", "-p", PLATFORM_4, "-w", workload(folder), "-e", "out", "-s", endpoint), folder)
    )
    finish(pilothouse("steer", "--world", f"batsim:{endpoint}", "--by", by, "--decider-timeout", 60), folder)
    assert world.wait(60) == 0
    assert_same_schedule(folder / "out_jobs.csv")


def batsim_5(by: str, beside: Beside, folder: Path, request: pytest.FixtureRequest) -> None:
    endpoint = f"ipc://{folder}/batsim"
    jobs = workload(folder, "DelayProfile")
    command = pilothouse("batsim", "-p", PLATFORM_5, "-w", jobs, "-e", "out/", "-s", endpoint, "")
    world = beside.enter_context(running(command, folder))
    finish(pilothouse("steer", "--world", f"batprotocol:{endpoint}", "--by", by, "--decider-timeout", 60), folder)
    assert world.wait(60) == 0
    assert_same_schedule(folder / "out/jobs.csv")


def flux(by: str, beside: Beside, folder: Path, request: pytest.FixtureRequest) -> None:
    socket = folder / "flux"
    beside.enter_context(running(pilothouse("steer", "--world", f"flux:local://{socket}", "--by", by), folder))
    finish(pilothouse("simulate", "-p", 4, "-w", workload(folder), "--by", f"rfc27:{socket}", "-e", "out/"), folder)
    assert_same_schedule(folder / "out/jobs.csv")


def slurm(by: str, beside: Beside, folder: Path, request: pytest.FixtureRequest) -> None:
    cluster = request.getfixturevalue("slurm_cluster")
    submit = ["sbatch", "--parsable", "-o", "/dev/null", "-p", "queue", "-t1", "--wrap", "sleep 0"]
    # One program at a time steers a queue; other tests may run in other processes.
    steering = beside.enter_context((cluster.directory / "steering").open("w"))
    fcntl.flock(steering, fcntl.LOCK_EX)
    jobs = [cluster.run(*submit, f"-N{1 + number % 3}").stdout.strip() for number in range(JOBS)]
    finish(pilothouse("steer", "--world", "slurm?once=1", "--by", by, "--decider-timeout", 60), folder, cluster.env)
    states = cluster.run("squeue", "-h", "-a", "-t", "all", "-j", ",".join(jobs), "-o", "%P %T").stdout.splitlines()
    assert states == ["go COMPLETED"] * JOBS


World = Callable[[str, Beside, Path, pytest.FixtureRequest], None]
WORLDS: dict[str, World] = {
    "simulated": simulated,
    "simulated, control latency": simulated_with_latency,
    "live: this host": functools.partial(live, "local"),
    "live: ssh hosts": functools.partial(live, "ssh"),
    "live: a Slurm allocation": functools.partial(live, "slurm"),
    "a Batsim 4": batsim_4,
    "a Batsim 5": batsim_5,
    "a Flux instance": flux,
    "a Slurm cluster": slurm,
}
EMPTY: dict[tuple[str, str], str] = {}
"""(world, decider) -> why they do not go together."""
PAIRS = [(world, decider) for world in WORLDS for decider in DECIDERS if (world, decider) not in EMPTY]


@pytest.mark.parametrize(
    ("world", "decider"),
    [
        pytest.param(world, decider, marks=[pytest.mark.xdist_group("slurm")] if "Slurm" in world else [])
        for world, decider in PAIRS
    ],
)
def test_pair(world: str, decider: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with contextlib.ExitStack() as beside:
        WORLDS[world](DECIDERS[decider](beside, tmp_path, request), beside, tmp_path, request)

"""One workload, one policy, in one process and served to ourselves over the Batsim protocol: the same jobs.csv."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent.parent / "golden/batsim4/inputs"


def write_workload(path: Path) -> None:
    """Enough jobs of all sizes for queues, backfilling and walltimes."""
    import json
    import random

    rng = random.Random(7)
    date, jobs = 0.0, []
    for number in range(300):
        date += rng.expovariate(1 / 20)
        run = rng.randint(5, 400)
        jobs.append(
            {"id": number, "subtime": round(date, 2), "walltime": run + rng.randint(-3, 200), "res": rng.randint(1, 16),
             "profile": f"d{run}"}
        )  # fmt: skip
    profiles = {f"d{run}": {"type": "delay", "delay": run} for run in range(5, 401)}
    for job in jobs:
        job["walltime"] = max(1, int(job["walltime"]))
    path.write_text(json.dumps({"nb_res": 16, "jobs": jobs, "profiles": profiles}))


def pilothouse(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pilothouse", *arguments]


@pytest.mark.parametrize("policy", ["fcfs", "easy"])
def test_served_to_ourselves(policy: str, tmp_path: Path) -> None:
    workload = tmp_path / "w.json"
    write_workload(workload)
    common = ["-p", "16", "-w", str(workload), "-q"]
    subprocess.run(pilothouse("simulate", *common, "--policy", policy, "-e", f"{tmp_path}/here_"), check=True, timeout=60)
    endpoint = f"ipc://{tmp_path}/s"
    server = subprocess.Popen(pilothouse("steer", "--world", f"batsim:{endpoint}", "--by", policy))
    try:
        by = ["--by", f"batsim:{endpoint}", "--decider-timeout", "60", "-e", f"{tmp_path}/there_"]
        subprocess.run(pilothouse("simulate", *common, *by), check=True, timeout=60)
        assert server.wait(20) == 0
    finally:
        server.kill()
        server.wait()
    here, there = ((tmp_path / f"{place}_jobs.csv").read_text() for place in ("here", "there"))
    assert here.count("\n") == 301
    assert here == there


def test_our_policy_steers_the_drop_in(tmp_path: Path) -> None:
    """`steer --world batsim:` towards what behaves like a real Batsim 4, control latency included."""
    endpoint = f"ipc://{tmp_path}/s"
    server = subprocess.Popen(pilothouse("steer", "--world", f"batsim:{endpoint}", "--by", "fcfs"))
    try:
        drop_in = pilothouse(
            "batsim4", "-p", str(GOLDEN / "platforms/small_platform.xml"), "-e", f"{tmp_path}/out", "-s", endpoint,
            "-w", str(GOLDEN / "workloads/test_same_submit_time.json"), "--decider-timeout", "60",
        )  # fmt: skip
        subprocess.run(drop_in, check=True, timeout=60)
        assert server.wait(20) == 0
    finally:
        server.kill()
        server.wait()
    # The recording was made by a first-come first-served scheduler too: same starts, to the microsecond.
    recorded = GOLDEN.parent / "recordings/raw-fcfs-small-same_submit_time/out_jobs.csv"
    assert (tmp_path / "out_jobs.csv").read_text() == recorded.read_text()

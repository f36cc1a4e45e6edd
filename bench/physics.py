"""What parallel tasks that share a network cost, all included: start of the program, reading, deciding, sharing, writing.

    python bench/physics.py [--jobs 1000,10000] [--best-of 3]

Makes homogeneous parallel tasks with communication on a cluster of 512 hosts behind one backbone (fixed seed, mean 26
hosts a job, load about 0.85), runs `pilothouse simulate` on them in a process of its own and prints CPU seconds (user +
system, best of N) as it is and with the Python solver alone; the share of the solver, measured in
this process; and how the cost of a task grows. The real Batsim 5 takes 3.4 CPU seconds for 1,000 such tasks on this kind
of machine; the goal is 1.1. CPU time, not wall time: machines are shared.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

HOSTS = 512
LOAD = 0.85
SEED = 20250102
GOAL_SECONDS = 1.1
PEER_SECONDS = 3.4
PLATFORM = f"""<?xml version='1.0'?>
<platform version="4.1"><zone id="AS0" routing="Full">
<cluster id="A" prefix="a" suffix="" radical="0-{HOSTS - 1}" speed="1Gf" bw="1GBps" lat="5us" bb_bw="3GBps" bb_lat="3us"/>
</zone></platform>
"""
PURE = "from pilothouse.worlds.simulated.physics import sharing; sharing._compiled_rounds = None; "


def make_workload(path: Path, jobs: int) -> float:
    """Sizes log-normal (mean 26), one minute to one hour alone, up to 2 GB over all pairs; returns the mean size."""
    rng = random.Random(SEED)
    sizes = [min(HOSTS, max(1, int(rng.lognormvariate(2.63, 1.17)))) for _ in range(jobs)]
    seconds = [rng.uniform(60, 3600) for _ in range(jobs)]
    span = sum(size * run for size, run in zip(sizes, seconds, strict=True)) / (HOSTS * LOAD)
    dates = sorted(rng.uniform(0, span) for _ in range(jobs))
    described = {
        "nb_res": HOSTS,
        "jobs": [
            {"id": i, "subtime": dates[i], "res": sizes[i], "walltime": seconds[i] * 5 + 600, "profile": f"p{i}"}
            for i in range(jobs)
        ],
        "profiles": {
            f"p{i}": {
                "type": "ParallelTaskHomogeneousProfile",
                "cpu": seconds[i] * 1e9,
                "com": rng.uniform(0, 2e9) / sizes[i],
            }
            for i in range(jobs)
        },
    }
    path.write_text(json.dumps(described))
    return sum(sizes) / jobs


def cost(folder: Path, workload: Path, before: str = "") -> float:
    """CPU seconds of one run."""
    command = [sys.executable, "-c", before + "from pilothouse.cli.main import main; main()", "simulate", "-q"]
    command += ["-p", str(folder / "cluster.xml"), "-w", str(workload), "--policy", "fcfs", "-e", f"{folder}/out/"]
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"simulate failed with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def solver_share(folder: Path, workload: Path) -> tuple[float, int]:
    """The part of the simulation's CPU time that is spent giving flows their rates, and how often that happens."""
    from pilothouse.core.session import Session
    from pilothouse.launch import naming
    from pilothouse.worlds.simulated import inputs
    from pilothouse.worlds.simulated.physics import sharing

    spent = calls = 0.0
    plain = sharing.fair_bottleneck

    def timed(flows: list[sharing.Flow], constraints: Collection[sharing.Constraint]) -> None:
        nonlocal spent, calls
        began = time.process_time()
        plain(flows, constraints)
        spent += time.process_time() - began
        calls += 1

    sharing.SOLVERS["fair-bottleneck"] = timed
    try:
        setup = inputs.load(str(folder / "cluster.xml"), [str(workload)])
        began = time.process_time()
        Session(setup.world(lambda record: None), naming.decider("fcfs"), name="fcfs").run()
        return spent / (time.process_time() - began), int(calls)
    finally:
        sharing.SOLVERS["fair-bottleneck"] = plain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default="1000,10000")
    parser.add_argument("--best-of", type=int, default=3)
    arguments = parser.parse_args()
    print(
        f"{'tasks':>7} {'mean hosts':>10} {'CPU s':>7} {'pure Python':>11} {'solves':>7} {'solver':>7} {'growth':>7}  goal"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cluster.xml").write_text(PLATFORM)
        first = 0.0
        for jobs in map(int, arguments.jobs.split(",")):
            workload = folder / f"{jobs}.json"
            mean = make_workload(workload, jobs)
            rounds = arguments.best_of if jobs <= 1000 else 1
            seconds = min(cost(folder, workload) for _ in range(rounds))
            pure = min(cost(folder, workload, PURE) for _ in range(rounds))
            share, solves = solver_share(folder, workload)
            first = first or seconds / jobs
            goal = f"{GOAL_SECONDS} s: {'met' if seconds <= GOAL_SECONDS else 'missed'}, {PEER_SECONDS / seconds:.1f}x the peer"
            print(
                f"{jobs:7,} {mean:10.1f} {seconds:7.2f} {pure:11.2f} {solves:7,} {share:6.0%} {seconds / jobs / first:6.2f}x"
                f"  {goal if jobs == 1000 else ''}",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""How fast a simulation is, all included: reading the workload, every decision, writing jobs.csv.

    python bench/simulate.py [--jobs 10000,100000,1000000] [--policy fcfs,easy] [--best-of 3]

Makes a workload of delays (fixed seed, 512 hosts, load about 0.85) for each size, runs `pilothouse simulate` on it in a
process of its own and prints jobs per CPU second (user + system, best of N), peak memory per job, and how the cost of a
job grows with the size. CPU time, not wall time: machines are shared.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HOSTS = 512
LOAD = 0.85
SEED = 20250101


def make_workload(path: Path, jobs: int, hosts: int = HOSTS) -> None:
    """Sizes 1..256 (mostly small), run times log-uniform 10 s .. 3 h, requests up to twice as long, Poisson arrivals."""
    rng = random.Random(SEED)
    sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    weights = [30, 14, 14, 12, 10, 8, 6, 4, 2]
    drawn = [(rng.choices(sizes, weights)[0], round(10 * 1080 ** rng.random(), 1)) for _ in range(jobs)]
    area = sum(size * run for size, run in drawn) / jobs
    gap = area / (hosts * LOAD)
    date = 0.0
    with path.open("w") as file:
        file.write(f'{{"nb_res": {hosts}, "jobs": [\n')
        profiles = set()
        for number, (size, run) in enumerate(drawn):
            date += rng.expovariate(1 / gap)
            walltime = round(run * (1 + rng.random()) + 1, 1)
            profiles.add(run)
            end = "," if number < jobs - 1 else ""
            file.write(
                f'{{"id": {number}, "subtime": {date:.3f}, "res": {size}, "walltime": {walltime}, "profile": "d{run}"}}{end}\n'
            )
        file.write('], "profiles": {\n')
        file.write(",\n".join(f'"d{run}": {{"type": "delay", "delay": {run}}}' for run in sorted(profiles)))
        file.write("\n}}\n")


def cost(workload: Path, policy: str, out: Path) -> tuple[float, float]:
    """CPU seconds and peak MB of one run."""
    command = [sys.executable, "-c", "from pilothouse.cli.main import main; main()", "simulate", "-q"]
    command += ["-p", str(HOSTS), "-w", str(workload), "--policy", policy, "-e", f"{out}/"]
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"simulate failed with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def yardstick() -> float:
    """Milliseconds of CPU that a million turns of an empty Python loop take here, best of ten: machines differ, and share."""
    best = float("inf")
    for _ in range(10):
        began = time.process_time()
        for _ in range(1_000_000):
            pass
        best = min(best, time.process_time() - began)
    return best * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default="10000,100000,1000000")
    parser.add_argument("--policy", default="fcfs,easy")
    parser.add_argument("--best-of", type=int, default=3)
    arguments = parser.parse_args()
    print(
        f"yardstick: a million turns of an empty loop take {yardstick():.0f} ms of CPU here (a quiet machine: about 16)"
    )
    print(
        f"{'policy':8} {'jobs':>9} {'CPU s':>8} {'jobs/CPU s':>11} {'µs/job':>7} {'MB':>7} {'KB/job':>7} {'growth':>7}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for policy in arguments.policy.split(","):
            first = 0.0
            for jobs in map(int, arguments.jobs.split(",")):
                workload = Path(folder) / f"{jobs}.json"
                if not workload.exists():
                    # In a process of its own: what is forked here would begin with our peak of memory.
                    maker = multiprocessing.Process(target=make_workload, args=(workload, jobs))
                    maker.start()
                    maker.join()
                rounds = arguments.best_of if jobs < 1_000_000 else 1
                seconds, megabytes = min(cost(workload, policy, Path(folder) / "out") for _ in range(rounds))
                each = seconds / jobs
                first = first or each
                print(
                    f"{policy:8} {jobs:9,} {seconds:8.2f} {jobs / seconds:11,.0f} {each * 1e6:7.1f} {megabytes:7.0f}"
                    f" {megabytes * 1024 / jobs:7.2f} {each / first:6.2f}x",
                    flush=True,
                )


if __name__ == "__main__":
    main()

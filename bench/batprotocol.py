"""What batprotocol costs: delay jobs scheduled by a decision component in C, as a library, in FlatBuffers and in JSON.

    python bench/batprotocol.py [--jobs N] [--repeat N] [--all]

Prints CPU time of the whole run (start, reading, simulation, codec, the component itself, files) for each job, best of N,
and the ratio to the real Batsim 5 with a C++ library, which took 98 µs a job on the same kind of machine. The house's own
world (`pilothouse simulate`) tells facts directly; the drop-in (`batsim`) also computes what each message of the real
Batsim costs in simulated time. With --all, also JSON, the library in a child process of its own, and the drop-in without
the process that guards it.
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
from pathlib import Path

from cluster32 import HOSTS, PLATFORM

ROOT = Path(__file__).resolve().parent.parent
REAL_BATSIM_5_US = 98.0


def write_inputs(folder: Path, count: int) -> tuple[str, str, str]:
    """A platform, a workload of delay jobs at a load of 0.7, and the component."""
    dice = random.Random(1)
    profiles = {f"d{i}": {"type": "DelayProfile", "delay": float(dice.randint(10, 1000))} for i in range(100)}
    jobs, now = [], 0.0
    for i in range(count):
        now += dice.expovariate(HOSTS * 0.7 / (500 * 2.5))
        jobs.append(
            {"id": str(i), "subtime": round(now, 3), "walltime": 2000, "res": dice.randint(1, 4), "profile": f"d{i % 100}"}
        )
    platform, workload, library = folder / "platform.xml", folder / "workload.json", folder / "libfcfs.so"
    platform.write_text(PLATFORM)
    workload.write_text(json.dumps({"nb_res": HOSTS, "jobs": jobs, "profiles": profiles}))
    source = str(ROOT / "tests/edc/fcfs.c")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", str(library), source], check=True)
    return str(platform), str(workload), str(library)


def cpu_us(command: list[str], count: int, repeat: int) -> float:
    """Best CPU time a job of the command and its children."""
    best = float("inf")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    for _ in range(repeat):
        before = os.times()
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        after = os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        best = min(best, used)
    return best / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        platform, workload, library = write_inputs(Path(name), options.jobs)
        simulate = [sys.executable, "-m", "pilothouse", "simulate", "-q", "-p", platform, "-w", workload, "-e", f"{name}/s/"]
        batsim = [sys.executable, "-m", "pilothouse.cli.batsim", "-q", "-p", platform, "-w", workload, "-e", f"{name}/b/"]
        batsim += ["-m", "master_host0"]
        runs = {
            "our world, library in process, FlatBuffers": [*simulate, "--by", f"edc:{library}?inprocess=1"],
            "drop-in, as it is, FlatBuffers": [*batsim, "-l", library, ""],
        }
        if options.all:
            runs |= {
                "our world, library in process, JSON": [*simulate, "--by", f"edc:{library}?inprocess=1&init=json"],
                "our world, library in a child, FlatBuffers": [*simulate, "--by", f"edc:{library}"],
                "drop-in, without its guard, FlatBuffers": [*batsim, "-l", library, "", "--in-process"],
                "drop-in, as it is, JSON": [*batsim, "-l", library, "json"],
            }
        print(f"{options.jobs:,} delay jobs, best of {options.repeat}; CPU time of everything, for each job")
        began = time.perf_counter()
        for what, command in runs.items():
            cost = cpu_us(command, options.jobs, options.repeat)
            print(f"  {what:<46} {cost:6.1f} µs   {cost / REAL_BATSIM_5_US:4.2f} of the real Batsim 5", flush=True)
        print(f"(took {time.perf_counter() - began:.0f} s)")


if __name__ == "__main__":
    main()

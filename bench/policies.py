"""Whether any policy is slow: the CPU time of every policy on every trace, and its ratio to that of easy.

    python bench/policies.py FOLDER [--trace KTH] [--policy easy,conservative] [--best-of 1] [--save FILE] [--against FILE]
    python bench/policies.py --wide [--best-of 3]

FOLDER holds logs of the Parallel Workloads Archive (*.swf, *.swf.gz). A machine has as many units as the header says
(MaxProcs), else as the largest job asks for. Each cell is a `pilothouse simulate` in a process of its own: user and system
seconds, start included, best of N. Policies whose score takes a way to backfill are run with each. The last line is the
largest ratio; it should be 5 at most.

--save writes the checksum of each jobs.csv, and --against compares them with those that were saved before a change.
--wide runs easy on 100,000 hosts that are nearly full of small jobs, so that the free ones lie scattered; it should take
40,000 jobs a CPU second or more.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from pilothouse.policies.catalog import CATALOG

WIDE_HOSTS = WIDE_JOBS = 100_000
MOST = 5.0


def policies() -> list[str]:
    """All of the catalog, and with each way to backfill; `easy` first."""
    names = [name for name in CATALOG if name not in ("easy", "priority")]
    for way in ("fill", "easy"):
        names += [f"{name}:backfill={way}" for name in names if ":" not in name and "backfill" in CATALOG[name].options]
    return ["easy", *names]


def units_of(trace: Path) -> int:
    """The size of the machine: header field MaxProcs, else the largest request."""
    largest = 0
    with gzip.open(trace, "rt") if trace.suffix == ".gz" else trace.open() as file:
        for line in file:
            if line.startswith(";"):
                key, _, value = line.strip("; \n").partition(":")
                if key.strip() == "MaxProcs" and value.strip().isdigit():
                    return int(value)
            elif line.strip():
                fields = line.split()
                largest = max(largest, int(float(fields[4])), int(float(fields[7])))
    return largest


def cost(units: int, workload: Path, policy: str, folder: Path) -> tuple[float, str]:
    """CPU seconds of one run, and the checksum of its schedule."""
    command = [sys.executable, "-m", "pilothouse", "simulate", "-q", "-p", str(units), "-w", str(workload)]
    process = subprocess.Popen([*command, "--policy", policy, "-e", f"{folder}/"])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"simulate failed with {process.returncode} on {workload} under {policy}")
    schedule = hashlib.sha256((folder / "jobs.csv").read_bytes()).hexdigest()
    return usage.ru_utime + usage.ru_stime, schedule


def make_wide(path: Path) -> None:
    """Jobs of 1 to 64 hosts that run between half an hour and eleven; the first 12,000 fill the machine at once."""
    rng = random.Random(5)
    sizes = [1, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64]
    drawn = [(rng.choice(sizes), round(2000 * 20 ** rng.random(), 1)) for _ in range(WIDE_JOBS)]
    gap = sum(size * run for size, run in drawn) / WIDE_JOBS / (WIDE_HOSTS * 0.97)
    date = 0.0
    rows = []
    for number, (size, run) in enumerate(drawn):
        if number > 12_000:
            date += rng.expovariate(1 / gap)
        rows.append({"id": number, "subtime": round(date, 3), "res": size, "walltime": run * 2 + 1, "profile": f"d{run}"})
    profiles = {f"d{run}": {"type": "delay", "delay": run} for _, run in drawn}
    path.write_text(json.dumps({"nb_res": WIDE_HOSTS, "jobs": rows, "profiles": profiles}))


def wide(best_of: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_wide(folder / "wide.json")
        seconds = min(cost(WIDE_HOSTS, folder / "wide.json", "easy", folder / "out")[0] for _ in range(best_of))
    print(f"easy, {WIDE_HOSTS:,} hosts, {WIDE_JOBS:,} jobs: {seconds:.2f} CPU s, {WIDE_JOBS / seconds:,.0f} jobs/CPU s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--trace", default="", help="only traces with this in their name")
    parser.add_argument("--units", type=int, help="the size of the machine, whatever the header says")
    parser.add_argument("--policy", default=",".join(policies()))
    parser.add_argument("--best-of", type=int, default=1)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--wide", action="store_true")
    arguments = parser.parse_args()
    if arguments.wide:
        wide(arguments.best_of)
        return
    if arguments.folder is None:
        parser.error("a folder with traces is needed")
    before = json.loads(arguments.against.read_text()) if arguments.against else {}
    schedules: dict[str, str] = {}
    largest = (0.0, "")
    print(f"{'trace':32} {'units':>6} {'policy':24} {'CPU s':>8} {'ratio':>7}")
    for trace in sorted(arguments.folder.glob("*.swf*")):
        if arguments.trace not in trace.name:
            continue
        units, easy = arguments.units or units_of(trace), 0.0
        for policy in arguments.policy.split(","):
            with tempfile.TemporaryDirectory() as folder:
                runs = [cost(units, trace, policy, Path(folder)) for _ in range(arguments.best_of)]
            seconds, schedule = min(runs)
            easy = easy or seconds
            cell = f"{trace.name} {policy}"
            schedules[cell] = schedule
            largest = max(largest, (seconds / easy, cell))
            changed = "  OTHER SCHEDULE" if before.get(cell, schedule) != schedule else ""
            name = trace.name.partition(".swf")[0]
            print(f"{name:32} {units:6} {policy:24} {seconds:8.2f} {seconds / easy:7.2f}{changed}", flush=True)
    if arguments.save:
        arguments.save.write_text(json.dumps(schedules, indent=1))
    print(f"largest ratio: {largest[0]:.2f} ({largest[1]}); it should be {MOST:g} at most")


if __name__ == "__main__":
    main()

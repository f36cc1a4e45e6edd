"""All benches in one run, us beside every peer that is installed, with machine and versions; the figures of the documentation.

    ./do bench                      all of them, about ten minutes
    ./do bench --only tasks,qcg     some
    ./do bench --no-history         print only

Each line is one figure: ours, the peer's or the limit's from the same run, and the ratio (above 1: we are faster). A peer
that cannot be installed here (Batsim, Batsim 5) stands with the figure that is named beside it. Every run is appended to
bench/history.jsonl; `python tools/docs.py --write docs/explanation/speed.md` takes the last one of each bench into the docs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HISTORY = ROOT / "bench" / "history.jsonl"

Figure = tuple[str, str, str, str, float]
"""What is measured, a pattern for ours, the peer, a pattern for the peer's figure (or the figure), and 1 where more is better,
-1 where less is."""
BENCHES: dict[str, tuple[list[str], list[Figure]]] = {
    "tasks": (
        ["bench/tasks.py", "rate", "peers", "sleep", "start"],
        [
            ("real tasks a second", r"pilothouse ([\d,]+)/s", "a C loop around vfork", r"C vfork loop ([\d,]+)/s", 1),
            ("1,000 tasks, whole command, s", r"pilothouse +([\d.]+) s", "xargs -P2", r"xargs -P2 +([\d.]+) s", -1),
            ("1,000 tasks, whole command, s", r"pilothouse +([\d.]+) s", "GNU parallel", r"GNU parallel +([\d.]+) s", -1),
            ("1,000 tasks, whole command, s", r"pilothouse +([\d.]+) s", "QCG PilotJob", r"QCG PilotJob +([\d.]+) s", -1),
            ("1,000 tasks, whole command, s", r"pilothouse +([\d.]+) s", "HyperQueue", r"HyperQueue +([\d.]+) s", -1),
            ("20 tasks of disBatch beside 1,000 of ours, s", r"pilothouse +([\d.]+) s", "disBatch", r"disBatch +([\d.]+) s", -1),
            ("200 x sleep 0.1 on 8 slots, s", r"8 slots: ([\d.]+) s", "the ideal", "2.5", -1),
            ("first task of a run after, s", r"first task after ([\d.]+) s", "the aim", "0.5", -1),
        ],
    ),
    "simulate": (
        ["bench/simulate.py", "--jobs", "100000", "--policy", "easy,fcfs", "--best-of", "2"],
        [
            ("EASY, jobs a CPU second", r"easy +[\d,]+ +[\d.]+ +([\d,]+)", "Batsim 5 with a C++ library (EPYC)", "10,183", 1),
            ("FCFS, jobs a CPU second", r"fcfs +[\d,]+ +[\d.]+ +([\d,]+)", "Batsim 5 with a C++ library (EPYC)", "10,183", 1),
        ],
    ),
    "protocol": (
        ["bench/protocol.py", "--jobs", "5000", "--repeat", "1"],
        [("Batsim 4 protocol, ms of CPU a job", r"([\d.]+) ms of CPU a job on our side, on any", "Batsim 4 (EPYC)", "0.50", -1)],
    ),
    "physics": (
        ["bench/physics.py", "--jobs", "1000", "--best-of", "1"],
        [("1,000 parallel tasks, CPU s", r"^ +1,?000 +[\d.]+ +([\d.]+)", "Batsim 5 (EPYC)", "3.4", -1)],
    ),
    "rfc27": (
        ["bench/rfc27.py", "--jobs", "8000"],
        [("Flux scheduler, CPU s for 1,000 jobs", r", scheduler ([\d.]+)", "our manager", r"manager ([\d.]+),", -1)],
    ),
    "qcg": (
        ["bench/qcg.py", "accept"],
        [("QCG: 100,000 jobs accepted, s", r"CPU s \(([\d.]+) s\)", "qcg-pilotjob (EPYC)", r"the peer took ([\d.]+) s", -1)],
    ),
    "sweep": (
        ["bench/sweep.py", "--best-of", "2"],
        [("a sweep on two cores against one, by CPU time", r"by CPU time: ([\d.]+) times", "the aim", "1.8", 1)],
    ),
    "idle": (
        ["bench/idle.py", "--turns", "3"],
        [("share of the rate with 5,000 idle connections", r"idle: ([\d.]+) of", "the aim", "0.90", 1)],
    ),
    "dashboard": (
        ["bench/dashboard.py"],
        [("share of the rate with 50 viewers of the dashboard", r"dashboard: ([\d.]+) of", "the aim", "0.90", 1)],
    ),
}  # fmt: skip
PACKAGES = {"pybatsim3": "pybatsim", "qcg": "qcg-pilotjob", "disbatch": "disbatch", "hyperqueue": "hyperqueue"}


def machine() -> dict[str, object]:
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "processor": found[1] if found else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """Of this checkout, and of the peers that are here."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False)
    found = {"pilothouse": commit.stdout.strip()}
    for name, program in (("xargs", "xargs"), ("GNU parallel", "parallel"), ("gcc", "gcc")):
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
        match = re.search(r"(\d[\d.]+)", said)
        if match:
            found[name] = match[1]
    for environment, package in PACKAGES.items():
        python = ROOT / ".venvs" / environment / "bin" / "python"
        if python.exists():
            code = f"from importlib.metadata import version; print(version({package!r}))"
            found[package] = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip()
    return found


def number(pattern: str, text: str) -> float | None:
    """A figure that a bench printed; or one that stands here."""
    if re.fullmatch(r"[\d.,]+", pattern):
        return float(pattern.replace(",", ""))
    match = re.search(pattern, text, re.MULTILINE)
    return None if match is None else float(match[1].replace(",", ""))


def measured(name: str) -> Iterator[dict[str, object]]:
    command, figures = BENCHES[name]
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}\n{done.stderr[-2000:]}")
    for what, mine, peer, theirs, sign in figures:
        ours, other = number(mine, done.stdout), number(theirs, done.stdout)
        if ours is None:
            sys.exit(f"{' '.join(command)} printed no figure for {what!r}:\n{done.stdout}")
        if other is not None and ours and other:
            yield {"what": what, "ours": ours, "peer": peer, "theirs": other, "ratio": round((ours / other) ** sign, 3)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="./do bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default=",".join(BENCHES))
    parser.add_argument("--no-history", action="store_true")
    options = parser.parse_args()
    about = machine()
    known = versions()
    print(", ".join(f"{key} {value}" for key, value in {**about, **known}.items()))
    print(f"{'':<46} {'ours':>10} {'theirs':>10}  ratio  peer")
    for name in options.only.split(","):
        figures = []
        for row in measured(name):
            figures.append(row)
            ours, theirs = (f"{row[key]:>10,.10g}" for key in ("ours", "theirs"))
            print(f"{row['what']:<46} {ours} {theirs}  {row['ratio']:5.2f}  {row['peer']}", flush=True)
        if not options.no_history:
            date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
            record = {"bench": name, "date": date, "machine": about, "versions": known, "figures": figures}
            with HISTORY.open("a") as file:
                file.write(json.dumps(record) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Is this checkout as fast as another one? Both run the same benches turn about, and the best of each is compared.

    python bench/versus.py OTHER_CHECKOUT [--turns 3] [--only simulate,protocol]

Each checkout runs its own bench with its own environment (`.venv`). Prints one line for each figure: both values, and the
speed of this checkout as a share of the other's. 0.95 is the least that a change may leave.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent

BENCHES: dict[str, tuple[list[str], dict[str, tuple[str, bool]]]] = {
    "simulate": (
        ["bench/simulate.py", "--jobs", "100000", "--policy", "easy,fcfs", "--best-of", "1"],
        {
            "easy, µs a job": (r"easy .*?([\d.]+) +\d+ +[\d.]+ +[\d.]+x", False),
            "fcfs, µs a job": (r"fcfs .*?([\d.]+) +\d+ +[\d.]+ +[\d.]+x", False),
        },
    ),
    "protocol": (
        ["bench/protocol.py", "--jobs", "5000", "--repeat", "1"],
        {
            "Batsim 4 drop-in, any core, ms a job": (r"([\d.]+) ms of CPU a job on our side, on any core", False),
            "Batsim 4 drop-in, one core, ms a job": (r"([\d.]+) ms of CPU a job on our side, on one core", False),
            "Batsim 5 library in simulate, µs a job": (r"our world, library in process, FlatBuffers +([\d.]+)", False),
            "Batsim 5 drop-in, µs a job": (r"drop-in, as it is, FlatBuffers +([\d.]+)", False),
        },
    ),
    "rfc27": (
        ["bench/rfc27.py", "--jobs", "8000"],
        {
            "Flux manager, CPU s per 1000 jobs": (r"manager ([\d.]+), scheduler", False),
            "Flux scheduler, CPU s per 1000 jobs": (r"manager [\d.]+, scheduler ([\d.]+)", False),
        },
    ),
    "physics": (
        ["bench/physics.py", "--jobs", "1000", "--best-of", "1"],
        {"1,000 parallel tasks, CPU s": (r"^ +1,?000 +[\d.]+ +([\d.]+)", False)},
    ),
    "tasks": (["bench/tasks.py", "rate"], {"real tasks, share of the C loop": (r"pilothouse / C loop +median ([\d.]+)", True)}),
    "qcg": (
        ["bench/qcg.py", "accept", "rate"],
        {"QCG accept, CPU s": (r"accept 100,000 jobs: ([\d.]+) CPU s", False), "QCG rate, % of run": (r"([\d.]+) ?%", True)},
    ),
}  # fmt: skip


def measure(checkout: Path, name: str) -> dict[str, float]:
    """One run of a bench in a checkout: figure -> value."""
    command, figures = BENCHES[name]
    python = checkout / ".venv/bin/python"
    done = subprocess.run([python, *command], cwd=checkout, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{checkout}: {' '.join(command)} ended with {done.returncode}\n{done.stderr}")
    found = {}
    for figure, (pattern, _) in figures.items():
        match = re.search(pattern, done.stdout, re.MULTILINE)
        if match is None:
            sys.exit(f"{checkout}: {' '.join(command)} printed no figure {figure!r}:\n{done.stdout}")
        found[figure] = float(match[1])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("other", type=Path)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", default=",".join(BENCHES))
    options = parser.parse_args()
    slower = False
    print(f"{'':<42} {'other':>10} {'this':>10}  speed of this")
    for name in options.only.split(","):
        checkouts = {"other": options.other.resolve(), "this": HERE}
        runs: dict[str, list[dict[str, float]]] = {"other": [], "this": []}
        for turn in range(options.turns):
            for which in ("other", "this") if turn % 2 == 0 else ("this", "other"):
                runs[which].append(measure(checkouts[which], name))
        for figure, (_, more_is_better) in BENCHES[name][1].items():
            pick = max if more_is_better else min
            other, this = (pick(run[figure] for run in runs[which]) for which in ("other", "this"))
            speed = this / other if more_is_better else other / this
            slower = slower or speed < 0.95
            print(f"{figure:<42} {other:>10.4g} {this:>10.4g}  {speed:.2f}", flush=True)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())

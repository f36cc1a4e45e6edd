"""How fast views are: reading a run back, its metrics and timelines, a figure, a difference.

    python bench/look.py [TRACE.swf.gz --units N] [--best-of 3]

Simulates the trace under easy and easy-sjbf (by default the 5,000 jobs of examples/), then prints for each step the CPU
seconds (best of N), what that is for a job, and the ratio to reading jobs.csv with the csv module alone, measured in the
same run: no view can be faster than that.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pilothouse.views import plots
from pilothouse.views.difference import difference
from pilothouse.views.metrics import metrics_of
from pilothouse.views.moments import Moments
from pilothouse.views.read_run import read_run

ROOT = Path(__file__).resolve().parent.parent


def cpu_s(step: Callable[[], object], best_of: int) -> float:
    taken = []
    for _ in range(best_of):
        began = time.process_time()
        step()
        taken.append(time.process_time() - began)
    return min(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", nargs="?", default=str(ROOT / "examples/kth-sp2-5000.swf.gz"))
    parser.add_argument("--units", default="100")
    parser.add_argument("--best-of", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        compare = ["compare", "-p", options.units, "-w", options.trace, "--policy", "easy,easy-sjbf", "-e", f"{name}/"]
        subprocess.run([sys.executable, "-m", "pilothouse", *compare], check=True, stdout=subprocess.DEVNULL)
        easy, sjbf = f"{name}/easy", f"{name}/easy-sjbf"
        a, b = read_run(easy), read_run(sjbf)

        def plain() -> int:
            with open(f"{easy}/jobs.csv", newline="", encoding="utf-8") as stream:
                return sum(1 for _ in csv.reader(stream))

        steps: dict[str, Callable[[], object]] = {
            "csv alone": plain,
            "read a run": lambda: read_run(easy),
            "metrics": lambda: metrics_of(a),
            "timelines": lambda: (a.busy(), a.waiting()),
            "figure of one run": lambda: plots.draw([a], [f"{name}/one.png"]),
            "figure of two runs": lambda: plots.draw([a, b], [f"{name}/two.png"]),
            "difference": lambda: difference(a, b),
            "one moment": lambda: Moments(a)[len(a)],
        }
        floor = 0.0
        for what, step in steps.items():
            seconds = cpu_s(step, options.best_of)
            floor = floor or seconds
            print(f"{what:<20}{seconds:8.2f} s{1e6 * seconds / len(a):8.1f} µs/job{seconds / floor:8.1f} x csv")


if __name__ == "__main__":
    main()

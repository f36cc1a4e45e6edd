"""How well a forecast foretells a real run, and whether its interval holds.

    python bench/fidelity.py [--tasks 300] [--slots 8] [--policy fcfs,easy] [--repetitions 50] [--virtual]

Real time: tasks of mixed length and width (`sleep`, with requests) run once, which is what the forecast learns from, and then
once under each policy. Prints the forecast of the time from the first start to the last end beside the real one (they should
differ by 2 % at most), and for how many tasks the starts come in the same order (longest common subsequence; 95 % or more).
Which of two tasks ends first decides what EASY starts next, so its order tells nothing on a busy machine.

Virtual time: tasks of three programs whose lengths vary are forecast from 40 tasks of each that ran before, and then simulated
with other lengths of the same distribution. Prints how often the stated interval of 90 % held the outcome (90 % or more).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from random import Random

from pilothouse.campaign.durations import LearnedDurations, Observed
from pilothouse.campaign.forecast import forecast, nodes_of, simulate
from pilothouse.campaign.run_snapshot import observed_tasks, overhead_s
from pilothouse.formats.task_file import TaskReader
from pilothouse.journal.read import TaskRow, read_tasks, reading
from pilothouse.policies.catalog import make
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.task_feed import RunStart

SEED = 16


def mixed_tasks(count: int) -> str:
    """Lengths from 0.05 s to some seconds, one to four cores, walltimes of up to four times the length."""
    random = Random(SEED)
    lines = []
    for _ in range(count):
        seconds = round(min(4.0, 0.05 + 0.3 * random.lognormvariate(0, 1)), 3)
        walltime = round(seconds * random.uniform(1.5, 4) + 5, 1)
        lines.append(f"#PILOTHOUSE cores={random.choice([1, 1, 1, 2, 4])} walltime={walltime}\nsleep {seconds}\n")
    return "".join(lines)


def start_of(text: str, slots: int, nodes: int = 1, overhead: float = 0.0) -> RunStart:
    lines = list(TaskReader("tasks").read(text.encode().splitlines(keepends=True)))
    return RunStart(options=LiveOptions(), nodes=nodes_of(nodes, slots), lines=lines, overhead_s=overhead)


def run(folder: Path, name: str, slots: int, policy: str) -> tuple[list[TaskRow], list[int]]:
    """A real run: its tasks, and their numbers in the order in which they were started."""
    command = [sys.executable, "-m", "pilothouse", "run", "tasks", "-q", "--slots", str(slots), "--policy", policy]
    subprocess.run([*command, "--dir", name], cwd=folder, check=True)
    with reading(folder / name) as db:
        started = [int(job_id) for (job_id,) in db.execute("SELECT job_id FROM assignments ORDER BY id")]
    return list(read_tasks(folder / name)), started


def in_order(one: Sequence[int], other: Sequence[int]) -> float:
    """The share of items that are in the same order in both."""
    places = {item: place for place, item in enumerate(one)}
    lasts: list[int] = []
    for place in (places[item] for item in other):
        index = bisect_left(lasts, place)
        lasts[index : index + 1] = [place]
    return len(lasts) / len(one)


def real(tasks: int, slots: int, policies: list[str]) -> None:
    print(f"{'policy':8} {'forecast s':>10} {'real s':>8} {'off by':>7}  {'90 % interval':>17} {'same order':>10}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = mixed_tasks(tasks)
        (folder / "tasks").write_text(text)
        took = {row.task: (row.ended or 0.0) - (row.started or 0.0) for row in run(folder, "learn", slots, "fcfs")[0]}
        known = LearnedDurations([observed_tasks(folder / "learn")])
        start = start_of(text, slots, overhead=overhead_s(folder / "learn"))
        for policy in policies:
            foretold = simulate(start, lambda task, age: took[task.task_id], make(policy, {}))
            interval = forecast(start, known, lambda policy=policy: make(policy, {}), samples=100).seconds
            rows, started = run(folder, policy, slots, policy)
            took_s = max(row.ended or 0.0 for row in rows) - min(row.started or 0.0 for row in rows)
            order = [number for _, number in sorted((task.started_at, int(task.name)) for task in foretold.times)]
            same = in_order(order, started)
            off = foretold.ended_at / took_s - 1
            print(
                f"{policy:8} {foretold.ended_at:10.2f} {took_s:8.2f} {off:+7.2%}  {interval.low:7.2f} to {interval.high:6.2f} "
                f"{same:10.1%}",
                flush=True,
            )


def virtual(tasks: int, repetitions: int, policies: list[str]) -> None:
    means = {"a": 20.0, "b": 60.0, "c": 5.0}
    text = "".join(f"#PILOTHOUSE cores={1 + n % 3} walltime=900\n{'abc'[n % 3]} {n}\n" for n in range(tasks))
    start = start_of(text, 4, 2)
    for policy in policies:
        holds = 0
        for repetition in range(repetitions):
            random = Random(f"{SEED} {repetition}")
            earlier = [
                Observed(f"{program} {10**6 + n}", -1, means[program] * random.lognormvariate(0, 0.5))
                for n, program in enumerate("abc" * 40)
            ]
            truth = {line.task_id: means[line.command[0]] * random.lognormvariate(0, 0.5) for line in start.lines}
            ended = simulate(start, lambda task, age, truth=truth: truth[task.task_id], make(policy, {})).ended_at
            known = LearnedDurations([earlier])
            told = forecast(start, known, lambda policy=policy: make(policy, {}), samples=60, seed=repetition).seconds
            holds += told.low <= ended <= told.high
        print(f"{policy:8} the interval of 90 % held {holds} of {repetitions} outcomes ({holds / repetitions:.0%})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--policy", default="fcfs,easy")
    parser.add_argument("--repetitions", type=int, default=50)
    parser.add_argument("--virtual", action="store_true", help="only the part on virtual time")
    arguments = parser.parse_args()
    policies = arguments.policy.split(",")
    if not arguments.virtual:
        real(arguments.tasks, arguments.slots, policies)
    virtual(90, arguments.repetitions, policies)


if __name__ == "__main__":
    main()

"""How well a forecast foretells a real run, and whether its interval holds.

    python bench/fidelity.py [--tasks 300] [--slots 8] [--policy fcfs,easy] [--repetitions 50] [--virtual]
                             [--stretch 10] [--lengths lognormal,...] [--observed 40]

Real time: tasks of mixed length and width (`sleep`, with requests) run once, which is what the forecast learns from, and then
twice under each policy. Prints the forecast of the time from the first start to the last end beside the real one (they should
differ by 2 % at most), and for how many tasks the starts come in the same order (longest common subsequence; 95 % or more; starts
that the forecast puts at one date have no order). Which of two tasks ends first decides what EASY starts next, so where tasks
take tenths of a second milliseconds change the order of all that follows, and two runs of the same file do not agree either. The
last columns say in how many tasks they do, and how far the forecast with each length changed by a millisecond agrees with the
forecast. `--stretch 20` takes tasks of seconds to minutes, as most are.

Virtual time: tasks of three programs whose lengths vary are forecast from 40 tasks of each that ran before, and then simulated
with other lengths of the same distribution (`--lengths all`: of several). Prints how often the stated interval of 90 % held the
outcome (90 % or more).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from pilothouse.campaign.durations import LearnedDurations, Observed
from pilothouse.campaign.forecast import Outcome, forecast, nodes_of, simulate
from pilothouse.campaign.run_snapshot import observed_tasks, overhead_s
from pilothouse.formats.task_file import TaskReader
from pilothouse.journal.read import TaskRow, read_tasks, reading
from pilothouse.policies.catalog import make
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.task_feed import RunStart

SEED = 16
JITTER_S = 0.001
LENGTHS: dict[str, Callable[[Random], float]] = {
    "lognormal": lambda random: random.lognormvariate(0, 0.5),
    "wide": lambda random: random.lognormvariate(0, 1),
    "exponential": lambda random: random.expovariate(1),
    "uniform": lambda random: random.uniform(0.2, 1),
    "normal": lambda random: max(0.01, random.gauss(1, 0.1)),
    "two": lambda random: (1 if random.random() < 0.7 else 5) * random.uniform(0.9, 1.1),
    "pareto": lambda random: random.paretovariate(2.5),
}
"""Lengths of tasks, beside the mean of their program."""


def mixed_tasks(count: int, stretch: float) -> str:
    """Lengths from 0.05 s to some seconds, one to four cores, walltimes of up to four times the length; times `stretch`."""
    random = Random(SEED)
    lines = []
    for _ in range(count):
        seconds = round(min(4.0, 0.05 + 0.3 * random.lognormvariate(0, 1)), 3)
        walltime = round(seconds * random.uniform(1.5, 4) + 5, 1)
        cores = random.choice([1, 1, 1, 2, 4])
        lines.append(f"#PILOTHOUSE cores={cores} walltime={walltime * stretch:.1f}\nsleep {seconds * stretch:.3f}\n")
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


def real(tasks: int, slots: int, policies: list[str], stretch: float) -> None:
    compared = f"{'same order':>10} {'two runs':>8} {'1 ms':>6}"
    print(f"{'policy':8} {'forecast s':>10} {'real s':>8} {'off by':>7}  {'90 % interval':>17} {compared}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = mixed_tasks(tasks, stretch)
        (folder / "tasks").write_text(text)
        took = {row.task: (row.ended or 0.0) - (row.started or 0.0) for row in run(folder, "learn", slots, "fcfs")[0]}
        known = LearnedDurations([observed_tasks(folder / "learn")])
        start = start_of(text, slots, overhead=overhead_s(folder / "learn"))
        for policy in policies:
            foretold = simulate(start, lambda task, age: took[task.task_id], make(policy, {}))
            interval = forecast(start, known, lambda policy=policy: make(policy, {}), samples=100).seconds
            rows, started = run(folder, policy, slots, policy)
            _, again = run(folder, f"{policy}-again", slots, policy)
            random = Random(SEED)
            late = {number: seconds + random.uniform(0, JITTER_S) for number, seconds in took.items()}
            disturbed = simulate(start, lambda task, age, late=late: late[task.task_id], make(policy, {}))
            took_s = max(row.ended or 0.0 for row in rows) - min(row.started or 0.0 for row in rows)
            off = foretold.ended_at / took_s - 1
            print(
                f"{policy:8} {foretold.ended_at:10.2f} {took_s:8.2f} {off:+7.2%}  {interval.low:7.2f} to {interval.high:6.2f} "
                f"{in_order(order(foretold, started), started):10.1%} {in_order(again, started):8.1%} "
                f"{in_order(order(foretold, started), order(disturbed, started)):6.1%}",
                flush=True,
            )


def order(outcome: Outcome, among_equals: list[int]) -> list[int]:
    """The tasks by their starts, and those of one date as they are in the other list."""
    places = {number: place for place, number in enumerate(among_equals)}
    starts = sorted((task.started_at, places[int(task.name)], int(task.name)) for task in outcome.times)
    return [number for _, _, number in starts]


def virtual(tasks: int, repetitions: int, policies: list[str], lengths: str, observed: int) -> None:
    draw = LENGTHS[lengths]
    means = {"a": 20.0, "b": 60.0, "c": 5.0}
    text = "".join(f"#PILOTHOUSE cores={1 + n % 3} walltime=900\n{'abc'[n % 3]} {n}\n" for n in range(tasks))
    start = start_of(text, 4, 2)
    for policy in policies:
        holds = 0
        for repetition in range(repetitions):
            random = Random(f"{SEED} {repetition}")
            earlier = [
                Observed(f"{program} {10**6 + n}", -1, means[program] * draw(random))
                for n, program in enumerate("abc" * observed)
            ]
            truth = {line.task_id: means[line.command[0]] * draw(random) for line in start.lines}
            ended = simulate(start, lambda task, age, truth=truth: truth[task.task_id], make(policy, {})).ended_at
            known = LearnedDurations([earlier])
            told = forecast(start, known, lambda policy=policy: make(policy, {}), samples=60, seed=repetition).seconds
            holds += told.low <= ended <= told.high
        share = f"held {holds} of {repetitions} outcomes ({holds / repetitions:.0%})"
        print(f"{policy:8} {lengths} lengths, {observed} of each program observed: the interval of 90 % {share}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--policy", default="fcfs,easy")
    parser.add_argument("--stretch", type=float, default=1.0, help="real tasks are so many times as long")
    parser.add_argument("--repetitions", type=int, default=50, help="on virtual time; 0: none")
    parser.add_argument("--virtual", action="store_true", help="only the part on virtual time")
    parser.add_argument("--lengths", default="lognormal", help=f"all, or some of {', '.join(LENGTHS)}")
    parser.add_argument("--observed", type=int, default=40, help="tasks of each program that ran before")
    arguments = parser.parse_args()
    policies = arguments.policy.split(",")
    if not arguments.virtual:
        real(arguments.tasks, arguments.slots, policies, arguments.stretch)
    names = LENGTHS if arguments.lengths == "all" else arguments.lengths.split(",")
    for lengths in names if arguments.repetitions else ():
        virtual(90, arguments.repetitions, policies, lengths, arguments.observed)


if __name__ == "__main__":
    main()

"""The same jobs simulated and on a Slurm, under the same policy: `python -m tests.interop.slurm_twin --jobs 300`.

Slurm starts jobs at its scheduling passes, once a second, and an end is seen at the next look. The simulation is told of both:
a job holds its nodes until the first pass after its end was seen (`tick_s`, `look_s`).
tests/simtest/test_slurm_twin.py does the same with a slurmctld on virtual time.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
from bisect import bisect_right
from datetime import datetime
from pathlib import Path

from tests.interop.slurm_trial import LINE, STARTED, Trial

from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.model.events import Begins
from pilothouse.model.job import Job, Node
from pilothouse.model.profile import Delay, Profile
from pilothouse.model.record import JobRecord
from pilothouse.policies.catalog import make
from pilothouse.worlds.simulated.world import SimulatedWorld
from pilothouse.worlds.slurm.lab import Lab
from pilothouse.worlds.slurm.lab_files import LabShape

TICK_S = 1.0
LOOK_S = 0.15
"""From the end of a job until the order that follows from it, on average."""
SAME_PASS_S = 0.5
"""Starts that are closer than this are of one pass."""

Planned = tuple[int, float, float]
"""Nodes, seconds that it runs, time limit in seconds."""


def plan(count: int, seed: int) -> list[Planned]:
    rng = random.Random(seed)
    return [(rng.choice([1, 1, 2, 2, 3, 4]), round(rng.uniform(2.0, 8.0), 1), 60.0 * rng.randint(1, 5)) for _ in range(count)]


def simulated(
    jobs: list[Planned], nodes: int, policy: str, tick_s: float = 0.0, look_s: float = LOOK_S
) -> tuple[dict[str, float], float]:
    """Starts by number from 1, and the makespan. `tick_s` 0: as if Slurm acted at once."""
    starts: dict[str, float] = {}

    def record(ended: JobRecord) -> None:
        assert ended.started_at is not None
        starts[ended.job.id] = ended.started_at

    begins = Begins(nodes=tuple(Node(f"n{number + 1}", number) for number in range(nodes)))
    made = []
    for number, (width, run_s, limit_s) in enumerate(jobs, 1):
        held_s = math.ceil((run_s + look_s) / tick_s) * tick_s if tick_s else run_s
        profile = Profile(f"{held_s}", Delay(held_s))
        made.append(Job(str(number), width, limit_s, 0.0, profile, priority=-number))
    outcome = Session(SimulatedWorld(begins, made, record=record), PolicyDecider(make(policy, {}))).run()
    return starts, outcome.ended_at


def same_order(real: dict[str, float], other: dict[str, float]) -> float:
    """The share of jobs in the longest sequence that both have: starts of one pass have no order."""
    ranked: list[str] = []
    group: list[str] = []
    last = -1e9
    for job_id, at in sorted(real.items(), key=lambda item: item[1]):
        if at - last > SAME_PASS_S:
            ranked += sorted(group, key=lambda known: other[known])
            group = []
        group.append(job_id)
        last = at
    ranked += sorted(group, key=lambda known: other[known])
    return longest_ascending([other[job_id] for job_id in ranked]) / len(ranked)


def same_pairs(real: dict[str, float], other: dict[str, float]) -> float:
    """The share of pairs of jobs that start in the same order; starts of one pass have none."""
    same = pairs = 0
    items = sorted(real.items(), key=lambda item: item[1])
    for index, (one, at) in enumerate(items):
        for two, later in items[index + 1 :]:
            if later - at > SAME_PASS_S:
                pairs += 1
                same += other[one] <= other[two]
    return same / pairs


def longest_ascending(values: list[float]) -> int:
    """The length of the longest subsequence that never descends."""
    tails: list[float] = []
    for value in values:
        place = bisect_right(tails, value)
        tails[place : place + 1] = [value]
    return len(tails)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--policy", default="easy")
    arguments = parser.parse_args()
    jobs = plan(arguments.jobs, arguments.seed)
    with tempfile.TemporaryDirectory(prefix="pilothouse-twin-") as folder:
        lab = Lab(Path(folder), LabShape(8, 4))
        lab.start()
        try:
            trial = Trial(lab, lambda: (arguments.policy, []), jobs=0, seed=0)
            trial.ids = [trial.submit(f"-N{width}", f"-t{int(limit_s // 60)}", sleep=run_s) for width, run_s, limit_s in jobs]
            trial.run(limit_s=3600.0, plan=[])
            trial.judge()
            lines = [found for found in map(LINE.match, (lab.folder / "slurmctld.log").open()) if found]
        finally:
            lab.stop()
    numbers = {job_id: str(number) for number, job_id in enumerate(trial.ids, 1)}
    real: dict[str, float] = {}
    for found in lines:
        if match := STARTED.match(found[2]):
            real[numbers[match[1] or match[4]]] = datetime.fromisoformat(found[1]).timestamp()
    makespan = max(at + jobs[int(number) - 1][1] for number, at in real.items()) - min(real.values())
    for tick_s in (0.0, TICK_S):
        starts, simulated_s = simulated(jobs, 8, arguments.policy, tick_s)
        print(
            f"{len(real)} jobs, tick of {tick_s:g} s: the same order for {100 * same_order(real, starts):.1f} % of the jobs"
            f" and {100 * same_pairs(real, starts):.1f} % of the pairs, makespan {makespan:.0f} s,"
            f" simulated {simulated_s:.0f} s ({simulated_s / makespan - 1:+.1%})"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

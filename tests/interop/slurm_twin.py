"""The same jobs simulated and on a real Slurm, under the same policy. bench/slurm.py prints what comes out.

The simulation is told what an administrator knows afterwards: when each job was submitted, and how long it held its nodes (a
job holds them longer than its program runs). It is told of Slurm's scheduling passes as `--control-latency 1s` does.
tests/simtest/test_slurm_twin.py does the same with a slurmctld on virtual time.
"""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import msgspec
from tests.interop.slurm_trial import Trial
from tests.interop.slurm_verdict import ENDED, STARTED, dated

from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.model.events import Begins
from pilothouse.model.job import Job, Node
from pilothouse.model.profile import Delay, Profile
from pilothouse.model.record import JobRecord
from pilothouse.policies.catalog import make
from pilothouse.worlds.simulated.scheduling_passes import SimulatedPasses
from pilothouse.worlds.simulated.world import SimulatedWorld
from pilothouse.worlds.slurm.lab import Lab

PASS_S = 1.0
"""Slurm makes a scheduling pass every second."""
BETWEEN_S = 1.45
"""From one submission to the next, on average: eight nodes are busy for three quarters of the time."""
SUBMITTED = re.compile(r"_slurm_rpc_submit_batch_job: JobId=(\d+)")


class Planned(msgspec.Struct, frozen=True):
    """A job."""

    id: str
    nodes: int
    run_s: float
    limit_s: float
    submitted_at: float


class Seen(msgspec.Struct):
    """Dates of a job that has run."""

    submitted_at: float = 0.0
    started_at: float = 0.0
    ended_at: float = 0.0


def plan(count: int, seed: int) -> list[Planned]:
    rng = random.Random(seed)
    jobs, at = [], 0.0
    for number in range(1, count + 1):
        nodes, run_s, limit_s = rng.choice([1, 1, 2, 2, 3, 4]), round(rng.uniform(1.0, 6.0), 1), 60.0 * rng.randint(1, 5)
        jobs.append(Planned(str(number), nodes, run_s, limit_s, round(at, 2)))
        at += rng.expovariate(1 / BETWEEN_S)
    return jobs


class Twin(Trial):
    """Planned jobs on a lab, submitted at their dates."""

    def __init__(self, lab: Lab, policy: str, jobs: list[Planned]) -> None:
        super().__init__(lab, lambda: (policy, []), jobs=len(jobs), seed=0)
        self._jobs = jobs

    def submit_all(self) -> None:
        began = time.monotonic()
        for job in self._jobs:
            time.sleep(max(0.0, began + job.submitted_at - time.monotonic()))
            self.ids.append(self.submit(f"-N{job.nodes}", f"-t{int(job.limit_s // 60)}", sleep=job.run_s))


def seen_on(lab: Lab, policy: str, jobs: list[Planned]) -> dict[str, Seen]:
    """Runs the jobs; number from 1 -> dates, the first submission at 0."""
    twin = Twin(lab, policy, jobs)
    twin.run(limit_s=3600.0, plan=[])
    twin.judge()
    return _dates(lab.folder / "slurmctld.log", {name: str(number) for number, name in enumerate(twin.ids, 1)})


def _dates(log: Path, numbers: dict[str, str]) -> dict[str, Seen]:
    seen = {name: Seen() for name in numbers}
    other = Seen()  # Jobs that ran on this Slurm before.
    with log.open() as lines:
        for at, text in dated(lines):
            if match := SUBMITTED.match(text):
                seen.get(match[1], other).submitted_at = at
            elif match := STARTED.match(text):
                seen.get(match[1] or match[4], other).started_at = at
            elif match := ENDED.match(text):
                seen.get(match[1] or match[3] or match[5], other).ended_at = at
    began = min(dates.submitted_at for dates in seen.values())
    for dates in seen.values():
        dates.submitted_at, dates.started_at, dates.ended_at = (
            dates.submitted_at - began,
            dates.started_at - began,
            dates.ended_at - began,
        )
    return {numbers[name]: dates for name, dates in seen.items()}


def as_seen(jobs: list[Planned], seen: dict[str, Seen]) -> list[Planned]:
    """The jobs with the dates and durations of a real run."""
    return [
        Planned(job.id, job.nodes, dates.ended_at - dates.started_at, job.limit_s, dates.submitted_at)
        for job in jobs
        for dates in (seen[job.id],)
    ]


def simulated(jobs: list[Planned], nodes: int, policy: str, pass_every_s: float = PASS_S) -> dict[str, Seen]:
    """`pass_every_s` 0: as if Slurm acted at once."""
    seen: dict[str, Seen] = {}

    def record(ended: JobRecord) -> None:
        assert ended.started_at is not None
        seen[ended.job.id] = Seen(ended.job.submitted_at, ended.started_at, ended.ended_at)

    begins = Begins(nodes=tuple(Node(f"n{number + 1}", number) for number in range(nodes)))
    made = [
        Job(job.id, job.nodes, job.limit_s, job.submitted_at, Profile(job.id, Delay(job.run_s)), priority=-number)
        for number, job in enumerate(jobs)
    ]
    if pass_every_s:
        world: SimulatedWorld = SimulatedPasses(begins, made, record=record, pass_every_s=pass_every_s)
    else:
        world = SimulatedWorld(begins, made, record=record)
    Session(world, PolicyDecider(make(policy, {}))).run()
    return seen


def same_order(one: dict[str, Seen], other: dict[str, Seen], tie_s: float = PASS_S) -> float:
    """The share of the jobs that can be kept so that no two of them start in one order here and in the other there.

    Starts that are not more than `tie_s` apart have no order. What is left is a partial order ("earlier here, later there"),
    and the jobs to keep are its largest antichain: all jobs less a maximum matching (Dilworth, König).
    """
    inverted = {
        a: [
            b
            for b in one
            if one[b].started_at - one[a].started_at > tie_s and other[a].started_at - other[b].started_at > tie_s
        ]
        for a in one
    }
    partner: dict[str, str] = {}

    def match(job: str, tried: set[str]) -> bool:
        for later in inverted[job]:
            if later not in tried:
                tried.add(later)
                if later not in partner or match(partner[later], tried):
                    partner[later] = job
                    return True
        return False

    return 1.0 - sum(match(job, set()) for job in one) / len(one)


def makespan(seen: dict[str, Seen]) -> float:
    return max(dates.ended_at for dates in seen.values())

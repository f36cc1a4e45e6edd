"""A seeded storm over the Slurm world: `python -m tests.simtest.slurm_storm --seeds N --first S`.

Jobs with dependencies, begin times and named nodes arrive while looks get lost or late, orders are refused, users hold,
release, cancel and requeue, nodes are drained, other partitions take nodes, slurmctld goes away, and the steering program is
killed. In the end every job has ended, and no order asked for nodes that a steered job had.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import inf
from random import Random

from tests.simtest.__main__ import run_storms
from tests.simtest.virtual_slurm import START, Killed, VirtualJob, VirtualSlurm

from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.policies.catalog import make
from pilothouse.worlds.slurm.book import Pair
from pilothouse.worlds.slurm.world import SlurmWorld

CALM_AT = START + 60.0
LATEST = START + 1500.0


class SlurmStorm:
    def __init__(self, seed: int, jobs: int = 14) -> None:
        self.rng = Random(seed)
        self.slurm = VirtualSlurm(self.rng.randint(3, 6), self.rng)
        self.policy = self.rng.choice(["fcfs", "easy", "easy-sjbf", "conservative", "filler"])
        self.kills = 0
        self.slurm.latest = LATEST
        for number in range(1, jobs + 1):
            self._plan_job(str(number) if self.rng.random() < 0.7 else f"{number}_1", number)
        for _ in range(self.rng.randint(4, 14)):
            act = self.rng.choice(
                [self._hold, self._cancel, self._requeue, self._drain, self._elsewhere, self._outage, self._kill, self._limit]
            )
            self.slurm.at(START + self.rng.uniform(1.0, 60.0), act)
        self.slurm.at(CALM_AT + 40.0, self._calm)

    def run(self) -> None:
        slurm = self.slurm
        while slurm.t < CALM_AT + 45.0 or any(job.state in ("PENDING", "RUNNING") for job in slurm.jobs.values()):
            world = SlurmWorld(Pair(), slurm=slurm, once=True, patience_s=10.0)
            try:
                Session(world, PolicyDecider(make(self.policy, {}))).run()
            except Killed:
                self.kills += 1
            except Exception as problem:
                if "Unable to contact" not in str(problem):
                    raise
            slurm.restart()
            slurm.pass_time(slurm.t + self.rng.uniform(0.0, 2.0))
            assert not slurm.wrongs, slurm.wrongs[0]
        assert not slurm.wrongs, slurm.wrongs[0]

    # ---- plans

    def _plan_job(self, job_id: str, number: int) -> None:
        rng, slurm = self.rng, self.slurm
        nodes = rng.randint(1, len(slurm.names))
        job = VirtualJob(job_id, nodes, rng.uniform(0.5, 9.0), 60.0 * rng.randint(1, 3), 1_000_000 - number, 0.0)
        if slurm.jobs_planned and rng.random() < 0.2:
            job.after = rng.choice(slurm.jobs_planned)
        elif rng.random() < 0.1:
            job.begins_at = START + rng.uniform(5.0, 50.0)
        if rng.random() < 0.15:
            job.wanted = tuple(rng.sample(slurm.names, nodes))
        slurm.jobs_planned.append(job_id)

        def submit() -> None:
            if not job.after or job.after in slurm.jobs:
                slurm.submit(job)
            else:
                slurm.at(slurm.t + 5.0, submit)

        slurm.at(START + rng.uniform(0.0, 30.0), submit)

    def _some(self, *states: str) -> VirtualJob | None:
        found = [job for job in self.slurm.jobs.values() if job.state in states and job.partition != "main"]
        return self.rng.choice(found) if found else None

    def _hold(self) -> None:
        job = self._some("PENDING")
        if job is not None:
            job.held = True
            self._later(lambda: setattr(job, "held", False))

    def _cancel(self) -> None:
        job = self._some("PENDING", "RUNNING")
        if job is not None:
            self.slurm.cancel(job.id)

    def _requeue(self) -> None:
        job = self._some("RUNNING")
        if job is not None:
            self.slurm.requeue(job.id)

    def _limit(self) -> None:
        job = self._some("PENDING")
        if job is not None:
            job.limit_s += 60.0

    def _drain(self) -> None:
        name = self.rng.choice(self.slurm.names)
        self.slurm.down.add(name)
        self._later(lambda: self.slurm.down.discard(name))

    def _elsewhere(self) -> None:
        job_id = f"{900 + len(self.slurm.jobs)}"
        self.slurm.run_elsewhere(VirtualJob(job_id, self.rng.randint(1, 2), self.rng.uniform(1, 15), 60.0, 1, 0.0))

    def _outage(self) -> None:
        self.slurm.away_until = self.slurm.t + self.rng.uniform(0.5, 8.0)

    def _kill(self) -> None:
        self.slurm.kill_at = self.slurm.t + self.rng.uniform(0.0, 1.0)

    def _later(self, act: Callable[[], None]) -> None:
        self.slurm.at(self.slurm.t + self.rng.uniform(1.0, 20.0), act)

    def _calm(self) -> None:
        self.slurm.kill_at = inf
        self.slurm.down.clear()
        for job in self.slurm.jobs.values():
            job.held = False


if __name__ == "__main__":
    sys.exit(run_storms(SlurmStorm, "tests.simtest.slurm_storm"))

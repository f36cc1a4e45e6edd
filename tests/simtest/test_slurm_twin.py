"""The same 300 jobs simulated and on a slurmctld on virtual time (`python bench/slurm.py`: on a real one)."""

from __future__ import annotations

import logging

import pytest
from tests.interop.slurm_twin import Seen, makespan, plan, same_order, simulated
from tests.simtest.virtual_slurm import START, VirtualJob, VirtualSlurm

from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.policies.catalog import make
from pilothouse.worlds.slurm.book import Pair
from pilothouse.worlds.slurm.world import SlurmWorld


@pytest.mark.parametrize(("policy", "count", "same"), [("fcfs", 100, 1.0), ("easy", 300, 0.95)])
def test_twins(policy: str, count: int, same: float) -> None:
    """One job that fits a moment earlier changes what follows: the share is an average over workloads."""
    logging.getLogger("pilothouse.slurm").setLevel(logging.ERROR)
    assert sum(twins(policy, count, seed) for seed in range(3)) / 3 >= same


def twins(policy: str, count: int, seed: int) -> float:
    jobs = plan(count, seed)
    slurm = VirtualSlurm(8)
    # The world goes on as long as a job waits.
    slurm.submit(VirtualJob("0", 1, 1.0, 60.0, 0, START, held=True))
    slurm.at(START + jobs[-1].submitted_at + 1.0, lambda: slurm.cancel("0"))
    for number, job in enumerate(jobs, 1):
        virtual = VirtualJob(job.id, job.nodes, job.run_s, job.limit_s, 1_000_000 - number, START)
        slurm.at(START + job.submitted_at, lambda virtual=virtual: slurm.submit(virtual))  # type: ignore[misc]
    Session(SlurmWorld(Pair(), slurm=slurm, once=True), PolicyDecider(make(policy, {}))).run()
    assert not slurm.wrongs and len(slurm.began) == count
    real = {
        job.id: Seen(job.submitted_at, slurm.began[job.id] - START, slurm.began[job.id] - START + job.run_s) for job in jobs
    }
    waited = sum(dates.started_at - dates.submitted_at > 2.0 for dates in real.values())
    assert waited > count / 5  # Otherwise a policy has nothing to decide.
    twin = simulated(jobs, 8, policy)
    assert makespan(twin) == pytest.approx(makespan(real), rel=0.05)
    return same_order(real, twin)


def test_what_counts_as_the_same_order() -> None:
    def starts(*dates: float) -> dict[str, Seen]:
        return {str(number): Seen(0.0, at, at) for number, at in enumerate(dates)}

    real = starts(0.0, 2.0, 4.0, 6.0)
    assert same_order(real, real) == 1.0
    assert same_order(real, starts(0.0, 4.0, 2.0, 6.0)) == 0.75
    assert same_order(real, starts(6.0, 4.0, 2.0, 0.0)) == 0.25
    assert same_order(real, starts(0.9, 0.6, 0.3, 0.0)) == 1.0  # One pass.
    assert same_order(real, starts(9.0, 0.0, 2.0, 4.0)) == 0.75

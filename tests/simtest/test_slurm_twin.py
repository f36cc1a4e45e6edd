"""The same 300 jobs simulated and on a slurmctld on virtual time (`python -m tests.interop.slurm_twin`: on a real one)."""

from __future__ import annotations

import logging

import pytest
from tests.interop.slurm_twin import plan, same_order, same_pairs, simulated
from tests.simtest.virtual_slurm import START, VirtualJob, VirtualSlurm

from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.policies.catalog import make
from pilothouse.worlds.slurm.steering import Pair
from pilothouse.worlds.slurm.world import SlurmWorld


@pytest.mark.parametrize(("policy", "count"), [("fcfs", 100), ("easy", 300)])
def test_twins(policy: str, count: int) -> None:
    logging.getLogger("pilothouse.slurm").setLevel(logging.ERROR)
    jobs = plan(count, 17)
    slurm = VirtualSlurm(8)
    for number, (width, run_s, limit_s) in enumerate(jobs, 1):
        slurm.submit(VirtualJob(str(number), width, run_s, limit_s, 1_000_000 - number, START))
    Session(SlurmWorld(Pair(), slurm=slurm, once=True), PolicyDecider(make(policy, {}))).run()
    assert not slurm.wrongs and len(slurm.began) == count
    makespan = max(slurm.began[job.id] + job.run_s for job in slurm.jobs.values()) - min(slurm.began.values())
    starts, simulated_s = simulated(jobs, 8, policy, tick_s=1.0)
    assert same_pairs(slurm.began, starts) >= 0.95
    if policy == "fcfs":
        assert same_order(slurm.began, starts) == 1.0
    assert simulated_s == pytest.approx(makespan, rel=0.05)

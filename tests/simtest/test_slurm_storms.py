"""The Slurm world books no node twice and forgets no job, whatever breaks. Replays: `python -m tests.simtest.slurm_storm`."""

from __future__ import annotations

import logging

import pytest
from tests.simtest.slurm_storm import SlurmStorm

SEEDS = 300
CHUNK = 50


@pytest.fixture(autouse=True)
def quiet() -> None:
    logging.getLogger("pilothouse.slurm").setLevel(logging.ERROR)


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_storms(first: int) -> None:
    for seed in range(first, first + CHUNK):
        try:
            SlurmStorm(seed).run()
        except AssertionError as problem:
            command = f"python -m tests.simtest.slurm_storm --seeds 1 --first {seed} --stop"
            raise AssertionError(f"{problem} ({command})") from problem


def test_storms_do_break_things() -> None:
    """The weather is bad enough for the test to mean something."""
    kills = repeated = requeued = 0
    for seed in range(30):
        storm = SlurmStorm(seed)
        storm.run()
        kills += storm.kills
        repeated += storm.slurm.orders > len(set(storm.slurm.starts))
        requeued += any(job.runs > 1 for job in storm.slurm.jobs.values())
    assert kills > 10
    assert repeated > 5
    assert requeued > 3

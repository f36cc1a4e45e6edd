"""A later job never delays one that has a reservation: every backfilling policy, every shape, every kind of resource."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import inf
from random import Random

import msgspec
import pytest

from pilothouse.core import place
from pilothouse.core.cluster import Cluster
from pilothouse.core.session import Session
from pilothouse.launch import naming
from pilothouse.model.events import Batch, Begins
from pilothouse.model.job import Job, Node, Shape
from pilothouse.model.profile import Delay, Profile
from pilothouse.policies.score import KNOWN, Expression
from pilothouse.worlds.simulated.world import SimulatedWorld

NODES = (
    Node("a", 0, 4, gpus=2, memory_mb=1000, properties={"fast": ""}),
    Node("b", 4, 4, gpus=2, memory_mb=1000),
    Node("c", 8, 8, gpus=4, memory_mb=3000, properties={"fast": ""}),
    Node("d", 16, 2, memory_mb=500),
    Node("e", 18, 6, gpus=1, memory_mb=2000),
)
FAST = msgspec.Raw(json.dumps({"properties": ["fast"]}).encode())

ORDERS: dict[str, Callable[[Job, float], float]] = {
    "easy": lambda job, now: 0.0,
    "easy-sjbf": lambda job, now: 0.0,
    "priority:score=0-s,backfill=easy": Expression("0-s"),
    **{f"{name}:backfill=easy": Expression(text) for name, (text, _) in KNOWN.items()},
}
"""Policies that reserve for the head of the queue -> their order at a date; equal jobs in order of arrival."""


def drawn(random: Random, number: int, at: float, *, exact: bool) -> Job:
    """A job of any shape."""
    units, most, shape = random.choice(
        (
            (random.randint(1, 16), 0, None),
            (2, 9, None),
            (random.randint(1, 4), 0, Shape(nodes=random.randint(1, 3))),
            (0, 0, Shape(nodes=random.randint(1, 3))),
            (1, 0, Shape(nodes=random.randint(1, 2), exclusive=True)),
            (1, 0, Shape(nodes=random.randint(1, 3), gpus_per_node=random.randint(1, 2))),
            (1, 0, Shape(nodes=random.randint(1, 3), memory_mb_per_node=random.choice((300, 700, 1500)))),
            (random.randint(1, 4), 0, Shape(memory_mb_per_node=400)),
            (2, 0, Shape(nodes=1, gpus_per_node=1, memory_mb_per_node=600)),
            (2 * random.randint(1, 4), 0, Shape(chunk=2)),
            (random.randint(1, 5), 0, Shape(chunk=1, gpus_per_chunk=1)),
            (2 * random.randint(1, 3), 0, Shape(chunk=2, gpus_per_chunk=1, memory_mb_per_node=200)),
            (2 * random.randint(1, 3), 0, Shape(chunk=2, memory_mb_per_chunk=random.choice((250, 600)))),
            (1, 0, Shape(nodes=random.randint(1, 2), constraint=FAST, gpus_per_node=random.randint(0, 2))),
        )
    )
    seconds = random.uniform(1, 60)
    walltime = seconds if exact else seconds + random.choice((0.0, 5.0, 50.0))
    profile = Profile(f"p{number}", Delay(seconds))
    return Job(f"w0!{number}", units, walltime, at, profile, most_units=most, shape=shape, runtime=seconds)


def workload(seed: int, *, exact: bool) -> list[Job]:
    random = Random(seed)
    # No two events at one date: a pass between two of them knows only the first.
    dates = sorted(random.uniform(0, 150) for _ in range(40))
    return [drawn(random, number, at, exact=exact) for number, at in enumerate(dates)]


def run(policy: str, jobs: list[Job], each_turn: Callable[[Cluster], None] = lambda cluster: None) -> dict[str, float]:
    starts: dict[str, float] = {}

    def noted(batch: Batch) -> None:
        each_turn(session.cluster)

    world = SimulatedWorld(
        Begins(nodes=NODES), jobs, record=lambda record: starts.update({record.job.id: record.started_at or 0.0})
    )
    session = Session(world, naming.decider(policy))
    outcome = session.run(noted)
    assert not outcome.deadlocked, outcome
    return starts


def earliest(cluster: Cluster, job: Job, behind: Callable[[Job], bool]) -> float:
    """When a job can start if all running jobs end as expected and no job that is behind it had been started now."""
    running = [run for run in cluster.running.values() if run.started_at < cluster.now or not behind(run.job)]
    for date in sorted({run.started_at + run.job.walltime for run in running}):
        left = tuple(run for run in running if run.started_at + run.job.walltime > date)
        empty = Cluster(Begins(nodes=NODES, running=left), "oracle")
        if isinstance(place.choose(empty, job, least=True), int):
            return date
    return inf


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("policy", ORDERS)
def test_a_later_job_never_delays_the_head(policy: str, seed: int) -> None:
    """A head starts by the first date at which it could have started without the jobs behind it."""
    promised: dict[str, float] = {}
    order = ORDERS[policy]

    def promise(cluster: Cluster) -> None:
        def key(job: Job) -> tuple[float, int]:
            return order(job, cluster.now), int(job.local_id)

        head = min(cluster.waiting.values(), key=key, default=None)
        for job in cluster.waiting.values():
            if job is not head:
                promised.pop(job.id, None)  # a job that has just come is before it
        if head is None:
            return
        more_urgent = any(run.started_at == cluster.now and key(run.job) < key(head) for run in cluster.running.values())
        if more_urgent or head.id not in promised:
            promised[head.id] = earliest(cluster, head, lambda other: key(other) > key(head))

    starts = run(policy, workload(seed, exact=False), promise)
    assert len(promised) > 3
    for job_id, date in promised.items():
        assert starts[job_id] <= date + 1e-6, f"{job_id} was to start at {date} and started at {starts[job_id]}"


@pytest.mark.parametrize("seed", range(12))
def test_conservative_delays_no_job_by_a_later_one(seed: int) -> None:
    """With exact estimates the start of a job does not depend on jobs that come after it."""
    jobs = workload(seed, exact=True)
    starts = run("conservative", jobs)
    first = run("conservative", workload(seed, exact=True)[:20])
    assert len(starts) == len(jobs)
    for job_id, date in first.items():
        assert starts[job_id] == pytest.approx(date), f"{job_id} starts at {starts[job_id]}, and at {date} without later jobs"

"""Runs ahead: the present state of a machine is copied into a simulated world and goes on there under a policy.

In: a Cluster (nodes, running and waiting jobs, as a decider knows them now) or any other world that begins with a present state,
and a policy that has seen nothing yet. Out: when waiting jobs start. Nothing of what is copied is changed. The simulated clock
shows the cluster's time, so that dates mean the same in both.

Forecasts of live runs (forecast.py) run a TaskWorld ahead, which is fed as a live world is. All others (a Flux, a Slurm, the
questions of a Batsim) know jobs and their limits, and call `expected_starts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nlargest
from math import inf

import msgspec

from pilothouse.core.cluster import Cluster
from pilothouse.core.contract import World
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Outcome, Session
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.profile import Delay, Profile
from pilothouse.policies.base import Policy
from pilothouse.worlds.simulated.world import SimulatedWorld

MOST_JOBS = 100_000
"""Waiting jobs that are simulated: the most urgent ones, and of equally urgent ones the first."""
MOST_TURNS_PER_JOB = 20
"""A policy that asks to be called again and again does not run ahead for ever."""


def run_ahead(world: World, policy: Policy, enough: Callable[[d.Reply], bool] | None = None) -> Outcome:
    """Runs a world to its end, or until a reply after which it is enough."""
    return Session(world if enough is None else _Cut(world, enough), PolicyDecider(policy)).run()


def limit_s(job: Job) -> float:
    """A job that uses up its walltime; inf: it has none."""
    return job.walltime


def expected_starts(
    cluster: Cluster,
    policy: Policy,
    *,
    potential: Iterable[Job] = (),
    run_s: Callable[[Job], float] = limit_s,
    most_jobs: int = MOST_JOBS,
    in_time: Callable[[], bool] = lambda: True,
) -> dict[str, float]:
    """Job id -> the date when it starts, for those waiting jobs that do, if no other job is submitted.

    `potential`: jobs that are submitted now, behind those that wait. `run_s`: how long a job runs in all. `in_time` is asked in
    every turn; once it says no, the dates that are known so far are returned.
    """
    now = cluster.now
    waiting = list(cluster.waiting.values())
    if len(waiting) > most_jobs:
        chosen = nlargest(most_jobs, range(len(waiting)), key=lambda index: (waiting[index].priority, -index))
        waiting = [waiting[index] for index in sorted(chosen)]
    waiting += [msgspec.structs.replace(job, submitted_at=now) for job in potential]
    jobs = [_copied(job, run_s(job)) for job in waiting]
    begins = e.Begins(
        tuple(cluster.nodes.values()),
        started_at=now,
        compute_sharing=cluster.sharing,
        exact_count=cluster.begins.exact_count,
        config=cluster.begins.config,
        unavailable=IdSet(cluster.off_mask & cluster.all_mask),
        running=tuple(_going_on(run, run_s(run.job), cluster) for run in cluster.running.values()),
    )
    missing = {job.id for job in jobs}
    starts: dict[str, float] = {}
    turns_left = MOST_TURNS_PER_JOB * (len(jobs) + len(begins.running) + 1)

    def enough(reply: d.Reply) -> bool:
        nonlocal turns_left
        turns_left -= 1
        for decision in reply.decisions:
            if type(decision) is d.StartJob:
                starts[decision.job_id] = max(decision.at, now)
                missing.discard(decision.job_id)
            elif type(decision) is d.RejectJob:
                missing.discard(decision.job_id)
        return not missing or turns_left <= 0 or not in_time()

    if jobs:
        run_ahead(SimulatedWorld(begins, jobs), policy, enough)
    return starts


def _copied(job: Job, run_s: float) -> Job:
    """A waiting job; what it waits for besides units was there when the cluster heard of it."""
    return msgspec.structs.replace(job, after=(), profile=_profile(run_s), runtime=run_s)


def _going_on(run: e.Running, run_s: float, cluster: Cluster) -> e.Running:
    """A running job, with what is left of it. One that has run for longer than it should is about to end."""
    left_s = max(0.0, run.started_at + run_s - cluster.now)
    job = msgspec.structs.replace(run.job, after=(), profile=_profile(left_s), runtime=run_s)
    return e.Running(job, IdSet(run.units.mask & cluster.all_mask), run.started_at)


def _profile(seconds: float) -> Profile:
    return Profile("", Delay(seconds))


class _Cut:
    """A world that is over when it is enough, or when nothing more happens at any date."""

    def __init__(self, world: World, enough: Callable[[d.Reply], bool]) -> None:
        self.name = world.name
        self.begin, self.watch, self.close = world.begin, world.watch, world.close
        self._world = world
        self._enough = enough
        self._over = False

    def advance(self) -> e.Batch | None:
        batch = None if self._over else self._world.advance()
        return None if batch is None or batch.now == inf else batch

    def apply(self, reply: d.Reply) -> None:
        self._over = self._enough(reply)
        if not self._over:
            self._world.apply(reply)

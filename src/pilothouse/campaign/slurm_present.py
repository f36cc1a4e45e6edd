"""A Slurm as it is now, without changing it: why a job waits, what a policy would start, when jobs would start.

In: one look at a pair of partitions (or at one partition that Slurm schedules itself). Out: explanations, and simulations that
begin with the present state. The Slurm world uses the same state machine; nothing is sent here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from math import inf

import msgspec

from pilothouse.campaign import run_ahead
from pilothouse.core.cluster import Cluster
from pilothouse.core.explain import explain
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.formats import hostlist
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import InputError
from pilothouse.model.job import Job
from pilothouse.policies.base import Policy
from pilothouse.worlds.slurm.book import Pair
from pilothouse.worlds.slurm.link import SlurmLink
from pilothouse.worlds.slurm.look import Look
from pilothouse.worlds.slurm.steering import Steering
from pilothouse.worlds.slurm.tracked import Belief
from pilothouse.worlds.slurm.world import begins_of, first_look, pair_of, steering_for

LOOK_EVERY_S = 1.0
UNLIMITED_S = 86400.0
"""A job without a time limit is taken to run for so long."""


class Present(msgspec.Struct):
    """One look, as a decider would be told of it."""

    now: float
    steering: Steering
    begins: e.Begins
    events: list[e.Event]
    look: Look

    @property
    def waiting(self) -> list[Job]:
        return [event.job for event in self.events if isinstance(event, e.JobSubmitted)]


def observed_pair(address: str) -> Pair:
    """`QUEUE:GO`, or one partition that Slurm schedules itself."""
    return Pair(address, "") if address and ":" not in address else pair_of(address)


def present(pair: Pair, link: SlurmLink) -> Present:
    facts = link.facts()
    for name in (pair.queue, pair.go):
        if name and name not in facts.partitions:
            raise InputError("slurm", f"there is no partition {name!r}", expected=", ".join(facts.partitions))
    look = first_look(link)
    steering = steering_for(pair, facts)
    now = link.now()
    begins = begins_of(steering, now, look, facts)
    steering.take_commands()
    return Present(now, steering, begins, steering.take_events(), look)


def cluster_of(at: Present, decider: str) -> Cluster:
    cluster = Cluster(at.begins, decider)
    cluster.now = at.now
    for event in at.events:
        cluster.observe(event)
    return cluster


def why(at: Present, job_id: str) -> str:
    """Why a job waits, in one sentence."""
    tracked = at.steering.jobs.get(job_id)
    if tracked is None:
        elements = [known for known in at.steering.jobs if known.startswith((f"{job_id}_", f"{job_id}+"))]
        if elements:
            return why(at, elements[0])
        pair = at.steering.pair
        return f"job {job_id} neither waits nor runs in {pair.queue}{f' or {pair.go}' if pair.go else ''}"
    where = hostlist.encode(tracked.node_names or tracked.row.node_names)
    if tracked.belief in (Belief.RUNNING, Belief.FOREIGN):
        return f"job {job_id} runs on {where}"
    if tracked.belief in (Belief.ORDERED, Belief.RETURNING):
        return f"job {job_id} was ordered to start on {where}; Slurm says {tracked.row.reason}"
    if tracked.belief is Belief.WAITING:
        return explain(cluster_of(at, "the scheduler"), job_id).sentence
    return f"job {job_id} waits: {tracked.note or tracked.row.reason}"


def would_start(at: Present, policy: Policy) -> dict[str, str]:
    """Job id -> the nodes on which the policy would start it now."""
    decider = PolicyDecider(policy)
    wants = decider.hello()
    cluster = Cluster(at.begins, decider.name, wants)
    decider.begin(at.begins, cluster)
    reply = decider.decide(e.Batch(at.now, [e.Began(at.now, at.begins), *at.events]))
    names = at.steering.inventory.names
    return {one.job_id: hostlist.encode(names(one.units)) for one in reply.decisions if isinstance(one, d.StartJob)}


def follow(
    pair: Pair, policy: Callable[[], Policy], looks: int = 0, every_s: float = LOOK_EVERY_S
) -> Iterator[tuple[float, str, str]]:
    """Dry run: (date, job id, what happened) whenever the policy would start a job, and whenever Slurm did.

    `looks` 0: for ever."""
    link = SlurmLink()
    wished: dict[str, tuple[float, str]] = {}
    ran: set[str] | None = None
    count = 0
    try:
        while not looks or count < looks:
            count += 1
            at = present(pair, link)
            runs = {job.id: job for job in at.look.jobs if job.holds and {pair.queue, pair.go} & set(job.partitions)}
            for job_id in runs.keys() - (ran if ran is not None else runs.keys()):
                nodes = hostlist.encode(runs[job_id].node_names)
                since, wish = wished.pop(job_id, (inf, ""))
                earlier = f"would have started it {at.now - since:.0f} s earlier on {wish}" if wish else "would not have"
                yield at.now, job_id, f"Slurm started it on {nodes}; the policy {earlier}"
            ran = set(runs)
            for job_id, nodes in would_start(at, policy()).items():
                if job_id not in wished:
                    wished[job_id] = at.now, nodes
                    yield at.now, job_id, f"the policy would start it on {nodes}; Slurm: {_reason(at, job_id)}"
            if not looks or count < looks:
                time.sleep(every_s)
    finally:
        link.close()


def _reason(at: Present, job_id: str) -> str:
    return at.steering.jobs[job_id].row.reason


def expected_starts(at: Present, policy: Policy, used: float = 1.0) -> dict[str, float]:
    """Job id -> seconds from now until it starts, if every job uses this share of its time limit and no job is submitted."""

    def run_s(job: Job) -> float:
        return job.walltime * used if job.walltime < inf else UNLIMITED_S

    starts = run_ahead.expected_starts(cluster_of(at, ""), policy, run_s=run_s)
    return {job_id: date - at.now for job_id, date in starts.items()}

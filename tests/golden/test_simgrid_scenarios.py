"""The message server against SimGrid itself: 100 random scenarios that were run on actors over SimGrid 3.32's kernel.

Delays and parallel tasks, walltimes, kills, calls, decisions that take time, several submitters, with and without energy,
dates that are full of ties. The same deterministic scheduler answered there and answers here; what it hears must be the
same, message by message, to the last of six decimals. (Scenarios whose dates differ in that digit, or which hang on a
tie between a walltime and the end of another task, were left out.)
"""

from __future__ import annotations

import gzip
import json
from math import inf
from pathlib import Path
from typing import Any

import pytest

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, HomogeneousTask, Profile
from pilothouse.worlds.simulated.message_server.generations import BATSIM4
from pilothouse.worlds.simulated.message_server.server import Server
from pilothouse.worlds.simulated.message_server.sources import JobSource
from pilothouse.worlds.simulated.message_server.world import MessageServerWorld
from pilothouse.worlds.simulated.physics.platform import Platform

HERE = Path(__file__).parent / "batsim4"
SCENARIOS: list[dict[str, Any]] = json.loads(gzip.decompress((HERE / "simgrid_scenarios.json.gz").read_bytes()))
MOST_CALLS = 200


class Scheduler:
    """First come, first served, on the lowest hosts; now and then it kills, asks to be called, or thinks."""

    def __init__(self, scenario: dict[str, Any], hosts: int) -> None:
        self._scenario = scenario
        self._free = set(range(hosts))
        self._hosts: dict[str, list[int]] = {}
        self._queue: list[Job] = []
        self._turns = self._starts = 0

    def decide(self, batch: e.Batch) -> d.Reply:
        for fact in batch.events:
            if isinstance(fact, e.JobSubmitted):
                self._queue.append(fact.job)
            elif isinstance(fact, e.JobEnded):
                self._free.update(self._hosts[fact.job_id])
        last = float(f"{batch.now:f}")
        orders: list[d.Decision] = []
        if not isinstance(batch.events[0], e.Ended):
            last = self._order(last, orders)
        self._turns += 1
        return d.Reply(last, orders)

    def _order(self, last: float, orders: list[d.Decision]) -> float:
        kills, calls, thinks = (self._scenario[name] for name in ("kills", "calls", "thinks"))
        while self._queue and len(self._free) >= self._queue[0].units:
            job = self._queue.pop(0)
            hosts = self._hosts[job.id] = sorted(self._free)[: job.units]
            self._free.difference_update(hosts)
            orders.append(d.StartJob(last, job.id, IdSet.of(hosts)))
            self._starts += 1
            kill_after = kills[self._starts % len(kills)]
            if kill_after > 0:
                last += kill_after
                orders.append(d.KillJobs(last, (job.id,)))
        call_after = calls[self._turns % len(calls)]
        if self._turns < MOST_CALLS and call_after > 0:
            orders.append(d.CallAt(last, last + call_after))
        return last + float(thinks[self._turns % len(thinks)])


def written(fact: e.Event) -> str:
    """A fact as the recording writes it."""
    date = f"{fact.at:f} "
    if isinstance(fact, e.JobSubmitted):
        return f"{date}SUB {fact.job.id}"
    if isinstance(fact, e.JobEnded):
        if fact.state is JobState.KILLED:
            return f"{date}KIL {fact.job_id}"
        return f"{date}END {fact.job_id} {'ok' if fact.state is JobState.SUCCEEDED else 'wall'}"
    if isinstance(fact, e.JobsKilled):
        return f"{date}KD {fact.job_ids[0]}"
    return date + {e.Began: "BEG", e.CallArrived: "CALL", e.NoMoreJobs: "NOMORE", e.Ended: "FIN"}[type(fact)]


def simulate(scenario: dict[str, Any]) -> list[str]:
    platform = Platform.load(HERE / "inputs/platforms" / scenario["platform"], generation=4, needs_master=True)
    profiles: dict[str, Profile] = {}
    sources = []
    for rows in scenario["workloads"]:
        jobs = []
        for job_id, date, walltime, delay, units, flop, size in rows:
            name = f"w!{delay}-{flop}-{size}"
            spec = HomogeneousTask(float(flop), float(size)) if flop or size else Delay(float(delay))
            profile = profiles.setdefault(name, Profile(name, spec))
            jobs.append(Job(job_id, units, inf if walltime < 0 else float(walltime), float(date), profile))
        sources.append(JobSource(jobs))
    workloads = {f"w{i}": "" for i in range(len(sources))}
    begins = e.Begins(platform.nodes(), workloads=workloads, profiles=profiles, energy=scenario["energy"])
    world = MessageServerWorld(Server(begins, sources, platform, BATSIM4))
    world.begin(d.Wants())
    scheduler = Scheduler(scenario, min(4, platform.compute_count))
    messages = []
    while (batch := world.advance()) is not None:
        messages.append(f"{batch.now:f} | " + " ".join(f"{written(fact)};" for fact in batch.events))
        world.apply(scheduler.decide(batch))
    return messages


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: f"{scenario['seed']}-{scenario['platform']}")
def test_the_scheduler_hears_the_same(scenario: dict[str, Any]) -> None:
    assert simulate(scenario) == scenario["messages"]

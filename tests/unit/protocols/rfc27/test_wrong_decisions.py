"""A Flux instance under deciders that make wrong decisions, or that know numbers of units only: scheduling goes on."""

from __future__ import annotations

import heapq
import random
from typing import Any

import pytest

from pilothouse.core.cluster import Cluster
from pilothouse.core.contract import Traits
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.refused import MOST_REFUSALS
from pilothouse.formats import resource_set
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.policies.base import Policy
from pilothouse.protocols.rfc27.handshake import Phase
from unit.protocols.rfc27.eventlog import read_log
from unit.protocols.rfc27.pair import Pair

WEEK_S = 7 * 86400.0
WRONG_EVERY = 100


class Naive:
    """A scheduler behind a protocol: it knows numbers of units, starts what fits in order of arrival, and keeps its own
    account of free units. Each `wrong_every`th decision is a wrong one."""

    name = "naive"

    def __init__(self, wrong_every: int = 0, *, shapes: bool = False, seed: int = 0) -> None:
        self.traits = Traits(requeues=False, withdrawals=False, estimates=False, feasibility=False, shapes=shapes)
        self.waiting: dict[str, Job] = {}
        self.held: dict[str, IdSet] = {}
        self.wrong = 0
        self.decided = 0
        self._wrong_every = wrong_every
        self._rng = random.Random(seed)

    def hello(self) -> d.Wants:
        return d.Wants()

    def begin(self, begins: e.Begins, cluster: Cluster) -> None:
        self.free = IdSet.span(0, begins.units)
        self.units = begins.units

    def fileno(self) -> int:
        raise AssertionError

    def close(self) -> None: ...

    def decide(self, batch: e.Batch) -> d.Reply:
        for event in batch.events:
            if isinstance(event, e.JobSubmitted):
                self.waiting[event.job.id] = event.job
            elif isinstance(event, e.JobEnded):
                self.free |= self.held.pop(event.job_id, IdSet())
                self.waiting.pop(event.job_id, None)
        made: list[d.Decision] = []
        for job in list(self.waiting.values()):
            if job.least_units > len(self.free):
                break
            units = self.free.lowest(job.least_units)
            self.decided += 1
            if self._wrong_every and self.decided % self._wrong_every == 0:
                self.wrong += 1
                made.append(self._mistake(batch.now, job))
                if not isinstance(made[-1], d.StartJob) or made[-1].job_id != job.id:
                    continue
                units = made[-1].units & self.free
            else:
                made.append(d.StartJob(batch.now, job.id, units))
            del self.waiting[job.id]
            self.held[job.id] = units
            self.free -= units
        return d.Reply(batch.now, made)

    def _mistake(self, now: float, job: Job) -> d.Decision:
        busy = IdSet.span(0, self.units) - self.free
        return self._rng.choice(
            [
                d.StartJob(now, job.id, busy or IdSet.of([self.units + 3])),
                d.StartJob(now, job.id, IdSet.of([self.units + 7])),
                d.StartJob(now, job.id, IdSet()),
                d.StartJob(now, job.id, self.free.lowest(job.least_units - 1)),
                d.StartJob(now, "flux!nobody", IdSet.of([0])),
                d.RejectJob(now, "flux!nobody"),
                d.KillJobs(now, (job.id,)),
                d.CallAt(now, now - 50.0),
                d.SwitchUnits(now, IdSet.of([0]), 1),
                d.RegisterJob(now, Job("flux!mine", 1)),
            ]
        )


class Careless(Policy):
    """A policy of a user: filler, with a wrong decision now and then."""

    def __init__(self, wrong_every: int) -> None:
        self.decided = self.wrong = 0
        self._wrong_every = wrong_every

    def schedule(self, cluster: Cluster) -> None:
        for job in cluster.queue:
            if job.units > cluster.free:
                continue
            self.decided += 1
            if self.decided % self._wrong_every == 0:
                self.wrong += 1
                cluster.start(job, cluster.units - cluster.free_units | IdSet.of([999]))
            else:
                cluster.start(job)


def note_of(pair: Pair, job_id: int) -> str:
    log = read_log(pair.manager.inactive[job_id].log)
    return next((str(entry.context.get("note")) for entry in log if entry.name == "exception"), "")


def held(pair: Pair, job_id: int) -> dict[int, str]:
    found = resource_set.parse(pair.manager.jobs[job_id].resources)
    return {entry.rank: entry.cores.to_text(",") for entry in found.ranks}


def a_week(pair: Pair, jobs: int, seed: int) -> list[int]:
    """Jobs arrive and end for a week of virtual time; the ids of all of them."""
    rng = random.Random(seed)
    submits = sorted(rng.uniform(0.0, WEEK_S) for _ in range(jobs))
    ids: list[int] = []
    ends: list[tuple[float, int]] = []
    started: set[int] = set()
    while submits or ends:
        if submits and (not ends or submits[0] <= ends[0][0]):
            pair.now = submits.pop(0)
            kind: dict[str, Any] = rng.choice([{}, {}, {"nodes": 2}, {"nodes": 1, "exclusive": True}, {"gpus_per_slot": 1}])
            ids.append(pair.submit(rng.randint(1, 4), duration_s=600.0, **kind))
            pair.settle()
        else:
            pair.now, job_id = heapq.heappop(ends)
            pair.finish(job_id)
        for job_id in pair.manager.holding.keys() - started:
            started.add(job_id)
            heapq.heappush(ends, (pair.now + rng.uniform(10.0, 600.0), job_id))
        assert pair.manager.online and pair.engine.phase is Phase.ONLINE
    return ids


@pytest.mark.parametrize("kind", ["counts", "shapes", "policy"])
def test_a_week_with_a_wrong_decision_every_hundredth_time(kind: str) -> None:
    policy = Careless(WRONG_EVERY)
    naive = Naive(WRONG_EVERY, shapes=kind == "shapes", seed=4)
    pair = Pair(nodes=4, cores=8, gpus=2, decider=lambda: PolicyDecider(policy) if kind == "policy" else naive)
    pair.connect()
    ids = a_week(pair, 3000, seed=11)
    wrong = policy.wrong if kind == "policy" else naive.wrong
    failed = [job_id for job_id in ids if note_of(pair, job_id)]
    assert wrong > 20 and not pair.manager.jobs
    if kind == "shapes":
        # It says that it knows shapes, and does not: those jobs are denied, each with the reason.
        assert all("wrong shape" in note_of(pair, job_id) or "refused" in note_of(pair, job_id) for job_id in failed)
        assert len(failed) < len(ids) / 2
    else:
        assert len(failed) <= wrong / MOST_REFUSALS, [note_of(pair, job_id) for job_id in failed][:3]


def test_a_job_that_is_always_started_wrongly_is_denied_and_the_others_run() -> None:
    class Wrong(Naive):
        def _mistake(self, now: float, job: Job) -> d.Decision:
            return d.StartJob(now, job.id, IdSet.of([99]))

    pair = Pair(decider=lambda: Wrong(1))
    pair.connect()
    job_id = pair.submit(2)
    pair.settle()
    assert job_id in pair.manager.inactive
    assert f"refused {MOST_REFUSALS} times" in note_of(pair, job_id) and "unknown unit" in note_of(pair, job_id)
    notes = [event.notes for event in pair.events if type(event).__name__ == "Annotated"]
    assert "it is tried again" in str(notes[0])
    assert pair.manager.online


def test_count_only_deciders_get_units_that_suit_the_job() -> None:
    pair = Pair(nodes=3, cores=4, gpus=2, decider=Naive)
    pair.connect()
    one = pair.submit(1)
    two = pair.submit(2, nodes=2)
    whole = pair.submit(1, nodes=1, exclusive=True)
    pair.settle()
    assert held(pair, one) == {0: "0"} and held(pair, two) == {0: "1-2", 1: "0-1"} and held(pair, whole) == {2: "0-3"}
    plain = pair.submit(3)
    pair.settle()
    assert sum(len(IdSet.parse(cores)) for cores in held(pair, plain).values()) == 3
    impossible = pair.submit(1, nodes=4)
    pair.settle()
    assert "it needs 4 nodes" in note_of(pair, impossible)
    for job_id in (one, two, whole, plain):
        pair.finish(job_id)
    assert not pair.manager.jobs


def test_a_start_that_does_not_fit_yet_is_held_and_kept_a_place() -> None:
    """The decider counts eight free units; the two whole nodes that the job needs are not there yet."""
    pair = Pair(nodes=3, cores=4, decider=Naive)
    pair.connect()
    small = [pair.submit(1) for _ in range(2)]
    pair.settle()
    pair.submit(2, nodes=2)
    pair.settle()
    wide = pair.submit(1, nodes=1, exclusive=True)
    pair.settle()
    assert wide in pair.manager.holding
    pair.finish(small[0])
    another = pair.submit(1, nodes=1, exclusive=True)
    pair.settle()
    assert another in pair.manager.pending, "no node is free altogether"
    later = [pair.submit(1) for _ in range(3)]
    pair.settle()
    for job_id in (small[1], *later):
        if job_id in pair.manager.holding:
            pair.finish(job_id)
    for job_id in list(pair.manager.holding):
        pair.finish(job_id)
    assert another not in pair.manager.pending
    for job_id in list(pair.manager.holding):
        pair.finish(job_id)
    assert not pair.manager.jobs
    pair.cluster.free_nodes()
    assert pair.cluster.free == 12

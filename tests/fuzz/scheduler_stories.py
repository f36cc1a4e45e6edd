"""Stories of the scheduler's end of RFC 27: one scheduler of a Flux instance, across all its connections.

In: a seeded Random. Out: what happened, step by step (see stories.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from random import Random
from typing import Any

from pilothouse.core.cluster import Cluster
from pilothouse.model import decisions as d
from pilothouse.model.events import Batch
from pilothouse.model.idset import IdSet
from pilothouse.protocols.rfc27.job_conversion import our_id
from pilothouse.protocols.rfc27.job_states import State
from pilothouse.protocols.rfc27.pending_reasons import PendingReasons
from unit.protocols.rfc27.pair import spec
from unit.protocols.rfc27.reconnecting import ReconnectingPair

CONSTRAINTS: tuple[dict[str, Any], ...] = (
    {"properties": ["fast"]}, {"properties": ["^fast"]}, {"ranks": ["1-2"]}, {"hostlist": ["n0"]}, {"wish": ["x"]},
)  # fmt: skip
ACTS = {
    "submit": 12, "finish": 8, "cancel": 3, "release": 3, "expire": 2, "prioritize": 1, "queue": 1, "drain": 2, "lose": 3,
    "other": 1, "properties": 1, "end": 1, "feasible": 1, "decide": 4, "quiet": 1, "gone": 0.2,
}  # fmt: skip


class Instance:
    """A Flux instance whose users, jobs and nodes do things by chance."""

    def __init__(self, random: Random) -> None:
        self.random = random
        policy = random.choice(("fcfs", "filler", "easy", "conservative"))
        self.pair = ReconnectingPair(
            policy=policy, nodes=3, gpus=2, strict=random.random() < 0.2, limit=random.choice((0, 0, 1))
        )
        self.up, self.ranks = {0, 1, 2}, {0, 1, 2}

    def act(self) -> str:
        kind: str = self.random.choices(list(ACTS), list(ACTS.values()))[0]
        getattr(self, kind)()
        self.pair.settle()
        return kind

    def some(self, ids: Any, most: int = 1) -> list[int]:
        return sorted(self.random.sample(sorted(ids), min(most, len(ids))))

    def jobs(self, *states: State) -> list[int]:
        return [job_id for job_id, job in self.pair.manager.jobs.items() if job.state in states]

    def running(self) -> list[int]:
        return [job_id for job_id, job in self.pair.manager.holding.items() if job.started and job.state is State.RUN]

    def submit(self) -> None:
        random, more = self.random, dict[str, Any]()
        if random.random() < 0.5:
            more = {"nodes": random.randrange(1, 4), "exclusive": random.random() < 0.2}
        elif random.random() < 0.3:
            more["cores_per_slot"] = 2
        if random.random() < 0.4:
            more["gpus_per_slot"] = random.randrange(1, 3)
        if random.random() < 0.5:
            more["duration_s"] = float(random.randrange(1, 30))
        if random.random() < 0.2:
            more["constraints"] = random.choice(CONSTRAINTS)
        if random.random() < 0.2:
            more["queue"] = "debug"
        self.pair.submit(1 if "nodes" in more else random.choice((1, 2, 4)), urgency=random.choice((16, 16, 1, 31)), **more)

    def finish(self) -> None:
        for job_id in self.some(self.running()):
            self.pair.finish(job_id)

    def cancel(self) -> None:
        for job_id in self.some(self.jobs(State.SCHED, State.RUN)):
            self.pair.manager.cancel(self.pair.now, job_id)

    def release(self) -> None:
        for job_id in self.some(self.running(), 2):
            self.pair.manager.release(self.pair.now, job_id, IdSet.of(self.some(range(3), self.random.choice((1, 2)))))

    def expire(self) -> None:
        for job_id in self.some(self.running()):
            self.pair.manager.expire(self.pair.now, job_id, self.random.choice((0.0, self.pair.now + 7.5)))

    def prioritize(self) -> None:
        self.pair.manager.prioritize(self.pair.now, [(job, self.random.randrange(99)) for job in sorted(self.pair.manager.jobs)])

    def queue(self) -> None:
        manager = self.pair.manager
        (manager.start_queue if manager.stopped else manager.stop_queue)()
        if self.random.random() < 0.7:  # both before the scheduler has said anything
            manager.start_queue()

    def drain(self) -> None:
        ranks = set(self.some(self.ranks, self.random.choice((1, 2))))
        went, came = ranks & self.up, ranks - self.up
        self.pair.broker.change_ranks(up=IdSet.of(sorted(came)), down=IdSet.of(sorted(went)))
        self.up ^= ranks

    def gone(self) -> None:
        self.pair.broker.change_ranks(gone=IdSet.of([2]))
        self.up -= {2}
        self.ranks -= {2}

    def happen(self) -> None:
        """What the scheduler does not see."""
        for _ in range(self.random.randrange(4)):
            self.random.choice((self.submit, self.finish, self.cancel, self.release, self.drain, self.finish))()

    def lose(self) -> None:
        self.pair.settle()
        for _ in range(self.random.choice((0, 0, 1, 2))):  # a grant may be on its way
            self.submit()
            self.pair.broker.flush(self.pair.now)
            self.pair.link.step()
        self.pair.lose()
        self.offline()
        self.pair.reconnect()

    def offline(self) -> None:
        for job_id in self.some(self.running(), self.random.randrange(3)):
            self.pair.manager.finish(self.pair.now, job_id)
        for job_id in self.some(self.running(), self.random.randrange(3)):
            self.pair.manager.release(self.pair.now, job_id, IdSet.of([self.random.randrange(3)]))
        if self.random.random() < 0.3:
            self.drain()
        self.pair.settle_manager()

    def other(self) -> None:
        self.pair.while_another_schedules(self.happen)

    def properties(self) -> None:
        kind = self.random.choice(("property_add", "property_remove"))
        self.pair.change_inventory(**{kind: {self.random.choice(("fast", "slow")): str(self.random.randrange(3))}})

    def end(self) -> None:
        self.pair.change_inventory(expiration=self.random.choice((0.0, self.pair.now + 20.0)))

    def feasible(self) -> None:
        asked = self.random.choice((spec(13), spec(12), spec(1, nodes=3, gpus_per_slot=2), spec(1, nodes=4), b'{"version":9}'))
        self.pair.manager.ask_feasibility(len(self.pair.log), asked)
        caller, out = self.pair.manager._caller, self.pair.manager.out
        out.append(caller.call("sched.resource-status", None, lambda answer: None))

    def quiet(self) -> None:
        self.pair.manager.ask_quiet(len(self.pair.log))

    def decide(self) -> None:
        """Decisions that the policy does not know of, about jobs in any state."""
        pair, now, random = self.pair, self.pair.now, self.random
        for job_id in map(our_id, self.some({*pair.manager.jobs, 9})):
            pair.apply(random.choice((
                d.RejectJob(now, job_id, random.choice(("", "not today"))), d.KillJobs(now, (job_id, "flux!fx")),
                d.Annotate(now, job_id, {"sched": {"reason_pending": "so", "t_estimate": now + 3}}),
                d.SetMetadata(now, job_id, "text"), d.CallAt(now, now + 1.0, "c"), d.CallEvery(now, 2.0, "e", 2),
                d.StopCalls(now, "e"), d.ConfirmWithdrawal(now, job_id), d.SwitchUnits(now, IdSet.of([0]), 1),
                d.StartJob(now, job_id, IdSet.of([11])) if job_id not in pair.cluster.waiting else d.RejectJob(now, job_id),
            )))  # fmt: skip


def scheduler(random: Random) -> Iterator[object]:
    instance = Instance(random)
    pair = instance.pair
    for _ in range(random.randrange(3)):
        instance.submit()
    pair.connect()
    if random.random() < 0.3:  # it begins anew among running jobs
        pair.crash()
        pair.connect()
    yield pair.cluster.begins
    seen = 0
    for _ in range(40):
        kind = instance.act()
        pair.now += random.choice((0.0, 1.0, 2.5))
        said = [(m.type, m.topic, m.payload, m.flags, m.errnum, m.matchtag) for m in pair.log[seen:]]
        seen = len(pair.log)
        yield kind, said, pair.take_told(), pair.manager.take_warnings(), pair.engine.take_warnings()
        yield pair.cluster.free_mask, sorted(pair.cluster.waiting), sorted(pair.cluster.running)
    yield pair.adapter.begins(pair.now), pair.adapter.stopped


# ---- annotations of waiting jobs


class Annotating(ReconnectingPair):
    """A scheduler whose users are told why their jobs wait. `chance` gives its simulations' estimates and times."""

    def __init__(self, chance: Random, *, waits: bool, ahead: bool, **more: Any) -> None:
        super().__init__(**more)
        self.chance = chance
        self.waits = waits
        self.ahead = self._ahead if ahead else None
        self.notes: list[d.Decision] = []
        self.simulations: list[object] = []

    def _ahead(self, cluster: Cluster, limit_s: float) -> tuple[dict[str, float], float]:
        took_s = min(limit_s, self.chance.choice((0.0, 0.002, 0.05, 1.0)))
        found = {name: self.now + self.chance.choice((0.5, 1.5, 20.0, inf)) for name in sorted(cluster.waiting)[::2]}
        self.simulations.append((self.now, limit_s, took_s))
        return found, took_s

    def _decide(self) -> None:
        assert self.decide is not None
        adapter = self.adapter
        if not isinstance(self.decide, PendingReasons):
            inner = self.decide

            def decide(batch: Batch) -> d.Reply:
                adapter.apply(self.now, inner(batch).decisions)
                return d.Reply(batch.now, [])

            self.decide = PendingReasons(decide, self.cluster, ahead=self.ahead)
        while adapter.events:
            batch = Batch(self.now, adapter.take_events(), waits=self.waits)
            noted = self.decide(batch).decisions
            self.notes += noted
            adapter.apply(self.now, noted)
            adapter.events += adapter.calls.due(self.now)

    def later(self, now: float) -> None:
        self.now = now
        self.adapter.events += self.adapter.calls.due(now)
        self._decide()
        self.settle()


def notes(random: Random) -> Iterator[object]:
    policy = random.choice(("fcfs", "easy", "conservative"))
    pair = Annotating(Random(random.random()), waits=random.random() < 0.3, ahead=random.random() < 0.6, policy=policy, gpus=1)
    pair.connect()
    for _ in range(30):
        for _ in range(random.choice((0, 1, 2, 5, 40 if random.random() < 0.1 else 1))):
            more: dict[str, Any] = {"nodes": 1, "gpus_per_slot": 1} if random.random() < 0.2 else {}
            duration = random.choice((0.0, 2.0, 9.5, 30.0))
            pair.submit(1 if more else random.choice((1, 3, 8)), urgency=random.choice((16, 16, 20)), duration_s=duration, **more)
        running = sorted(job_id for job_id, job in pair.manager.holding.items() if job.started)
        for job_id in running[: random.randrange(3)]:
            if random.random() < 0.7:
                pair.manager.finish(pair.now, job_id)
            else:
                pair.manager.expire(pair.now, job_id, random.choice((0.0, pair.now + 12.0)))
        if pair.manager.pending and random.random() < 0.2:
            pair.manager.cancel(pair.now, min(pair.manager.pending))
        pair.settle()
        pair.later(pair.now + random.choice((0.0, 0.25, 1.0, 3.0)))
        yield pair.now, pair.notes, pair.simulations, sorted(pair.cluster.waiting)
        pair.notes, pair.simulations = [], []

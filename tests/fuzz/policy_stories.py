"""Stories of the policies of the catalog on a cluster to which anything may happen.

In: a seeded Random. Out: what happened, and what the policy decided, promised and plans (see stories.py). Each story is told
with the queues, plans and draws in C or with those in Python: the record is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from random import Random

import pytest

from pilothouse.core.cluster import Cluster
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node, Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.policies import backfill_queue, conservative, queueing, reservation_plan
from pilothouse.policies.catalog import make, parse_options

POLICIES = (
    "fcfs", "filler", "easy", "easy", "easy-sjbf", "easy:estimate=2x", "easy:estimate=clairvoyant", "conservative",
    "conservative", "conservative:estimate=2x", "wfp3:backfill=easy", "unicep:backfill=fill", "saf", "f1:backfill=easy",
    "priority:score=n-w/7,backfill=easy", "priority:score=max(w,n),backfill=easy", "random", "random:seed=5", "qcg", "qcg",
)  # fmt: skip
IN_PYTHON = (
    (queueing, "BackfillQueue", backfill_queue.PlainBackfillQueue),
    (conservative, "ReservationPlan", reservation_plan.PlainReservationPlan),
)
BATCHES = 50


@contextmanager
def parts_in_python(wanted: bool) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module, name, plain in IN_PYTHON if wanted else ():
            patch.setattr(module, name, plain)
        yield


class Happenings:
    """Events that make sense on a cluster, by chance."""

    def __init__(self, random: Random, cluster: Cluster, nodes: tuple[Node, ...]) -> None:
        self.random, self.cluster, self.nodes = random, cluster, nodes
        self.total = sum(node.count for node in nodes)
        self.jobs = 0
        self.gone: set[str] = set()
        self.busy = random.choice((5, 8, 12))
        """How often jobs are submitted."""

    def job(self) -> Job:
        random = self.random
        self.jobs += 1
        shape = None
        if random.random() < 0.3:
            shape = Shape(nodes=random.choice((0, 1, 1, 2)), gpus_per_node=random.choice((0, 0, 0, 1)))
        units = (
            random.choice((1, 1, 2, 3, 4)) if shape else random.choice((1, 1, 2, 3, 5, 8, self.total, self.total + 1))
        )
        walltime = random.choice((inf, 1.0, 2.0, 5.0, 5.0, 20.0))
        runtime = random.choice((None, 1.5, 30.0))
        most = units + 3 if random.random() < 0.2 and shape is None else 0
        priority = float(random.choice((0, 0, 0, 0, 2, -1)))
        submitted_at = max(0.0, self.cluster.now - random.choice((0.0, 0.0, 0.5)))
        name = f"w!{self.jobs}"
        return Job(
            name, units, walltime, submitted_at, runtime=runtime, priority=priority, shape=shape, most_units=most
        )

    def event(self, now: float, ended: set[str]) -> e.Event | None:
        random, cluster = self.random, self.cluster
        running, waiting = [name for name in cluster.running if name not in ended], list(cluster.waiting)
        kind = random.choices(
            ("submit", "end", "withdraw", "requeue", "free", "walltime", "prioritize", "absent", "lose", "other"),
            (self.busy, 8, 1, 1, 1, 1, 1, 1, 1, 1),
        )[0]
        if kind == "submit":
            return e.JobSubmitted(now, self.job())
        if kind == "withdraw" and waiting:
            ended.add(name := random.choice(waiting))
            return e.JobWithdrawn(now, name)
        if kind == "prioritize" and waiting:
            some = random.sample(waiting, min(len(waiting), 2))
            return e.PrioritiesChanged(now, {name: float(random.randrange(-2, 4)) for name in some})
        if kind == "absent":
            units = IdSet.of([random.randrange(self.total)])
            return random.choice((e.UnitsAvailable, e.UnitsUnavailable))(now, units)
        if kind == "lose":
            return self.lose(now)
        if kind == "other":
            return e.CallArrived(now, "c", True)
        if running and kind in ("end", "requeue", "free", "walltime"):
            return self.change(kind, now, random.choice(running[:4]), ended)
        return None

    def change(self, kind: str, now: float, name: str, ended: set[str]) -> e.Event | None:
        units = self.cluster.running[name].units
        if kind == "walltime":
            return e.WalltimeChanged(now, name, self.random.choice((inf, 3.0, 30.0)))
        ended.add(name)
        if kind == "end":
            return e.JobEnded(now, name, JobState.SUCCEEDED, 0, units)
        if kind == "requeue":
            return e.JobRequeued(now, name, "again")
        return e.UnitsFreed(now, name, IdSet.of([units.first()])) if len(units) > 1 else None

    def lose(self, now: float) -> e.Event | None:
        node = self.random.choice(self.nodes)
        if node.name in self.gone:
            self.gone.discard(node.name)
            return e.NodesJoined(now, (node,))
        if any(run.units.mask & node.mask for run in self.cluster.running.values()):
            return None
        self.gone.add(node.name)
        return e.NodesLeft(now, (node.name,), IdSet(node.mask), may_return=self.random.random() < 0.7)


def policies(random: Random) -> Iterator[object]:
    name, _, options = random.choice(POLICIES).partition(":")
    nodes = (Node("n0", 0, 4), Node("n1", 4, 2, gpus=1), Node("n2", 6, 4, gpus=2))
    if random.random() < 0.4:
        nodes = nodes[::-1]
    running = (e.Running(Job("w!old", 2, 6.0), IdSet.of([4, 5]), 0.0),) if random.random() < 0.3 else ()
    begins = e.Begins(nodes, running=running, survives_refusals=True)
    cluster = Cluster(begins, name)
    happenings = Happenings(random, cluster, nodes)
    now = 0.0
    with parts_in_python(random.random() < 0.5):
        decider = PolicyDecider(make(name, parse_options(options, name) if options else {}))
        decider.begin(begins, cluster)
        yield name, options, len(running)
        for _ in range(BATCHES):
            now += random.choice((0.0, 0.5, 1.0, 1.0, 3.0))
            ended: set[str] = set()
            found = [happenings.event(now, ended) for _ in range(random.choice((1, 1, 2, 3)))]
            events = [event for event in found if event is not None]
            reply = decider.decide(e.Batch(now, list(events)))
            yield now, events, reply.decisions, cluster.reservations, cluster.free_mask
            if random.random() < 0.3:
                yield sorted(cluster.expected_starts().items())

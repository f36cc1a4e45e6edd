"""Stories of the translation for deciders that lack words, and of the judge: events and decisions of any kind.

In: a seeded Random. Out: what happened, step by step (see stories.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from random import Random

from pilothouse.core.cluster import Cluster
from pilothouse.core.contract import Traits
from pilothouse.core.explain import explain
from pilothouse.core.translate import CheckedTurn
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node, Shape
from pilothouse.model.lifecycle import JobState

# ---- the translation for deciders that lack words, and the judge


class Said:
    """A decider that answers what it was given to say."""

    name = "said"

    def __init__(self, traits: Traits) -> None:
        self.traits = traits
        self.told: list[e.Event] = []
        self.says: list[d.Decision] = []

    def hello(self) -> d.Wants:
        return d.Wants()

    def begin(self, begins: e.Begins, cluster: Cluster) -> None: ...

    def decide(self, batch: e.Batch) -> d.Reply:
        self.told = batch.events
        return d.Reply(batch.now, self.says)

    def fileno(self) -> int:
        raise AssertionError("it speaks in turn")

    def close(self) -> None: ...


TRAITS = ("full_names", "withdrawals", "requeues", "lost_nodes", "absent_units", "feasibility", "estimates", "shapes", "memory")


def turns(random: Random) -> Iterator[object]:
    """Events of any kind, and a scheduler that starts, rejects and kills by chance, rightly and wrongly."""
    nodes = tuple(Node(f"n{i}", 4 * i, 4, gpus=i % 2 * 2, memory_mb=1000 * i, properties={"p": str(i)}) for i in range(4))
    begins = e.Begins(nodes, survives_refusals=True, compute_sharing=random.random() < 0.2, exact_count=random.random() < 0.8)
    decider = Said(Traits(**{name: random.random() < 0.6 for name in TRAITS}))
    cluster = Cluster(begins, "said")
    turn = CheckedTurn(decider, cluster, cluster)
    now, number, away = 0.0, 0, set[int]()

    def shape() -> Shape | None:
        if random.random() < 0.5:
            return None
        return Shape(
            nodes=random.choice((0, 1, 2, 5)), exclusive=random.random() < 0.2, gpus_per_node=random.choice((0, 0, 1, 3)),
            memory_mb_per_node=random.choice((0, 0, 500, 2500)), chunk=random.choice((0, 0, 2)), parts=random.choice((0, 0, 2)),
        )  # fmt: skip

    def happened() -> Iterator[e.Event]:
        nonlocal number
        kind = random.choices(
            ("submit", "end", "withdraw", "requeue", "lose", "absent", "prioritize", "walltime", "ask", "call", "again"),
            (8, 6, 2, 2, 2, 2, 1, 1, 1, 2, 1),
        )[0]  # fmt: skip
        waiting, running = sorted(cluster.waiting), sorted(cluster.running)
        node = random.randrange(4)
        if kind in ("submit", "ask"):
            number += 1
            job = Job(f"w!{number}", random.choice((1, 2, 3, 8, 17)), random.choice((inf, 5.0, 50.0)), now, shape=shape(),
                      priority=random.randrange(3), most_units=random.choice((0, 0, 6)))  # fmt: skip
            if kind == "submit":
                yield e.JobSubmitted(now, job)
            else:
                yield random.choice((e.EstimateAsked(now, job), e.FeasibilityAsked(now, str(number), job)))
        elif kind == "end" and running:
            ended = random.choice(running)
            state = random.choice((JobState.SUCCEEDED, JobState.FAILED, JobState.TIMED_OUT))
            yield e.JobEnded(now, ended, state, int(state is JobState.FAILED), cluster.running[ended].units)
        elif kind == "withdraw" and waiting:
            yield e.JobWithdrawn(now, random.choice(waiting))
        elif kind == "requeue" and running:
            yield e.JobRequeued(now, random.choice(running), "again")
        elif kind == "lose":
            if node in away:
                away.discard(node)
                yield e.NodesJoined(now, (nodes[node],))
            elif not any(run.units.mask & nodes[node].mask for run in cluster.running.values()):
                away.add(node)
                yield e.NodesLeft(now, (nodes[node].name,), IdSet(nodes[node].mask), may_return=random.random() < 0.7)
        elif kind == "absent":
            units = IdSet.of([random.randrange(16)])
            yield random.choice((e.UnitsAvailable, e.UnitsUnavailable))(now, units)
        elif kind == "prioritize" and waiting:
            yield e.PrioritiesChanged(now, {random.choice(waiting): 5.0})
        elif kind == "walltime" and running:
            yield e.WalltimeChanged(now, random.choice(running), 99.0)
        elif kind == "call":
            yield e.CallArrived(now, random.choice(("its own", "", *(c.call_id for c in calls))))

    def decisions() -> Iterator[d.Decision]:
        waiting, running = sorted(cluster.waiting), sorted(cluster.running)
        for job_id in random.sample(waiting, min(len(waiting), random.randrange(3))):
            count = cluster.waiting[job_id].units + random.choice((0, 0, 0, 1))
            free = list(IdSet(cluster.free_mask))
            units = free[:count] if random.random() < 0.8 else random.sample(range(17), min(count, 17))
            kinds = (d.StartJob(now, job_id, IdSet.of(units)), d.RejectJob(now, job_id, "no"))
            yield random.choices(kinds, (5, 1))[0]
        if random.random() < 0.15:
            yield d.KillJobs(now, tuple(random.sample([*waiting, *running, "w!0"], 1)))
        if random.random() < 0.05:
            yield d.StartJob(now, "nobody", IdSet.of([0]))
        if random.random() < 0.1:
            yield d.CallAt(now, now + 3, "its own")

    calls: list[d.CallAt] = []
    for _ in range(50):
        now += random.choice((0.0, 1.0, 20.0))
        cluster.now = now
        decider.says = list(decisions())
        reply = turn(e.Batch(now, [event for _ in range(random.randrange(3)) for event in happened()]))
        calls = [decision for decision in reply.decisions if isinstance(decision, d.CallAt)]
        yield decider.told, reply.decisions, cluster.refused.take_warnings() if cluster.refused is not None else ()
        running = sorted((job_id, run.units) for job_id, run in cluster.running.items())
        yield cluster.free, cluster.free_mask, sorted(cluster.waiting), running
        for job_id in sorted(cluster.waiting)[:1]:
            yield explain(cluster, job_id)

"""Stories of a Flux scheduler that allocates for one of our worlds, and decides by chance.

In: a seeded Random. Out: what happened, step by step (see stories.py). The turn is the real one, with its translation
and its check: a decision that is refused ends the story with an exception.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from math import inf
from random import Random
from typing import Any

import msgspec

from pilothouse.core.cluster import Cluster
from pilothouse.core.translate import CheckedTurn
from pilothouse.formats import jobspec
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Command, Job, Node, Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.protocols.rfc27 import frames, rpc
from pilothouse.protocols.rfc27.decider import Rfc27Decider
from pilothouse.protocols.rfc27.frames import Message
from pilothouse.protocols.rfc27.manager_adapter import ManagerAdapter

PLAIN = tuple(Node(f"h{i}", 4 * i, 4, gpus=i, properties={"fast": "", "disk": "ssd"} if i else {}) for i in range(3))
ODD = (Node("a b", 0, 4, properties={"": "", "sleep_pstates": "1:2:3"}), Node("c", 6, 3, gpus=1), Node("c[1]", 9, 5))
STATES = (JobState.SUCCEEDED, JobState.SUCCEEDED, JobState.FAILED, JobState.KILLED, JobState.TIMED_OUT, JobState.LOST)


def manager(random: Random) -> Iterator[object]:
    stage = Stage(random)
    yield stage.say("resource.acquire")
    for _ in range(60):
        yield stage.turn()
    jobs = stage.adapter.manager
    yield [(job.id, job.state, job.log) for job in (*jobs.jobs.values(), *jobs.inactive.values())]


class Stage:
    """A world, our end of the connection, and a scheduler without any sense. It is a Decider too."""

    name = "rfc27"
    traits = Rfc27Decider.traits

    def __init__(self, random: Random) -> None:
        self.random = random
        nodes = random.choice((PLAIN, PLAIN, ODD))
        old = e.Running(Job("w!old", 2, random.choice((50.0, inf))), IdSet.of([2, 6]), 0.5)
        running = (old,) if random.random() < 0.4 else ()
        away = IdSet.of([9]) if random.random() < 0.3 else IdSet()
        begins = e.Begins(nodes, running=running, started_at=random.choice((0.0, 1000.5)), unavailable=away,
                          time_waits=random.random() < 0.7, compute_sharing=random.random() < 0.1)  # fmt: skip
        self.cluster = Cluster(begins, "rfc27")
        self.adapter = ManagerAdapter(begins, self.cluster, strict=random.random() < 0.4, userid=random.choice((0, 5)))
        self.check = CheckedTurn(self, self.cluster, self.cluster)
        self.now = begins.started_at
        self.number = 0
        self.names: list[str] = []
        self.told: set[str] = set()
        """Jobs that are in this turn's events: there is one event of each at most."""
        self.gone: dict[str, Node] = {}
        self.calls: list[tuple[float, str]] = []
        self.open: list[Message] = []
        self.steps: list[object] = []
        self.connect()

    def hello(self) -> d.Wants:
        return d.Wants()

    def begin(self, begins: e.Begins, cluster: Cluster) -> None: ...

    def fileno(self) -> int:
        raise AssertionError("it speaks in turn")

    def close(self) -> None: ...

    def turn(self) -> object:
        self.now += self.random.choice((0.0, 1.0, 0.25, 61.0 if self.random.random() < 0.1 else 0.0))
        events = [e.CallArrived(self.now, name) for when, name in self.calls if when <= self.now]
        self.calls = [(when, name) for when, name in self.calls if when > self.now]
        self.told.clear()
        for _ in range(self.random.choice((0, 1, 1, 2))):
            events += self.some_events()
        self.steps = []
        made = self.check(e.Batch(self.now, list(events))).decisions
        for decision in made:
            if isinstance(decision, d.CallAt):
                self.calls.append((decision.when, decision.call_id))
        adapter = self.adapter
        status = adapter.answers, adapter.quiet_until, adapter.says_quiet, adapter.more_to_ask, adapter.now
        jobs = [(job.id, job.state, job.spec, job.resources) for job in adapter.manager.jobs.values()]
        return events, self.steps, made, adapter.manager.take_warnings(), self.cluster.free_mask, status, jobs

    def decide(self, batch: e.Batch) -> d.Reply:
        """The scheduler hears the events, and says this and that."""
        random, adapter = self.random, self.adapter
        adapter.handle(batch)
        self.hear()
        for _ in range(random.choice((0, 1, 2, 3))):
            act = random.choices((self.answer_alloc, self.answer, self.ask, self.reconnect), (8, 2, 2, 0.5))[0]
            self.steps.append((act.__name__, act()))
            if random.random() < 0.5:
                adapter.process_answers()
                self.steps.append(adapter.more_to_ask)
            self.hear()
        return d.Reply(batch.now, adapter.take_decisions())

    # ---- the scheduler

    def connect(self) -> None:
        self.adapter.broker.join(1, "scheduler")
        for service in ("sched", "feasibility"):
            self.say("service.add", {"service": service})
        self.greet()

    def greet(self) -> object:
        random = self.random
        modes = ({"mode": "unlimited"}, {"mode": "unlimited"}, {"mode": "single"}, {"mode": "limited", "limit": 2})
        found = self.say("job-manager.sched-hello", flags=random.choice((0, frames.STREAMING)))
        return found, self.say("job-manager.sched-ready", random.choice(modes))

    def reconnect(self) -> object:
        kind = self.random.choice(("hello", "leave", "leave and acquire"))
        if kind == "hello":
            return self.greet()
        self.adapter.broker.leave(self.now, 1)
        self.open.clear()
        self.connect()
        return self.say("resource.acquire", flags=frames.STREAMING) if kind != "leave" else None

    def say(self, topic: str, payload: object = None, *, flags: int = 0) -> list[object]:
        text = None if payload is None else msgspec.json.encode(payload)
        self.adapter.broker.receive(self.now, 1, rpc.request(topic, text, matchtag=3, flags=flags))
        return self.hear()

    def hear(self) -> list[object]:
        """What the scheduler has heard since."""
        if self.random.random() < 0.8:
            self.adapter.broker.dispatch(self.now)
        heard = [message for _, message in self.adapter.broker.take()]
        self.open += [message for message in heard if message.wants_response and message.matchtag]
        found: list[object] = [(m.type, m.topic, m.payload, m.flags, m.errnum, m.matchtag, m.userid) for m in heard]
        self.steps += found
        return found

    def answer_alloc(self) -> object:
        random, jobs = self.random, self.adapter.manager
        freeing = [job.id for job in jobs.holding.values() if job.freeing]
        if freeing and random.random() < 0.5:
            return self.respond("sched.free", {"id": freeing[0]})
        if not jobs.pending:
            return None
        flux_id = random.choice(sorted(jobs.pending))
        kind = random.choices((0, 1, 2, 3, 9), (12, 3, 1, 1, 0.1))[0]
        more: dict[str, Any] = {}
        if kind == 0:
            granted = self.some_resources(jobspec.parse(jobs.jobs[flux_id].spec))
            jobs.jobs[flux_id].committed = msgspec.json.encode(granted)
            more = {"R": granted}
        if kind == 1 or random.random() < 0.2:
            more["annotations"] = {"sched": {"t_estimate": self.now + 5}}
        return self.respond("sched.alloc", {"id": flux_id, "type": kind, "note": "never", **more})

    def some_resources(self, spec: jobspec.Jobspec) -> dict[str, Any]:
        """Free cores, as a rule as many as the job wants; now and then others."""
        random = self.random
        wanted, free, lite = spec.slots * spec.cores_per_slot, self.cluster.free_mask, []
        if random.random() < 0.15:
            free, wanted = self.cluster.all_mask, random.choice((wanted, wanted + 1))
        ranks = [*enumerate(self.cluster.begins.nodes)]
        for rank, node in random.sample(ranks, spec.nodes if 0 < spec.nodes < 4 else 3):
            there = [index for index in range(node.count) if free >> node.first + index & 1]
            mine = there if spec.exclusive else there[: max(wanted, 0)]
            if not spec.nodes:
                wanted -= len(mine)
            if mine:
                children = {"core": ",".join(map(str, mine)), **({"gpu": "0"} if spec.gpus_per_slot else {})}
                lite.append({"rank": str(rank), "children": children})
        lite.sort(key=lambda entry: str(entry["rank"]))
        there = next(rank for rank, node in ranks if node.name in self.cluster.nodes)
        lite = lite or [{"rank": random.choice((str(there), "7")), "children": {"core": "0"}}]
        return {"version": 1, "execution": {"R_lite": lite, "starttime": 0, "expiration": 0}}

    def respond(self, topic: str, payload: object) -> object:
        text = msgspec.json.encode(payload) + b"\0"
        self.adapter.broker.receive(self.now, 1, Message(frames.RESPONSE, topic, text, 0, 0, 0, (b"job-manager",)))
        return topic, payload

    def answer(self) -> object:
        random = self.random
        if not self.open:
            return None
        request = self.open.pop(0)
        if random.random() < 0.4:
            found = rpc.respond_error(request, random.choice((errno.ENOSYS, errno.EOVERFLOW)), random.choice(("", "too large")))
        elif request.topic == "sched.quiesce":
            found = rpc.respond(request, msgspec.json.encode({"call_at": self.now + random.choice((-1.0, 0.0, 2.0))}))
        else:
            found = rpc.respond(request)
        said = found.topic, found.payload, found.errnum
        self.adapter.broker.receive(self.now, 1, found)
        return said

    def ask(self) -> object:
        random, jobs = self.random, self.adapter.manager
        kind = random.choice(("raise", "raise", "quiet", "quiet", "status", "stop"))
        if kind == "raise":
            some_id, severity = random.choice([*jobs.jobs, 7]), random.choice((0, 0, 1))
            return self.say("job-manager.raise", {"id": some_id, "type": "x", "severity": severity, "note": "so"})
        if kind == "quiet":
            self.number += 1
            return jobs.ask_quiet(self.number, self.now)
        if kind == "stop":
            return (jobs.start_queue if jobs.stopped else jobs.stop_queue)()
        return self.say("job-manager.resource-status")

    # ---- the world

    def some_events(self) -> list[e.Event]:
        random, cluster, now = self.random, self.cluster, self.now
        kinds = {"submit": 8, "end": 6, "requeue": 1, "withdraw": 2, "prioritize": 1.5, "walltime": 1.5, "free": 1.5, "away": 2,
                 "leave": 0.7, "join": 1, "ask": 1, "switch": 1}  # fmt: skip
        kind = random.choices(list(kinds), list(kinds.values()))[0]
        waiting, started = sorted(cluster.waiting.keys() - self.told), sorted(cluster.running.keys() - self.told)
        job_id = random.choice([*started, "w!none"] if kind in ("end", "requeue", "walltime", "free") else [*waiting, "w!none"])
        self.told.add(job_id)
        run = cluster.running.get(job_id)
        units = IdSet.of(random.sample([*IdSet(cluster.all_mask)], 2))
        if kind == "submit":
            return [e.JobSubmitted(now, self.some_job())]
        if kind == "ask":
            return [e.FeasibilityAsked(now, f"q{random.randrange(5)}", self.some_job())]
        if kind == "end" and run is not None:
            code = random.choice((0, 1, 3, -9))
            return [e.JobEnded(now, job_id, random.choice(STATES), code, run.units, random.choice(("", "so")))]
        if kind == "requeue" and run is not None:
            return [e.JobRequeued(now, job_id, "again")]
        if kind == "withdraw":
            return [e.JobWithdrawn(now, job_id)]
        if kind == "prioritize":
            return [e.PrioritiesChanged(now, dict.fromkeys([job_id, *waiting[:1]], random.choice((7.0, -3.0, 0.0))))]
        if kind == "walltime":
            return [e.WalltimeChanged(now, job_id, random.choice((99.0, inf)))]
        if kind == "free" and run is not None and len(run.units) > 1:
            first = [unit for unit in run.units if any(node.mask >> unit & 1 for node in cluster.begins.nodes[:1])]
            some = random.sample([*run.units], random.randrange(1, len(run.units)))
            return [e.UnitsFreed(now, job_id, IdSet.of(first if 0 < len(first) < len(run.units) else some))]
        if kind == "away":
            return [random.choice((e.UnitsUnavailable(now, units), e.UnitsAvailable(now, units)))]
        if kind == "switch":
            node = random.choice(self.cluster.begins.nodes)
            return [e.UnitsSwitched(now, IdSet.span(node.first, node.count), random.choice((0, 1)))]
        return self.change_nodes(kind)

    def change_nodes(self, kind: str) -> list[e.Event]:
        random, cluster, now = self.random, self.cluster, self.now
        if kind == "leave" and len(cluster.nodes) > 2 and not self.calls and not self.told & cluster.running.keys():
            node = random.choice([*cluster.nodes.values()])
            self.gone[node.name] = node
            lost = [run for run in cluster.running.values() if run.units.mask & node.mask]
            ends: list[e.Event] = [e.JobEnded(now, run.job.id, JobState.LOST, -1, run.units, "lost") for run in lost]
            self.told |= {run.job.id for run in lost}
            return [*ends, e.NodesLeft(now, (node.name,), IdSet.span(node.first, node.count), random.random() < 0.5)]
        if kind == "join" and self.gone:
            return [e.NodesJoined(now, (self.gone.popitem()[1],))]
        if kind == "join" and "new" not in cluster.nodes:
            return [e.NodesJoined(now, (Node("new", 20, 2),))]
        return []

    def some_job(self) -> Job:
        random = self.random
        shapes = (Shape(nodes=1), Shape(nodes=2, gpus_per_node=1), Shape(nodes=1, exclusive=True), Shape(chunk=2))
        shape = random.choice((None, None, None, *shapes))
        command = random.choice((None, None, Command(argv=("sleep", "1"))))
        busy = self.cluster.waiting.keys() | self.cluster.running.keys() | self.told
        old = [name for name in self.names if name not in busy]
        self.number += 1
        name = random.choice(old) if old and random.random() < 0.1 else f"w!{self.number}"
        self.names.append(name)
        self.told.add(name)
        return Job(name, random.choice((1, 2, 2, 4)), random.choice((inf, 60.0)), self.now, shape=shape, command=command,
                   priority=random.choice((0.0, 3.0, -2.0)))  # fmt: skip

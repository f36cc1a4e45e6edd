"""Random stories of state machines: seeded scripts, and everything that the machine says on the way.

In: the name of a story and a seed. Out: what happened, step by step, as text. `answers.py` holds it against a record. Each
machine is a real one on virtual time, with a policy or a random scheduler at its other end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from math import inf
from random import Random
from typing import Any

import msgspec
from tests.simtest.storm import Storm

from fuzz.targets import or_problem
from pilothouse.core.cluster import Cluster
from pilothouse.core.contract import WORLD_JUDGES, Traits, World
from pilothouse.core.explain import explain
from pilothouse.core.session import Session
from pilothouse.core.translate import CheckedTurn
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import PeerError, PilothouseError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node, Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, HomogeneousTask, ParallelTask, Profile, ReceiveMessage, Sequence, Spec
from pilothouse.protocols.batprotocol.codec import Format
from pilothouse.protocols.batprotocol.decider import EdcDecider
from pilothouse.protocols.batprotocol.scheduler import SchedulerSide
from pilothouse.protocols.batsim import codec
from pilothouse.protocols.batsim.decision_reader import DecisionReader
from pilothouse.protocols.batsim.decision_writer import DecisionWriter
from pilothouse.protocols.batsim.event_reader import EventReader, RequestedCalls, read_begins
from pilothouse.protocols.batsim.event_writer import EventWriter
from pilothouse.protocols.batsim.messages import SimulationBegins
from pilothouse.protocols.batsim.settings import Dialect, Settings
from pilothouse.protocols.rfc27.job_states import State
from pilothouse.worlds.live.wire.messages import DriverFrame, EngineFrame
from pilothouse.worlds.simulated.message_server.generations import BATSIM2, BATSIM4, BATSIM5
from pilothouse.worlds.simulated.message_server.server import Server
from pilothouse.worlds.simulated.message_server.sources import EventSource, JobSource
from pilothouse.worlds.simulated.message_server.world import MessageServerWorld
from pilothouse.worlds.simulated.world import SimulatedWorld
from unit.dropins.qcg.virtual import VirtualPilot
from unit.protocols.rfc27.pair import Pair
from unit.worlds.simulated.lab import WITH_MASTER, platform_of

Story = Callable[[Random], Iterator[object]]


# ---- Flux: a manager and a scheduler, both ours


def flux(random: Random) -> Iterator[object]:
    strict = random.random() < 0.4
    policy = random.choice(("fcfs", "filler", "easy", "conservative"))
    pair = Pair(strict=strict, limit=random.choice((0, 0, 1, 0 if strict else 3)), policy=policy, gpus=1, nodes=3)
    pair.connect()
    up = {0, 1, 2}
    seen = 0

    def some(ids: Any) -> list[int]:
        found = sorted(ids)
        return [random.choice(found)] if found else []

    def submit() -> None:
        more: dict[str, Any] = {"nodes": 2, "exclusive": random.random() < 0.4} if random.random() < 0.3 else {}
        if random.random() < 0.3:
            more["gpus_per_slot"] = 1
        if random.random() < 0.6:
            more["duration_s"] = float(random.randrange(1, 9))
        pair.submit(random.choice((1, 1, 2, 3, 4, 8, 13)), urgency=random.choice((16, 16, 0, 1, 31)), **more)

    def drain() -> None:
        rank = random.randrange(3)
        (pair.broker.change_ranks(down=IdSet.of([rank])) if rank in up else pair.broker.change_ranks(up=IdSet.of([rank])))
        up.symmetric_difference_update({rank})

    def act() -> None:
        manager, running = pair.manager, [i for i, job in pair.manager.holding.items() if job.started]
        kind = random.choices(
            ("submit", "finish", "cancel", "urgency", "prioritize", "queue", "release", "drain", "crash", "annotate", "ask"),
            (10, 8, 3, 2, 1, 1, 1, 2, 1, 1, 2),
        )[0]  # fmt: skip
        if kind == "submit":
            submit()
        elif kind == "drain":
            drain()
        elif kind == "crash":
            pair.crash()
            pair.connect()
        elif kind == "queue":
            (manager.start_queue if manager.stopped else manager.stop_queue)()
        elif kind == "prioritize":
            manager.prioritize(pair.now, [*((job_id, random.randrange(99)) for job_id in sorted(manager.jobs)), (999, 1)])
        for job_id in some(running) if kind in ("finish", "release") else some(manager.jobs):
            if kind == "finish":
                manager.finish(pair.now, job_id)
            elif kind == "release":
                manager.release(pair.now, job_id, IdSet.of([random.randrange(3)]))
            elif kind == "cancel" and manager.jobs[job_id].state is not State.CLEANUP:
                manager.cancel(pair.now, job_id)
            elif kind == "urgency" and manager.jobs[job_id].state is State.SCHED:
                manager.set_urgency(pair.now, job_id, random.choice((0, 1, 16, 20, 31)))
            elif kind == "annotate" and job_id in pair.engine.pending:
                pair.engine.annotate(job_id, {"sched": {"x": random.choice((None, 1, {"y": 2}))}, "user": "u"})

    for _ in range(40):
        act()
        pair.settle()
        pair.now += random.choice((0.0, 1.0, 2.5))
        said = [(m.type, m.topic, m.payload, m.flags, m.errnum, m.matchtag) for m in pair.log[seen:]]
        seen = len(pair.log)
        yield said, pair.manager.take_warnings(), pair.engine.take_warnings()
    yield [(job.id, job.state, job.log, job.annotations) for _, job in sorted(pair.manager.inactive.items())]
    yield pair.events


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


# ---- a run: driver, engines and faults


class Overheard(Storm):
    """A storm that keeps what driver and engines say to each other."""

    def __init__(self, seed: int) -> None:
        self.said: list[object] = []
        super().__init__(seed)

    def to_driver(self, machine: Any, frame: EngineFrame) -> None:
        self.said.append(frame)
        super().to_driver(machine, frame)

    def to_engine(self, frame: DriverFrame) -> None:
        self.said.append(frame)
        super().to_engine(frame)


def storm(random: Random) -> Iterator[object]:
    played = Overheard(random.randrange(10_000))
    played.run()
    yield from played.said
    yield from played.disk.records


# ---- a QCG manager on a virtual allocation


def qcg(random: Random) -> Iterator[object]:
    names = ("a", "b", "c", "d#1", "e")

    def job(name: str) -> dict[str, object]:
        made: dict[str, Any] = {"name": name, "execution": {"exec": "/bin/true"}}
        size: object = random.choice((1, 2, 3, 9, {"min": 1, "max": 3}, {"min": 2, "scheduler": "maximum-iters"}))
        made["resources"] = {"numCores": size}
        if random.random() < 0.3:
            made["resources"] = {"numNodes": random.choice((1, {"min": 1, "max": 2})), "numCores": random.choice((1, 2))}
        if random.random() < 0.4:
            made["iteration"] = {"start": random.randrange(2), "stop": random.randrange(2, 5)}
        others = ["nobody", *names, *(f"{other}:{index}" for other in names for index in (0, 1))]
        if random.random() < 0.5:
            made["dependencies"] = {"after": random.sample(others, random.randrange(3))}
        if random.random() < 0.3:
            made["resources"]["wt"] = "1m"
        return made

    failing = set(random.sample(names, random.randrange(3)))
    pilot = VirtualPilot(4, 2, gpus=1, outcome=lambda name: (0.4 + len(name) % 3, int(name.partition(":")[0] in failing), "m"))
    for _ in range(25):
        some = random.sample(names, random.randrange(1, 4))
        request = random.choice((
            {"request": "submit", "jobs": [job(name) for name in some]},
            {"request": "submit", "jobs": [job(some[0])]},
            {"request": random.choice(("cancelJob", "removeJob")), "jobNames": [*some, f"{some[0]}:0"]},
            {"request": random.choice(("jobInfo", "jobStatus")), "jobNames": [*some, f"{some[0]}:1"]},
            {"request": random.choice(("status", "listJobs", "resourcesInfo", "resourceInfo"))},
            {"request": "jobInfo", "jobNames": some, "params": {"withChilds": True}},
            {"request": "jobInfo", "jobName": some[0]},
            {"request": "cancelJob", "jobName": some[0]},
        ))  # fmt: skip
        yield request, pilot.ask(request)
        pilot.run(until=pilot.now + random.choice((0.0, 0.5, 3.0)))
        yield pilot.starts, pilot.published, len(pilot.finished)
        pilot.starts, pilot.published = [], []
    pilot.ask({"request": "control", "command": "finishAfterAllTasksDone"})
    pilot.run()
    yield pilot.ask({"request": "listJobs"}), pilot.rows, msgspec.json.encode(pilot.states())


# ---- simulated worlds: ours, and the servers of Batsim 2, 4 and 5

SPECS: dict[str, Spec] = {
    "w!d": Delay(10.0), "w!short": Delay(0.5), "w!c": HomogeneousTask(1000.0, 0.0), "w!n": HomogeneousTask(500.0, 200.0),
    "w!p": ParallelTask((300.0, 100.0), (0.0, 50.0, 60.0, 0.0)), "w!s": Sequence(("w!short", "w!c"), 2),
    "w!r": ReceiveMessage(pattern="go", on_match="w!d", on_other="w!short", poll_seconds=1.0),
}  # fmt: skip
WITHOUT = (d.CallEvery, d.StopCalls, d.CreateProbe, d.TriggerProbe, d.ResetProbe, d.StopProbe)
"""What our own simulated world refuses."""
PROFILES = {name: Profile(name, spec, return_code) for return_code, (name, spec) in enumerate(SPECS.items())}


def world_of(random: Random, records: list[Any], without: str = "") -> tuple[World, Callable[[d.Decision], bool]]:
    """A world, and whether it knows a decision."""
    chance = random.random
    platform = platform_of(WITH_MASTER, master_host="master", needs_master=True)
    begins = e.Begins(
        platform.nodes(), energy=chance() < 0.7, compute_sharing=chance() < 0.3, dynamic_registration=chance() < 0.6,
        acknowledge_registration=chance() < 0.6, profile_reuse=chance() < 0.5, workloads={"w": ""},
        forward_profiles=chance() < 0.3, profiles={name: profile for name, profile in PROFILES.items() if name != without},
    )  # fmt: skip
    jobs = []
    for number in range(1, random.randrange(4, 12)):
        profile = random.choice([profile for name, profile in PROFILES.items() if name != without])
        units = 2 if profile.name == "w!p" else random.choice((1, 1, 2))
        after = (f"w!{random.randrange(1, number)}",) if number > 2 and chance() < 0.2 else ()
        at = random.choice((0.0, 0.0, 3.0, 3.5, 20.0))
        walltime = random.choice((inf, 7.0, 100.0)) if profile.name != "w!r" else 30.0  # it may never hear a message
        jobs.append(Job(f"w!{number}", units, walltime, at, profile, after=after))
    happened: list[e.Event] = []
    if chance() < 0.3:
        away = IdSet.of([1])
        happened = [e.UnitsUnavailable(2.0, away), e.ExternalEvent(4.0, "x!0", "generic", "d"), e.UnitsAvailable(9.0, away)]
    rules = random.choice((None, BATSIM4, BATSIM2, BATSIM5))
    if rules is None:
        world = SimulatedWorld(begins, jobs, platform=platform, record=records.append, external_events=happened)
        return world, lambda decision: type(decision) not in WITHOUT
    sources: list[Any] = [JobSource(jobs), *([EventSource(happened)] if happened else [])]
    server = Server(begins, sources, platform, rules, record=records.append, exact_energy=chance() < 0.5)
    unknown = rules.handlers[d.ConfirmWithdrawal]
    return MessageServerWorld(server), lambda decision: rules.handlers[type(decision)] is not unknown


class Gambler(Said):
    """Decides by chance, mostly rightly."""

    def __init__(self, random: Random, knows: Callable[[d.Decision], bool]) -> None:
        super().__init__(Traits())
        self._knows = knows
        self._probes: set[str] = set()
        self.heard: list[object] = []
        self.turns: list[tuple[e.Batch, d.Reply]] = []
        self._random = random
        self._waiting: list[Job] = []
        self._running: dict[str, set[int]] = {}
        self._registers = 0
        """Turns until it ends the registration of jobs."""
        self._turns = 0

    def begin(self, begins: e.Begins, cluster: Cluster) -> None:
        self.heard.append(begins)
        self._registers = self._random.randrange(5) + 1 if begins.dynamic_registration else 0

    def decide(self, batch: e.Batch) -> d.Reply:
        self._turns += 1
        if self._turns > 60:
            raise PeerError(self.name, "enough")
        random, now = self._random, batch.now
        self.heard.append((now, list(batch.events)))
        for event in batch.events:
            if isinstance(event, e.JobSubmitted):
                self._waiting.append(event.job)
            elif isinstance(event, e.JobEnded) and event.job_id in self._running:
                del self._running[event.job_id]
        says: list[d.Decision] = []
        while self._waiting and random.random() < 0.8:
            free = {0, 1}.difference(*self._running.values())
            job = self._waiting[0]
            if random.random() < 0.1:
                says.append(d.RejectJob(now, job.id, "no"))
            elif len(free) >= job.units or random.random() < 0.03:
                units = set(sorted(free)[: job.units] if random.random() < 0.97 else range(job.units))
                says.append(d.StartJob(now, job.id, IdSet.of(sorted(units))))
                self._running[job.id] = units
            else:
                break
            self._waiting.pop(0)
        if random.random() < 0.5:
            odd = self._odd(now)
            if self._makes_sense(odd) or random.random() < 0.03:
                says.append(odd)
        if self._turns == self._registers:
            says.append(d.FinishRegistration(now))
        self.turns.append((batch, d.Reply(now, list(says))))
        return d.Reply(now, says)

    def _makes_sense(self, decision: d.Decision) -> bool:
        begins = self.heard[0]
        assert isinstance(begins, e.Begins)
        if isinstance(decision, d.CreateProbe) and decision.probe_id not in self._probes:
            self._probes.add(decision.probe_id)
        elif isinstance(decision, d.CreateProbe | d.TriggerProbe | d.ResetProbe | d.StopProbe):
            return isinstance(decision, d.TriggerProbe | d.ResetProbe) and decision.probe_id in self._probes
        if isinstance(decision, d.RegisterJob | d.RegisterProfile | d.FinishRegistration) and self._turns >= self._registers:
            return False
        if isinstance(decision, d.MeasureEnergy) and not begins.energy:
            return False
        if isinstance(decision, d.SetPowerState | d.SwitchUnits) and any(decision.units.mask >> u & 1 for u in self._busy()):
            return False
        if isinstance(decision, d.SetMetadata | d.SendToJob | d.SetJobState | d.KillJobs) and not self._running:
            return False
        return self._knows(decision)

    def _busy(self) -> set[int]:
        return set[int]().union(*self._running.values())

    def _odd(self, now: float) -> d.Decision:
        random, made, later = self._random, self._turns, now + self._random.choice((0.5, 2.0, 7.0))
        units = IdSet.of(sorted(random.sample(range(2), random.choice((1, 1, 2)))))
        any_job = random.choice([*self._running] or ["w!1"])
        job = Job(f"w!new{made}", 1, random.choice((inf, 4.0)), now, random.choice(list(PROFILES.values())[:4]))
        probe, every = f"probe{random.randrange(2)}", f"e{random.randrange(3)}"
        return random.choice((
            d.KillJobs(now, tuple(random.sample(sorted(self._running), min(len(self._running), 2))) or ("w!1",)),
            d.CallAt(now, later, f"c{made}"), d.CallAt(now, later), d.CallEvery(now, 3.0, every, random.randrange(4)),
            d.StopCalls(now, every), d.RegisterProfile(now, Profile(f"w!q{made}", Delay(2.0))), d.RegisterJob(now, job),
            d.FinishRegistration(now), d.ResumeRegistration(now), d.SetPowerState(now, units, random.randrange(3)),
            d.SwitchUnits(now, units, random.randrange(3)), d.SetMetadata(now, any_job, "text"), d.MeasureEnergy(now),
            d.SendToJob(now, any_job, random.choice(("go", "stay"))), d.SetJobState(now, any_job, JobState.KILLED, "so"),
            d.CreateProbe(now, probe, random.choice(list(d.Metric)), units, period=random.choice((None, 2.0)), count=3,
                          accumulate=random.choice((None, *d.Cumulative)), aggregation=random.choice(list(d.Aggregation))),
            d.TriggerProbe(now, probe), d.ResetProbe(now, probe), d.StopProbe(now, probe),
        ))  # fmt: skip


def worlds(random: Random) -> Iterator[object]:
    records: list[Any] = []
    world, knows = world_of(random, records)
    gambler = Gambler(random, knows)
    judge = WORLD_JUDGES if isinstance(world, MessageServerWorld) else None
    try:
        end: object = Session(world, gambler, judge=judge).run()
    except PilothouseError as problem:
        end = problem
    yield from gambler.heard
    yield from records
    yield end


# ---- the same in the words of Batsim 5 and 4


WANTS = ("dynamic_registration", "acknowledge_registration", "profile_reuse", "forward_profiles", "forward_profiles_on_kill")


class Spoken:
    """A gambler as a decision component of Batsim 5, with both ends of the wire ours."""

    name = "spoken"

    def __init__(self, gambler: Gambler, random: Random) -> None:
        self._gambler = gambler
        self._side = SchedulerSide(self.name, random.choice(list(Format)))
        self._wants = d.Wants(**{name: random.choice((None, False, True)) for name in WANTS})
        self.said: list[object] = []

    def hello(self, init: bytes) -> tuple[int, bytes]:
        return int(self._side.form), self._side.hello(self._wants)

    def exchange(self, message: bytes) -> bytes:
        batch = self._side.batch(message)
        if not self._gambler.heard:
            assert self._side.begins is not None
            self._gambler.begin(self._side.begins, None)  # type: ignore[arg-type]
        answer = self._side.reply(self._gambler.decide(batch))
        self.said += [message, answer]
        return answer

    def close(self) -> None: ...


def batsim5(random: Random) -> Iterator[object]:
    records: list[Any] = []
    world, knows = world_of(random, records, without="w!r")  # batprotocol has no word for it
    mute = (d.ResumeRegistration, d.SetJobState, d.SendToJob)
    spoken = Spoken(Gambler(random, lambda decision: knows(decision) and not isinstance(decision, mute)), random)
    judge = WORLD_JUDGES if isinstance(world, MessageServerWorld) else None
    try:
        end: object = Session(world, EdcDecider(spoken), judge=judge).run()
    except PilothouseError as problem:
        end = problem
    yield from zip(spoken.said, spoken._gambler.heard, strict=False)
    yield from (*records, end)


def batsim4(random: Random) -> Iterator[object]:
    """Batches and replies of a simulated world, written and read again in each dialect."""
    world, knows = world_of(random, [])
    gambler = Gambler(random, knows)
    judge = WORLD_JUDGES if isinstance(world, MessageServerWorld) else None
    with suppress(PilothouseError):
        Session(world, gambler, judge=judge).run()
    begins = gambler.heard[0]
    assert isinstance(begins, e.Begins)
    for dialect in Dialect:
        calls = RequestedCalls()
        written, read = EventWriter(Settings(), dialect), EventReader("peer", begins, None, calls)
        said, heard = DecisionWriter(dialect, calls), DecisionReader("peer", dict(PROFILES), None, dialect)
        for batch, reply in gambler.turns:
            yield or_problem(partial(_told, written, read, batch), *MISUSE)
            yield or_problem(partial(_said, said, heard, reply), *MISUSE)
        yield written.withheld(False), calls.due, calls.again


MISUSE = (KeyError, TypeError, AssertionError)
"""Of decisions that this dialect has no word for."""


def _told(writer: EventWriter, reader: EventReader, batch: e.Batch) -> object:
    text = codec.encode(batch.now, writer.events(batch))
    message = codec.decode_from_batsim(text)
    begun = [read_begins(event.data, "peer") for event in message.events if isinstance(event, SimulationBegins)]
    message.events = [event for event in message.events if not isinstance(event, SimulationBegins)]
    return text, begun, reader.batch(message)


def _said(writer: DecisionWriter, reader: DecisionReader, reply: d.Reply) -> object:
    text = codec.encode_plainly(reply.now, writer.events(reply))
    return text, reader.reply(codec.decode_from_scheduler(text))


STORIES: dict[str, tuple[Story, int]] = {
    "flux": (flux, 60),
    "turns": (turns, 150),
    "storm": (storm, 60),
    "qcg": (qcg, 100),
    "worlds": (worlds, 400),
    "batsim5": (batsim5, 150),
    "batsim4": (batsim4, 60),
}
"""The story, and how many seeds are told."""

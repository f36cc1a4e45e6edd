"""Stories of simulated worlds under a scheduler that decides by chance: ours, and in the words of Batsim 4 and 5.

In: a seeded Random. Out: what happened, step by step (see stories.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from math import inf
from random import Random
from typing import Any

import msgspec

from fuzz.targets import or_problem
from fuzz.turn_stories import Said
from pilothouse.core.cluster import Cluster
from pilothouse.core.contract import WORLD_JUDGES, Traits, World
from pilothouse.core.session import Session
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import PeerError, PilothouseError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
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
from pilothouse.worlds.simulated.message_server.generations import BATSIM2, BATSIM4, BATSIM5
from pilothouse.worlds.simulated.message_server.server import Server
from pilothouse.worlds.simulated.message_server.sources import EventSource, JobSource
from pilothouse.worlds.simulated.message_server.world import MessageServerWorld
from pilothouse.worlds.simulated.world import SimulatedWorld
from unit.worlds.simulated.lab import WITH_MASTER, platform_of

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

    units = range(2)

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
            free = self._free()
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

    def _free(self) -> set[int]:
        return set(self.units) - self._busy()

    def _busy(self) -> set[int]:
        return set[int]().union(*self._running.values())

    def _odd(self, now: float) -> d.Decision:
        random, made, later = self._random, self._turns, now + self._random.choice((0.5, 2.0, 7.0))
        units = IdSet.of(sorted(random.sample(self.units, random.choice((1, 1, 2)))))
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
            for start in [decision for decision in reply.decisions if isinstance(decision, d.StartJob)][:1]:
                for other in _variants(start):
                    yield or_problem(partial(_said, said, heard, d.Reply(reply.now, [other])), *MISUSE)
        yield written.withheld(False), calls.due, calls.again


def _variants(start: d.StartJob) -> list[d.Decision]:
    """The start with what schedulers may say more of it."""
    io = Profile("w!io", HomogeneousTask(1.0, 2.0), source=msgspec.Raw(b'{"type":"parallel_homogeneous","cpu":1,"com":2}'))
    changed = partial(msgspec.structs.replace, start)
    return [
        changed(placement=d.Placement(mapping=(0,) * len(start.units))), changed(storage={"pfs": 3}), changed(io_job=io),
        changed(io_job=io, overrides={"w!io": d.PartPlacement(IdSet.of([1]), d.Placement(mapping=(0,)))}),
    ]  # fmt: skip


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

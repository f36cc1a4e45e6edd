"""More stories of simulated worlds: behind our own message server, in scheduling passes, with workflows, storages, jobs that
speak, and a tracer that is told of every change of a machine.

In: a seeded Random. Out: what happened, step by step (see stories.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from random import Random
from typing import Any

import msgspec

from fuzz.world_stories import Gambler
from pilothouse.core.contract import WORLD_JUDGES, World
from pilothouse.core.session import Session
from pilothouse.formats.dax import Task, Workflow
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import PilothouseError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import (
    Delay,
    ForkJoin,
    HomogeneousTask,
    Merge,
    ParallelTask,
    Profile,
    ReceiveMessage,
    SendMessage,
    Sequence,
    Spec,
    Spread,
    StagingTask,
    StorageTask,
)
from pilothouse.worlds.simulated.message_server.generations import BATSIM4, BATSIM5, OURS
from pilothouse.worlds.simulated.message_server.rules import Rules
from pilothouse.worlds.simulated.message_server.server import Server
from pilothouse.worlds.simulated.message_server.sources import EventSource, JobSource
from pilothouse.worlds.simulated.message_server.workflow import WorkflowSource
from pilothouse.worlds.simulated.message_server.world import MessageServerWorld
from pilothouse.worlds.simulated.physics.machines import Machines, Tracer
from pilothouse.worlds.simulated.scheduling_passes import SimulatedPasses
from pilothouse.worlds.simulated.world import SimulatedWorld
from unit.worlds.simulated.lab import platform_of

HOSTS = {"master": "1f", "a": "100f,50f,1f,0.5f,0.1f", "b": "100f", "c": "80f,40f", "disk": "1f", "tape": "1f"}
POWER = {"a": "10:20:60, 5:10:30, 1:1:1, 7:7:7, 9:9:9", "c": "10:60, 5:30"}
MORE = {"a": '<prop id="sleep_pstates" value="2:3:4"/>', "disk": '<prop id="role" value="storage"/>',
        "tape": '<prop id="role" value="storage"/>'}  # fmt: skip
PLATFORM = "".join(
    f'<host id="{name}" speed="{speed}"><prop id="wattage_per_state" value="{POWER.get(name, "10:60")}"/>'
    f"{MORE.get(name, '')}</host>"
    for name, speed in HOSTS.items()
) + '<link id="fast" bandwidth="1MBps" latency="1us"/><link id="slow" bandwidth="100Bps" latency="1ms"/>' + "".join(
    f'<route src="{one}" dst="{other}"><link_ctn id="{"fast" if one == "master" else "slow"}"/></route>'
    for index, one in enumerate(HOSTS) for other in [*HOSTS][index + (one != "master"):]
)  # fmt: skip
SPECS: dict[str, Spec] = {
    "w!d": Delay(10.0), "w!short": Delay(0.5), "w!c": HomogeneousTask(1000.0, 0.0), "w!n": HomogeneousTask(500.0, 200.0),
    "w!u": HomogeneousTask(500.0, 90.0, Spread.UNIFORM), "w!p": ParallelTask((300.0, 100.0), (0.0, 50.0, 60.0, 0.0)),
    "w!s": Sequence(("w!short", "w!c"), 2), "w!f": ForkJoin(("w!short", "w!c")), "w!m": Merge(("w!c", "w!n")),
    "w!io": StorageTask(300.0, 100.0, "disk"), "w!stage": StagingTask(200.0, "disk", "tape"),
    "w!say": SendMessage(msgspec.Raw(b'"hello"'), 1.0), "w!odd": Delay(3.0),
    "w!r": ReceiveMessage(pattern="go", on_match="w!d", on_other="w!short", on_timeout="w!c", poll_seconds=1.0),
}  # fmt: skip
NOT_IN_BATSIM = {"w!f", "w!m", "w!stage"}
CODES = {"w!odd": -1, "w!c": 3}
PROFILES = {name: Profile(name, spec, CODES.get(name, 0)) for name, spec in SPECS.items()}
UNITS = range(3)


class Watcher(Tracer):
    """Writes down what it is told, and what the machines look like then."""

    def __init__(self, seen: list[object]) -> None:
        self.seen = seen

    def note(self, what: str, machines: Machines, *more: object) -> None:
        energy = machines.energy_j() if machines.meters else None
        spent = [round(seconds, 6) for seconds in machines.spent(machines.now)]
        self.seen.append((what, machines.now, list(machines.counts), spent, energy, machines.by_power_state(), *more))

    def began(self, machines: Machines) -> None:
        self.note("began", machines)

    def job_due(self, machines: Machines) -> None:
        self.note("due", machines)

    def job_started(self, machines: Machines, job_id: str, units: IdSet) -> None:
        self.note("started", machines, job_id, units)

    def job_ended(self, machines: Machines, job_id: str, units: IdSet, state: JobState) -> None:
        self.note("ended", machines, job_id, units, state)

    def machines_changed(self, machines: Machines) -> None:
        self.note("changed", machines, machines.grouped_switches, machines.switched_machines)

    def before_switch(self, machines: Machines) -> None:
        self.note("before a switch", machines)

    def power_state_changed(self, machines: Machines, units: IdSet, power_state: int) -> None:
        self.note("power", machines, units, power_state, machines.by_power_state(with_storage=True))


class Player(Gambler):
    """A Gambler on three units that knows which of them are there and awake, and ends jobs in other ways too."""

    units = UNITS

    def __init__(self, random: Random, knows: Callable[[d.Decision], bool]) -> None:
        super().__init__(random, knows)
        self._off: set[int] = set()
        """Units that are away, asleep or on their way."""
        self._awake = True
        """Whether unit 0 is, or will be."""
        self._outside: list[str] = []
        """Jobs that run where the world does not see them."""

    def decide(self, batch: e.Batch) -> d.Reply:
        for event in batch.events:
            if isinstance(event, e.UnitsUnavailable):
                self._off |= set(event.units)
            elif isinstance(event, e.UnitsAvailable) or (isinstance(event, e.UnitsSwitched) and event.power_state < 2):
                self._off -= set(event.units)
        reply = super().decide(batch)
        for decision in reply.decisions:
            if isinstance(decision, d.SwitchUnits):
                self._off |= set(decision.units)
                self._awake = decision.power_state < 2
            elif isinstance(decision, d.SetJobState | d.RejectJob):
                self._waiting = [job for job in self._waiting if job.id != decision.job_id]
                if isinstance(decision, d.SetJobState) and decision.state is JobState.RUNNING:
                    self._outside.append(decision.job_id)
                elif decision.job_id in self._outside:
                    self._outside.remove(decision.job_id)
        return reply

    def _free(self) -> set[int]:
        return super()._free() - self._off

    def _makes_sense(self, decision: d.Decision) -> bool:
        if isinstance(decision, d.SwitchUnits):
            still = 0 not in self._off if self._awake else 0 in self._off
            right = 0 not in self._busy() and still and (decision.power_state == 2) == self._awake
            return right and list(decision.units) == [0] and decision.power_state <= 2 and self._knows(decision)
        if isinstance(decision, d.SetPowerState):
            most = {0: 1, 1: 0, 2: 1}
            right = all(unit not in self._off and decision.power_state <= most[unit] for unit in decision.units)
            return right and self._knows(decision)
        if isinstance(decision, d.SendToJob):
            return decision.job_id in self._running and self._knows(decision)
        if isinstance(decision, d.SetJobState | d.RejectJob):
            return decision.job_id in self._left() and self._knows(decision)
        if isinstance(decision, d.CreateProbe) and decision.metric is not d.Metric.POWER:
            return False
        if isinstance(decision, d.KillJobs) and any(name not in self._running for name in decision.job_ids):
            return False
        return super()._makes_sense(decision)

    def _left(self) -> set[str]:
        """The jobs whose state may still be changed."""
        return {*self._running, *(job.id for job in self._waiting), *self._outside}

    def _odd(self, now: float) -> d.Decision:
        random = self._random
        if random.random() < 0.5:
            return super()._odd(now)
        any_job = random.choice([*self._running] or ["w!1"])
        waiting = self._waiting[-1].id if self._waiting else any_job
        states = (JobState.SUCCEEDED, JobState.FAILED, JobState.TIMED_OUT, JobState.KILLED)
        asleep = 0 if not self._awake else 2
        if self._outside and random.random() < 0.7:
            return d.SetJobState(now, self._outside[0], random.choice(states), "seen")
        return random.choice((
            d.SetJobState(now, any_job, random.choice(states), random.choice(("", "so"))),
            d.SetJobState(now, waiting, random.choice((*states, JobState.REFUSED)), random.choice(("", "so"))),
            d.SetJobState(now, waiting, JobState.RUNNING), d.SetJobState(now, waiting, JobState.RUNNING),
            d.CallAt(now, now + 1.0) if waiting == any_job else d.RejectJob(now, waiting, "no", omitted=random.random() < 0.5),
            d.SetMetadata(now, waiting, "early"), d.SendToJob(now, any_job, "go"), d.SendToJob(now, any_job, "stay"),
            d.CallAt(now, now, "now"), d.CallAt(now, now + 1e-7, "soon"), d.StopCalls(now, "often"),
            d.CallEvery(now, random.choice((1.0, 2.0, 0.25)), "often", random.choice((0, 1, 3))),
            d.SwitchUnits(now, IdSet.of([0]), asleep), d.SwitchUnits(now, IdSet.of([0]), asleep),
            d.SetPowerState(now, IdSet.of([2]), 1), d.SetPowerState(now, IdSet.of([0, 2]), random.randrange(2)),
            d.RegisterJob(now, Job(f"other!{self._turns}", 1, 9.0, now, PROFILES["w!short"])),
        ))  # fmt: skip


def workflow(random: Random) -> Workflow:
    tasks = [Task(f"t{number}", random.choice((0.5, 2.0, 5.0)), [], 0) for number in range(random.randrange(2, 7))]
    for index, task in enumerate(tasks):
        for child in tasks[index + 1 :]:
            if random.random() < 0.4:
                task.children.append(child)
                child.parents += 1
    return Workflow("flow", "flow.dax", tasks)


def world_of(random: Random, records: list[Any], seen: list[object]) -> tuple[World, Callable[[d.Decision], bool]]:
    """A world, and whether it knows a decision."""
    chance = random.random
    rules: Rules | None = random.choice((None, None, OURS, OURS, BATSIM4, BATSIM5))
    platform = platform_of(
        PLATFORM, master_host="master", needs_master=True, **({"generation": 4} if rules is BATSIM4 else {})
    )
    profiles = {
        name: profile for name, profile in PROFILES.items() if rules in (None, OURS) or name not in NOT_IN_BATSIM
    }
    begins = e.Begins(
        platform.nodes(), energy=chance() < 0.7, compute_sharing=chance() < 0.3, storage_sharing=chance() < 0.7,
        dynamic_registration=chance() < 0.5, acknowledge_registration=chance() < 0.6, profile_reuse=chance() < 0.5,
        workloads={"w": ""}, profiles=dict(profiles), storage=platform.storage_nodes(),
    )  # fmt: skip
    jobs = []
    for number in range(1, random.randrange(4, 12)):
        profile = random.choice(list(profiles.values()))
        units = 2 if profile.name == "w!p" else random.choice((1, 1, 2, 3))
        after = (f"w!{random.randrange(1, number + 2)}",) if number > 2 and chance() < 0.3 else ()
        after = tuple(name for name in after if name != f"w!{number}")
        walltime = random.choice((inf, 7.0, 100.0)) if profile.name != "w!r" else 30.0
        jobs.append(
            Job(f"w!{number}", units, walltime, random.choice((0.0, 0.0, 3.0, 3.5, 20.0)), profile, after=after)
        )
    happened: list[e.Event] = []
    if chance() < 0.3:
        away = IdSet.of([1])
        happened = [
            e.UnitsUnavailable(2.0, away),
            e.ExternalEvent(4.0, "x!0", "generic", "d"),
            e.UnitsAvailable(9.0, away),
        ]
    tracers = [Watcher(seen)] if chance() < 0.6 else []
    solver = random.choice(("fair-bottleneck", "max-min"))
    if rules is None:
        options = {
            "platform": platform,
            "record": records.append,
            "external_events": happened,
            "tracers": tracers,
            "solver": solver,
        }
        without = (
            (d.CallEvery, d.StopCalls, d.CreateProbe, d.TriggerProbe, d.ResetProbe, d.StopProbe)
            if chance() < 0.5
            else ()
        )
        if chance() < 0.5:
            return SimulatedPasses(
                begins, jobs, pass_every_s=2.0, **options
            ), lambda decision: type(decision) not in without
        return SimulatedWorld(begins, jobs, **options), lambda decision: type(decision) not in without
    half = len(jobs) // 2
    sources: list[Any] = [JobSource(jobs[:half]), JobSource(jobs[half:])] if chance() < 0.5 else [JobSource(jobs)]
    sources += [EventSource(happened)] if happened else []
    if chance() < 0.4:
        sources.append(WorkflowSource(workflow(random), random.choice((0.0, 2.5)), random.choice((0, 1, 2))))
        if chance() < 0.5 and rules is BATSIM4:
            rules = msgspec.structs.replace(rules, ends_with_workflows=True)
    server = Server(
        begins, sources, platform, rules, record=records.append, tracers=tracers, solver=solver, strict=chance() < 0.3,
        exact_energy=chance() < 0.5,
    )  # fmt: skip
    server.warn = seen.append
    return MessageServerWorld(server), lambda decision: is_known(server, decision)


def is_known(server: Server, decision: d.Decision) -> bool:
    """Whether a server of this generation takes such a decision."""
    rules = server.rules
    if rules.in_words_of_5:
        if isinstance(decision, d.CreateProbe):
            return decision.period is not None and decision.accumulate is not None and server.begins.energy
        if isinstance(decision, d.CallAt):
            return bool(decision.call_id)
        return rules.handlers[type(decision)] is not BATSIM5.handlers[d.ConfirmWithdrawal]
    if rules.late_call_is_wrong:
        if isinstance(decision, d.SetJobState):
            return decision.state is JobState.RUNNING
        if isinstance(decision, d.SetPowerState | d.SwitchUnits):
            return server.begins.energy
        if isinstance(decision, d.CallAt):
            return decision.when > server.agenda.now + 0.01
        return rules.handlers[type(decision)] not in (
            BATSIM4.handlers[d.ConfirmWithdrawal],
            BATSIM4.handlers[d.CallEvery],
        )
    return True


def servers(random: Random) -> Iterator[object]:
    records: list[Any] = []
    seen: list[object] = []
    world, knows = world_of(random, records, seen)
    player = Player(random, knows)
    judge = WORLD_JUDGES if isinstance(world, MessageServerWorld) else None
    try:
        end: object = Session(world, player, judge=judge).run()
    except PilothouseError as problem:
        end = problem
    yield from player.heard
    yield from (*records, *seen, end)

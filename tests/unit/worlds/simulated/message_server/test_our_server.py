"""Behind our own message server every decision does what it does in the world without messages, only later."""

from __future__ import annotations

from copy import deepcopy
from math import inf

import pytest

from pilothouse.core.contract import World
from pilothouse.core.decision_table import DECISIONS
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import DecisionError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, HomogeneousTask, ParallelTask, Profile, ReceiveMessage
from pilothouse.model.record import JobRecord
from pilothouse.worlds.simulated.message_server.generations import BATSIM4, BATSIM5, OURS
from pilothouse.worlds.simulated.message_server.rules import Rules
from pilothouse.worlds.simulated.message_server.server import Server
from pilothouse.worlds.simulated.message_server.sources import JobSource
from pilothouse.worlds.simulated.message_server.world import MessageServerWorld
from pilothouse.worlds.simulated.world import SimulatedWorld
from unit.worlds.simulated.lab import WITH_MASTER, platform_of

A, B = IdSet.of([0]), IdSet.of([1])
PROFILES = {
    name: Profile(name, spec)
    for name, spec in (
        ("w!d", Delay(10.0)),
        ("w!c", HomogeneousTask(1000.0, 0.0)),
        ("w!r", ReceiveMessage(pattern="go", on_match="w!d", on_other="w!d", poll_seconds=1.0)),
    )
}


def jobs() -> list[Job]:
    return [
        Job("w!1", 1, inf, 0.0, PROFILES["w!d"]),
        Job("w!2", 1, inf, 0.0, PROFILES["w!c"]),
        Job("w!3", 1, inf, 0.0, PROFILES["w!d"], after=("w!1",)),
        Job("w!4", 1, inf, 0.0, PROFILES["w!r"]),
    ]


def world_of(rules: Rules | None, records: list[JobRecord]) -> World:
    platform = platform_of(WITH_MASTER, master_host="master", needs_master=True)
    begins = e.Begins(
        platform.nodes(), energy=True, compute_sharing=True, dynamic_registration=True, acknowledge_registration=True,
        profile_reuse=True, workloads={"w": ""}, profiles=PROFILES,
    )  # fmt: skip
    if rules is None:
        return SimulatedWorld(begins, jobs(), platform=platform, record=records.append)
    server = Server(begins, [JobSource(jobs())], platform, rules, record=records.append, exact_energy=True)
    return MessageServerWorld(server)


def start(job_id: str, units: IdSet) -> d.Decision:
    return d.StartJob(0.0, job_id, units)


START: list[d.Decision] = [start("w!1", A), start("w!2", B)]
NEW = Job("w!new", 1, inf, 0.0, PROFILES["w!d"])
PLANS: dict[type, list[d.Decision]] = {
    d.StartJob: [],
    d.RejectJob: [d.RejectJob(0.0, "w!1", "too dull"), d.RejectJob(0.0, "w!2", omitted=True)],
    d.ConfirmWithdrawal: [d.ConfirmWithdrawal(0.0, "w!9")],
    d.KillJobs: [*START, d.KillJobs(4.0, ("w!1", "w!2"))],
    d.CallAt: [d.CallAt(0.0, 3.0, "c")],
    d.CallEvery: [d.CallEvery(0.0, 4.0, "c", 3)],
    d.StopCalls: [d.CallEvery(0.0, 4.0, "c"), d.CallAt(0.0, 30.0, "once"), d.StopCalls(9.0, "c"), d.StopCalls(9.0, "once")],
    d.RegisterJob: [d.RegisterJob(0.0, NEW), d.StartJob(1.0, "w!new", A)],
    d.RegisterProfile: [d.RegisterProfile(0.0, Profile("w!more", Delay(3.0)))],
    d.FinishRegistration: [],
    d.ResumeRegistration: [d.ResumeRegistration(0.0)],
    d.SetPowerState: [*START, d.SetPowerState(5.0, A, 1)],
    d.SwitchUnits: [d.SwitchUnits(0.0, A, 2), d.SwitchUnits(20.0, A, 0)],
    d.Annotate: [d.Annotate(0.0, "w!1", {"a": 1})],
    d.SetMetadata: [*START, d.SetMetadata(0.0, "w!1", "kept")],
    d.SetJobState: [*START, d.SetJobState(3.0, "w!2", JobState.SUCCEEDED)],
    d.CreateProbe: [d.CreateProbe(0.0, "p", d.Metric.POWER, A | B, period=3.0, count=2)],
    d.TriggerProbe: [d.CreateProbe(0.0, "p", d.Metric.POWER, A), d.TriggerProbe(2.0, "p")],
    d.ResetProbe: [
        d.CreateProbe(0.0, "p", d.Metric.POWER, A, accumulate=d.Cumulative.SUM), d.ResetProbe(2.0, "p"), d.TriggerProbe(4.0, "p"),
    ],
    d.StopProbe: [d.CreateProbe(0.0, "p", d.Metric.POWER, A, period=3.0), d.StopProbe(7.0, "p")],
    d.MeasureEnergy: [d.MeasureEnergy(5.0)],
    d.AnswerEstimate: [d.AnswerEstimate(0.0, "w!1", 5.0)],
    d.AnswerFeasibility: [d.AnswerFeasibility(0.0, "q")],
    d.SendToJob: [*START, start("w!4", B), d.SendToJob(2.0, "w!4", "go")],
    d.StopWorld: [*START, d.StopWorld(6.0)],
}  # fmt: skip


def play(world: World, plan: list[d.Decision]) -> list[tuple[float, str]]:
    """Gives the plan as soon as all jobs are there, and starts what is left. What the decider hears of, and when."""
    world.begin(d.Wants())
    heard: list[tuple[float, str]] = []
    waiting: set[str] = set()
    planned = False
    stops = any(isinstance(one, d.StopWorld) for one in plan)
    while (batch := world.advance()) is not None:
        for event in batch.events:
            heard.append((round(event.at, 3), type(event).__name__))
            if isinstance(event, e.JobSubmitted):
                waiting.add(event.job.id)
            elif isinstance(event, e.Ended):
                assert not event.waiting and not event.reason, event
        decisions: list[d.Decision] = []
        named = {one.job_id for one in plan if isinstance(one, d.StartJob | d.RejectJob)}
        if not planned and len(waiting) >= 3:
            planned = True
            decisions = sorted(plan, key=lambda one: one.at)
            for one in decisions:
                one.at = max(one.at, batch.now)
            if not stops:
                decisions.append(d.FinishRegistration(decisions[-1].at if decisions else batch.now))
        if planned:
            rest = sorted(job_id for job_id in waiting if job_id not in named)
            last = decisions[-1].at if decisions else batch.now
            decisions += [d.StartJob(last, job_id, B) for job_id in rest]
            decisions += [d.SendToJob(last, "w!4", "go") for job_id in rest if job_id == "w!4"]
            waiting.clear()
        world.apply(d.Reply(batch.now, decisions))
    return heard


HARDLY = ("SetJobState", "CreateProbe", "StopProbe", "TriggerProbe", "ResetProbe")
"""Decisions that a Batsim has, but not all of it."""


def test_the_plans_are_total() -> None:
    assert set(PLANS) == set(DECISIONS)


@pytest.mark.parametrize("kind", DECISIONS, ids=lambda kind: kind.__name__)
def test_our_server_does_what_the_world_without_messages_does(kind: type) -> None:
    records: list[list[JobRecord]] = [[], []]
    plain = play(world_of(None, records[0]), deepcopy(PLANS[kind]))
    ours = play(world_of(OURS, records[1]), deepcopy(PLANS[kind]))
    if kind is d.StopWorld:  # The world without messages stops at the next event after the date of the decision.
        assert ours[-1] == (6.0, "Ended") and plain[-1][1] == "Ended" and not records[1]
        return
    assert sorted(ours) == sorted(plain)
    kept = [
        sorted((one.job.id, one.state.value, one.metadata, one.energy_j is None) for one in found) for found in records
    ]
    assert kept[0] == kept[1]


@pytest.mark.parametrize("rules", [BATSIM4, BATSIM5], ids=["4", "5"])
@pytest.mark.parametrize("kind", DECISIONS, ids=lambda kind: kind.__name__)
def test_the_rules_of_a_generation_are_total(kind: type, rules: Rules) -> None:
    """What a Batsim cannot do is a DecisionError. (The rest is compared with recordings.)"""
    if rules.handlers[kind] in OURS.handlers.values():
        return
    try:
        play(world_of(rules, []), deepcopy(PLANS[kind]))
    except DecisionError as problem:
        assert "cannot" in problem.detail or "Unhandled event type" in problem.detail or kind.__name__ in HARDLY


SQUARE = Profile("w!square", ParallelTask((), (0.0, 1.0, 1.0, 0.0)))
WRONG: dict[str, tuple[str, list[d.Decision]]] = {
    "a job that exists": ("duplicate job", [d.RegisterJob(0.0, Job("w!1", 1, inf, 0.0, PROFILES["w!d"]))]),
    "a job that was registered": ("duplicate job", [d.RegisterJob(0.0, NEW), d.RegisterJob(0.0, NEW)]),
    "a job of another size": (
        "wrong number of resources",
        [d.RegisterProfile(0.0, SQUARE), d.RegisterJob(0.0, Job("w!s", 3, inf, 0.0, SQUARE))],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_makes_no_sense_is_refused_by_its_rule(name: str) -> None:
    rule, plan = WRONG[name]
    with pytest.raises(DecisionError) as refused:
        play(world_of(OURS, []), deepcopy(plan))
    assert refused.value.rule == rule


@pytest.mark.parametrize("rules", [BATSIM4, BATSIM5], ids=["4", "5"])
def test_a_power_state_beyond_the_last_is_refused(rules: Rules) -> None:
    with pytest.raises(DecisionError) as refused:
        play(world_of(rules, []), [d.SetPowerState(0.0, A, 5)])
    assert "5" in refused.value.detail


def test_a_job_of_the_size_of_its_communication_is_admitted() -> None:
    records: list[JobRecord] = []
    plan: list[d.Decision] = [
        d.RegisterProfile(0.0, SQUARE), d.RegisterJob(0.0, Job("w!s", 2, inf, 0.0, SQUARE)), d.StartJob(1.0, "w!s", A | B),
    ]  # fmt: skip
    play(world_of(OURS, records), plan)
    assert "w!s" in {record.job.id for record in records}

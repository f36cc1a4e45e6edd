"""What each generation of the message server refuses, and what it takes that is only just right."""

from __future__ import annotations

from copy import deepcopy
from math import inf
from typing import Any

import pytest

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import DecisionError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, ForkJoin, HomogeneousTask, ParallelTask, Profile, Sequence
from pilothouse.model.record import JobRecord
from pilothouse.worlds.simulated.message_server.generations import BATSIM2, BATSIM4, BATSIM5, OURS
from pilothouse.worlds.simulated.message_server.rules import Rules
from pilothouse.worlds.simulated.message_server.server import Server
from pilothouse.worlds.simulated.message_server.sources import JobSource
from pilothouse.worlds.simulated.message_server.world import MessageServerWorld
from unit.worlds.simulated.lab import WITH_MASTER, platform_of

A, B, BOTH, NONE = IdSet.of([0]), IdSet.of([1]), IdSet.of([0, 1]), IdSet()
RULES = {"2": BATSIM2, "4": BATSIM4, "5": BATSIM5, "ours": OURS}
DELAY = Profile("w!d", Delay(10.0))
MATRIX = Profile("w!m", ParallelTask((1.0, 1.0), ()))
NOTHING = Profile("w!n", HomogeneousTask(0.0, 0.0))
PROFILES = {profile.name: profile for profile in (DELAY, MATRIX, NOTHING)}


def new(job_id: str = "w!new", units: int = 1, profile: Profile = DELAY) -> d.RegisterJob:
    return d.RegisterJob(0.0, Job(job_id, units, inf, 0.0, profile))


class Stage:
    """A run with the jobs w!1 (one unit), w!2 (two units) and w!3 (a parallel task of two ranks), which all wait."""

    def __init__(self, rules: str, *, wants: d.Wants | None = None, strict: bool = False, **changes: Any) -> None:
        generation: Rules = RULES[rules]
        options = {"generation": 4} if rules in ("2", "4") else {}
        platform = platform_of(WITH_MASTER, master_host="master", needs_master=True, **options)
        given: dict[str, Any] = {
            "energy": True, "dynamic_registration": True, "acknowledge_registration": True, "profile_reuse": True,
            "workloads": {"w": ""}, "profiles": dict(PROFILES), **changes,
        }  # fmt: skip
        jobs = [Job("w!1", 1, inf, 0.0, DELAY), Job("w!2", 2, inf, 0.0, DELAY), Job("w!3", 2, inf, 0.0, MATRIX)]
        self.warned: list[str] = []
        self.server = Server(e.Begins(platform.nodes(), **given), [JobSource(jobs)], platform, generation, strict=strict)
        self.server.warn = self.warned.append
        self.world = MessageServerWorld(self.server)
        self.world.begin(wants or d.Wants())
        self.heard: list[e.Event] = []
        self.now = 0.0
        while sum(isinstance(event, e.JobSubmitted) for event in self.heard) < len(jobs):
            self.say()

    def say(self, *decisions: d.Decision) -> list[e.Event]:
        """The decisions are dated now, or later if they say so. What is heard next."""
        if self.heard or decisions:
            for decision in decisions:
                decision.at = max(decision.at, self.now)
            self.world.apply(d.Reply(max([self.now, *(decision.at for decision in decisions)]), list(decisions)))
        batch = self.world.advance()
        assert batch is not None
        self.now = batch.now
        self.heard += batch.events
        return batch.events

    def until(self, kind: type) -> Any:
        while not isinstance(self.heard[-1], e.Ended):
            found = [event for event in self.heard if isinstance(event, kind)]
            if found:
                return found[-1]
            self.say()
        raise AssertionError(f"{kind.__name__} was not heard: {self.heard}")

    def refused(self, *decisions: d.Decision) -> DecisionError:
        """The last decision is refused, none before it."""
        with pytest.raises(DecisionError) as found:
            self.say(*decisions)
            for _ in range(20):
                self.say()
        assert found.value.index == len(decisions) - 1
        return found.value


def start(job_id: str, units: IdSet, **more: Any) -> d.StartJob:
    return d.StartJob(0.0, job_id, units, **more)


def probe(name: str = "p", **changes: Any) -> d.CreateProbe:
    fields: dict[str, Any] = {"units": A, "period": 1.0, "count": 1, "accumulate": d.Cumulative.SUM, **changes}
    return d.CreateProbe(0.0, name, fields.pop("metric", d.Metric.POWER), **fields)


def mapped(*indexes: int) -> d.Placement:
    return d.Placement(mapping=indexes)


Case = tuple[str, str, list[d.Decision]]
CASES: dict[str, Case] = {
    # generations, the rule that is broken, decisions of which the last breaks it
    "start of an unknown job": ("2 4 5 ours", "unknown job", [start("w!9", A)]),
    "start twice": ("2 4 5 ours", "job in the wrong state", [start("w!1", A), start("w!1", B)]),
    "start on nothing": ("2 4 5 ours", "empty allocation", [start("w!1", NONE)]),
    "start beside the machines": ("2 4 5 ours", "unknown resource", [start("w!1", IdSet.of([2]))]),
    "start on too many": ("2 4", "wrong number of resources", [start("w!1", BOTH)]),
    "start on too few": ("2 4", "wrong number of resources", [start("w!2", A)]),
    "start on a machine in use": ("2 4 ours", "resource in use", [start("w!1", A), start("w!2", BOTH)]),
    "an executor beside the allocation": ("4", "wrong mapping", [start("w!1", A, placement=mapped(1))]),
    "an executor of a task beside it": ("4 5", "wrong mapping", [start("w!3", BOTH, placement=mapped(0, 2))]),
    "too few executors": ("5", "wrong mapping", [start("w!3", BOTH, placement=mapped(0))]),
    "a task without work": ("5", "empty task", [new(profile=NOTHING), start("w!new", A)]),
    "rejection of an unknown job": ("2 4 5 ours", "unknown job", [d.RejectJob(0.0, "w!9")]),
    "rejection of a job that runs": ("2 4 5 ours", "job in the wrong state", [start("w!1", A), d.RejectJob(0.0, "w!1")]),
    "rejection twice": ("2 4 5 ours", "job in the wrong state", [d.RejectJob(0.0, "w!1"), d.RejectJob(0.0, "w!1")]),
    "kill of an unknown job": ("2 4 5 ours", "unknown job", [d.KillJobs(0.0, ("w!9",))]),
    "kill of a job that waits": ("2 4 5 ours", "job in the wrong state", [d.KillJobs(0.0, ("w!1",))]),
    "kill of nothing": ("2 4 5 ours", "empty list", [d.KillJobs(0.0, ())]),
    "kill twice": ("5", "empty list", [start("w!1", A), d.KillJobs(0.0, ("w!1",)), d.KillJobs(0.0, ("w!1",))]),
    "state of an unknown job": ("2 4 ours", "unknown job", [d.SetJobState(0.0, "w!9", JobState.RUNNING)]),
    "end of a job that waits": ("2 4", "change of state", [d.SetJobState(0.0, "w!1", JobState.SUCCEEDED)]),
    "end of a job that the server runs": (
        "2", "change of state", [start("w!1", A), d.SetJobState(2.0, "w!1", JobState.SUCCEEDED)],
    ),
    "failure of a job that runs elsewhere": (
        "2", "change of state",
        [d.SetJobState(0.0, "w!1", JobState.RUNNING), d.SetJobState(2.0, "w!1", JobState.FAILED)],
    ),
    "a reason without a kill": ("2", "change of state", [d.SetJobState(0.0, "w!1", JobState.RUNNING, "because")]),
    "kill of a job that was rejected": ("2", "job in the wrong state", [d.RejectJob(0.0, "w!1"), d.KillJobs(0.0, ("w!1",))]),
    "start of a job that runs": ("2 4 ours", "change of state", [start("w!1", A), d.SetJobState(0.0, "w!1", JobState.RUNNING)]),
    "refusal of a job that runs": ("2 ours", "change of state", [start("w!1", A), d.SetJobState(0.0, "w!1", JobState.REFUSED)]),
    "back to waiting": ("2 ours", "change of state", [start("w!1", A), d.SetJobState(0.0, "w!1", JobState.WAITING)]),
    "message to an unknown job": ("2 4 ours", "unknown job", [d.SendToJob(0.0, "w!9", "hello")]),
    "a call without a name": ("5", "call id", [d.CallAt(0.0, 5.0, "")]),
    "two series of one name": ("5", "id in use", [d.CallEvery(0.0, 2.0, "c"), d.CallEvery(0.0, 2.0, "c")]),
    "periods without a common tick": ("5", "periods", [d.CallEvery(0.0, 2.0, "c"), d.CallEvery(0.0, 3.0, "e")]),
    "a probe whose period has no common tick": ("5", "periods", [d.CallEvery(0.0, 3.0, "c"), probe(period=2.0)]),
    "two probes of one name": ("5", "id in use", [probe(period=2.0, count=0), probe(period=2.0)]),
    "a probe at a date": ("5", "probe", [probe(period=None, when=4.0)]),
    "a probe of a load": ("5", "probe", [probe(metric=d.Metric.COMPUTATION_LOAD, count=2)]),
    "a probe of links": ("5", "probe", [probe(links=("l",), count=2)]),
    "a probe of nothing": ("5", "probe", [probe(units=NONE, count=2)]),
    "a probe of no machine": ("5", "probe", [probe(units=IdSet.of([2]), count=2)]),
    "a probe of a quantile": ("5", "probe", [probe(aggregation=d.Aggregation.QUANTILE, count=2)]),
    "a probe that does not accumulate": ("5", "probe", [probe(accumulate=None)]),
    "a probe that is reset": ("5", "probe", [probe(reset_to=0.0)]),
    "a power state beyond the last": ("5", "pstate", [d.SetPowerState(0.0, B, 1)]),
    "a power state of no machine": ("5", "unknown machine", [d.SetPowerState(0.0, IdSet.of([2]), 0)]),
    "a switch of no machine": ("5 ours", "unknown machine", [d.SwitchUnits(0.0, IdSet.of([1, 2]), 0)]),
    "a switch of nothing": ("5 ours", "empty switch", [d.SwitchUnits(0.0, NONE, 0)]),
    "a switch into a transition": ("5 ours", "switch", [d.SwitchUnits(0.0, A, 3)]),
    "a state of nothing": ("2 4", "empty set", [d.SetPowerState(0.0, NONE, 0)]),
    "a state of no machine": ("2 4", "unknown resource", [d.SetPowerState(0.0, IdSet.of([2]), 0)]),
    "a state beyond the last": ("2 4", "unknown power state", [d.SetPowerState(0.0, B, 1)]),
    "a state before the first": ("2 4", "unknown power state", [d.SetPowerState(0.0, B, -1)]),
    "sleep under a job": ("2 4", "machine in use", [start("w!1", A), d.SetPowerState(0.0, A, 2)]),
    "another speed under a job": ("2", "machine in use", [start("w!1", A), d.SetPowerState(0.0, A, 1)]),
    "sleep in sleep": ("2 4", "power state", [d.SetPowerState(0.0, A, 2), d.SetPowerState(9.0, A, 2)]),
    "start on a machine that sleeps": ("4", "resource not available", [d.SetPowerState(0.0, A, 2), start("w!1", A)]),
    "start on a machine that is switched": ("5 ours", "resource not available", [d.SwitchUnits(0.0, A, 2), start("w!1", A)]),
    "a job that exists": ("2 4 5 ours", "duplicate job", [new("w!1")]),
    "a job that was registered": ("2 4 5 ours", "duplicate job", [new(), new()]),
    "a job without a workload": ("5", "job id", [new("alone")]),
    "a job of two workloads": ("5", "job id", [new("w!1!2")]),
    "a job of an unknown workload": ("4", "unknown workload", [new("v!1")]),
    "a job of an unknown profile": ("2 4 5 ours", "unknown profile", [new(profile=Profile("w!x", Delay(1.0)))]),
    "a job of another size": ("2 4 5 ours", "wrong number of resources", [new(units=3, profile=MATRIX)]),
    "a profile of unknown parts": (
        "2 4 5 ours", "unknown profile", [d.RegisterProfile(0.0, Profile("w!s", Sequence(("w!d", "w!x"))))],
    ),
    "another profile of that name": ("2 4 5 ours", "duplicate profile", [d.RegisterProfile(0.0, Profile("w!d", Delay(1.0)))]),
    "the same profile": ("5", "duplicate profile", [d.RegisterProfile(0.0, DELAY)]),
    "a fork": ("5", "profile", [d.RegisterProfile(0.0, Profile("w!f", ForkJoin(("w!d",))))]),
}  # fmt: skip


def copied(plan: list[d.Decision]) -> list[d.Decision]:
    """Dates and jobs are changed by those that carry decisions out."""
    return deepcopy(plan)


@pytest.mark.parametrize(
    ("rules", "name"), [(rules, name) for name, case in CASES.items() for rules in case[0].split()]
)
def test_a_wrong_decision_is_refused_by_its_rule(rules: str, name: str) -> None:
    _, rule, plan = CASES[name]
    assert Stage(rules).refused(*copied(plan)).rule == rule


RIGHT: dict[str, Case] = {
    # generations, what is heard, decisions
    "exactly as many": ("2 4 5 ours", "JobEnded", [start("w!2", BOTH)]),
    "more than it asked for": ("5 ours", "JobEnded", [start("w!1", BOTH)]),
    "on a machine in use": ("5", "JobEnded", [start("w!1", A), start("w!2", BOTH)]),
    "the last executor": ("4 5", "JobEnded", [start("w!3", BOTH, placement=mapped(1, 0))]),
    "a short mapping": ("4", "JobEnded", [start("w!2", BOTH, placement=mapped(1, 1))]),
    "a task without work": ("2 4 ours", "JobEnded", [new(profile=NOTHING), start("w!new", A)]),
    "kill": ("2 4 5 ours", "JobsKilled", [start("w!1", A), d.KillJobs(3.0, ("w!1",))]),
    "kill twice": ("4 ours", "JobsKilled", [start("w!1", A), d.KillJobs(3.0, ("w!1",)), d.KillJobs(3.0, ("w!1",))]),
    "kill of a job that has ended": ("2 ours", "JobsKilled", [start("w!1", A), d.KillJobs(50.0, ("w!1",))]),
    "periods with common ticks": ("5", "CallArrived", [d.CallEvery(0.0, 2.0, "c"), d.CallEvery(0.0, 4.0, "e", 1)]),
    "equal periods": ("5", "CallArrived", [d.CallEvery(0.0, 2.0, "c"), d.CallEvery(0.0, 2.0, "e", 1)]),
    "a call and a probe of one name": ("5", "ProbeData", [d.CallEvery(0.0, 2.0, "p"), probe(period=2.0)]),
    "a late call": ("5 ours", "CallArrived", [d.CallAt(0.0, -1.0, "c")]),
    "the last power state": ("5", "PowerStateChanged", [d.SetPowerState(0.0, A, 4)]),
    "the same state": ("2 4", "UnitsSwitched", [d.SetPowerState(0.0, A, 0)]),
    "to sleep and back": ("2 4", "UnitsSwitched", [d.SetPowerState(0.0, A, 2), d.SetPowerState(30.0, A, 1)]),
    "the same profile": ("2 4 ours", "JobEnded", [d.RegisterProfile(0.0, DELAY), new(), start("w!new", A)]),
    "a job of an unknown workload": ("2 5 ours", "JobEnded", [new("v!1"), start("v!1", A)]),
    "a job of that size": ("2 4 5 ours", "JobEnded", [new(units=2, profile=MATRIX), start("w!new", BOTH)]),
    "a job after the last": ("5", "JobEnded", [d.FinishRegistration(0.0), new(), start("w!new", A)]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("rules", "name"), [(rules, name) for name, case in RIGHT.items() for rules in case[0].split()]
)
def test_what_is_only_just_right_is_carried_out(rules: str, name: str) -> None:
    _, heard, plan = RIGHT[name]
    stage = Stage(rules)
    stage.say(*copied(plan))
    assert stage.until(getattr(e, heard)) is not None


@pytest.mark.parametrize("rules", ["2", "4", "5", "ours"])
def test_words_and_dates(rules: str) -> None:
    """Those of Batsim 5 are the words that its users look for. The others say when it was."""
    problem = Stage(rules).refused(d.CallAt(7.0, 9.0, "c"), d.KillJobs(7.0, ()))
    assert problem.decider == "scheduler"
    assert ("(at 7.0" in problem.detail) is (rules != "5")


def test_a_late_call_is_wrong_in_batsim_4() -> None:
    stage = Stage("4")
    stage.say(d.CallAt(0.0, 5.0, "c"))
    stage.until(e.CallArrived)
    assert stage.refused(d.CallAt(0.0, stage.now, "c")).rule == "call in the past"


@pytest.mark.parametrize("rules", ["2", "4", "ours"])
def test_registration_must_be_enabled_but_in_batsim_5(rules: str) -> None:
    assert Stage(rules, dynamic_registration=False).refused(new()).rule == "dynamic registration"
    stage = Stage("5", dynamic_registration=False)
    stage.say(new(), start("w!new", A))
    assert stage.until(e.JobEnded).job_id == "w!new"


@pytest.mark.parametrize("rules", ["2", "4", "ours"])
@pytest.mark.parametrize("decision", [new(), d.RegisterProfile(0.0, Profile("w!p", Delay(1.0)))], ids=["job", "profile"])
def test_nothing_is_registered_after_the_last_until_registration_is_resumed(rules: str, decision: d.Decision) -> None:
    stage = Stage(rules)
    stage.say(d.FinishRegistration(0.0), d.CallAt(0.0, 1.0, "c"))
    stage.until(e.CallArrived)
    assert stage.refused(*copied([decision])).rule == "dynamic registration"
    stage = Stage(rules)
    stage.say(d.FinishRegistration(0.0), d.ResumeRegistration(0.0), d.CallAt(0.0, 1.0, "c"))
    stage.until(e.CallArrived)
    stage.say(*copied([decision]), start("w!1", A))
    assert stage.until(e.JobEnded).job_id == "w!1"


@pytest.mark.parametrize(
    "decision", [d.SetPowerState(0.0, A, 0), d.MeasureEnergy(0.0)], ids=lambda decision: type(decision).__name__
)
def test_energy_must_be_enabled_in_batsim_4(decision: d.Decision) -> None:
    assert Stage("4", energy=False).refused(*copied([decision])).rule == "energy"


def test_energy_must_be_enabled_for_probes_of_batsim_5() -> None:
    problem = Stage("5", energy=False).refused(probe(count=2))
    assert problem.rule == "probe" and "--energy-host" in problem.detail


def test_wishes_of_the_decider_are_enforced_where_that_is_asked_for() -> None:
    least = d.Wants(least_count=True, compute_sharing=True)
    assert Stage("5", wants=least, strict=True).refused(start("w!2", A)).rule == "wrong number of resources"
    for wants, decisions in (
        (least, [start("w!1", BOTH)]),
        (least, [start("w!1", A), start("w!2", BOTH)]),
        (d.Wants(exact_count=True), [start("w!2", BOTH)]),
    ):
        stage = Stage("5", wants=wants, strict=True)
        stage.say(*copied(decisions))
        assert stage.until(e.JobEnded)
    exact = d.Wants(exact_count=True)
    assert Stage("5", wants=exact, strict=True).refused(start("w!1", BOTH)).rule == "wrong number of resources"
    assert Stage("5", wants=exact, strict=True).refused(start("w!1", A), start("w!2", BOTH)).rule == "resource in use"


@pytest.mark.parametrize(
    ("aggregation", "count"), [(d.Aggregation.NONE, 2), (d.Aggregation.SUM, 1), (d.Aggregation.MEAN, 1)]
)
def test_what_a_probe_of_batsim_5_tells(aggregation: d.Aggregation, count: int) -> None:
    stage = Stage("5")
    stage.say(probe(units=BOTH, aggregation=aggregation, count=2, period=2.0))
    found: e.ProbeData = stage.until(e.ProbeData)
    assert len(found.values) == count and found.aggregated is (count == 1)
    assert found.at == pytest.approx(4.0, abs=0.01), "the first tick only sets it up"
    idle_w = (10.0, 10.0)  # of each host
    joules = [watts * 4.0 for watts in idle_w]
    expected = {d.Aggregation.NONE: joules, d.Aggregation.SUM: [sum(joules)], d.Aggregation.MEAN: [sum(joules) / 2]}
    assert list(found.values) == pytest.approx(expected[aggregation], rel=0.01)
    assert not stage.warned


def test_what_batsim_5_ignores_of_a_probe_is_warned_of() -> None:
    stage = Stage("5")
    stage.say(probe(per_second=True))
    assert len(stage.warned) == 1 and "normalization" in stage.warned[0]


@pytest.mark.parametrize(("decision", "kind"), [(d.StopCalls(0.0, "x"), "call"), (d.StopProbe(0.0, "x"), "probe")])
def test_an_unknown_series_is_stopped_with_a_warning(decision: d.Decision, kind: str) -> None:
    stage = Stage("5")
    stage.say(*copied([decision]), d.CallAt(0.0, 3.0, "c"))
    stage.until(e.CallArrived)
    assert stage.warned == [f"Cannot stop periodic {kind} 'x': it does not exist (anymore)"]


@pytest.mark.parametrize("rules", ["5", "ours"])
def test_a_series_of_calls_counts_down_and_tells_its_last(rules: str) -> None:
    stage = Stage(rules)
    stage.say(d.CallEvery(0.0, 2.0, "c", 3), d.CallEvery(0.0, 4.0, "e"), d.StopCalls(9.0, "e"))
    stage.say(d.FinishRegistration(0.0), *(d.RejectJob(0.0, f"w!{number}") for number in (1, 2, 3)))
    while not isinstance(stage.heard[-1], e.Ended):
        stage.say()
    calls = [(round(event.at, 2), event.call_id, event.last) for event in stage.heard if isinstance(event, e.CallArrived)]
    assert sorted(calls) == [(2, "c", False), (4, "c", False), (4, "e", False), (6, "c", True), (8, "e", False)]
    ended = stage.heard[-1]
    assert isinstance(ended, e.Ended) and not ended.waiting and not ended.reason
    assert stage.server.pending == 0 and not stage.server.calls


@pytest.mark.parametrize("rules", ["2", "4", "5", "ours"])
def test_a_run_that_can_go_nowhere_names_the_jobs_that_wait(rules: str) -> None:
    for registering, reason in ((False, "nothing can happen any more"), (True, "registration was never finished")):
        stage = Stage(rules, dynamic_registration=registering)
        stage.say(start("w!1", A))
        stage.until(e.JobEnded)
        while not isinstance(stage.heard[-1], e.Ended):
            stage.say()
        ended = stage.heard[-1]
        assert isinstance(ended, e.Ended) and set(ended.waiting) == {"w!2", "w!3"} and ended.reason == reason
        stage.world.apply(d.Reply(stage.now, []))
        assert stage.world.advance() is None, "it is told once"


@pytest.mark.parametrize("rules", ["2", "4", "5", "ours"])
def test_what_is_recorded_of_a_job_that_never_ran(rules: str) -> None:
    records: list[JobRecord] = []
    stage = Stage(rules)
    stage.server.record = records.append
    stage.say(d.RejectJob(4.0, "w!1", "not today"), d.CallAt(4.0, 9.0, "c"))
    stage.until(e.CallArrived)
    (record,) = records
    assert (record.state, record.started_at, record.return_code, record.metadata) == (JobState.REFUSED, None, -1, "not today")
    assert record.ended_at == pytest.approx(4.0, abs=0.01) and not record.units

"""The bounds of the rules: counts, mappings, memory, states, calls, registrations; and what is said of a refused decision."""

from __future__ import annotations

from math import inf, nan

import pytest

from pilothouse.core.cluster import Cluster
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import DecisionError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node, Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, Profile

HOSTS = tuple(Node(f"h{i}", i) for i in range(8))


def cluster(*jobs: Job, wants: d.Wants | None = None, **options: object) -> Cluster:
    """Eight units, and a storage at 8; these jobs wait, at date 10."""
    options.setdefault("nodes", HOSTS)
    made = Cluster(e.Begins(storage=(Node("disk", 8),), **options), "tester", wants)  # type: ignore[arg-type]
    made.now = 10.0
    for job in jobs:
        made.observe(e.JobSubmitted(0.0, job))
    return made


def refusal(c: Cluster, decision: d.Decision) -> str:
    """The rule and the detail; "" if it is booked."""
    booked = len(c.decisions)
    try:
        c.book(decision)
    except DecisionError as error:
        assert len(c.decisions) == booked == error.index
        return f"{error.rule}: {error.detail.removesuffix(' (at 10 s)')}"
    assert c.decisions[-1] is decision
    return ""


EXACT, LEAST, ANY = d.Wants(), d.Wants(least_count=True), d.Wants(exact_count=False)


@pytest.mark.parametrize(
    ("wants", "most", "given", "problem"),
    [
        (EXACT, 0, 1, "2 units and was given 1"), (EXACT, 0, 2, ""), (EXACT, 0, 3, "2 units and was given 3"),
        (EXACT, 4, 1, "2 to 4 units and was given 1"), (EXACT, 4, 2, ""), (EXACT, 4, 4, ""),
        (EXACT, 4, 5, "2 to 4 units and was given 5"),
        (LEAST, 0, 1, "2 units and was given 1"), (LEAST, 0, 2, ""), (LEAST, 0, 3, ""),
        (LEAST, 4, 1, "2 to 4 units and was given 1"), (LEAST, 4, 5, ""),
        (ANY, 0, 1, ""), (ANY, 0, 3, ""),
    ],
)  # fmt: skip
def test_how_many_units_a_job_may_be_given(wants: d.Wants, most: int, given: int, problem: str) -> None:
    c = cluster(Job("a", 2, most_units=most), wants=wants)
    expected = f"wrong count: job a asks for {problem}" if problem else ""
    assert refusal(c, d.StartJob(10.0, "a", IdSet.span(0, given))) == expected
    elastic = cluster(Job("a", 2, most_units=most, elastic=True), wants=wants)
    assert refusal(elastic, d.StartJob(10.0, "a", IdSet.span(0, given))) == ""


def test_a_decider_may_have_another_rule_of_counts_than_the_world() -> None:
    for world, wanted, rule in (
        (True, None, "exact"), (False, None, None), (True, False, None), (False, True, "exact"),
    ):  # fmt: skip
        assert cluster(wants=d.Wants(exact_count=wanted), exact_count=world).count_rule == rule
        assert cluster(wants=d.Wants(exact_count=wanted, least_count=True), exact_count=world).count_rule == "least"


@pytest.mark.parametrize(
    ("units", "mapping", "problem"),
    [
        ("3", (0, 0), ""),
        ("3-4", (1, 0), ""),
        ("3-4", (0, 2), "wrong mapping: job a: an executor is mapped outside its 2 units"),
        ("3-4", (0,), "wrong count: job a asks for 2 units and was given 1"),
        ("3-4", (0, 1, 1), "wrong count: job a asks for 2 units and was given 3"),
    ],
)
def test_a_mapping_is_within_the_units_and_its_executors_are_counted(
    units: str, mapping: tuple[int, ...], problem: str
) -> None:
    c = cluster(Job("a", 2))
    assert refusal(c, d.StartJob(10.0, "a", IdSet.parse(units), d.Placement(mapping=mapping))) == problem


def test_memory_that_is_taken_is_not_there_for_a_start() -> None:
    shape = Shape(nodes=1, memory_mb_per_node=600)
    nodes = (Node("n", 0, 4, memory_mb=1000),)
    c = cluster(Job("a", 1, shape=shape), Job("b", 1, shape=shape), nodes=nodes)
    assert refusal(c, d.StartJob(10.0, "a", IdSet.parse("0"))) == ""
    said = "wrong shape: job b on 1: node n cannot give what it asks for (1 unit free and 600 MB)"
    assert refusal(c, d.StartJob(10.0, "b", IdSet.parse("1"))) == said
    c.observe(e.JobEnded(10.0, "a", JobState.SUCCEEDED, 0, IdSet.parse("0")))
    assert refusal(c, d.StartJob(10.0, "b", IdSet.parse("1"))) == ""


def test_a_shape_is_not_looked_at_where_any_count_is_legal() -> None:
    for wants, problem in ((EXACT, "wrong shape"), (LEAST, "wrong shape"), (ANY, "")):
        c = cluster(Job("a", 1, shape=Shape(nodes=2)), wants=wants)
        assert refusal(c, d.StartJob(10.0, "a", IdSet.parse("0"))).startswith(problem)
        assert ("a" in c.running) == (not problem)


def test_who_holds_a_unit_that_was_given_twice() -> None:
    c = cluster(*(Job(f"j{i}", 1) for i in range(8)))
    for i in range(7):
        assert c.start(c.waiting[f"j{i}"])
    assert refusal(c, d.StartJob(10.0, "j7", IdSet.parse("1"))) == "unit already in use: job j7 on 1, in use by j1"
    said = "unit already in use: job j7 on 0-6, in use by j0, j1, j2, j3, j4"
    assert refusal(c, d.StartJob(10.0, "j7", IdSet.parse("0-7"))) == said


def test_units_that_are_off_or_not_there_are_named() -> None:
    c = cluster(Job("a", 2), unavailable=IdSet.parse("3"))
    said = "unit not available: job a on 3, which cannot run jobs now"
    assert refusal(c, d.StartJob(10.0, "a", IdSet.parse("2-3"))) == said
    said = "unknown unit: job a on 8-9: there are only units 0-7"
    assert refusal(c, d.StartJob(10.0, "a", IdSet.parse("7-9"))) == said
    assert refusal(c, d.StartJob(10.0, "a", IdSet())) == "empty allocation: job a was given no unit"


def test_units_are_shared_if_the_decider_wants_it_or_leaves_it_to_the_world() -> None:
    for world, wanted, shared in ((False, None, False), (True, None, True), (True, False, False), (False, True, True)):
        c = cluster(Job("a", 1), Job("b", 1), wants=d.Wants(compute_sharing=wanted), compute_sharing=world)
        assert refusal(c, d.StartJob(10.0, "a", IdSet.parse("0"))) == ""
        assert (refusal(c, d.StartJob(10.0, "b", IdSet.parse("0"))) == "") is shared


@pytest.mark.parametrize(
    ("decision", "rule"),
    [
        (d.CallAt(10.0, 10.0), ""),
        (d.CallAt(10.0, inf), ""),
        (d.CallAt(10.0, 9.999), "call in the past"),
        (d.CallAt(10.0, nan), "call in the past"),
        (d.CallEvery(10.0, 0.001, "x"), ""),
        (d.CallEvery(10.0, 0.5, "x"), ""),
        (d.CallEvery(10.0, 0.0, "x"), "period"),
        (d.CallEvery(10.0, -1.0, "x"), "period"),
        (d.CallEvery(10.0, nan, "x"), "period"),
        (d.KillJobs(10.0, ("runs",)), ""),
        (d.KillJobs(10.0, ("runs", "waits")), "job in the wrong state"),
        (d.KillJobs(10.0, ("runs", "nobody")), "unknown job"),
        (d.RejectJob(10.0, "waits"), ""),
        (d.RejectJob(10.0, "runs"), "job in the wrong state"),
        (d.ConfirmWithdrawal(10.0, "gone"), ""),
        (d.ConfirmWithdrawal(10.0, "waits"), "nothing to confirm"),
        (d.SetPowerState(10.0, IdSet.parse("0"), 1), ""),
        (d.SetPowerState(10.0, IdSet.parse("0-8"), 1), ""),
        (d.SetPowerState(10.0, IdSet.parse("0-9"), 1), "unknown unit"),
        (d.SetPowerState(10.0, IdSet(), 1), "empty set"),
        (d.SwitchUnits(10.0, IdSet.parse("2"), 1), ""),
        (d.SwitchUnits(10.0, IdSet.parse("1-2"), 1), "unit already in use"),
        (d.SwitchUnits(10.0, IdSet.parse("9"), 1), "unknown unit"),
        (d.Annotate(10.0, "waits", {}), ""),
        (d.Annotate(10.0, "ended", {}), ""),
        (d.SetMetadata(10.0, "runs", "x"), ""),
        (d.SendToJob(10.0, "runs", "x"), ""),
        (d.SendToJob(10.0, "nobody", "x"), "unknown job"),
        (d.SetJobState(10.0, "waits", JobState.RUNNING), ""),
        (d.SetJobState(10.0, "waits", JobState.REFUSED), ""),
        (d.SetJobState(10.0, "waits", JobState.OMITTED), ""),
        (d.SetJobState(10.0, "waits", JobState.KILLED), ""),
        (d.SetJobState(10.0, "waits", JobState.WAITING), "state"),
        (d.SetJobState(10.0, "runs", JobState.SUCCEEDED), ""),
        (d.SetJobState(10.0, "runs", JobState.RUNNING), ""),
        (d.SetJobState(10.0, "runs", JobState.STARTING), "state"),
        (d.SetJobState(10.0, "runs", JobState.REFUSED), "job in the wrong state"),
        (d.SetJobState(10.0, "runs", JobState.OMITTED), "job in the wrong state"),
        (d.SetJobState(10.0, "ended", JobState.SUCCEEDED), "job in the wrong state"),
        (d.SetJobState(10.0, "nobody", JobState.SUCCEEDED), "unknown job"),
    ],
    ids=str,
)
def test_what_each_rule_lets_pass(decision: d.Decision, rule: str) -> None:
    """One job waits, one runs on 0-1, one has ended, one was withdrawn."""
    c = cluster(Job("runs", 2), Job("ended", 1), Job("gone", 1), Job("waits", 1))
    c.start(c.waiting["runs"])
    c.start(c.waiting["ended"])
    c.observe(e.JobEnded(10.0, "ended", JobState.FAILED, 1, c.running["ended"].units))
    c.observe(e.JobWithdrawn(10.0, "gone"))
    assert refusal(c, decision).partition(":")[0] == rule


@pytest.mark.parametrize("dynamic", [True, False])
def test_registrations_go_on_only_where_they_were_possible(dynamic: bool) -> None:
    c = cluster(dynamic_registration=dynamic)

    def possible(name: str) -> bool:
        profile, job = d.RegisterProfile(10.0, Profile(name, Delay(1.0))), d.RegisterJob(10.0, Job(name, 1))
        rules = [refusal(c, decision).partition(":")[0] for decision in (profile, job)]
        assert rules in (["", ""], ["registration", "registration"])
        return not rules[0]

    assert possible("a") is dynamic
    assert refusal(c, d.FinishRegistration(10.0)) == ""
    assert not possible("b")
    assert refusal(c, d.ResumeRegistration(10.0)) == ""
    assert possible("c") is dynamic


def test_a_registered_job_waits_at_once_where_no_event_tells_of_it() -> None:
    for acknowledged in (True, False):
        c = cluster(dynamic_registration=True, acknowledge_registration=acknowledged)
        assert refusal(c, d.RegisterJob(10.0, Job("none", 0))) == ""
        assert refusal(c, d.RegisterJob(10.0, Job("less", -1))) == "wrong count: job less asks for -1 units"
        assert ("none" in c.waiting) is not acknowledged


def test_what_a_world_cannot_do_is_refused_whatever_the_rules_say() -> None:
    c = cluster(Job("a", 1), survives_refusals=True, cannot=frozenset([d.KillJobs, d.Annotate]))
    assert c.refused is not None
    c.book(d.Annotate(10.0, "a", {}))
    c.book(d.KillJobs(10.0, ("a",)))
    c.book(d.SetMetadata(10.0, "a", "x"))
    assert [type(decision) for decision in c.take_decisions()] == [d.SetMetadata]
    assert c.refused.take_warnings() == [
        "refused a Annotate: tester: not in this world: this world cannot annotate jobs",
        "refused a KillJobs: tester: not in this world: this world cannot kill jobs",
    ]

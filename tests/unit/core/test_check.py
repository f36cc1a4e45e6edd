"""Every rule about orders refuses what it must, names itself, and leaves nothing half applied."""

from typing import get_args

import msgspec
import pytest

from pilothouse.core.check import RULES
from pilothouse.core.cluster import Cluster
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import DecisionError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, HomogeneousTask, ParallelTask, Profile, Spec


def cluster(**options: object) -> Cluster:
    """Four units; jobs a (running on 0-1), b (waiting, 2 units), c (ended), rejected."""
    begins = e.Begins(nodes=tuple(Node(f"h{i}", i) for i in range(4)), **options)  # type: ignore[arg-type]
    made = Cluster(begins, "tester")
    made.now = 10.0
    for name in ("a", "b", "c", "rejected"):
        made.observe(e.JobSubmitted(0.0, Job(name, 2)))
    made.book(d.RejectJob(10.0, "rejected"))
    made.book(d.StartJob(10.0, "a", IdSet.parse("0-1")))
    made.book(d.StartJob(10.0, "c", IdSet.parse("2-3")))
    made.observe(e.JobEnded(10.0, "c", JobState.SUCCEEDED, 0, IdSet.parse("2-3")))
    made.take_decisions()
    return made


def snapshot(c: Cluster) -> tuple[object, ...]:
    return (list(c.waiting), list(c.running), dict(c.final), c.free_mask, c.busy_mask, c.off_mask, len(c.decisions))


WRONG = [
    ("unknown job", d.StartJob(10, "nope", IdSet.parse("2-3"))),
    ("job in the wrong state", d.StartJob(10, "a", IdSet.parse("2-3"))),
    ("job in the wrong state", d.StartJob(10, "c", IdSet.parse("2-3"))),
    ("unit already in use", d.StartJob(10, "b", IdSet.parse("1-2"))),
    ("unknown unit", d.StartJob(10, "b", IdSet.parse("3-4"))),
    ("wrong count", d.StartJob(10, "b", IdSet.parse("2"))),
    ("empty allocation", d.StartJob(10, "b", IdSet())),
    ("wrong mapping", d.StartJob(10, "b", IdSet.parse("2-3"), d.Placement(mapping=(0, 2)))),
    ("unknown job", d.RejectJob(10, "nope")),
    ("job in the wrong state", d.RejectJob(10, "a")),
    ("nothing to confirm", d.ConfirmWithdrawal(10, "b")),
    ("empty list", d.KillJobs(10, ())),
    ("job in the wrong state", d.KillJobs(10, ("a", "b"))),
    ("job in the wrong state", d.KillJobs(10, ("rejected",))),
    ("unknown job", d.KillJobs(10, ("nope",))),
    ("call in the past", d.CallAt(10, 9.0)),
    ("call in the past", d.CallAt(10, float("nan"))),
    ("period", d.CallEvery(10, 0.0, "x")),
    ("registration", d.RegisterJob(10, Job("new", 1))),
    ("registration", d.RegisterProfile(10, Profile("p", Delay(1.0)))),
    ("unknown unit", d.SetPowerState(10, IdSet.parse("9"), 1)),
    ("empty set", d.SetPowerState(10, IdSet(), 1)),
    ("unit already in use", d.SwitchUnits(10, IdSet.parse("0"), 1)),
    ("unknown job", d.SetMetadata(10, "nope", "x")),
    ("unknown job", d.Annotate(10, "nope", {})),
    ("unknown job", d.SendToJob(10, "nope", "x")),
    ("job in the wrong state", d.SetJobState(10, "c", JobState.FAILED)),
    ("state", d.SetJobState(10, "b", JobState.HELD)),
]


@pytest.mark.parametrize(
    ("rule", "order"), WRONG, ids=lambda value: value if isinstance(value, str) else type(value).__name__
)
def test_a_wrong_order_is_refused_by_its_rule_and_changes_nothing(rule: str, order: d.Decision) -> None:
    c = cluster()
    before = snapshot(c)
    with pytest.raises(DecisionError) as refused:
        c.book(order)
    assert refused.value.rule == rule
    assert str(refused.value).startswith("tester: decision 0 refused")
    assert "\n" not in str(refused.value)
    assert snapshot(c) == before


def test_a_job_that_has_completed_may_be_killed() -> None:
    """It may have completed before its kill: Batsim's protocol, KILL_JOB."""
    c = cluster()
    c.book(d.KillJobs(10, ("a", "c")))
    assert c.take_decisions() == [d.KillJobs(10, ("a", "c"))]


def test_units_are_counted_where_a_placement_maps_no_executors() -> None:
    c = cluster()
    with pytest.raises(DecisionError) as refused:
        c.book(d.StartJob(10.0, "b", IdSet.parse("2"), d.Placement()))
    assert refused.value.rule == "wrong count"
    c.book(d.StartJob(10.0, "b", IdSet.parse("2-3"), d.Placement()))


def test_a_call_that_is_alive_keeps_its_id() -> None:
    c = cluster()
    c.book(d.CallEvery(10.0, 5.0, "x"))
    with pytest.raises(DecisionError) as refused:
        c.book(d.CallEvery(10.0, 5.0, "x"))
    assert refused.value.rule == "call id in use"
    c.book(d.CallEvery(10.0, 5.0, "y"))


def test_the_table_of_rules_is_total() -> None:
    assert set(RULES) == set(get_args(d.Decision))


def test_units_that_are_not_available_run_nothing() -> None:
    c = cluster()
    c.observe(e.UnitsUnavailable(10.0, IdSet.parse("3")))
    with pytest.raises(DecisionError, match="unit not available"):
        c.book(d.StartJob(10, "b", IdSet.parse("2-3")))
    c.observe(e.UnitsAvailable(10.0, IdSet.parse("3")))
    c.book(d.StartJob(10, "b", IdSet.parse("2-3")))
    assert c.free == 0


def test_sharing_allows_units_in_use() -> None:
    c = cluster(compute_sharing=True)
    c.book(d.StartJob(10, "b", IdSet.parse("1-2")))
    assert c.free_units == IdSet.parse("3")
    c.observe(e.JobEnded(11, "a", JobState.SUCCEEDED, 0, IdSet.parse("0-1")))
    assert c.free_units == IdSet.parse("0 3")


def test_a_repeated_registration_is_refused() -> None:
    c = cluster(dynamic_registration=True)
    with pytest.raises(DecisionError, match="duplicate job"):
        c.book(d.RegisterJob(10, Job("b", 1)))
    c.book(d.RegisterJob(10, Job("new", 1)))
    c.book(d.FinishRegistration(10))
    with pytest.raises(DecisionError, match="registration"):
        c.book(d.RegisterJob(10, Job("newer", 1)))


def test_orders_of_a_mapping_count_executors_not_units() -> None:
    c = cluster()
    c.book(d.StartJob(10, "b", IdSet.parse("2"), d.Placement(mapping=(0, 0))))
    assert c.running["b"].units == IdSet.parse("2")


def test_events_and_decisions_are_all_structs() -> None:
    for kind in (*get_args(e.Event), *get_args(d.Decision)):
        assert issubclass(kind, msgspec.Struct)
        assert "at" in kind.__struct_fields__


@pytest.mark.parametrize("spec", [Delay(0.0), Delay(-1.0), HomogeneousTask(-1.0, 0.0), ParallelTask((1.0,), (0.0,) * 3)])
def test_registered_profiles_must_have_sensible_amounts(spec: Spec) -> None:
    c = cluster(dynamic_registration=True)
    c.book(d.RegisterProfile(10, Profile("good", Delay(1.0))))
    with pytest.raises(DecisionError) as refused:
        c.book(d.RegisterProfile(10, Profile("bad", spec)))
    assert refused.value.rule == "profile" and "bad" in str(refused.value)

"""Events and decisions, translated to batprotocol and back: they come back the same."""

from __future__ import annotations

from math import inf

import pytest

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model import profile as p
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState
from pilothouse.protocols.batprotocol import messages as m
from pilothouse.protocols.batprotocol.decisions import DecisionReader, write_decision
from pilothouse.protocols.batprotocol.events import EventReader, EventWriter
from pilothouse.protocols.batprotocol.hello import read_hello, read_wants, write_hello
from pilothouse.protocols.batprotocol.jobs import read_profile, write_profile
from pilothouse.protocols.batprotocol.wire import Malformed

PROFILE = p.Profile("w0!p", p.Delay(5.0))
JOB = Job("w0!1", 4, 100.0, 2.0, PROFILE, extra_data='{"a":1}')
SPECS: list[p.Spec] = [
    p.Delay(3.5),
    p.ParallelTask((1.0, 2.0), (0.0, 5.0, 6.0, 0.0)),
    p.ParallelTask((1.0, 2.0), ()),
    p.ParallelTask((), (0.0, 5.0, 6.0, 0.0)),
    p.HomogeneousTask(1e9, 1e6),
    p.HomogeneousTask(1e9, 1e6, p.Spread.UNIFORM),
    p.StorageTask(1.0, 2.0, "pfs0", p.Spread.UNIFORM),
    p.StagingTask(7.0, "a", "b"),
    p.Sequence(("w0!a", "w0!b"), 3),
    p.ForkJoin(("w0!a",)),
    p.Merge(("w0!a", "w0!b")),
    p.TraceReplay(p.TraceKind.SMPI, "/t"),
    p.TraceReplay(p.TraceKind.USAGE, "/t"),
]
DECISIONS: list[d.Decision] = [
    d.StartJob(1.0, "w0!1", IdSet.parse("0-3 7"), d.Placement(d.Strategy.SPREAD)),
    d.StartJob(1.0, "w0!1", IdSet.parse("0"), d.Placement(d.Strategy.FILL), storage={"pfs": 9}),
    d.StartJob(
        1.0,
        "w0!1",
        IdSet.parse("2 4"),
        d.Placement(mapping=(0, 1, 1, 0)),
        {"w0!p": d.PartPlacement(IdSet.parse("2"), d.Placement(mapping=(0,)))},
    ),
    d.RejectJob(1.0, "w0!1"),
    d.KillJobs(1.0, ("w0!1", "w0!2")),
    d.CallAt(1.0, 10.0, "c"),
    d.CallAt(1.0, 10.25, "c"),
    d.CallEvery(1.0, 5.0, "c", 3),
    d.CallEvery(1.0, 0.5, "c"),
    d.StopCalls(1.0, "c"),
    d.FinishRegistration(1.0),
    d.SetPowerState(1.0, IdSet.parse("1-2"), 3),
    d.SwitchUnits(1.0, IdSet.parse("1-2"), 3),
    d.CreateProbe(1.0, "p", d.Metric.POWER, IdSet.parse("0-2"), period=2.0, count=3, accumulate=d.Cumulative.SUM),
    d.CreateProbe(
        1.0,
        "p",
        d.Metric.NETWORK_LOAD,
        links=("l1",),
        when=4.0,
        accumulate=d.Cumulative.MAXIMUM,
        reset_to=0.5,
        per_second=True,
        aggregation=d.Aggregation.QUANTILE,
        quantile=0.9,
        temporal="moving",
        only_if=d.Comparison.LESS,
        threshold=2.0,
    ),
    d.CreateProbe(1.0, "p", d.Metric.POWER, IdSet.parse("0"), aggregation=d.Aggregation.MEAN, temporal="window"),
    d.TriggerProbe(1.0, "p", False),
    d.ResetProbe(1.0, "p", 2.0),
    d.StopProbe(1.0, "p"),
    d.StopWorld(1.0),
]
EVENTS: list[e.Event] = [
    e.Ended(1.0),
    e.JobEnded(1.0, "w0!1", JobState.TIMED_OUT, -1, IdSet.parse("0-3")),
    e.JobsKilled(1.0, ("w0!1", "w0!2"), {"w0!1": e.Progress("w0!p", 0.25)}),
    e.JobsKilled(1.0, ("w0!1",), {"w0!1": e.Progress("w0!s", 0.0, 2, 1, (e.Progress("w0!p", 0.5),))}),
    e.JobsKilled(1.0, ("a",), {"a": e.Progress("f", parts=(e.Progress("x", 0.5), e.Progress("y", 0.75)))}),
    e.CallArrived(1.0, "c", True),
    e.CallArrived(1.0, "every", False),
    e.CallArrived(1.0, "every", True),
    e.NoMoreJobs(1.0),
    e.NoMoreExternalEvents(1.0),
    e.ExternalEvent(1.0, "ee0!1", "generic", "data"),
    e.PowerStateChanged(1.0, IdSet.parse("0 2"), 1),
    e.UnitsSwitched(1.0, IdSet.parse("0 2"), 13),
    e.ProbeData(1.0, "p", (1.0, 2.0), aggregated=False),
    e.ProbeData(1.0, "p", (3.0,), aggregated=True, triggered_by_hand=True, emitted=4, triggered=5),
]


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda decision: type(decision).__name__)
def test_decisions_come_back(decision: d.Decision) -> None:
    assert DecisionReader().read(write_decision(decision), 1.0) == decision


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_come_back(event: e.Event) -> None:
    out, back = EventWriter(d.Wants()), EventReader()
    for side in (out, back):
        side.note(d.CallEvery(0.0, 1.0, "every"))
    out.note(d.CreateProbe(0.0, "p", d.Metric.POWER, IdSet.parse("0-1")))
    back.note(d.StartJob(0.0, "w0!1", IdSet.parse("0-3")))
    assert back.read(out.write(event), 1.0) == event


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: type(spec).__name__)
def test_profiles_come_back(spec: p.Spec) -> None:
    found = read_profile(write_profile(p.Profile("w0!p", spec, extra_data="x")))
    assert (found.name, found.spec, found.extra_data) == ("w0!p", spec, "x")


def test_a_profile_without_a_word_for_it_is_refused() -> None:
    with pytest.raises(Malformed, match="no word for ReceiveMessage"):
        write_profile(p.Profile("w0!p", p.ReceiveMessage()))


def test_submission_with_and_without_its_profile() -> None:
    for forward in (False, True):
        event = EventWriter(d.Wants(forward_profiles=forward)).write(e.JobSubmitted(1.0, JOB))
        assert isinstance(event, m.JobSubmittedEvent)
        assert (event.profile is not None) == forward
        back = EventReader()
        if not forward:
            back.profiles["w0!p"] = PROFILE
        found = back.read(event, 1.0)
        assert isinstance(found, e.JobSubmitted)
        job = found.job
        assert (job.id, job.units, job.walltime, job.submitted_at, job.extra_data) == ("w0!1", 4, 100.0, 2.0, '{"a":1}')
        assert job.profile is not None and job.profile.spec == PROFILE.spec


def test_a_job_without_walltime() -> None:
    event = EventWriter(d.Wants()).write(e.JobSubmitted(1.0, Job("w0!1", 1, profile=PROFILE)))
    assert isinstance(event, m.JobSubmittedEvent) and event.job.walltime is None
    found = EventReader().read(event, 1.0)
    assert isinstance(found, e.JobSubmitted) and found.job.walltime == inf


def test_jobs_that_were_killed_with_their_own_profiles() -> None:
    out = EventWriter(d.Wants(forward_profiles_on_kill=True))
    whole = p.Profile("w0!s", p.Sequence(("w0!p", "w0!p")))
    for name, profile in (("w0!1", whole), ("w0!2", whole), ("w0!3", PROFILE)):
        out.write(e.JobSubmitted(0.0, Job(name, 1, profile=profile)))
    killed = {name: e.Progress("w0!s", 0.5) for name in ("w0!1", "w0!2")}
    event = out.write(e.JobsKilled(1.0, ("w0!1", "w0!2", "w0!3"), killed))
    assert isinstance(event, m.JobsKilledEvent) and event.profiles is not None
    assert [profile.id for profile in event.profiles] == ["w0!s"]


def test_registered_job_names_a_profile_of_its_workload() -> None:
    reader = DecisionReader({"dyn!p": PROFILE})
    for name in ("p", "dyn!p"):
        found = reader.read(m.RegisterJobEvent("dyn!1", m.Job(resource_request=2, profile_id=name)), 1.0)
        assert isinstance(found, d.RegisterJob) and found.job.profile is PROFILE and found.job.walltime == inf
    found = reader.read(m.RegisterJobEvent("dyn!1", m.Job(resource_request=2, profile_id="other!p")), 1.0)
    assert isinstance(found, d.RegisterJob) and found.job.profile is None


def test_a_registered_profile_can_be_named_at_once() -> None:
    reader = DecisionReader()
    reader.read(m.RegisterProfileEvent(write_profile(PROFILE)), 1.0)
    found = reader.read(m.RegisterJobEvent("w0!9", m.Job(resource_request=2, profile_id="w0!p")), 1.0)
    assert isinstance(found, d.RegisterJob) and found.job.profile is not None


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        (m.SimulationEndsEvent(), "SimulationEndsEvent is not a decision"),
        (None, "is not a decision"),
        (m.TurnOnOffHostsEvent("3-1", 0), "runs backwards"),
        (m.ChangeHostsPStateEvent("a-b", 0), "not a set of ids"),
        (m.ChangeHostsPStateEvent("0-99999999", 0), "above"),
        (m.CallMeLaterEvent("c", m.Periodic(0, mode=m.Infinite())), "period 0"),
        (m.CallMeLaterEvent("c", m.Periodic(5, 1, mode=m.Infinite())), "offset 1"),
        (m.CallMeLaterEvent("c", m.Periodic(5, mode=m.FinitePeriodNumber(0))), "nb_periods 0"),
        (m.CallMeLaterEvent("c", m.Periodic(5)), "without mode"),
        (m.RegisterProfileEvent(), "no profile"),
    ],
)
def test_decisions_that_make_no_sense(event: m.Event | None, problem: str) -> None:
    with pytest.raises(Malformed, match=problem):
        DecisionReader().read(event, 1.0)


def test_decisions_without_a_word_are_left_out_only_if_nothing_is_lost() -> None:
    assert write_decision(d.Annotate(0.0, "a", {})) is None
    with pytest.raises(Malformed, match="no word for SendToJob"):
        write_decision(d.SendToJob(0.0, "a", "hello"))


def test_events_without_a_word_are_told_to_who_wants_unknown_events() -> None:
    change = e.UnitsUnavailable(1.0, IdSet.parse("0-1"))
    assert EventWriter(d.Wants()).write(change) is None
    event = EventWriter(d.Wants(forward_unknown_events=True)).write(change)
    assert isinstance(event, m.ExternalEventOccurredEvent) and event.external_event is not None
    assert event.external_event.data == '{"type":"UnitsUnavailable","units":"0-1"}'


def test_nodes_of_several_units_are_several_hosts() -> None:
    begins = e.Begins((Node("n0", 0, 2), Node("n1", 2, 2)), storage=(Node("s", 4),))
    event = EventWriter(d.Wants()).write_begins(begins)
    assert event.computation_hosts is not None
    assert [(host.id, host.name) for host in event.computation_hosts] == [(0, "n0:0"), (1, "n0:1"), (2, "n1:0"), (3, "n1:1")]
    assert (event.host_number, event.computation_host_number, event.storage_host_number) == (5, 4, 1)


def test_what_batsim_says_of_itself_comes_back() -> None:
    nodes = (Node("a", 0, cores=4, properties={"k": "v"}, zone_properties={"z": "y"}, speeds=(1.0, 2.0), power_state=1),)
    begins = e.Begins(nodes, workloads={"w0": "/w"}, profiles={"w0!p": PROFILE}, external_event_lists={"ee0": "/e"})
    back = EventReader()
    began = back.read(EventWriter(d.Wants(forward_profiles_at_begin=True)).write_begins(begins), 3.0)
    assert back.begins is not None
    assert began == e.Began(3.0, back.begins)
    assert (back.begins.nodes, back.begins.workloads) == (nodes, {"w0": "/w"})
    assert back.begins.profiles["w0!p"].spec == PROFILE.spec
    assert back.begins.external_event_lists == {"ee0": "/e"}


def test_hello_comes_back() -> None:
    for wants in (
        d.Wants(True, False, True, False, True, False, True, True, False, False, False),
        d.Wants(False, True, False, True, False, True, False, False, True, True, False),
        d.Wants(False, True, False, True, False, True, False, False, True, False, True),
    ):
        assert read_wants(read_hello(write_hello("x", "1", wants))) == wants


def test_a_hello_without_constraints_has_those_of_the_schema() -> None:
    wants = read_wants(m.EDCHelloEvent("1", "n", "v"))
    assert (wants.compute_sharing, wants.storage_sharing, wants.exact_count) == (False, True, True)
    with pytest.raises(Malformed, match="sends an EDCHello back to Batsim"):
        read_hello(m.Message(0.0, []))

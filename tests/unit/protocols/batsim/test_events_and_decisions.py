"""Facts become Batsim events and Batsim events decisions, in every dialect; and the same on the scheduler's side."""

from __future__ import annotations

import json
from math import inf
from typing import Any

import pytest
from msgspec import Raw

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import DecisionError, PeerError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, Profile, ReceiveMessage, SendMessage, Sequence, Spec, TraceKind, TraceReplay
from pilothouse.protocols.batsim import codec
from pilothouse.protocols.batsim import messages as wire
from pilothouse.protocols.batsim.decision_reader import DecisionReader
from pilothouse.protocols.batsim.decision_writer import DecisionWriter
from pilothouse.protocols.batsim.event_reader import EventReader, RequestedCalls
from pilothouse.protocols.batsim.event_writer import EventWriter
from pilothouse.protocols.batsim.settings import Dialect, Settings

DELAY = Profile("w0!d", Delay(10.0), source=Raw(b'{"type": "delay", "delay": 10}'))
SEQUENCE = Profile("w0!s", Sequence(("w0!d", "w0!d"), 3), source=Raw(b'{"type": "composed"}'))
JOB = Job("w0!1", 2, 100.0, 5.0, DELAY, source=Raw(b'{"id": 1, "subtime": 5, "res": 2, "profile": "d"}'))


def begins(**more: Any) -> e.Begins:
    nodes = (Node("a", 0), Node("b", 1))
    profiles = {"w0!d": DELAY, "w0!s": SEQUENCE}
    return e.Begins(nodes, workloads={"w0": "/w.json"}, profiles=profiles, **more)


def told(
    *events: e.Event, dialect: Dialect = Dialect.FOUR, config: bytes = b"{}", **more: Any
) -> list[dict[str, Any]]:
    """What a scheduler hears of events after the beginning."""
    writer = EventWriter(Settings.parse(config), dialect)
    writer.events(e.Batch(0.0, [e.Began(0.0, begins(**more))]))
    written = codec.encode(100.0, writer.events(e.Batch(100.0, list(events))))
    return list(json.loads(written)["events"])


def test_a_submission_carries_the_job_and_on_demand_the_profile() -> None:
    (event,) = told(e.JobSubmitted(5.0, JOB))
    assert event["data"] == {"job_id": "w0!1", "job": {"id": "w0!1", "subtime": 5, "res": 2, "profile": "d"}}
    (event,) = told(e.JobSubmitted(5.0, JOB), forward_profiles=True)
    assert event["data"]["profile"] == {"type": "delay", "delay": 10}


def test_a_job_without_source_or_profile_is_made_up() -> None:
    job = Job("x!7", 3, inf, 1.5)
    (event,) = told(e.JobSubmitted(1.5, job), dialect=Dialect.ANY)
    assert event["data"]["job"] == {"id": "x!7", "subtime": 1.5, "res": 3, "profile": "command"}
    assert event["data"]["profile"]["type"] == "delay"


def test_the_profiles_of_killed_jobs_are_told_on_demand() -> None:
    killed = e.JobsKilled(21.0, ("w0!1",), {"w0!1": e.Progress("w0!d", 0.25)})
    (event,) = told(killed, dialect=Dialect.TWO, config=b'{"job_kill": {"forward_profiles": true}}')
    assert event["data"]["job_progress"]["w0!1"] == {
        "profile_name": "d", "profile": {"type": "delay", "delay": 10}, "progress": 0.25
    }  # fmt: skip


def test_ends_kills_and_progress() -> None:
    progress = e.Progress("w0!s", 0.5, 1, 1, (e.Progress("w0!d", 0.25),))
    events = told(
        e.JobEnded(20.0, "w0!1", JobState.TIMED_OUT, -1, IdSet.span(0, 2)),
        e.JobsKilled(21.0, ("w0!1",), {"w0!1": progress}),
    )
    assert events[0]["data"] == {
        "job_id": "w0!1", "job_state": "COMPLETED_WALLTIME_REACHED", "return_code": -1, "alloc": "0-1"
    }  # fmt: skip
    tree = events[1]["data"]["job_progress"]["w0!1"]
    assert tree["profile_name"] == "s" and tree["current_task_index"] == 3
    assert tree["current_task"] == {"profile_name": "d", "progress": 0.25}
    (event,) = told(e.JobsKilled(21.0, ("w0!1",), {"w0!1": progress}), dialect=Dialect.TWO)
    assert event["data"]["job_progress"]["w0!1"]["current_task"] == {"profile": "d", "progress": 0.25}
    (event,) = told(e.JobEnded(20.0, "w0!1", JobState.KILLED, -1, IdSet(), "why"), dialect=Dialect.TWO)
    assert event["data"]["kill_reason"] == "why"


def test_machines_calls_answers_and_messages() -> None:
    events = told(
        e.UnitsUnavailable(1.0, IdSet.span(0, 1)),
        e.UnitsAvailable(2.0, IdSet.span(0, 1)),
        e.UnitsSwitched(3.0, IdSet.span(0, 2), 4),
        e.CallArrived(4.0),
        e.EnergyMeasured(5.0, 12500.0),
        e.JobMessage(6.0, "w0!1", Raw(b'{"x": 1.5}')),
        e.ExternalEvent(7.0, "ee0!0", "storm", '{"type": "storm", "timestamp": 7, "force": 9}'),
        e.EstimateAsked(8.0, Job("p!17", 1, 12.0)),
        e.NoMoreJobs(9.0),
        e.NoMoreExternalEvents(9.0),
    )
    kinds = [(event["type"], event["data"]) for event in events]
    assert kinds == [
        ("NOTIFY", {"type": "event_machine_unavailable", "resources": "0"}),
        ("NOTIFY", {"type": "event_machine_available", "resources": "0"}),
        ("RESOURCE_STATE_CHANGED", {"resources": "0-1", "state": "4"}),
        ("REQUESTED_CALL", {}),
        ("ANSWER", {"consumed_energy": 12500.0}),
        ("FROM_JOB_MSG", {"job_id": "w0!1", "msg": {"x": 1.5}}),
        ("NOTIFY", {"type": "storm", "timestamp": 7, "force": 9}),
        ("QUERY", {"requests": {"estimate_waiting_time": {"job_id": "p!17", "job": {"res": 1, "walltime": 12.0}}}}),
        ("NOTIFY", {"type": "no_more_static_job_to_submit"}),
        ("NOTIFY", {"type": "no_more_external_event_to_occur"}),
    ]


def test_generation_2_is_not_told_what_it_does_not_know() -> None:
    assert told(e.NoMoreJobs(9.0), e.UnitsUnavailable(1.0, IdSet.span(0, 1)), dialect=Dialect.TWO) == []
    assert told(e.NoMoreJobs(9.0), dialect=Dialect.ANY) == []
    assert told(e.NoMoreJobs(9.0), dialect=Dialect.ANY, dynamic_registration=True) == []


def test_who_listens_is_found_out_before_the_end_of_submissions_is_told() -> None:
    def writer() -> EventWriter:
        made = EventWriter(Settings(), Dialect.ANY)
        made.events(e.Batch(0.0, [e.Began(0.0, begins(dynamic_registration=True))]))
        made.events(e.Batch(1.0, [e.JobSubmitted(1.0, JOB)]))
        return made

    no_more, over = e.NoMoreJobs(2.0), e.JobEnded(3.0, JOB.id, JobState.SUCCEEDED, 0, IdSet.span(0, 2))
    unknown, young, old = writer(), writer(), writer()
    assert not unknown.events(e.Batch(2.0, [no_more])) and not unknown.withheld(said=False), "a job is left"
    unknown.events(e.Batch(3.0, [over]))
    assert not unknown.withheld(said=True)
    assert "no_more_static_job_to_submit" in unknown.withheld(said=False) and not unknown.withheld(said=False)
    young.events(e.Batch(2.0, [no_more]))
    young.listener = Dialect.THREE
    assert "no_more_static_job_to_submit" in young.withheld(said=True)
    assert "no_more_static_job_to_submit" in young.events(e.Batch(2.0, [no_more])), "from now on at once"
    old.events(e.Batch(2.0, [no_more, over]))
    old.listener = Dialect.TWO
    assert not old.withheld(said=False) and not old.events(e.Batch(3.0, [no_more]))


@pytest.mark.parametrize(
    ("event", "speaker"),
    [
        ({"type": "REJECT_JOB", "data": {"job_id": "w0!1"}}, None),
        ({"type": "NOTIFY", "data": {"type": "submission_finished"}}, Dialect.TWO),
        ({"type": "NOTIFY", "data": {"type": "registration_finished"}}, Dialect.THREE),
    ],
)
def test_the_words_of_a_scheduler_tell_its_generation(event: dict[str, Any], speaker: Dialect | None) -> None:
    reader = DecisionReader("scheduler", {})
    data = json.dumps({"now": 9, "events": [{"timestamp": 1, **event}]})
    reader.reply(codec.decode_from_scheduler(data.encode()))
    assert reader.speaker is speaker


@pytest.mark.parametrize(
    "spec", [SendMessage(Raw(b'"x"')), ReceiveMessage(), TraceReplay(TraceKind.SMPI, "/traces.txt")]
)
def test_what_cannot_tell_its_progress_has_not_begun_a_part(spec: Spec) -> None:
    """QUIRK of Batsim 4."""
    profiles = {"w0!m": Profile("w0!m", spec)}
    writer = EventWriter(Settings(), Dialect.FOUR)
    writer.events(e.Batch(0.0, [e.Began(0.0, e.Begins((Node("a", 0),), profiles=profiles))]))
    killed = e.JobsKilled(1.0, ("w0!1",), {"w0!1": e.Progress("w0!m", 0.0)})
    told = json.loads(codec.encode(1.0, writer.events(e.Batch(1.0, [killed]))))["events"][0]["data"]
    assert told["job_progress"] == {"w0!1": {"profile_name": "m", "current_task_index": -1}}


def ordered(*events: dict[str, Any]) -> list[d.Decision]:
    reader = DecisionReader("scheduler", {"w0!d": DELAY, "w0!s": SEQUENCE})
    reader.note_units({0: frozenset({3}), 1: frozenset({3})})
    data = json.dumps({"now": 9, "events": [{"timestamp": 1, **event} for event in events]})
    return reader.reply(codec.decode_from_scheduler(data.encode())).decisions


@pytest.mark.parametrize("text", ["7", "3 1 2", "0-3 7", "0,2", "1  2", " 4 ", "[5-6]", "16777216", "007"])
def test_allocations_in_all_their_forms(text: str) -> None:
    (decision,) = ordered({"type": "EXECUTE_JOB", "data": {"job_id": "w0!1", "alloc": text}})
    assert isinstance(decision, d.StartJob) and decision.units == IdSet.parse(text)


def test_orders_are_understood() -> None:
    (decision,) = ordered({"type": "EXECUTE_JOB", "data": {"job_id": "w0!1", "alloc": "2 4-5", "mapping": {"1": 0, "0": "2"}}})
    assert isinstance(decision, d.StartJob) and str(decision.units) == "2 4-5"
    assert decision.placement is not None and decision.placement.mapping == (2, 0)
    (decision,) = ordered({"type": "EXECUTE_JOB", "data": {"job_id": "w0!1", "alloc": "0", "storage_mapping": {"pfs": "9"}}})
    assert isinstance(decision, d.StartJob) and decision.storage == {"pfs": 9}
    assert ordered({"type": "CALL_ME_LATER", "data": {"timestamp": 25.5}}) == [d.CallAt(1.0, 25.5)]
    assert ordered({"type": "NOTIFY", "data": {"type": "registration_finished"}}) == [d.FinishRegistration(1.0)]
    assert ordered({"type": "NOTIFY", "data": {"type": "continue_submission"}}) == [d.ResumeRegistration(1.0)]
    assert ordered({"type": "QUERY", "data": {"requests": {"consumed_energy": {}}}}) == [d.MeasureEnergy(1.0)]


def test_transfers_beside_a_job_are_described_once() -> None:
    def started(**io_job: Any) -> d.Decision:
        data = {"job_id": "w0!1", "alloc": "0-1", "additional_io_job": {"alloc": "0", **io_job}}
        message = json.dumps({"now": 9, "events": [{"timestamp": 1, "type": "EXECUTE_JOB", "data": data}]}).encode()
        reader = DecisionReader("scheduler", {"w0!d": DELAY}, None, Dialect.FOUR)
        return reader.reply(codec.decode_from_scheduler(message)).decisions[0]

    profile = {"type": "parallel_homogeneous", "cpu": 0, "com": 5}
    decision = started(profile_name="io", profile=profile)
    assert isinstance(decision, d.StartJob) and decision.io_job is not None and decision.io_job.name == "w0!io"
    assert decision.overrides == {"w0!io": d.PartPlacement(IdSet.of([0]), d.Placement(mapping=(0,)))}
    decision = started(profile_name="d")
    assert isinstance(decision, d.StartJob) and decision.io_job is DELAY
    with pytest.raises(PeerError, match="there is no profile 'io'"):
        started(profile_name="io")
    with pytest.raises(PeerError, match="there already is a profile 'd'"):
        started(profile_name="d", profile=profile)


def test_registration_brings_its_profile_along() -> None:
    profile = {"type": "delay", "delay": 3}
    job = {"id": "dyn!1", "res": 1, "profile": "three", "walltime": 12}
    first, second = ordered({"type": "SUBMIT_JOB", "data": {"job_id": "dyn!1", "job": job, "profile": profile}})
    assert isinstance(first, d.RegisterProfile) and first.profile.name == "dyn!three"
    assert isinstance(second, d.RegisterJob) and second.job.profile is first.profile
    assert second.job.submitted_at == 1.0 and second.job.walltime == 12


def test_profiles_of_another_generation_are_refused() -> None:
    profile = {"type": "msg_par_hg", "cpu": 1, "com": 2}
    event = {"type": "REGISTER_PROFILE", "data": {"workload_name": "w0", "profile_name": "old", "profile": profile}}
    (decision,) = ordered(event)
    assert isinstance(decision, d.RegisterProfile), "where any generation may speak, all words count"
    data = json.dumps({"now": 9, "events": [{"timestamp": 1, **event}]}).encode()
    with pytest.raises(PeerError, match=r"REGISTER_PROFILE: .*a type of profile that Batsim 4 does not know"):
        DecisionReader("scheduler", {}, None, Dialect.FOUR).reply(codec.decode_from_scheduler(data))


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({}, ""),
        ({"id": "w0!7"}, ""),
        ({"id": 8}, "job w0!7 has another id in its description: 8"),
        ({"id": None}, "job w0!7 has another id in its description: None"),
        ({"subtime": None}, "job w0!7 has no subtime"),
    ],
)
def test_young_generations_want_complete_jobs(changed: dict[str, Any], problem: str) -> None:
    job = {"id": "7", "res": 1, "profile": "d", "subtime": 0} | changed
    event = {"timestamp": 1, "type": "REGISTER_JOB", "data": {"job_id": "w0!7", "job": job}}
    message = codec.decode_from_scheduler(json.dumps({"now": 9, "events": [event]}).encode())
    reader = DecisionReader("scheduler", {"w0!d": DELAY}, None, Dialect.FOUR)
    if not problem:
        assert isinstance(reader.reply(message).decisions[0], d.RegisterJob)
        return
    with pytest.raises(PeerError, match=problem):
        reader.reply(message)
    DecisionReader("scheduler", {"w0!d": DELAY}).reply(message)


def test_power_states_switch_or_are_set() -> None:
    states = [{"type": "SET_RESOURCE_STATE", "data": {"resources": "0-1", "state": state}} for state in ("2", "3", "0", "1")]
    assert [type(decision) for decision in ordered(*states)] == [d.SetPowerState, d.SwitchUnits, d.SwitchUnits, d.SetPowerState]


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        ({"type": "REJECT_JOB", "data": {"job_id": "a!1", "why": "so"}}, "REJECT_JOB: invalid message"),
        ({"type": "KILL_JOB", "data": {"job_ids": ["a!1"], "now": True}}, "KILL_JOB: invalid message"),
        ({"type": "EXECUTE_JOB", "data": {"job_id": "a!1", "alloc": "x-y"}}, "EXECUTE_JOB: not a set of resources: 'x-y'"),
        ({"type": "EXECUTE_JOB", "data": {"job_id": "a!1", "alloc": "0", "mapping": {"1": 0}}}, "executors of a mapping"),
        ({"type": "NOTIFY", "data": {"type": "lunch"}}, "NOTIFY: unknown notification 'lunch'"),
        ({"type": "QUERY", "data": {"requests": {"weather": {}}}}, "QUERY: only consumed_energy can be asked for"),
        ({"type": "ANSWER", "data": {}}, "ANSWER: an answer should hold estimate_waiting_time"),
        ({"type": "SET_RESOURCE_STATE", "data": {"resources": "0", "state": "on"}}, "not the number of a power state: 'on'"),
        ({"type": "SET_JOB_METADATA", "data": {"job_id": "w0!1", "metadata": 'a"b'}}, "should not contain double quotes"),
        ({"type": "CHANGE_JOB_STATE", "data": {"job_id": "w0!1", "job_state": "HAPPY"}}, "unknown job state 'HAPPY'"),
        ({"type": "REGISTER_JOB", "data": {"job_id": "7", "job": {}}}, "should be two parts separated by '!'"),
        ({"type": "REGISTER_JOB", "data": {"job_id": "d!7"}}, "has no description, and Redis is not enabled"),
        ({"type": "REGISTER_JOB", "data": {"job_id": "d!7", "job": {"res": 1}}}, "missing required field `profile`"),
        (
            {"type": "REGISTER_PROFILE", "data": {"workload_name": "d", "profile_name": "p", "profile": {"type": "delay"}}},
            "REGISTER_PROFILE: profile p: field 'delay' is missing",
        ),
    ],
)
def test_orders_that_mean_nothing_are_the_peers_mistake(event: dict[str, Any], problem: str) -> None:
    with pytest.raises(PeerError) as caught:
        ordered(event)
    assert problem in str(caught.value)


# ---- the scheduler's side


def spoken(*decisions: d.Decision, dialect: Dialect = Dialect.FOUR, calls: RequestedCalls | None = None) -> list[dict[str, Any]]:
    events = DecisionWriter(dialect, calls or RequestedCalls()).events(d.Reply(50.0, list(decisions)))
    return list(json.loads(codec.encode_plainly(50.0, events))["events"])


def test_our_orders_are_read_back_as_they_were() -> None:
    decisions: list[d.Decision] = [
        d.StartJob(50.0, "w0!1", IdSet.parse("0-1 7"), d.Placement(mapping=(0, 0, 2))),
        d.RejectJob(50.0, "w0!2"),
        d.KillJobs(50.0, ("w0!3", "w0!4")),
        d.CallAt(50.0, 60.0),
        d.SwitchUnits(50.0, IdSet.span(0, 2), 3),
        d.SetMetadata(50.0, "w0!1", "note"),
        d.SendToJob(50.0, "w0!1", "go"),
        d.MeasureEnergy(50.0),
        d.FinishRegistration(50.0),
        d.AnswerEstimate(50.0, "w0!9", 56.0),
    ]
    data = json.dumps({"now": 50.0, "events": spoken(*decisions)}).encode()
    reader = DecisionReader("scheduler", {})
    reader.note_units({0: frozenset({3})})
    assert reader.reply(codec.decode_from_scheduler(data)) == d.Reply(50.0, decisions)


def test_registrations_have_the_names_of_their_generation() -> None:
    decisions = (d.RegisterProfile(50.0, DELAY), d.RegisterJob(50.0, JOB))
    assert [event["type"] for event in spoken(*decisions)] == ["REGISTER_PROFILE", "REGISTER_JOB"]
    assert [event["type"] for event in spoken(*decisions, dialect=Dialect.TWO)] == ["SUBMIT_PROFILE", "SUBMIT_JOB"]
    assert spoken(*decisions)[1]["data"]["job"] == {"id": "w0!1", "subtime": 5, "res": 2, "profile": "d"}


def test_what_cannot_be_said_is_refused() -> None:
    with pytest.raises(DecisionError, match=r"this world \(batsim\) cannot be stopped by the decider"):
        spoken(d.StopWorld(50.0))


def test_series_of_calls_are_asked_for_one_by_one() -> None:
    calls = RequestedCalls()
    (event,) = spoken(d.CallEvery(50.0, 20.0, "tick", 2), calls=calls)
    assert event["data"] == {"timestamp": 60.0}
    reader = EventReader("Batsim", begins(), None, calls)
    first = reader.batch(wire.Message(60.0, [wire.RequestedCall(60.0)])).events[0]
    assert first == e.CallArrived(60.0, "tick", False)
    events = DecisionWriter(Dialect.FOUR, calls).events(d.Reply(60.0, []))
    assert isinstance(events[0], wire.CallMeLater) and events[0].data.timestamp == 80.0
    assert reader.batch(wire.Message(80.0, [wire.RequestedCall(80.0)])).events == [e.CallArrived(80.0, "tick", True)]


def test_what_a_batsim_tells_is_understood() -> None:
    events: list[e.Event] = [
        e.JobSubmitted(5.0, JOB),
        e.JobEnded(20.0, "w0!1", JobState.SUCCEEDED, 0, IdSet.span(0, 2)),
        e.JobsKilled(21.0, ("w0!1",), {"w0!1": e.Progress("d", 0.25)}),
        e.UnitsUnavailable(22.0, IdSet.span(0, 1)),
        e.UnitsSwitched(23.0, IdSet.span(0, 2), 4),
        e.EnergyMeasured(24.0, 5.0),
        e.NoMoreJobs(25.0),
    ]
    writer = EventWriter(Settings(), Dialect.FOUR)
    data = codec.encode(25.0, writer.events(e.Batch(25.0, events)))
    heard = EventReader("Batsim", begins(), None, RequestedCalls()).batch(codec.decode_from_batsim(data)).events
    assert heard[1:] == events[1:]
    assert isinstance(heard[0], e.JobSubmitted)
    job = heard[0].job
    assert (job.id, job.units, job.walltime, job.submitted_at) == ("w0!1", 2, inf, 5.0)
    assert job.profile is DELAY

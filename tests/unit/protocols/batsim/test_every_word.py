"""Every word of the Batsim protocol, one by one: what is written for a decision or an event, and how it is read again."""

from __future__ import annotations

import json
from math import inf
from typing import Any

import pytest
from msgspec import Raw

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import PeerError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, HomogeneousTask, Profile, Sequence, Spec, Spread
from pilothouse.protocols.batsim import codec
from pilothouse.protocols.batsim.decision_reader import DecisionReader
from pilothouse.protocols.batsim.decision_writer import SOONEST_CALL_S, DecisionWriter
from pilothouse.protocols.batsim.event_reader import EventReader, RequestedCalls
from pilothouse.protocols.batsim.event_writer import EventWriter
from pilothouse.protocols.batsim.settings import Dialect, Settings

DELAY = Profile("w!d", Delay(10.0), source=Raw(b'{"type":"delay","delay":10}'))
IO = Profile("w!io", HomogeneousTask(1.0, 2.0), source=Raw(b'{"type":"parallel_homogeneous","cpu":1,"com":2}'))
IO_JSON = {"type": "parallel_homogeneous", "cpu": 1, "com": 2}
UNITS = IdSet.parse("0-1 5")
START = d.StartJob(5.0, "w!1", UNITS)
NEW = {"workload_name": "w", "profile_name": "n", "profile": {"type": "delay", "delay": 3}}
JOB = Job("w!7", 3, 60.0, 2.5, DELAY)


def own_units(*units: int) -> dict[str, d.PartPlacement]:
    return {"w!io": d.PartPlacement(IdSet.of(units), d.Placement(mapping=tuple(range(len(units)))))}


WRITTEN: list[tuple[d.Decision, str, dict[str, Any]]] = [
    (START, "EXECUTE_JOB", {"job_id": "w!1", "alloc": "0-1 5"}),
    (d.StartJob(5.0, "w!1", UNITS, d.Placement(mapping=(2, 0, 2))), "EXECUTE_JOB",
     {"job_id": "w!1", "alloc": "0-1 5", "mapping": {"0": 2, "1": 0, "2": 2}}),
    (d.StartJob(5.0, "w!1", UNITS, d.Placement()), "EXECUTE_JOB", {"job_id": "w!1", "alloc": "0-1 5"}),
    (d.StartJob(5.0, "w!1", UNITS, storage={"pfs": 9}), "EXECUTE_JOB",
     {"job_id": "w!1", "alloc": "0-1 5", "storage_mapping": {"pfs": 9}}),
    (d.StartJob(5.0, "w!1", UNITS, io_job=IO), "EXECUTE_JOB",
     {"job_id": "w!1", "alloc": "0-1 5", "additional_io_job": {"alloc": "0-1 5", "profile_name": "io", "profile": IO_JSON}}),
    (d.StartJob(5.0, "w!1", UNITS, io_job=IO, overrides=own_units(1, 8)), "EXECUTE_JOB",
     {"job_id": "w!1", "alloc": "0-1 5", "additional_io_job": {"alloc": "1 8", "profile_name": "io", "profile": IO_JSON}}),
    (d.RejectJob(5.0, "w!1", "why"), "REJECT_JOB", {"job_id": "w!1"}),
    (d.KillJobs(5.0, ("w!1", "w!2")), "KILL_JOB", {"job_ids": ["w!1", "w!2"]}),
    (d.CallAt(5.0, 8.5, "c"), "CALL_ME_LATER", {"timestamp": 8.5}),
    (d.CallAt(5.0, 4.0, "c"), "CALL_ME_LATER", {"timestamp": 5.0 + SOONEST_CALL_S}),
    (d.CallEvery(5.0, 3.0, "e", 4), "CALL_ME_LATER", {"timestamp": 6.0}),
    (d.RegisterJob(5.0, JOB), "REGISTER_JOB",
     {"job_id": "w!7", "job": {"id": "w!7", "subtime": 2.5, "res": 3, "walltime": 60.0, "profile": "d"}}),
    (d.RegisterJob(5.0, Job("w!8", 1, inf, 0.0, DELAY, source=Raw(b'{"id":1,"res":1,"profile":"x","mine":[1]}'))), "REGISTER_JOB",
     {"job_id": "w!8", "job": {"subtime": 0.0, "id": "w!8", "res": 1, "profile": "d", "mine": [1]}}),
    (d.RegisterProfile(5.0, IO), "REGISTER_PROFILE", {"workload_name": "w", "profile_name": "io", "profile": IO_JSON}),
    (d.RegisterProfile(5.0, Profile("w!none", Delay(1.0))), "REGISTER_PROFILE",
     {"workload_name": "w", "profile_name": "none", "profile": {}}),
    (d.FinishRegistration(5.0), "NOTIFY", {"type": "registration_finished"}),
    (d.ResumeRegistration(5.0), "NOTIFY", {"type": "continue_registration"}),
    (d.SetPowerState(5.0, UNITS, 2), "SET_RESOURCE_STATE", {"resources": "0-1 5", "state": "2"}),
    (d.SwitchUnits(5.0, UNITS, 3), "SET_RESOURCE_STATE", {"resources": "0-1 5", "state": "3"}),
    (d.SetMetadata(5.0, "w!1", 'a "b"'), "SET_JOB_METADATA", {"job_id": "w!1", "metadata": "a 'b'"}),
    (d.Annotate(5.0, "w!1", {"x": {"y": 1}}), "SET_JOB_METADATA", {"job_id": "w!1", "metadata": "{'x':{'y':1}}"}),
    (d.SetJobState(5.0, "w!1", JobState.KILLED, "so"), "CHANGE_JOB_STATE",
     {"job_id": "w!1", "job_state": "COMPLETED_KILLED", "kill_reason": "so"}),
    (d.MeasureEnergy(5.0), "QUERY", {"requests": {"consumed_energy": {}}}),
    (d.AnswerEstimate(5.0, "w!1", 7.5), "ANSWER", {"estimate_waiting_time": {"job_id": "w!1", "estimated_waiting_time": 7.5}}),
    (d.AnswerEstimate(5.0, "w!1", inf), "ANSWER",
     {"estimate_waiting_time": {"job_id": "w!1", "estimated_waiting_time": 1.7976931348623157e308}}),
    (d.SendToJob(5.0, "w!1", "go"), "TO_JOB_MSG", {"job_id": "w!1", "msg": "go"}),
]  # fmt: skip
OLD_WORDS = {
    "REGISTER_JOB": "SUBMIT_JOB", "REGISTER_PROFILE": "SUBMIT_PROFILE", "registration_finished": "submission_finished",
    "continue_registration": "continue_submission",
}  # fmt: skip


@pytest.mark.parametrize("dialect", [Dialect.TWO, Dialect.THREE, Dialect.FOUR])
def test_every_decision_has_its_words(dialect: Dialect) -> None:
    for decision, name, data in WRITTEN:
        if dialect is Dialect.TWO:
            name = OLD_WORDS.get(name, name)
            data = {key: OLD_WORDS.get(str(value), value) for key, value in data.items()}
        events = DecisionWriter(dialect, RequestedCalls()).events(d.Reply(6.0, [decision]))
        message = json.loads(codec.encode_plainly(6.0, events))
        assert message == {"now": 6.0, "events": [{"type": name, "timestamp": 5.0, "data": data}]}


READ_OTHERWISE: dict[int, list[d.Decision]] = {
    2: [START],
    4: [d.StartJob(5.0, "w!1", UNITS, io_job=IO, overrides=own_units(0, 1, 5))],
    6: [d.RejectJob(5.0, "w!1")],
    8: [d.CallAt(5.0, 8.5)], 9: [d.CallAt(5.0, 5.0 + SOONEST_CALL_S)], 10: [d.CallAt(5.0, 6.0)],
    18: [d.SetPowerState(5.0, UNITS, 3)],
    19: [d.SetMetadata(5.0, "w!1", "a 'b'")], 20: [d.SetMetadata(5.0, "w!1", "{'x':{'y':1}}")],
}  # fmt: skip


def test_every_decision_is_read_as_it_was_written() -> None:
    for number, (decision, name, _) in enumerate(WRITTEN):
        if "REGISTER" in name:
            continue
        events = DecisionWriter(Dialect.FOUR, RequestedCalls()).events(d.Reply(6.0, [decision]))
        reader = DecisionReader("peer", {"w!d": DELAY})
        reply = reader.reply(codec.decode_from_scheduler(codec.encode_plainly(6.0, events)))
        (found,) = reply.decisions
        if isinstance(found, d.StartJob) and found.io_job is not None:
            assert (found.io_job.name, found.io_job.spec) == (IO.name, IO.spec)
            found.io_job = IO
        assert reply == d.Reply(6.0, READ_OTHERWISE.get(number, [decision]))
        assert reader.event_name(0) == name and reader.event_name(1) == ""


def test_events_of_a_reply_are_sorted_by_date_and_series_come_last() -> None:
    calls = RequestedCalls()
    calls.again = [("a", 3.0, 2), ("b", 4.0, 0)]
    writer = DecisionWriter(Dialect.FOUR, calls)
    said = writer.events(d.Reply(9.0, [d.RejectJob(5.0, "w!2"), d.RejectJob(4.0, "w!1"), d.CallAt(9.0, 10.0, "c")]))
    written = json.loads(codec.encode_plainly(9.0, said))["events"]
    assert [(event["timestamp"], event["data"]) for event in written] == [
        (4.0, {"job_id": "w!1"}), (5.0, {"job_id": "w!2"}), (9.0, {"timestamp": 10.0}), (9.0, {"timestamp": 12.0}),
        (9.0, {"timestamp": 12.0}),
    ]  # fmt: skip
    assert calls.again == [] and writer.events(d.Reply(9.0, [])) == []
    assert [calls.arrived(12.0) for _ in range(4)] == [
        e.CallArrived(12.0, "c", True), e.CallArrived(12.0, "a", False), e.CallArrived(12.0, "b", False), e.CallArrived(12.0),
    ]  # fmt: skip
    assert calls.again == [("a", 3.0, 1), ("b", 4.0, 0)]


def test_calls_of_a_series_are_counted() -> None:
    calls = RequestedCalls()
    writer = DecisionWriter(Dialect.FOUR, calls)
    writer.events(d.Reply(0.0, [d.CallEvery(0.0, 2.0, "three", 3), d.CallAt(0.0, 1.0, "once")]))
    heard = [calls.arrived(1.0)]
    for now in (2.0, 4.0, 6.0):
        heard.append(calls.arrived(now))
        writer.events(d.Reply(now, []))
    assert [(call.call_id, call.last) for call in heard] == [("once", True), ("three", False), ("three", False), ("three", True)]
    assert calls.due == []


def test_a_stopped_series_arrives_once_more_and_is_not_asked_for_again() -> None:
    calls = RequestedCalls()
    writer = DecisionWriter(Dialect.FOUR, calls)
    writer.events(d.Reply(0.0, [d.CallEvery(0.0, 2.0, "a", 0), d.CallEvery(0.0, 3.0, "b", 0)]))
    assert writer.events(d.Reply(0.0, [d.StopCalls(0.0, "a")])) == []
    assert calls.arrived(2.0) == e.CallArrived(2.0, "a", True)
    assert calls.arrived(3.0) == e.CallArrived(3.0, "b", False)
    assert calls.again == [("b", 3.0, 0)]
    writer.events(d.Reply(3.0, [d.StopCalls(3.0, "other")]))
    assert calls.due == [(6.0, 3, "b", 3.0, 0)]
    calls.arrived(6.0)
    assert writer.events(d.Reply(6.0, [d.StopCalls(6.0, "b")])) == [], "it waited for its next request"


# ---- what a scheduler may say


def heard(*events: tuple[str, dict[str, Any]], dialect: Dialect = Dialect.ANY, **more: Any) -> list[d.Decision]:
    return reading(DecisionReader("peer", {"w!d": DELAY}, None, dialect, **more), *events)


def reading(reader: DecisionReader, *events: tuple[str, dict[str, Any]]) -> list[d.Decision]:
    written = [{"timestamp": 1, "type": name, "data": data} for name, data in events]
    return reader.reply(codec.decode_from_scheduler(json.dumps({"now": 9, "events": written}).encode())).decisions


def registered(job_id: str = "w!9", **job: Any) -> tuple[str, dict[str, Any]]:
    return "REGISTER_JOB", {"job_id": job_id, "job": {"id": job_id, "res": 1, "profile": "d", "subtime": 0.5, **job}}


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        (("EXECUTE_JOB", {"job_id": "w!1", "alloc": "0", "mapping": {}, "storage_mapping": {}}), "mapping and storage_mapping"),
        (("EXECUTE_JOB", {"job_id": "w!1", "alloc": "0", "mapping": {"0": -1}}), "executors of a mapping should be 0 to 0"),
        (("EXECUTE_JOB", {"job_id": "w!1", "alloc": "0", "mapping": {"0": 0, "2": 0}}), "should be 0 to 1, each once"),
        (("EXECUTE_JOB", {"job_id": "w!1", "alloc": "0", "mapping": {"0": 0, "00": 0}}), ""),
        (("EXECUTE_JOB", {"job_id": "w!1", "alloc": "0", "mapping": {"x": 0}}), "not the number of a resource: 'x'"),
        (("EXECUTE_JOB", {"job_id": "w!1", "alloc": "0", "storage_mapping": {"pfs": "x"}}), "not the number of a resource: 'x'"),
        (("EXECUTE_JOB", {"job_id": "w!1", "alloc": "0", "mapping": {}}), ""),
        (registered("w!1!2"), "should be two parts separated by '!'"),
        (registered("w1"), "should be two parts separated by '!'"),
        (registered(res=-1), "res should be 0 or more, walltime above 0 or -1"),
        (registered(walltime=0), "res should be 0 or more, walltime above 0 or -1"),
        (registered(walltime=-2), "res should be 0 or more, walltime above 0 or -1"),
        (registered(res=0), ""),
        (registered(walltime=0.5), ""),
        (registered(walltime=-1), ""),
        (("QUERY", {"requests": {}}), "it asks for nothing"),
        (("QUERY", {"requests": {"consumed_energy": {}, "weather": {}}}), "it asks for consumed_energy, weather"),
        (("NOTIFY", {}), "unknown notification"),
    ],
)
def test_what_is_refused_and_what_is_not(event: tuple[str, dict[str, Any]], problem: str) -> None:
    if not problem:
        assert len(heard(event)) == 1
        return
    with pytest.raises(PeerError) as caught:
        heard(event)
    assert problem in str(caught.value) and str(caught.value).startswith(f"peer: {event[0]}")


def test_a_registered_job_has_what_was_written() -> None:
    (decision,) = heard(registered(walltime=7.5, res=2))
    assert isinstance(decision, d.RegisterJob) and decision.at == 1.0
    job = decision.job
    assert (job.id, job.units, job.walltime, job.submitted_at, job.profile, job.elastic) == ("w!9", 2, 7.5, 0.5, DELAY, False)
    for walltime in (None, -1):
        (decision,) = heard(registered(walltime=walltime))
        assert isinstance(decision, d.RegisterJob) and decision.job.walltime == inf
    (decision,) = heard(registered(subtime=None, profile="other"))
    assert isinstance(decision, d.RegisterJob) and decision.job.submitted_at == 1.0 and decision.job.profile is None


def test_profiles_are_known_from_the_message_that_registers_them() -> None:
    reader = DecisionReader("peer", {"w!d": DELAY})
    new = ("REGISTER_PROFILE", NEW)
    first, second = reading(reader, new, registered(profile="n"))
    assert isinstance(first, d.RegisterProfile) and isinstance(second, d.RegisterJob)
    assert second.job.profile is first.profile
    assert [reader.event_name(index) for index in range(3)] == ["REGISTER_PROFILE", "REGISTER_JOB", ""]
    event = registered(profile="n")
    event[1]["profile"] = NEW["profile"]
    assert len(reading(reader, event)) == 1, "it is known from the earlier message"
    (again,) = reading(reader, new)
    assert isinstance(again, d.RegisterProfile) and again.profile is not first.profile
    (later,) = reading(reader, registered(profile="n"))
    assert isinstance(later, d.RegisterJob) and later.job.profile is first.profile, "the first one of a name counts"
    event[1]["job"]["profile"] = "o"
    assert [type(decision) for decision in reading(reader, event, event)] == [d.RegisterProfile, d.RegisterJob, d.RegisterJob]
    assert [reader.event_name(index) for index in range(4)] == ["REGISTER_JOB"] * 3 + [""]


def test_where_the_owner_keeps_the_profiles_they_are_forgotten_after_the_message() -> None:
    profiles = {"w!d": DELAY}
    reader = DecisionReader("peer", profiles, keeps_profiles=False)
    new = ("REGISTER_PROFILE", NEW)
    assert isinstance(reading(reader, new, registered(profile="n"))[1].job.profile, Profile)  # type: ignore[union-attr]
    (later,) = reading(reader, registered(profile="n"))
    assert isinstance(later, d.RegisterJob) and later.job.profile is None and profiles == {"w!d": DELAY}


def test_jobs_are_elastic_if_all_their_work_is_divided() -> None:
    total, each = HomogeneousTask(1.0, 0.0, Spread.TOTAL), HomogeneousTask(1.0, 0.0)
    specs: dict[str, Spec] = {"t": total, "e": each, "d": Delay(1.0)}
    specs |= {name: Sequence(("w!t", part), 1) for name, part in (("tt", "w!t"), ("te", "w!e"), ("tx", "w!none"))}
    reader = DecisionReader("peer", {f"w!{name}": Profile(f"w!{name}", spec) for name, spec in specs.items()})
    jobs = [reading(reader, registered(profile=name))[0].job for name in (*specs, "none")]  # type: ignore[union-attr]
    assert [job.elastic for job in jobs] == [True, False, False, True, False, False, False]


@pytest.mark.parametrize(
    ("event", "speaker"),
    [
        (registered(), Dialect.THREE),
        (("SUBMIT_JOB", registered()[1]), Dialect.TWO),
        (("REGISTER_PROFILE", NEW), Dialect.THREE),
        (("SUBMIT_PROFILE", NEW), Dialect.TWO),
        (("NOTIFY", {"type": "submission_finished"}), Dialect.TWO),
        (("NOTIFY", {"type": "continue_submission"}), Dialect.TWO),
        (("NOTIFY", {"type": "registration_finished"}), Dialect.THREE),
        (("NOTIFY", {"type": "continue_registration"}), Dialect.THREE),
        (("CALL_ME_LATER", {"timestamp": 3}), None),
    ],
)
def test_the_generation_of_a_scheduler_shows_in_its_words(event: tuple[str, dict[str, Any]], speaker: Dialect | None) -> None:
    reader = DecisionReader("peer", {"w!d": DELAY})
    reading(reader, ("REJECT_JOB", {"job_id": "w!1"}), event)
    assert reader.speaker is speaker
    for dialect in (Dialect.TWO, Dialect.THREE, Dialect.FOUR):
        known = DecisionReader("peer", {"w!d": DELAY}, None, dialect)
        reading(known, event)
        assert known.speaker is dialect


def test_units_that_sleep_are_switched_and_others_set() -> None:
    reader = DecisionReader("peer", {})
    reader.note_units({0: frozenset({3, 4}), 1: frozenset({3})})
    steps = [("0", 4), ("1", 4), ("0-1", 1), ("0 2", 3), ("2", 1), ("0-1", 0), ("0", 2), ("0-1", 3), ("1", 0), ("0", 1), ("7", 3)]
    said = [reading(reader, ("SET_RESOURCE_STATE", {"resources": units, "state": state}))[0] for units, state in steps]
    expected: list[d.Decision] = [
        (d.SetPowerState if number in (1, 6, 10) else d.SwitchUnits)(1.0, IdSet.parse(units), state)
        for number, (units, state) in enumerate(steps)
    ]
    assert said == expected


# ---- what a Batsim may say


def batch(*events: tuple[str, dict[str, Any]], profiles: dict[str, Profile] | None = None) -> list[e.Event]:
    begins = e.Begins((Node("a", 0),), profiles={"w!d": DELAY} if profiles is None else profiles)
    written = [{"timestamp": 1, "type": name, "data": data} for name, data in events]
    message = codec.decode_from_batsim(json.dumps({"now": 9, "events": written}).encode(), "peer")
    read = EventReader("peer", begins, None, RequestedCalls()).batch(message)
    assert read.now == 9
    return read.events


COMPLETED = {"job_id": "w!1", "job_state": "COMPLETED_FAILED"}
TREE = {"profile_name": "s", "progress": 1, "current_task_index": 2, "current_task": {"profile": "d", "progress": 0.5}}
HEARD: list[tuple[str, dict[str, Any], e.Event]] = [
    ("SIMULATION_ENDS", {}, e.Ended(1.0)),
    ("JOB_COMPLETED", COMPLETED, e.JobEnded(1.0, "w!1", JobState.FAILED, 0, IdSet(), "")),
    ("JOB_COMPLETED", {**COMPLETED, "return_code": 3, "kill_reason": "so", "alloc": "2-3"},
     e.JobEnded(1.0, "w!1", JobState.FAILED, 3, IdSet.of([2, 3]), "so")),
    ("JOB_KILLED", {"job_ids": ["w!1", "w!2"]}, e.JobsKilled(1.0, ("w!1", "w!2"), {})),
    ("JOB_KILLED", {"job_ids": ["w!1"], "job_progress": {"w!1": TREE}},
     e.JobsKilled(1.0, ("w!1",), {"w!1": e.Progress("s", 1.0, index=2, parts=(e.Progress("d", 0.5),))})),
    ("JOB_KILLED", {"job_ids": ["w!1"], "job_progress": {"w!1": {"progress": "x", "current_task_index": "x", "current_task": 3}}},
     e.JobsKilled(1.0, ("w!1",), {"w!1": e.Progress("", 0.0)})),
    ("RESOURCE_STATE_CHANGED", {"resources": "0-1", "state": "3"}, e.UnitsSwitched(1.0, IdSet.of([0, 1]), 3)),
    ("REQUESTED_CALL", {}, e.CallArrived(1.0)),
    ("NOTIFY", {"type": "no_more_static_job_to_submit"}, e.NoMoreJobs(1.0)),
    ("NOTIFY", {"type": "no_more_external_event_to_occur"}, e.NoMoreExternalEvents(1.0)),
    ("NOTIFY", {"type": "event_machine_available", "resources": "4"}, e.UnitsAvailable(1.0, IdSet.of([4]))),
    ("NOTIFY", {"type": "event_machine_unavailable", "resources": "4"}, e.UnitsUnavailable(1.0, IdSet.of([4]))),
    ("NOTIFY", {"type": "event_machine_unavailable"}, e.UnitsUnavailable(1.0, IdSet())),
    ("NOTIFY", {"type": "storm", "x": 1}, e.ExternalEvent(1.0, "", "storm", '{"type":"storm","x":1}')),
    ("ANSWER", {"consumed_energy": 7.5}, e.EnergyMeasured(1.0, 7.5)),
    ("FROM_JOB_MSG", {"job_id": "w!1", "msg": {"x": 1}}, e.JobMessage(1.0, "w!1", Raw(b'{"x": 1}'))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "data", "event"), HEARD, ids=[name for name, _, _ in HEARD])
def test_every_event_of_a_batsim_is_read(name: str, data: dict[str, Any], event: e.Event) -> None:
    assert batch((name, data)) == [event]


def test_submissions_and_questions_are_read_with_their_jobs() -> None:
    delay = {"type": "delay", "delay": 3}

    def job(profile: str, more: dict[str, Any], **written: Any) -> Job:
        description = {"id": "w!5", "res": 2, "profile": profile, **written}
        (event,) = batch(("JOB_SUBMITTED", {"job_id": "w!5", "job": description, **more}))
        assert isinstance(event, e.JobSubmitted) and event.at == 1.0
        return event.job

    assert (job("d", {}).walltime, job("d", {}).submitted_at, job("d", {}).units) == (inf, 1.0, 2)
    assert [job("d", {}, walltime=walltime).walltime for walltime in (-1, 0, 0.5)] == [inf, 0.0, 0.5]
    assert job("d", {"profile": delay}).profile is DELAY, "the known one"
    new = job("n", {"profile": delay}).profile
    assert new is not None and (new.name, new.spec) == ("w!n", Delay(3.0))
    assert job("n", {}).profile is None
    asked = {"estimate_waiting_time": {"job_id": "w!6", "job": {"res": 4, "walltime": 9}}}
    (question,) = batch(("QUERY", {"requests": asked}))
    assert isinstance(question, e.EstimateAsked)
    assert (question.job.id, question.job.units, question.job.walltime) == ("w!6", 4, 9.0)


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("SIMULATION_BEGINS", {}, "sent a second time"),
        ("JOB_COMPLETED", {**COMPLETED, "job_state": "HAPPY"}, "unknown job state 'HAPPY'"),
        ("RESOURCE_STATE_CHANGED", {"resources": "0", "state": "on"}, "not a power state: 'on'"),
        ("ANSWER", {}, "an answer should hold consumed_energy"),
        ("QUERY", {"requests": {}}, "it asks for nothing"),
        ("QUERY", {"requests": {"weather": {}}}, "it asks for weather"),
        ("QUERY", {"requests": {"estimate_waiting_time": {}}}, "job : Object missing required field `res`"),
        ("JOB_SUBMITTED", {"job_id": "w!5"}, "job w!5 has no description, and Redis is not enabled"),
    ],
)
def test_what_a_batsim_may_not_say(name: str, data: dict[str, Any], problem: str) -> None:
    with pytest.raises(PeerError) as caught:
        batch((name, data))
    assert problem in str(caught.value) and str(caught.value).startswith(f"peer: {name}")


# ---- what is written for a scheduler


def writer(dialect: Dialect = Dialect.FOUR, **more: Any) -> EventWriter:
    made = EventWriter(Settings(), dialect)
    profiles = {"w!d": DELAY, "w!s": Profile("w!s", Sequence(("w!d", "w!d", "w!d"), 4))}
    made.events(e.Batch(0.0, [e.Began(0.0, e.Begins((Node("a", 0),), profiles=profiles, **more))]))
    return made


def told(made: EventWriter, *events: e.Event) -> list[dict[str, Any]]:
    return list(json.loads(codec.encode(100.0, made.events(e.Batch(100.0, list(events)))))["events"])


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("forward", [False, True])
@pytest.mark.parametrize("kind", ["known", "unknown", "none"])
def test_which_submissions_carry_a_profile(dialect: Dialect, forward: bool, kind: str) -> None:
    profile = {"known": DELAY, "unknown": IO, "none": None}[kind]
    (event,) = told(writer(dialect, forward_profiles=forward), e.JobSubmitted(2.0, Job("w!1", 1, 5.0, 1.0, profile)))
    carried = {"known": {"type": "delay", "delay": 10}, "unknown": IO_JSON, "none": {"type": "delay", "delay": 1}}[kind]
    needed = forward or (dialect is Dialect.ANY and kind != "known")
    assert event["data"].get("profile") == (carried if needed else None)
    assert event["data"]["job"]["profile"] == {"known": "d", "unknown": "io", "none": "command"}[kind]


def test_what_is_made_up_of_a_job() -> None:
    job = Job("w!1", 2, 5.0, 1.5, DELAY, extra_data="x")
    (event,) = told(writer(), e.JobSubmitted(2.0, job))
    written = {"id": "w!1", "subtime": 1.5, "res": 2, "walltime": 5.0, "profile": "d", "extra_data": "x"}
    assert event == {"timestamp": 2.0, "type": "JOB_SUBMITTED", "data": {"job_id": "w!1", "job": written}}
    (event,) = told(writer(), e.JobSubmitted(2.0, Job("w!1", 2, inf, 1.5, DELAY)))
    assert event["data"]["job"] == {"id": "w!1", "subtime": 1.5, "res": 2, "profile": "d"}
    (event,) = told(writer(), e.EstimateAsked(2.0, Job("w!1", 2, inf)))
    assert event["data"] == {"requests": {"estimate_waiting_time": {"job_id": "w!1", "job": {"res": 2}}}}


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (JobState.TIMED_OUT, "walltime reached"), (JobState.KILLED, "killed by the scheduler"),
        (JobState.LOST, "its node was lost"), (JobState.FAILED, ""), (JobState.SUCCEEDED, ""),
    ],
)  # fmt: skip
def test_generation_2_is_told_why_a_job_ended(state: JobState, reason: str) -> None:
    for dialect in Dialect:
        for given in ("", "the cleaner came"):
            (event,) = told(writer(dialect), e.JobEnded(2.0, "w!1", state, 7, IdSet.of([1]), given))
            expected = None if dialect in (Dialect.THREE, Dialect.FOUR) else given or reason
            assert event["data"].get("kill_reason") == expected
            assert (event["timestamp"], event["data"]["return_code"], event["data"]["alloc"]) == (2.0, 7, "1")


@pytest.mark.parametrize("dialect", Dialect)
def test_how_far_a_killed_job_came(dialect: Dialect) -> None:
    inner = e.Progress("w!d", 0.25)
    trees = {"a": inner, "b": e.Progress("w!s", 0.0, 2, 1, (inner,)), "c": e.Progress("w!none", 0.0, 2, 1, (inner,))}
    (event,) = told(writer(dialect), e.JobsKilled(2.0, ("a", "b", "c"), trees))
    keys = {Dialect.TWO: ["profile"], Dialect.ANY: ["profile", "profile_name"]}.get(dialect, ["profile_name"])
    named = [dict.fromkeys(keys, name) for name in ("d", "s", "none")]
    task = {**named[0], "progress": 0.25}
    found = event["data"]["job_progress"]
    at = trees["b"]
    assert found["a"] == task
    assert found["b"] == {**named[1], "current_task_index": at.repetition * 3 + at.index, "current_task": task}
    assert found["c"] == {**named[2], "current_task_index": at.index, "current_task": task}


@pytest.mark.parametrize(
    ("data", "written"),
    [
        ('{"type": "storm", "force": 9}', {"type": "storm", "force": 9}),
        ('{"force": 9}', {"type": "kind", "data": {"force": 9}}),
        ("[1]", {"type": "kind", "data": [1]}),
        ("no JSON", {"type": "kind", "data": "no JSON"}),
        ("", {"type": "kind", "data": ""}),
    ],
)
def test_external_events_are_passed_on(data: str, written: dict[str, Any]) -> None:
    (event,) = told(writer(), e.ExternalEvent(2.0, "x!0", "kind", data))
    assert event["data"] == written


def test_events_without_a_word_are_left_out_of_a_batch() -> None:
    made = writer()
    assert made.events(e.Batch(1.0, [e.PrioritiesChanged(1.0, {"w!1": 2.0})])) == ""
    events = told(made, e.PrioritiesChanged(1.0, {}), e.CallArrived(1.0), e.WalltimeChanged(1.0, "w!1", 3.0), e.Ended(2.0))
    assert [event["type"] for event in events] == ["REQUESTED_CALL", "SIMULATION_ENDS"]
    silent = writer(Dialect.TWO)
    assert [event["type"] for event in told(silent, e.NoMoreJobs(1.0), e.CallArrived(1.0))] == ["REQUESTED_CALL"]
    (event,) = told(made, e.NodesLeft(3.0, ("a",), IdSet.of([0])))
    assert event["data"] == {"type": "event_machine_unavailable", "resources": "0"}


@pytest.mark.parametrize("registers", [False, True])
@pytest.mark.parametrize("listener", [None, Dialect.TWO, Dialect.THREE])
def test_when_the_end_of_submissions_is_told(registers: bool, listener: Dialect | None) -> None:
    made = writer(Dialect.ANY, dynamic_registration=registers)
    made.events(e.Batch(1.0, [e.JobSubmitted(1.0, Job("w!1", 1))]))
    made.listener = listener
    both = told(made, e.NoMoreJobs(2.0), e.NoMoreExternalEvents(2.0))
    assert len(both) == (2 if listener is Dialect.THREE else 0)
    assert made.withheld(said=False) == "", "a job is left"
    made.events(e.Batch(3.0, [e.JobEnded(3.0, "w!1", JobState.SUCCEEDED, 0, IdSet())]))
    late = made.withheld(said=False)
    assert late.count('"NOTIFY"') == (2 if registers and listener is None else 0)
    made.listener = Dialect.THREE
    assert made.withheld(said=True) == "", "they are told once"

"""The messages that the specification of Batsim 2's protocol prints: read by the end that gets them, written by the other.

Two of them have a comma too many in the text (the message with two EXECUTE_JOB, SUBMIT_JOB with Redis); it is left out.
"""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from pilothouse.core.session import Session
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, Profile, Sequence
from pilothouse.model.record import JobRecord
from pilothouse.protocols.batsim import codec
from pilothouse.protocols.batsim.decider import BatsimDecider
from pilothouse.protocols.batsim.decision_reader import DecisionReader
from pilothouse.protocols.batsim.decision_writer import DecisionWriter
from pilothouse.protocols.batsim.event_reader import EventReader, RequestedCalls, read_begins
from pilothouse.protocols.batsim.event_writer import EventWriter
from pilothouse.protocols.batsim.settings import Dialect, Settings
from pilothouse.worlds.simulated.world import SimulatedWorld
from unit.dropins.batsim4.test_run import Live

TWO_STARTS = """{"now": 1024.24, "events": [
  {"timestamp": 1000, "type": "EXECUTE_JOB", "data": {"job_id": "workload!job_1234", "alloc": "1 2 4-8"}},
  {"timestamp": 1012, "type": "EXECUTE_JOB", "data": {"job_id": "workload!job_1235", "alloc": "12-100"}}]}"""
NOP = '{"now": 1024.24, "events": []}'
BEGINS = """{"now": 0, "events": [{"timestamp": 0, "type": "SIMULATION_BEGINS", "data": {
  "nb_resources": 4, "allow_time_sharing": false,
  "config": {
    "redis": {"enabled": false, "hostname": "127.0.0.1", "port": 6379, "prefix": "default"},
    "job_submission": {"forward_profiles": false, "from_scheduler": {"enabled": false, "acknowledge": true}}},
  "resources_data": [
    {"id": 0, "name": "Bourassa", "state": "idle", "properties": {}},
    {"id": 1, "name": "Fafard", "state": "idle", "properties": {}},
    {"id": 2, "name": "Ginette", "state": "idle", "properties": {}},
    {"id": 3, "name": "Jupiter", "state": "idle", "properties": {}}],
  "workloads": {"26dceb": "/home/mmercier/Projects/batsim/workload_profiles/test_workload_profile.json"}}}]}"""
JOB_JSON = '{"profile": "delay_10s", "res": 1, "id": "dyn!my_new_job", "walltime": 12.0}'
SUBMITTED = '{"timestamp": 10.0, "type": "JOB_SUBMITTED", "data": {"job_id": "dyn!my_new_job", "job": ' + JOB_JSON + "}}"
FORWARDED = SUBMITTED[:-2] + ', "profile":{"type": "delay", "delay": 10}}}'
KILLED = """{"timestamp": 10.0, "type": "JOB_KILLED", "data": {"job_ids": ["w0!1", "w0!2"], "job_progress": {
  "w0!1": {"profile": "my_simple_profile", "progress": 0.52},
  "w0!2": {"profile": "my_sequential_profile", "current_task_index": 3,
           "current_task": {"profile": "my_simple_profile", "progress": 0.52}},
  "w0!3": {"profile": "my_composed_profile", "current_task_index": 2,
           "current_task": {"profile": "my_sequential_profile", "current_task_index": 3,
                            "current_task": {"profile": "my_simple_profile", "progress": 0.52}}}}}}"""
SUBMIT_JOB = (
    '{"timestamp": 10.0, "type": "SUBMIT_JOB", "data": {"job_id": "dyn!my_new_job", "job":' + JOB_JSON
    + ', "profile":{"type": "delay", "delay": 10}}}'
)  # fmt: skip
SUBMIT_PROFILE = """{"timestamp": 10.0, "type": "SUBMIT_PROFILE", "data": {
  "workload_name": "dyn_wl1", "profile_name": "delay_10s", "profile": {"type": "delay", "delay": 10}}}"""

SIMPLE = e.Progress("w0!my_simple_profile", 0.52)
SEQUENTIAL = e.Progress("w0!my_sequential_profile", 0.0, 0, 3, (SIMPLE,))
COMPOSED = e.Progress("w0!my_composed_profile", 0.0, 0, 2, (SEQUENTIAL,))
DELAY = Profile("dyn!delay_10s", Delay(10.0), source=Raw(b'{"type": "delay", "delay": 10}'))
JOB = Job("dyn!my_new_job", 1, 12.0, 10.0, DELAY, source=Raw(JOB_JSON.encode()))

TOLD: dict[str, tuple[str, e.Event]] = {
    "SIMULATION_ENDS": ('{"timestamp": 100.0, "type": "SIMULATION_ENDS", "data": {}}', e.Ended(100.0)),
    "JOB_SUBMITTED": (SUBMITTED, e.JobSubmitted(10.0, JOB)),
    "JOB_SUBMITTED, profiles are forwarded": (FORWARDED, e.JobSubmitted(10.0, JOB)),
    "JOB_COMPLETED": (
        """{"timestamp": 80.087881, "type": "JOB_COMPLETED", "data": {"job_id": "26dceb!4",
            "job_state": "COMPLETED_SUCCESSFULLY", "return_code": 0, "kill_reason": "", "alloc": "0-3"}}""",
        e.JobEnded(80.087881, "26dceb!4", JobState.SUCCEEDED, 0, IdSet.parse("0-3")),
    ),
    "JOB_KILLED": (
        '{"timestamp": 10.0, "type": "JOB_KILLED", "data": {"job_ids": ["w0!1", "w0!2"]}}',
        e.JobsKilled(10.0, ("w0!1", "w0!2"), {}),
    ),
    "JOB_KILLED with progress": (
        KILLED, e.JobsKilled(10.0, ("w0!1", "w0!2"), {"w0!1": SIMPLE, "w0!2": SEQUENTIAL, "w0!3": COMPOSED}),
    ),
    "RESOURCE_STATE_CHANGED": (
        '{"timestamp": 10.0, "type": "RESOURCE_STATE_CHANGED", "data": {"resources": "1 2 3-5", "state": "42"}}',
        e.UnitsSwitched(10.0, IdSet.parse("1-5"), 42),
    ),
    "REQUESTED_CALL": ('{"timestamp": 25.5, "type": "REQUESTED_CALL", "data": {}}', e.CallArrived(25.5)),
    "QUERY": (
        """{"timestamp": 10.0, "type": "QUERY", "data": {"requests": {"estimate_waiting_time": {
            "job_id": "workflow_submitter0!potential_job17", "job": {"res": 1, "walltime": 12.0}}}}}""",
        e.EstimateAsked(10.0, Job("workflow_submitter0!potential_job17", 1, 12.0)),
    ),
    "ANSWER": ('{"timestamp": 10.0, "type": "ANSWER", "data": {"consumed_energy": 12500.0}}', e.EnergyMeasured(10.0, 12500.0)),
}  # fmt: skip
"""What Batsim says."""

SAID: dict[str, tuple[str, list[d.Decision]]] = {
    "QUERY": (
        '{"timestamp": 10.0, "type": "QUERY", "data": {"requests": {"consumed_energy": {}}}}', [d.MeasureEnergy(10.0)]
    ),
    "ANSWER": (
        """{"timestamp": 10.0, "type": "ANSWER", "data": {"estimate_waiting_time": {
            "job_id": "workflow_submitter0!potential_job17", "estimated_waiting_time": 56}}}""",
        [d.AnswerEstimate(10.0, "workflow_submitter0!potential_job17", 56.0)],
    ),
    "REJECT_JOB": (
        '{"timestamp": 10.0, "type": "REJECT_JOB", "data": { "job_id": "w12!45" }}', [d.RejectJob(10.0, "w12!45")]
    ),
    "EXECUTE_JOB": (
        """{"timestamp": 10.0, "type": "EXECUTE_JOB", "data": {"job_id": "w12!45", "alloc": "2-3",
            "mapping": {"0": "0", "1": "0", "2": "1", "3": "1"}}}""",
        [d.StartJob(10.0, "w12!45", IdSet.parse("2-3"), d.Placement(mapping=(0, 0, 1, 1)))],
    ),
    "CALL_ME_LATER": (
        '{"timestamp": 10.0, "type": "CALL_ME_LATER", "data": {"timestamp": 25.5}}', [d.CallAt(10.0, 25.5)]
    ),
    "KILL_JOB": (
        '{"timestamp": 10.0, "type": "KILL_JOB", "data": {"job_ids": ["w0!1", "w0!2"]}}', [d.KillJobs(10.0, ("w0!1", "w0!2"))]
    ),
    "SET_RESOURCE_STATE": (
        '{"timestamp": 10.0, "type": "SET_RESOURCE_STATE", "data": {"resources": "1 2 3-5", "state": "42"}}',
        [d.SetPowerState(10.0, IdSet.parse("1-5"), 42)],
    ),
    "SET_JOB_METADATA": (
        """{"timestamp": 13.0, "type": "SET_JOB_METADATA", "data": {"job_id": "wload!42",
            "metadata": "scheduler-defined string"}}""",
        [d.SetMetadata(13.0, "wload!42", "scheduler-defined string")],
    ),
    "NOTIFY": (
        '{"timestamp": 42.0, "type": "NOTIFY", "data": { "type": "submission_finished" }}', [d.FinishRegistration(42.0)]
    ),
    "CHANGE_JOB_STATE": (
        """{"timestamp": 42.0, "type": "CHANGE_JOB_STATE", "data": {"job_id": "w12!45", "job_state": "COMPLETED_KILLED",
            "kill_reason": "Sub-jobs were killed."}}""",
        [d.SetJobState(42.0, "w12!45", JobState.KILLED, "Sub-jobs were killed.")],
    ),
}  # fmt: skip
"""What a scheduler says."""


def plain(value: Any) -> Any:
    """Sets of hosts are written in one way alone: `1 2 3-5` is `1-5`. Hosts of a mapping may be texts."""
    if isinstance(value, dict):
        return {key: str(IdSet.parse(item)) if key == "resources" else plain(item) for key, item in value.items()}
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def begun(*, forward: bool = False) -> EventWriter:
    sequence = Sequence(("w0!x",) * 9)
    names = ("w0!my_sequential_profile", "w0!my_composed_profile")
    profiles = {"dyn!delay_10s": DELAY, **{name: Profile(name, sequence) for name in names}}
    writer = EventWriter(Settings(), Dialect.TWO)
    writer.events(e.Batch(0.0, [e.Began(0.0, e.Begins((Node("a", 0),), profiles=profiles, forward_profiles=forward))]))
    return writer


@pytest.mark.parametrize("name", TOLD)
def test_what_batsim_says_is_written_and_read(name: str) -> None:
    text, event = TOLD[name]
    written = begun(forward="forwarded" in name).events(e.Batch(100.0, [event]))
    wanted = json.loads(text)
    if name == "JOB_KILLED":
        wanted["data"]["job_progress"] = {}
    assert plain(json.loads(written)) == plain(wanted)
    message = codec.decode_from_batsim(f'{{"now": 100, "events": [{text}]}}'.encode(), "Batsim")
    begins = e.Begins((Node("a", 0),), profiles={"dyn!delay_10s": DELAY})
    (read,) = EventReader("Batsim", begins, None, RequestedCalls()).batch(message).events
    if isinstance(read, e.JobSubmitted):
        assert (read.job.id, read.job.units, read.job.walltime, read.job.profile) == (JOB.id, 1, 12.0, DELAY)
    elif isinstance(read, e.EstimateAsked):
        assert (read.job.id, read.job.units, read.job.walltime) == ("workflow_submitter0!potential_job17", 1, 12.0)
    elif isinstance(read, e.JobsKilled) and read.progress:
        assert read.job_ids == ("w0!1", "w0!2")
        assert read.progress["w0!3"].parts[0].parts[0].done == 0.52
    else:
        assert read == event


@pytest.mark.parametrize("name", SAID)
def test_what_a_scheduler_says_is_read_and_written(name: str) -> None:
    text, decisions = SAID[name]
    message = codec.decode_from_scheduler(f'{{"now": 100, "events": [{text}]}}'.encode(), "scheduler")
    assert DecisionReader("scheduler", {}, dialect=Dialect.TWO).reply(message).decisions == decisions
    written = DecisionWriter(Dialect.TWO, RequestedCalls()).events(d.Reply(100.0, decisions))
    (event,) = json.loads(codec.encode_plainly(100.0, written))["events"]
    wanted = json.loads(text)
    assert {**event, "data": plain(event["data"])} == {**wanted, "data": plain(wanted["data"])}


def test_the_beginning_is_understood_and_written() -> None:
    data = json.loads(BEGINS)["events"][0]["data"]
    found, redis, dialect = read_begins(Raw(json.dumps(data).encode()), "Batsim")
    assert dialect is Dialect.TWO and not redis.enabled
    assert [node.name for node in found.nodes] == ["Bourassa", "Fafard", "Ginette", "Jupiter"]
    assert not found.compute_sharing and not found.dynamic_registration and not found.forward_profiles
    written = EventWriter(Settings(), Dialect.TWO).events(e.Batch(0.0, [e.Began(0.0, found)]))
    assert json.loads(written) == json.loads(BEGINS)["events"][0]


def scheduled(
    tmp_path: Path, jobs: list[Job], units: int, *answers: str, config: bytes = b"{}", deadlocked: bool = False
) -> list[JobRecord]:
    """The n-th message is answered with the n-th text, later ones with nothing."""
    left = list(answers)

    def decide(message: dict[str, Any]) -> bytes:
        return left.pop(0).encode() if left else json.dumps({"now": message["now"], "events": []}).encode()

    done: list[JobRecord] = []
    player = Live(f"ipc://{tmp_path}/s", decide)
    try:
        world = SimulatedWorld(e.Begins((Node("n", 0, units),)), jobs, record=done.append)
        decider = BatsimDecider(f"ipc://{tmp_path}/s", dialect="2", settings=Settings.parse(config), timeout=20)
        outcome = Session(world, decider).run()
    finally:
        player.close()
    assert outcome.deadlocked is deadlocked
    return done


def test_two_jobs_start_as_printed(tmp_path: Path) -> None:
    """They are submitted at 1000; the scheduler is busy until 1024.24."""
    delay = Profile("workload!d", Delay(5.0))
    jobs = [Job(f"workload!job_{i}", units, inf, 1000.0, delay) for i, units in ((1234, 7), (1235, 89))]
    done = scheduled(tmp_path, jobs, 101, '{"now": 0, "events": []}', TWO_STARTS)
    assert [(one.job.id, one.started_at, str(one.units)) for one in done] == [
        ("workload!job_1234", 1000.0, "1-2 4-8"), ("workload!job_1235", 1012.0, "12-100"),
    ]  # fmt: skip


def test_nothing_is_done_as_printed(tmp_path: Path) -> None:
    job = Job("w!1", 1, inf, 1024.24)
    assert scheduled(tmp_path, [job], 1, '{"now": 0, "events": []}', NOP, deadlocked=True) == []


@pytest.mark.parametrize("printed", [SUBMIT_JOB, SUBMIT_PROFILE])
def test_submissions_are_taken_as_printed(tmp_path: Path, printed: str) -> None:
    """The printed job has no `subtime`: it is submitted when it is read."""
    call = '{"timestamp": 0, "type": "CALL_ME_LATER", "data": {"timestamp": 10}}'
    finished = '{"timestamp": 10, "type": "NOTIFY", "data": {"type": "submission_finished"}}'
    events = [printed]
    if printed is SUBMIT_PROFILE:
        events.append(SUBMIT_JOB.replace("dyn!", "dyn_wl1!").replace(', "profile":{"type": "delay", "delay": 10}', ""))
    name = "dyn!my_new_job" if printed is SUBMIT_JOB else "dyn_wl1!my_new_job"
    start = f'{{"timestamp": 10, "type": "EXECUTE_JOB", "data": {{"job_id": "{name}", "alloc": "0"}}}}'
    answers = [f'{{"now": 0, "events": [{call}]}}', f'{{"now": 10, "events": [{",".join([*events, finished])}]}}']
    config = b'{"job_submission": {"from_scheduler": {"enabled": true}}}'
    (done,) = scheduled(tmp_path, [], 1, *answers, f'{{"now": 10, "events": [{start}]}}', config=config)
    assert (done.job.id, done.job.submitted_at, done.started_at, done.ended_at) == (name, 10.0, 10.0, 20.0)

"""Every example that the specification of the Batsim protocol prints, as printed, with the outcome that its text says.

The examples are read from the document in the folder beside the repository. Events to Batsim are answers of a scheduler
over a socket to our simulated world; events to the scheduler are said over a socket to a policy of ours. Only commas at the
end of objects are mended, which no JSON has.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import components
from golden.batsim2_player import Conversation, event, job
from golden.batsim4_player import Player
from pilothouse.core.cluster import Cluster
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.launch import naming
from pilothouse.launch.start_estimates import ask
from pilothouse.model import events as e
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, ParallelTask, Profile
from pilothouse.model.record import JobRecord
from pilothouse.policies.base import Policy
from pilothouse.protocols.batsim.decider import BatsimDecider
from pilothouse.protocols.batsim.settings import Settings
from pilothouse.protocols.batsim.world import BatsimWorld
from pilothouse.protocols.request_socket import RequestChannel
from pilothouse.worlds.simulated.physics.platform import Platform
from pilothouse.worlds.simulated.world import SimulatedWorld

PRINTED = (
    "message", "nop", "query energy", "query estimate", "answer energy", "answer estimate", "begins", "ends",
    "submitted", "submitted with profile", "submitted with redis", "completed", "killed", "killed with progress",
    "resource state changed", "requested call", "reject", "execute with mapping", "call me later", "kill",
    "submit with redis", "submit", "submit profile", "set resource state", "metadata", "notify", "change state",
)  # fmt: skip
"""What the examples are about, in their order in the document."""

Printed = dict[str, Any]
Event = dict[str, Any]


@pytest.fixture(scope="module")
def printed(shared_dir: Path) -> Printed:
    (document,) = (shared_dir / "specs").glob("000_*")
    blocks = re.findall(r"^``` ?json\n(.*?)^```", document.read_text(), re.M | re.S)
    assert len(blocks) == len(PRINTED)
    no_json = [name for name, block in zip(PRINTED, blocks, strict=True) if re.search(r",\s*}", block)]
    assert no_json == ["message", "submit with redis"]
    return {name: json.loads(re.sub(r",(\s*})", r"\1", block)) for name, block in zip(PRINTED, blocks, strict=True)}


# ---- from the scheduler to Batsim


SPEEDS = 44
PLATFORM = f"""<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1"><zone id="z" routing="Full">
<cluster id="c" prefix="h" suffix="" radical="0-100" speed="{",".join(["100f"] * SPEEDS)}" bw="1GBps" lat="0us">
<prop id="watt_per_state" value="{",".join(["10:10:20"] * SPEEDS)}"/></cluster>
</zone></platform>"""


class Simulation:
    """Our simulated world under a scheduler that answers the events of each message: `heard`, `records`."""

    def __init__(
        self,
        folder: Path,
        jobs: list[Job],
        answer: Callable[[Event], list[Event] | Event],
        *,
        energy: bool = False,
        settings: dict[str, Any] | None = None,
    ) -> None:
        (folder / "p.xml").write_text(PLATFORM)
        platform = Platform.named(str(folder / "p.xml"))
        profiles = {one.profile.name: one.profile for one in jobs if one.profile is not None}
        begins = e.Begins(platform.nodes(), energy=energy, profiles=profiles)
        self.heard: list[Event] = []
        self.records: dict[str, JobRecord] = {}
        simulation = self

        class Scheduler(Player):
            def answer(self, prepared: bytes, heard: bytes) -> bytes:
                message = json.loads(heard)
                simulation.heard.append(message)
                said = answer(message)
                if isinstance(said, list):
                    said = {"now": max([message["now"], *(one["timestamp"] for one in said)]), "events": said}
                return json.dumps(said).encode()

        endpoint = f"ipc://{folder}/s"
        scheduler = Scheduler(endpoint, [b""] * 1000)
        written = Settings.parse(json.dumps(settings).encode()) if settings else None
        decider = BatsimDecider(endpoint, dialect="2", settings=written, timeout=20)
        world = SimulatedWorld(begins, jobs, platform=platform, record=self._record)
        try:
            self.outcome = Session(world, decider).run()
        finally:
            scheduler.close()

    def _record(self, record: JobRecord) -> None:
        self.records[record.job.id] = record

    def events(self, kind: str) -> list[Event]:
        return [one for message in self.heard for one in message["events"] if one["type"] == kind]


def when(kind: str, *said: Event) -> Callable[[Event], list[Event]]:
    """Says this at the first event of a kind."""
    left = list(said)

    def answer(message: Event) -> list[Event]:
        if all(one["type"] != kind for one in message["events"]):
            return []
        now_said = left[:]
        left.clear()
        return now_said

    return answer


def delay(name: str, seconds: float, units: int = 1) -> Job:
    return Job(name, units, 1e6, 0.0, Profile(f"{name.partition('!')[0]}!p{seconds:g}", Delay(seconds)))


def started(simulation: Simulation, name: str) -> tuple[float | None, str]:
    record = simulation.records[name]
    return record.started_at, str(record.units)


def test_message_with_two_executions(printed: Printed, tmp_path: Path) -> None:
    """The scheduler is told nothing before the `now` of its answer."""
    answers = iter([[], printed["message"]])
    jobs = [delay("workload!job_1234", 5.0, 7), delay("workload!job_1235", 500.0, 89)]
    ran = Simulation(tmp_path, jobs, lambda message: next(answers, []))
    assert started(ran, "workload!job_1234") == (1000, "1-2 4-8")
    assert started(ran, "workload!job_1235") == (1012, "12-100")
    (first, _) = ran.events("JOB_COMPLETED")
    assert (first["timestamp"], ran.heard[2]["now"]) == (1005, 1024.24)


def test_nop(printed: Printed, tmp_path: Path) -> None:
    late = [event(1024.24, "REJECT_JOB", job_id="w!1")]
    answers = iter([[event(0.0, "CALL_ME_LATER", timestamp=5.0)], printed["nop"], late])
    ran = Simulation(tmp_path, [delay("w!1", 1.0)], lambda message: next(answers, []))
    assert [message["now"] for message in ran.heard[:3]] == pytest.approx([0, 0, 1024.24], abs=1e-5)
    assert ran.heard[2]["events"][0]["timestamp"] == 5.0


def test_query_and_answer_of_energy(printed: Printed, tmp_path: Path) -> None:
    """101 idle hosts of 10 W until 10 s."""
    ran = Simulation(tmp_path, [], when("SIMULATION_BEGINS", printed["query energy"]), energy=True)
    (answer,) = ran.events("ANSWER")
    assert answer["timestamp"] == 10.0 and answer["data"].keys() == printed["answer energy"]["data"].keys()
    assert answer["data"]["consumed_energy"] == pytest.approx(101 * 10 * 10)


def test_query_and_answer_of_a_waiting_time(printed: Printed, tmp_path: Path) -> None:
    """A world of ours asks, and gets what the scheduler estimates."""
    heard: list[Event] = []

    class Scheduler(Player):
        def answer(self, prepared: bytes, said: bytes) -> bytes:
            heard.extend(json.loads(said)["events"])
            answers = [printed["answer estimate"]] if heard[-1]["type"] == "QUERY" else []
            return json.dumps({"now": 10.0, "events": answers}).encode()

    scheduler = Scheduler(f"ipc://{tmp_path}/s", [b""] * 9)
    potential = Job("workflow_submitter0!potential_job17", 1, 12.0)
    begins = e.Begins((Node("h", 0, 4),), started_at=10.0)
    try:
        waits = ask(begins, [], BatsimDecider(f"ipc://{tmp_path}/s", dialect="2", timeout=20), potential)
    finally:
        scheduler.close()
    assert waits == 56
    assert [one["type"] for one in heard] == ["SIMULATION_BEGINS", "QUERY", "SIMULATION_ENDS"]
    assert heard[1] == printed["query estimate"]


def test_reject(printed: Printed, tmp_path: Path) -> None:
    ran = Simulation(tmp_path, [delay("w12!45", 5.0)], when("JOB_SUBMITTED", printed["reject"]))
    assert ran.records["w12!45"].state is JobState.REFUSED and not ran.events("JOB_COMPLETED")


def test_a_rejected_job_is_not_in_the_jobs_trace(printed: Printed, tmp_path: Path) -> None:
    submitted = {"job_id": "w12!45", "job": job("w12!45"), "profile": {"type": "delay", "delay": 2}}
    said = [event(0.0, "SUBMIT_JOB", **submitted), printed["reject"], event(11.0, "NOTIFY", type="submission_finished")]
    platform = Path(__file__).parent.parent / "golden/batsim2/batsim2-platform-plain.xml"
    ran = Conversation(
        tmp_path, [], lambda now, events, name: said if events[0]["type"] == "SIMULATION_BEGINS" else [],
        config={"job_submission": {"from_scheduler": {"enabled": True}}}, platform=platform,
    )  # fmt: skip
    assert (ran.code, ran.rows) == (0, [])


def test_execute_with_mapping(printed: Printed, tmp_path: Path) -> None:
    """Ranks 0 and 1 on host 2, ranks 2 and 3 on host 3, which has 700 flops to do at 100 per second."""
    work = Profile("w12!par", ParallelTask((100.0, 200.0, 300.0, 400.0), (0.0,) * 16))
    ran = Simulation(
        tmp_path, [Job("w12!45", 4, 1e6, 0.0, work)], when("JOB_SUBMITTED", printed["execute with mapping"])
    )
    assert started(ran, "w12!45") == (10.0, "2-3")
    assert ran.events("JOB_COMPLETED")[0]["timestamp"] == pytest.approx(17.0)


def test_call_me_later_and_requested_call(printed: Printed, tmp_path: Path) -> None:
    ran = Simulation(tmp_path, [], when("SIMULATION_BEGINS", printed["call me later"]))
    assert ran.events("REQUESTED_CALL") == [printed["requested call"]]


def test_kill(printed: Printed, tmp_path: Path) -> None:
    """w0!1 ends ordinarily before; one JOB_KILLED tells of both, after the completions."""
    begin = [event(0.0, "EXECUTE_JOB", job_id=f"w0!{number}", alloc=str(number)) for number in (1, 2)]
    answer = when("JOB_SUBMITTED", *begin, printed["kill"])
    ran = Simulation(tmp_path, [delay("w0!1", 5.0), delay("w0!2", 40.0)], answer)
    ends = [(one["data"]["job_id"], one["data"]["job_state"]) for one in ran.events("JOB_COMPLETED")]
    assert ends == [("w0!1", "COMPLETED_SUCCESSFULLY"), ("w0!2", "COMPLETED_KILLED")]
    (killed,) = ran.events("JOB_KILLED")
    assert killed["data"]["job_ids"] == printed["killed"]["data"]["job_ids"]
    assert killed["data"]["job_progress"] == {"w0!2": {"profile": "p40", "progress": pytest.approx(0.25)}}
    assert ran.heard[-1]["events"][-1]["type"] == "SIMULATION_ENDS"


ENABLED = {"job_submission": {"from_scheduler": {"enabled": True}}}
FINISHED = event(42.0, "NOTIFY", type="submission_finished")


@pytest.mark.parametrize("forwards", [False, True])
def test_submit_and_its_acknowledgement(forwards: bool, printed: Printed, tmp_path: Path) -> None:
    settings = {"job_submission": {"forward_profiles": forwards, "from_scheduler": {"enabled": True}}}
    begin = event(10.0, "EXECUTE_JOB", job_id="dyn!my_new_job", alloc="7")
    answers = {"SIMULATION_BEGINS": [printed["submit"]], "JOB_SUBMITTED": [begin, FINISHED]}
    ran = Simulation(tmp_path, [], lambda message: answers.get(message["events"][0]["type"], []), settings=settings)
    acknowledged = printed["submitted with profile" if forwards else "submitted"]
    assert ran.events("JOB_SUBMITTED") == [acknowledged]
    assert started(ran, "dyn!my_new_job") == (10.0, "7")
    assert ran.events("JOB_COMPLETED")[0]["timestamp"] == 20.0, "its profile takes 10 s"


def test_submit_with_redis(printed: Printed, tmp_path: Path, redis_server: components.RedisServer) -> None:
    """The description and the profile are in Redis, and the scheduler put them there."""
    at = {"enabled": True, "hostname": redis_server.host, "port": redis_server.port, "prefix": "printed"}
    with redis.Redis(host=redis_server.host, port=redis_server.port) as client:
        client.set("printed:job_w12!45", json.dumps(job("w12!45", 10.0, "p")))
        client.set("printed:profile_w12!p", json.dumps({"type": "delay", "delay": 3}))
    begin = event(10.0, "EXECUTE_JOB", job_id="w12!45", alloc="7")
    described = event(10.0, "SUBMIT_JOB", job_id="w12!46", job=job("w12!46", 10.0, "p"))  # Batsim 2.0.0 refuses it
    answers = {"SIMULATION_BEGINS": [printed["submit with redis"], described], "JOB_SUBMITTED": [begin, FINISHED]}
    answers["JOB_COMPLETED"] = [event(13.0, "REJECT_JOB", job_id="w12!46")]
    settings = ENABLED | {"redis": at}
    ran = Simulation(tmp_path, [], lambda message: answers.get(message["events"][0]["type"], []), settings=settings)
    assert [one["data"] for one in ran.events("JOB_SUBMITTED")] == [{"job_id": "w12!45"}, {"job_id": "w12!46"}]
    assert ran.events("JOB_COMPLETED")[0]["timestamp"] == 13.0


def test_submit_profile(printed: Printed, tmp_path: Path) -> None:
    submit = event(10.0, "SUBMIT_JOB", job_id="dyn_wl1!1", job=job("dyn_wl1!1", 10.0, "delay_10s"))
    begin = event(10.0, "EXECUTE_JOB", job_id="dyn_wl1!1", alloc="7")
    answers = {"SIMULATION_BEGINS": [printed["submit profile"], submit], "JOB_SUBMITTED": [begin, FINISHED]}
    ran = Simulation(tmp_path, [], lambda message: answers.get(message["events"][0]["type"], []), settings=ENABLED)
    assert ran.events("JOB_COMPLETED")[0]["timestamp"] == 20.0


def test_set_resource_state(printed: Printed, tmp_path: Path) -> None:
    ran = Simulation(tmp_path, [], when("SIMULATION_BEGINS", printed["set resource state"]))
    (changed,) = ran.events("RESOURCE_STATE_CHANGED")
    assert changed == printed["resource state changed"] | {"data": {"resources": "1-5", "state": "42"}}


def test_metadata(printed: Printed, tmp_path: Path) -> None:
    begin = [event(0.0, "EXECUTE_JOB", job_id=f"wload!{name}", alloc=name) for name in ("42", "43")]
    jobs = [delay("wload!42", 20.0), delay("wload!43", 20.0)]
    ran = Simulation(tmp_path, jobs, when("JOB_SUBMITTED", *begin, printed["metadata"]))
    assert ran.records["wload!42"].metadata == printed["metadata"]["data"]["metadata"]
    assert ran.records["wload!43"].metadata == ""


def test_notify_lets_the_run_end(printed: Printed, tmp_path: Path) -> None:
    ran = Simulation(tmp_path, [], when("SIMULATION_BEGINS", printed["notify"]), settings=ENABLED)
    assert not ran.outcome.deadlocked and ran.heard[-1]["events"][0]["type"] == "SIMULATION_ENDS"


def test_change_of_state(printed: Printed, tmp_path: Path) -> None:
    answer = when("JOB_SUBMITTED", event(0.0, "CHANGE_JOB_STATE", job_id="w12!45", job_state="RUNNING"), printed["change state"])
    ran = Simulation(tmp_path, [delay("w12!45", 5.0)], answer)
    record = ran.records["w12!45"]
    assert (record.state, record.started_at, record.ended_at) == (JobState.KILLED, 0.0, 42.0)


@pytest.mark.parametrize("state", ["COMPLETED_SUCCESSFULLY", "COMPLETED_FAILED"])
def test_our_world_also_ends_a_job_that_was_executed(state: str, tmp_path: Path) -> None:
    """The text does not restrict CHANGE_JOB_STATE. Batsim 2.0.0 knows no change to COMPLETED_FAILED."""
    begin = event(0.0, "EXECUTE_JOB", job_id="w!1", alloc="0")
    change = event(2.0, "CHANGE_JOB_STATE", job_id="w!1", job_state=state)
    ran = Simulation(tmp_path, [delay("w!1", 5.0)], when("JOB_SUBMITTED", begin, change))
    record = ran.records["w!1"]
    assert (record.ended_at, record.state.name == "SUCCEEDED") == (2.0, state == "COMPLETED_SUCCESSFULLY")


# ---- from Batsim to the scheduler


class Heard(Policy):
    """First come, first served, and remembers events."""

    def __init__(self) -> None:
        self.events: list[e.Event] = []

    def on_event(self, event: e.Event, cluster: Cluster) -> None:
        self.events.append(event)

    def schedule(self, cluster: Cluster) -> None:
        for waiting in list(cluster.queue):
            cluster.start(waiting)


class Batsim:
    """Says events to a policy of ours, in one message each."""

    def __init__(self, folder: Path, begins: Event, decider: Any = None) -> None:
        self.policy = Heard()
        endpoint = f"ipc://{folder}/s"
        self._channel = RequestChannel(endpoint, "us", timeout_s=20)
        session = Session(BatsimWorld(endpoint, dialect="2"), decider or PolicyDecider(self.policy))
        self.thread = threading.Thread(target=session.run)
        self.thread.start()
        self.send(begins)

    def send(self, message: Event) -> list[Event]:
        answer: list[Event] = json.loads(self._channel.exchange(json.dumps(message).encode()))["events"]
        return answer

    def tell(self, one: Event) -> list[Event]:
        return self.send({"now": one["timestamp"], "events": [one]})

    def end(self, ends: Event) -> None:
        assert self.tell(ends) == []
        self.thread.join(20)
        assert not self.thread.is_alive()
        self._channel.close()


@pytest.fixture
def batsim(printed: Printed, tmp_path: Path) -> Iterator[Batsim]:
    """Has said the printed SIMULATION_BEGINS; says the printed SIMULATION_ENDS, upon which the scheduler ends with a NOP."""
    speaker = Batsim(tmp_path, printed["begins"])
    yield speaker
    speaker.end(printed["ends"])


def executed(events: list[Event]) -> dict[str, str]:
    return {one["data"]["job_id"]: one["data"]["alloc"] for one in events if one["type"] == "EXECUTE_JOB"}


def test_begins_is_understood(batsim: Batsim, printed: Printed) -> None:
    begins = printed["begins"]["events"][0]["data"]
    wide = event(1.0, "JOB_SUBMITTED", job_id="26dceb!1", job=job("26dceb!1", res=begins["nb_resources"]))
    assert executed(batsim.tell(wide)) == {"26dceb!1": "0-3"}


@pytest.mark.parametrize("example", ["submitted", "submitted with profile"])
def test_submitted_is_understood(example: str, batsim: Batsim, printed: Printed) -> None:
    assert executed(batsim.tell(printed[example])) == {"dyn!my_new_job": "0"}


def test_submitted_with_redis_is_understood(
    printed: Printed, tmp_path: Path, redis_server: components.RedisServer
) -> None:
    begins = json.loads(json.dumps(printed["begins"]))
    at = {"enabled": True, "hostname": redis_server.host, "port": redis_server.port, "prefix": "printed"}
    begins["events"][0]["data"]["config"]["redis"] = at
    with redis.Redis(host=redis_server.host, port=redis_server.port) as client:
        client.set("printed:job_w0!1", json.dumps(job("w0!1", 10.0, res=2)))
    speaker = Batsim(tmp_path, begins)
    assert executed(speaker.tell(printed["submitted with redis"])) == {"w0!1": "0-1"}
    speaker.end(printed["ends"])


def test_completed_is_understood(batsim: Batsim, printed: Printed) -> None:
    for name, at in (("26dceb!4", 1.0), ("26dceb!5", 2.0)):
        told = batsim.tell(event(at, "JOB_SUBMITTED", job_id=name, job=job(name, at, res=4)))
        assert executed(told) == ({name: "0-3"} if at == 1.0 else {})
    assert executed(batsim.tell(printed["completed"])) == {"26dceb!5": "0-3"}


def test_killed_is_understood(batsim: Batsim, printed: Printed) -> None:
    batsim.tell(printed["killed"])
    batsim.tell(printed["killed with progress"])
    plain, detailed = (one for one in batsim.policy.events if isinstance(one, e.JobsKilled))
    assert (plain.job_ids, plain.progress) == (("w0!1", "w0!2"), {})
    simple, sequence, composed = (detailed.progress[f"w0!{number}"] for number in (1, 2, 3))
    assert (simple.profile, simple.done) == ("my_simple_profile", 0.52)
    assert (sequence.index, sequence.parts[0].done) == (3, 0.52)
    assert (composed.index, composed.parts[0].index, composed.parts[0].parts[0].done) == (2, 3, 0.52)


def test_other_events_are_understood(batsim: Batsim, printed: Printed) -> None:
    for name in ("resource state changed", "answer energy", "requested call"):
        batsim.tell(printed[name])
    switched, energy, called = batsim.policy.events[-3:]
    assert isinstance(switched, e.UnitsSwitched) and (str(switched.units), switched.power_state) == ("1-5", 42)
    assert isinstance(energy, e.EnergyMeasured) and energy.joules == 12500
    assert isinstance(called, e.CallArrived) and called.at == 25.5


def test_the_estimate_is_answered(printed: Printed, tmp_path: Path) -> None:
    """Two of four hosts would be free: the potential job would wait 0 s. The answer has the printed form."""
    speaker = Batsim(tmp_path, printed["begins"], naming.decider("fcfs"))
    (answer,) = speaker.tell(printed["query estimate"])
    expected = json.loads(json.dumps(printed["answer estimate"]))
    expected["data"]["estimate_waiting_time"]["estimated_waiting_time"] = 0.0
    assert answer == expected
    speaker.end(printed["ends"])

"""`pilothouse batsim2` and the protocol of Batsim 2: what the specification says, and what Batsim 2.0.0 does beside it."""

from __future__ import annotations

import csv
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner

import components
from golden.batsim2_player import Conversation, Decide, Event, event, job, run, stored
from golden.batsim4_player import Player
from pilothouse.cli.batsim2 import command
from pilothouse.cli.simulate import command as simulate
from pilothouse.core.cluster import Cluster
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.launch import naming
from pilothouse.model import decisions as d
from pilothouse.model.errors import InputError
from pilothouse.model.job import Job
from pilothouse.model.profile import Delay, Profile
from pilothouse.policies.base import Policy
from pilothouse.protocols.batsim.world import BatsimWorld
from pilothouse.protocols.request_socket import RequestChannel

PLATFORMS = Path(__file__).parent.parent / "golden/batsim2"
PLAIN, ENERGY = PLATFORMS / "batsim2-platform-plain.xml", PLATFORMS / "batsim2-platform-energy.xml"
DYNAMIC = {"job_submission": {"from_scheduler": {"enabled": True}}}


def starts(then: Decide | None = None) -> Decide:
    """Starts each job when it is submitted, on the host of its turn; `then` decides further."""
    hosts = iter(range(100))

    def decide(now: float, events: list[Event], workload: str) -> list[Event]:
        found = [
            event(now, "EXECUTE_JOB", job_id=one["data"]["job_id"], alloc=str(next(hosts) % 4))
            for one in events
            if one["type"] == "JOB_SUBMITTED"
        ]
        return found + (then(now, events, workload) if then is not None else [])

    return decide


def on(kind: str, *decisions: Event) -> Decide:
    """The decisions when an event of this kind is told; their dates become the present unless they have one, and WL the
    name of the workload."""

    def decide(now: float, events: list[Event], workload: str) -> list[Event]:
        if all(one["type"] != kind for one in events):
            return []
        made: list[Event] = json.loads(json.dumps(decisions).replace("WL!", f"{workload}!"))
        return [one | {"timestamp": now if one["timestamp"] is None else one["timestamp"]} for one in made]

    return decide


def say(kind: str, **data: object) -> Event:
    """A decision of the present."""
    return event(None, kind, **data)  # type: ignore[arg-type]


def converse(folder: Path, jobs: list[dict[str, Any]], decide: Decide, *more: str, **options: Any) -> Conversation:
    return Conversation(folder, jobs, decide, *more, **({"platform": PLAIN} | options))


def refused(folder: Path, *decisions: Event, **options: Any) -> str:
    """What is said to decisions at the beginning of a run with one job."""
    talk = converse(folder, [job("1")], starts(on("SIMULATION_BEGINS", *decisions)), **options)
    assert talk.code == 1 and talk.stderr.count("\n") == 1
    return talk.stderr


# ---- what is told when


def test_jobs_of_one_date_are_grouped_as_they_pile_up(tmp_path: Path) -> None:
    talk = converse(tmp_path, [job(str(number), 1.0) for number in range(5)], starts(), "--allow-time-sharing")
    sizes = [len(kinds) for kinds in talk.kinds if "JOB_SUBMITTED" in kinds]
    assert sizes == [1, 2, 2]
    assert talk.heard[0]["events"][0]["data"]["allow_time_sharing"] is True


def test_the_end_is_told_with_the_last_event_and_calls_are_dropped(tmp_path: Path) -> None:
    calls = on("SIMULATION_BEGINS", say("CALL_ME_LATER", timestamp=1.0), say("CALL_ME_LATER", timestamp=99.0))
    talk = converse(tmp_path, [job("1")], starts(calls))
    assert talk.code == 0
    assert talk.kinds == [
        ["SIMULATION_BEGINS"], ["JOB_SUBMITTED"], ["REQUESTED_CALL"], ["JOB_COMPLETED", "SIMULATION_ENDS"]
    ]  # fmt: skip
    assert talk.heard[-1]["now"] == pytest.approx(2.0)


def test_registration_keeps_a_run_alive_until_it_is_finished(tmp_path: Path) -> None:
    finish = on("REQUESTED_CALL", say("NOTIFY", type="submission_finished"))
    call = on("SIMULATION_BEGINS", say("CALL_ME_LATER", timestamp=50.0))

    def decide(now: float, events: list[Event], workload: str) -> list[Event]:
        return starts()(now, events, workload) + call(now, events, workload) + finish(now, events, workload)

    talk = converse(tmp_path, [job("1")], decide, config=DYNAMIC)
    assert talk.code == 0 and talk.kinds[-2:] == [["REQUESTED_CALL"], ["SIMULATION_ENDS"]]
    assert talk.heard[-1]["now"] == pytest.approx(50.0)


@pytest.mark.parametrize("finished", [[], ["submission_finished", "continue_submission"]])
def test_a_run_whose_registration_is_not_finished_is_a_deadlock(finished: list[str], tmp_path: Path) -> None:
    notes = [say("NOTIFY", type=kind) for kind in finished]
    talk = converse(tmp_path, [job("1")], starts(on("SIMULATION_BEGINS", *notes)), config=DYNAMIC)
    assert talk.code == 1 and "deadlock at 2.000000: registration was never finished" in talk.stderr


# ---- kills


def test_killed_at_the_date_of_its_end_a_job_ends_ordinarily(tmp_path: Path) -> None:
    def decide(now: float, events: list[Event], workload: str) -> list[Event]:
        begun = starts()(now, events, workload)
        return begun and [*begun, event(2.0, "KILL_JOB", job_ids=[f"{workload}!1"])]

    talk = converse(tmp_path, [job("1")], decide)
    assert talk.kinds[-2:] == [["JOB_COMPLETED"], ["JOB_KILLED", "SIMULATION_ENDS"]]
    assert talk.events("JOB_COMPLETED")[0]["data"]["job_state"] == "COMPLETED_SUCCESSFULLY"
    assert talk.events("JOB_KILLED")[0]["data"] == {"job_ids": [f"{talk.workload}!1"], "job_progress": {}}


def test_a_second_kill_is_answered_with_an_empty_list(tmp_path: Path) -> None:
    kill = say("KILL_JOB", job_ids=["WL!1"])
    talk = converse(tmp_path, [job("1"), job("2", 5.0)], starts(on("JOB_COMPLETED", kill, kill)))
    first, second = talk.events("JOB_KILLED")[:2]
    assert first["data"] == {"job_ids": [f"{talk.workload}!1"], "job_progress": {}}
    assert second["data"] == {"job_ids": [], "job_progress": {}}


def test_killed_parallel_jobs_have_the_return_code_of_others(tmp_path: Path) -> None:
    work = {"p": {"type": "msg_par_hg", "cpu": 1000, "com": 0}}
    call = on("SIMULATION_BEGINS", say("CALL_ME_LATER", timestamp=4.0))
    kill = on("REQUESTED_CALL", say("KILL_JOB", job_ids=["WL!1", "WL!2"]))
    begin = starts()

    def decide(now: float, events: list[Event], workload: str) -> list[Event]:
        return begin(now, events, workload) + call(now, events, workload) + kill(now, events, workload)

    talk = converse(tmp_path, [job("1", profile="p"), job("2", profile="d10")], decide, profiles=work)
    ended = {one["data"]["job_id"][-1]: one["data"] for one in talk.events("JOB_COMPLETED")}
    assert [(ended[name]["job_state"], ended[name]["return_code"]) for name in "12"] == [("COMPLETED_KILLED", -1)] * 2
    assert all(data["kill_reason"] for data in ended.values())


# ---- CHANGE_JOB_STATE and files


@pytest.mark.parametrize(
    ("state", "success", "reason"),
    [
        ("COMPLETED_SUCCESSFULLY", "1", ""),
        ("COMPLETED_WALLTIME_REACHED", "0", ""),
        ("COMPLETED_KILLED", "0", "Sub-jobs were killed."),
    ],
)
def test_a_job_that_runs_elsewhere(state: str, success: str, reason: str, tmp_path: Path) -> None:
    def decide(now: float, events: list[Event], workload: str) -> list[Event]:
        if events[0]["type"] != "JOB_SUBMITTED":
            return []
        done = event(now + 3, "CHANGE_JOB_STATE", job_id=f"{workload}!1", job_state=state, kill_reason=reason)
        return [event(now, "CHANGE_JOB_STATE", job_id=f"{workload}!1", job_state="RUNNING"), done]

    talk = converse(tmp_path, [job("1", 1.0)], decide)
    assert talk.code == 0 and talk.kinds == [["SIMULATION_BEGINS"], ["JOB_SUBMITTED"], ["SIMULATION_ENDS"]]
    (row,) = talk.rows
    assert (row["starting_time"], row["finish_time"], row["success"]) == ("1.000000", "4.000000", success)
    assert row["allocated_processors"] == ""


def test_rejected_jobs_have_no_row_and_count(tmp_path: Path) -> None:
    reject = say("REJECT_JOB", job_id="WL!1")
    change = say("CHANGE_JOB_STATE", job_id="WL!2", job_state="REJECTED")
    call = on("SIMULATION_BEGINS", say("CALL_ME_LATER", timestamp=1.0))
    last = on("REQUESTED_CALL", reject, change, say("EXECUTE_JOB", job_id="WL!3", alloc="0"))

    def decide(now: float, events: list[Event], workload: str) -> list[Event]:
        return call(now, events, workload) + last(now, events, workload)

    talk = converse(tmp_path, [job("1"), job("2"), job("3")], decide)
    assert [row["job_id"] for row in talk.rows] == ["3"]
    names, figures = (tmp_path / "out_schedule.csv").read_text().split()
    summary = dict(zip(names.split(","), figures.split(","), strict=True))
    assert (summary["nb_jobs"], summary["nb_jobs_finished"], summary["success_rate"]) == ("3", "1", "0.333333")
    assert "nb_jobs_rejected" not in summary and summary["batsim_version"] == "v2.0.0"


def test_metadata_may_be_set_until_the_end(tmp_path: Path) -> None:
    note = on("SIMULATION_ENDS", say("SET_JOB_METADATA", job_id="WL!1", metadata="late, but there"))
    talk = converse(tmp_path, [job("1"), job("2")], starts(note))
    assert [(row["job_id"], row["metadata"]) for row in talk.rows] == [("1", "late, but there"), ("2", "")]


def test_without_energy_it_is_minus_one_and_states_change_all_the_same(tmp_path: Path) -> None:
    ask = on(
        "SIMULATION_BEGINS",
        say("QUERY", requests={"consumed_energy": {}}),
        say("SET_RESOURCE_STATE", resources="1", state="1"),
    )
    talk = converse(tmp_path, [job("1", 1.0)], starts(ask), platform=ENERGY)
    assert talk.code == 0
    assert talk.events("ANSWER")[0]["data"] == {"consumed_energy": -1}
    assert talk.events("RESOURCE_STATE_CHANGED")[0]["data"] == {"resources": "1", "state": "1"}


# ---- SIMULATION_BEGINS and the configuration


def test_the_configuration_is_told_whole(tmp_path: Path) -> None:
    config = {
        "mine": {"deep": [1, {"x": True}]},
        "redis": {"comment": "off"},
        "job_submission": {"from_scheduler": {"enabled": False, "note": 1}},
    }
    begins = converse(tmp_path, [], starts(), "--redis-prefix", "own", config=config).heard[0]["events"][0]["data"]
    assert begins["config"] == {
        "mine": {"deep": [1, {"x": True}]},
        "redis": {"comment": "off", "enabled": False, "hostname": "127.0.0.1", "port": 6379, "prefix": "own"},
        "job_submission": {
            "forward_profiles": False, "from_scheduler": {"enabled": False, "acknowledge": True, "note": 1}
        },
    }  # fmt: skip


def test_hosts_have_the_properties_of_the_platform(tmp_path: Path) -> None:
    talk = converse(tmp_path, [], starts(), platform=ENERGY)
    begins = talk.heard[0]["events"][0]["data"]
    assert begins["workloads"] == {talk.workload: str(tmp_path / "w0.json")}
    hosts = begins["resources_data"]
    assert [host["state"] for host in hosts] == ["idle"] * 4
    assert hosts[2]["properties"] == {
        "watt_per_state": "30:30:100, 20:20:60, 5:5:5, 70:70:70, 80:80:80",
        "watt_off": "5", "sleep_pstates": "2:3:4", "rack": "r1",
    }  # fmt: skip


# ---- what is refused, and what is not


@pytest.mark.parametrize(
    ("decisions", "problem"),
    [
        ([say("QUERY", requests={"consumed_energy": {"of": 1}})], "QUERY: consumed_energy has no arguments"),
        ([say("NOP")], "NOP: unknown type of event"),
        ([say("CALL_ME_LATER", timestamp=0.0)], "(CALL_ME_LATER) refused (call in the past)"),
        ([say("KILL_JOB", job_ids=[])], "(KILL_JOB) refused (empty list)"),
        ([say("SET_JOB_METADATA", job_id="WL!1", metadata='a "b"')], "metadata should not contain double quotes"),
        ([say("NOTIFY", type="nope")], "NOTIFY: unknown notification 'nope'"),
        ([say("SUBMIT_PROFILE", workload_name="w", profile_name="p", profile={"type": "delay", "delay": 1})],
         "(SUBMIT_PROFILE) refused (dynamic registration)"),
        ([{"timestamp": 0.0, "type": "KILL_JOB"}], "KILL_JOB: invalid message: Object missing required field `data`"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(decisions: list[Event], problem: str, tmp_path: Path) -> None:
    assert problem in refused(tmp_path, *decisions)


def test_submissions_as_batsim_2_refuses_them(tmp_path: Path) -> None:
    """The specification prints a SUBMIT_JOB without `subtime`; Batsim 2.0.0 does not take it."""
    data: dict[str, Any] = {"job_id": "dyn!a", "job": {"profile": "p", "res": 1, "id": "dyn!a", "walltime": 12.0}}
    data["profile"] = {"type": "delay", "delay": 10}
    assert "job dyn!a has no subtime" in refused(tmp_path, say("SUBMIT_JOB", **data), config=DYNAMIC)


def test_decisions_of_the_past_take_effect_now_and_answers_are_ignored(tmp_path: Path) -> None:
    def decide(now: float, events: list[Event], workload: str) -> list[Event]:
        if events[0]["type"] != "JOB_SUBMITTED":
            return []
        early = event(3.0, "EXECUTE_JOB", job_id=f"{workload}!1", alloc="0")
        return [early, event(4.0, "ANSWER", consumed_energy=3), event(4.0, "ANSWER", anything=[1])]

    talk = converse(tmp_path, [job("1", 5.0)], decide)
    assert talk.code == 0 and talk.rows[0]["starting_time"] == "5.000000"


def test_the_first_profile_of_a_name_stays_and_profiles_are_kept(tmp_path: Path) -> None:
    def profile(delay: float) -> Event:
        return say("SUBMIT_PROFILE", workload_name="dyn", profile_name="p", profile={"type": "delay", "delay": delay})

    def submit(name: str) -> Event:
        return say("SUBMIT_JOB", job_id=f"dyn!{name}", job=job(name, profile="p"))

    first = on("SIMULATION_BEGINS", profile(4), profile(9), submit("a"))
    later = on("JOB_COMPLETED", submit("b"), say("NOTIFY", type="submission_finished"))
    begin = starts()

    def decide(now: float, events: list[Event], workload: str) -> list[Event]:
        done = any(one["data"].get("job_id") == "dyn!a" for one in events)
        more = later(now, events, workload) if done else []
        return begin(now, events, workload) + first(now, events, workload) + more

    talk = converse(tmp_path, [], decide, config=DYNAMIC)
    assert [(row["job_id"], row["execution_time"]) for row in talk.rows] == [("a", "4.000000"), ("b", "4.000000")]
    told = [one["data"]["job"]["id"] for one in talk.events("JOB_SUBMITTED")]
    assert told == ["dyn!a", "dyn!b"], "the name of the workload is added to the id"


def test_options_of_batsim_2(tmp_path: Path) -> None:
    assert run(["--version"], command) == (0, "")
    code, stderr = run(["-p", str(PLAIN), "-w", str(tmp_path / "nowhere.json")], command)
    assert code == 2 and "pilothouse batsim2: workload file" in stderr
    (tmp_path / "w.json").write_text('{"nb_res": 4, "jobs": [], "profiles": {}}')
    code, stderr = run(["-p", str(PLAIN), "-w", str(tmp_path / "w.json"), "-w", str(tmp_path / "w.json")], command)
    assert code == 2 and "a workload of this name is there already" in stderr
    code, stderr = run(["-p", str(PLAIN), "--enable-compute-sharing"], command)
    assert code == 2 and "No such option" in stderr


# ---- Redis


def with_redis(server: components.RedisServer, **submission: object) -> dict[str, Any]:
    redis_at = {"enabled": True, "hostname": server.host, "port": server.port, "prefix": "t"}
    return {"redis": redis_at, "job_submission": submission}


def test_static_jobs_are_in_redis_and_profiles_are_not(tmp_path: Path, redis_server: components.RedisServer) -> None:
    with redis.Redis(host=redis_server.host, port=redis_server.port) as client:
        client.flushall()
        talk = converse(tmp_path, [job("1")], starts(), config=with_redis(redis_server, forward_profiles=True))
        found = stored(client)
    assert talk.events("JOB_SUBMITTED")[0]["data"] == {"job_id": f"{talk.workload}!1"}
    assert found.pop("t:nb_res") == "4"
    assert {key: json.loads(value) for key, value in found.items()} == {
        f"t:job_{talk.workload}!1": job(f"{talk.workload}!1")
    }


def test_a_description_in_the_message_is_refused_if_redis_is_on(
    tmp_path: Path, redis_server: components.RedisServer
) -> None:
    config = with_redis(redis_server, from_scheduler={"enabled": True})
    said = refused(tmp_path, say("SUBMIT_JOB", job_id="dyn!a", job=job("dyn!a")), config=config)
    assert "job dyn!a has a description, which should be in Redis instead" in said


# ---- we are the scheduler of a Batsim 2


class Registers(Policy):
    """Starts what waits, and registers one job with a profile of its own."""

    wants = d.Wants(dynamic_registration=True)

    def on_ended(self, job: Job, cluster: Cluster) -> None:
        if job.id.endswith("!1"):
            profile = Profile("new!p", Delay(3.0), source=b'{"type": "delay", "delay": 3}')  # type: ignore[arg-type]
            cluster.book(d.RegisterProfile(cluster.now, profile))
            cluster.book(d.RegisterJob(cluster.now, Job("new!j", 1, 50.0, cluster.now, profile)))
            cluster.book(d.FinishRegistration(cluster.now))

    def schedule(self, cluster: Cluster) -> None:
        for waiting in list(cluster.queue):
            cluster.start(waiting)


@pytest.mark.parametrize("through_redis", [False, True])
def test_our_scheduler_registers_jobs_with_batsim_2(
    through_redis: bool, tmp_path: Path, redis_server: components.RedisServer
) -> None:
    (tmp_path / "w0.json").write_text(
        json.dumps({"nb_res": 4, "jobs": [job("1")], "profiles": {"d2": {"type": "delay", "delay": 2}}})
    )
    config = with_redis(redis_server, from_scheduler={"enabled": True}) if through_redis else DYNAMIC
    (tmp_path / "conf.json").write_text(json.dumps(config))
    endpoint = f"ipc://{tmp_path}/s"
    world = naming.world(f"batsim:{endpoint}?dialect=2")
    steering = threading.Thread(target=Session(world, PolicyDecider(Registers())).run)
    steering.start()
    code, stderr = run(
        ["-p", str(PLAIN), "-w", str(tmp_path / "w0.json"), "--config-file", str(tmp_path / "conf.json"),
         "-s", endpoint, "-e", str(tmp_path / "out")],
        command,
    )  # fmt: skip
    steering.join(20)
    assert (code, stderr) == (0, "")
    rows = [line.split(",") for line in (tmp_path / "out_jobs.csv").read_text().splitlines()[1:]]
    assert {row[4]: row[2] for row in rows} == {"1": "2.000000", "j": "3.000000"}


def test_hosts_that_sleep_are_not_used(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/s"
    channel = RequestChannel(endpoint, "us", timeout_s=20)

    def tell(now: float, *events: Event) -> list[Event]:
        answer: dict[str, list[Event]] = json.loads(
            channel.exchange(json.dumps({"now": now, "events": events}).encode())
        )
        return answer["events"]

    steering = threading.Thread(target=Session(BatsimWorld(endpoint, dialect="2"), naming.decider("fcfs")).run)
    steering.start()
    states = ["sleeping", "idle", "switching_on", "computing"]
    sleep = {"sleep_pstates": "2:3:4"}
    hosts = [{"id": n, "name": f"h{n}", "state": state, "properties": sleep} for n, state in enumerate(states)]
    begins = {"nb_resources": 4, "allow_time_sharing": False, "config": {}, "resources_data": hosts, "workloads": {}}
    tell(0, event(0, "SIMULATION_BEGINS", **begins))
    both = [event(1, "JOB_SUBMITTED", job_id=f"w!{name}", job=job(f"w!{name}", 1)) for name in "12"]
    assert [one["data"]["alloc"] for one in tell(1, *both)] == ["1"]
    woken = tell(2, event(2, "RESOURCE_STATE_CHANGED", resources="2", state="0"))
    assert [one["data"]["alloc"] for one in woken] == ["2"]
    tell(9, event(9, "SIMULATION_ENDS"))
    steering.join(20)
    channel.close()


def test_options_of_the_world() -> None:
    with pytest.raises(InputError, match="unknown option"):
        naming.world("batsim:ipc:///nowhere?dialct=2")
    with pytest.raises(InputError, match="unknown dialect"):
        naming.world("batsim:ipc:///nowhere?dialect=7")


# ---- simulate in this dialect


def simulated(folder: Path, jobs: list[dict[str, Any]], decide: Decide, query: str, *more: str) -> list[dict[str, str]]:
    """The rows of jobs.csv of a simulation under a scheduler that is a function."""
    profiles = {f"d{seconds}": {"type": "delay", "delay": seconds} for seconds in (2, 7)}
    (folder / "w.json").write_text(json.dumps({"nb_res": 4, "jobs": jobs, "profiles": profiles}))

    class Scheduler(Player):
        def answer(self, prepared: bytes, heard: bytes) -> bytes:
            message = json.loads(heard)
            return json.dumps({"now": message["now"], "events": decide(message["now"], message["events"], "w0")}).encode()

    by = f"batsim:ipc://{folder}/s?{query}"
    scheduler = Scheduler(f"ipc://{folder}/s", [b""] * 50)
    try:
        given = ["-p", "4", "-w", str(folder / "w.json"), "-e", f"{folder}/out/", "--by", by, *more]
        done = CliRunner().invoke(simulate, given)
    finally:
        scheduler.close()
    assert done.exit_code == 0, done.output
    return list(csv.DictReader((folder / "out/jobs.csv").open()))


@pytest.mark.parametrize("more", [(), ("--control-latency",)])
def test_simulate_keeps_metadata_of_ended_jobs(more: tuple[str, ...], tmp_path: Path) -> None:
    decide = starts(on("JOB_COMPLETED", say("SET_JOB_METADATA", job_id="w0!1", metadata="late, 'quoted'")))
    rows = simulated(tmp_path, [job("1"), job("2", 9.0)], decide, "dialect=2", *more)
    assert [(row["job_id"], row["metadata"]) for row in rows] == [("1", "late, 'quoted'"), ("2", "")]
    assert (tmp_path / "out/jobs.csv").read_text().splitlines()[2].endswith(","), "rows are as they were but for that"


def test_simulate_knows_every_profile_of_a_workload(tmp_path: Path) -> None:
    """Also those that no job of it has: a scheduler may submit jobs with them."""
    (tmp_path / "c.json").write_text(json.dumps(DYNAMIC))
    more = [say("SUBMIT_JOB", job_id="w0!new", job=job("new", 0.0, "d7")), say("NOTIFY", type="submission_finished")]
    rows = simulated(tmp_path, [job("1")], starts(on("SIMULATION_BEGINS", *more)), f"config={tmp_path}/c.json")
    assert {row["job_id"]: row["execution_time"] for row in rows} == {"1": "2.000000", "new": "7.000000"}

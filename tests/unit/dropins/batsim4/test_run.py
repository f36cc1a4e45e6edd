"""The drop-in for Batsim 4's command line: options, exit codes, wrong input, runs without a scheduler."""

from __future__ import annotations

import csv
import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from golden.batsim4_player import Player, Recording, play, run
from pilothouse.cli.batsim4 import command

GOLDEN = Path(__file__).parents[3] / "golden/batsim4"
PLATFORM = str(GOLDEN / "inputs/platforms/small_platform.xml")
DELAYS = str(GOLDEN / "inputs/workloads/test_delays.json")


def shown(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, list(arguments))
    return result.exit_code, result.stdout


def test_what_only_prints() -> None:
    assert shown("--version") == (0, "v4.2.1\n")
    assert shown("--simgrid-version") == (0, "3.32.0\n")
    code, text = shown("--dump-execution-context", "-p", "x", "-s", "ipc://s", "-e", "here", "--redis-port", "9")
    assert code == 0
    assert json.loads(text) == {
        "socket_endpoint": "ipc://s", "redis_enabled": False, "redis_hostname": "127.0.0.1", "redis_port": 9,
        "redis_prefix": "default", "export_prefix": "here", "external_scheduler": True,
    }  # fmt: skip
    code, text = shown("--help")
    assert code == 0 and "Examples:" in text and "--acknowledge-dynamic-jobs" in text


def test_missing_files_are_bits_of_the_exit_code(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    assert run(["-p", "nope.xml", "-w", DELAYS, "-e", out])[0] == 1
    assert run(["-p", PLATFORM, "-w", "nope.json", "-e", out])[0] == 2
    assert run(["-p", PLATFORM, "-W", "nope.dax", "-e", out])[0] == 4
    assert run(["-p", PLATFORM, "--WS", "nope.dax", "5", "-e", out])[0] == 0x10
    assert run(["-p", PLATFORM, "--WS", DELAYS, "-5", "-e", out])[0] == 0x20
    assert run(["-p", PLATFORM, "--WS", DELAYS, "soon", "-e", out])[0] == 0x40
    assert run(["-p", PLATFORM, "--events", "nope.txt", "-e", out])[0] == 2
    assert run(["-p", PLATFORM, "-w", DELAYS, "--enable-profile-reuse", "-e", out])[0] == 2
    code, stderr = run(["-p", "nope.xml", "-w", "a", "-w", "b", "-e", out])
    assert code == 3
    assert stderr.splitlines()[1] == "pilothouse batsim4: workload file 'a' cannot be found"
    assert not list(tmp_path.iterdir()), "nothing is written"


def workload(**changes: Any) -> dict[str, Any]:
    job = {"id": "1", "subtime": 0, "walltime": 100, "res": 1, "profile": "d"}
    return {"nb_res": 4, "jobs": [job], "profiles": {"d": {"type": "delay", "delay": 10}}} | changes


def with_job(**changes: Any) -> dict[str, Any]:
    written = workload()
    written["jobs"][0].update(changes)
    return written


def with_profile(**profile: Any) -> dict[str, Any]:
    return workload(profiles={"d": profile})


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no_nb_res": ({"jobs": [], "profiles": {}}, "nb_res"),
    "nb_res_0": (workload(nb_res=0), "nb_res"),
    "no_jobs": ({"nb_res": 4, "profiles": {}}, "jobs"),
    "no_profiles": ({"nb_res": 4, "jobs": []}, "profiles"),
    "duplicate": (workload(jobs=[*workload()["jobs"], {**workload()["jobs"][0], "id": 1}]), "$.jobs[1].id"),
    "unknown_profile": (with_job(profile="nope"), "unknown profile; found 'nope'"),
    "id_mark": (with_job(id="a!b"), "an id with '!' in it; expected an id, or w0!id, found 'a!b'"),
    "walltime_0": (with_job(walltime=0), "$.jobs[0].walltime"),
    "walltime_neg": (with_job(walltime=-5), "above 0, or none, found -5"),
    "res_neg": (with_job(res=-1), "$.jobs[0].res"),
    "res_text": (with_job(res="two"), "Expected `int`, got `str`"),
    "subtime_str": (with_job(subtime="soon"), "Expected `float`, got `str`"),
    "delay_0": (with_profile(type="delay", delay=0), "field 'delay'; expected a number above 0, found 0"),
    "unknown_type": (with_profile(type="dance"), "unknown type of profile"),
    "type_of_batsim_2": (with_profile(type="msg_par_hg", cpu=1, com=1), "$.profiles['d']: a type of profile that Batsim 4"),
    "type_of_batsim_5": (with_profile(type="DelayProfile", delay=1), "found 'DelayProfile'"),
    "par_nocom": (with_profile(type="parallel", cpu=[1]), "field 'com' is missing"),
    "par_nocpu": (with_profile(type="parallel", com=[1]), "field 'cpu' is missing"),
    "par_size": (with_profile(type="parallel", cpu=[1, 1], com=[0, 0, 0, 0]), "its parallel task is for 2 hosts"),
    "com_size": (with_profile(type="parallel", cpu=[1], com=[0, 0]), "matrix 'com' of the wrong size"),
    "no_seq": (with_profile(type="composed"), "field 'seq'"),
    "empty_seq": (with_profile(type="composed", seq=[]), "field 'seq'"),
    "repeat_0": (with_profile(type="composed", seq=["d"], repeat=0), "field 'repeat'; expected 1 or more, found 0"),
    "seq_unknown": (with_profile(type="composed", seq=["nope"]), "unknown profile; found 'nope'"),
}
"""What Batsim aborts at when it loads a workload; we name the place."""


@pytest.mark.parametrize("name", WRONG)
def test_malformed_workloads_are_refused_before_the_scheduler_is_spoken_to(name: str, tmp_path: Path) -> None:
    written, problem = WRONG[name]
    path = tmp_path / "workload.json"
    path.write_text(json.dumps(written))
    code, stderr = run(["-p", PLATFORM, "-w", str(path), "-e", str(tmp_path / "out"), "-s", f"ipc://{tmp_path}/s"])
    assert code == 2
    assert problem in stderr and str(path) in stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["workload.json"]


NOP = b'{"now": 0, "events": []}'


def conversation(tmp_path: Path, written: dict[str, Any], *answers: bytes, more: tuple[str, ...] = ()) -> list[Any]:
    """The messages that a scheduler hears which gives these answers."""
    path = tmp_path / "workload.json"
    path.write_text(json.dumps(written))
    player = Player(f"ipc://{tmp_path}/s", list(answers))
    try:
        code, stderr = run(
            ["-p", PLATFORM, "-w", str(path), "-e", str(tmp_path / "out"), "-s", f"ipc://{tmp_path}/s",
             "--decider-timeout", "20", *more]
        )  # fmt: skip
    finally:
        player.close()
    assert code == 0, stderr
    return [json.loads(message) for message in player.heard]


def execute(job_id: str, now: float = 0.000045) -> bytes:
    order = {"timestamp": now, "type": "EXECUTE_JOB", "data": {"job_id": job_id, "alloc": "0"}}
    return json.dumps({"now": now, "events": [order]}).encode()


LOOPBACK_S = 15e-6 + 1e7 / 498e6
"""The latency of the loopback of small_platform.xml, and 10 MB at its bandwidth."""


@pytest.mark.parametrize(
    "profile",
    [
        {"type": "parallel_homogeneous", "cpu": 0, "com": 1e7},
        {"type": "parallel_homogeneous_total", "cpu": 0, "com": 2e7},
        {"type": "parallel", "cpu": [0, 0], "com": [0, 1e7, 1e7, 0]},
        {"type": "composed", "seq": ["part"]},
    ],
    ids=lambda profile: profile["type"],
)
def test_executors_on_one_host_take_the_time_of_the_loopback_once(profile: dict[str, Any], tmp_path: Path) -> None:
    profiles = {"d": profile, "part": {"type": "parallel_homogeneous", "cpu": 0, "com": 1e7}}
    job = {"id": "1", "subtime": 0, "res": 2, "profile": "d"}
    order = json.loads(execute("w0!1"))
    order["events"][0]["data"]["mapping"] = {"0": "0", "1": "0"}
    conversation(tmp_path, workload(jobs=[job], profiles=profiles), NOP, json.dumps(order).encode(), NOP, NOP, NOP)
    with (tmp_path / "out_jobs.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert float(row["execution_time"]) == pytest.approx(LOOPBACK_S, abs=1e-6)


@pytest.mark.parametrize(("option", "word"), [("--sg-cfg", "nonsense:1"), ("--sg-cfg", "tracing"), ("--sg-log", "root")])
def test_settings_that_simgrid_does_not_know_are_refused(option: str, word: str, tmp_path: Path) -> None:
    code, stderr = run(["-p", PLATFORM, "-w", DELAYS, "-e", str(tmp_path / "out"), option, word])
    assert code == 2 and option in stderr
    assert not list(tmp_path.iterdir())


def test_an_empty_workload_is_fine(tmp_path: Path) -> None:
    heard = conversation(tmp_path, workload(jobs=[]), NOP, NOP, NOP)
    assert [event["type"] for message in heard for event in message["events"]] == [
        "SIMULATION_BEGINS", "NOTIFY", "SIMULATION_ENDS"
    ]  # fmt: skip
    assert heard[0]["events"][0]["data"]["profiles"] == {"w0": {}}


def test_odd_jobs_that_batsim_accepts(tmp_path: Path) -> None:
    """A negative date is now, an id may be a number, and other fields are passed on."""
    written = with_job(id=7, subtime=-3.5, mine={"x": 0.1})
    heard = conversation(tmp_path, written, NOP, execute("w0!7"), NOP, NOP, NOP)
    assert heard[1]["events"][0]["data"]["job"] == {
        "id": "w0!7", "subtime": -3.5, "walltime": 100, "res": 1, "profile": "d", "mine": {"x": 0.1}
    }  # fmt: skip
    (row,) = csv.DictReader((tmp_path / "out_jobs.csv").open())
    assert row["submission_time"] == "-3.500000" and row["final_state"] == "COMPLETED_SUCCESSFULLY"


def test_the_configuration_file_reaches_the_scheduler(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"job_submission": {"forward_profiles": true}, "mine": {"depth": 3}}')
    more = ("--config-file", str(config))  # implies a scheduler of Batsim 2
    heard = conversation(tmp_path, workload(), NOP, execute("w0!1"), NOP, NOP, more=more)
    written = heard[0]["events"][0]["data"]["config"]
    assert written["mine"] == {"depth": 3}
    assert written["job_submission"]["from_scheduler"] == {"enabled": False, "acknowledge": True}
    assert heard[1]["events"][0]["data"]["profile"] == {"type": "delay", "delay": 10}
    assert {event["type"] for message in heard for event in message["events"]} == {
        "SIMULATION_BEGINS", "JOB_SUBMITTED", "JOB_COMPLETED", "SIMULATION_ENDS"
    }  # fmt: skip


def test_without_a_scheduler_all_jobs_run_at_once(tmp_path: Path) -> None:
    code, stderr = run(["-p", PLATFORM, "-w", DELAYS, "-e", str(tmp_path / "out"), "--no-sched"])
    assert (code, stderr) == (0, "")
    assert (tmp_path / "out_jobs.csv").read_text().count("\n") == 1
    assert "6 10.000000 machine_state m0 w" in (tmp_path / "out_schedule.trace").read_text()


def test_traces_can_be_left_out(tmp_path: Path) -> None:
    code, _ = run(
        ["-p", PLATFORM, "-w", DELAYS, "-e", str(tmp_path / "out"), "--no-sched", "--disable-schedule-tracing",
         "--disable-machine-state-tracing"]
    )  # fmt: skip
    assert code == 0
    assert not (tmp_path / "out_schedule.trace").exists()
    assert not (tmp_path / "out_machine_states.csv").exists()


DAX = """<adag><job id="A" runtime="5"/><job id="B" runtime="5"/><job id="C" runtime="5"/>
<child ref="B"><parent ref="A"/></child></adag>"""


class Fcfs:
    """Answers a message by starting what was submitted, each on a host of its own."""

    def __init__(self) -> None:
        self.heard: list[tuple[float, str, str]] = []

    def __call__(self, message: dict[str, Any]) -> bytes:
        orders = []
        for event in message["events"]:
            self.heard.append((event["timestamp"], event["type"], event["data"].get("job_id", "")))
            if event["type"] == "JOB_SUBMITTED":
                data = {"job_id": event["data"]["job_id"], "alloc": str(len(self.heard) % 4)}
                orders.append({"timestamp": message["now"], "type": "EXECUTE_JOB", "data": data})
        return json.dumps({"now": message["now"], "events": orders}).encode()


class Live(Player):
    """A player that answers by thinking."""

    def __init__(self, endpoint: str, decide: Callable[[dict[str, Any]], bytes]) -> None:
        self._decide = decide
        super().__init__(endpoint, [b""] * 1000)

    def answer(self, prepared: bytes, heard: bytes) -> bytes:
        return self._decide(json.loads(heard))


def steered(tmp_path: Path, *arguments: str) -> list[tuple[float, str, str]]:
    fcfs = Fcfs()
    player = Live(f"ipc://{tmp_path}/s", fcfs)
    try:
        code, stderr = run(
            ["-p", PLATFORM, "-e", str(tmp_path / "out"), "-s", f"ipc://{tmp_path}/s", "--decider-timeout", "20",
             *arguments]
        )  # fmt: skip
    finally:
        player.close()
    assert code == 0, stderr
    return fcfs.heard


def test_a_task_is_submitted_when_its_parents_are_done(tmp_path: Path) -> None:
    (tmp_path / "w.dax").write_text(DAX)
    heard = steered(tmp_path, "-W", str(tmp_path / "w.dax"))
    submitted = [(round(at), job) for at, kind, job in heard if kind == "JOB_SUBMITTED"]
    assert submitted == [(0, "wf0!0"), (0, "wf0!1"), (5, "wf0!2")]
    (tmp_path / "limited").mkdir()
    heard = steered(tmp_path / "limited", "-W", str(tmp_path / "w.dax"), "--workflow-jobs-limit", "1")
    assert [round(at) for at, kind, _ in heard if kind == "JOB_SUBMITTED"] == [0, 5, 10]


def test_a_task_may_take_no_time(tmp_path: Path) -> None:
    (tmp_path / "w.dax").write_text(DAX.replace('runtime="5"', 'runtime="0"'))
    heard = steered(tmp_path, "-W", str(tmp_path / "w.dax"))
    assert [round(at) for at, kind, _ in heard if kind == "JOB_SUBMITTED"] == [0, 0, 0]


def test_machines_that_do_not_exist_cannot_go_away(tmp_path: Path) -> None:
    (tmp_path / "events.txt").write_text('{"type": "machine_unavailable", "resources": "2-9", "timestamp": 0}\n')
    player = Player(f"ipc://{tmp_path}/s", [NOP, NOP])
    try:
        code, stderr = run(
            ["-p", PLATFORM, "-w", DELAYS, "-e", str(tmp_path / "out"), "--events", str(tmp_path / "events.txt"),
             "-s", f"ipc://{tmp_path}/s", "--decider-timeout", "20"]
        )  # fmt: skip
    finally:
        player.close()
    assert code == 2 and "there are no machines 2-9: 4 exist" in stderr


def test_a_workflow_starts_when_it_is_told_to_and_may_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "w.dax").write_text(DAX)
    (tmp_path / "late.json").write_text(json.dumps(with_job(subtime=1000)))
    late = ("--WS", str(tmp_path / "w.dax"), "100", "-w", str(tmp_path / "late.json"))
    heard = steered(tmp_path, *late)
    submitted = [(round(at), job) for at, kind, job in heard if kind == "JOB_SUBMITTED"]
    assert submitted == [(100, "wfc0!0"), (100, "wfc0!1"), (105, "wfc0!2"), (1000, "w0!1")]
    (tmp_path / "short").mkdir()
    heard = steered(tmp_path / "short", *late, "--ignore-beyond-last-workflow")
    assert [round(at) for at, kind, _ in heard if kind == "JOB_SUBMITTED"] == [100, 100, 105]


def test_without_external_events_none_is_forwarded(tmp_path: Path) -> None:
    heard = conversation(tmp_path, workload(jobs=[]), NOP, NOP, NOP, more=("--forward-unknown-events",))
    assert heard[0]["events"][0]["data"]["config"]["forward-unknown-events"] is False
    (tmp_path / "with").mkdir()
    (tmp_path / "events.txt").write_text('{"type": "lunch", "timestamp": 1}\n')
    more = ("--forward-unknown-events", "--events", str(tmp_path / "events.txt"))
    heard = conversation(tmp_path / "with", workload(jobs=[]), *[NOP] * 6, more=more)
    assert heard[0]["events"][0]["data"]["config"]["forward-unknown-events"] is True
    told = [event["data"]["type"] for message in heard for event in message["events"] if event["type"] == "NOTIFY"]
    assert told == ["no_more_static_job_to_submit", "lunch", "no_more_external_event_to_occur"]


def test_nothing_is_registered_once_registration_is_finished(tmp_path: Path) -> None:
    profile = {"workload_name": "w0", "profile_name": "p", "profile": {"type": "delay", "delay": 1}}
    events = [
        {"timestamp": 0, "type": "NOTIFY", "data": {"type": "registration_finished"}},
        {"timestamp": 0, "type": "REGISTER_PROFILE", "data": profile},
    ]
    (tmp_path / "w.json").write_text(json.dumps(workload()))
    answers = [json.dumps({"now": 0, "events": [event]}).encode() for event in events]
    player = Player(f"ipc://{tmp_path}/s", answers)
    try:
        code, stderr = run(
            ["-p", PLATFORM, "-w", str(tmp_path / "w.json"), "-e", str(tmp_path / "out"), "-s", f"ipc://{tmp_path}/s",
             "--enable-dynamic-jobs", "--decider-timeout", "20"]
        )  # fmt: skip
    finally:
        player.close()
    assert code == 1
    assert "event 0 (REGISTER_PROFILE) refused" in stderr and "registration is finished" in stderr


def test_hosts_get_roles_and_limits(tmp_path: Path) -> None:
    heard = conversation(tmp_path, workload(jobs=[]), NOP, NOP, NOP, more=("-r", "Ginette,Jupiter:storage"))
    data = heard[0]["events"][0]["data"]
    assert [resource["name"] for resource in data["storage_resources"]] == ["Ginette", "Jupiter"]
    (tmp_path / "two").mkdir()
    heard = conversation(tmp_path / "two", workload(jobs=[], nb_res=3), NOP, NOP, NOP, more=("--mmax-workload",))
    assert heard[0]["events"][0]["data"]["nb_resources"] == 3
    code, stderr = run(["-p", PLATFORM, "-w", DELAYS, "-e", str(tmp_path / "out"), "-r", "nonsense"])
    assert code == 2 and "expected host1,host2:role" in stderr
    code, stderr = run(["-p", PLATFORM, "-w", DELAYS, "-e", str(tmp_path / "out"), "-m", "nobody"])
    assert code == 2 and 'no host has the "master" role' in stderr


def test_the_schedulers_own_configuration(tmp_path: Path) -> None:
    path = tmp_path / "sched.cfg"
    path.write_text("depth=3\n")
    heard = conversation(tmp_path, workload(jobs=[]), NOP, NOP, NOP, more=("--sched-cfg-file", str(path)))
    assert heard[0]["events"][0]["data"]["config"]["sched-config"] == "depth=3\n"


def test_a_recording_gives_the_same_bytes_twice(tmp_path: Path) -> None:
    recording = Recording.read(GOLDEN / "recordings/raw-fcfs-small-same_submit_time", GOLDEN / "inputs")
    runs = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        play(recording, tmp_path / name)
        runs.append({path.name: path.read_bytes() for path in (tmp_path / name).glob("out_*") if "schedule.csv" not in path.name})
    assert runs[0] == runs[1] and "out_schedule.trace" in runs[0]


HANGS = """
import os, signal, sys, zmq
socket = zmq.Context().socket(zmq.REP)
socket.bind(sys.argv[1])
socket.recv()
socket.send(b'{"now": 0, "events": []}')
socket.recv()
open(sys.argv[2] + ".new", "w").write(str(os.getpid()))
os.rename(sys.argv[2] + ".new", sys.argv[2])
signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
def test_whoever_ends_us_leaves_no_scheduler_behind(number: signal.Signals, tmp_path: Path) -> None:
    endpoint, note = f"ipc://{tmp_path}/s", tmp_path / "pid"
    scheduler = shlex.join([sys.executable, "-c", HANGS, endpoint, str(note)])
    ours = subprocess.Popen(
        [sys.executable, "-m", "pilothouse", "batsim4", "-p", PLATFORM, "-w", DELAYS, "-e", str(tmp_path / "out"),
         "-s", endpoint, "--decider-command", scheduler],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_until(note.exists)
    ours.send_signal(number)
    assert ours.wait(20) == (-9 if number is signal.SIGKILL else 128 + number)
    wait_until(lambda: not is_alive(int(note.read_text())))
    if number is not signal.SIGKILL:
        assert (tmp_path / "out_schedule.csv").read_text().startswith("batsim_version,")


def wait_until(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return state.strip()[:1] not in ("", "Z")


THREE_JOBS = workload(jobs=[{"id": str(n), "subtime": 0, "walltime": 100, "res": 1, "profile": "d"} for n in (1, 2, 3)])


class ChangesStates:
    """Runs job 1 and changes the state of all jobs at the first submission, as the specification's example does."""

    def __init__(self, *changes: tuple[str, str]) -> None:
        self.changes = changes
        self.ended: dict[str, dict[str, Any]] = {}

    def __call__(self, message: dict[str, Any]) -> bytes:
        now, orders = message["now"], []
        for event in message["events"]:
            if event["type"] == "JOB_COMPLETED":
                self.ended[event["data"]["job_id"]] = event["data"]
        if any(event["type"] == "JOB_SUBMITTED" for event in message["events"]):
            orders.append({"timestamp": now, "type": "EXECUTE_JOB", "data": {"job_id": "w0!1", "alloc": "0"}})
            for job_id, state in self.changes:
                data = {"job_id": job_id, "job_state": state, "kill_reason": "Sub-jobs were killed."}
                orders.append({"timestamp": now, "type": "CHANGE_JOB_STATE", "data": data})
        return json.dumps({"now": now, "events": orders}).encode()


def changed(tmp_path: Path, decide: Callable[[dict[str, Any]], bytes], *more: str) -> tuple[int, str, dict[str, str]]:
    """The exit code, the error, and the final states."""
    (tmp_path / "w.json").write_text(json.dumps(THREE_JOBS))
    player = Live(f"ipc://{tmp_path}/s", decide)
    try:
        code, stderr = run(
            ["-p", PLATFORM, "-w", str(tmp_path / "w.json"), "-e", str(tmp_path / "out"), "-s", f"ipc://{tmp_path}/s",
             "--decider-timeout", "20", *more]
        )  # fmt: skip
    finally:
        player.close()
    return code, stderr, {row["job_id"]: row["final_state"] for row in csv.DictReader((tmp_path / "out_jobs.csv").open())}


@pytest.mark.parametrize("dialect", ["2", "any"])
@pytest.mark.parametrize(
    "state", ["COMPLETED_SUCCESSFULLY", "COMPLETED_FAILED", "COMPLETED_WALLTIME_REACHED", "COMPLETED_KILLED"]
)
def test_a_scheduler_of_batsim_2_ends_jobs(state: str, dialect: str, tmp_path: Path) -> None:
    """One that runs on a host, one that runs nowhere, one that waits; another one is rejected."""
    changes = ChangesStates(("w0!1", state), ("w0!2", "RUNNING"), ("w0!2", state), ("w0!3", "REJECTED"))
    code, stderr, states = changed(tmp_path, changes, "--decider-dialect", dialect)
    assert code == 0, stderr
    assert states == {"1": state, "2": state, "3": "REJECTED"}
    assert changes.ended["w0!1"]["kill_reason"] == changes.ended["w0!2"]["kill_reason"] == "Sub-jobs were killed."
    (tmp_path / "waits").mkdir()
    changes = ChangesStates(("w0!2", state), ("w0!3", "REJECTED"))
    code, stderr, states = changed(tmp_path / "waits", changes, "--decider-dialect", dialect)
    assert code == 0, stderr
    assert states == {"1": "COMPLETED_SUCCESSFULLY", "2": state, "3": "REJECTED"}
    assert changes.ended["w0!1"]["kill_reason"] == ""


@pytest.mark.parametrize(
    ("dialect", "changes"),
    [
        ("2", [("w0!1", "REJECTED")]),
        ("2", [("w0!2", "REJECTED"), ("w0!2", "RUNNING")]),
        ("2", [("w0!2", "COMPLETED_KILLED"), ("w0!2", "COMPLETED_FAILED")]),
        ("2", [("w0!2", "SUBMITTED")]),
        ("4", [("w0!1", "COMPLETED_KILLED")]),
        ("4", [("w0!2", "REJECTED")]),
    ],
)
def test_changes_of_state_that_make_no_sense(dialect: str, changes: list[tuple[str, str]], tmp_path: Path) -> None:
    """A real Batsim 4 aborts at every state but RUNNING."""
    code, stderr, _ = changed(tmp_path, ChangesStates(*changes), "--decider-dialect", dialect)
    assert code == 1
    assert stderr.count("\n") == 1 and f"event {len(changes)} (CHANGE_JOB_STATE) refused" in stderr


class Kills(Fcfs):
    """Kills each job one second after its start, or leaves it to its walltime."""

    def __init__(self) -> None:
        super().__init__()
        self.reasons: dict[str, str] = {}

    def __call__(self, message: dict[str, Any]) -> bytes:
        for event in message["events"]:
            if event["type"] == "JOB_COMPLETED":
                self.reasons[event["data"]["job_state"]] = event["data"]["kill_reason"]
        now, orders = message["now"], json.loads(super().__call__(message))["events"]
        if orders:
            orders.append({"timestamp": now, "type": "KILL_JOB", "data": {"job_ids": ["w0!1"]}})
        return json.dumps({"now": now, "events": orders}).encode()


def test_batsim_2_says_why_a_job_was_killed(tmp_path: Path) -> None:
    jobs = [{"id": "1", "subtime": 0, "walltime": 100, "res": 1, "profile": "d"}]
    jobs += [{"id": "2", "subtime": 0, "walltime": 5, "res": 1, "profile": "d"}]
    (tmp_path / "w.json").write_text(json.dumps(workload(jobs=jobs)))
    kills = Kills()
    player = Live(f"ipc://{tmp_path}/s", kills)
    try:
        code, stderr = run(
            ["-p", PLATFORM, "-w", str(tmp_path / "w.json"), "-e", str(tmp_path / "out"), "-s", f"ipc://{tmp_path}/s",
             "--decider-dialect", "2", "--decider-timeout", "20"]
        )  # fmt: skip
    finally:
        player.close()
    assert code == 0, stderr
    assert kills.reasons == {
        "COMPLETED_KILLED": "killed by the scheduler", "COMPLETED_WALLTIME_REACHED": "walltime reached"
    }  # fmt: skip


def test_a_profile_may_be_registered_again_with_the_same_content(tmp_path: Path) -> None:
    def register(**profile: object) -> bytes:
        data = {"workload_name": "w0", "profile_name": "p", "profile": profile}
        return json.dumps({"now": 0, "events": [{"timestamp": 0, "type": "REGISTER_PROFILE", "data": data}]}).encode()

    done = b'{"now": 20, "events": [{"timestamp": 20, "type": "NOTIFY", "data": {"type": "registration_finished"}}]}'
    same = [register(type="delay", delay=1), register(delay=1.0, type="delay")]
    conversation(tmp_path, workload(jobs=[]), *same, done, NOP, more=("--enable-dynamic-jobs",))
    (tmp_path / "other").mkdir()
    (tmp_path / "other/w.json").write_text(json.dumps(workload(jobs=[])))
    player = Player(f"ipc://{tmp_path}/other/s", [same[0], register(type="delay", delay=2), NOP])
    try:
        code, stderr = run(
            ["-p", PLATFORM, "-w", f"{tmp_path}/other/w.json", "-e", f"{tmp_path}/other/out", "-s",
             f"ipc://{tmp_path}/other/s", "--enable-dynamic-jobs", "--decider-timeout", "20"]
        )  # fmt: skip
    finally:
        player.close()
    assert code == 1 and "there already is a profile w0!p" in stderr

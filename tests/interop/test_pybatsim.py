"""Real schedulers written for Batsim 2 and for Batsim 3 and 4 (pybatsim 2.1.1 and 3.2.1) over our simulated world."""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import components
from golden.batsim4_player import Recording
from peers import Count

GOLDEN = Path(__file__).parent.parent / "golden/batsim4"
PLATFORM = GOLDEN / "inputs/platforms/small_platform.xml"
DELAYS = GOLDEN / "inputs/workloads/test_delays.json"

ClientEnv = Callable[[str], Path]


def simulate(
    tmp_path: Path, python: Path, scheduler: str, *arguments: str, drop_in: str = "batsim4"
) -> subprocess.CompletedProcess[str]:
    """Runs a drop-in, which starts the scheduler itself."""
    endpoint = f"ipc://{tmp_path}/s"
    pybatsim = python.parent / "pybatsim"
    # Its second socket, for onlookers, must not meet that of another test.
    events = f"ipc://{tmp_path}/e"
    client = [str(python), str(pybatsim), *shlex.split(scheduler), "-s", endpoint, "-e", events, "-t", "60000"]
    command = [
        sys.executable, "-m", "pilothouse", drop_in, "-e", str(tmp_path / "out"), "-s", endpoint,
        "--decider-timeout", "60", "--decider-command", shlex.join(client), *arguments,
    ]  # fmt: skip
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, timeout=120)


def states(tmp_path: Path) -> list[str]:
    return [row["final_state"] for row in csv.DictReader((tmp_path / "out_jobs.csv").open())]


@pytest.mark.parametrize(
    ("scheduler", "workload", "recording"),
    [
        ("easyBackfill", "test_delays", "py-easy-small-delays"),
        ("easyBackfill", "test_walltime", "py-easy-small-walltime"),
        ("fillerSched", "test_delays", "py-filler-small-delays"),
        ("schedFcfs", "test_walltime", "py-fcfs-small-walltime"),
        ("schedFiller", "test_same_submit_time", "py-schedfiller-small-same_submit_time"),
    ],
)
def test_pybatsim_3_gives_the_recorded_jobs(
    scheduler: str, workload: str, recording: str, tmp_path: Path, client_env: ClientEnv
) -> None:
    path = GOLDEN / f"inputs/workloads/{workload}.json"
    done = simulate(tmp_path, client_env("pybatsim3"), scheduler, "-p", str(PLATFORM), "-w", str(path))
    assert done.returncode == 0, done.stderr
    recorded = GOLDEN / "recordings" / recording / "out_jobs.csv"
    assert (tmp_path / "out_jobs.csv").read_text() == recorded.read_text()


SET_ORDER = {"py-filler-small-same_submit_time", "py-fillerevents-small-generic"}
"""Its scheduler walks over a set of objects, in the order of their addresses: only who ran and how it ended is the same."""

DIED = {"py-fcfs-small-various_profile_types"}
"""Its scheduler takes ids for numbers, and dies of those that are none."""


@pytest.mark.peer("pybatsim3", "its schedulers anew, against the jobs of recorded runs")
@pytest.mark.peer_difference(
    "pybatsim3",
    f"{', '.join(sorted(SET_ORDER))}: the scheduler walks over a set in the order of addresses; "
    "who ran and how it ended is equal.",
)
@pytest.mark.peer_difference(
    "pybatsim3", f"{', '.join(sorted(DIED))}: the scheduler dies of ids that are no numbers, there and here."
)
def test_every_recorded_run_of_pybatsim_3(
    shared_dir: Path, tmp_path: Path, client_env: ClientEnv, peer_count: Count
) -> None:
    python = client_env("pybatsim3")
    folders = sorted((shared_dir / "reference/batsim4/golden").glob("py-*"))
    places = [tmp_path / str(number) for number in range(len(folders))]
    with ThreadPoolExecutor(2) as pool:
        problems = list(pool.map(lambda folder, place: replayed(folder, shared_dir, place, python), folders, places))
    peer_count(problems.count(""), len(folders))
    assert len(folders) == 17
    assert [problem for problem in problems if problem] == []


def replayed(folder: Path, shared_dir: Path, tmp_path: Path, python: Path) -> str:
    """What differs from a recorded run when its scheduler runs anew, or nothing."""
    tmp_path.mkdir()
    lines = dict(line.split(": ", 1) for line in (folder / "cmd.txt").read_text().splitlines() if ": " in line)
    arguments = Recording.read(folder, shared_dir / "reference/inputs/v4").arguments
    for option in ("-e", "-s"):
        index = arguments.index(option)
        del arguments[index : index + 2]
    inputs = f"{shared_dir}/reference/inputs/v4/"
    arguments = [argument.replace("inputs/", inputs) for argument in arguments]
    done = simulate(tmp_path, python, lines["sched"].split()[3], *arguments)
    if folder.name in DIED:
        last = done.stderr.splitlines()[-1]
        said = "ended (exit code 1) while an answer was expected: ValueError: invalid literal for int()"
        return "" if done.returncode == 1 and said in last else last
    if done.returncode:
        return f"{folder.name}: {done.stderr[-500:]}"
    written, recorded = (tmp_path / "out_jobs.csv").read_text(), (folder / "out_jobs.csv").read_text()
    if folder.name in SET_ORDER:
        written, recorded = ends(written), ends(recorded)
    return "" if written == recorded else f"{folder.name}: other jobs"


def ends(jobs: str) -> str:
    """Which jobs ended how."""
    return str(sorted((row["job_id"], row["final_state"]) for row in csv.DictReader(jobs.splitlines())))


TALK = {
    "nb_res": 4,
    "jobs": [
        {"id": "1", "subtime": 0, "walltime": 100, "res": 1, "profile": "asks nicely"},
        {"id": "2", "subtime": 1, "walltime": 100, "res": 1, "profile": "asks rudely"},
        {"id": "3", "subtime": 2, "walltime": 100, "res": 1, "profile": "long"},
        {"id": "4", "subtime": 2, "walltime": 100, "res": 1, "profile": "short"},
    ],
    "profiles": {
        "asks nicely": {"type": "composed", "seq": ["please", "listen"]},
        "asks rudely": {"type": "composed", "seq": ["now", "listen"]},
        "please": {"type": "send", "msg": {"type": "accept"}},
        "now": {"type": "send", "msg": {"type": "give"}},
        "listen": {"type": "recv", "regex": "accepted", "success": "long", "failure": "short"},
        "long": {"type": "delay", "delay": 7},
        "short": {"type": "delay", "delay": 3},
    },
}


@pytest.mark.parametrize(("client", "dialect"), [("pybatsim2", "2"), ("pybatsim2", "any"), ("pybatsim3", "4")])
def test_jobs_talk_with_the_scheduler(client: str, dialect: str, tmp_path: Path, client_env: ClientEnv) -> None:
    workload = tmp_path / "talk.json"
    workload.write_text(json.dumps(TALK))
    done = simulate(
        tmp_path, client_env(client), "schedSendRecv", "-p", str(PLATFORM), "-w", str(workload),
        "--decider-dialect", dialect,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    times = {row["job_id"]: float(row["execution_time"]) for row in csv.DictReader((tmp_path / "out_jobs.csv").open())}
    assert times == {"1": pytest.approx(7, abs=0.02), "2": pytest.approx(3, abs=0.02), "3": 7.0, "4": 3.0}


MOLDABLE = {
    "nb_res": 4,
    "jobs": [
        {"id": "1", "subtime": 0, "walltime": 1000, "res": 2, "profile": "two steps"},
        {"id": "2", "subtime": 1, "walltime": 1000, "res": 3, "profile": "two steps"},
        {"id": "3", "subtime": 2, "walltime": 1000, "res": 1, "profile": "two steps"},
    ],
    "profiles": {
        "two steps": {"type": "composed", "seq": ["step", "step"]},
        "step": {"type": "msg_par_hg_tot", "cpu": 1e9, "com": 1e3},
    },
}


@pytest.mark.parametrize("dialect", ["2", "any"])
def test_pybatsim_2_kills_and_submits_what_is_left(dialect: str, tmp_path: Path, client_env: ClientEnv) -> None:
    """Bebida kills a job that runs on fewer hosts than it wants, and submits the rest of it, with profiles of its own."""
    workload, config = tmp_path / "moldable.json", tmp_path / "config.json"
    workload.write_text(json.dumps(MOLDABLE))
    config.write_text(
        '{"job_submission": {"forward_profiles": true, "from_scheduler": {"enabled": true}},'
        ' "job_kill": {"forward_profiles": true}}'
    )
    done = simulate(
        tmp_path, client_env("pybatsim2"), "schedBebida", "-p", str(PLATFORM), "-w", str(workload),
        "--decider-dialect", dialect, "--config-file", str(config),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "deadlock" not in done.stderr
    ends = {row["job_id"]: row["final_state"] for row in csv.DictReader((tmp_path / "out_jobs.csv").open())}
    assert ends.pop("2") == "COMPLETED_KILLED"
    assert len(ends) == 3 and set(ends.values()) == {"COMPLETED_SUCCESSFULLY"}


@pytest.mark.peer("pybatsim3", "sharing, registering, killing, machines that leave, Redis, real tasks")
def test_pybatsim_3_shares_machines(tmp_path: Path, client_env: ClientEnv) -> None:
    done = simulate(
        tmp_path, client_env("pybatsim3"), "randomSched", "-p", str(PLATFORM), "-w", str(DELAYS), "--enable-compute-sharing"
    )
    assert done.returncode == 0, done.stderr
    assert states(tmp_path) == ["COMPLETED_SUCCESSFULLY"] * 10


@pytest.mark.peer("pybatsim2", "its schedulers under `batsim4`, all jobs run")
@pytest.mark.parametrize("dialect", ["2", "any"])
@pytest.mark.parametrize("scheduler", ["fillerSched", "easyBackfill", "schedFcfs", "schedEasySjfBackfill"])
def test_pybatsim_2_runs_all_jobs(scheduler: str, dialect: str, tmp_path: Path, client_env: ClientEnv) -> None:
    done = simulate(
        tmp_path, client_env("pybatsim2"), scheduler, "-p", str(PLATFORM), "-w", str(DELAYS), "--decider-dialect", dialect
    )
    assert done.returncode == 0, done.stderr
    assert states(tmp_path) == ["COMPLETED_SUCCESSFULLY"] * 10


@pytest.mark.peer_difference(
    "pybatsim2",
    "Under `batsim4` it needs `--decider-dialect any` (or 2), else it ends at the first message, as with a real Batsim 4; "
    "the line that is printed names the option. What both generations need is not sent to everybody: messages are equal to "
    "those of Batsim 4.",
)
@pytest.mark.parametrize(("client", "dialect"), [("pybatsim2", "4"), ("pybatsim3", "2")])
def test_a_scheduler_of_another_generation_is_told_the_option(
    client: str, dialect: str, tmp_path: Path, client_env: ClientEnv
) -> None:
    arguments = ("-p", str(PLATFORM), "-w", str(DELAYS), "--decider-dialect", dialect)
    done = simulate(tmp_path, client_env(client), "fillerSched", *arguments)
    assert done.returncode == 1
    assert "another generation: --decider-dialect any" in done.stderr.splitlines()[-1]


def test_the_help_names_schedulers_that_exist(client_env: ClientEnv) -> None:
    root = Path(__file__).parents[2]
    texts = [root / "src/pilothouse/cli/batsim4.py", root / "README.md", *(root / "docs").rglob("*.md")]
    named = {name for path in texts for name in re.findall(r"pybatsim (\w+)", path.read_text()) if "ched" in name}
    assert named
    for client in ("pybatsim2", "pybatsim3"):
        (schedulers,) = client_env(client).parent.parent.glob("lib/python*/site-packages/schedulers")
        assert {path.stem for path in schedulers.glob("*.py")} >= named


@pytest.mark.parametrize(
    ("client", "name"),
    [("pybatsim2", "easyBackfill"), ("pybatsim3", "easyBackfill"), ("pybatsim3", "schedFcfs"), ("pybatsim3", "schedFiller")],
)
def test_the_default_dialect_suits_every_generation(
    client: str, name: str, tmp_path: Path, client_env: ClientEnv
) -> None:
    """`simulate --by batsim:...` does not know who listens. The last two start nothing at date 0, when the first job comes."""
    endpoint = f"ipc://{tmp_path}/s"
    python = client_env(client)
    events = f"ipc://{tmp_path}/e"
    pybatsim = str(python.parent / "pybatsim")
    scheduler = [str(python), pybatsim, name, "-s", endpoint, "-e", events, "-t", "60000"]
    command = [
        sys.executable, "-m", "pilothouse", "simulate", "-p", "4", "-w", str(DELAYS), "--by", f"batsim:{endpoint}",
        "--decider-timeout", "60", "--decider-command", shlex.join(scheduler), "-e", f"{tmp_path}/out_",
    ]  # fmt: skip
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    assert states(tmp_path) == ["COMPLETED_SUCCESSFULLY"] * 10


@pytest.mark.peer("pybatsim3", "sharing, registering, killing, machines that leave, Redis, real tasks")
def test_pybatsim_3_hears_of_machines_that_come_and_go(tmp_path: Path, client_env: ClientEnv) -> None:
    events = GOLDEN / "inputs/events/test_events_4hosts.txt"
    done = simulate(
        tmp_path, client_env("pybatsim3"), "fillerSchedWithEvents", "-p", str(PLATFORM), "-w", str(DELAYS),
        "--events", str(events),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert states(tmp_path) == ["COMPLETED_SUCCESSFULLY"] * 10
    assert float(next(csv.DictReader((tmp_path / "out_schedule.csv").open()))["time_unavailable"]) > 700


@pytest.mark.peer("pybatsim2", "sharing, registering, killing, machines that leave, Redis, real tasks")
def test_pybatsim_2_reads_jobs_from_redis(
    tmp_path: Path, client_env: ClientEnv, redis_server: components.RedisServer
) -> None:
    done = simulate(
        tmp_path, client_env("pybatsim2"), "easyBackfill", "-p", str(PLATFORM), "-w", str(DELAYS),
        "--decider-dialect", "2", "--enable-redis", "--redis-port", str(redis_server.port),
        "--redis-prefix", "interop", "--forward-profiles-on-submission",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert states(tmp_path) == ["COMPLETED_SUCCESSFULLY"] * 10


DYNAMIC = '''
from batsim.batsim import BatsimScheduler

class Submits(BatsimScheduler):
    """Registers two jobs of its own, kills the second, and runs everything on host 0, one after the other."""
    def onSimulationBegins(self):
        self.queue, self.busy, self.registered = [], False, False
    def onJobSubmission(self, job):
        self.queue.append(job)
    def onJobCompletion(self, job):
        self.busy = False
    def onJobsKilled(self, jobs):
        self.killed = [job.id for job in jobs]
    def onRequestedCall(self):
        self.bs.kill_jobs([self.running])
    def onNoMoreEvents(self):
        if not self.registered:
            self.registered = True
            self.bs.register_profiles("dyn", {"short": {"type": "delay", "delay": 5}, "long": {"type": "delay", "delay": 500}})
            self.bs.register_job(id="dyn!a", res=1, walltime=10, profile_name="short")
            self.bs.register_job(id="dyn!b", res=1, walltime=600, profile_name="long")
            self.bs.notify_registration_finished()
        if self.queue and not self.busy:
            job = self.running = self.queue.pop(0)
            self.busy = True
            self.bs.execute_jobs([self.place(job)])
            if job.id == "dyn!b":
                self.bs.wake_me_up_at(self.bs.time() + 50)
    def place(self, job):
        from procset import ProcSet
        job.allocation = ProcSet(0)
        return job
    def __getattr__(self, name):
        if name.startswith("on"):
            return lambda *arguments, **options: None
        raise AttributeError(name)
'''


@pytest.mark.peer("pybatsim3", "sharing, registering, killing, machines that leave, Redis, real tasks")
def test_pybatsim_3_registers_and_kills_jobs(tmp_path: Path, client_env: ClientEnv) -> None:
    script = tmp_path / "submits.py"
    script.write_text(DYNAMIC)
    done = simulate(
        tmp_path, client_env("pybatsim3"), str(script), "-p", str(PLATFORM), "-w", str(DELAYS),
        "--enable-dynamic-jobs", "--acknowledge-dynamic-jobs",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    rows = {row["job_id"]: row for row in csv.DictReader((tmp_path / "out_jobs.csv").open())}
    assert rows["a"]["workload_name"] == "dyn" and rows["a"]["final_state"] == "COMPLETED_SUCCESSFULLY"
    assert rows["b"]["final_state"] == "COMPLETED_KILLED"
    assert 49.9 < float(rows["b"]["execution_time"]) < 50.1
    assert len(rows) == 12


@pytest.mark.peer("pybatsim3", "sharing, registering, killing, machines that leave, Redis, real tasks")
def test_a_scheduler_for_batsim_places_real_tasks(tmp_path: Path, client_env: ClientEnv) -> None:
    """The same pybatsim scheduler, but the world is live: processes on this machine."""
    endpoint = f"ipc://{tmp_path}/s"
    python = client_env("pybatsim3")
    (tmp_path / "tasks.txt").write_text("".join(f"echo {number} > {tmp_path}/made{number}\n" for number in range(6)))
    scheduler = subprocess.Popen(
        [str(python), str(python.parent / "pybatsim"), "fillerSched", "-s", endpoint, "-t", "60000"],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        command = [sys.executable, "-m", "pilothouse", "run", "tasks.txt", "--slots", "2", "--by", f"batsim:{endpoint}"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, timeout=120)
        assert done.returncode == 0, done.stderr
        assert scheduler.wait(20) == 0
    finally:
        scheduler.kill()
        scheduler.wait()
    assert sorted(path.name for path in tmp_path.glob("made*")) == [f"made{number}" for number in range(6)]


SUBMITTER = """
import json
from batsim.batsim import BatsimScheduler

class RedisSubmitter(BatsimScheduler):
    def __init__(self, options):
        pass

    def onAfterBatsimInit(self):
        pass

    def onSimulationBegins(self):
        put = self.bs.redis.redis.set
        put("t:profile_dyn!p", json.dumps({"type": "delay", "delay": 3}))
        for number in range(2):
            name = "dyn!%d" % number
            job = {"id": name, "subtime": 0.0, "res": 1, "walltime": 50, "profile": "p"}
            put("t:job_" + name, json.dumps(job))
            event = {"timestamp": self.bs.time(), "type": "SUBMIT_JOB", "data": {"job_id": name}}
            self.bs._events_to_send.append(event)

    def onJobSubmission(self, job):
        assert job.profile_dict == {"type": "delay", "delay": 3}
        self.bs.start_jobs([job], {job.id: [int(job.id[-1])]})

    def onJobCompletion(self, job):
        pass
"""


@pytest.mark.peer("pybatsim2", "over `batsim2`: its schedulers, and one that submits jobs through Redis")
def test_pybatsim_2_submits_jobs_through_redis(
    tmp_path: Path, client_env: ClientEnv, redis_server: components.RedisServer
) -> None:
    workload, config, scheduler = tmp_path / "w.json", tmp_path / "config.json", tmp_path / "redisSubmitter.py"
    workload.write_text('{"nb_res": 4, "jobs": [], "profiles": {}}')
    scheduler.write_text(SUBMITTER)
    redis_at = {"enabled": True, "hostname": redis_server.host, "port": redis_server.port, "prefix": "t"}
    config.write_text(json.dumps({"redis": redis_at, "job_submission": {"from_scheduler": {"enabled": True}}}))
    more = ("-p", str(PLATFORM), "-w", str(workload), "--config-file", str(config))
    done = simulate(tmp_path, client_env("pybatsim2"), str(scheduler), *more, drop_in="batsim2")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "out_jobs.csv").open()))
    assert [(row["workload_name"], row["job_id"], row["execution_time"]) for row in rows] == [
        ("dyn", "0", "3.000000"), ("dyn", "1", "3.000000")
    ]  # fmt: skip


@pytest.mark.peer("pybatsim2", "over `batsim2`: its schedulers, and one that submits jobs through Redis")
@pytest.mark.parametrize("scheduler", ["fillerSched", "schedFcfs"])
def test_pybatsim_2_under_batsim2(scheduler: str, tmp_path: Path, client_env: ClientEnv) -> None:
    more = ("-p", str(PLATFORM), "-w", str(DELAYS))
    done = simulate(tmp_path, client_env("pybatsim2"), scheduler, *more, drop_in="batsim2")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "out_jobs.csv").open()))
    assert [row["success"] for row in rows] == ["1"] * 10


def test_pybatsim_2_reads_static_jobs_from_redis(
    tmp_path: Path, client_env: ClientEnv, redis_server: components.RedisServer
) -> None:
    """It also looks for their profiles there, which are written if they are to be forwarded."""
    config, endpoint = tmp_path / "config.json", f"ipc://{tmp_path}/s"
    redis_at = {"enabled": True, "hostname": redis_server.host, "port": redis_server.port, "prefix": "u"}
    config.write_text(json.dumps({"redis": redis_at, "job_submission": {"forward_profiles": True}}))
    python = client_env("pybatsim2")
    client = [str(python), str(python.parent / "pybatsim"), "fillerSched", "-s", endpoint, "-e", f"ipc://{tmp_path}/e"]
    command = [
        sys.executable, "-m", "pilothouse", "simulate", "-p", "4", "-w", str(DELAYS), "-e", "out/", "--decider-timeout", "60",
        "--by", f"batsim:{endpoint}?config={config}", "--decider-command", shlex.join([*client, "-t", "60000"]),
    ]  # fmt: skip
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    states = [row["final_state"] for row in csv.DictReader((tmp_path / "out/jobs.csv").open())]
    assert states == ["COMPLETED_SUCCESSFULLY"] * 10

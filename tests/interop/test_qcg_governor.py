"""Managers of managers: our governor with managers of qcg-pilotjob 0.14.2, and our managers under its governor."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from components import qcg_address
from pilothouse.protocols.qcg.client import QcgClient

Start = Callable[..., "Running"]


class Running:
    """A manager at work in a folder of its own."""

    def __init__(self, program: Path, wd: Path, *options: str) -> None:
        wd.mkdir()
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        self.process = subprocess.Popen([program, "--net", "--wd", wd, *options], env=environment)
        qcg_address(wd, self.process)
        self.wd = wd
        self.client = QcgClient.of_folder(wd, timeout_s=20)

    @property
    def address(self) -> str:
        return self.client.address

    def cores(self) -> object:
        return self.client.ask("resourcesInfo")["total_cores"]

    def state(self, name: str) -> str:
        jobs = self.client.ask("jobStatus", jobNames=[name])["jobs"]
        assert isinstance(jobs, dict)
        return str(jobs[name]["data"]["status"])


@pytest.fixture
def start(client_env: Callable[[str], Path], repository: Path, tmp_path: Path) -> Iterator[Start]:
    programs = {
        "ours": repository / "libexec" / "qcg" / "qcg-pm-service",
        "theirs": client_env("qcg").parent / "qcg-pm-service",
    }
    started: list[Running] = []

    def run(whose: str, name: str, *options: str) -> Running:
        started.append(Running(programs[whose], tmp_path / name, "--id", name, *options))
        return started[-1]

    yield run
    for running in started:
        running.client.close()
        running.process.terminate()
        running.process.wait(30)


def until(true: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.05)


@pytest.mark.parametrize(("governor", "member"), [("ours", "theirs"), ("theirs", "ours"), ("ours", "ours")])
def test_a_loop_over_two_managers(start: Start, governor: str, member: str) -> None:
    over = start(governor, "governor", "--governor")
    members = [
        start(member, f"member{number}", "--nodes", str(number + 1), "--parent", over.address) for number in range(2)
    ]
    until(lambda: over.cores() == 3, "both managers register")
    execution = {"exec": "sh", "args": ["-c", "echo $QCG_PM_NPROCS > out"], "wd": "wd${it}"}
    answer = over.client.ask("submit", jobs=[{"name": "loop", "iteration": {"stop": 6}, "execution": execution}])
    assert answer == {"submitted": 1, "jobs": ["loop"]}
    until(lambda: over.state("loop") not in ("QUEUED", "EXECUTING"), "the loop ends")
    assert over.state("loop") == "SUCCEED"
    assert sorted(path.parent.name for running in members for path in running.wd.glob("wd*/out")) == [
        f"wd{index}" for index in range(6)
    ]
    assert all(list(running.wd.glob("wd*/out")) for running in members), "each manager had a share"
    over.client.ask("control", command="finishAfterAllTasksDone")
    for running in (over, *members):
        assert running.process.wait(30) == 0


def test_beyond_loopback_with_keys(start: Start, tmp_path: Path) -> None:
    everywhere = ("--net-address", "0.0.0.0")
    over = start("ours", "governor", "--governor", *everywhere)
    key = tmp_path / "governor" / ".qcgpjm-service-governor" / "network.key"
    parent = ("--parent", over.address, "--parent-key", str(key))
    start("ours", "member", "--nodes", "2", *parent, *everywhere)
    start("ours", "here", "--nodes", "1", *parent)
    until(lambda: over.cores() == 3, "both managers register")
    over.client.ask("submit", jobs=[{"name": "loop", "iteration": {"stop": 4}, "execution": {"exec": "true"}}])
    until(lambda: over.state("loop") == "SUCCEED", "the loop ends")
    reports = [(tmp_path / name / f".qcgpjm-service-{name}" / "jobs.report") for name in ("member", "here")]
    assert all("loop:" in report.read_text() for report in reports), "each manager had a share"


def test_a_governor_publishes_ends_before_its_answers_tell_of_them(start: Start) -> None:
    over = start("ours", "governor", "--governor")
    system = over.client.ask("status")["System"]
    assert isinstance(system, dict)
    with zmq.Context() as context, context.socket(zmq.SUB) as events, context.socket(zmq.REQ) as asking:
        events.connect(system["StatusPublisher"])
        events.setsockopt(zmq.SUBSCRIBE, b"")
        asking.connect(over.address)
        told: list[bytes] = []
        for number in range(100):
            # One context, one stream of news: what was sent before an answer is here before the answers to later questions.
            name = f"j{number}"
            for request in (
                {"request": "submit", "jobs": [{"name": name, "execution": {"exec": "true"}}]},
                {"request": "cancelJob", "jobNames": [name]},
                *[{"request": "status", "options": {"allJobsFinished": True}}] * 3,
            ):
                asking.send_json(request)
                assert asking.poll(20_000)
                answer = asking.recv_json()
            assert answer == {"code": 0, "data": {"AllJobsFinished": True}}
            while events.poll(0):
                told.append(events.recv())
            if told:  # subscribed
                assert told[-1].startswith(b"NOJ") and f'"{name}"'.encode() in told[-2]
        assert told


def test_a_key_that_is_none(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "wrong.key").write_text("short")
    for name, problem in (("wrong.key", "not the key of a manager"), ("no.key", "cannot be read")):
        for program, *options in (
            ("qcg-pm-service", "--parent", "127.0.0.1:1", "--parent-key", name),
            ("qcg-pm", "--address", "127.0.0.1:1", "--key", name, "status"),
        ):
            command = [repository / "libexec" / "qcg" / program, *options]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 1 and problem in done.stderr and "Traceback" not in done.stderr


def test_the_governors_own_partitions(start: Start) -> None:
    over = start("ours", "governor", "--nodes", "a:2,b:1,c:2", "--slurm-partition-nodes", "2", "--system-core")
    execution = {"exec": "sh", "args": ["-c", "echo $QCG_PM_NODELIST > ${it}.out"]}
    over.client.ask("submit", jobs=[{"name": "loop", "iteration": {"stop": 4}, "execution": execution}])
    until(lambda: over.state("loop") != "QUEUED", "the loop ends")
    assert over.state("loop") == "SUCCEED"
    used = [(over.wd / f"{index}.out").read_text().strip() for index in range(4)]
    assert set(used[:2]) <= {"a", "b"} and used[2:] == ["c", "c"], "shares go by the partitions' order"
    assert {path.name for path in over.wd.glob(".qcgpjm-service-*")} == {
        ".qcgpjm-service-governor", ".qcgpjm-service-partition-0", ".qcgpjm-service-partition-1",
    }  # fmt: skip
    assert (over.wd / ".qcgpjm-service-governor" / "part-manager-partition-0-stderr.log").exists()
    over.client.ask("finish")
    assert over.process.wait(40) == 0
    assert (over.wd / ".qcgpjm-service-governor" / "final_status.json").exists()

"""The real client library of qcg-pilotjob 0.14.2 drives our manager, which its LocalManager starts as an executable."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.peer("qcg", "its client (qcg-pilotjob) and our manager")

Scenario = Callable[[str], dict[str, Any]]


@pytest.fixture
def scenario(client_env: Callable[[str], Path], repository: Path, tmp_path: Path) -> Scenario:
    python = client_env("qcg")
    executable = repository / "libexec" / "qcg" / "qcg-pm-service"
    script = Path(__file__).with_name("qcg_session.py")

    def run(name: str) -> dict[str, Any]:
        done = subprocess.run(
            [python, script, name, tmp_path, executable],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        )
        logs = "".join(path.read_text()[-3000:] for path in tmp_path.glob(".qcgpjm-service-*/service.log"))
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
        found = json.loads(done.stdout.splitlines()[-1])
        assert isinstance(found, dict)
        return found

    return run


def test_submit_wait_info_list_remove_finish(scenario: Scenario, tmp_path: Path) -> None:
    found = scenario("life")
    assert found["resources"] == {"total_nodes": 2, "total_cores": 5, "used_cores": 0, "free_cores": 5}
    assert found["waited"] == {"host": "SUCCEED", "two": "SUCCEED"}
    assert found["status"]["jobs"]["two"] == {"status": 0, "data": {"jobName": "two", "status": "SUCCEED"}}
    assert found["cores"] == {"host": 1, "two": 2}
    assert {name: job["status"] for name, job in found["list"].items()} == found["waited"]
    assert found["left"] == ["two"]
    assert found["again"] == {"host": "FAILED"} and found["exit"] == "7"
    assert found["system"] == ["IterationStats", "JobStats", "Resources", "System"]
    assert found["code"] == 0
    assert (tmp_path / "two.out").read_text().split()[0] == "2"
    (folder,) = tmp_path.glob(".qcgpjm-service-*")
    files = {"address", "env.log", "final_status.json", "jobs.report", "service.log", "track.reqs", "track.states"}
    assert files <= {path.name for path in folder.iterdir()}
    lines = [json.loads(line) for line in (folder / "jobs.report").read_text().splitlines()]
    assert sorted((line["name"], line["state"]) for line in lines) == [
        ("host", "FAILED"),
        ("host", "SUCCEED"),
        ("two", "SUCCEED"),
    ]
    status = json.loads((folder / "final_status.json").read_text())
    assert status["JobStats"]["TotalJobs"] == 2


def test_iterations_dependencies_and_events(scenario: Scenario, tmp_path: Path) -> None:
    found = scenario("iterations")
    # The peer's own manager lets wait4 return SUCCEED for `it` here.
    assert found["waited"] == {
        "it": "FAILED",
        "each": "FAILED",
        "after": "OMITTED",
        "good": "SUCCEED",
        "each:2": "OMITTED",
        "it:1": "SUCCEED",
    }
    assert found["childs"]["each"] == ["SUCCEED", "SUCCEED", "OMITTED", "SUCCEED"]
    assert found["iterations"] == {"start": 0, "stop": 4, "total": 4, "finished": 4, "failed": 1}
    assert found["any"] == ["last", "SUCCEED"]
    assert (tmp_path / "each_3.out").read_text() == "3 d\n"


def test_cancel_running_waiting_loops_and_parts(scenario: Scenario) -> None:
    found = scenario("cancel")
    assert found["states"] == {
        "runs": "CANCELED",
        "loop": "CANCELED",
        "waits": "CANCELED",
        "part": "FAILED",
        "dep": "OMITTED",
    }
    assert found["childs"] == ["SUCCEED", "CANCELED", "SUCCEED"]
    assert found["runtime"] == "-15"


def test_refusals_reach_the_client_and_nothing_ends_the_manager(scenario: Scenario) -> None:
    found = scenario("errors")
    assert found["malformed"]["code"] == 1 and "not JSON" in found["malformed"]["message"]
    assert found["big"] == "Request failed - Not enough resources for job big"
    assert found["twice"] == "Request failed - Job a already exist"
    assert found["unknown"] == "Request failed - Job ['nobody'] doesn't exist"
    assert found["request"] == "Request failed - Invalid request: Unknown request name: dance"
    assert found["control"] == {"code": 0, "message": "finishAfterAllTasksDone command accepted"}
    assert found["finish"] == "Request failed - Finish request already requested"
    assert found["code"] == 0


def test_killed_manager_resumes_with_nothing_lost_and_nothing_run_twice(scenario: Scenario) -> None:
    found = scenario("resume")
    assert found["ran"] == ["0", "1", "2", "3", "4", "5", "6", "7", "after"]
    assert found["states"] == {"it": "SUCCEED", "after": "SUCCEED"}
    assert found["childs"] == ["SUCCEED"] * 8
    assert found["iterations"]["finished"] == 8
    assert found["report"] == ["after", "it", *(f"it:{index}" for index in range(8))]


def test_every_form_of_a_job_and_of_an_address(scenario: Scenario, tmp_path: Path) -> None:
    found = scenario("forms")
    assert found["submitted"] == ["full", "three", "from", "words", "after", "one", "nodes", "std"]
    assert found["waited"] == dict.fromkeys(found["submitted"], "SUCCEED")
    assert found["made_up"] == ["SUCCEED"]
    assert found["args"] == "Request failed - Wrong submit request: Execution arguments must be an array"
    assert found["cores"] == {"full": 2, "nodes": 2, "std": 4, "three": 0}
    assert found["parts"] == [[f"three:{index}", index, "SUCCEED"] for index in range(3)]
    assert found["other"] and found["named"] == 4
    assert (tmp_path / "full.out").read_text() == "hello\nyes 2 zero\n"
    assert (tmp_path / "full.err").read_text() == "no\n"
    assert (tmp_path / "v.out").read_text() == "v\n"


def test_without_events_and_out_of_patience(scenario: Scenario) -> None:
    found = scenario("polling")
    assert found["waited"] == {"a": "SUCCEED", "b": "FAILED"} and found["all"] is None
    assert found["late"] == ["TimeoutElapsed", "TimeoutElapsed"]
    assert found["any"] == "ServiceError" and found["publisher"] is None
    assert found["cancelled"] == {"long": "CANCELED"}
    assert found["alive"] is False


def test_jobs_can_talk_to_their_manager(scenario: Scenario) -> None:
    found = scenario("inside")
    assert found["waited"] == {"parent": "SUCCEED"}
    assert found["list"] == {"parent": "SUCCEED", "child": "SUCCEED"}


def test_a_killed_manager_of_the_peer_is_gone_on_with(
    client_env: Callable[[str], Path], repository: Path, tmp_path: Path
) -> None:
    """By the files that it tracks its jobs in. What had not ended runs again, what had does not."""
    begin = {"exec": "sh", "args": ["-c", "echo ${it} >> ran; [ ${it} -lt 2 ] || [ -e go ] || sleep 600"]}
    words = {"exec": "sh", "args": ["-c", "echo ${itval} >> ran"]}
    jobs = [
        {"name": "loop", "iteration": {"stop": 4}, "execution": begin},
        {"name": "words", "iteration": {"values": ["x", "y"]}, "execution": words, "dependencies": {"after": ["loop"]}},
    ]
    (tmp_path / "r.json").write_text(json.dumps([{"request": "submit", "jobs": jobs}]))
    theirs = client_env("qcg").parent / "qcg-pm-service"
    options = ["--nodes", "1", "--wd", str(tmp_path)]
    peer = subprocess.Popen([theirs, "--file-path", "r.json", *options], cwd=tmp_path, start_new_session=True)
    try:
        while not (found := list(tmp_path.glob(".qcgpjm-service-*/track.states"))) or (
            len(found[0].read_bytes().splitlines()) < 2
        ):
            assert peer.poll() is None
            time.sleep(0.02)
    finally:
        os.killpg(peer.pid, signal.SIGKILL)
        peer.wait()
    (tmp_path / "go").touch()
    folder = found[0].parent
    ours = repository / "libexec" / "qcg" / "qcg-pm-service"
    assert subprocess.run([ours, "--resume", folder, *options], cwd=tmp_path, timeout=100, check=False).returncode == 0
    lines = (tmp_path / "ran").read_text().split()
    assert lines.count("0") == lines.count("1") == 1 and lines[-3:] == ["3", "x", "y"]
    report = [json.loads(line) for line in (folder / "jobs.report").read_text().splitlines()]
    names = ["loop", *(f"loop:{index}" for index in range(4)), "words", "words:0", "words:1"]
    assert sorted((entry["name"], entry["state"]) for entry in report) == [(name, "SUCCEED") for name in names]

"""What 0.14.2's client said on the wire, said again to our running manager; every answer is compared.

Dates, ids, pids and paths are masked, and what depends on who was faster: the states of jobs that have not ended, the
core that a job got, its place in the queue. Recorded mistakes of the peer are named where ours differs.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from components import qcg_address
from pilothouse.dropins.qcg.service import GATHER_S

GOLDEN = Path(__file__).parent.parent / "golden" / "qcg"
DATE = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?")
ACTIVE = ("QUEUED", "SCHEDULED", "EXECUTING")
MASKED = {"rtime", "pid", "wd", "allocation", "inQueue", "InstanceId", "Host", "Account", "Wd", "Zmqaddress"}
MASKED |= {"StatusPublisher", "PythonVersion", "Python", "Platform", "Started", "Generated", "Uptime"}


class Wire:
    """One manager, one client, one subscriber."""

    def __init__(self, executable: Path, folder: Path, *options: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen([executable, "--net", "--nodes", "4", "--wd", folder, *options])
        address = qcg_address(folder, self.process)
        self._context = zmq.Context()
        self._client = self._context.socket(zmq.REQ)
        self._client.connect(address)
        self._events = self._context.socket(zmq.SUB)
        self._events.setsockopt(zmq.SUBSCRIBE, b"")

    def ask(self, request: object) -> dict[str, Any]:
        self._client.send(request if isinstance(request, bytes) else msgspec.json.encode(request))
        assert self._client.poll(20_000), f"no answer to {request!r}"
        answer = msgspec.json.decode(self._client.recv())
        if isinstance(request, dict) and request == {"request": "status"}:
            self._events.connect(answer["data"]["System"]["StatusPublisher"])
            time.sleep(0.2)  # as the recording client did: a subscription takes a moment to arrive
        return answer  # type: ignore[no-any-return]

    def until(self, last: str, timeout_s: float = 40.0) -> list[tuple[str, dict[str, Any]]]:
        """Events up to the one that begins like this."""
        found = []
        while True:
            assert self._events.poll(timeout_s * 1000), f"{last} never came; {found[-5:]}"
            text = self._events.recv().decode()
            topic, _, data = text.partition(" ")
            found.append((topic, msgspec.json.decode(data)))
            if text.startswith(last):
                return found

    def close(self) -> None:
        self._client.close(0)
        self._events.close(0)
        self._context.term()
        self.process.terminate()
        self.process.wait(30)


@pytest.fixture
def wire(repository: Path, tmp_path: Path) -> Iterator[Wire]:
    made = Wire(repository / "libexec" / "qcg" / "qcg-pm-service", tmp_path)
    yield made
    made.close()


@pytest.fixture
def wire_2018(repository: Path, tmp_path: Path) -> Iterator[Wire]:
    made = Wire(repository / "libexec" / "qcg" / "qcg-pm-service", tmp_path, "--dialect", "2018")
    yield made
    made.close()


def conversation(name: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    lines = [msgspec.json.decode(line) for line in (GOLDEN / name).read_bytes().splitlines()]
    requests = [line["msg"] for line in lines if line["dir"] == "C->M"]
    answers = [line["msg"] for line in lines if line["dir"] == "M->C"]
    return list(zip(requests, answers, strict=True))


def masked(value: object, key: str = "") -> object:
    if key in MASKED:
        return "*"
    if isinstance(value, dict):
        return {name: masked(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [masked(item) for item in value]
    if isinstance(value, str):
        return "active" if key in ("status", "state") and value in ACTIVE else DATE.sub("DATE", value)
    return value


def held(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The same request, but its jobs end only when the file `gate` is there, however slow this client is."""
    for job in request.get("jobs", ()):
        program = Path(job["execution"]["exec"])
        job["execution"]["exec"] = str(folder / program.name)
        script = f'#!/bin/sh\nuntil [ -e {folder}/gate ]; do sleep 0.05; done\nexec {program} "$@"\n'
        (folder / program.name).write_text(script)
        (folder / program.name).chmod(0o755)
    return request


def same(wire: Wire, request: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert masked(wire.ask(request)) == masked(theirs), request


def test_basic(wire: Wire, tmp_path: Path) -> None:
    for request, theirs in conversation("01-basic.jsonl"):
        held(request, tmp_path)
        if request["request"] == "jobInfo":
            (tmp_path / "gate").touch()
            events = wire.until("NOJ")
            told = [(topic, event.get("state")) for topic, event in events]
            states = ["SCHEDULED", "EXECUTING", "SUCCEED"]
            assert told == [*(("JST", state) for state in states), ("JFI", "SUCCEED"), ("NOJ", None)]
        same(wire, request, theirs)
    assert wire.process.wait(10) == 0


def test_iterations_and_dependencies(wire: Wire, tmp_path: Path) -> None:
    for request, theirs in conversation("02-iterations-deps.jsonl"):
        held(request, tmp_path)
        if request["request"] == "jobInfo":
            (tmp_path / "gate").touch()
            events = wire.until("NOJ")
            ends = {
                (event["job"], event.get("it")): event["state"] for topic, event in events if topic in ("JFI", "IFI")
            }
            # The peer said SUCCEED for both, the state of the iteration that happened to end last.
            assert ends["it", None] == ends["peri", None] == "FAILED"
            assert ends["after", None] == ends["peri", 2] == "OMITTED" and ends["it", 2] == "FAILED"
            assert len(ends) == 4 + 4 + 4 + 3
        same(wire, request, theirs)


def test_cancel_and_wait(wire: Wire) -> None:
    cancelled = 0
    for request, theirs in conversation("03-cancel-and-wait.jsonl"):
        if request["request"] == "jobStatus" and "q:1" in request["jobNames"]:
            wire.until("JST " + '{"manager":', 10)
        if request["request"] == "jobInfo":
            wire.until("NOJ")
        cancelled += request == {"request": "cancelJob", "jobNames": ["s"]}
        if cancelled == 2:
            # The peer's text is an unformatted field name, `job_name`.
            ours = wire.ask(request)
            assert ours["data"] == {
                "canceled": 0,
                "errors": {"s": "Job/iteration s already finished - can not be canceled"},
            }
            cancelled = 3
            continue
        if cancelled == 1 and request["request"] == "jobStatus":
            # Whether the cancelled job has ended by now is a matter of chance.
            ours, expected = masked(wire.ask(request)), masked(theirs)
            ended = ours["data"]["jobs"]["s"]["data"]  # type: ignore[index]
            assert ended["status"] in ("active", "CANCELED")
            ended["status"] = expected["data"]["jobs"]["s"]["data"]["status"]  # type: ignore[index]
            assert ours == expected, request
            continue
        same(wire, request, theirs)


def test_errors(wire: Wire) -> None:
    for request, theirs in conversation("04-errors.jsonl"):
        if request.get("request") == "jobStatus" and "jobNames" not in request and "jobName" not in request:
            wire.until("NOJ")
        same(wire, request, theirs)


def test_failures_walltime_and_finish(wire: Wire) -> None:
    for request, theirs in conversation("05-walltime-fail-finish.jsonl"):
        if request["request"] == "jobInfo":
            began = time.monotonic()
            wire.until("NOJ")
            assert time.monotonic() - began < 15, "the limit of 2 s is kept; the peer let the job sleep for 30 s"
            ours, expected = wire.ask(request), theirs
            told = ours["data"]["jobs"]["wt"]["data"]
            assert told["status"] == "FAILED" and told["messages"] == "Wall time limit reached"
            assert told["runtime"]["exit_code"] == "-15"
            del ours["data"]["jobs"]["wt"], expected["data"]["jobs"]["wt"]
            assert masked(ours) == masked(expected)
        elif request["request"] == "jobStatus":
            # One of them ends at once: whether before or after this question is a matter of chance.
            assert list(wire.ask(request)["data"]["jobs"]) == list(theirs["data"]["jobs"])
        else:
            same(wire, request, theirs)
    assert wire.process.wait(10) == 0


def test_what_is_not_json_is_refused_and_the_manager_goes_on(wire: Wire) -> None:
    # The peer ends at once, with exit code 0.
    answer = wire.ask(b"{not json")
    assert answer["code"] == 1 and "not JSON" in answer["message"]
    assert wire.ask({"request": "resourcesInfo"})["code"] == 0
    assert wire.process.poll() is None


def test_who_hears_of_an_end_sees_those_that_came_with_it(wire: Wire) -> None:
    """Clients wait for one of many jobs that began together, and count the others at once."""
    wire.ask({"request": "status"})
    jobs = [
        {"name": name, "execution": {"exec": "sleep", "args": [seconds]}}
        for name, seconds in (("a", "0.2"), ("b", "60"))
    ]
    wire.ask({"request": "submit", "jobs": jobs})
    told = [event for topic, event in wire.until("JFI") if topic == "JFI"]
    heard_at = datetime.now()
    assert [event["job"] for event in told] == ["a"]
    info = wire.ask({"request": "jobInfo", "jobNames": ["a"]})["data"]["jobs"]["a"]["data"]
    ended_at = datetime.fromisoformat(info["history"].splitlines()[-1].removesuffix(": SUCCEED"))
    assert (heard_at - ended_at).total_seconds() >= GATHER_S, "told before others could have ended, too"


def test_the_specifications_dialect_over_the_network(wire_2018: Wire) -> None:
    wire = wire_2018
    size = {"numCores": {"exact": 2}}
    sleep = {"exec": "sleep", "args": ["60"], "stdout": "${jname}.${ncores}.out"}
    loop = {"name": "s_${it}", "iterate": [1, 4], "execution": sleep, "resources": size}
    huge = {"name": "huge", "execution": {"exec": "true"}, "resources": {"numCores": {"exact": 99}}}
    after = {
        "name": "after",
        "execution": {"exec": "true"},
        "resources": size,
        "dependencies": {"after": ["s_1", "huge"]},
    }
    answer = wire.ask({"request": "submit", "jobs": [loop, huge, after]})
    assert answer == {"code": 0, "message": "5 jobs submited"}

    def status(name: str) -> dict[str, Any]:
        data = wire.ask({"request": "jobStatus", "jobName": name})["data"]
        assert isinstance(data, dict)
        return data

    while status("s_2")["status"] != "EXECUTING" or status("after")["status"] == "QUEUED":
        time.sleep(0.02)
    first = status("s_1")
    assert first["runtime"]["allocation"] == "n0:2"
    assert re.fullmatch(r"\nDATE: QUEUED\nDATE: EXECUTING", DATE.sub("DATE", first["history"]))
    assert status("s_3")["status"] == "QUEUED"
    assert status("huge")["status"] == "FAILED", "more than there is"
    assert status("after")["status"] == "OMITTED", "it waits for a job that has failed"
    names = ["s_1", "s_2", "s_3", "huge", "after"]
    assert wire.ask({"request": "listJobs"}) == {"code": 0, "data": {"length": 5, "names": names}}
    resources = wire.ask({"request": "resourcesInfo"})["data"]
    assert resources == {"totalCores": 4, "totalNodes": 1, "usedCores": 4, "freeCores": 0}
    assert wire.ask({"request": "cancelJob", "jobName": "s_1"})["code"] == 0
    while status("s_1")["status"] != "CANCELED":
        time.sleep(0.02)
    assert wire.ask({"request": "removeJob", "jobName": "s_1"})["code"] == 0
    assert wire.ask({"request": "jobStatus", "jobName": "s_1"})["code"] == 1
    assert wire.ask({"request": "finish"}) == {"code": 0, "data": {"when": "0s"}}
    assert wire.process.wait(30) == 0


def test_ends_are_published_before_an_answer_tells_of_them(wire: Wire) -> None:
    """Or wait4all() of the real client takes the news of earlier jobs for those of the jobs that it waits for."""
    wire.ask({"request": "status"})
    finished = {"request": "status", "options": {"allJobsFinished": True}}
    for number in range(5):
        script = "until [ -e go${rcnt} ]; do sleep 0.01; done; sleep 0.0${it}"
        job = {"name": f"j{number}", "iteration": {"stop": 4}, "execution": {"exec": "sh", "args": ["-c", script]}}
        wire.ask({"request": "submit", "jobs": [job]})
        (wire.folder / f"go{number + 1}").touch()
        while not wire.ask(finished)["data"]["AllJobsFinished"]:
            time.sleep(0.001)
        for _ in range(3):
            wire.ask(finished)
        # What was sent before the answer has come before the answers to three later questions.
        assert wire.until("NOJ", timeout_s=0)[-1][0] == "NOJ"

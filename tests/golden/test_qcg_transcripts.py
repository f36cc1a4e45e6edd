"""What QCG PilotJob 0.14.2 said on the wire, request by request, against our manager; dates and ids are masked.

Timing is not part of a transcript: a job that has not ended may be told as queued, scheduled or executing, and events
of different jobs may be told in another order. Where the recording shows a mistake of the peer, ours does it right, and
the difference is spelled out here.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "unit" / "dropins" / "qcg"))

from virtual import Outcome, VirtualPilot

pytestmark = pytest.mark.peer("qcg", "recorded conversations of its service")

HERE = Path(__file__).parent / "qcg"
DATE = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?")
ACTIVE = ("QUEUED", "SCHEDULED", "EXECUTING")
MASKED = {"rtime", "pid", "wd", "Uptime", "Zmqaddress", "StatusPublisher", "InstanceId", "Host", "Account", "Wd"}
MASKED |= {"PythonVersion", "Python", "Platform", "Ifaces", "Started", "Generated", "inQueue", "manager", "allocation"}


def masked(value: object, *, timing: bool = False) -> object:
    """`timing`: states that have not ended are all one."""
    if isinstance(value, dict):
        return {
            key: "*" if key in MASKED else masked(item, timing=timing or key in ("status", "state"))
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [masked(item) for item in value]
    if isinstance(value, str):
        return "active" if timing and value in ACTIVE else DATE.sub("DATE", value)
    return value


def outcome_of(name: str) -> Outcome:
    """How the jobs of the recordings end."""
    if name == "it:2":
        return 0.008, 1, ""
    if name == "nf":
        return 0.016, -1, "[Errno 2] No such file or directory: '/no/such'"
    if name == "scr":
        return 0.4, 3, ""
    if name in ("s", "wt"):
        return 30.0, 0, ""
    return (1.0 if name.startswith("q:") else 0.008), 0, ""


def lines_of(name: str) -> list[dict[str, object]]:
    return [msgspec.json.decode(line) for line in (HERE / name).read_bytes().splitlines()]


def said(name: str) -> list[tuple[object, object]]:
    lines = lines_of(name)
    requests = [line["msg"] for line in lines if line["dir"] == "C->M"]
    answers = [line["msg"] for line in lines if line["dir"] == "M->C"]
    return list(zip(requests, answers, strict=True))


def replay(name: str, *, wait_before: tuple[str, ...]) -> tuple[VirtualPilot, list[tuple[object, object, object]]]:
    """Asks what the client asked. Work goes on only while the client waited: before requests of these kinds."""
    pilot = VirtualPilot(4, outcome=outcome_of)
    rows = []
    for request, answer in said(name):
        assert isinstance(request, dict)
        if request.get("request") in wait_before:
            pilot.run()
        rows.append((request, answer, pilot.ask(request, settle="jobNames" not in request)))
    return pilot, rows


def events_of(name: str) -> list[tuple[str, dict[str, object]]]:
    found = []
    for line in lines_of(name):
        if line["dir"] == "PUB":
            topic, _, data = str(line["raw"]).partition(" ")
            found.append((topic, msgspec.json.decode(data)))
    return found


def per_job(events: list[tuple[str, dict[str, object]]]) -> dict[str, list[str]]:
    """The events of each job and iteration on its own, in order."""
    lives: dict[str, list[str]] = {}
    for topic, event in events:
        who = f"{event.get('job')}:{event.get('it', '')}"
        lives.setdefault(who, []).append(f"{topic} {event.get('state', '')}")
    return lives


def test_basic() -> None:
    pilot, rows = replay("01-basic.jsonl", wait_before=("jobInfo",))
    for request, theirs, ours in rows:
        assert masked(ours) == masked(theirs), request
    assert per_job(pilot.published) == per_job(events_of("01-basic.jsonl"))


def test_iterations_and_dependencies() -> None:
    pilot, rows = replay("02-iterations-deps.jsonl", wait_before=("jobInfo",))
    for request, theirs, ours in rows:
        assert masked(ours) == masked(theirs), request
    ours, theirs = per_job(pilot.published), per_job(events_of("02-iterations-deps.jsonl"))
    # The peer tells the state of the last iteration as that of the job, and its wait4() believes it.
    for job in ("it:", "peri:"):
        assert theirs.pop(job) == ["JST SUCCEED", "JFI SUCCEED"]
        assert ours.pop(job) == ["JST FAILED", "JFI FAILED"]
    assert ours == theirs


def test_cancel_and_wait() -> None:
    pilot = VirtualPilot(4, outcome=outcome_of)
    conversation = said("03-cancel-and-wait.jsonl")
    assert conversation[-2][1] == {"code": 0, "data": {"canceled": 0, "errors": {"s": "job_name"}}}
    for number, (request, theirs) in enumerate(conversation):
        if number == 2:
            pilot.run(until=pilot.now + 0.5)
        if number == 7:
            pilot.run()
        ours = pilot.ask(request)
        if number == len(conversation) - 2:
            # The peer's text for a job that has ended is an unformatted field name.
            assert ours == {"code": 0, "data": {"canceled": 0, "errors": {"s": CANNOT}}}
        else:
            assert masked(ours) == masked(theirs), request
    ours_said, theirs_said = per_job(pilot.published), per_job(events_of("03-cancel-and-wait.jsonl"))
    assert theirs_said.pop("q:") == ["JST SUCCEED", "JFI SUCCEED"]
    assert ours_said.pop("q:") == ["JST FAILED", "JFI FAILED"]
    assert ours_said == theirs_said


CANNOT = "Job/iteration s already finished - can not be canceled"


@pytest.mark.parametrize("number", range(len(said("04-errors.jsonl"))))
def test_errors(number: int) -> None:
    pilot = VirtualPilot(4, outcome=outcome_of)
    for index, (request, theirs) in enumerate(said("04-errors.jsonl")[: number + 1]):
        # The peer began to work after its first 25 answers.
        ours = pilot.ask(request, settle=index >= 24)
        if index >= 24:
            pilot.run()
        if index == number:
            assert masked(ours) == masked(theirs), request


def test_queue_positions_of_a_burst() -> None:
    pilot = VirtualPilot(4, outcome=outcome_of)
    for index, (request, theirs) in enumerate(said("04-errors.jsonl")):
        ours = pilot.ask(request, settle=index >= 24)
        pilot.run()
        if request == {"request": "listJobs"}:
            assert ours == theirs


def test_failures_and_finish() -> None:
    pilot, rows = replay("05-walltime-fail-finish.jsonl", wait_before=("jobInfo",))
    for request, theirs, ours in rows:
        assert masked(ours) == masked(theirs), request
    assert per_job(pilot.published) == per_job(events_of("05-walltime-fail-finish.jsonl"))


def test_a_message_that_is_not_json_is_answered() -> None:
    lines = lines_of("06-malformed-json.jsonl")
    assert [line.get("note") for line in lines][-2:] == [
        "NO REPLY in 4 s",
        "second client after malformed message: NO REPLY in 4 s",
    ]
    pilot = VirtualPilot(4)
    pilot.ask({"request": "submit", "jobs": [{"name": "a", "execution": {"exec": "true"}}]})
    answer = pilot.ask(b"{not json")
    assert answer["code"] == 1 and "not JSON" in str(answer["message"])
    assert pilot.ask({"request": "status", "options": {"allJobsFinished": True}})["data"] == {"AllJobsFinished": False}

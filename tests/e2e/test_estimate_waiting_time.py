"""How long a potential job would wait (QUERY, estimate_waiting_time): a Batsim asks our policies, and our worlds ask theirs."""

from __future__ import annotations

import csv
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import components
from e2e import live_runs
from pilothouse.cli.batsim2 import command as batsim2
from pilothouse.cli.batsim4 import command as batsim4
from pilothouse.cli.simulate import command as simulate
from pilothouse.core.cluster import Cluster
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.journal.read import read_notes
from pilothouse.journal.run_reader import answers as answers_of
from pilothouse.launch import naming
from pilothouse.launch.explain_task import explain_task
from pilothouse.model.decisions import AnswerEstimate
from pilothouse.model.events import EstimateAsked, Event
from pilothouse.policies.base import Policy
from pilothouse.protocols.batsim.world import BatsimWorld
from pilothouse.protocols.request_socket import RequestChannel
from pilothouse.worlds.live import requests

Say = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def batsim(tmp_path: Path) -> Iterator[Callable[[Any], Say]]:
    """A Batsim with four hosts; it says events, and hears the answers of a decider."""
    endpoint = f"ipc://{tmp_path}/s"
    channel = RequestChannel(endpoint, "us", timeout_s=20)
    threads: list[threading.Thread] = []

    def say(now: float, *events: tuple[str, dict[str, object]]) -> list[dict[str, Any]]:
        listed = [{"timestamp": now, "type": kind, "data": data} for kind, data in events]
        answer = channel.exchange(json.dumps({"now": now, "events": listed}).encode())
        found: list[dict[str, Any]] = json.loads(answer)["events"]
        return found

    def steered_by(decider: Any) -> Say:
        threads.append(threading.Thread(target=Session(BatsimWorld(endpoint), decider).run))
        threads[0].start()
        hosts = [{"id": number, "name": f"h{number}", "state": "idle"} for number in range(4)]
        say(0, ("SIMULATION_BEGINS", {"nb_resources": 4, "resources_data": hosts, "config": {}}))
        return say

    yield steered_by
    say(10**6, ("SIMULATION_ENDS", {}))
    threads[0].join(20)
    channel.close()


def submitted(name: str, hosts: int, walltime: float) -> tuple[str, dict[str, object]]:
    job = {"id": f"w0!{name}", "res": hosts, "walltime": walltime, "subtime": 0, "profile": "p"}
    return "JOB_SUBMITTED", {"job_id": f"w0!{name}", "job": job}


def query(hosts: int, walltime: float | None = 5.0) -> tuple[str, dict[str, object]]:
    job: dict[str, object] = {"res": hosts} if walltime is None else {"res": hosts, "walltime": walltime}
    return "QUERY", {"requests": {"estimate_waiting_time": {"job_id": "workflow_submitter0!potential_job17", "job": job}}}


def answers(events: list[dict[str, Any]]) -> list[float]:
    found = [event["data"]["estimate_waiting_time"] for event in events if event["type"] == "ANSWER"]
    assert all(one["job_id"] == "workflow_submitter0!potential_job17" for one in found)
    return [one["estimated_waiting_time"] for one in found]


@pytest.mark.parametrize(("policy", "waits"), [("fcfs", [150, 150]), ("easy", [0, 150]), ("conservative", [0, 150])])
def test_policies_answer(batsim: Callable[[Any], Say], policy: str, waits: list[float]) -> None:
    """Two of four hosts are busy for 100 s, and a job of four hosts and 100 s waits behind it."""
    say = batsim(naming.decider(policy))
    started = say(0, submitted("runs", 2, 100.0), submitted("waits", 4, 100.0))
    assert [event["data"]["job_id"] for event in started] == ["w0!runs"]
    assert [answers(say(50, query(1, walltime)))[0] for walltime in (5.0, 500.0)] == waits
    assert answers(say(50, query(1), query(2))) == [waits[0], waits[0]]
    assert answers(say(60, query(5))) == [pytest.approx(1.797e308, rel=1e-3)], "it never starts: no null, which is no number"
    assert answers(say(60, query(1, None))) == [140], "a job without a limit does not overtake"


class Answers(Policy):
    def schedule(self, cluster: Cluster) -> None:
        """Starts nothing."""

    def on_event(self, event: Event, cluster: Cluster) -> None:
        if type(event) is EstimateAsked:
            cluster.book(AnswerEstimate(cluster.now, event.job.id, 42.0))


def test_a_policy_may_answer_itself(batsim: Callable[[Any], Say]) -> None:
    assert answers(batsim(PolicyDecider(Answers()))(1, query(1))) == [42]


def test_a_scheduler_that_has_no_word_for_it(batsim: Callable[[Any], Say]) -> None:
    """Nothing is known, and the question is answered all the same."""
    assert answers(batsim(PolicyDecider(naming.policy("fcfs")))(1, query(1))) == [pytest.approx(1.797e308, rel=1e-3)]


POTENTIAL = {
    "nb_res": 4,
    "jobs": [
        {"id": "wide", "subtime": 30, "res": 4, "walltime": 10, "profile": "p"},
        {"id": "small", "subtime": 6, "res": 1, "walltime": 10, "profile": "p"},
        {"id": "huge", "subtime": 6, "res": 5, "walltime": 10, "profile": "p"},
    ],
    "profiles": {"p": {"type": "delay", "delay": 1}},
}
TINY = components.ROOT / "examples/tiny.json"
SMALL = components.ROOT / "tests/golden/batsim4/inputs/platforms/small_platform.xml"


def estimates(path: Path) -> dict[str, str]:
    return {row["job_id"]: row["estimated_waiting_time"] for row in csv.DictReader(path.open())}


def simulated(folder: Path, *more: str) -> dict[str, str]:
    """The answers to a simulation's questions."""
    (folder / "potential.json").write_text(json.dumps(POTENTIAL))
    given = ["-p", "4", "-w", str(TINY), "-e", f"{folder}/out/", "--ask-estimates", str(folder / "potential.json"), *more]
    done = CliRunner().invoke(simulate, given)
    assert done.exit_code == 0, done.output
    assert (folder / "out/jobs.csv").read_text().count("\n") == 7, "they are not submitted"
    return estimates(folder / "out/estimates.csv")


@pytest.mark.parametrize("more", [(), ("--control-latency",), ("--control-latency", "1ms")])
def test_a_simulation_asks(more: tuple[str, ...], tmp_path: Path) -> None:
    """Job 1 has three of four hosts until 120 s, and job 2 will have all until 180 s; job 3 (90 s) fits beside job 1."""
    found = simulated(tmp_path, "--policy", "easy", *more)
    assert found["potential!huge"] == "inf"
    assert float(found["potential!small"]) == pytest.approx(0.0, abs=0.01)
    assert float(found["potential!wide"]) > 150
    assert list(found)[-1] == "potential!wide", "by the date of the question"


@pytest.mark.parametrize("dialect", ["2", "4", "any"])
def test_a_simulation_asks_a_scheduler_over_the_protocol(dialect: str, tmp_path: Path) -> None:
    """The answers of a policy behind a socket are those of the same policy in this process."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    endpoint = f"ipc://{tmp_path}/s"
    steering = threading.Thread(target=Session(BatsimWorld(endpoint), naming.decider("easy")).run)
    steering.start()
    asked = simulated(there, "--by", f"batsim:{endpoint}?dialect={dialect}")
    steering.join(20)
    expected = simulated(here, "--policy", "easy")
    assert asked["potential!huge"] == expected["potential!huge"] == "inf"
    assert {name: float(seconds) for name, seconds in asked.items()} == {
        name: pytest.approx(float(seconds), abs=1e-5) for name, seconds in expected.items()
    }


@pytest.mark.parametrize("drop_in", [batsim2, batsim4])
def test_the_drop_ins_ask_where_they_are_told_to(drop_in: click.Command, tmp_path: Path) -> None:
    endpoint, asked = f"ipc://{tmp_path}/s", tmp_path / "potential.json"
    asked.write_text(json.dumps(POTENTIAL))
    steering = threading.Thread(target=Session(BatsimWorld(endpoint), naming.decider("fcfs")).run)
    steering.start()
    arguments = ["-p", str(SMALL), "-w", str(TINY), "-e", str(tmp_path / "out"), "-s", endpoint]
    done = CliRunner().invoke(drop_in, [*arguments, "--decider-ask-estimates", str(asked)])
    steering.join(20)
    assert done.exit_code == 0, done.output
    found = estimates(tmp_path / "out_estimates.csv")
    assert float(found["potential!small"]) == pytest.approx(174, abs=0.1), "behind job 2, which waits for job 1"


def test_what_a_scheduler_does_not_answer_is_an_empty_cell(tmp_path: Path) -> None:
    from golden.batsim4_player import Player

    class Silent(Player):
        def answer(self, prepared: bytes, heard: bytes) -> bytes:
            message = json.loads(heard)
            jobs = [one["data"]["job_id"] for one in message["events"] if one["type"] == "JOB_SUBMITTED"]
            events = [{"timestamp": message["now"], "type": "REJECT_JOB", "data": {"job_id": name}} for name in jobs]
            return json.dumps({"now": message["now"], "events": events}).encode()

    silent = Silent(f"ipc://{tmp_path}/s", [b""] * 50)
    try:
        found = simulated(tmp_path, "--by", f"batsim:ipc://{tmp_path}/s?dialect=2")
    finally:
        silent.close()
    assert set(found.values()) == {""}


@pytest.mark.parametrize("foreign", [False, True])
def test_the_scheduler_of_a_live_run_is_asked(foreign: bool, tmp_path: Path) -> None:
    """One slot, which the first task has for at most an hour. A scheduler outside of this program is asked over its protocol."""
    endpoint = f"ipc://{tmp_path}/s"
    by = f"batsim:{endpoint}?dialect=2" if foreign else "fcfs"
    steering = threading.Thread(target=Session(BatsimWorld(endpoint), naming.decider("fcfs")).run) if foreign else None
    if steering is not None:
        steering.start()
    waits = "until test -e go; do sleep 0.02; done\n"
    options = ("--slots", "1", "--dir", "R", "--walltime", "1h", "--by", by)
    process = live_runs.start(tmp_path, live_runs.tasks(tmp_path, waits + "true\n"), *options)
    folder = tmp_path / "R"
    try:
        live_runs.until(lambda: live_runs.rows(folder, "SELECT 1 FROM assignments WHERE closed_at IS NULL"), "one task runs")
        if foreign:
            assert "decides outside of this program; --ask asks it" in explain_task(folder, "1", as_json=True)
        began = time.time()
        story = json.loads(explain_task(folder, "1", as_json=True, ask=True))
        assert story["expected_start"] == pytest.approx(began + 3600, abs=30) and by in story["expected_why"]
        asked = requests.AskEstimate(0)
        requests.ask(folder, asked)
        live_runs.until(lambda: [one for one in answers_of(read_notes(folder)) if one.request == asked], "an answer")
        (refused,) = [one for one in answers_of(read_notes(folder)) if one.request == asked]
        assert (refused.done, refused.text) == (False, "task 0 does not wait")
    finally:
        (tmp_path / "go").touch()
        code, said = live_runs.finish(process)
    assert code == 0, said
    if steering is not None:
        steering.join(20)
        assert not steering.is_alive()

"""A Batsim asks how long a potential job would wait (QUERY, estimate_waiting_time); the policy that schedules for it answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pilothouse.core.cluster import Cluster
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.launch import naming
from pilothouse.model.decisions import AnswerEstimate
from pilothouse.model.events import EstimateAsked, Event
from pilothouse.policies.base import Policy
from pilothouse.protocols.batsim.world import BatsimWorld
from pilothouse.protocols.request_socket import RequestChannel

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

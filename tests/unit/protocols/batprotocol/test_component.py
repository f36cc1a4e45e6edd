"""A policy as a decision component, in this process: both ends of batprotocol give the schedule that the policy gives alone."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from pilothouse.core.cluster import Cluster
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import PeerError
from pilothouse.model.job import Job, Node
from pilothouse.model.profile import Delay, Profile
from pilothouse.model.record import JobRecord
from pilothouse.policies.base import Policy
from pilothouse.policies.catalog import make
from pilothouse.protocols.batprotocol import messages as m
from pilothouse.protocols.batprotocol.codec import Format, decode, encode
from pilothouse.protocols.batprotocol.decider import EdcDecider
from pilothouse.protocols.batprotocol.scheduler import Component, SchedulerSide
from pilothouse.worlds.simulated.world import SimulatedWorld


class Line:
    """The channel between the two ends: a function call."""

    name = "component"

    def __init__(self, policy: Policy, form: Format) -> None:
        self.component = Component(policy, "tested", form)

    def hello(self, init: bytes) -> tuple[int, bytes]:
        return self.component.init()

    def exchange(self, message: bytes) -> bytes:
        return self.component.take_decisions(message)

    def close(self) -> None: ...


class Impatient(Policy):
    """Starts in order, asks to be called, kills what runs for more than eight seconds, and refuses wide jobs."""

    def admit(self, job: Job, cluster: Cluster) -> bool:
        if job.units > 3:
            cluster.reject(job, "too wide")
            return False
        return True

    def schedule(self, cluster: Cluster) -> None:
        old = [run.job for run in cluster.running.values() if cluster.now - run.started_at >= 8.0]
        if old:
            cluster.kill(*old)
        for job in cluster.queue:
            if not cluster.start(job):
                break
            cluster.call_at(cluster.now + 8.0)


def jobs() -> list[Job]:
    dice = random.Random(7)
    return [
        Job(f"w0!{i}", dice.randint(1, 4), 30.0, float(i // 2), Profile(f"w0!p{i}", Delay(float(dice.randint(1, 20)))))
        for i in range(25)
    ]


def schedule_of(decider: PolicyDecider | EdcDecider) -> list[tuple[object, ...]]:
    begins = e.Begins(tuple(Node(f"h{i}", i, speeds=(1e9,)) for i in range(4)), workloads={"w0": ""})
    done: list[JobRecord] = []
    outcome = Session(SimulatedWorld(begins, jobs(), record=done.append), decider).run()
    assert not outcome.deadlocked and len(done) == 25
    return [(one.job.id, one.state, one.started_at, one.ended_at, str(one.units)) for one in done]


@pytest.mark.parametrize("form", [Format.BINARY, Format.JSON], ids=["binary", "json"])
@pytest.mark.parametrize(
    "policy",
    [lambda: make("fcfs", {}), lambda: make("easy", {}), lambda: make("conservative", {}), Impatient],
    ids=["fcfs", "easy", "conservative", "impatient"],
)
def test_the_same_schedule_through_the_protocol(policy: Callable[[], Policy], form: Format) -> None:
    alone = schedule_of(PolicyDecider(policy()))
    through = schedule_of(EdcDecider(Line(policy(), form)))
    assert [line[:2] for line in through] == [line[:2] for line in alone]
    for one, other in zip(alone, through, strict=True):
        assert other[2:4] == pytest.approx(one[2:4], abs=1e-6) and one[4] == other[4]


@pytest.mark.parametrize("form", [Format.BINARY, Format.JSON])
def test_dates_of_decisions_ascend_and_are_not_later_than_the_reply(form: Format) -> None:
    side = SchedulerSide("s", form)
    calls = [d.CallAt(at, 50.0, f"c{at:g}") for at in (0.5, 3.0, 2.0, 5.0, 99.0)]
    message = decode(side.reply(d.Reply(9.0, [*calls, d.Annotate(9.0, "w0!1", {})])), form, "s")
    assert message.now == 9.0
    assert [item.timestamp for item in message.events or ()] == [0.5, 3.0, 3.0, 5.0, 9.0], "a note has no word in it"
    assert not side.ended


def test_a_component_is_told_of_the_beginning_first() -> None:
    component = Component(make("fcfs", {}), "tested", Format.JSON)
    early = m.Message(0.0, [m.EventAndTimestamp(0.0, m.AllStaticJobsHaveBeenSubmittedEvent())])
    with pytest.raises(PeerError, match="its first request does not begin the simulation"):
        component.take_decisions(encode(early, Format.JSON))


class SlowLine(Line):
    """The component takes two seconds to think."""

    def exchange(self, message: bytes) -> bytes:
        form = Format(self.component.init()[0])
        reply = decode(super().exchange(message), form, "slow")
        return encode(m.Message(reply.now + 2.0, reply.events), form)


@pytest.mark.parametrize("form", [Format.BINARY, Format.JSON], ids=["binary", "json"])
def test_the_time_that_a_component_takes_to_think_is_kept(form: Format) -> None:
    begins = e.Begins((Node("h0", 0, speeds=(1e9,)),), workloads={"w0": ""})
    for line, took in ((Line(make("fcfs", {}), form), 0.0), (SlowLine(make("fcfs", {}), form), 2.0)):
        decider = EdcDecider(line)
        decider.hello()
        decider.begin(begins, Cluster(begins, "tested"))
        assert decider.decide(e.Batch(0.0, [e.Began(0.0, begins)])).now == took
        job = Job("w0!1", 1, 30.0, 5.0, Profile("w0!p", Delay(1.0)))
        reply = decider.decide(e.Batch(5.0, [e.JobSubmitted(5.0, job)]))
        assert reply.now == 5.0 + took
        (start,) = reply.decisions
        assert isinstance(start, d.StartJob) and start.at == 5.0

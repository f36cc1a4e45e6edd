"""The job manager's scheduler over one of our worlds: events become the manager's, the scheduler's answers become decisions."""

from __future__ import annotations

import errno
from math import inf
from typing import Any

import msgspec
import pytest

from pilothouse.core.cluster import Cluster
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState
from pilothouse.protocols.rfc27 import frames, rpc
from pilothouse.protocols.rfc27.frames import Message
from pilothouse.protocols.rfc27.manager_adapter import ManagerAdapter
from unit.protocols.rfc27.pair import body

NODES = tuple(Node(f"h{i}", 4 * i, 4, gpus=1, properties={"fast": ""} if i else {}) for i in range(2))


class Scheduler:
    """A ManagerAdapter with the test as the scheduler at the other end of the wire."""

    def __init__(self, *, strict: bool = False, **world: Any) -> None:
        begins = e.Begins(**{"nodes": NODES, **world})
        self.cluster = Cluster(begins, "rfc27")
        self.adapter = ManagerAdapter(begins, self.cluster, strict=strict)
        self.strict = strict
        self.adapter.broker.join(1, "scheduler 1")
        self.say(rpc.request("service.add", b'{"service":"sched"}', matchtag=1))
        self.say(rpc.request("service.add", b'{"service":"feasibility"}', matchtag=1))
        acquired = self.say(rpc.request("resource.acquire", matchtag=2, flags=frames.STREAMING))
        self.inventory = body(acquired[-1])
        self.hello()

    def hello(self) -> list[Message]:
        flags = 0 if self.strict else frames.STREAMING
        greeted = self.say(rpc.request("job-manager.sched-hello", matchtag=3, flags=flags))
        self.say(rpc.request("job-manager.sched-ready", b'{"mode":"unlimited"}', matchtag=3))
        return greeted

    def say(self, message: Message) -> list[Message]:
        self.adapter.broker.receive(self.adapter.now, 1, message)
        return self.heard()

    def heard(self) -> list[Message]:
        self.adapter.broker.dispatch(self.adapter.now)
        return [message for _, message in self.adapter.broker.take()]

    def happen(self, now: float, *events: e.Event) -> list[Message]:
        """What the scheduler hears of these events."""
        self.cluster.now = now
        for event in events:
            self.cluster.observe(event)
        self.adapter.handle(e.Batch(now, list(events)))
        return self.heard()

    def grant(self, flux_id: int, lite: str) -> list[d.Decision]:
        """The scheduler gives these resources; the decisions that follow."""
        self.give(flux_id, lite)
        return self.decisions()

    def give(self, flux_id: int, lite: str) -> list[Message]:
        """The scheduler gives these resources; what it hears then."""
        resources = b'{"version":1,"execution":{"R_lite":[%s],"starttime":0,"expiration":0}}' % lite.encode()
        self.adapter.manager.jobs[flux_id].committed = resources
        return self.answer(flux_id, 0, R=msgspec.Raw(resources))

    def answer(self, flux_id: int, kind: int, **more: object) -> list[Message]:
        """An answer to an alloc request; what the scheduler hears then."""
        payload = msgspec.json.encode({"id": flux_id, "type": kind, **more}) + b"\0"
        return self.say(Message(frames.RESPONSE, "sched.alloc", payload, 0, 0, 0, (b"job-manager",)))

    def raises(self, flux_id: int, severity: int = 0, note: str = "no more") -> list[Message]:
        payload = msgspec.json.encode({"id": flux_id, "type": "x", "severity": severity, "note": note})
        return self.say(rpc.request("job-manager.raise", payload, matchtag=5))

    def submit(self, name: str = "w!1", units: int = 1) -> int:
        """A job whose alloc request has been sent; its id there."""
        (flux_id,) = asked(self.happen(self.adapter.now, e.JobSubmitted(self.adapter.now, Job(name, units))))
        return flux_id

    def decisions(self) -> list[d.Decision]:
        decisions = self.adapter.take_decisions()
        for decision in decisions:
            self.cluster.book(decision)
        self.cluster.take_decisions()
        return decisions


def core(rank: int, cores: str) -> str:
    return f'{{"rank":"{rank}","children":{{"core":"{cores}"}}}}'


def asked(messages: list[Message]) -> list[int]:
    return [body(m)["id"] for m in messages if m.topic == "sched.alloc"]


def test_the_inventory_names_nodes_gpus_and_properties() -> None:
    execution = Scheduler().inventory["resources"]["execution"]
    assert execution["R_lite"] == [{"rank": "0-1", "children": {"core": "0-3", "gpu": "0"}}]
    assert execution["nodelist"] == ["h[0-1]"] and execution["properties"] == {"fast": "1"}


def test_a_job_is_asked_for_and_started_where_the_scheduler_says() -> None:
    scheduler = Scheduler()
    (flux_id,) = asked(scheduler.happen(5.0, e.JobSubmitted(5.0, Job("w!1", 2, 60.0))))
    decisions = scheduler.grant(flux_id, core(1, "2-3"))
    assert [(o.job_id, str(o.units)) for o in decisions if isinstance(o, d.StartJob)] == [("w!1", "6-7")]
    heard = scheduler.happen(9.0, e.JobEnded(9.0, "w!1", JobState.SUCCEEDED, 0, IdSet.of([6, 7])))
    assert [m.topic for m in heard] == ["sched.free"] and not scheduler.adapter.manager.jobs


@pytest.mark.parametrize(
    ("lite", "rule"),
    [(core(0, "0"), "wrong count"), (core(1, "0-2"), "wrong count"), (core(7, "0-1"), "empty allocation")],
)
def test_an_allocation_that_breaks_a_rule_ends_the_job_and_not_the_run(lite: str, rule: str) -> None:
    scheduler = Scheduler()
    (flux_id,) = asked(scheduler.happen(0.0, e.JobSubmitted(0.0, Job("w!1", 2))))
    (decision,) = scheduler.grant(flux_id, lite)
    assert isinstance(decision, d.RejectJob) and decision.reason.startswith(rule)
    assert "taken back" in scheduler.adapter.manager.take_warnings()[-1]
    assert scheduler.cluster.free == 8


def test_a_core_given_twice_in_one_turn_is_noticed() -> None:
    scheduler = Scheduler()
    ids = asked(scheduler.happen(0.0, *(e.JobSubmitted(0.0, Job(f"w!{i}", 1)) for i in (1, 2))))
    resources = b'{"version":1,"execution":{"R_lite":[%s]}}' % core(0, "0").encode()
    for flux_id in ids:
        payload = b'{"id":%d,"type":0,"R":%s}\0' % (flux_id, resources)
        scheduler.say(Message(frames.RESPONSE, "sched.alloc", payload, 0, 0, 0, (b"job-manager",)))
    decisions = scheduler.decisions()
    assert [type(decision) for decision in decisions] == [d.StartJob, d.RejectJob]
    assert "in this same turn" in decisions[1].reason  # type: ignore[union-attr]


@pytest.mark.parametrize("strict", [False, True])
def test_a_withdrawal_is_confirmed(strict: bool) -> None:
    scheduler = Scheduler(strict=strict)
    (flux_id,) = asked(scheduler.happen(0.0, e.JobSubmitted(0.0, Job("w!1", 2))))
    heard = scheduler.happen(1.0, e.JobWithdrawn(1.0, "w!1"))
    assert [m.topic for m in heard] == ["sched.cancel"]
    # the specification's dialect waits for the scheduler's word
    assert bool(scheduler.decisions()) is not strict
    scheduler.say(Message(frames.RESPONSE, "sched.alloc", b'{"id":%d,"type":3}\0' % flux_id, 0, 0, 0, (b"job-manager",)))
    assert [type(decision) for decision in scheduler.decisions()] == ([d.ConfirmWithdrawal] if strict else [])
    assert not scheduler.cluster.withdrawn


def test_a_scheduler_that_dies_before_its_word_confirms_too() -> None:
    scheduler = Scheduler(strict=True)
    scheduler.happen(0.0, e.JobSubmitted(0.0, Job("w!1", 2)))
    scheduler.happen(1.0, e.JobWithdrawn(1.0, "w!1"))
    scheduler.adapter.broker.leave(2.0, 1)
    assert [type(decision) for decision in scheduler.decisions()] == [d.ConfirmWithdrawal]


def test_priorities_walltimes_and_nodes_reach_the_scheduler() -> None:
    scheduler = Scheduler()
    waiting, running = asked(scheduler.happen(0.0, *(e.JobSubmitted(0.0, Job(f"w!{i}", 1, 60.0)) for i in (1, 2))))
    scheduler.grant(running, core(0, "0"))
    heard = scheduler.happen(
        1.0,
        e.PrioritiesChanged(1.0, {"w!1": 99.0, "w!nobody": 1.0}),
        e.WalltimeChanged(1.0, "w!2", 120.0),
        e.UnitsUnavailable(1.0, IdSet.of([5])),
        e.UnitsAvailable(1.0, IdSet.of([5])),
    )
    told = [(m.topic, body(m)) for m in heard]
    assert ("sched.prioritize", {"jobs": [[waiting, 99]]}) in told
    assert ("sched.expiration", {"id": running, "expiration": 120.0}) in told
    scheduler.happen(2.0, e.WalltimeChanged(2.0, "w!2", inf))
    down = scheduler.happen(3.0, e.UnitsUnavailable(3.0, IdSet.of([5])))
    up = scheduler.happen(4.0, e.UnitsAvailable(4.0, IdSet.of([5])))
    gone = scheduler.happen(5.0, e.NodesLeft(5.0, ("h1",), IdSet.span(4, 4)))
    assert [body(m) for m in (*down, *up, *gone)] == [{"down": "1"}, {"up": "1"}, {"shrink": "1"}]


def test_a_rank_that_is_free_again_is_freed_at_once() -> None:
    scheduler = Scheduler()
    (flux_id,) = asked(scheduler.happen(0.0, e.JobSubmitted(0.0, Job("w!1", 4))))
    scheduler.grant(flux_id, f"{core(0, '0-1')},{core(1, '0-1')}")
    (part,) = scheduler.happen(1.0, e.UnitsFreed(1.0, "w!1", IdSet.of([4, 5])))
    assert body(part)["final"] is False
    assert [entry["rank"] for entry in body(part)["R"]["execution"]["R_lite"]] == ["1"]
    (rest,) = scheduler.happen(2.0, e.JobEnded(2.0, "w!1", JobState.SUCCEEDED, 0, IdSet.of([0, 1])))
    assert body(rest)["final"] is True
    assert [entry["rank"] for entry in body(rest)["R"]["execution"]["R_lite"]] == ["0"]


def test_jobs_that_ran_before_are_in_the_first_hello() -> None:
    run = e.Running(Job("w!1", 3, 50.0), IdSet.of([1, 2, 5]), 7.0)
    scheduler = Scheduler(running=(run,))
    scheduler.adapter.broker.leave(0.0, 1)
    scheduler.adapter.broker.join(1, "again")
    scheduler.say(rpc.request("service.add", b'{"service":"sched"}', matchtag=1))
    (job, end) = scheduler.hello()
    assert end.errnum == errno.ENODATA
    key = "job." + ".".join(f"{body(job)['id']:016x}"[i : i + 4] for i in (0, 4, 8, 12)) + ".R"
    assert scheduler.adapter.broker.read(key) is not None
    heard = scheduler.happen(9.0, e.JobEnded(9.0, "w!1", JobState.KILLED, 1, run.units, "bored"))
    assert [m.topic for m in heard] == ["sched.free"]


def test_a_job_that_is_submitted_again_is_a_new_one_for_the_scheduler() -> None:
    """core/translate.py turns a requeue into an end and a submission: Flux has no word for it."""
    scheduler = Scheduler()
    (first,) = asked(scheduler.happen(0.0, e.JobSubmitted(0.0, Job("w!1", 1))))
    scheduler.grant(first, core(0, "0"))
    ended = e.JobEnded(5.0, "w!1", JobState.FAILED, -1, IdSet(), "its node was lost")
    heard = scheduler.happen(5.0, ended, e.JobSubmitted(5.0, Job("w!1", 1)))
    assert [m.topic for m in heard] == ["sched.free", "sched.alloc"]
    (second,) = asked(heard)
    assert second != first


def test_notes_refusals_and_questions() -> None:
    scheduler = Scheduler()
    (flux_id,) = asked(scheduler.happen(0.0, e.JobSubmitted(0.0, Job("w!1", 1))))
    reply = (b"job-manager",)
    note = b'{"id":%d,"type":1,"annotations":{"sched":{"t_estimate":3.5}}}\0' % flux_id
    scheduler.say(Message(frames.RESPONSE, "sched.alloc", note, 0, 0, 0, reply))
    scheduler.say(Message(frames.RESPONSE, "sched.alloc", b'{"id":%d,"type":2,"note":"no"}\0' % flux_id, 0, 0, 0, reply))
    assert scheduler.decisions() == [d.Annotate(0.0, "w!1", {"sched": {"t_estimate": 3.5}}), d.RejectJob(0.0, "w!1", "no")]
    heard = scheduler.happen(1.0, e.FeasibilityAsked(1.0, "q7", Job("w!2", 99)), e.FeasibilityAsked(1.0, "q8", Job("w!3", 1)))
    (first, second) = [m for m in heard if m.topic == "feasibility.check"]
    scheduler.say(rpc.respond_error(first, errno.EOVERFLOW, "too large"))
    assert scheduler.decisions() == [d.AnswerFeasibility(1.0, "q7", "too large")]
    # a scheduler that is gone refuses nothing
    assert second.matchtag
    scheduler.adapter.broker.leave(2.0, 1)
    assert scheduler.decisions() == [d.AnswerFeasibility(1.0, "q8", "")]


def test_ranks_that_jobs_of_other_schedulers_hold_are_down() -> None:
    scheduler = Scheduler()
    (down,) = scheduler.happen(1.0, e.JobHolds(1.0, Job("9", 2, 60.0), IdSet.of([0, 1]), 0.0))
    assert body(down)["down"] == "0"
    (up,) = scheduler.happen(2.0, e.JobEnded(2.0, "9", JobState.SUCCEEDED, 0, IdSet.of([0, 1])))
    assert body(up)["up"] == "0"

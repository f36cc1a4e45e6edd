"""The job manager's seat over one of our worlds: events become the manager's, the scheduler's answers become orders."""

from __future__ import annotations

from math import inf

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


class Seat:
    """A seat, and the test as the scheduler at the other end of the wire."""

    def __init__(self, *, strict: bool = False, running: tuple[e.Running, ...] = ()) -> None:
        begins = e.Begins(nodes=NODES, running=running)
        self.cluster = Cluster(begins, "rfc27")
        self.seat = ManagerAdapter(begins, self.cluster, strict=strict)
        self.strict = strict
        self.seat.broker.join(1, "scheduler 1")
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
        self.seat.broker.receive(self.seat.now, 1, message)
        return self.heard()

    def heard(self) -> list[Message]:
        self.seat.broker.dispatch(self.seat.now)
        return [message for _, message in self.seat.broker.take()]

    def happen(self, now: float, *events: e.Event) -> list[Message]:
        """What the scheduler hears of these events."""
        self.cluster.now = now
        for event in events:
            self.cluster.observe(event)
        self.seat.hear(e.Batch(now, list(events)))
        return self.heard()

    def grant(self, flux_id: int, lite: str) -> list[d.Decision]:
        """The scheduler gives these resources; the orders that follow."""
        resources = b'{"version":1,"execution":{"R_lite":[%s],"starttime":0,"expiration":0}}' % lite.encode()
        self.seat.manager.jobs[flux_id].committed = resources
        self.say(Message(frames.RESPONSE, "sched.alloc", b'{"id":%d,"type":0,"R":%s}\0' % (flux_id, resources), 0, 0, 0,
                         (b"job-manager",)))  # fmt: skip
        return self.orders()

    def orders(self) -> list[d.Decision]:
        orders = self.seat.take_orders()
        for order in orders:
            self.cluster.book(order)
        self.cluster.take_decisions()
        return orders


def core(rank: int, cores: str) -> str:
    return f'{{"rank":"{rank}","children":{{"core":"{cores}"}}}}'


def asked(messages: list[Message]) -> list[int]:
    return [body(m)["id"] for m in messages if m.topic == "sched.alloc"]


def test_the_inventory_names_nodes_gpus_and_properties() -> None:
    execution = Seat().inventory["resources"]["execution"]
    assert execution["R_lite"] == [{"rank": "0-1", "children": {"core": "0-3", "gpu": "0"}}]
    assert execution["nodelist"] == ["h[0-1]"] and execution["properties"] == {"fast": "1"}


def test_a_job_is_asked_for_and_started_where_the_scheduler_says() -> None:
    seat = Seat()
    (flux_id,) = asked(seat.happen(5.0, e.JobSubmitted(5.0, Job("w!1", 2, 60.0))))
    orders = seat.grant(flux_id, core(1, "2-3"))
    assert [(o.job_id, str(o.units)) for o in orders if isinstance(o, d.StartJob)] == [("w!1", "6-7")]
    heard = seat.happen(9.0, e.JobEnded(9.0, "w!1", JobState.SUCCEEDED, 0, IdSet.of([6, 7])))
    assert [m.topic for m in heard] == ["sched.free"] and not seat.seat.manager.jobs


@pytest.mark.parametrize(
    ("lite", "rule"),
    [(core(0, "0"), "wrong count"), (core(1, "0-2"), "wrong count"), (core(7, "0-1"), "empty allocation")],
)
def test_an_allocation_that_breaks_a_rule_ends_the_job_and_not_the_run(lite: str, rule: str) -> None:
    seat = Seat()
    (flux_id,) = asked(seat.happen(0.0, e.JobSubmitted(0.0, Job("w!1", 2))))
    (order,) = seat.grant(flux_id, lite)
    assert isinstance(order, d.RejectJob) and order.reason.startswith(rule)
    assert "taken back" in seat.seat.manager.take_troubles()[-1]
    assert seat.cluster.free == 8


def test_a_core_given_twice_in_one_turn_is_noticed() -> None:
    seat = Seat()
    ids = asked(seat.happen(0.0, *(e.JobSubmitted(0.0, Job(f"w!{i}", 1)) for i in (1, 2))))
    resources = b'{"version":1,"execution":{"R_lite":[%s]}}' % core(0, "0").encode()
    for flux_id in ids:
        payload = b'{"id":%d,"type":0,"R":%s}\0' % (flux_id, resources)
        seat.say(Message(frames.RESPONSE, "sched.alloc", payload, 0, 0, 0, (b"job-manager",)))
    orders = seat.orders()
    assert [type(order) for order in orders] == [d.StartJob, d.RejectJob]
    assert "in this same turn" in orders[1].reason  # type: ignore[union-attr]


@pytest.mark.parametrize("strict", [False, True])
def test_a_withdrawal_is_confirmed(strict: bool) -> None:
    seat = Seat(strict=strict)
    (flux_id,) = asked(seat.happen(0.0, e.JobSubmitted(0.0, Job("w!1", 2))))
    heard = seat.happen(1.0, e.JobWithdrawn(1.0, "w!1"))
    assert [m.topic for m in heard] == ["sched.cancel"]
    # the specification's dialect waits for the scheduler's word
    assert bool(seat.orders()) is not strict
    seat.say(Message(frames.RESPONSE, "sched.alloc", b'{"id":%d,"type":3}\0' % flux_id, 0, 0, 0, (b"job-manager",)))
    assert [type(order) for order in seat.orders()] == ([d.ConfirmWithdrawal] if strict else [])
    assert not seat.cluster.withdrawn


def test_a_scheduler_that_dies_before_its_word_confirms_too() -> None:
    seat = Seat(strict=True)
    seat.happen(0.0, e.JobSubmitted(0.0, Job("w!1", 2)))
    seat.happen(1.0, e.JobWithdrawn(1.0, "w!1"))
    seat.seat.broker.leave(2.0, 1)
    assert [type(order) for order in seat.orders()] == [d.ConfirmWithdrawal]


def test_priorities_walltimes_and_nodes_reach_the_scheduler() -> None:
    seat = Seat()
    waiting, running = asked(seat.happen(0.0, *(e.JobSubmitted(0.0, Job(f"w!{i}", 1, 60.0)) for i in (1, 2))))
    seat.grant(running, core(0, "0"))
    heard = seat.happen(
        1.0,
        e.PrioritiesChanged(1.0, {"w!1": 99.0, "w!nobody": 1.0}),
        e.WalltimeChanged(1.0, "w!2", 120.0),
        e.UnitsUnavailable(1.0, IdSet.of([5])),
        e.UnitsAvailable(1.0, IdSet.of([5])),
    )
    told = [(m.topic, body(m)) for m in heard]
    assert ("sched.prioritize", {"jobs": [[waiting, 99]]}) in told
    assert ("sched.expiration", {"id": running, "expiration": 120.0}) in told
    seat.happen(2.0, e.WalltimeChanged(2.0, "w!2", inf))
    down = seat.happen(3.0, e.UnitsUnavailable(3.0, IdSet.of([5])))
    up = seat.happen(4.0, e.UnitsAvailable(4.0, IdSet.of([5])))
    gone = seat.happen(5.0, e.NodesLeft(5.0, ("h1",), IdSet.span(4, 4)))
    assert [body(m) for m in (*down, *up, *gone)] == [{"down": "1"}, {"up": "1"}, {"shrink": "1"}]


def test_a_rank_that_is_free_again_is_freed_at_once() -> None:
    seat = Seat()
    (flux_id,) = asked(seat.happen(0.0, e.JobSubmitted(0.0, Job("w!1", 4))))
    seat.grant(flux_id, f"{core(0, '0-1')},{core(1, '0-1')}")
    (part,) = seat.happen(1.0, e.UnitsFreed(1.0, "w!1", IdSet.of([4, 5])))
    assert body(part)["final"] is False
    assert [entry["rank"] for entry in body(part)["R"]["execution"]["R_lite"]] == ["1"]
    (rest,) = seat.happen(2.0, e.JobEnded(2.0, "w!1", JobState.SUCCEEDED, 0, IdSet.of([0, 1])))
    assert body(rest)["final"] is True
    assert [entry["rank"] for entry in body(rest)["R"]["execution"]["R_lite"]] == ["0"]


def test_jobs_that_ran_before_are_in_the_first_hello() -> None:
    run = e.Running(Job("w!1", 3, 50.0), IdSet.of([1, 2, 5]), 7.0)
    seat = Seat(running=(run,))
    seat.seat.broker.leave(0.0, 1)
    seat.seat.broker.join(1, "again")
    seat.say(rpc.request("service.add", b'{"service":"sched"}', matchtag=1))
    (job, end) = seat.hello()
    assert end.errnum == rpc.ENODATA
    key = "job." + ".".join(f"{body(job)['id']:016x}"[i : i + 4] for i in (0, 4, 8, 12)) + ".R"
    assert seat.seat.broker.read(key) is not None
    heard = seat.happen(9.0, e.JobEnded(9.0, "w!1", JobState.KILLED, 1, run.units, "bored"))
    assert [m.topic for m in heard] == ["sched.free"]


def test_a_requeued_job_is_a_new_one_for_the_scheduler() -> None:
    seat = Seat()
    (first,) = asked(seat.happen(0.0, e.JobSubmitted(0.0, Job("w!1", 1))))
    seat.grant(first, core(0, "0"))
    heard = seat.happen(5.0, e.JobRequeued(5.0, "w!1", "its node was lost"))
    assert [m.topic for m in heard] == ["sched.free", "sched.alloc"]
    (second,) = asked(heard)
    assert second != first


def test_notes_refusals_and_questions() -> None:
    seat = Seat()
    (flux_id,) = asked(seat.happen(0.0, e.JobSubmitted(0.0, Job("w!1", 1))))
    reply = (b"job-manager",)
    note = b'{"id":%d,"type":1,"annotations":{"sched":{"t_estimate":3.5}}}\0' % flux_id
    seat.say(Message(frames.RESPONSE, "sched.alloc", note, 0, 0, 0, reply))
    seat.say(Message(frames.RESPONSE, "sched.alloc", b'{"id":%d,"type":2,"note":"no"}\0' % flux_id, 0, 0, 0, reply))
    assert seat.orders() == [d.Annotate(0.0, "w!1", {"sched": {"t_estimate": 3.5}}), d.RejectJob(0.0, "w!1", "no")]
    heard = seat.happen(1.0, e.FeasibilityAsked(1.0, "q7", Job("w!2", 99)), e.FeasibilityAsked(1.0, "q8", Job("w!3", 1)))
    (first, second) = [m for m in heard if m.topic == "feasibility.check"]
    seat.say(rpc.respond_error(first, rpc.EOVERFLOW, "too large"))
    assert seat.orders() == [d.AnswerFeasibility(1.0, "q7", "too large")]
    # a scheduler that is gone refuses nothing
    assert second.matchtag
    seat.seat.broker.leave(2.0, 1)
    assert seat.orders() == [d.AnswerFeasibility(1.0, "q8", "")]

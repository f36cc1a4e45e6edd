"""reason_pending and t_estimate of waiting jobs are revised when what they were made of changes."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from typing import Any

import pytest

from pilothouse.core.cluster import Cluster
from pilothouse.launch.start_estimates import StartEstimates
from pilothouse.model.decisions import Annotate, CallAt, Reply
from pilothouse.model.events import Batch, CallArrived, JobSubmitted, UnitsAvailable
from pilothouse.model.idset import IdSet
from pilothouse.policies.catalog import make
from pilothouse.protocols.rfc27 import pending_reasons
from pilothouse.protocols.rfc27.job_conversion import our_id
from pilothouse.protocols.rfc27.pending_reasons import (
    AGAIN_S,
    LEAST_S,
    MOST_ESTIMATES,
    MOST_PER_CALL,
    MOST_S,
    SHARE,
    PendingReasons,
    first_in_line,
)
from unit.protocols.rfc27.pair import Pair


class Noted(Pair):
    """A pair whose scheduler annotates, as `steer --world flux` does."""

    ahead: Any = None

    def _think(self, now: float) -> None:
        super()._think(now)
        if self.decide is not None and not isinstance(self.decide, PendingReasons):
            self.decide = PendingReasons(self.decide, self.cluster, ahead=self.ahead)

    def note(self, job_id: int) -> dict[str, Any]:
        found: dict[str, Any] = (self.manager.jobs[job_id].annotations or {}).get("sched", {})
        return found

    def later(self, now: float) -> None:
        """Time passes; calls arrive."""
        self.now = now
        self.adapter.events += self.adapter.calls.due(now)
        self._think(now)
        self.settle()


@pytest.fixture(params=["easy", "conservative", "fcfs"])
def pair(request: pytest.FixtureRequest) -> Noted:
    made = Noted(nodes=2, cores=4, policy=request.param)
    made.connect()
    return made


def test_a_new_expiration_moves_the_estimate(pair: Noted) -> None:
    running = pair.submit(8, duration_s=100.0)
    head = pair.submit(8, duration_s=10.0)
    pair.settle()
    assert pair.note(head)["t_estimate"] == 100.0
    pair.now = 5.0
    pair.manager.expire(5.0, running, 300.0)
    pair.settle()
    assert pair.note(head)["t_estimate"] == 300.0
    pair.manager.expire(5.0, running, 0.0)
    pair.settle()
    assert "t_estimate" not in pair.note(head), "a job without an end gives no estimate"


@pytest.mark.parametrize("cores", [8, 7])
def test_a_more_urgent_job_takes_the_estimate_of_the_head(pair: Noted, cores: int) -> None:
    pair.submit(cores, duration_s=100.0)
    head = pair.submit(8, duration_s=10.0)
    pair.settle()
    urgent = pair.submit(8, duration_s=10.0, urgency=31)
    pair.settle()
    assert pair.note(urgent)["t_estimate"] == 100.0
    assert pair.note(head).get("t_estimate") == (110.0 if pair.policy == "conservative" else None)
    pair.manager.cancel(pair.now, urgent)
    pair.settle()
    assert pair.note(head)["t_estimate"] == 100.0


def test_a_node_shaped_head_on_a_full_machine_has_an_estimate(pair: Noted) -> None:
    pair.submit(8, duration_s=100.0)
    head = pair.submit(1, nodes=2, exclusive=True, duration_s=10.0)
    pair.settle()
    assert pair.note(head)["t_estimate"] == 100.0
    assert "2 nodes that have all units free" in pair.note(head)["reason_pending"]


def test_reasons_of_all_jobs_follow_what_is_free(pair: Noted) -> None:
    first, second = pair.submit(4, duration_s=100.0), pair.submit(4, duration_s=100.0)
    waiting = [pair.submit(8, duration_s=10.0) for _ in range(5)]
    pair.settle()
    assert {pair.note(job_id)["reason_pending"] for job_id in waiting} == {"it needs 8 units, and 0 are free"}
    pair.now = 1.0
    pair.finish(first)
    pair.later(1.0 + AGAIN_S)
    assert {pair.note(job_id)["reason_pending"] for job_id in waiting} == {"it needs 8 units, and 4 are free"}
    assert second in pair.manager.holding


# ---- run ahead


class Ahead:
    """The run-aheads of `steer`, counted; each is said to take so long."""

    def __init__(self, policy: str, took_s: float = 0.0) -> None:
        self.made: list[float] = []
        self._took_s = took_s
        self._starts = StartEstimates(lambda: make(policy, {}))

    def __call__(self, cluster: Cluster, limit_s: float) -> tuple[dict[str, float], float]:
        took_s = min(self._took_s, limit_s)
        self.made.append(took_s)
        return self._starts(cluster, inf)[0], took_s


def running_ahead(policy: str, took_s: float = 0.0) -> Noted:
    made = Noted(nodes=2, cores=4, policy=policy)
    made.ahead = Ahead(policy, took_s)
    made.connect()
    return made


@pytest.mark.parametrize(
    ("policy", "dates"), [("fcfs", [100, 110, 130, 130]), ("easy", [100, 110, 130, 130]), ("conservative", [100, 110, 130, 130])]
)
def test_all_waiting_jobs_have_estimates(policy: str, dates: list[float]) -> None:
    """Not just the head, and not just under policies that plan."""
    pair = running_ahead(policy)
    pair.submit(8, duration_s=100.0)
    waiting = [pair.submit(8, duration_s=10.0), pair.submit(8, duration_s=20.0)]
    waiting += [pair.submit(4, duration_s=30.0), pair.submit(4, duration_s=40.0)]
    pair.settle()
    pair.later(AGAIN_S)
    assert [pair.note(job_id)["t_estimate"] for job_id in waiting] == pytest.approx(dates)


def test_what_happens_moves_the_estimates_within_a_second() -> None:
    pair = running_ahead("easy")
    running = pair.submit(8, duration_s=100.0)
    first, second = pair.submit(8, duration_s=10.0), pair.submit(8, duration_s=10.0)
    pair.settle()
    pair.later(AGAIN_S)
    pair.now = 5.0
    pair.manager.expire(5.0, running, 300.0)
    pair.settle()
    pair.later(5.0 + AGAIN_S)
    assert [pair.note(job_id)["t_estimate"] for job_id in (first, second)] == [300.0, 310.0]
    pair.manager.expire(6.0, running, 0.0)
    pair.settle()
    pair.later(6.0 + AGAIN_S)
    assert not any("t_estimate" in pair.note(job_id) for job_id in (first, second)), "a job without an end gives no estimate"


@pytest.mark.parametrize("took_s", [0.001, 0.1, 10.0])
def test_simulations_take_a_small_share_of_the_time(took_s: float) -> None:
    pair = running_ahead("fcfs", took_s)
    pair.submit(8, duration_s=1000.0)
    for second in range(100):
        pair.submit(1, duration_s=10.0)
        pair.later(float(second))
        assert sum(pair.ahead.made) <= SHARE * second + 1e-9
    assert max(pair.ahead.made) == pytest.approx(min(took_s, MOST_S)), "one is made to its end, or as long as may be"
    assert len(pair.ahead.made) > 45 if took_s < LEAST_S else 3 < len(pair.ahead.made) < 15


def test_many_estimates_are_sent_some_at_a_time() -> None:
    pair = running_ahead("fcfs")
    pair.submit(8, duration_s=1000.0)
    jobs = [pair.submit(1, duration_s=10.0) for _ in range(400)]
    pair.settle()

    def sent() -> int:
        return sum("t_estimate" in pair.note(job_id) for job_id in jobs)

    counts = [sent()]
    for second in range(1, 6):
        pair.later(second * AGAIN_S)
        counts.append(sent())
    assert counts[0] <= MOST_ESTIMATES and counts[-1] == 400
    assert all(b - a <= MOST_PER_CALL for a, b in pairwise(counts))


def test_a_simulation_that_was_cut_off_is_made_again_with_more_time() -> None:
    pair = running_ahead("fcfs", took_s=0.05)
    pair.submit(8, duration_s=1000.0)
    pair.submit(1, duration_s=10.0)
    pair.settle()
    for second in range(1, 20):
        pair.later(float(second))
    assert pair.ahead.made == pytest.approx([LEAST_S, 2 * LEAST_S, 4 * LEAST_S, 0.05]), "and then nothing has happened"


# ---- details


@pytest.mark.parametrize("limit", [2, 3])
def test_in_a_long_queue_only_what_a_job_needs_is_said(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_reasons, "LONG_QUEUE", limit)
    pair = Noted(nodes=2, cores=4, policy="fcfs")
    pair.connect()
    pair.submit(6, duration_s=100.0)
    large, small, third = (pair.submit(cores, duration_s=10.0) for cores in (8, 1, 8))
    pair.settle()
    head = first_in_line(pair.cluster)
    reasons = [pair.note(job_id)["reason_pending"] for job_id in (large, small, third)]
    if limit == 2:
        assert head is None and "t_estimate" not in pair.note(large)
        assert reasons == ["it needs 8 units, and 2 are free", "it would fit now, but fcfs holds it back", reasons[0]]
    else:
        assert head is not None and head.id == our_id(large) and pair.note(large)["t_estimate"] == 100.0
        assert reasons[1] != "it would fit now, but fcfs holds it back"


def test_the_first_in_line_is_the_most_urgent_and_then_the_first_that_came(pair: Noted) -> None:
    assert first_in_line(pair.cluster) is None
    pair.submit(8)
    pair.settle()
    first, _, urgent, _ = (pair.submit(8, urgency=urgency) for urgency in (16, 16, 20, 20))
    pair.settle()
    head = first_in_line(pair.cluster)
    assert head is not None and head.id == our_id(urgent)
    pair.manager.cancel(0.0, urgent)
    pair.settle()
    pair.manager.cancel(0.0, max(pair.manager.pending))
    pair.settle()
    head = first_in_line(pair.cluster)
    assert head is not None and head.id == our_id(first)


def silent(batch: Batch) -> Reply:
    """A decider that has nothing to say."""
    return Reply(batch.now, [])


def test_without_notes_nothing_is_sent(pair: Noted) -> None:
    without = PendingReasons(silent, pair.cluster, notes=False)
    spoken = PendingReasons(silent, pair.cluster)
    pair.submit(8)
    pair.submit(8)
    pair.settle()
    (job,) = pair.cluster.waiting.values()
    assert without(Batch(0.0, [JobSubmitted(0.0, job)])).decisions == []
    sent = spoken(Batch(0.0, [JobSubmitted(0.0, job)])).decisions
    assert [decision.job_id for decision in sent if isinstance(decision, Annotate)] == [job.id]
    assert spoken(Batch(0.0, [])).decisions == [], "only changes are sent"


def test_its_own_calls_never_reach_the_decider() -> None:
    """A scheduler written for Batsim ends when it is called and has not asked for it."""
    pair = Noted(nodes=2, cores=4, policy="fcfs")
    heard: list[Batch] = []
    pair.connect()
    inner = pair.decide
    assert isinstance(inner, PendingReasons)

    def hear(batch: Batch) -> Reply:
        heard.append(batch)
        return decide(batch)

    decide, inner._decide = inner._decide, hear
    first, _ = pair.submit(4), pair.submit(4)
    waiting = [pair.submit(8) for _ in range(3)]
    pair.settle()
    pair.now = 1.0
    pair.finish(first)
    told = len(heard)
    assert pair.adapter.calls.next_at == 1.0 + AGAIN_S
    pair.later(1.0 + AGAIN_S)
    assert "and 4 are free" in pair.note(waiting[-1])["reason_pending"], "the call did its work"
    assert len(heard) == told, "a turn in which nothing else happened is none of the decider's"
    inner(Batch(9.0, [CallArrived(9.0, pending_reasons.CALL), CallArrived(9.0, "its own")]))
    assert [event.call_id for event in heard[-1].events if isinstance(event, CallArrived)] == ["its own"]


@pytest.mark.parametrize(
    ("running", "asked", "estimate"),
    [
        ([(4, 50.0), (4, 90.0)], {"slots": 4}, 50.0),
        ([(4, 50.0), (4, 90.0)], {"slots": 5}, 90.0),
        ([(4, 90.0), (4, 50.0)], {"slots": 8}, 90.0),
        ([(4, 90.0), (2, 50.0), (2, 70.0)], {"slots": 3}, 70.0),
        ([(4, 0.0), (4, 50.0)], {"slots": 8}, None),
        ([(4, 0.0), (4, 50.0)], {"slots": 4}, 50.0),
        ([(8, 50.0)], {"slots": 1, "nodes": 2}, 50.0),
        ([(4, 0.0), (4, 50.0)], {"slots": 1, "nodes": 2}, None),
    ],
)
def test_when_the_first_in_line_could_start(
    running: list[tuple[int, float]], asked: dict[str, Any], estimate: float | None
) -> None:
    """If all running jobs use up their time. A job without a limit (duration 0) has no end."""
    pair = Noted(nodes=2, cores=4, policy="fcfs")
    pair.connect()
    for cores, duration_s in running:
        pair.submit(cores, duration_s=duration_s)
    pair.settle()
    job_id = pair.submit(**{**asked, "duration_s": 5.0})
    pair.settle()
    assert pair.note(job_id).get("t_estimate") == estimate


def test_a_job_that_is_late_gives_the_present_as_estimate() -> None:
    pair = Noted(nodes=2, cores=4, policy="fcfs")
    pair.connect()
    pair.submit(8, duration_s=10.0)
    pair.settle()
    pair.now = 30.0
    plain = pair.submit(8, duration_s=5.0)
    pair.settle()
    assert pair.note(plain)["t_estimate"] == 30.0
    shaped = pair.submit(1, nodes=1, duration_s=5.0, urgency=20)
    pair.settle()
    assert pair.note(shaped)["t_estimate"] == 30.0


def test_so_many_reasons_are_revised_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_reasons, "MOST_PER_CALL", 3)
    pair = Noted(nodes=2, cores=4, policy="fcfs")
    pair.connect()
    first, _ = pair.submit(4), pair.submit(4)
    waiting = [pair.submit(8) for _ in range(10)]
    pair.settle()

    def revised() -> int:
        return sum("and 4 are free" in pair.note(job_id)["reason_pending"] for job_id in waiting)

    pair.now = 1.0
    pair.finish(first)
    counts = [revised()]
    for second in range(1, 6):
        pair.later(1.0 + second * AGAIN_S)
        counts.append(revised())
    assert counts == [1, 4, 7, 10, 10, 10], "the first in line at once"
    assert pair.adapter.calls.next_at == inf, "and then there is nothing to do"


def test_one_call_is_asked_for_at_a_time(pair: Noted) -> None:
    notes = PendingReasons(silent, pair.cluster)
    pair.submit(8)
    waiting = [pair.submit(8) for _ in range(3)]
    pair.settle()
    jobs = [pair.cluster.waiting[our_id(job_id)] for job_id in waiting]

    def calls(batch: Batch) -> list[tuple[float, float]]:
        pair.cluster.now = batch.now
        return [(call.at, call.when) for call in notes(batch).decisions if isinstance(call, CallAt)]

    assert calls(Batch(0.0, [JobSubmitted(0.0, job) for job in jobs])) == [], "all were looked at"
    made = [calls(Batch(now, [UnitsAvailable(now, IdSet())])) for now in (1.0, 1.5, 2.0)]
    assert made == [[(1.0, 1.0 + AGAIN_S)], [], [(2.0, 2.0 + AGAIN_S)]]


def test_a_call_may_come_when_no_job_waits(pair: Noted) -> None:
    notes = PendingReasons(silent, pair.cluster)
    for waits in (True, False):
        assert notes(Batch(1.0, [CallArrived(1.0, pending_reasons.CALL)], waits=waits)).decisions == []

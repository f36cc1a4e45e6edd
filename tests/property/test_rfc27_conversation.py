"""A model of the conversation: random users, random crashes, any interleaving of manager and scheduler, both dialects.

What must hold whatever happens: at most one alloc and one free in flight for each job, no core given to two jobs, no
allocation lost over a reload, annotations merged by the rules, denied jobs told why, and no job ever lost.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pilothouse.model.idset import IdSet
from pilothouse.protocols.rfc27 import frames
from pilothouse.protocols.rfc27.handshake import Phase
from pilothouse.protocols.rfc27.job_conversion import our_id
from pilothouse.protocols.rfc27.job_states import State
from pilothouse.protocols.rfc27.manager_events import Denied
from unit.protocols.rfc27.eventlog import read_log, replay
from unit.protocols.rfc27.pair import Pair, body

VALUES = st.one_of(st.none(), st.integers(0, 9), st.text("ab", max_size=2))
NOTES = st.recursive(VALUES, lambda inner: st.dictionaries(st.sampled_from("xyz"), inner, max_size=3), max_leaves=6)
DICTIONARIES = st.dictionaries(st.sampled_from(["sched", "user"]), NOTES, min_size=1, max_size=2)


class Conversation(RuleBasedStateMachine):
    @initialize(strict=st.booleans(), limit=st.sampled_from([0, 0, 1, 3]), policy=st.sampled_from(["fcfs", "filler"]))
    def begin(self, strict: bool, limit: int, policy: str) -> None:
        self.pair = Pair(strict=strict, limit=0 if strict and limit == 3 else limit, policy=policy)
        self.alive = False
        self.submitted: set[int] = set()
        self.impossible: set[int] = set()
        self.ended: set[int] = set()
        self.up = IdSet.span(0, 2)
        self.seen = 0
        self.open: dict[tuple[str, int], int] = {}

    # ---- users

    @rule(slots=st.sampled_from([1, 1, 2, 3, 4, 8, 9]), urgency=st.sampled_from([16, 16, 0, 1, 31]), nodes=st.booleans())
    def submit(self, slots: int, urgency: int, nodes: bool) -> None:
        more: dict[str, Any] = {"nodes": 2, "exclusive": slots > 2} if nodes else {}
        job_id = self.pair.submit(slots if not nodes else min(slots, 5), urgency=urgency, **more)
        self.submitted.add(job_id)
        if slots == 9:
            self.impossible.add(job_id)

    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        running = sorted(i for i, job in self.pair.manager.holding.items() if job.started)
        if running:
            job_id = data.draw(st.sampled_from(running))
            self.pair.manager.finish(self.pair.now, job_id)
            self.ended.add(job_id)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        alive = sorted(i for i, job in self.pair.manager.jobs.items() if job.state is not State.CLEANUP)
        if alive:
            job_id = data.draw(st.sampled_from(alive))
            self.pair.manager.cancel(self.pair.now, job_id)
            self.ended.add(job_id)

    @rule(data=st.data(), urgency=st.sampled_from([0, 1, 16, 20, 31]))
    def change_urgency(self, data: st.DataObject, urgency: int) -> None:
        waiting = sorted(i for i, job in self.pair.manager.jobs.items() if job.state is State.SCHED)
        if waiting:
            self.pair.manager.set_urgency(self.pair.now, data.draw(st.sampled_from(waiting)), urgency)

    @rule(priority=st.integers(0, 2**32 - 1))
    def reprioritize(self, priority: int) -> None:
        jobs = [(job_id, priority) for job_id in self.pair.manager.jobs]
        self.pair.manager.prioritize(self.pair.now, [*jobs, (999, 1)])

    @rule()
    def stop_or_start_the_queue(self) -> None:
        manager = self.pair.manager
        if manager.stopped:
            manager.start_queue()
        else:
            manager.stop_queue()

    @rule(data=st.data(), rank=st.integers(0, 1))
    def give_a_node_back(self, data: st.DataObject, rank: int) -> None:
        """Housekeeping is done on one rank before the others (only today's dialect can say it)."""
        running = sorted(i for i, job in self.pair.manager.holding.items() if job.started)
        if running:
            self.pair.manager.release(self.pair.now, data.draw(st.sampled_from(running)), IdSet.of([rank]))

    @rule(rank=st.integers(0, 1), up=st.booleans())
    def drain_or_undrain(self, rank: int, up: bool) -> None:
        ranks = IdSet.of([rank])
        if up and rank not in self.up:
            self.pair.broker.change_ranks(up=ranks)
            self.up |= ranks
        elif not up and rank in self.up:
            self.pair.broker.change_ranks(down=ranks)
            self.up -= ranks

    # ---- the scheduler

    @precondition(lambda self: not self.alive)
    @rule()
    def connect(self) -> None:
        self.open.clear()
        self.seen = len(self.pair.log)
        self.pair.begin()
        self.alive = True

    @precondition(lambda self: self.alive)
    @rule()
    def crash(self) -> None:
        self.count_in_flight()
        self.pair.crash()
        self.alive = False

    @precondition(lambda self: self.alive)
    @rule(rounds=st.integers(1, 3))
    def talk(self, rounds: int) -> None:
        for _ in range(rounds):
            self.pair.broker.flush(self.pair.now)
            self.pair.link.step()
            self.pair.settle_manager()
        self.pair.now += 1.0

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), notes=DICTIONARIES)
    def annotate(self, data: st.DataObject, notes: dict[str, Any]) -> None:
        self.pair.settle()
        asked = sorted(set(self.pair.engine.pending) & set(self.pair.manager.pending))
        if asked:
            job_id = data.draw(st.sampled_from(asked))
            expected = reference_merge(self.pair.manager.jobs[job_id].annotations or {}, notes)
            self.pair.engine.annotate(job_id, notes)
            self.pair.settle()
            assert self.pair.manager.jobs[job_id].annotations == expected

    @precondition(lambda self: self.alive)
    @rule()
    def settle(self) -> None:
        """Quiet: both ends must agree on everything."""
        pair = self.pair
        pair.settle()
        assert pair.engine.phase is Phase.ONLINE and not pair.engine.busy
        held = {our_id(job_id) for job_id in pair.manager.holding}
        assert set(pair.cluster.running) == held
        for job_id, job in pair.manager.holding.items():
            left = job.resource_set()
            left = left.only(left.rank_ids() - IdSet(job.freed_ranks))
            assert pair.cluster.running[our_id(job_id)].units == pair.adapter.machine.units_in(left)
        assert pair.cluster.off_mask == pair.adapter.machine.units_on(IdSet.span(0, 2) - self.up).mask
        assert set(pair.engine.pending) == set(pair.manager.pending)
        assert {our_id(job_id) for job_id in pair.manager.pending} == set(pair.cluster.waiting)
        if not pair.manager.stopped and not pair.limit:
            assert len(pair.manager.queue) == 0
        refused = {event.id for event in pair.events if isinstance(event, Denied)}
        for job_id in self.impossible - self.ended:
            job = pair.manager.find(job_id)
            assert job is not None
            if job.state is State.INACTIVE and job_id in refused:
                (exception,) = [entry for entry in read_log(job.log) if entry.name == "exception"]
                assert exception.context["note"]

    # ---- always

    @invariant()
    def no_core_is_given_twice(self) -> None:
        taken: set[tuple[int, int]] = set()
        for job in self.pair.manager.holding.values():
            for entry in job.resource_set().ranks:
                if job.freed_ranks >> entry.rank & 1:
                    continue
                cores = {(entry.rank, core) for core in entry.cores}
                assert not cores & taken
                taken |= cores

    @invariant()
    def no_job_is_lost(self) -> None:
        manager = self.pair.manager
        assert manager.jobs.keys() | manager.inactive.keys() == self.submitted
        assert not manager.jobs.keys() & manager.inactive.keys()
        for job in manager.jobs.values():
            assert replay(job.log) is job.state

    @invariant()
    def count_in_flight(self) -> None:
        """One alloc and one free request at most, for each job."""
        for message in self.pair.log[self.seen :]:
            if message.topic not in ("sched.alloc", "sched.free"):
                continue
            said = body(message)
            if message.topic == "sched.free" and "R" in said:
                continue
            key = (message.topic, said["id"])
            if message.type == frames.REQUEST:
                assert self.open.get(key, 0) == 0, f"a second {key} is in flight"
                self.open[key] = 1
            elif said.get("type") != 1:
                assert self.open.pop(key, 0) == 1, f"{key} was answered twice"
        self.seen = len(self.pair.log)


def reference_merge(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The four rules, in the words of the specification."""
    result = dict(old)
    for key, value in new.items():
        if isinstance(value, dict):
            result[key] = reference_merge(result[key] if isinstance(result.get(key), dict) else {}, value)
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = value
    return result


Conversation.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestConversation = Conversation.TestCase

"""The Session: one world, one decider, and the request-reply loop between them. Nothing else happens here.

A turn: the world says what happened (a Batch), the decider answers what to do, each order is judged and booked in the
Cluster, the world carries the orders out. A policy orders through the Cluster's verbs, so its orders are judged as it
gives them; a foreign decider's reply is judged order by order. A reply with one illegal order is not applied at all.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from pilothouse.core.absence import Absence
from pilothouse.core.cluster import Cluster
from pilothouse.core.contract import Decider, Talkative, World
from pilothouse.core.full_names import Names
from pilothouse.model.decisions import Reply, Wants
from pilothouse.model.errors import DecisionError, PilothouseError
from pilothouse.model.events import Batch, Begins, Ended, Event, JobEnded, JobRequeued, JobSubmitted, JobWithdrawn
from pilothouse.model.job import Job
from pilothouse.policies.base import Policy

_HOUSE = str(Path(__file__).parent.parent)


class Outcome(msgspec.Struct, frozen=True):
    """How a run ended. `waiting` names the jobs that nobody will ever start: a deadlock if there are any."""

    ended_at: float
    turns: int
    waiting: tuple[str, ...] = ()
    reason: str = ""

    @property
    def deadlocked(self) -> bool:
        return bool(self.waiting) or bool(self.reason)


class Turn(Protocol):
    """One side of the loop: what a batch becomes."""

    def __call__(self, batch: Batch) -> Reply: ...


class Session:
    """Joins one world to one decider. `run` once."""

    def __init__(self, world: World, decider: Decider | Policy, *, name: str = "") -> None:
        self.world = world
        self.decider = decider
        self.name = name or getattr(decider, "name", "") or type(decider).__name__
        self.cluster: Cluster

    def run(self, each_turn: Callable[[Batch], None] | None = None) -> Outcome:
        """Runs to the end. Whatever is raised, world and decider are closed."""
        try:
            return self._run(each_turn)
        finally:
            self.world.close()
            if not isinstance(self.decider, Policy):
                self.decider.close()

    def _run(self, each_turn: Callable[[Batch], None] | None) -> Outcome:
        wants = self.decider.wants if isinstance(self.decider, Policy) else self.decider.hello()
        begins = self.world.begin(wants)
        turn = self._join(begins, wants)
        advance, apply, turns = self.world.advance, self.world.apply, 0
        batch = last = None
        while (batch := advance()) is not None:
            turns += 1
            apply(turn(batch))
            if each_turn is not None:
                each_turn(batch)
            last = batch
        if last is None or not last.events or type(last.events[-1]) is not Ended:
            return Outcome(begins.started_at if last is None else last.now, turns)
        end = last.events[-1]
        return Outcome(last.now, turns, end.waiting, end.reason)

    def _join(self, begins: Begins, wants: Wants) -> Turn:
        self.cluster = Cluster(begins, self.name, wants)
        if isinstance(self.decider, Policy):
            with_policy = PolicyTurn(self.decider, self.cluster)
            with_policy.begin()
            return with_policy
        self.decider.begin(begins, self.cluster)
        if isinstance(self.decider, Talkative):
            self.world.watch(self.decider.fileno())
        return ForeignTurn(self.decider, self.cluster)


class ForeignTurn:
    """A turn of a foreign decider: note the facts, ask it, judge its orders."""

    def __init__(self, decider: Decider, cluster: Cluster) -> None:
        self._decider = decider
        self._cluster = cluster
        self._names = Names() if getattr(decider, "full_names", False) else None
        self._absence = None if cluster.begins.time_waits else Absence(cluster)
        """Only in live worlds are nodes lost."""

    def __call__(self, batch: Batch) -> Reply:
        cluster = self._cluster
        cluster.now = batch.now
        for event in batch.events:
            cluster.observe(event)
        if self._absence is None:
            reply = self._ask(batch)
        else:
            known, instead = self._absence.facts(batch)
            reply = self._ask(known)
            reply.decisions = [*instead, *self._absence.orders(reply.decisions)]
        for order in reply.decisions:
            cluster.order(order)
        cluster.take_orders()
        return reply

    def _ask(self, batch: Batch) -> Reply:
        names = self._names
        if names is None:
            return self._decider.decide(batch)
        return names.back(self._decider.decide(names.out(batch)))


class PolicyTurn:
    """A turn of a policy: it sees each fact after the cluster does, and orders through the cluster."""

    def __init__(self, policy: Policy, cluster: Cluster) -> None:
        self._policy = policy
        self._cluster = cluster
        self._decides_itself = type(policy).decide is not Policy.decide

    def begin(self) -> None:
        try:
            self._policy.begin(self._cluster)
        except (Exception, SystemExit) as problem:
            raise self._located(problem) from problem

    def __call__(self, batch: Batch) -> Reply:
        events = batch.events
        if len(events) != 1 or self._decides_itself:
            return self._turn(batch)
        # Long runs are made of batches of one fact, and of two kinds of facts.
        policy, cluster = self._policy, self._cluster
        cluster.now = now = batch.now
        event = events[0]
        try:
            if type(event) is JobEnded:
                job = cluster.note_ended(event)
                if job is not None:
                    policy.on_ended(job, cluster)
            elif type(event) is JobSubmitted:
                job = event.job
                cluster.waiting[job.id] = job
                if policy.admit(job, cluster):
                    policy.on_submitted(job, cluster)
            else:
                self._see(event)
            policy.schedule(cluster)
        except (Exception, SystemExit) as problem:
            raise self._located(problem) from problem
        orders, cluster.orders = cluster.orders, []
        return Reply(now, orders)

    def _turn(self, batch: Batch) -> Reply:
        policy, cluster = self._policy, self._cluster
        cluster.now = now = batch.now
        try:
            if self._decides_itself:
                for event in batch.events:
                    cluster.observe(event)
                now = max(now, policy.decide(batch, cluster) or now)
            elif policy.each_event:
                self._pass_by_pass(batch.events)
            else:
                for event in batch.events:
                    self._see(event)
                policy.schedule(cluster)
        except (Exception, SystemExit) as problem:
            raise self._located(problem) from problem
        return Reply(now, cluster.take_orders())

    def _see(self, event: Event) -> None:
        """One fact reaches the cluster, then the policy."""
        policy, cluster = self._policy, self._cluster
        if type(event) is JobSubmitted:
            cluster.observe(event)
            if policy.admit(event.job, cluster):
                policy.on_submitted(event.job, cluster)
        elif type(event) is JobEnded:
            job = cluster.note_ended(event)
            if job is not None:
                policy.on_ended(job, cluster)
        elif type(event) is JobRequeued or type(event) is JobWithdrawn:
            self._note_return(event)
        else:
            cluster.observe(event)
            policy.on_event(event, cluster)

    def _pass_by_pass(self, events: list[Event]) -> None:
        """One pass for each of several simultaneous facts. All ends are noted first: what ends at one date is free at that
        date, whatever the order of the facts."""
        policy, cluster = self._policy, self._cluster
        ended: dict[str, Job] = {}
        for event in events:
            if type(event) is JobEnded:
                job = cluster.note_ended(event)
                if job is not None:
                    ended[job.id] = job
        if ended:
            policy.on_batch(list(ended.values()), cluster)
        for event in events:
            if type(event) is JobEnded:
                if event.job_id in ended:
                    policy.on_ended(ended[event.job_id], cluster)
            else:
                self._see(event)
            policy.schedule(cluster)

    def _note_return(self, event: JobRequeued | JobWithdrawn) -> None:
        """A job came back from its node, or was taken back from the queue."""
        policy, cluster = self._policy, self._cluster
        run = cluster.running.get(event.job_id)
        waiting = cluster.waiting.get(event.job_id)
        cluster.observe(event)
        if type(event) is JobRequeued and run is not None:
            policy.on_ended(run.job, cluster)
            policy.on_submitted(run.job, cluster)
        elif waiting is not None:
            policy.on_ended(waiting, cluster)
            policy.on_event(event, cluster)

    def _located(self, problem: Exception | SystemExit) -> PilothouseError:
        """The problem as one line that names the policy's own file and line."""
        where = ""
        for frame in traceback.extract_tb(problem.__traceback__):
            if not frame.filename.startswith(_HOUSE):
                where = f"{frame.filename}:{frame.lineno}"
        cluster = self._cluster
        if isinstance(problem, DecisionError):
            return DecisionError(problem.decider, problem.index, problem.rule, problem.detail, where=where)
        if not where and _not_as_called(problem):
            where = type(self._policy).__qualname__
        if isinstance(problem, PilothouseError) or not where:
            raise problem
        detail = f"{type(problem).__name__}: {problem} (at {cluster.now:g} s)"
        return DecisionError(cluster.decider, len(cluster.orders), "the policy raised", detail, where=where)


def _not_as_called(problem: Exception | SystemExit) -> bool:
    """Whether a method of the policy is missing or takes other arguments: then no line of its own was reached."""
    if isinstance(problem, NotImplementedError):
        return True
    frames = traceback.extract_tb(problem.__traceback__)
    return isinstance(problem, TypeError) and bool(frames) and frames[-1].filename == __file__

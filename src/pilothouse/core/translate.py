"""Translation for deciders whose protocol lacks a word, and the check of their decisions.

In: batches for the decider, and its replies. Out: both, in words that each side has. The decider's Traits say what it
lacks:

* withdrawals: the withdrawal is confirmed for it. If it starts the job later, it hears that the job was killed. A job that is
  submitted again before that still waits in its queue, so it is not told again.
* requeues: the job ends as failed, and is submitted again.
* lost_nodes: most schedulers end when a machine is gone. As a rule another engine takes the place of a lost one, with the
  same units. So the loss is not told for PATIENCE_S, and starts on these units are held until the node is back. After
  that the loss is told, and held jobs are requeued.
* absent_units: starts on unavailable units are held until the units are available.
* feasibility, estimates: questions are answered for it.
* full_names: jobs are renamed to `workload!name` and back.
* shapes, memory: the units of jobs with a shape, or with memory, are chosen for it (counted_units.py).

Where a wrong decision costs one job (refused.py), the decider hears that a refused job failed and waits again, or is over.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import msgspec

from pilothouse.core.cluster import Cluster
from pilothouse.core.contract import Decider, Judge, Traits
from pilothouse.core.counted_units import CountedUnits
from pilothouse.core.held_starts import CALL, KILLED_CODE, HeldStarts, killed
from pilothouse.core.refused import Refused
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState

PATIENCE_S = 60.0
WORKLOAD = "w0!"
"""What full names begin with where jobs have plain names."""


class CheckedTurn:
    """A turn of a decider that does not decide on the Cluster: translate, ask, translate back, check."""

    def __init__(self, decider: Decider, cluster: Cluster, judge: Judge) -> None:
        self._decide = decider.decide
        self._judge = judge
        knows_all = decider.traits.shapes and decider.traits.memory
        self._counted = None if knows_all else CountedUnits(cluster, shapes=decider.traits.shapes)
        hides = self._counted is not None and self._counted.hides_absence
        self._translation = Translation(decider.traits, cluster, hides_absence=hides)
        self._refused = cluster.refused if judge is cluster else None

    def __call__(self, batch: e.Batch) -> d.Reply:
        judge, translation, counted = self._judge, self._translation, self._counted
        judge.now = batch.now
        for event in batch.events:
            judge.observe(event)
            if counted is not None and not counted.active and counted.begins_with(event):
                counted.active = True
        if counted is not None and counted.active:
            batch, rejected = counted.events(batch)
        told, own = translation.events(batch)
        reply = translation.reply(self._decide(told))
        if counted is not None and counted.active:
            reply.decisions = self._book_placed(counted, [*rejected, *own, *reply.decisions])
        else:
            if own:
                reply.decisions = [*own, *reply.decisions]
            for decision in reply.decisions:
                judge.book(decision)
        booked = judge.take_decisions()
        if self._refused is not None and self._refused.warnings:
            reply.decisions = booked + self._tell_refused(self._refused, reply.now)
        return reply

    def _book_placed(self, counted: CountedUnits, decisions: list[d.Decision]) -> list[d.Decision]:
        """Places and books one decision after the other. Held jobs come first: they were started earlier."""
        made: list[d.Decision] = []
        while (held := counted.released(self._judge.now)) is not None:
            self._judge.book(held)
            made.append(held)
        for decision in decisions:
            for placed in counted.decisions(decision):
                self._judge.book(placed)
                made.append(placed)
        return made

    def _tell_refused(self, refused: Refused, now: float) -> list[d.Decision]:
        """What the decider hears of its wrong starts, and the call that makes it hear it at once."""
        made: list[d.Decision] = []
        for decision, _ in refused.take_starts():
            made = self._translation.refuse(decision, now)
        return made


class Translation:
    """What one decider does not know, and what is held for it."""

    def __init__(self, traits: Traits, cluster: Cluster, *, hides_absence: bool = False) -> None:
        self._cluster = cluster
        self._now: float
        self._names = FullNames() if traits.full_names else None
        self._held = HeldStarts()
        self._withdrawn: set[str] = set()
        """Withdrawn jobs that still wait in the decider's queue."""
        self._over: set[str] = set()
        """Jobs that the decider was told are over, and whose withdrawal comes next."""
        self._lost: list[e.NodesLeft] = []
        self._absent = 0 if traits.absent_units or hides_absence else cluster.begins.unavailable.mask
        """Units that are unavailable, if the decider has no word for it."""
        self._own: list[d.Decision] = []
        self._handlers: dict[type, Callable[[Any], list[e.Event]]] = {}
        handlers: tuple[tuple[bool, type, Callable[[Any], list[e.Event]]], ...] = (
            (traits.lost_nodes and traits.absent_units, e.NodesLeft, self._on_left),
            (traits.lost_nodes, e.NodesJoined, self._on_joined),
            (traits.absent_units, e.UnitsUnavailable, self._on_unavailable),
            (traits.absent_units, e.UnitsAvailable, self._on_available),
            (traits.withdrawals and traits.lost_nodes and traits.absent_units, e.JobWithdrawn, self._on_withdrawn),
            (traits.withdrawals, e.JobSubmitted, self._on_submitted),
            (traits.requeues, e.JobRequeued, self._on_requeued),
            (traits.feasibility, e.FeasibilityAsked, self._on_feasibility),
            (traits.estimates, e.EstimateAsked, self._on_estimate),
        )
        for has_word, kind, handler in handlers:
            if not has_word:
                self._handlers[kind] = handler
        if self._handlers or cluster.refused is not None or not traits.shapes:
            self._handlers[e.CallArrived] = self._on_call
        self._traits = traits

    def events(self, batch: e.Batch) -> tuple[e.Batch, list[d.Decision]]:
        """The batch that the decider is told, and decisions that are made for it."""
        handlers, unknown = self._handlers, bool(self._held.later)
        for event in batch.events:
            if type(event) in handlers and (type(event) is not e.JobSubmitted or self._withdrawn):
                unknown = True
        if unknown:
            batch = self._translated(batch)
        own, self._own = self._own, []
        return batch if self._names is None else self._names.out(batch), own

    def _translated(self, batch: e.Batch) -> e.Batch:
        self._now = batch.now
        told = self._held.take_later()
        for event in batch.events:
            handler = self._handlers.get(type(event))
            if handler is None:
                told.append(event)
            else:
                told += handler(event)
        return e.Batch(batch.now, told, batch.waits)

    def reply(self, reply: d.Reply) -> d.Reply:
        """The reply that goes on to the world."""
        if self._names is not None:
            reply = self._names.back(reply)
        if self._withdrawn or self._held or self._absent or self._lost:
            made: list[d.Decision] = []
            for decision in reply.decisions:
                made += self._translated_decision(decision)
            reply.decisions = made
        return reply

    def _translated_decision(self, decision: d.Decision) -> list[d.Decision]:
        if isinstance(decision, d.StartJob):
            if decision.job_id in self._withdrawn:
                self._withdrawn.discard(decision.job_id)
                return [self._held.tell_soon(decision.at, killed(decision.at, decision.job_id, IdSet()))]
            if decision.units.mask & (self._cluster.away_mask | self._absent):
                self._held[decision.job_id] = decision
                return []
        elif isinstance(decision, d.RejectJob):
            if decision.job_id in self._withdrawn:
                self._withdrawn.discard(decision.job_id)
                return []
        elif isinstance(decision, d.KillJobs) and not self._held.keys().isdisjoint(decision.job_ids):
            return self._held.kill(decision, "killed while its node was away")
        return [decision]

    def refuse(self, decision: d.StartJob, now: float) -> list[d.Decision]:
        """A start was refused: its job failed and waits again, or was rejected."""
        if decision.job_id in self._cluster.waiting:
            return [self._held.tell_soon(now, *self._requeue(now, decision.job_id, "the decision was refused"))]
        return [self._held.tell_soon(now, killed(now, decision.job_id, decision.units))]

    # ---- events that the decider has no word for

    def _on_withdrawn(self, event: e.JobWithdrawn) -> list[e.Event]:
        ended = self._held.end(event.at, event.job_id)
        if ended is None and self._traits.withdrawals:
            return [event]
        self._own.append(d.ConfirmWithdrawal(event.at, event.job_id))
        if ended is not None:
            return [ended]
        if event.job_id not in self._over:
            self._withdrawn.add(event.job_id)
        self._over.discard(event.job_id)
        return []

    def _on_submitted(self, event: e.JobSubmitted) -> list[e.Event]:
        """A job that was withdrawn and is submitted again still waits in the decider's queue."""
        if event.job.id in self._withdrawn:
            self._withdrawn.discard(event.job.id)
            return []
        return [event]

    def _on_requeued(self, event: e.JobRequeued) -> list[e.Event]:
        told: list[e.Event] = [
            e.JobEnded(event.at, event.job_id, JobState.FAILED, KILLED_CODE, IdSet(), event.reason)
        ]
        job = self._cluster.waiting.get(event.job_id)
        if job is None:
            self._over.add(event.job_id)  # It was withdrawn in the same batch.
            return told
        return [*told, e.JobSubmitted(event.at, job)]

    def _requeue(self, at: float, job_id: str, reason: str = "its node was lost") -> list[e.Event]:
        event = e.JobRequeued(at, job_id, reason)
        return [event] if self._traits.requeues else self._on_requeued(event)

    def _on_left(self, event: e.NodesLeft) -> list[e.Event]:
        if event.may_return and not self._traits.lost_nodes:
            self._lost.append(event)
            self._own.append(d.CallAt(self._now, event.at + PATIENCE_S, CALL))
            return []
        if self._traits.absent_units:
            return [event]
        self._absent |= event.units.mask
        return [*self._requeue_held(event.at, event.units.mask), event]

    def _requeue_held(self, at: float, mask: int) -> list[e.Event]:
        told: list[e.Event] = []
        for job_id in [job_id for job_id, start in self._held.items() if start.units.mask & mask]:
            del self._held[job_id]
            told += self._requeue(at, job_id)
        return told

    def _on_joined(self, event: e.NodesJoined) -> list[e.Event]:
        """A node that is back is no news; others may be."""
        news = []
        for node in event.nodes:
            back = [left for left in self._lost if not left.units.mask & ~node.mask]
            if back:
                self._lost = [left for left in self._lost if left not in back]
            else:
                news.append(node)
        self._release(self._now)
        return [e.NodesJoined(event.at, tuple(news))] if news else []

    def _on_call(self, event: e.CallArrived) -> list[e.Event]:
        if event.call_id != CALL:
            return [event]
        now, told = self._now, list[e.Event]()
        for left in [left for left in self._lost if left.at + PATIENCE_S <= now]:
            self._lost.remove(left)
            self._cluster.away_mask &= ~left.units.mask
            told += self._requeue_held(now, left.units.mask)
            told += self._on_left(e.NodesLeft(now, left.names, left.units))
        return told

    def _on_unavailable(self, event: e.UnitsUnavailable) -> list[e.Event]:
        self._absent |= event.units.mask
        return [event]

    def _on_available(self, event: e.UnitsAvailable) -> list[e.Event]:
        self._absent &= ~event.units.mask
        self._release(event.at)
        return [event]

    def _release(self, now: float) -> None:
        """Starts the held jobs whose units are all there."""
        away = self._cluster.away_mask | self._absent
        for job_id in [job_id for job_id, start in self._held.items() if not start.units.mask & away]:
            start = self._held.pop(job_id)
            start.at = now
            self._own.append(start)

    def _on_feasibility(self, event: e.FeasibilityAsked) -> list[e.Event]:
        never = self._cluster.could_ever_run(event.job)
        self._own.append(d.AnswerFeasibility(event.at, event.question_id, "" if never is None else never.reason))
        return []

    def _on_estimate(self, event: e.EstimateAsked) -> list[e.Event]:
        self._own.append(d.AnswerEstimate(event.at, event.job.id, inf))
        return []


_WITH_JOB = frozenset((e.JobSubmitted, e.EstimateAsked, e.FeasibilityAsked))


class FullNames:
    """Renames jobs to `workload!name` and back. `active` from the first job on whose id is not a full name."""

    def __init__(self) -> None:
        self.active = False

    def out(self, batch: e.Batch) -> e.Batch:
        if not self.active:
            for event in batch.events:
                if type(event) in _WITH_JOB and "!" not in event.job.id:  # type: ignore[union-attr]
                    self.active = True
                    break
            else:
                return batch
        return e.Batch(batch.now, [_renamed(event, _full) for event in batch.events], batch.waits)

    def back(self, reply: d.Reply) -> d.Reply:
        if not self.active:
            return reply
        return d.Reply(reply.now, [_renamed(decision, _plain) for decision in reply.decisions])


def _renamed(item: e.Event | d.Decision, rename: Callable[[str], str]) -> Any:
    """A copy with every job id renamed."""
    changes: dict[str, object] = {}
    for field in item.__struct_fields__:
        value = getattr(item, field)
        if field == "job_id":
            changes[field] = rename(value)
        elif field == "job_ids":
            changes[field] = tuple(map(rename, value))
        elif field in ("progress", "priorities"):
            changes[field] = {rename(job_id): kept for job_id, kept in value.items()}
        elif isinstance(value, Job):
            changes[field] = msgspec.structs.replace(value, id=rename(value.id))
    return msgspec.structs.replace(item, **changes) if changes else item


def _full(job_id: str) -> str:
    return job_id if "!" in job_id else WORKLOAD + job_id


def _plain(job_id: str) -> str:
    return job_id.removeprefix(WORKLOAD)

"""A Policy as a Decider.

In: batches. Out: replies. Each event reaches the Cluster, then the policy. The policy decides through the Cluster's
verbs, which check each decision at once, so that a mistake is reported with the policy's own file and line.
"""

from __future__ import annotations

import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable
from math import inf
from pathlib import Path

from pilothouse.core.cluster import Cluster
from pilothouse.core.contract import Traits
from pilothouse.model.decisions import AnswerEstimate, Decision, Reply, Wants
from pilothouse.model.errors import DecisionError, PilothouseError
from pilothouse.model.events import (
    Batch,
    Begins,
    EstimateAsked,
    Event,
    JobEnded,
    JobHolds,
    JobRequeued,
    JobSubmitted,
    JobWithdrawn,
)
from pilothouse.model.job import Job
from pilothouse.policies.base import Policy

SEE_TRACEBACK = "pilothouse --traceback COMMAND shows how it came to that"
_HOUSE = str(Path(__file__).parent.parent)


WaitOf = Callable[[Cluster, Job], float]
"""How many seconds a job would wait if it were submitted now; inf: for ever, or it is not known."""


class PolicyDecider:
    """One policy in this process. `wait_of` answers questions about waiting times, unless the policy does."""

    traits = Traits(decides_on_cluster=True)

    def __init__(self, policy: Policy, wait_of: WaitOf = lambda cluster, job: inf) -> None:
        self.policy = policy
        self._wait_of = wait_of
        self.name = type(policy).__name__
        self._decides_itself = type(policy).decide is not Policy.decide
        self._cluster: Cluster

    def hello(self) -> Wants:
        return self.policy.wants

    def begin(self, begins: Begins, cluster: Cluster) -> None:
        self._cluster = cluster
        try:
            self.policy.begin(cluster)
        except (Exception, SystemExit) as problem:
            raise self._located(problem) from problem

    def fileno(self) -> int:
        raise AssertionError("a policy speaks in turn")

    def close(self) -> None:
        """Nothing is held open."""

    def decide(self, batch: Batch) -> Reply:
        events = batch.events
        if len(events) != 1 or self._decides_itself:
            return self._decide_on_several(batch)
        # Most batches of a long run hold one event, and it is of one of two kinds.
        policy, cluster = self.policy, self._cluster
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
            if cluster.refused is not None:
                self._tell_rejected()
        except (Exception, SystemExit) as problem:
            raise self._located(problem) from problem
        decisions, cluster.decisions = cluster.decisions, []
        return Reply(now, decisions)

    def _decide_on_several(self, batch: Batch) -> Reply:
        policy, cluster = self.policy, self._cluster
        cluster.now = now = batch.now
        try:
            if self._decides_itself:
                for event in batch.events:
                    cluster.observe(event)
                now = max(now, policy.decide(batch, cluster) or now)
                asked = [event for event in batch.events if type(event) is EstimateAsked]
                self._answer(asked, cluster.decisions)
            elif policy.each_event:
                self._pass_for_each(batch.events)
            else:
                for event in batch.events:
                    self._see(event)
                policy.schedule(cluster)
            if cluster.refused is not None:
                self._tell_rejected()
        except (Exception, SystemExit) as problem:
            raise self._located(problem) from problem
        return Reply(now, cluster.take_decisions())

    def _tell_rejected(self) -> None:
        """Jobs that were rejected because the policy's decisions about them were wrong leave its queue."""
        cluster = self._cluster
        assert cluster.refused is not None
        for _, job in cluster.refused.take_starts():
            if job.id not in cluster.waiting:
                self.policy.on_ended(job, cluster)

    def _see(self, event: Event) -> None:
        """One event reaches the cluster, then the policy."""
        policy, cluster = self.policy, self._cluster
        if type(event) is JobSubmitted:
            cluster.observe(event)
            if policy.admit(event.job, cluster):
                policy.on_submitted(event.job, cluster)
        elif type(event) is JobEnded:
            job = cluster.note_ended(event)
            if job is not None:
                policy.on_ended(job, cluster)
        elif type(event) is JobRequeued or type(event) is JobWithdrawn:
            self._see_return(event)
        else:
            cluster.observe(event)
            before = len(cluster.decisions)
            policy.on_event(event, cluster)
            if type(event) is EstimateAsked:
                self._answer((event,), cluster.decisions[before:])

    def _answer(self, asked: Iterable[EstimateAsked], decided: list[Decision]) -> None:
        """Answers the questions that the policy has not answered by these decisions."""
        cluster = self._cluster
        answered = {decision.job_id for decision in decided if type(decision) is AnswerEstimate}
        for event in asked:
            if event.job.id not in answered:
                cluster.book(AnswerEstimate(cluster.now, event.job.id, self._wait_of(cluster, event.job)))

    def _pass_for_each(self, events: list[Event]) -> None:
        """One pass for each of several simultaneous events. All ends are noted first: what ends at a date is free at that
        date, whatever the order of the events."""
        policy, cluster = self.policy, self._cluster
        ended: dict[str, Job] = {}
        for event in events:
            if type(event) is JobEnded:
                job = cluster.note_ended(event)
                if job is not None:
                    ended[job.id] = job
            elif type(event) is JobHolds:
                cluster.observe(event)  # it may end in this batch
        if ended:
            policy.on_batch(list(ended.values()), cluster)
        for event in events:
            if type(event) is JobEnded:
                if event.job_id in ended:
                    policy.on_ended(ended[event.job_id], cluster)
            elif type(event) is JobHolds:
                policy.on_event(event, cluster)
            else:
                self._see(event)
            policy.schedule(cluster)

    def _see_return(self, event: JobRequeued | JobWithdrawn) -> None:
        """A job came back from its node, or left the queue."""
        policy, cluster = self.policy, self._cluster
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
        where = _own_line(type(self.policy), problem)
        cluster = self._cluster
        if isinstance(problem, DecisionError):
            return DecisionError(problem.decider, problem.index, problem.rule, problem.detail, where=where)
        if not where and _is_wrong_signature(problem):
            where = type(self.policy).__qualname__
        if isinstance(problem, PilothouseError) or not where:
            raise problem
        detail = f"{type(problem).__name__}: {problem} (at {cluster.now:g} s)"
        if traceback.extract_tb(problem.__traceback__)[-1].filename not in where:
            detail += f"; {SEE_TRACEBACK}"
        return DecisionError(cluster.decider, len(cluster.decisions), "the policy raised", detail, where=where)


def _own_line(policy: type[Policy], problem: Exception | SystemExit) -> str:
    """`file:line` of the last line of the user's own code that was reached: in a file of the policy's classes, or in another
    that is neither ours nor a library's. "" if there is none."""
    paths = sysconfig.get_paths()
    libraries = tuple({paths[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")})
    modules = [sys.modules.get(parent.__module__) for parent in policy.__mro__]
    files = {getattr(module, "__file__", None) for module in modules}
    where = ""
    for frame in traceback.extract_tb(problem.__traceback__):
        ours = frame.filename.startswith(_HOUSE)
        # A policy that was loaded from a file has its name from there; libraries may be compiled: `<frozen ...>`.
        foreign = frame.filename.startswith((*libraries, "<"))
        if not ours and (frame.filename in files or not foreign):
            where = f"{frame.filename}:{frame.lineno}"
    return where


def _is_wrong_signature(problem: Exception | SystemExit) -> bool:
    """Whether a method of the policy is missing or takes other arguments: then no line of its own was reached."""
    if isinstance(problem, NotImplementedError):
        return True
    frames = traceback.extract_tb(problem.__traceback__)
    return isinstance(problem, TypeError) and bool(frames) and frames[-1].filename == __file__

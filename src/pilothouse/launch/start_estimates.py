"""When waiting jobs of a steered machine will start: the policy that steers it runs ahead in a simulated world.

In: the Cluster as it is now. Out: dates for Flux's `t_estimate`, and seconds for Batsim's `estimate_waiting_time`. A copy of the
policy is made for each simulation. Jobs are taken to use up their limits; behind one that has none nothing can be told. A
simulation for `t_estimate` has a limit of time, and tells what it has found by then; a question is answered whatever it takes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import msgspec

from pilothouse.core.cluster import Cluster
from pilothouse.core.contract import Decider
from pilothouse.core.session import Session
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import PilothouseError
from pilothouse.model.job import Job
from pilothouse.policies.base import Policy

_log = logging.getLogger("pilothouse.ahead")

MOST_JOBS = 2000
"""Waiting jobs that are simulated for `t_estimate`: fewer where that takes too long."""
LEAST_JOBS = 50


class StartEstimates:
    """The estimates of one session. A policy that cannot be simulated is warned about once, and not tried again."""

    def __init__(self, make_policy: Callable[[], Policy]) -> None:
        self._make_policy = make_policy
        self._failed = False
        self._most_jobs = MOST_JOBS

    def __call__(self, cluster: Cluster, limit_s: float) -> tuple[dict[str, float], float]:
        """Waiting jobs that will start -> when, as far as it is found out within the limit; and how many seconds it took."""
        starts, took_s = self._starts(cluster, limit_s, most_jobs=self._most_jobs)
        if took_s >= limit_s:
            self._most_jobs = max(LEAST_JOBS, min(self._most_jobs, len(cluster.waiting)) // 2)
        elif took_s < limit_s / 4:
            self._most_jobs = min(MOST_JOBS, 2 * self._most_jobs)
        return starts, took_s

    def wait_of(self, cluster: Cluster, job: Job) -> float:
        """How many seconds a job would wait if it were submitted now; inf: for ever, or it is not known."""
        if job.id in cluster.running:
            return 0.0
        potential = () if job.id in cluster.waiting else (job,)
        return self._starts(cluster, inf, potential=potential)[0].get(job.id, inf) - cluster.now

    def _starts(self, cluster: Cluster, limit_s: float, **options: Any) -> tuple[dict[str, float], float]:
        from pilothouse.campaign.run_ahead import expected_starts

        began = time.perf_counter()
        starts: dict[str, float] = {}
        if not self._failed:
            try:
                starts = expected_starts(
                    cluster, self._make_policy(), in_time=lambda: time.perf_counter() - began < limit_s, **options
                )
            except PilothouseError as problem:
                self._failed = True
                _log.warning("the policy cannot be simulated, so no starts are estimated: %s", problem)
        return starts, time.perf_counter() - began


def ask(begins: e.Begins, events: Sequence[e.Event], decider: Decider, job: Job) -> float:
    """How long a decider thinks that a job would wait that joins a machine as it is now; inf: for ever, or it is not known.

    The decider is told of the machine and asked (EstimateAsked). A foreign scheduler is asked over its protocol. Nothing that it
    decides is carried out.
    """
    world = _Question(msgspec.structs.replace(begins, cannot=frozenset()), events, job)
    Session(world, decider).run()
    return world.answer


class _Question:
    """A world in which nothing happens: the present state, one question, the end."""

    name = "question"

    def __init__(self, begins: e.Begins, events: Sequence[e.Event], job: Job) -> None:
        now = begins.started_at
        self._begins = begins
        self._turns: list[list[e.Event]] = [[e.Began(now, begins), *events], [e.EstimateAsked(now, job)], [e.Ended(now)]]
        self.answer = inf

    def begin(self, wants: d.Wants) -> e.Begins:
        return self._begins

    def advance(self) -> e.Batch | None:
        return e.Batch(self._begins.started_at, self._turns.pop(0)) if self._turns else None

    def apply(self, reply: d.Reply) -> None:
        for decision in reply.decisions:
            if type(decision) is d.AnswerEstimate:
                self.answer = decision.seconds

    def watch(self, fd: int) -> None:
        """Nothing happens meanwhile."""

    def close(self) -> None:
        """Nothing is held open."""

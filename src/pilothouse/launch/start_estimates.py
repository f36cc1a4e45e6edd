"""When waiting jobs of a steered machine will start: the policy that steers it runs ahead in a simulated world.

In: the Cluster as it is now. Out: dates for Flux's `t_estimate`, and seconds for Batsim's `estimate_waiting_time`. A copy of the
policy is made for each simulation. Jobs are taken to use up their limits; behind one that has none nothing can be told. A
simulation for `t_estimate` has a limit of time, and tells what it has found by then; a question is answered whatever it takes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from math import inf
from typing import Any

from pilothouse.core.cluster import Cluster
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

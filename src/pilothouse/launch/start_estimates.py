"""When waiting jobs of a steered machine will start: the policy that steers it runs ahead in a simulated world.

In: the Cluster as it is now. Out: dates for Flux's `t_estimate`, and seconds for Batsim's `estimate_waiting_time`. A copy of the
policy is made for each simulation. Jobs are taken to use up their limits; behind one that has none nothing can be told. A
simulation for `t_estimate` takes LIMIT_S at most, and tells what it has found by then; a question is answered whatever it takes.
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
"""Waiting jobs that are simulated for `t_estimate`."""
LIMIT_S = 0.2


class StartEstimates:
    """The estimates of one session. A policy that cannot be simulated is warned about once, and not tried again."""

    def __init__(self, make_policy: Callable[[], Policy]) -> None:
        self._make_policy = make_policy
        self._failed = False

    def __call__(self, cluster: Cluster) -> tuple[dict[str, float], float]:
        """Waiting jobs that will start -> when; and how many seconds it took to find out."""
        began = time.perf_counter()
        starts = self._starts(cluster, most_jobs=MOST_JOBS, in_time=lambda: time.perf_counter() - began < LIMIT_S)
        return starts, time.perf_counter() - began

    def wait_of(self, cluster: Cluster, job: Job) -> float:
        """How many seconds a job would wait if it were submitted now; inf: for ever, or it is not known."""
        if job.id in cluster.running:
            return 0.0
        potential = () if job.id in cluster.waiting else (job,)
        return self._starts(cluster, potential=potential).get(job.id, inf) - cluster.now

    def _starts(self, cluster: Cluster, **options: Any) -> dict[str, float]:
        from pilothouse.campaign.run_ahead import expected_starts

        if self._failed:
            return {}
        try:
            return expected_starts(cluster, self._make_policy(), **options)
        except PilothouseError as problem:
            self._failed = True
            _log.warning("the policy cannot be simulated, so no starts are estimated: %s", problem)
            return {}

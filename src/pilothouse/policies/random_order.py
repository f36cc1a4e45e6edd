"""A seeded random order: jobs that fit are started, in an order that means nothing. A yardstick for other policies."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from pilothouse.policies.base import Policy

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster


class RandomOrder(Policy):
    """Shuffles the waiting jobs that fit, and starts them in that order as far as they still do."""

    def __init__(self, seed: int = 0) -> None:
        self._random = Random(seed)

    def schedule(self, cluster: Cluster) -> None:
        free = cluster.free
        if not free:
            return
        fitting = [job for job in cluster.waiting.values() if job.units <= free]
        self._random.shuffle(fitting)
        for job in fitting:
            if job.units <= cluster.free:
                cluster.start(job)

"""A seeded random order: what fits is started, in an order that means nothing. A yardstick for ideas."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from pilothouse.policies.base import Policy

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster


class Chance(Policy):
    """Draws the waiting jobs in random order, and starts what fits."""

    def __init__(self, seed: int = 0) -> None:
        self._random = Random(seed)

    def schedule(self, cluster: Cluster) -> None:
        if not cluster.free or not cluster.waiting:
            return
        jobs = list(cluster.queue)
        self._random.shuffle(jobs)
        for job in jobs:
            if job.units <= cluster.free:
                cluster.start(job)

"""A seeded random order: what fits is started, in an order that means nothing. A yardstick for ideas.

The places of the waiting jobs are shuffled as `Random.shuffle` does, and the jobs that fit are looked at in that order. This
is written in C as well (`_chance.c`), which is used where it could be compiled; a waiting job then costs 10 ns in a pass instead
of 400. Tests hold the two against each other.
"""

from __future__ import annotations

from array import array
from random import Random
from typing import TYPE_CHECKING

from pilothouse.model.job import Job
from pilothouse.policies.base import Policy

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster


class Chance(Policy):
    """Draws the waiting jobs in random order, and starts what fits."""

    def __init__(self, seed: int = 0) -> None:
        self._state = state_of(Random(seed))
        self._jobs: list[Job] = []
        """The waiting jobs, in the order of the cluster."""
        self._units = array("q")
        """How many units each of them needs."""

    def on_submitted(self, job: Job, cluster: Cluster) -> None:
        self._jobs.append(job)
        self._units.append(job.units)

    def schedule(self, cluster: Cluster) -> None:
        if not cluster.free or not cluster.waiting:
            return
        if len(self._jobs) != len(cluster.waiting):  # some have gone otherwise
            self._jobs = list(cluster.waiting.values())
            self._units = array("q", [job.units for job in self._jobs])
        started = []
        for place in draw(self._units, cluster.free, self._state):
            if self._units[place] <= cluster.free and cluster.start(self._jobs[place]):
                started.append(place)
        for place in sorted(started, reverse=True):
            del self._jobs[place], self._units[place]


def state_of(generator: Random) -> array[int]:
    """The state of a Mersenne Twister: 624 words of 32 bits, and how many of them are used up."""
    return array("I", generator.getstate()[1])


def plain_draw(units: array[int], free: int, state: array[int]) -> list[int]:
    """The places of all jobs in random order, without those of jobs that need more than the free units."""
    generator = Random()
    generator.setstate((3, tuple(state), None))
    places = list(range(len(units)))
    generator.shuffle(places)
    state[:] = state_of(generator)
    return [place for place in places if units[place] <= free]


try:
    from pilothouse.policies import _chance
except ImportError:
    draw = plain_draw
else:
    draw = _chance.draw

"""A seeded random order: what fits is started, in an order that means nothing. A yardstick for ideas.

The order is that of `Random.shuffle`, and so are the random words: 32 bits each, drawn thousands at a time. The shuffle is
written in C as well (`_chance.c`), which is used where it could be compiled; a waiting job then costs 0.01 µs in a pass
instead of 0.2. Tests hold the two against each other.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from pilothouse.model.job import Job
from pilothouse.policies.base import Policy

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster

WORDS_AT_ONCE = 4096


class Chance(Policy):
    """Draws the waiting jobs in random order, and starts what fits."""

    def __init__(self, seed: int = 0) -> None:
        self._random = Random(seed)
        self._words = b""
        self._used = 0

    def schedule(self, cluster: Cluster) -> None:
        free = cluster.free
        if not free or not cluster.waiting:
            return
        jobs = list(cluster.waiting.values())
        self._words, self._used = shuffle(jobs, self._words, self._used, self._more_words)
        for job in [job for job in jobs if job.units <= free]:
            if job.units <= cluster.free:
                cluster.start(job)

    def _more_words(self) -> bytes:
        return self._random.getrandbits(32 * WORDS_AT_ONCE).to_bytes(4 * WORDS_AT_ONCE, "little")


def plain_shuffle(items: list[Job], words: bytes, at: int, more: Callable[[], bytes]) -> tuple[bytes, int]:
    """Swaps each item, from the last on, with one at or before its place (Fisher and Yates). The words are used from number
    `at` on; `more` returns the next ones. Returns the words that are in use now, and how many of them are used up."""
    for place in range(len(items) - 1, 0, -1):
        # The highest bits of a word, as many as the number of places has; a number that is too large is drawn again.
        shift = 32 - (place + 1).bit_length()
        chosen = place + 1
        while chosen > place:
            if 4 * at >= len(words):
                words, at = more(), 0
            chosen = int.from_bytes(words[4 * at : 4 * at + 4], "little") >> shift
            at += 1
        items[place], items[chosen] = items[chosen], items[place]
    return words, at


try:
    from pilothouse.policies import _chance
except ImportError:
    shuffle = plain_shuffle
else:
    shuffle = _chance.shuffle

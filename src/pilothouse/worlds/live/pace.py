"""How long tasks take, and so how many of them make a bundle. Sans-IO.

A bundle is several short tasks that run one after another on the units of one decision. Bundles keep the rate up where
tasks take milliseconds; they never oversubscribe a unit, so every decider may be given them. Their size follows what
tasks really took and shrinks to one towards the end of the file.
"""

from __future__ import annotations

from math import inf

BUNDLE_S = 0.4
"""How much work a bundle should hold."""
SHORT_S = 0.05
"""Only tasks that take less than this are bundled: for longer ones a decision each costs nothing worth saving."""
LAST_S = 0.02
"""Towards the end bundles shrink to this, so that all slots end together."""
BUNDLE_BYTES = 2**20
MOST_BUNDLED = 1000
_SMOOTHING = 0.05


class Pace:
    """How long tasks take, and so how many belong into a bundle."""

    def __init__(self, most: int) -> None:
        self.mean_s = inf
        self.longest_bytes = 1
        """The longest command so far: bundles must fit into messages whatever they hold."""
        self._most = min(most, MOST_BUNDLED)

    def note(self, seconds: float) -> None:
        seconds = max(seconds, 1e-5)
        self.mean_s = seconds if self.mean_s == inf else self.mean_s + _SMOOTHING * (seconds - self.mean_s)

    def bundle(self, remaining: int | None, units: int) -> int:
        """How many tasks the next bundle should hold, with so many left and so many units."""
        if self._most <= 1 or self.mean_s > SHORT_S:
            return 1
        size = min(self._most, int(BUNDLE_S / self.mean_s), BUNDLE_BYTES // self.longest_bytes)
        if remaining is not None:
            size = min(size, max(remaining // (3 * max(1, units)), int(LAST_S / self.mean_s)))
        return max(1, size)

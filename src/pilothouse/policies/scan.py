"""The two walks that backfilling repeats at every event: over the expected ends, and over the queue.

Written twice: here, and in `_scan.c` where that could be compiled, ten times as fast, which must give the same. A pass
over a queue of a thousand jobs takes 60 µs here and 5 µs there.
"""

from __future__ import annotations

from math import inf

from pilothouse.model.job import Job

Entry = tuple[float, int, Job, float, int]
"""A queue entry: score, number of arrival, job, estimate, units."""
End = tuple[float, int, int]
"""An expected end: date, number of the start, units."""


def plain_shadow(ends: list[End], missing: int) -> tuple[float, int]:
    """When so many more units will be free, all ends of that date counted, and how many more than that will be.

    Fewer than none more: they never will be; the date then says nothing.
    """
    shadow = inf
    for end, _, units in ends:
        if missing <= 0 and end > shadow:
            break
        missing -= units
        shadow = end
    return shadow, -missing


def plain_candidate(entries: list[Entry], index: int, free: int, extra: int, now: float, shadow: float) -> int:
    """The first entry from `index` on that fits into `free` and is done by the shadow time, or fits into `extra`; or -1."""
    for place in range(index, len(entries)):
        _, _, _, estimate, units = entries[place]
        if units <= free and (units <= extra or (now + estimate <= shadow and estimate < inf)):
            return place
    return -1


try:
    from pilothouse.policies import _scan
except ImportError:
    shadow, candidate = plain_shadow, plain_candidate
else:
    shadow, candidate = _scan.shadow, _scan.candidate

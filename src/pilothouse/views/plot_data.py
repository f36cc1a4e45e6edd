"""The numbers behind plots: means over windows, distributions, the density of a Gantt chart. Needs numpy (extra `plot`).

Nothing here is approximated: the windows of a timeline average to the metric of the run, a distribution passes through the
metric's median and 95th percentile, and the cells of a density sum up to the busy time. Tests hold them to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, floor
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pilothouse.views.schedule import Schedule, Steps, intervals

Numbers = NDArray[np.float64]
MOST_STEPS = 1500
"""A timeline with more steps is drawn as means over windows: more lines than that are a solid block."""
MOST_WINDOWS = 150
MOST_RANKS = 2000
"""A distribution of more jobs is drawn by so many ranks (a multiple of 20: the 95th percentile is among them)."""
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
_LENGTHS = (
    *(base * 10.0**power for power in range(-4, 2) for base in (1, 2, 5)),
    *(MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 20 * MINUTE, 30 * MINUTE),
    *(HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR),
    *(DAY, 2 * DAY, 3 * DAY, 7 * DAY, 14 * DAY, 28 * DAY, 91 * DAY, 364 * DAY),
)


class Curve(msgspec.Struct, frozen=True):
    """A step function ready to be drawn: `values[i]` between `edges[i]` and `edges[i + 1]`."""

    edges: Numbers
    values: Numbers
    lows: Numbers | None = None
    highs: Numbers | None = None
    """The least and the most within each window; None where every step is drawn."""


def as_numbers(column: Any) -> Numbers:
    """A column of a schedule, without copying it."""
    return np.frombuffer(column, dtype=np.float64) if len(column) else np.zeros(0)


def window_length(begin: float, end: float, most: int = MOST_WINDOWS) -> float:
    """A length that people think in (10 s, 6 h, 2 d), so that no more than `most` windows are needed."""
    least = (end - begin) / most
    return next((length for length in _LENGTHS if length >= least), least)


def curve(steps: Steps, begin: float, end: float, window: float | None) -> Curve:
    """Every step, or means over windows of that length."""
    dates, values = as_numbers(steps.dates), as_numbers(steps.values)
    inside = (dates > begin) & (dates < end)
    edges = np.concatenate(([begin], dates[inside], [end]))
    levels = np.concatenate(([steps.at(begin)], values[inside]))
    if window is None or end <= begin:
        return Curve(edges, levels)
    cuts = _cuts(begin, end, window)
    area = np.concatenate(([0.0], np.cumsum(levels * np.diff(edges))))
    means = np.diff(np.interp(cuts, edges, area)) / np.diff(cuts)
    firsts = np.searchsorted(edges, cuts, side="right") - 1
    lows, highs = np.empty(len(means)), np.empty(len(means))
    for place, (first, last) in enumerate(pairwise(firsts)):
        # A step that begins where the window ends belongs to the next one.
        until = last if edges[last] == cuts[place + 1] else last + 1
        within = levels[first : max(until, first + 1)]
        lows[place], highs[place] = within.min(), within.max()
    return Curve(cuts, means, lows, highs)


def rate(total: Steps, begin: float, end: float, window: float) -> Curve:
    """How fast a total that was written down now and then has grown, over windows; between two rows it grows evenly."""
    cuts = _cuts(begin, end, window)
    dates, values = as_numbers(total.dates), as_numbers(total.values)
    return Curve(cuts, np.diff(np.interp(cuts, dates, values)) / np.diff(cuts))


def _cuts(begin: float, end: float, window: float) -> Numbers:
    """Windows begin at multiples of their length, the first and the last one are cut off."""
    inner = np.arange(floor(begin / window) + 1, ceil(end / window)) * window
    return np.concatenate(([begin], inner[(inner > begin) & (inner < end)], [end]))


def distribution(values: Numbers) -> tuple[Numbers, Numbers]:
    """(value, share of values that are not larger), ascending; every value, or MOST_RANKS of them."""
    ordered = np.sort(values)
    count = len(ordered)
    if count <= MOST_RANKS:
        distinct, places = np.unique(ordered[::-1], return_index=True)
        return distinct, (count - places) / count
    ranks = np.unique(np.ceil(np.arange(1, MOST_RANKS + 1) * (count / MOST_RANKS)).astype(np.int64))
    ranks[-1] = count
    return ordered[ranks - 1], ranks / count


def waits(schedule: Schedule) -> Numbers:
    """Of the jobs that ended, as metrics count them."""
    submitted, started, ended = (as_numbers(c) for c in (schedule.submitted, schedule.started, schedule.ended))
    ran = ~np.isnan(started) & ~np.isnan(ended)
    return started[ran] - submitted[ran]


def bounded_slowdowns(schedule: Schedule, tau: float) -> Numbers:
    submitted, started, ended = (as_numbers(c) for c in (schedule.submitted, schedule.started, schedule.ended))
    ran = ~np.isnan(started) & ~np.isnan(ended)
    turnarounds, runs = ended[ran] - submitted[ran], ended[ran] - started[ran]
    return np.maximum(1.0, turnarounds / np.maximum(tau, runs))


def boxes(schedule: Schedule, shown: Sequence[int]) -> tuple[NDArray[np.int64], Numbers, Numbers, Numbers, Numbers]:
    """Row, begin, end, first unit and the unit after the last, of each run of neighbouring units of these jobs."""
    cells = np.array(list(schedule.boxes(shown)), dtype=np.int64).reshape(-1, 3)
    rows = cells[:, 0]
    until = np.array([schedule.held_until(row) for row in rows])
    firsts, lasts = cells[:, 1].astype(np.float64), cells[:, 2].astype(np.float64)
    return rows, as_numbers(schedule.started)[rows], until.astype(np.float64), firsts, lasts + 1.0


def density(schedule: Schedule, begin: float, end: float, columns: int, lines: int) -> Numbers:
    """The busy share of each cell: `lines` groups of units by `columns` slices of time.

    The area of a rectangle below and left of a point is a sum over its four corners, so one cumulative sum over corners
    gives the area of all rectangles: 700,000 of them take half a second.
    """
    _, starts, ends, lows, highs = boxes(schedule, schedule.ran())
    across = np.clip((starts - begin) / (end - begin) * columns, 0, columns)
    across_end = np.clip((ends - begin) / (end - begin) * columns, 0, columns)
    up, up_end = (np.clip(unit / schedule.units * lines, 0, lines) for unit in (lows, highs))
    x = np.concatenate([across, across_end, across, across_end])
    y = np.concatenate([up, up, up_end, up_end])
    sign = np.repeat([1.0, -1.0, -1.0, 1.0], len(across))
    shape = (columns + 1, lines + 1)
    # A corner counts from the first grid point on that is not before it.
    cell = np.ravel_multi_index((np.ceil(x).astype(np.int64), np.ceil(y).astype(np.int64)), shape)

    def summed(weights: Numbers) -> Numbers:
        counted = np.bincount(cell, weights, minlength=shape[0] * shape[1]).reshape(shape)
        return np.cumsum(np.cumsum(counted, axis=0), axis=1)

    grid_x, grid_y = np.arange(columns + 1)[:, None], np.arange(lines + 1)[None, :]
    area = grid_x * grid_y * summed(sign) - grid_x * summed(sign * y) - grid_y * summed(sign * x) + summed(sign * x * y)
    return np.clip(np.diff(np.diff(area, axis=0), axis=1).T, 0.0, 1.0)


def unit_rows(schedule: Schedule, most: int) -> int:
    """Lines of a density: one a unit where they fit."""
    return min(schedule.units, most)


def widest(text: str) -> tuple[int, int]:
    """The longest run of neighbouring units: where a label goes."""
    return max(intervals(text), key=lambda run: run[1] - run[0])

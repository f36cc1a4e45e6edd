"""Calls that a decider asked for: at a date, or at the multiples of a period. For worlds whose clock runs by itself.

In: CallAt, CallEvery, StopCalls, and the time. Out: CallArrived. (Simulated worlds enter calls in their own agenda, where
ties with other events count; they share `next_multiple`.)
"""

from __future__ import annotations

import heapq
from math import floor, inf

from pilothouse.model.decisions import CallAt, CallEvery, StopCalls
from pilothouse.model.events import CallArrived


def next_multiple(now: float, period: float) -> float:
    """The first multiple of the period after `now`."""
    return (floor(now / period) + 1) * period


class Calls:
    """A heap of dates. A stopped series is dropped when its next date comes up."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str, float, int]] = []
        """Date, number, id, period (0: once), and how many are left (0: without end)."""
        self._series: dict[str, int] = {}
        self._number = 0

    def ask(self, decision: CallAt | CallEvery | StopCalls, now: float) -> None:
        """Carries out a decision."""
        if isinstance(decision, StopCalls):
            self._series.pop(decision.call_id, None)
            return
        self._number += 1
        if isinstance(decision, CallAt):
            heapq.heappush(self._heap, (decision.when, self._number, decision.call_id, 0.0, 1))
        else:
            self._series[decision.call_id] = self._number
            first = next_multiple(now, decision.period)
            heapq.heappush(self._heap, (first, self._number, decision.call_id, decision.period, decision.count))

    def clear(self) -> None:
        self._heap.clear()
        self._series.clear()

    @property
    def next_at(self) -> float:
        """When the next call is due; inf: none is."""
        return self._heap[0][0] if self._heap else inf

    def due(self, now: float) -> list[CallArrived]:
        """The calls whose date has come, in order. A series skips dates that it has missed."""
        arrived: list[CallArrived] = []
        while self._heap and self._heap[0][0] <= now:
            when, number, call_id, period, left = heapq.heappop(self._heap)
            if not period:
                arrived.append(CallArrived(now, call_id))
                continue
            if self._series.get(call_id) != number:
                continue
            last = left == 1
            arrived.append(CallArrived(now, call_id, last))
            if last:
                del self._series[call_id]
            else:
                following = max(when + period, floor(now / period) * period)
                heapq.heappush(self._heap, (following, number, call_id, period, max(0, left - 1)))
        return arrived

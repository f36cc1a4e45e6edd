"""Calls that a decider asked for: at a date, or at the multiples of a period. Sans-IO."""

from __future__ import annotations

import heapq
from math import floor, inf

from pilothouse.model.decisions import CallAt, CallEvery, StopCalls
from pilothouse.model.events import CallArrived


class Calls:
    """A heap of dates. A stopped series is forgotten when its next date comes up."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str, float, int]] = []
        self._series: dict[str, int] = {}
        self._serial = 0

    def order(self, order: CallAt | CallEvery | StopCalls) -> None:
        if isinstance(order, StopCalls):
            self._series.pop(order.call_id, None)
            return
        self._serial += 1
        if isinstance(order, CallAt):
            heapq.heappush(self._heap, (order.when, self._serial, order.call_id, 0.0, 1))
        else:
            self._series[order.call_id] = self._serial
            first = (floor(order.at / order.period) + 1) * order.period
            heapq.heappush(self._heap, (first, self._serial, order.call_id, order.period, order.count))

    @property
    def next_at(self) -> float:
        return self._heap[0][0] if self._heap else inf

    def due(self, now: float) -> list[CallArrived]:
        """The calls whose date has come, in order."""
        arrived: list[CallArrived] = []
        while self._heap and self._heap[0][0] <= now:
            when, serial, call_id, period, count = heapq.heappop(self._heap)
            if not period:
                arrived.append(CallArrived(now, call_id))
                continue
            if self._series.get(call_id) != serial:
                continue
            last = count == 1
            arrived.append(CallArrived(now, call_id, last))
            if last:
                del self._series[call_id]
            else:
                heapq.heappush(self._heap, (when + period, serial, call_id, period, max(0, count - 1)))
        return arrived

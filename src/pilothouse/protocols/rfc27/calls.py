"""The calls that deciders ask for, in a world whose clock runs by itself: an agenda of dates. Pure."""

from __future__ import annotations

import heapq
import math

from pilothouse.model import decisions as d
from pilothouse.model.events import CallArrived


class Calls:
    """Dates at which a decider wants to be asked."""

    def __init__(self) -> None:
        self._agenda: list[tuple[float, int, str, float, int]] = []
        self._series: dict[str, int] = {}
        self._number = 0

    def once(self, decision: d.CallAt) -> None:
        self._push(decision.when, decision.call_id, 0.0, 1)

    def every(self, decision: d.CallEvery, now: float) -> None:
        first = math.floor(now / decision.period + 1) * decision.period
        self._push(first, decision.call_id, decision.period, decision.count)
        self._series[decision.call_id] = self._number

    def stop(self, decision: d.StopCalls) -> None:
        number = self._series.pop(decision.call_id, None)
        self._agenda = [entry for entry in self._agenda if entry[1] != number]
        heapq.heapify(self._agenda)

    def clear(self) -> None:
        self._agenda.clear()
        self._series.clear()

    def next_date(self) -> float:
        return self._agenda[0][0] if self._agenda else math.inf

    def due(self, now: float) -> list[CallArrived]:
        arrived = []
        while self._agenda and self._agenda[0][0] <= now:
            when, number, call_id, period, left = heapq.heappop(self._agenda)
            last = period == 0.0 or left == 1
            arrived.append(CallArrived(when, call_id, last))
            if not last:
                # a late world skips what it missed instead of calling many times at once
                following = max(when + period, math.floor(now / period) * period)
                heapq.heappush(self._agenda, (following, number, call_id, period, left - 1 if left else 0))
            elif period:
                self._series.pop(call_id, None)
        return arrived

    def _push(self, when: float, call_id: str, period: float, count: int) -> None:
        self._number += 1
        heapq.heappush(self._agenda, (when, self._number, call_id, period, count))

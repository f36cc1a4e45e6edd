"""An agenda for the message server of long runs: what falls within a nanosecond is one step, in the order of entry.

It gives the dates of stepped_agenda.py but for their last bits, at a constant cost for each entry: there, what a long
job costs grows with the number of messages during its life. Only near ties (two things within a nanosecond) may fall
otherwise than in SimGrid.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from pilothouse.worlds.simulated.physics.agenda import Agenda, Entry

PRECISION_S = 1e-9
"""Dates closer than this are one date."""


class RoundedAgenda(Agenda):
    """Plain entries; `step` hands out all of one date."""

    __slots__ = ()

    def transfer(
        self, latency_s: float, bandwidth: float, callback: Callable[[Any], None], argument: Any = None
    ) -> int:
        """Enters a callback for when one byte has arrived."""
        number = self._number = self._number + 1
        heappush(self._heap, (self.now + latency_s + 1.0 / bandwidth, number, callback, argument))
        return number

    def passes(self, latency_s: float, bandwidth: float) -> bool:
        """Carries out a transfer that nothing else comes near; False: it must be entered."""
        end = self.now + latency_s + 1.0 / bandwidth
        if self._heap and self._heap[0][0] < end + PRECISION_S:
            return False
        self.now = end
        return True

    def step(self) -> list[Entry]:
        """What is due next, in the order in which it was entered; nothing when nothing is left."""
        heap, cancelled = self._heap, self._cancelled
        while heap:
            first = heappop(heap)
            if cancelled and first[1] in cancelled:
                cancelled.discard(first[1])
                continue
            self.now = first[0]
            horizon = first[0] + PRECISION_S
            if not heap or heap[0][0] >= horizon:
                return [first]
            due = [first]
            while heap and heap[0][0] < horizon:
                entry = heappop(heap)
                if cancelled and entry[1] in cancelled:
                    cancelled.discard(entry[1])
                else:
                    due.append(entry)
            due.sort(key=_number)
            return due
        return []


def _number(entry: Entry) -> int:
    return entry[1]

"""The agenda of a simulated world: what will happen when, in order of date and, at one date, of entry.

A heap of plain tuples (date, number, callback, argument): 0.45 µs to enter and leave. Cancelled entries stay in the heap
and are passed over when they come up. `FastAgenda` is the same, compiled where possible (`_agenda.c`): 0.15 µs.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Any

from pilothouse.model.compiled import compiled

Entry = tuple[float, int, Callable[[Any], None], Any]


class Agenda:
    """Dates never go back: `now` is the date of the last entry that was run."""

    __slots__ = ("_cancelled", "_heap", "_number", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[Entry] = []
        self._number = 0
        self._cancelled: set[int] = set()

    def at(self, date: float, callback: Callable[[Any], None], argument: Any = None) -> int:
        """Enters a callback; returns its number, for `cancel`."""
        number = self._number = self._number + 1
        heappush(self._heap, (date, number, callback, argument))
        return number

    def first_at(self, date: float, callback: Callable[[Any], None], argument: Any = None) -> None:
        """Enters a callback that comes before everything else of its date; only one such entry may be under way."""
        heappush(self._heap, (date, 0, callback, argument))

    def after(self, seconds: float, callback: Callable[[Any], None], argument: Any = None) -> int:
        """Enters a callback that many seconds from now."""
        number = self._number = self._number + 1
        heappush(self._heap, (self.now + seconds, number, callback, argument))
        return number

    def place(self) -> int:
        """A place in the order of entry, for something that will be entered again and again."""
        self._number += 1
        return self._number

    def work(
        self, amount: float, rate: float, callback: Callable[[Any], None], argument: Any = None, *, place: int = 0
    ) -> int:
        """Enters a callback for when an amount of work will be done at this rate. (A place counts where steps do.)"""
        return self.at(self.now + amount / rate, callback, argument)

    def cancel(self, number: int) -> None:
        """Takes back an entry that has not been run yet."""
        self._cancelled.add(number)

    def was_cancelled(self, number: int) -> bool:
        """Whether an entry was taken back after pop() had handed it out; asks once."""
        if number in self._cancelled:
            self._cancelled.discard(number)
            return True
        return False

    def next_date(self) -> float:
        """When the next entry is due; inf if there is none."""
        heap = self._heap
        while heap:
            top = heap[0]
            if not self._cancelled or top[1] not in self._cancelled:
                return top[0]
            self._cancelled.discard(top[1])
            heappop(heap)
        return inf

    def pop(self) -> Entry:
        """Takes the next entry out and moves `now` to its date. The caller calls it; next_date() must have been finite."""
        heap = self._heap
        while True:
            entry = heappop(heap)
            if entry[1] not in self._cancelled:
                self.now = max(self.now, entry[0])
                return entry
            self._cancelled.discard(entry[1])

    def run_next(self, not_before: float) -> float:
        """Runs everything of the next date (and up to `not_before` if that is later); returns it, or inf if nothing is left."""
        heap = self._heap
        while heap:
            entry = heappop(heap)
            if self._cancelled and self.was_cancelled(entry[1]):
                continue
            self.now = until = entry[0]
            entry[2](entry[3])
            if until < not_before:
                until = not_before
            while heap:
                entry = heap[0]
                date = entry[0]
                if date > until:
                    break
                heappop(heap)
                self.now = entry[0]
                if not self._cancelled or not self.was_cancelled(entry[1]):
                    entry[2](entry[3])
            self.now = until
            return self.now
        return inf

    def run_until(self, date: float) -> None:
        """Runs everything that is due up to and including `date`, also what it enters meanwhile."""
        while self.next_date() <= date:
            _, _, callback, argument = self.pop()
            callback(argument)
        self.now = max(self.now, date)


FastAgenda: type[Agenda] = compiled(__name__, "Agenda")

"""An agenda that advances as SimGrid's clock does, step by step, so that near ties fall as they fell in recordings.

Holds actions: timers, and transfers (a latency, then one byte at a bandwidth). A step is as long as the shortest
remainder; every action's remainder is then reduced by it, one floating-point subtraction for each step. What is left
of a timer or of a latency below PRECISION_S is nothing; what is left of a byte must be below WORK_PRECISION. So a timer
that ends within a nanosecond after a transfer ends with it, but a transfer that ends a rounding error after a timer
ends in a step of its own, and whoever runs in that step sees what happened in the one before. The outcome hangs on the
last bits of the remainders, which is why they are computed the same way.

Steps are only remembered; an action catches up with them when it comes near its end (about 20 ns for each step).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from heapq import heapify, heappop, heappush
from math import inf
from operator import sub
from typing import Any

from pilothouse.worlds.simulated.agenda import Agenda, Entry

PRECISION_S = 1e-9
"""Less than this of a timer or of a latency is nothing."""

WORK_PRECISION = 1e-14
"""Less than this of a byte is nothing."""

MOST_STEPS_KEPT = 100_000
"""Every action catches up when so many steps have been remembered."""


class _Action:
    """`left` seconds of a timer or latency (rate 0), or the part of a byte that is left (rate: bytes per second)."""

    __slots__ = ("argument", "callback", "due", "left", "next_rate", "number", "rate", "seen")

    def __init__(self, number: int, due: float, left: float, callback: Callable[[Any], None], argument: Any) -> None:
        self.number = number
        self.due = due
        self.left = left
        self.rate = 0.0
        self.next_rate = 0.0
        self.seen = 0
        self.callback = callback
        self.argument = argument

    def __lt__(self, other: _Action) -> bool:
        return self.due < other.due

    @property
    def seconds(self) -> float:
        return self.left / self.rate if self.rate else self.left


class SteppedAgenda(Agenda):
    """The heap is ordered by the date at which an action will end but for rounding; remainders decide between ties."""

    __slots__ = ("_actions", "_due", "_steps")

    def __init__(self) -> None:
        super().__init__()
        self._actions: list[_Action] = []
        self._due: list[Entry] = []
        self._steps: list[float] = []

    def at(self, date: float, callback: Callable[[Any], None], argument: Any = None) -> int:
        return self.after(date - self.now, callback, argument)

    def after(self, seconds: float, callback: Callable[[Any], None], argument: Any = None) -> int:
        return self._enter(seconds, callback, argument).number

    def transfer(
        self, latency_s: float, bandwidth: float, callback: Callable[[Any], None], argument: Any = None
    ) -> int:
        """Enters a callback for when one byte has arrived."""
        if latency_s >= PRECISION_S:
            action = self._enter(latency_s, callback, argument)
            action.next_rate = bandwidth
        else:
            action = self._enter(0.0 if bandwidth == inf else 1.0 / bandwidth, callback, argument)
            if bandwidth != inf:
                action.left, action.rate = 1.0, bandwidth
        return action.number

    def _enter(self, seconds: float, callback: Callable[[Any], None], argument: Any) -> _Action:
        number = self._number = self._number + 1
        action = _Action(number, self.now + seconds, seconds, callback, argument)
        action.seen = len(self._steps)
        heappush(self._actions, action)
        return action

    def next_date(self) -> float:
        if self._due:
            return self.now
        actions, cancelled = self._actions, self._cancelled
        while actions and actions[0].number in cancelled:
            cancelled.discard(heappop(actions).number)
        return actions[0].due if actions else inf

    def pop(self) -> Entry:
        while not self._due:
            self._due = self.step()
        return self._due.pop(0)

    def step(self) -> list[Entry]:
        """Advances by one step; returns what ended in it, in the order in which it was entered. Maybe nothing did."""
        near = self._near()
        shortest = max(0.0, min(action.seconds for action in near))
        self.now += shortest
        self._steps.append(shortest)
        ended = []
        for action in near:
            if not self._reduce(action, shortest):
                heappush(self._actions, action)
            else:
                ended.append((self.now, action.number, action.callback, action.argument))
        if len(ended) > 1:
            ended.sort(key=_number)
        if len(self._steps) > MOST_STEPS_KEPT:
            self._forget_steps()
        return ended

    def _near(self) -> list[_Action]:
        """Takes out the actions among which the next to end is, all caught up."""
        actions, cancelled = self._actions, self._cancelled
        first = self.next_date()
        # Dates are rounded, the more the later it is; remainders are not.
        horizon = first + 1.5 * PRECISION_S + first * 1e-13
        near = []
        while actions and actions[0].due <= horizon:
            action = heappop(actions)
            if action.number in cancelled:
                cancelled.discard(action.number)
            else:
                self._catch_up(action)
                near.append(action)
        return near

    def _catch_up(self, action: _Action) -> None:
        steps = self._steps
        if action.seen < len(steps):
            missed = steps[action.seen :]
            if action.rate:
                rate = action.rate
                missed = [step * rate for step in missed]
            action.left = reduce(sub, missed, action.left)
            action.seen = len(steps)

    def _reduce(self, action: _Action, step: float) -> bool:
        """Takes one step off; True: the action has ended."""
        action.seen += 1
        if action.rate:
            action.left -= action.rate * step
            if action.left < WORK_PRECISION:
                return True
        else:
            action.left -= step
            if action.left < PRECISION_S:
                if not action.next_rate or action.next_rate == inf:
                    return True
                action.left, action.rate = 1.0, action.next_rate
        action.due = self.now + action.seconds
        return False

    def _forget_steps(self) -> None:
        for action in self._actions:
            self._catch_up(action)
            action.seen = 0
            action.due = self.now + action.seconds
        heapify(self._actions)
        self._steps.clear()


def _number(entry: Entry) -> int:
    return entry[1]

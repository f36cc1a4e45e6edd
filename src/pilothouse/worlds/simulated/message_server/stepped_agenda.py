"""An agenda that advances as SimGrid's clock does, step by step, so that near ties fall as they fell in recordings.

Holds actions: timers, work at a rate, and transfers (a latency, then one byte at a bandwidth). A step is as long as the shortest
remainder; every action's remainder is then reduced by it, one floating-point subtraction for each step. What is left
of a timer or of a latency below PRECISION_S is nothing; what is left of a byte must be below WORK_PRECISION. So a timer
that ends within a nanosecond after a transfer ends with it, but a transfer that ends a rounding error after a timer
ends in a step of its own, and what runs in that step sees what happened in the one before. The outcome hangs on the
last bits of the remainders, which is why they are computed the same way.

Beside actions there are alarms, which have an absolute date: a step never leads past one, it is due once the clock
shows its date, and it comes before the actions that end in the same step.

Steps are only remembered; an action catches up with them when it comes near its end (about 20 ns for each step).

`_stepped.c` does the same, where it was compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from heapq import heapify, heappop, heappush
from math import inf
from operator import sub
from typing import Any

import msgspec

from pilothouse.worlds.simulated.physics.agenda import Agenda, Entry

__all__ = ["MOST_STEPS_KEPT", "PRECISION_S", "PlainSteppedAgenda", "SteppedAgenda"]

PRECISION_S = 1e-9
"""Less than this of a timer or of a latency is nothing."""

WORK_PRECISION = 1e-14
"""Less than this of a byte is nothing."""

MOST_STEPS_KEPT = 100_000
"""Every action catches up when so many steps have been remembered."""


class _Action(msgspec.Struct, eq=False, gc=False):
    """`left` seconds of a timer or latency (rate 0), or what is left of a byte or of other work (rate: per second)."""

    number: int
    left: float
    callback: Callable[[Any], None]
    argument: Any
    seen: int
    place: int
    rate: float = 0.0
    next_rate: float = 0.0


class PlainSteppedAgenda(Agenda):
    """The heap is ordered by the date at which an action will end but for rounding; remainders decide between ties."""

    __slots__ = ("_actions", "_alarms", "_steps")

    def __init__(self) -> None:
        super().__init__()
        self._actions: list[tuple[float, int, _Action]] = []
        self._alarms: list[Entry] = []
        self._steps: list[float] = []

    def at(self, date: float, callback: Callable[[Any], None], argument: Any = None) -> int:
        return self.after(date - self.now, callback, argument)

    def after(self, seconds: float, callback: Callable[[Any], None], argument: Any = None) -> int:
        number = self._number = self._number + 1
        action = _Action(number, seconds, callback, argument, len(self._steps), number)
        heappush(self._actions, (self.now + seconds, number, action))
        return number

    def work(
        self, amount: float, rate: float, callback: Callable[[Any], None], argument: Any = None, *, place: int = 0
    ) -> int:
        number = self._number = self._number + 1
        action = _Action(number, amount, callback, argument, len(self._steps), place or number, rate)
        if rate == inf:
            action.left = action.rate = 0.0
        heappush(self._actions, (self.now + amount / rate, number, action))
        return number

    def transfer(
        self, latency_s: float, bandwidth: float, callback: Callable[[Any], None], argument: Any = None
    ) -> int:
        """Enters a callback for when one byte has arrived."""
        number = self._number = self._number + 1
        action = _Action(number, latency_s, callback, argument, len(self._steps), number)
        seconds = latency_s
        if latency_s >= PRECISION_S:
            action.next_rate = bandwidth
        elif bandwidth == inf:
            action.left = seconds = 0.0
        else:
            action.left, action.rate = 1.0, bandwidth
            seconds = 1.0 / bandwidth
        heappush(self._actions, (self.now + seconds, number, action))
        return number

    def alarm(self, seconds: float, callback: Callable[[Any], None], argument: Any = None) -> int:
        """Enters a callback for an absolute date."""
        number = self._number = self._number + 1
        heappush(self._alarms, (self.now + seconds, number, callback, argument))
        return number

    def passes(self, latency_s: float, bandwidth: float) -> bool:
        """Carries out a transfer that nothing else comes near, in its two steps; False: it must be entered."""
        now = self.now + latency_s
        last_step = 1.0 / bandwidth
        end = now + last_step
        actions, steps = self._actions, self._steps
        if (
            (actions and actions[0][0] <= _horizon(end))
            or (self._alarms and self._alarms[0][0] <= _horizon(end))
            or latency_s < PRECISION_S
            or last_step == 0.0
            or len(steps) >= MOST_STEPS_KEPT
        ):
            return False
        self.now = end
        steps.append(latency_s)
        steps.append(last_step)
        return True

    def next_date(self) -> float:
        actions, cancelled = self._actions, self._cancelled
        while actions and actions[0][1] in cancelled:
            cancelled.discard(heappop(actions)[1])
        alarms = self._alarms
        while alarms and alarms[0][1] in cancelled:
            cancelled.discard(heappop(alarms)[1])
        return min(actions[0][0] if actions else inf, alarms[0][0] if alarms else inf)

    def step(self) -> list[Entry]:
        """Steps until something ends; returns all that ended in that step, in the order in which it was entered.

        Nothing is returned when nothing is left.
        """
        actions, alarms, cancelled = self._actions, self._alarms, self._cancelled
        while self.next_date() < inf:
            date = alarms[0][0] if alarms else inf
            step = max(0.0, date - self.now)
            near: list[_Action] = []
            if actions and actions[0][0] <= _horizon(date):
                # Several actions may be so near that their remainders must decide.
                horizon = _horizon(actions[0][0])
                while actions and actions[0][0] <= horizon:
                    _, number, action = heappop(actions)
                    if number in cancelled:
                        cancelled.discard(number)
                        continue
                    self._catch_up(action)
                    near.append(action)
                step = min(step, max(0.0, min(one.left / one.rate if one.rate else one.left for one in near)))
            self.now = now = self.now + step
            self._steps.append(step)
            ended: list[Entry] = []
            while alarms and alarms[0][0] <= now:
                entry = heappop(alarms)
                if entry[1] in cancelled:
                    cancelled.discard(entry[1])
                else:
                    ended.append(entry)
            near.sort(key=_place)
            ended += [(now, one.number, one.callback, one.argument) for one in near if self._reduce(one, step)]
            if len(self._steps) > MOST_STEPS_KEPT:
                self._forget_steps()
            if ended:
                return ended
        return []

    def _catch_up(self, action: _Action) -> None:
        steps = self._steps
        missed = steps[action.seen :]
        if action.rate:
            rate = action.rate
            missed = [step * rate for step in missed]
        action.left = reduce(sub, missed, action.left)
        action.seen = len(steps)

    def _reduce(self, action: _Action, step: float) -> bool:
        """Takes one step off; True: the action has ended, otherwise it is back in the heap."""
        action.seen += 1
        if action.rate:
            action.left -= action.rate * step
            if action.left < WORK_PRECISION:
                return True
            seconds = action.left / action.rate
        else:
            action.left -= step
            seconds = action.left
            if seconds < PRECISION_S:
                if not action.next_rate or action.next_rate == inf:
                    return True
                action.left, action.rate = 1.0, action.next_rate
                seconds = 1.0 / action.next_rate
        heappush(self._actions, (self.now + seconds, action.number, action))
        return False

    def _forget_steps(self) -> None:
        caught_up = []
        for _, number, action in self._actions:
            self._catch_up(action)
            action.seen = 0
            seconds = action.left / action.rate if action.rate else action.left
            caught_up.append((self.now + seconds, number, action))
        self._actions[:] = caught_up
        heapify(self._actions)
        self._steps.clear()


def _place(action: _Action) -> int:
    return action.place


def _horizon(date: float) -> float:
    """Up to here something may be due at that date: dates are rounded, the more the later it is; remainders are not."""
    return date + 1.5 * PRECISION_S + date * 1e-13


try:
    from pilothouse.worlds.simulated.message_server._stepped import SteppedAgenda
except ImportError:
    SteppedAgenda = PlainSteppedAgenda  # type: ignore[misc, assignment]

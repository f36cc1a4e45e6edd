"""The agenda of a simulated world: what will happen when, in order of date and, at one date, of entry.

`Agenda` is a heap of plain tuples (date, number, callback, argument): 0.5 µs to enter and leave. Cancelled entries stay in
the heap and are passed over when they come up. `PlainSteppedAgenda` advances as SimGrid's clock does. `FastAgenda` and
`SteppedAgenda` are the same two, compiled where possible (model/compiled.py): 0.3 µs.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Any

from pilothouse.model.compiled import compiled

Entry = tuple[float, int, Callable[[Any], None], Any]

PRECISION_S = 1e-9
"""Less than this of a timer or of a latency is nothing."""

WORK_PRECISION = 1e-14
"""Less than this of a byte is nothing."""

MOST_STEPS_KEPT = 100_000
"""Every action catches up when so many steps have been remembered."""


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

    def soon(self, callback: Callable[[Any], None]) -> None:
        """Enters a callback that must run before the clock goes on."""
        self.at(self.now, callback)

    def place(self) -> int:
        """A place in the order of entry, for something that will be entered again and again."""
        self._number += 1
        return self._number

    def work(
        self, amount: float, rate: float, callback: Callable[[Any], None], argument: Any = None, *, place: int = 0
    ) -> int:
        """Enters a callback for when an amount of work will be done at this rate. (A place counts where steps do.)"""
        return self.at(self.now + amount / rate, callback, argument)

    def work_left(self, number: int, amount: float, rate: float, since: float) -> float:
        """What is left now of work that was entered under this number, at that date."""
        return amount - rate * (self.now - since)

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


class _Action:
    """`left` seconds of a timer or latency (rate 0), or what is left of a byte or of other work (rate: per second)."""

    __slots__ = ("argument", "callback", "left", "next_rate", "number", "place", "rate", "seen")

    number: int
    left: float
    rate: float
    next_rate: float
    seen: int
    place: int
    callback: Callable[[Any], None]
    argument: Any


class PlainSteppedAgenda(Agenda):
    """An agenda that advances as SimGrid's clock does, step by step, so that near ties fall as they fell in recordings.

    Holds actions: timers, work at a rate, and transfers (a latency, then one byte at a bandwidth). A step is as long as
    the shortest remainder; every action's remainder is then reduced by it, one floating-point subtraction for each step. What
    is left of a timer or of a latency below PRECISION_S is nothing; what is left of a byte must be below WORK_PRECISION. So a
    timer that ends within a nanosecond after a transfer ends with it, but a transfer that ends a rounding error after a timer
    ends in a step of its own, and what runs in that step sees what happened in the one before. The outcome hangs on the
    last bits of the remainders, which is why they are computed the same way.

    Beside actions there are alarms, which have an absolute date: a step never leads past one, it is due once the clock
    shows its date, and it comes before the actions that end in the same step.

    Steps are only remembered; an action catches up with them when it comes near its end. The heap is ordered by the date
    at which an action will end but for rounding; remainders decide between ties.
    """

    __slots__ = ("_actions", "_alarms", "_soon", "_steps", "_works")

    def __init__(self) -> None:
        super().__init__()
        self._actions: list[tuple[float, int, _Action]] = []
        self._works: dict[int, _Action] = {}
        self._alarms: list[Entry] = []
        self._steps: list[float] = []
        self._soon: Callable[[Any], None] | None = None

    def soon(self, callback: Callable[[Any], None]) -> None:
        """As an entry of its own it would make a step, and what is as good as over would end in it."""
        assert self._soon is None
        self._soon = callback

    def _run_soon(self) -> None:
        callback, self._soon = self._soon, None
        if callback is not None:
            callback(None)

    def at(self, date: float, callback: Callable[[Any], None], argument: Any = None) -> int:
        return self.after(date - self.now, callback, argument)

    def after(self, seconds: float, callback: Callable[[Any], None], argument: Any = None) -> int:
        return self._enter(seconds, seconds, 0.0, 0.0, 0, callback, argument)

    def work(
        self, amount: float, rate: float, callback: Callable[[Any], None], argument: Any = None, *, place: int = 0
    ) -> int:
        if rate == inf:
            return self._enter(0.0, 0.0, 0.0, 0.0, place, callback, argument)
        return self._enter(amount / rate, amount, rate, 0.0, place, callback, argument)

    def work_left(self, number: int, amount: float, rate: float, since: float) -> float:
        action = self._works.get(number)
        if action is None:
            return 0.0 if rate else amount  # It ended in this step, or its latency has not.
        self._catch_up(action)
        return action.left

    def cancel(self, number: int) -> None:
        self._works.pop(number, None)
        self._cancelled.add(number)

    def transfer(
        self, latency_s: float, bandwidth: float, callback: Callable[[Any], None], argument: Any = None
    ) -> int:
        """Enters a callback for when one byte has arrived."""
        if latency_s >= PRECISION_S:
            return self._enter(latency_s, latency_s, 0.0, bandwidth, 0, callback, argument)
        if bandwidth == inf:
            return self._enter(0.0, 0.0, 0.0, 0.0, 0, callback, argument)
        return self._enter(1.0 / bandwidth, 1.0, bandwidth, 0.0, 0, callback, argument)

    def _enter(
        self,
        seconds: float,
        left: float,
        rate: float,
        next_rate: float,
        place: int,
        callback: Callable[[Any], None],
        argument: Any,
    ) -> int:
        """Enters an action that will end in so many seconds, but for rounding."""
        number = self._number = self._number + 1
        action = _Action()
        action.number = number
        action.left = left
        action.rate = rate
        action.next_rate = next_rate
        action.seen = len(self._steps)
        action.place = place or number
        action.callback = callback
        action.argument = argument
        if rate:
            self._works[number] = action
        now = self.now
        heappush(self._actions, (now + seconds, number, action))
        return number

    def alarm(self, seconds: float, callback: Callable[[Any], None], argument: Any = None) -> int:
        """Enters a callback for an absolute date."""
        number = self._number = self._number + 1
        heappush(self._alarms, (self.now + seconds, number, callback, argument))
        return number

    def passes(self, latency_s: float, bandwidth: float) -> bool:
        """Carries out a transfer that nothing else comes near, in its two steps; False: it must be entered."""
        if self._soon is not None:
            self._run_soon()
        last_step = 1.0 / bandwidth
        now = self.now
        end = now + latency_s + last_step
        steps = self._steps
        if (
            min(_first_date(self._actions), _first_date(self._alarms)) <= _horizon(end)
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
        if self._soon is not None:
            self._run_soon()
        if self._cancelled:
            self._drop_cancelled(self._actions)
            self._drop_cancelled(self._alarms)
        return min(_first_date(self._actions), _first_date(self._alarms))

    def _drop_cancelled(self, heap: list[Any]) -> None:
        while heap and self.was_cancelled(heap[0][1]):
            heappop(heap)

    def step(self) -> list[Entry]:
        """Steps until something ends; returns all that ended in that step, in the order in which it was entered.

        Nothing is returned when nothing is left.
        """
        actions, alarms, cancelled = self._actions, self._alarms, self._cancelled
        ended: list[Entry] = []
        while not ended and self.next_date() < inf:
            now = self.now
            date = _first_date(alarms)
            step = max(0.0, date - now)
            near: list[_Action] = []
            first = _first_date(actions)
            if first <= _horizon(date):
                # Several actions may be so near that their remainders must decide.
                horizon = _horizon(first)
                while _first_date(actions) <= horizon:
                    due = heappop(actions)
                    if cancelled and self.was_cancelled(due[1]):
                        continue
                    action = due[2]
                    self._catch_up(action)
                    near.append(action)
                    step = min(step, max(0.0, _seconds_left(action)))
            now += step
            self.now = now
            self._steps.append(step)
            while _first_date(alarms) <= now:
                entry = heappop(alarms)
                if not cancelled or not self.was_cancelled(entry[1]):
                    ended.append(entry)
            if len(near) > 1:
                near.sort(key=_place)
            for action in near:
                if self._reduce(action, step):
                    self._works.pop(action.number, None)
                    ended.append((now, action.number, action.callback, action.argument))
            if len(self._steps) > MOST_STEPS_KEPT:
                self._forget_steps()
        return ended

    def _catch_up(self, action: _Action) -> None:
        left, rate, steps = action.left, action.rate, self._steps
        if rate:
            for index in range(action.seen, len(steps)):
                step = steps[index]
                left -= step * rate
        else:
            for index in range(action.seen, len(steps)):
                step = steps[index]
                left -= step
        action.left = left
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
        caught_up: list[tuple[float, int, _Action]] = []
        for _, number, action in self._actions:
            self._catch_up(action)
            action.seen = 0
            heappush(caught_up, (self.now + _seconds_left(action), number, action))
        self._actions[:] = caught_up
        self._steps.clear()


def _place(action: _Action) -> int:
    return action.place


def _first_date(heap: list[Any]) -> float:
    if not heap:
        return inf
    first = heap[0]
    return first[0]  # type: ignore[no-any-return]


def _seconds_left(action: _Action) -> float:
    return action.left / action.rate if action.rate else action.left


def _horizon(date: float) -> float:
    """Up to here something may be due at that date: dates are rounded, the more the later it is; remainders are not."""
    return date + 1.5 * PRECISION_S + date * 1e-13


FastAgenda: type[Agenda] = compiled(__name__, "Agenda")
SteppedAgenda: type[PlainSteppedAgenda] = compiled(__name__, "PlainSteppedAgenda")

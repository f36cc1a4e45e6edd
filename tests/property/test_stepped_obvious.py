"""The stepped agendas, in Python and in C, against an obvious one that takes every step off every action."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from random import Random
from typing import Any

import pytest

from pilothouse.worlds.simulated.physics.agenda import MOST_STEPS_KEPT, PlainSteppedAgenda, SteppedAgenda

NANOSECOND, NO_BYTE = 1e-9, 1e-14
SECONDS = (0.0, 1e-10, 1e-9, 1.5e-5, 0.1, 0.1 + 4e-10, 0.1 - 4e-10, 1 / 3, 0.3, 1.0, 1.0 + 1e-9, 7.25, 3, 1e5)
RATES = (4.0, 1e9 / 3, 498e6, 0.7, inf)
AGENDAS = pytest.mark.parametrize("agenda", [PlainSteppedAgenda, SteppedAgenda])


class Action:
    """What is left of a timer or a latency (rate 0), or of work; the rate of what follows; its place and what it is for."""

    def __init__(self, left: float, rate: float, next_rate: float, place: int, argument: object) -> None:
        self.left, self.rate, self.next_rate = left, rate, next_rate
        self.place, self.argument = place, argument

    def seconds_left(self) -> float:
        return max(0.0, self.left / self.rate if self.rate else self.left)

    def ends_with(self, step: float) -> bool:
        if self.rate:
            self.left -= step * self.rate
            return self.left < NO_BYTE
        self.left -= step
        if self.left >= NANOSECOND:
            return False
        if self.next_rate in (0.0, inf):
            return True
        self.left, self.rate = 1.0, self.next_rate
        return False


class ObviousAgenda:
    """No heap, no remembered steps, nothing that is near or far."""

    def __init__(self) -> None:
        self.now = 0.0
        self.number = 0
        self.actions: dict[int, Action] = {}
        self.alarms: dict[int, tuple[float, object]] = {}

    def place(self) -> int:
        self.number += 1
        return self.number

    def enter(self, left: float, rate: float, next_rate: float, place: int, argument: object) -> int:
        number = self.place()
        self.actions[number] = Action(left, rate, next_rate, place or number, argument)
        return number

    def after(self, seconds: float, callback: Callable[[Any], None], argument: object = None) -> int:
        return self.enter(seconds, 0.0, 0.0, 0, argument)

    def at(self, date: float, callback: Callable[[Any], None], argument: object = None) -> int:
        return self.after(date - self.now, callback, argument)

    def work(
        self, amount: float, rate: float, callback: Callable[[Any], None], argument: object = None, *, place: int = 0
    ) -> int:
        return (
            self.enter(0.0, 0.0, 0.0, place, argument)
            if rate == inf
            else self.enter(amount, rate, 0.0, place, argument)
        )

    def transfer(
        self, latency_s: float, bandwidth: float, callback: Callable[[Any], None], argument: object = None
    ) -> int:
        if latency_s >= NANOSECOND:
            return self.enter(latency_s, 0.0, bandwidth, 0, argument)
        return self.work(1.0, bandwidth, callback, argument)

    def alarm(self, seconds: float, callback: Callable[[Any], None], argument: object = None) -> int:
        number = self.place()
        self.alarms[number] = (self.now + seconds, argument)
        return number

    def cancel(self, number: int) -> None:
        self.actions.pop(number, None)
        self.alarms.pop(number, None)

    def work_left(self, number: int, amount: float, rate: float, since: float) -> float:
        return self.actions[number].left

    def seconds_to_next(self) -> float:
        alarms = [max(0.0, date - self.now) for date, _ in self.alarms.values()]
        return min([action.seconds_left() for action in self.actions.values()] + alarms, default=inf)

    def next_date(self) -> float:
        return self.now + self.seconds_to_next()

    def passes(self, latency_s: float, bandwidth: float) -> bool:
        seconds = latency_s + 1.0 / bandwidth
        if (
            latency_s < NANOSECOND
            or bandwidth == inf
            or self.seconds_to_next() <= seconds + 1.5 * NANOSECOND + self.now * 1e-13
        ):
            return False
        for action in self.actions.values():
            assert not action.ends_with(latency_s) and not action.ends_with(1.0 / bandwidth)
        self.now = self.now + latency_s + 1.0 / bandwidth
        return True

    def step(self) -> list[tuple[float, int, object, object]]:
        ended: list[tuple[float, int, object, object]] = []
        while not ended and (self.actions or self.alarms):
            step = self.seconds_to_next()
            self.now += step
            for number, (date, argument) in sorted(self.alarms.items(), key=lambda item: (item[1][0], item[0])):
                if date <= self.now:
                    del self.alarms[number]
                    ended.append((date, number, None, argument))
            for number, action in sorted(self.actions.items(), key=lambda item: item[1].place):
                if action.ends_with(step):
                    del self.actions[number]
                    ended.append((self.now, number, None, action.argument))
        return ended


Agenda = PlainSteppedAgenda | ObviousAgenda


def nothing(_: object) -> None:
    """A callback."""


class Play:
    """Does what dice say with an agenda, and writes down all that it answers."""

    def __init__(self, agenda: Agenda, seed: int) -> None:
        self.agenda = agenda
        self.dice = Random(seed)
        self.seen: list[Any] = []
        self.live: dict[int, tuple[float, float, float]] = {}
        """Number -> amount and rate of work, and since when."""

    def enter(self) -> None:
        agenda, dice = self.agenda, self.dice
        seconds, rate, name = dice.choice(SECONDS), dice.choice(RATES), dice.random()
        about = (seconds, 0.0, agenda.now)
        match dice.randint(0, 6):
            case 0 | 1:
                number = agenda.after(seconds, nothing, name)
            case 2:
                number = agenda.at(agenda.now + seconds, nothing, name)
            case 3:
                number = agenda.transfer(seconds, rate, nothing, name)
            case 4:
                number = agenda.work(seconds, rate, nothing, name)
                about = (seconds, rate, agenda.now)
            case 5:
                place = agenda.place()
                agenda.after(seconds, nothing, "between")
                number = agenda.work(seconds, rate, nothing, name, place=place)
                about = (seconds, rate, agenda.now)
            case _:
                number = agenda.alarm(seconds, nothing, name)
        self.seen.append(number)
        self.live[number] = about

    def move(self) -> None:
        agenda, dice = self.agenda, self.dice
        date = agenda.next_date()  # and what was taken back is forgotten where it would be next
        self.seen.append(date if isinstance(agenda, PlainSteppedAgenda) else pytest.approx(date, rel=1e-12, abs=1e-9))
        match dice.randint(0, 3):
            case 0:
                self.seen.append(agenda.passes(dice.choice(SECONDS), dice.choice(RATES)))
            case 1 if self.live:
                number = dice.choice(list(self.live))
                agenda.cancel(number)
                del self.live[number]
            case 2:
                works = {number: about for number, about in self.live.items() if 0.0 < about[1] < inf}
                self.seen += [agenda.work_left(number, *about) for number, about in works.items()]
            case _:
                self.step()

    def step(self) -> bool:
        ended = self.agenda.step()
        for date, number, _, argument in ended:
            self.seen.append((date, number, argument))
            self.live.pop(number, None)
        self.seen.append(self.agenda.now)
        return bool(ended)

    def run(self) -> list[Any]:
        for _ in range(self.dice.randint(1, 60)):
            for _ in range(self.dice.randint(0, 3)):
                self.enter()
            self.move()
            self.seen.append(self.agenda.now)
        while self.step():
            pass
        return self.seen


def test_what_ends_when_is_as_if_every_step_were_taken_off_everything() -> None:
    for seed in range(80):
        expected = Play(ObviousAgenda(), seed).run()
        assert Play(PlainSteppedAgenda(), seed).run() == expected, seed
        assert Play(SteppedAgenda(), seed).run() == expected, seed


def test_steps_that_are_no_longer_kept_have_been_taken_off() -> None:
    def played(agenda: Agenda) -> list[Any]:
        agenda.after(8.1, nothing, "timer")
        agenda.transfer(8.2, 0.7, nothing, "message")
        work = (agenda.work(40.0, 0.7, nothing, "work"), 40.0, 0.7, 0.0)
        agenda.work(7.0, 0.7, nothing, "other work")
        for _ in range(MOST_STEPS_KEPT // 2):
            assert agenda.passes(1.5e-4, 498e6)
        if isinstance(agenda, PlainSteppedAgenda):
            assert not agenda.passes(1.5e-4, 498e6)
        seen: list[Any] = [(date, number, argument) for date, number, _, argument in agenda.step()]
        assert agenda.passes(1.5e-4, 498e6)
        seen += [agenda.now, agenda.work_left(*work)]
        while ended := agenda.step():
            seen += [(date, number, argument) for date, number, _, argument in ended]
        return seen

    expected = played(ObviousAgenda())
    assert played(PlainSteppedAgenda()) == expected
    assert played(SteppedAgenda()) == expected
    assert [entry[2] for entry in expected if isinstance(entry, tuple)] == ["timer", "message", "other work", "work"]


@AGENDAS
def test_of_work_that_is_over_nothing_is_left_and_all_of_what_has_no_rate_yet(agenda: type[PlainSteppedAgenda]) -> None:
    clock = agenda()
    number = clock.work(6.0, 2.0, nothing)
    clock.after(4.0, nothing)
    assert [entry[1] for entry in clock.step()] == [number]
    assert clock.work_left(number, 6.0, 2.0, 0.0) == 0.0
    assert clock.work_left(99, 6.0, 0.0, 1.0) == 6.0
    clock.step()
    assert clock.work_left(number, 6.0, 2.0, 0.5) == 0.0


@AGENDAS
def test_what_was_taken_back_before_its_step_does_not_end(agenda: type[PlainSteppedAgenda]) -> None:
    clock = agenda()
    numbers = [
        clock.after(1.0, nothing, "timer"),
        clock.alarm(1.0, nothing, "alarm"),
        clock.work(1.0, 1.0, nothing, "work"),
    ]
    for number in numbers:
        clock.after(1.0, nothing, "last")
        clock.alarm(1.0, nothing, "first")
        clock.cancel(number)
    assert [entry[3] for entry in clock.step()] == ["first"] * 3 + ["last"] * 3
    assert (clock.now, clock.step(), clock.next_date()) == (1.0, [], inf)

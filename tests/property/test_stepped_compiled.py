"""The agenda in C steps as the one in Python does: whatever is entered and taken back, dates are equal to the last bit."""

from __future__ import annotations

from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.worlds.simulated.physics.agenda import MOST_STEPS_KEPT, PlainSteppedAgenda, SteppedAgenda

pytest.importorskip("pilothouse.worlds.simulated.physics._agenda", reason="not compiled here")

SECONDS = (0.0, 1e-10, 1e-9, 1.5e-5, 0.1, 0.1 + 4e-10, 0.1 - 4e-10, 1 / 3, 0.3, 1.0, 1.0 + 1e-9, 7.25, 3, 1e5)
RATES = (4.0, 1e9 / 3, 498e6, 0.7, inf)


class Play:
    """Does what dice say with an agenda, and writes down all that it answers."""

    def __init__(self, agenda: PlainSteppedAgenda | SteppedAgenda, seed: int) -> None:
        self.agenda = agenda
        self.dice = Random(seed)
        self.seen: list[Any] = []
        self.numbers: list[int] = []

    def callback(self, argument: object) -> None:
        self.seen.append(("called", argument))

    def enter(self) -> None:
        agenda, dice = self.agenda, self.dice
        seconds, rate, name = dice.choice(SECONDS), dice.choice(RATES), dice.random()
        match dice.randint(0, 6):
            case 0 | 1:
                number = agenda.after(seconds, self.callback, name)
            case 2:
                number = agenda.at(agenda.now + seconds, self.callback, name)
            case 3:
                number = agenda.transfer(seconds, rate, self.callback, name)
            case 4:
                number = agenda.work(seconds, rate, self.callback, name)
            case 5:
                number = agenda.work(seconds, rate, self.callback, name, place=agenda.place())
            case _:
                number = agenda.alarm(seconds, self.callback)
        self.seen.append(number)
        self.numbers.append(number)

    def move(self) -> None:
        agenda, dice = self.agenda, self.dice
        match dice.randint(0, 3):
            case 0:
                self.seen.append(agenda.passes(dice.choice(SECONDS), dice.choice(RATES)))
            case 1 if self.numbers:
                agenda.cancel(self.numbers.pop(dice.randrange(len(self.numbers))))
            case 2:
                self.seen.append(agenda.next_date())
            case _:
                for date, number, callback, argument in agenda.step():
                    self.seen.append((date, number, agenda.was_cancelled(number)))
                    callback(argument)
                    if number in self.numbers:
                        self.numbers.remove(number)

    def run(self) -> list[Any]:
        for _ in range(self.dice.randint(1, 60)):
            for _ in range(self.dice.randint(0, 3)):
                self.enter()
            self.move()
            self.seen.append(self.agenda.now)
        while ended := self.agenda.step():
            self.seen += [entry[:2] + entry[3:] for entry in ended]
            self.seen.append(self.agenda.now)
        return self.seen


@given(st.integers(0, 2**32))
def test_same_steps(seed: int) -> None:
    assert Play(SteppedAgenda(), seed).run() == Play(PlainSteppedAgenda(), seed).run()


def test_same_dates_after_more_steps_than_are_kept() -> None:
    def played(agenda: PlainSteppedAgenda | SteppedAgenda) -> list[Any]:
        seen: list[Any] = []
        for number in range(20):
            agenda.after(0.7 * number + 1 / 3, seen.append, number)
        for _ in range(MOST_STEPS_KEPT // 2 + 10):
            while not agenda.passes(1.5e-4, 498e6):
                seen += [(date, number, argument) for date, number, _, argument in agenda.step()]
        while ended := agenda.step():
            seen += [(date, number, argument) for date, number, _, argument in ended]
        return [*seen, agenda.now]

    assert played(SteppedAgenda()) == played(PlainSteppedAgenda())


def test_nonsense_is_refused() -> None:
    agenda = SteppedAgenda()
    with pytest.raises(TypeError):
        agenda.after("soon", print)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        agenda.transfer(1.0, print)  # type: ignore[call-arg, arg-type]
    with pytest.raises(ZeroDivisionError):
        agenda.passes(1.0, 0.0)
    with pytest.raises(ZeroDivisionError):
        agenda.work(1.0, 0.0, print)
    with pytest.raises(AttributeError):
        agenda.now = 3.0
    assert agenda.step() == [] and agenda.next_date() == inf

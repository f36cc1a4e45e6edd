"""The kernel of actors in C does what the one in Python does: random actors see the same, in the same order."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.worlds.simulated.message_server import rounds as kernel
from pilothouse.worlds.simulated.message_server.rounds import (
    Actor,
    Cost,
    Mailbox,
    Rounds,
    exchange,
    post,
    receive,
    send,
    sleep,
    spawn,
    turn,
)
from pilothouse.worlds.simulated.physics.agenda import SteppedAgenda

pytest.importorskip("pilothouse.worlds.simulated.message_server._rounds", reason="not compiled here")

COSTS = (Cost(1e-3, 1e6), Cost(1e-3, 1e9), Cost(0.5, 1.0))


class Stage:
    """Actors that do what dice say; each is written down."""

    def __init__(self, seed: int, agenda: SteppedAgenda) -> None:
        self.agenda = agenda
        self.rounds = Rounds(agenda)
        self.dice = Random(seed)
        self.boxes = [Mailbox(), Mailbox()]
        self.seen: list[Any] = []
        self.entries: list[int] = []
        self.born = 0

    def note(self, *what: object) -> None:
        self.seen.append((round(self.agenda.now, 9), *what))

    def receiver(self, box: Mailbox) -> Actor:
        for _ in range(self.dice.randint(5, 30)):
            self.note("got", (yield receive(box)))

    def actor(self, depth: int) -> Actor:
        self.born += 1
        name, dice = self.born, self.dice
        for number in range(dice.randint(1, 6)):
            self.note(name, number)
            match dice.randint(0, 8):
                case 0 | 1:
                    yield sleep(dice.choice((1e-3, 1e-3 + 5e-10, 0.25, 1.0)))
                case 2 | 3:
                    yield send(dice.choice(self.boxes), (name, number), dice.choice(COSTS))
                case 4:
                    yield post(dice.choice(self.boxes), (name, number), dice.choice(COSTS))
                case 5 if depth:
                    yield spawn(self.actor(depth - 1))
                case 6:
                    yield turn(lambda: self.note(name, "effect") if dice.random() < 2 else None)
                case 7:
                    self.note(name, "reply", (yield exchange((name, number))))  # type: ignore[arg-type]
                case _:
                    self.entries.append(self.agenda.after(dice.choice((1e-3, 0.5)), self.alarm, name))
                    if dice.random() < 0.5:
                        self.agenda.cancel(self.entries.pop(dice.randrange(len(self.entries))))
                    yield turn()
        self.note(name, "over")

    def alarm(self, name: int) -> None:
        self.note("alarm", name)
        if self.dice.random() < 0.3:
            self.rounds.start(self.actor(0))
        if self.dice.random() < 0.02:
            self.rounds.stop()

    def run(self) -> list[Any]:
        for box in self.boxes:
            self.rounds.start(self.receiver(box))
        for _ in range(self.dice.randint(1, 6)):
            self.rounds.start(self.actor(2))
        reply: Any = None
        while (batch := self.rounds.advance(reply)) is not None:
            reply = ("answer", batch)
        return self.seen


@given(seed=st.integers(0, 2**32))
def test_actors_see_the_same(seed: int) -> None:
    compiled = Stage(seed, SteppedAgenda()).run()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "_rounds", None)
        plain = Stage(seed, SteppedAgenda()).run()
    assert compiled == plain and plain


def circle(stage: Stage) -> Actor:
    while True:
        yield turn()


def thrower() -> Actor:
    yield turn()
    raise ValueError("thrown")


def test_circles_and_errors_come_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "MOST_TURNS_IN_A_ROUND", 100)
    stage = Stage(1, SteppedAgenda())
    stage.rounds.start(circle(stage))
    with pytest.raises(AssertionError, match=r"100 turns at .*: the world goes in circles"):
        stage.rounds.advance(None)
    stage = Stage(1, SteppedAgenda())
    stage.rounds.start(thrower())
    with pytest.raises(ValueError, match="thrown"):
        stage.rounds.advance(None)


def test_nonsense_is_refused() -> None:
    def speaker(words: Iterable[Any]) -> Actor:
        yield from words

    for words in (["text"], [(1, 2)], [send(Mailbox(), "x", 3)] * 2):  # type: ignore[list-item]
        stage = Stage(1, SteppedAgenda())
        stage.rounds.start(speaker(words))
        box = words[0][1] if len(words) == 2 else stage.boxes[0]
        stage.rounds.start(stage.receiver(box))
        with pytest.raises(TypeError):
            stage.rounds.advance(None)

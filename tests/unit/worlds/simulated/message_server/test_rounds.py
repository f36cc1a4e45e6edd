"""The clock that steps as SimGrid's does, and the actors that take turns on it."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.model.decisions import Reply
from pilothouse.model.events import Batch
from pilothouse.worlds.simulated.message_server.rounds import (
    FREE,
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
from pilothouse.worlds.simulated.physics.agenda import MOST_STEPS_KEPT, SteppedAgenda


def run(agenda: SteppedAgenda) -> list[tuple[float, str]]:
    """What ends when, as (date, what); things that end in one step share their date."""
    seen: list[tuple[float, str]] = []
    while agenda.next_date() != inf:
        seen += [(agenda.now, argument) for _, _, _, argument in agenda.step()]
    return seen


def ignore(_: object) -> None: ...


def test_timers_end_in_order_and_at_one_date_in_the_order_of_entry() -> None:
    agenda = SteppedAgenda()
    agenda.after(2.0, ignore, "late")
    agenda.after(1.0, ignore, "first")
    agenda.after(1.0, ignore, "second")
    assert run(agenda) == [(1.0, "first"), (1.0, "second"), (2.0, "late")]


def test_a_transfer_takes_its_latency_and_one_byte() -> None:
    agenda = SteppedAgenda()
    agenda.transfer(1.0, 4.0, ignore, "message")
    assert run(agenda) == [(1.25, "message")]
    agenda.transfer(0.0, inf, ignore, "free")
    assert run(agenda) == [(1.25, "free")]


def test_a_timer_joins_a_transfer_that_ends_up_to_a_nanosecond_earlier() -> None:
    agenda = SteppedAgenda()
    agenda.after(1.0 + 5e-10, ignore, "timer")
    agenda.transfer(0.5, 2.0, ignore, "message")
    dates = run(agenda)
    assert [what for _, what in dates] == ["timer", "message"]
    assert dates[0][0] == dates[1][0] == 1.0


def test_a_transfer_does_not_join_a_timer() -> None:
    """QUIRK of SimGrid: work is exact where durations are not, so what runs later sees what happened before."""
    agenda = SteppedAgenda()
    agenda.after(1.0 - 5e-10, ignore, "timer")
    agenda.transfer(0.5, 2.0, ignore, "message")
    (first, one), (second, other) = run(agenda)
    assert (one, other) == ("timer", "message") and 0 < second - first < 1e-9


def test_cancelled_entries_never_end() -> None:
    agenda = SteppedAgenda()
    number = agenda.after(1.0, ignore, "gone")
    agenda.after(3.0, ignore, "there")
    agenda.cancel(number)
    assert run(agenda) == [(3.0, "there")]


def test_long_runs_forget_their_steps_and_keep_their_dates() -> None:
    agenda = SteppedAgenda()
    agenda.after(MOST_STEPS_KEPT * 0.5 + 10.25, ignore, "far")
    ticks = 0

    def tick(_: object) -> None:
        nonlocal ticks
        ticks += 1
        if ticks < MOST_STEPS_KEPT // 2 + 10:
            agenda.after(1.0, tick)

    agenda.after(1.0, tick)
    while agenda.next_date() != inf:
        for _, _, callback, argument in agenda.step():
            callback(argument)
    assert agenda.now == pytest.approx(MOST_STEPS_KEPT * 0.5 + 10.25, abs=1e-6)


# ---- actors


class Stage:
    """Actors write down what they see."""

    def __init__(self, agenda: SteppedAgenda | None = None) -> None:
        self.agenda = SteppedAgenda() if agenda is None else agenda
        self.rounds = Rounds(self.agenda)
        self.seen: list[Any] = []

    def run(self) -> list[Any]:
        assert self.rounds.advance(None) is None, "no actor asks for a reply here"
        return self.seen


def test_a_message_waits_until_the_receiver_comes_back() -> None:
    stage, box = Stage(), Mailbox()
    cost = Cost(1.0, inf)

    def sender(name: str) -> Actor:
        yield send(box, name, cost)
        stage.seen.append((stage.agenda.now, f"{name} heard"))

    def server() -> Actor:
        for _ in range(2):
            message = yield receive(box)
            stage.seen.append((stage.agenda.now, message))

    stage.rounds.start(sender("a"))
    stage.rounds.start(sender("b"))
    stage.rounds.start(server())
    # The senders were there first, so they are resumed first; b's transfer starts only when a's is over.
    assert stage.run() == [(1.0, "a heard"), (1.0, "a"), (2.0, "b heard"), (2.0, "b")]


def test_nobody_sees_what_was_sent_in_its_own_turn() -> None:
    stage, box = Stage(), Mailbox()

    def sender() -> Actor:
        yield sleep(1.0)
        yield post(box, "x", FREE)

    def looker() -> Actor:
        yield sleep(1.0)
        stage.seen.append(len(box.waiting))
        yield turn()
        stage.seen.append(len(box.waiting))

    stage.rounds.start(sender())
    stage.rounds.start(looker())
    assert stage.run() == [0, 1]


def test_a_spawned_actor_has_its_turn_first() -> None:
    stage = Stage()

    def child() -> Actor:
        stage.seen.append("child")
        return
        yield

    def parent() -> Actor:
        yield spawn(child())
        stage.seen.append("parent")

    stage.rounds.start(parent())
    assert stage.run() == ["child", "parent"]


def test_an_exchange_gives_a_batch_and_takes_a_reply() -> None:
    stage = Stage()

    def talker() -> Actor:
        reply = yield exchange(Batch(0.0, []))
        stage.seen.append(reply.now)
        yield sleep(1.0)

    stage.rounds.start(talker())
    assert stage.rounds.advance(None) == Batch(0.0, [])
    assert stage.rounds.advance(Reply(7.0, [])) is None
    assert stage.seen == [7.0]


class Patient(SteppedAgenda):
    """Enters every transfer, however far away everything else is."""

    def passes(self, latency_s: float, bandwidth: float) -> bool:
        return False


NEAR = (0.25, 0.25 + 4e-10, 0.25 - 4e-10, 0.5, 1.0, 1.0 + 1e-9, 3.0)
WORK = st.tuples(st.sampled_from(NEAR), st.sampled_from((0.0, 2e-10, 0.125, 0.25)), st.sampled_from((4.0, 8.0, inf)))


@given(st.lists(st.lists(WORK, min_size=1, max_size=4), min_size=1, max_size=4))
def test_a_transfer_that_is_over_at_once_changes_nothing(
    plans: list[list[tuple[float, float, float]]],
) -> None:
    def played(agenda: SteppedAgenda) -> list[Any]:
        stage, box = Stage(agenda), Mailbox()

        def sender(name: int, plan: list[tuple[float, float, float]]) -> Actor:
            for pause, latency, bandwidth in plan:
                yield sleep(pause)
                yield send(box, name, Cost(latency, bandwidth))
                stage.seen.append((agenda.now, f"{name} heard"))

        def server() -> Actor:
            while True:
                message = yield receive(box)
                stage.seen.append((agenda.now, message, len(box.waiting)))

        for name, plan in enumerate(plans):
            stage.rounds.start(sender(name, plan))
        stage.rounds.start(server())
        return stage.run()

    assert played(SteppedAgenda()) == played(Patient())

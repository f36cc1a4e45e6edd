"""The channel: whatever the transport does, the other end gets everything once and in order."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from pilothouse.worlds.live.wire.messages import RESEND_S, Channel


def test_nothing_is_sent_twice_before_its_time() -> None:
    channel: Channel[str] = Channel()
    channel.push("a")
    assert channel.outgoing(0.0) == [(1, ["a"])]
    assert channel.outgoing(RESEND_S / 2) == []
    assert channel.outgoing(RESEND_S + 0.1) == [(1, ["a"])]


def test_an_acknowledgement_ends_it() -> None:
    channel: Channel[str] = Channel()
    channel.push("a")
    channel.outgoing(0.0)
    assert not channel.idle
    assert not channel.take(0, 1, 0.1)
    assert channel.idle
    assert channel.outgoing(100.0) == []


@given(st.integers(0, 2**32), st.integers(1, 30))
def test_all_once_in_order_over_a_bad_line(seed: int, count: int) -> None:
    chance = random.Random(seed)
    sender: Channel[int] = Channel()
    receiver: Channel[int] = Channel()
    line: list[tuple[int, list[int]]] = []
    got: list[int] = []
    now = 0.0
    for number in range(count):
        sender.push(number)
    while not sender.idle:
        now += 1.0
        assert now < 10_000, "it never got through"
        for frame in sender.outgoing(now):
            line += [frame] * chance.choice([0, 1, 1, 2])
        chance.shuffle(line)
        while line and chance.random() < 0.8:
            seq, bodies = line.pop()
            if receiver.take(seq, 0, now):
                got += bodies
        if chance.random() < 0.7:
            sender.take(0, receiver.received, now)
    assert got == list(range(count))

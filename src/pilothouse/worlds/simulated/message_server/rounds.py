"""Actors that run in rounds: how the parts of a simulated resource manager take turns at one date.

Holds a small kernel of co-operating generators ("actors") over an Agenda. An actor yields what it waits for (`sleep`,
`send`, `receive`, `spawn`, `exchange`) and is resumed when that is over. Comes in: actors, and whatever else is entered
in the agenda. Goes out: each batch that an actor wants to exchange for a reply.

Order matters to the microsecond here, because it decides which events share a message:

1. A round is everything that ends in one step of the clock (physics/agenda.py), in the order in which it was entered.
2. What ends in a round makes actors ready. They run one after the other, each up to its next wait; only then are their
   waits begun, in the same order. So no actor sees a message that was sent in its own turn.
3. Waits that are over at once (a spawn) make actors ready again, in the same round.
4. A message is delivered by a rendez-vous: its transfer starts when sender and receiver are both there, takes the cost
   that its sender names, and then resumes first whichever of the two came first.

`_rounds.c` does the same, where it was compiled.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Generator
from math import inf
from typing import Any, NamedTuple

from pilothouse.model.decisions import Reply
from pilothouse.model.events import Batch
from pilothouse.worlds.simulated.physics.agenda import PlainSteppedAgenda

try:
    from pilothouse.worlds.simulated.message_server import _rounds
except ImportError:
    _rounds = None  # type: ignore[assignment]

MOST_TURNS_IN_A_ROUND = 1_000_000
"""Turns without time passing after which a run is taken to go in circles."""


class Wait(enum.IntEnum):
    SLEEP = 0
    SEND = 1
    POST = 2
    RECEIVE = 3
    SPAWN = 4
    TURN = 5
    EXCHANGE = 6


# Looked up for every wait: globals are twice as fast as members.
_SLEEP, _SEND, _POST, _RECEIVE, _SPAWN, _EXCHANGE = (
    Wait.SLEEP, Wait.SEND, Wait.POST, Wait.RECEIVE, Wait.SPAWN, Wait.EXCHANGE,
)  # fmt: skip

Command = tuple[Wait, Any, Any, Any]
Actor = Generator[Command, Any, None]


class Cost(NamedTuple):
    """What it takes to send a message: it is one byte long."""

    latency_s: float
    bandwidth: float


FREE = Cost(0.0, inf)


class Mailbox:
    """Where messages wait for their only receiver, first in, first out."""

    __slots__ = ("receiver", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[Actor | None, object, Cost]] = deque()
        self.receiver: Actor | None = None


def sleep(seconds: float) -> Command:
    """Waits for a positive time."""
    return (_SLEEP, None, None, seconds)


def send(mailbox: Mailbox, message: object, cost: Cost) -> Command:
    """Sends, and waits until it has been received."""
    return (_SEND, mailbox, message, cost)


def post(mailbox: Mailbox, message: object, cost: Cost) -> Command:
    """Sends, and does not wait."""
    return (_POST, mailbox, message, cost)


def receive(mailbox: Mailbox) -> Command:
    """Waits for the next message."""
    return (_RECEIVE, mailbox, None, 0.0)


def spawn(actor: Actor) -> Command:
    """Starts another actor, which has its turn first."""
    return (_SPAWN, actor, None, 0.0)


def turn(effect: Callable[[], None] | None = None) -> Command:
    """Lets the others go on within the round; the effect takes place once all have had this turn."""
    return (Wait.TURN, effect, None, 0.0)


def exchange(batch: Batch) -> Command:
    """Hands out a batch; resumed with the reply, at the same date and in the same turn."""
    return (_EXCHANGE, batch, None, 0.0)


class Rounds:
    """The kernel. `advance(reply)` runs to the next batch, which it returns, or until nothing is due: None.

    The reply to that batch is handed over with the next call.
    """

    def __init__(self, agenda: PlainSteppedAgenda) -> None:
        self.agenda = agenda
        self._ready: list[tuple[Actor, Any]] = []
        self._over = False
        self._turns = self._run()
        if _rounds is not None:
            kernel = _rounds.Kernel(agenda, tuple(Wait), MOST_TURNS_IN_A_ROUND)
            self.start, self.stop, self.advance = kernel.start, kernel.stop, kernel.advance  # type: ignore[method-assign, assignment]

    def start(self, actor: Actor) -> None:
        """Makes a new actor ready."""
        self._ready.append((actor, None))

    def stop(self) -> None:
        """Ends advance() before the next turn."""
        self._over = True

    def advance(self, reply: Reply | None) -> Batch | None:
        try:
            return self._turns.send(reply)
        except StopIteration:
            return None

    def _run(self) -> Generator[Batch, Reply | None, None]:
        agenda, wait = self.agenda, self._wait
        turns, since = 0, agenda.now
        while not self._over:
            while self._ready and not self._over:
                turns += 1
                if turns > MOST_TURNS_IN_A_ROUND:
                    if agenda.now == since:
                        raise AssertionError(f"{MOST_TURNS_IN_A_ROUND} turns at {since}: the world goes in circles")
                    turns, since = 0, agenda.now
                running, self._ready = self._ready, []
                waits: list[tuple[Actor, Command]] = []
                for actor, value in running:
                    try:
                        command = actor.send(value)
                        while command[0] is _EXCHANGE:
                            command = actor.send((yield command[1]))
                    except StopIteration:
                        continue
                    waits.append((actor, command))
                if waits:
                    last = waits.pop()
                    for actor, command in waits:
                        wait(actor, command, False)
                    wait(*last, True)
            if self._over:
                return
            ended = agenda.step()
            if not ended:
                return
            turns, since = 0, agenda.now
            if len(ended) == 1:
                ended[0][2](ended[0][3])
                continue
            for _, number, callback, argument in ended:
                if not agenda.was_cancelled(number):  # by one of the others
                    callback(argument)

    def _wait(self, actor: Actor, command: Command, is_last: bool) -> None:
        """Begins a wait. Once all have begun theirs, a transfer that nothing comes near is over at once."""
        kind, subject, message, price = command
        ready = self._ready
        if kind is _SEND or kind is _POST:
            sender = actor if kind is _SEND else None
            if sender is None:
                ready.append((actor, None))
            receiver = subject.receiver
            if receiver is None:
                subject.waiting.append((sender, message, price))
                return
            subject.receiver = None
            if is_last and not ready and self.agenda.passes(price[0], price[1]):
                ready.append((receiver, message))
                if sender is not None:
                    ready.append((sender, None))
            else:
                self.agenda.transfer(price[0], price[1], self._delivered, (receiver, message, sender, None))
        elif kind is _RECEIVE:
            if not subject.waiting:
                subject.receiver = actor
                return
            sender, message, price = subject.waiting.popleft()
            if is_last and not ready and self.agenda.passes(price[0], price[1]):
                if sender is not None:
                    ready.append((sender, None))
                ready.append((actor, message))
            else:
                self.agenda.transfer(price[0], price[1], self._delivered, (sender, None, actor, message))
        elif kind is _SLEEP:
            self.agenda.after(price, self.start, actor)
        else:
            if kind is _SPAWN:
                ready.append((subject, None))
            elif subject is not None:
                subject()
            self._ready.append((actor, None))

    def _delivered(self, both: tuple[Actor | None, object, Actor | None, object]) -> None:
        """Resumes the one that came first, then the other."""
        first, first_value, second, second_value = both
        if first is not None:
            self._ready.append((first, first_value))
        if second is not None:
            self._ready.append((second, second_value))

"""Both ends in one process on a virtual clock: messages go through two queues, without sockets.

Empty queues mean that the scheduler has finished thinking.
"""

from __future__ import annotations

from collections.abc import Callable

from pilothouse.protocols.rfc27 import frames
from pilothouse.protocols.rfc27.broker import Broker
from pilothouse.protocols.rfc27.frames import BadFrame, Message
from pilothouse.protocols.rfc27.scheduler import SchedulerEngine

MOST_ROUNDS = 1_000_000


class InProcessLink:
    """Joins a broker (with its manager) to a scheduler engine. `think` is called while there is something to decide."""

    def __init__(
        self, broker: Broker, engine: SchedulerEngine, think: Callable[[float], None], *, on_wire: bool = False
    ) -> None:
        self.broker = broker
        self.engine = engine
        self.now = 0.0
        self.messages = 0
        self._think = think
        self._on_wire = on_wire
        self._peer = 0

    def connect(self) -> None:
        self.join()
        self.run()

    def join(self) -> int:
        """The scheduler begins its handshake; its number as a peer."""
        self._peer += 1
        self.broker.join(self._peer, f"scheduler {self._peer}")
        self.engine.begin()
        return self._peer

    def disconnect(self) -> None:
        """The scheduler is gone, whatever it was about to say."""
        self.engine.take()
        self.broker.leave(self.now, self._peer)

    def run(self, most_rounds: int = MOST_ROUNDS) -> None:
        """Carries messages until both ends are quiet."""
        for _ in range(most_rounds):
            if not self.step():
                return
        raise RuntimeError(f"manager and scheduler are not quiet after {most_rounds} rounds")

    def step(self) -> bool:
        """One exchange; False: nothing was left to say."""
        sent = self.engine.take()
        for message in sent:
            self.broker.receive(self.now, self._peer, self._carried(message))
        self.broker.dispatch(self.now)
        heard = [message for peer, message in self.broker.take() if peer == self._peer]
        for message in heard:
            self.engine.receive(self._carried(message))
        self.messages += len(sent) + len(heard)
        if self.engine.events:
            self._think(self.now)
            return True
        return bool(sent or heard)

    def _carried(self, message: Message) -> Message:
        if not self._on_wire:
            return message
        found = frames.StreamReader().feed(frames.encode(message))[0]
        if isinstance(found, BadFrame):
            raise AssertionError(f"we cannot read what we wrote: {found.problem}")
        return found

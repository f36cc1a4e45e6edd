"""The scheduler's side of batprotocol, without input or output.

`SchedulerSide` turns the requests of a Batsim 5 into batches, and replies into bytes. `Component` adds a policy: it is what
a decision component library runs.
"""

from __future__ import annotations

from pilothouse import __version__
from pilothouse.core.cluster import Cluster
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import PeerError
from pilothouse.policies.base import Policy
from pilothouse.protocols.batprotocol import messages as m
from pilothouse.protocols.batprotocol.codec import Format, decode, encode
from pilothouse.protocols.batprotocol.decisions import write_decision
from pilothouse.protocols.batprotocol.events import EventReader
from pilothouse.protocols.batprotocol.hello import write_hello
from pilothouse.protocols.batprotocol.wire import Malformed

PEER = "Batsim"


class SchedulerSide:
    """One conversation with a Batsim 5, seen from the scheduler."""

    def __init__(self, name: str, form: Format = Format.BINARY) -> None:
        self.name = name
        self.form = form
        self.ended = False
        self._reader = EventReader()

    @property
    def begins(self) -> e.Begins | None:
        """What Batsim's first event says about its platform and workloads; None before that event."""
        return self._reader.begins

    def hello(self, wants: d.Wants) -> bytes:
        return encode(write_hello(f"pilothouse {self.name}", __version__, wants), self.form)

    def batch(self, request: bytes) -> e.Batch:
        message = decode(request, self.form, PEER)
        try:
            events = [self._reader.read(item.event, item.timestamp) for item in message.events or ()]
        except Malformed as problem:
            raise PeerError(PEER, str(problem)) from None
        if events and type(events[-1]) is e.Ended:
            self.ended = True
        return e.Batch(message.now, events)

    def reply(self, reply: d.Reply) -> bytes:
        """Decisions as events. Their dates ascend and are not later than the reply's."""
        written: list[m.EventAndTimestamp] = []
        last = 0.0
        try:
            for decision in reply.decisions:
                self._reader.note(decision)
                event = write_decision(decision)
                if event is not None:
                    last = min(max(last, decision.at), reply.now)
                    written.append(m.EventAndTimestamp(last, event))
        except Malformed as problem:
            raise PeerError(self.name, str(problem)) from None
        return encode(m.Message(reply.now, written), self.form)


class Component:
    """A policy as a decision component: what its three C functions do."""

    def __init__(self, policy: Policy, name: str, form: Format = Format.BINARY) -> None:
        self._decider = PolicyDecider(policy)
        self._side = SchedulerSide(name, form)
        self._begun = False

    def init(self) -> tuple[int, bytes]:
        """The flags and the hello."""
        return int(self._side.form), self._side.hello(self._decider.hello())

    def take_decisions(self, request: bytes) -> bytes:
        batch = self._side.batch(request)
        if not self._begun:
            begins = self._side.begins
            if begins is None:
                raise PeerError(PEER, "its first request does not begin the simulation")
            self._decider.begin(begins, Cluster(begins, self._side.name, self._decider.hello()))
            self._begun = True
        return self._side.reply(self._decider.decide(batch))

"""A manager and a scheduler that keeps what it knows when its connection is lost, as world.FluxWorld does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from pilothouse.model.decisions import Decision
from pilothouse.model.events import Batch, Event
from pilothouse.protocols.rfc27 import rpc
from pilothouse.protocols.rfc27.scheduler import SchedulerEngine
from unit.protocols.rfc27.in_process_link import InProcessLink
from unit.protocols.rfc27.pair import Pair, _Spied


class ReconnectingPair(Pair):
    """`told`: the events that the decider was given."""

    def begin_slowly(self) -> None:
        super().begin_slowly()
        self.told: list[Event] = []

    def lose(self, reason: str = "the broker restarts") -> None:
        """The connection is lost; the scheduler's process goes on."""
        self.link.disconnect()
        self.settle_manager()
        self.adapter.lost(self.now, reason)
        self._decide()

    def reconnect(self, engine: SchedulerEngine | None = None) -> None:
        """The same scheduler joins the instance again."""
        self.engine = self.adapter.engine = engine or SchedulerEngine(limit=self.limit, strict=self.strict)
        self.link = InProcessLink(_Spied(self), self.engine, self._think, on_wire=True)
        self.link._peer = self._peer
        self._peer = self.link.join()
        self.settle()

    def while_another_schedules(self, act: Callable[[], None]) -> None:
        """Another scheduler is there for a while: this one's connection is lost, and it comes back afterwards."""
        self.lose("another scheduler came")
        ours = self.adapter, self.decide, self.cluster, self.told
        self.connect()
        act()
        self.settle()
        self.crash()
        self.adapter, self.decide, self.cluster, self.told = ours
        self.reconnect()

    def change_inventory(self, **change: Any) -> None:
        """A later answer to resource.acquire."""
        acquire = self.broker._acquirer
        assert acquire is not None
        named = {key.replace("_", "-"): value for key, value in change.items()}
        self.broker._send_back(rpc.respond(acquire[1], msgspec.json.encode(named), streaming=True))
        self.settle()

    def apply(self, *decisions: Decision) -> None:
        self.adapter.apply(self.now, list(decisions))
        self._decide()
        self.settle()

    def take_told(self) -> list[Event]:
        told, self.told = self.told, []
        return told

    def _think(self, now: float) -> None:
        events = self.engine.take_events()
        if self.decide is None:
            self.engine.events = events
            super()._think(now)
        else:
            self.adapter.handle(now, events)
            self._decide()

    def _decide(self) -> None:
        assert self.decide is not None
        adapter = self.adapter
        while adapter.events:
            batch = Batch(self.now, adapter.take_events())
            self.told += batch.events
            adapter.apply(self.now, self.decide(batch).decisions)
            adapter.events += adapter.calls.due(self.now)

    def settle(self) -> None:
        """As in a Pair; then sched.quiesce is answered."""
        super().settle()
        if self.adapter.asked_quiet:
            for request in self.adapter.asked_quiet:
                self.engine.answer_quiesce(request, min(self.adapter.calls.next_at, 1e9))
            self.adapter.asked_quiet.clear()
            super().settle()

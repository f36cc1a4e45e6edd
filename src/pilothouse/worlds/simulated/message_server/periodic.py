"""Periodic calls and probes of Batsim 5: one keeper for all of them, which tells the server at each tick what is due.

Ticks are the multiples of a period in absolute time, so several periods share ticks; for that, each live period must be
a multiple of all shorter ones. A probe's first tick only sets it up. Comes in: orders. Goes out: CallArrived and
ProbeData, in one message a tick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.worlds.simulated.message_server.rounds import Actor

if TYPE_CHECKING:
    from pilothouse.worlds.simulated.message_server.server5 import Batsim5Server


class Trigger(msgspec.Struct, eq=False):
    """One live series: of calls, or of a probe's measurements."""

    id: str
    period_ms: int
    left: int
    """How many are still to come; 0: without end."""
    probe: d.CreateProbe | None = None
    is_set_up: bool = True


class Periodic:
    """All live series of one simulation."""

    def __init__(self, server: Batsim5Server) -> None:
        self._server = server
        self._live: dict[str, Trigger] = {}
        self._tick_entry = 0

    def __contains__(self, trigger_id: str) -> bool:
        return trigger_id in self._live

    def add_calls(self, order: d.CallEvery) -> Actor:
        return self._add(Trigger(order.call_id, round(order.period * 1000), order.count))

    def add_probe(self, order: d.CreateProbe) -> Actor:
        missing = self._what_is_missing(order)
        if missing:
            raise self._server.refuse("probe", f"Cannot create probe '{order.probe_id}': {missing}")
        assert order.period is not None
        # QUIRK: whatever else was asked for, the values are joules since the start, and all are told.
        if order.accumulate is not d.Cumulative.SUM or order.per_second or order.temporal or order.only_if is not None:
            self._server.warnings.append(
                f"Probe '{order.probe_id}': its cumulative function, normalization, temporal aggregation and filter are ignored"
            )
        return self._add(Trigger(order.probe_id, round(order.period * 1000), order.count, order, is_set_up=False))

    def _what_is_missing(self, order: d.CreateProbe) -> str:
        server = self._server
        if order.metric is not d.Metric.POWER:
            return f"metric '{order.metric.value}' is not implemented"
        if order.links or not order.units:
            return "only host resources are implemented"
        if order.units.mask >> len(server.machines):
            return f"hosts {order.units} do not all exist"
        if order.period is None:
            return "only periodic triggers are implemented"
        if order.accumulate is None or order.reset_to is not None:
            return "only accumulation without reset is implemented"
        if order.aggregation is d.Aggregation.QUANTILE:
            return "this aggregation is not implemented"
        if not server.begins.energy:
            return "the energy of hosts is not simulated (--energy-host)"
        return ""

    def _add(self, trigger: Trigger) -> Actor:
        server = self._server
        if trigger.id in self._live or trigger.id in server.calls:
            raise server.refuse("id in use", f"Cannot create periodic trigger '{trigger.id}': this id is in use")
        for other in self._live.values():
            longer, shorter = max(other.period_ms, trigger.period_ms), min(other.period_ms, trigger.period_ms)
            if longer % shorter:
                detail = f"periods {longer} ms and {shorter} ms: the longer is not a multiple of the shorter"
                raise server.refuse("periods", f"Cannot create periodic trigger '{trigger.id}': {detail}")
        self._live[trigger.id] = trigger
        server.pending += 1
        return server.tell_keeper(self._plan)

    def stop(self, trigger_id: str) -> Actor | None:
        """Ends a series; an unknown one is only worth a warning."""
        server = self._server
        if self._live.pop(trigger_id, None) is None:
            server.warnings.append(f"Cannot stop periodic trigger '{trigger_id}': it does not exist (anymore)")
            return None
        server.pending -= 1
        return server.tell_keeper(self._plan)

    def clear(self) -> None:
        """Forgets everything: the simulation is being stopped."""
        self._server.pending -= len(self._live)
        self._live.clear()
        self._plan()

    def _plan(self) -> None:
        """Enters the next tick."""
        agenda = self._server.agenda
        if self._tick_entry:
            agenda.cancel(self._tick_entry)
            self._tick_entry = 0
        if self._live:
            shortest = min(trigger.period_ms for trigger in self._live.values())
            tick = int(agenda.now * 1000 / shortest + 1e-9) + 1
            self._tick_entry = agenda.at(tick * shortest / 1000, self._on_tick, tick * shortest)

    def _on_tick(self, now_ms: int) -> None:
        server = self._server
        self._tick_entry = 0
        facts: list[e.Event] = []
        over: list[Trigger] = []
        for trigger in self._live.values():
            if now_ms % trigger.period_ms:
                continue
            if not trigger.is_set_up:
                trigger.is_set_up = True
                continue
            if trigger.left == 1:
                over.append(trigger)
            elif trigger.left:
                trigger.left -= 1
            last = trigger.left == 1 and trigger in over
            if trigger.probe is None:
                facts.append(e.CallArrived(server.agenda.now, trigger.id, last))
            else:
                facts.append(self._measured(trigger.probe))
        for trigger in over:
            del self._live[trigger.id]
        if facts:
            server.rounds.start(self._tell(facts, len(over)))
        self._plan()

    def _measured(self, probe: d.CreateProbe) -> e.ProbeData:
        """QUIRK: how often it was emitted or triggered is always told as 0."""
        server = self._server
        values = [server.energy_j(IdSet(1 << unit)) for unit in probe.units]
        if probe.aggregation is d.Aggregation.NONE:
            return e.ProbeData(server.agenda.now, probe.probe_id, tuple(values), aggregated=False)
        total = sum(values)
        if probe.aggregation is d.Aggregation.MEAN:
            total /= len(values)
        return e.ProbeData(server.agenda.now, probe.probe_id, (total,), aggregated=True)

    def _tell(self, facts: list[e.Event], over: int) -> Actor:
        server = self._server

        def heard(_: object) -> None:
            server.pending -= over
            for fact in facts:
                fact.at = server.agenda.now
                server.tell(fact)

        yield server.send(heard)

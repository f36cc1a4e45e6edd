"""Calls and probes: what the decider asks to hear at a date, or again and again.

In: CallAt, CallEvery, StopCalls and the decisions about probes. Out: CallArrived and ProbeData.

Batsim 5 keeps periodic calls and probes in one actor (`Periodic`), which sends the server one message at each tick with
all that is due. Ticks are the multiples of a period in absolute time, so several periods share ticks; for that, each live
period must be a multiple of all shorter ones. A probe's first tick only sets it up. Our own server has an actor for each
series of calls, and the probes of the physics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from pilothouse.core.calls import next_multiple
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import RunError
from pilothouse.worlds.simulated.message_server.rounds import Actor, Mailbox, receive, send, sleep

if TYPE_CHECKING:
    from pilothouse.worlds.simulated.message_server.server import Server

SHORTEST_WAIT_S = 1e-5
"""A call never comes sooner than this after it was asked for."""


class Call(msgspec.Struct, eq=False):
    """A call, or a series of calls, that is still to come."""

    id: str
    stopped: bool = False


def on_call(server: Server, decision: d.CallAt) -> Sequence[Actor]:
    now, rules = server.agenda.now, server.rules
    if rules.late_call_is_wrong and not decision.when > now:
        raise server.refuse("call in the past", f"a call was asked for at {decision.when:f}, and it is {now:f}")
    if rules.unique_calls and (decision.call_id in server.calls or decision.call_id in server.periodic):
        raise server.refuse("id in use", f"Cannot create call '{decision.call_id}': this id is in use")
    return [_caller(server, _new_call(server, decision.call_id), decision.when)]


def _new_call(server: Server, call_id: str) -> Call:
    call = server.calls[call_id] = Call(call_id)
    server.pending += 1
    return call


def _forget(server: Server, call: Call) -> None:
    server.pending -= 1
    if server.calls.get(call.id) is call:
        del server.calls[call.id]


def _caller(server: Server, call: Call, when: float) -> Actor:
    wait = when - server.agenda.now
    if wait > 0:
        yield sleep(max(wait, SHORTEST_WAIT_S))
    if call.stopped or server.ended:
        return

    def due(_: object) -> None:
        if not call.stopped:
            _forget(server, call)
            server.tell(e.CallArrived(server.agenda.now, call.id))

    yield server.send(due)


# ---- our own server


def on_calls(server: Server, decision: d.CallEvery) -> Sequence[Actor]:
    return [_series(server, _new_call(server, decision.call_id), decision.period, decision.count)]


def _series(server: Server, call: Call, period: float, left: int) -> Actor:
    """Calls at the multiples of the period, in absolute time."""
    last = False

    def due(_: object) -> None:
        if not call.stopped:
            if last:
                _forget(server, call)
            server.tell(e.CallArrived(server.agenda.now, call.id, last))

    while not (last or server.ended):
        now = server.agenda.now
        yield sleep(max(next_multiple(now, period) - now, SHORTEST_WAIT_S))
        if call.stopped:
            return
        last = left == 1
        left = max(0, left - 1)
        yield server.send(due)


def on_stop_calls(server: Server, decision: d.StopCalls) -> None:
    call = server.calls.get(decision.call_id)
    if call is not None:
        call.stopped = True
        _forget(server, call)


def on_probe(server: Server, decision: d.CreateProbe | d.TriggerProbe | d.ResetProbe | d.StopProbe) -> None:
    def tell(data: e.ProbeData) -> None:
        server.rounds.start(_tell(server, [data]))

    probes = server.physics.need_probes(tell)
    try:
        match decision:
            case d.CreateProbe():
                probes.create(decision)
            case d.TriggerProbe():
                probes.trigger(decision)
            case d.ResetProbe():
                probes.reset(decision)
            case d.StopProbe():
                probes.stop(decision)
    except RunError as problem:
        raise server.refuse("probe", str(problem)) from None


def _tell(server: Server, events: list[e.Event], over: int = 0) -> Actor:
    """One message with several events; `over` series end with it."""

    def heard(_: object) -> None:
        server.pending -= over
        for event in events:
            event.at = server.agenda.now
            server.tell(event)

    yield server.send(heard)


# ---- Batsim 5


class Trigger(msgspec.Struct, eq=False):
    """One live series: of calls, or of a probe's measurements."""

    id: str
    period_ms: int
    left: int
    """How many are still to come; 0: without end."""
    probe: d.CreateProbe | None = None
    is_set_up: bool = True


class Periodic:
    """All live series of one simulation, and the actor that keeps them."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._mailbox = Mailbox()
        self._live: dict[str, Trigger] = {}
        self._tick_entry = 0

    def __contains__(self, trigger_id: str) -> bool:
        return trigger_id in self._live

    def keep(self) -> Actor:
        """The actor: does what the server tells it to."""
        while True:
            then = yield receive(self._mailbox)
            then()

    def talk(self, then: Callable[[], None]) -> Actor:
        """The server sends a message to this actor, and waits until it is there."""
        yield send(self._mailbox, then, self._server.costs.from_master)

    def add_calls(self, decision: d.CallEvery) -> Actor:
        return self._add(Trigger(decision.call_id, round(decision.period * 1000), decision.count))

    def add_probe(self, decision: d.CreateProbe) -> Actor:
        missing = self._what_is_missing(decision)
        if missing:
            raise self._server.refuse("probe", f"Cannot create probe '{decision.probe_id}': {missing}")
        assert decision.period is not None
        # QUIRK: whatever else was asked for, the values are joules since the start, and all are told.
        if decision.accumulate is not d.Cumulative.SUM or decision.per_second or decision.temporal or decision.only_if:
            ignored = "its cumulative function, normalization, temporal aggregation and filter are ignored"
            self._server.warn(f"Probe '{decision.probe_id}': {ignored}")
        period_ms = round(decision.period * 1000)
        return self._add(Trigger(decision.probe_id, period_ms, decision.count, decision, is_set_up=False))

    def _what_is_missing(self, decision: d.CreateProbe) -> str:
        server = self._server
        if decision.metric is not d.Metric.POWER:
            return f"metric '{decision.metric.value}' is not implemented"
        if decision.links or not decision.units:
            return "only host resources are implemented"
        if decision.units.mask >> len(server.machines):
            return f"hosts {decision.units} do not all exist"
        if decision.period is None:
            return "only periodic triggers are implemented"
        if decision.accumulate is None or decision.reset_to is not None:
            return "only accumulation without reset is implemented"
        if decision.aggregation is d.Aggregation.QUANTILE:
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
        return self.talk(self._plan)

    def stop(self, trigger_id: str) -> Actor | None:
        """Ends a series; an unknown one is only worth a warning."""
        server = self._server
        if self._live.pop(trigger_id, None) is None:
            server.warn(f"Cannot stop periodic trigger '{trigger_id}': it does not exist (anymore)")
            return None
        server.pending -= 1
        return self.talk(self._plan)

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
        events: list[e.Event] = []
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
                events.append(e.CallArrived(server.agenda.now, trigger.id, last))
            else:
                events.append(self._measured(trigger.probe))
        for trigger in over:
            del self._live[trigger.id]
        if events:
            server.rounds.start(_tell(server, events, len(over)))
        self._plan()

    def _measured(self, probe: d.CreateProbe) -> e.ProbeData:
        """QUIRK: how often it was emitted or triggered is always told as 0."""
        server = self._server
        values = [server.machines.energy_j((unit,)) for unit in probe.units]
        if probe.aggregation is d.Aggregation.NONE:
            return e.ProbeData(server.agenda.now, probe.probe_id, tuple(values), aggregated=False)
        total = sum(values)
        if probe.aggregation is d.Aggregation.MEAN:
            total /= len(values)
        return e.ProbeData(server.agenda.now, probe.probe_id, (total,), aggregated=True)


def on_periodic_calls(server: Server, decision: d.CallEvery) -> Actor:
    return server.periodic.add_calls(decision)


def on_stop_periodic_calls(server: Server, decision: d.StopCalls) -> Actor | None:
    return server.periodic.stop(decision.call_id)


def on_periodic_probe(server: Server, decision: d.CreateProbe) -> Actor:
    return server.periodic.add_probe(decision)


def on_stop_periodic_probe(server: Server, decision: d.StopProbe) -> Actor | None:
    return server.periodic.stop(decision.probe_id)

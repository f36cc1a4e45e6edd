"""Calls and probes: what the decider asks to hear at a date, or again and again.

In: CallAt, CallEvery, StopCalls and the decisions about probes. Out: CallArrived and ProbeData.

Batsim 5 keeps periodic calls and probes in one actor (`Periodic`), which sends the server one message at each tick with
all that is due. Ticks are the multiples of a period in absolute time, so several periods share ticks; for that, each live
period must be a multiple of all shorter ones. A probe's first tick only sets it up. One-shot calls may share their ids.
Our own server has an actor for each series of calls, and the probes of the physics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import fmod
from typing import TYPE_CHECKING

import msgspec

from pilothouse.core.calls import next_multiple
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import RunError
from pilothouse.worlds.simulated.message_server.meter_readings import read_meters_of
from pilothouse.worlds.simulated.message_server.rounds import Actor, Command, Mailbox, post, receive, send, sleep, turn

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
    return [_caller(server, _new_call(server, decision.call_id), decision.when)]


def _new_call(server: Server, call_id: str) -> Call:
    call = server.calls[call_id] = Call(call_id)
    server.pending += not server.rules.ends_in_last_message
    return call


def _forget(server: Server, call: Call) -> None:
    server.pending -= not server.rules.ends_in_last_message
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
            server.tell(_arrived(server, call.id))

    yield server.send(due)


def _arrived(server: Server, call_id: str, last: bool = False) -> e.CallArrived:
    if server.rules.in_words_of_5 and not call_id:
        raise server.refuse("call id", "Invalid (empty) call_me_later_id received")
    return e.CallArrived(server.agenda.now, call_id, last)


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


def _tell(server: Server, events: list[e.Event]) -> Actor:
    """One message with several events."""

    def heard(_: object) -> None:
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
    """All live series of one simulation, and the actor that keeps them.

    The actor waits for messages of the server until the next tick. At a tick it sends the server one message with all
    that is due, also if nothing is, and waits until the server has got it. Calls and probes have ids of their own.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._mailbox = Mailbox()
        self._calls: dict[str, Trigger] = {}
        self._probes: dict[str, Trigger] = {}
        self._actor: Actor | None = None
        self._tick_entry = 0
        self._tick_is_due = False
        self._next_ms = 0

    # ---- what the server asks for

    def talk(self, then: Callable[[], Command | None]) -> Actor:
        """The server sends a message to this actor, and waits until it is there."""
        yield send(self._mailbox, then, self._server.costs.from_master)

    def add_calls(self, decision: d.CallEvery) -> Actor:
        self._server.pending += 1
        trigger = Trigger(decision.call_id, round(decision.period * 1000), decision.count)
        return self.talk(partial(self._add, self._calls, trigger))

    def add_probe(self, decision: d.CreateProbe) -> Actor:
        server = self._server
        problem = "only periodic triggers are implemented" if decision.period is None else ""
        if not (decision.units or decision.links):
            problem = "it names no resources"
        if problem or not decision.probe_id or decision.period is None:
            raise server.refuse("probe", f"Cannot create probe '{decision.probe_id}': {problem or 'it has no id'}")
        # QUIRK: whatever else was asked for, the values are joules since the start, and all are told.
        if decision.accumulate is not d.Cumulative.SUM or decision.per_second or decision.temporal or decision.only_if:
            ignored = "its cumulative function, normalization, temporal aggregation and filter are ignored"
            server.warn(f"Probe '{decision.probe_id}': {ignored}")
        server.pending += 1
        trigger = Trigger(decision.probe_id, round(decision.period * 1000), decision.count, decision, is_set_up=False)
        return self.talk(partial(self._add, self._probes, trigger))

    def stop_calls(self, call_id: str) -> Actor:
        return self.talk(partial(self._stop, self._calls, call_id))

    def stop_probe(self, probe_id: str) -> Actor:
        return self.talk(partial(self._stop, self._probes, probe_id))

    def clear(self) -> None:
        """Forgets everything: the simulation is being stopped."""
        self._server.pending -= len(self._calls) + len(self._probes)
        self._calls.clear()
        self._probes.clear()
        self._tick_is_due = False
        if self._tick_entry:
            self._server.agenda.cancel(self._tick_entry)
            self._tick_entry = 0

    # ---- the actor

    def keep(self) -> Actor:
        """The actor. Its waits end with a message of the server, or with None at a tick."""
        self._actor = actor = self._keep()
        return actor

    def _keep(self) -> Actor:
        while True:
            tick_ms = self._plan()
            then = None if self._tick_is_due else (yield receive(self._mailbox))
            if then is None:
                self._tick_is_due = False
                yield turn()  # SimGrid cancels the receive.
                yield from self._on_tick(tick_ms)
            else:
                if self._tick_entry:
                    self._server.agenda.cancel(self._tick_entry)
                    self._tick_entry = 0
                answer = then()
                if answer is not None:
                    yield answer

    def _plan(self) -> int:
        """Enters the next tick, and returns it in milliseconds."""
        live = [*self._calls.values(), *self._probes.values()]
        if not live or self._tick_is_due:
            return self._next_ms
        agenda = self._server.agenda
        shortest = min(trigger.period_ms for trigger in live)
        now_ms = agenda.now * 1e3
        since_ms = fmod(fmod(now_ms, max(trigger.period_ms for trigger in live)), shortest)
        self._next_ms = (round((now_ms - since_ms) / shortest) + 1) * shortest
        self._tick_entry = agenda.alarm((shortest - since_ms) * 1e-3, self._tick)
        return self._next_ms

    def _tick(self, _: object) -> None:
        self._tick_entry = 0
        if self._mailbox.receiver is None:
            self._tick_is_due = True  # A message is on its way here; the tick comes behind it.
            return
        assert self._actor is not None
        self._mailbox.receiver = None
        self._server.rounds.start(self._actor)

    def _add(self, live: dict[str, Trigger], trigger: Trigger) -> None:
        server = self._server
        kind = "call" if trigger.probe is None else "probe"
        if trigger.id in live:
            raise server.refuse("id in use", f"Cannot create periodic {kind} '{trigger.id}': this id is in use")
        for other in (*self._calls.values(), *self._probes.values()):
            longer, shorter = max(other.period_ms, trigger.period_ms), min(other.period_ms, trigger.period_ms)
            if longer % shorter:
                detail = f"periods {longer} ms and {shorter} ms: the longer is not a multiple of the shorter"
                raise server.refuse("periods", f"Cannot create periodic {kind} '{trigger.id}': {detail}")
        live[trigger.id] = trigger

    def _stop(self, live: dict[str, Trigger], trigger_id: str) -> Command | None:
        """Ends a series, of which the server is told; an unknown one is only worth a warning."""
        server = self._server
        if live.pop(trigger_id, None) is None:
            kind = "call" if live is self._calls else "probe"
            server.warn(f"Cannot stop periodic {kind} '{trigger_id}': it does not exist (anymore)")
            return None
        return post(server.mailbox, (_one_less, server), server.costs.from_master)

    def _on_tick(self, now_ms: int) -> Actor:
        server = self._server
        events: list[e.Event] = []
        over = 0
        for live in (self._calls, self._probes):
            for trigger in sorted(live.values(), key=lambda trigger: trigger.id):
                if now_ms % trigger.period_ms:
                    continue
                if trigger.is_set_up:
                    last = trigger.left == 1
                    if trigger.probe is None:
                        events.append(_arrived(server, trigger.id, last))
                    else:
                        self._refuse_measurement(trigger.probe)
                        yield from read_meters_of(server, trigger.probe.units)
                        events.append(self._measured(trigger.probe))
                    if last:
                        del live[trigger.id]
                        over += 1
                        continue
                    trigger.left = max(0, trigger.left - 1)
                if trigger.probe is not None:
                    self._refuse_set_up(trigger.probe)
                    trigger.is_set_up = True

        def heard(_: object) -> None:
            server.pending -= over
            server.note_date()
            for event in events:
                event.at = server.agenda.now
                server.tell(event)

        yield server.send(heard)

    def _refuse_measurement(self, probe: d.CreateProbe) -> None:
        """What the real one finds out at the first measurement."""
        server = self._server
        missing = ""
        if probe.metric is not d.Metric.POWER:
            missing = f"metric '{probe.metric.value}' is not implemented"
        elif probe.links or not probe.units:
            missing = "only host resources are implemented"
        elif not server.begins.energy:
            missing = "the energy of hosts is not simulated (--energy-host)"
        elif probe.units.mask >> len(server.machines):
            missing = f"hosts {probe.units} do not all exist"
        elif probe.aggregation is d.Aggregation.QUANTILE:
            missing = "this aggregation is not implemented"
        self._refuse(probe, missing)

    def _refuse_set_up(self, probe: d.CreateProbe) -> None:
        """What the real one finds out at each tick of a probe."""
        wrong = probe.accumulate is None or probe.reset_to is not None
        self._refuse(probe, "only accumulation without reset is implemented" if wrong else "")

    def _refuse(self, probe: d.CreateProbe, missing: str) -> None:
        if missing:
            raise self._server.refuse("probe", f"Cannot measure probe '{probe.probe_id}': {missing}")

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


def _one_less(server: Server) -> None:
    server.pending -= 1


def on_periodic_calls(server: Server, decision: d.CallEvery) -> Actor:
    return server.periodic.add_calls(decision)


def on_stop_periodic_calls(server: Server, decision: d.StopCalls) -> Actor:
    return server.periodic.stop_calls(decision.call_id)


def on_periodic_probe(server: Server, decision: d.CreateProbe) -> Actor:
    return server.periodic.add_probe(decision)


def on_stop_periodic_probe(server: Server, decision: d.StopProbe) -> Actor:
    return server.periodic.stop_probe(decision.probe_id)

"""A Batsim 5 decision component as a Decider: any `.so` or process that speaks batprotocol schedules any world.

Comes in: batches of facts. Goes out: replies, translated and judged by the protocol's own rules (dates ascend and are
not later than `now`). What batprotocol cannot say is answered here: a withdrawn job is confirmed at once, and if the
component starts it later all the same, it hears of its end in the next message. It cannot hear that hosts are away, so
what it starts on such hosts is held back until they are there again.

On the command line: `edc:./lib.so?init=...&load=dlmopen&inprocess=1` or `edc:tcp://host:port?init_file=...`.
"""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pilothouse.core.full_names import plain_name
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import InputError, PeerError, quoted
from pilothouse.model.idset import IdSet
from pilothouse.protocols.batprotocol import binary
from pilothouse.protocols.batprotocol import messages as m
from pilothouse.protocols.batprotocol.channel import SILENCE_S, Channel, ZmqPeer, library_channel
from pilothouse.protocols.batprotocol.codec import Format, decode, encode
from pilothouse.protocols.batprotocol.events import FINAL, EventWriter
from pilothouse.protocols.batprotocol.hello import read_hello, read_wants
from pilothouse.protocols.batprotocol.decisions import FILL, SPREAD, DecisionReader
from pilothouse.protocols.batprotocol.wire import Malformed

try:
    from pilothouse.protocols.batprotocol import _codec
except ImportError:  # Python does the same.
    _codec = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster

PRECISION_S = 1e-9
"""Dates closer than this are one date: JSON carries twelve decimals, and what a component repeats has been rounded."""
_OWN_CALL = "pilothouse: withdrawn"
_FREQUENT = (e.JobSubmitted, e.JobEnded, e.NoMoreJobs, FINAL)


def _killed(job_id: str) -> m.JobCompletedEvent:
    return m.JobCompletedEvent(job_id, m.FinalJobState.COMPLETED_KILLED, 0xFFFF_FFFF)


class EdcDecider:
    """One component behind its channel."""

    full_names = True

    def __init__(self, channel: Channel, init: bytes = b"") -> None:
        self.name = channel.name
        self.wants = d.Wants()
        self.hello_event: m.EDCHelloEvent | None = None
        self.precision_s = PRECISION_S
        """How much later than `now` a date must be to be later. (A world that waits as SimGrid does wants to know all.)"""
        self._channel = channel
        self._exchange = channel.exchange
        self._init = init
        self._form = Format.BINARY
        self._frequent_in_c = False
        self._facts = EventWriter(self.wants)
        self._orders = DecisionReader()
        self._cluster: Cluster | None = None
        self._units = inf
        self._withdrawn: set[str] = set()
        self._away = 0
        self._held: dict[str, d.StartJob] = {}
        self._later: list[m.Event] = []
        """What the component will hear when the call comes that was asked for in its place."""

    def hello(self) -> d.Wants:
        flags, answer = self._channel.hello(self._init)
        self._form = Format.of_flags(flags)
        try:
            hello = read_hello(decode(answer, self._form, self.name))
        except Malformed as problem:
            raise PeerError(self.name, str(problem)) from None
        self.hello_event = hello
        self.name = hello.decision_component_name or self.name
        self.wants = read_wants(hello)
        self._facts = EventWriter(self.wants)
        forwards = self.wants.forward_profiles or self.wants.forward_profiles_on_kill
        self._frequent_in_c = _codec is not None and self._form is Format.BINARY and not forwards
        return self.wants

    def begin(self, begins: e.Begins, cluster: Cluster | None) -> None:
        self._orders = DecisionReader(begins.profiles)
        self._facts.profiles = self._orders.profiles
        self._cluster = cluster
        self._units = begins.units
        self._away = begins.unavailable.mask

    def decide(self, batch: e.Batch) -> d.Reply:
        if self._frequent_in_c:
            request = _codec.encode(batch.now, batch.events, _FREQUENT, self._facts.profiles)
            if request is not None:
                return self._read_bytes(self._exchange(request), batch.now)
        told: list[m.EventAndTimestamp] = []
        answers: list[d.Decision] = []
        writers = self._facts.writers
        try:
            for fact in batch.events:
                write = writers.get(type(fact))
                if write is None or (self._later and type(fact) is e.CallArrived):
                    self._tell_other(fact, told, answers)
                elif (event := write(fact)) is not None:
                    told.append(m.EventAndTimestamp(fact.at, event))
            if not told:
                return d.Reply(batch.now, answers)
            message = m.Message(batch.now, told)
            if self._form is Format.BINARY:
                reply = binary.decode(self._exchange(binary.encode(message)))
            else:
                reply = decode(self._exchange(encode(message, self._form)), self._form, self.name)
            if not reply.events:
                return d.Reply(self._not_before(batch.now, reply.now), answers)
            return self._read(reply, batch.now, answers)
        except Malformed as problem:
            raise PeerError(self.name, f"invalid message: {problem}") from None

    def _tell_other(self, fact: e.Event, told: list[m.EventAndTimestamp], answers: list[d.Decision]) -> None:
        """Facts for which batprotocol has no word: tells what comes next to it, or answers in the component's place."""
        events: list[m.Event | None] = []
        if isinstance(fact, e.JobWithdrawn):
            if self._held.pop(fact.job_id, None) is not None:
                events.append(_killed(fact.job_id))
            else:
                self._withdrawn.add(fact.job_id)
            answers.append(d.ConfirmWithdrawal(fact.at, fact.job_id))
        elif isinstance(fact, e.CallArrived) and fact.call_id == _OWN_CALL:
            events += self._later
            self._later.clear()
        elif isinstance(fact, e.JobRequeued):
            events += self._comes_again(fact.job_id, fact.at)
        elif isinstance(fact, e.UnitsUnavailable | e.UnitsAvailable | e.NodesLeft):
            events += self._hosts_changed(fact, answers)
            events.append(self._facts.write(fact))
        elif isinstance(fact, e.FeasibilityAsked):
            asked = fact.job.least_units
            refusal = f"{asked} units are more than there are" if asked > self._units else ""
            answers.append(d.AnswerFeasibility(fact.at, fact.question_id, refusal))
        elif isinstance(fact, e.EstimateAsked):
            answers.append(d.AnswerEstimate(fact.at, fact.job.id, inf))
        else:
            events.append(self._facts.write(fact))
        told.extend(m.EventAndTimestamp(fact.at, event) for event in events if event is not None)

    def _comes_again(self, job_id: str, at: float) -> list[m.Event | None]:
        """A job ended for the component, and is submitted once more."""
        events: list[m.Event | None] = [m.JobCompletedEvent(job_id, m.FinalJobState.COMPLETED_FAILED, 1)]
        if self._cluster is not None:
            waiting = self._cluster.waiting
            job = waiting.get(plain_name(job_id, waiting))
            if job is not None:
                events.append(self._facts.write(e.JobSubmitted(at, msgspec.structs.replace(job, id=job_id))))
        return events

    def _hosts_changed(
        self, fact: e.UnitsUnavailable | e.UnitsAvailable | e.NodesLeft, answers: list[d.Decision]
    ) -> list[m.Event | None]:
        """Hosts went or came: what was held back for them starts, or never will."""
        events: list[m.Event | None] = []
        mask = fact.units.mask
        if isinstance(fact, e.UnitsAvailable):
            self._away &= ~mask
            for job_id, order in list(self._held.items()):
                if not order.units.mask & self._away:
                    order.at = fact.at
                    answers.append(self._held.pop(job_id))
            return events
        self._away |= mask
        if isinstance(fact, e.NodesLeft):
            for job_id, order in list(self._held.items()):
                if order.units.mask & mask:
                    del self._held[job_id]
                    events += self._comes_again(job_id, fact.at)
        return events

    def _hold_back(self, order: d.StartJob, orders: list[d.Decision]) -> bool:
        """Whether a start is not for the world, or not yet."""
        if order.job_id in self._withdrawn:
            self._later.append(_killed(order.job_id))
            orders.append(d.CallAt(order.at, order.at, _OWN_CALL))
            return True
        if order.units.mask & self._away:
            self._held[order.job_id] = order
            return True
        return False

    def _kill_held(self, order: d.KillJobs, orders: list[d.Decision]) -> d.KillJobs | None:
        """Jobs that were held back never started: they are refused, and told as killed. The others are left over."""
        mine = [job_id for job_id in order.job_ids if self._held.pop(job_id, None) is not None]
        if not mine:
            return order
        for job_id in mine:
            orders.append(d.RejectJob(order.at, job_id, "killed while its hosts were away"))
            self._later.append(_killed(job_id))
        self._later.append(m.JobsKilledEvent(mine, []))
        orders.append(d.CallAt(order.at, order.at, _OWN_CALL))
        rest = tuple(job_id for job_id in order.job_ids if job_id not in mine)
        return d.KillJobs(order.at, rest) if rest else None

    def _read_bytes(self, data: bytes, now: float) -> d.Reply:
        """The reply to a frequent message: frequent orders, as a rule."""
        found = None if self._withdrawn or self._away or self._held else _codec.decode(data)
        if found is None:
            try:
                return self._read(binary.decode(data), now, [])
            except Malformed as problem:
                raise PeerError(self.name, f"invalid message: {problem}") from None
        soon = now + self.precision_s
        orders: list[d.Decision] = []
        for order in found[1]:
            at = order[0] if order[0] > soon else now
            if len(order) == 4:
                orders.append(d.StartJob(at, order[1], IdSet(order[2]), FILL if order[3] else SPREAD))
            else:
                orders.append(d.RejectJob(at, order[1]))
        return d.Reply(found[0] if found[0] > soon else now, orders)

    def _read(self, reply: m.Message, now: float, answers: list[d.Decision]) -> d.Reply:
        last = 0.0
        orders = answers
        soon = now + self.precision_s
        for item in reply.events or ():
            at = item.timestamp
            if at > reply.now:
                raise Malformed(f"an event at {at:g} in a message of {reply.now:g}: no event may be later than `now`")
            if at < last:
                raise Malformed(f"an event at {at:g} after one at {last:g}: timestamps must not decrease")
            last = at
            order = self._orders.read(item.event, at if at > soon else now)
            if type(order) is d.StartJob:
                if (self._withdrawn or self._away) and self._hold_back(order, orders):
                    continue
            elif type(order) is d.CallAt:
                order.when = max(order.when, order.at)
            elif type(order) is d.KillJobs and self._held:
                left = self._kill_held(order, orders)
                if left is None:
                    continue
                order = left
            else:
                self._facts.note(order)
            orders.append(order)
            if type(order) is d.StopWorld:
                break
        return d.Reply(self._not_before(now, reply.now), orders)

    def _not_before(self, now: float, date: float) -> float:
        return date if date > now + self.precision_s else now

    def close(self) -> None:
        self._channel.close()


def edc_decider(address: str, options: dict[str, str] | None = None, *, timeout: float | None = None) -> EdcDecider:
    """The component at an address: the path of a library, or an endpoint of ZeroMQ."""
    options = options or {}
    known = ("init", "init_file", "inprocess", "load")
    if unknown := sorted(options.keys() - set(known)):
        raise InputError(f"edc:{address}", f"unknown option {unknown[0]!r}", expected=", ".join(known))
    if not address:
        raise InputError("edc:", "no component", expected="edc:./library.so or edc:tcp://host:port")
    init = options.get("init", "").encode()
    if "init_file" in options:
        try:
            init = Path(options["init_file"]).read_bytes()
        except OSError as problem:
            raise InputError(options["init_file"], f"cannot be read: {problem.strerror}") from None
    silence_s = SILENCE_S if timeout is None else timeout
    if "://" in address:
        return EdcDecider(ZmqPeer(address, silence_s), init)
    method = options.get("load", "dlopen")
    if method not in ("dlopen", "dlmopen"):
        raise InputError("edc: load", "no way to load a library", expected="dlopen or dlmopen", found=quoted(method))
    if not Path(address).exists():
        raise InputError(address, "no such library")
    inprocess = options.get("inprocess", "0") not in ("", "0", "no", "false")
    return EdcDecider(library_channel(address, method=method, inprocess=inprocess, silence_s=silence_s), init)

"""A Batsim 5 decision component as a Decider: any `.so` or process that speaks batprotocol schedules any world.

In: batches of events. Out: replies, checked by the protocol's own rules: every event has a date, dates ascend, none is
before the message that is answered or after the reply's own `now`, and registered jobs name their workload.
batprotocol has no words for withdrawals, requeues, lost or unavailable hosts: core/translate.py speaks for it.

On the command line: `edc:./lib.so?init=...&load=dlmopen&inprocess=1` or `edc:tcp://host:port?init_file=...`.
"""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from pilothouse.core.contract import Traits
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import InputError, PeerError, quoted
from pilothouse.model.idset import IdSet
from pilothouse.protocols.batprotocol import binary
from pilothouse.protocols.batprotocol import messages as m
from pilothouse.protocols.batprotocol.channel import SILENCE_S, Channel, ChildLibrary, InProcessLibrary, ZmqPeer
from pilothouse.protocols.batprotocol.codec import Format, decode, encode
from pilothouse.protocols.batprotocol.decisions import FILL, SPREAD, DecisionReader
from pilothouse.protocols.batprotocol.events import FINAL, EventWriter
from pilothouse.protocols.batprotocol.hello import read_hello, read_wants
from pilothouse.protocols.batprotocol.wire import Malformed

try:
    from pilothouse.protocols.batprotocol import _codec
except ImportError:  # Python does the same.
    _codec = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster

PRECISION_S = 1e-9
"""Dates closer than this are one date: JSON carries twelve decimals, and what a component repeats has been rounded."""
_FREQUENT = (e.JobSubmitted, e.JobEnded, e.NoMoreJobs, FINAL)


class EdcDecider:
    """One component behind its channel."""

    traits = Traits(
        full_names=True, withdrawals=False, requeues=False, lost_nodes=False, absent_units=False, feasibility=False,
        estimates=False, shapes=False,
    )  # fmt: skip

    def __init__(self, channel: Channel, init: bytes = b"") -> None:
        self.name = channel.name
        self.wants = d.Wants()
        self.hello_event: m.EDCHelloEvent | None = None
        self.precision_s = PRECISION_S
        """A date counts as later than `now` only if it is later by more than this. The Batsim 5 drop-in sets it to 0."""
        self.lenient = False
        """Batsim 5.0.0-rc2 takes early and missing dates for now. The drop-in sets it: it judges ids in Batsim's words."""
        self._channel = channel
        self._exchange = channel.exchange
        self._init = init
        self._form = Format.BINARY
        self._frequent_in_c = False
        self._writer = EventWriter(self.wants)
        self._reader = DecisionReader()

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
        self._writer = EventWriter(self.wants)
        forwards = self.wants.forward_profiles or self.wants.forward_profiles_on_kill
        self._frequent_in_c = _codec is not None and self._form is Format.BINARY and not forwards
        return self.wants

    def begin(self, begins: e.Begins, cluster: Cluster) -> None:
        self._reader = DecisionReader(begins.profiles, any_id=self.lenient)
        self._writer.profiles = self._reader.profiles

    def fileno(self) -> int:
        raise AssertionError("a decision component speaks in turn")

    def decide(self, batch: e.Batch) -> d.Reply:
        try:
            if self._frequent_in_c and batch.events:
                request = _codec.encode(batch.now, batch.events, _FREQUENT, self._writer.profiles)
                if request is not None:
                    return self._read_bytes(self._exchange(request), batch.now)
            events: list[m.EventAndTimestamp] = []
            for event in batch.events:
                written = self._writer.write(event)
                if written is not None:
                    events.append(m.EventAndTimestamp(event.at, written))
            if not events:
                return d.Reply(batch.now, [])
            message = m.Message(batch.now, events)
            if self._form is Format.BINARY:
                reply = binary.decode(self._exchange(binary.encode(message)))
            else:
                data = self._exchange(encode(message, self._form))
                reply = decode(data, self._form, self.name)
                if not self.lenient:
                    _judge_presence(data, reply)
            return self._read(reply, batch.now)
        except Malformed as problem:
            raise PeerError(self.name, f"invalid message: {problem}") from None

    def _read_bytes(self, data: bytes, now: float) -> d.Reply:
        """The reply to a frequent message: as a rule, frequent decisions."""
        found = _codec.decode(data)
        if found is None:
            return self._read(binary.decode(data), now)
        soon = now + self.precision_s
        earliest = -inf if self.lenient else self._earliest(found[0], now)
        decisions: list[d.Decision] = []
        for read in found[1]:
            if read[0] < earliest:
                raise _early(read[0], now)
            at = read[0] if read[0] > soon else now
            if len(read) == 4:
                decisions.append(d.StartJob(at, read[1], IdSet(read[2]), FILL if read[3] else SPREAD))
            else:
                decisions.append(d.RejectJob(at, read[1]))
        return d.Reply(found[0] if found[0] > soon else now, decisions)

    def _read(self, reply: m.Message, now: float) -> d.Reply:
        last = 0.0
        decisions: list[d.Decision] = []
        soon = now + self.precision_s
        earliest = self._earliest(reply.now, now)
        for item in reply.events or ():
            at = item.timestamp
            if at < earliest:
                raise _early(at, now)
            if at > reply.now:
                raise Malformed(f"an event at {at:g} in a message of {reply.now:g}: no event may be later than `now`")
            if at < last:
                raise Malformed(f"an event at {at:g} after one at {last:g}: timestamps must not decrease")
            last = at
            decision = self._reader.read(item.event, at if at > soon else now)
            if type(decision) is d.CallAt:
                decision.when = max(decision.when, decision.at)
            elif type(decision) is not d.StartJob:
                self._writer.note(decision)
            decisions.append(decision)
            if type(decision) is d.StopWorld:
                break
        return d.Reply(reply.now if reply.now > soon else now, decisions)

    def _earliest(self, replied: float, now: float) -> float:
        """The earliest date that a decision may have. Malformed if the reply itself is dated earlier."""
        earliest = -inf if self.lenient else now - self.precision_s
        if replied < earliest:
            raise _early(replied, now)
        return earliest

    def close(self) -> None:
        self._channel.close()


def _judge_presence(data: bytes, reply: m.Message) -> None:
    """JSON may leave dates out, and then they are read as 0; the text of the protocol asks for them."""
    if b'"now"' not in data:
        raise Malformed("a message without `now`")
    if data.count(b'"timestamp"') < len(reply.events or ()):
        raise Malformed("an event without a timestamp")


def _early(at: float, now: float) -> Malformed:
    return Malformed(f"the date {at:g} in the reply to a message of {now:g}: no decision can be made before `now`")


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
    if options.get("inprocess", "0") not in ("", "0", "no", "false"):
        return EdcDecider(InProcessLibrary(address, method), init)
    # Most libraries read their init string as JSON, and do not start with an empty one.
    or_init = b"" if options.keys() & {"init", "init_file"} else b"{}"
    return EdcDecider(ChildLibrary(address, method, silence_s, or_init=or_init), init)

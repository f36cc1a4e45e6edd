"""World `batsim:ENDPOINT`: a real Batsim 2 to 4; we are its scheduler.

In: replies. Out: batches. We bind a REP socket; the Batsim connects at any time, and its clock stands still while the
decider thinks.
"""

from __future__ import annotations

import time

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import InputError, PeerError
from pilothouse.protocols.batsim import codec
from pilothouse.protocols.batsim import messages as wire
from pilothouse.protocols.batsim.decision_writer import DecisionWriter, registration_finished
from pilothouse.protocols.batsim.event_reader import EventReader, RequestedCalls, read_begins
from pilothouse.protocols.batsim.redis_store import RedisStore
from pilothouse.protocols.batsim.settings import Dialect
from pilothouse.protocols.request_socket import Waiting

DEFAULT_ENDPOINT = "tcp://127.0.0.1:28000"
_SLICE_MS = 100


class BatsimWorld:
    """A Batsim behind a socket. `timeout` (seconds) limits the wait for a message; None: no limit. `dialect`: the words of
    our messages, if not those of its SIMULATION_BEGINS."""

    def __init__(self, endpoint: str = DEFAULT_ENDPOINT, *, timeout: float | None = None, dialect: str = "") -> None:
        self.name = f"Batsim at {endpoint or DEFAULT_ENDPOINT}"
        self._endpoint = endpoint or DEFAULT_ENDPOINT
        self._timeout = timeout
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.REP)
        self._socket.linger = 1000
        self._socket.maxmsgsize = 64 * codec.MOST_BYTES
        self._socket.rcvtimeo = _SLICE_MS
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self._monitor.linger = 0
        self._connections = 0
        try:
            self._socket.bind(endpoint or DEFAULT_ENDPOINT)
        except zmq.ZMQError as problem:
            self.close()
            raise InputError("socket endpoint", f"{endpoint!r}: {problem}", hint="e.g. tcp://127.0.0.1:28000") from None
        self._calls = RequestedCalls()
        self._dialect = Dialect.named(dialect or "any")
        self._reader: EventReader
        self._writer: DecisionWriter
        self._store: RedisStore | None = None
        self._first: e.Batch | None = None
        self._waiting: Waiting | None = None
        self._ends_registration = False
        self._over = False

    def begin(self, wants: d.Wants) -> e.Begins:
        """Waits for SIMULATION_BEGINS."""
        self._waiting = Waiting(f"a Batsim that connects to {self._endpoint}")
        message = codec.decode_from_batsim(self._receive(), self.name)
        opening = message.events[0] if message.events else None
        if not isinstance(opening, wire.SimulationBegins):
            raise PeerError(self.name, "the first message should begin with SIMULATION_BEGINS")
        begins, redis, spoken = read_begins(opening.data, self.name)
        if self._dialect is Dialect.ANY:
            self._dialect = spoken
        if redis.enabled:
            self._store = RedisStore(redis, self.name)
        self._reader = EventReader(self.name, begins, self._store, self._calls)
        self._writer = DecisionWriter(self._dialect, self._calls, self._store)
        rest = self._reader.batch(wire.Message(message.now, message.events[1:]))
        self._first = e.Batch(message.now, [e.Began(opening.timestamp, begins), *rest.events])
        # A Batsim that waits for registrations never ends without a registration_finished.
        self._ends_registration = begins.dynamic_registration and not wants.dynamic_registration
        return msgspec.structs.replace(begins, exact_count=True)

    def advance(self) -> e.Batch | None:
        if self._first is not None:
            batch, self._first = self._first, None
            return batch
        if self._over:
            return None
        return self._reader.batch(codec.decode_from_batsim(self._receive(), self.name))

    def apply(self, reply: d.Reply) -> None:
        events = self._writer.events(reply)
        now = reply.now
        if self._ends_registration:
            self._ends_registration = False
            events.append(wire.Notify(now, {"type": registration_finished(self._dialect)}))
        self._socket.send(codec.encode_plainly(now, events))

    def _receive(self) -> bytes:
        waited_since = time.monotonic()
        while True:
            try:
                data = self._socket.recv()
            except zmq.Again:
                if self._waiting is not None:
                    self._waiting.still()
                if self._is_gone():
                    raise PeerError(self.name, "left before the end of its simulation") from None
                if self._timeout and time.monotonic() - waited_since > self._timeout:
                    raise PeerError(self.name, f"said nothing for {self._timeout:g} s") from None
                continue
            self._over = b'"SIMULATION_ENDS"' in data
            self._waiting = None
            return data

    def _is_gone(self) -> bool:
        """Whether the Batsim has closed its connection and there is nothing left to read."""
        while self._monitor.poll(0):
            accepted = recv_monitor_message(self._monitor)["event"] == zmq.EVENT_ACCEPTED
            self._connections += 1 if accepted else -1
        return self._waiting is None and self._connections == 0 and not self._socket.poll(0)

    def watch(self, fd: int) -> None:
        """Does nothing: its clock stands still while the decider thinks."""

    def close(self) -> None:
        if not self._socket.closed:
            self._socket.disable_monitor()
            self._monitor.close(0)
            self._socket.close()
            self._context.term()
        store = getattr(self, "_store", None)
        if store is not None:
            store.close()


def batsim_world(address: str, options: dict[str, str]) -> BatsimWorld:
    """The world of the name `batsim:ENDPOINT?dialect=2`."""
    unknown = set(options) - {"dialect"}
    if unknown:
        raise InputError(f"batsim:{address}", "unknown option", expected="dialect", found=min(unknown))
    return BatsimWorld(address, dialect=options.get("dialect", ""))

"""World `flux[:URI]`: a Flux instance whose scheduler we are. The socket, the clock, and reconnecting.

Any decider allocates for it. After a lost connection (the broker restarts, or suspended us) it reconnects with a
back-off; running jobs go on, and the hello says what they hold. URI is `local:///path` (default: $FLUX_URI), or
`tcp://host:port?key=FILE` for a manager of ours on another host.
"""

from __future__ import annotations

import logging
import os
import select
import time
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from pilothouse.formats import duration
from pilothouse.model import events as e
from pilothouse.model.decisions import Reply, Wants
from pilothouse.model.errors import InputError, PeerError
from pilothouse.model.numerals import whole_number
from pilothouse.protocols.rfc27 import scheduler_events as s
from pilothouse.protocols.rfc27 import unix_socket
from pilothouse.protocols.rfc27.frames import BadFrame
from pilothouse.protocols.rfc27.handshake import Phase
from pilothouse.protocols.rfc27.scheduler import SchedulerEngine
from pilothouse.protocols.rfc27.unix_socket import Connection

if TYPE_CHECKING:
    from pilothouse.protocols.rfc27.zmq_link import ZmqConnection
from pilothouse.protocols.rfc27.scheduler_adapter import SchedulerAdapter

_log = logging.getLogger("pilothouse.rfc27")

HANDSHAKE_LIMIT_S = 60.0
FIRST_BACKOFF_S = 0.1
MOST_BACKOFF_S = 10.0
DEFAULT_PATIENCE_S = 5.0

ALLOC = {
    "worst-fit": e.NodeOrder.MOST_FREE, "first-fit": e.NodeOrder.NUMBERED, "best-fit": e.NodeOrder.FEWEST_FREE,
}  # fmt: skip
"""The names of sched-simple."""


def default_uri(uri: str) -> str:
    """The given instance, or the one of this process's environment."""
    found = uri or os.environ.get("FLUX_URI", "")
    if not found:
        raise InputError("flux", "no Flux instance is named", hint="set FLUX_URI, or use flux:local:///path")
    return found


def connect(uri: str) -> Connection | ZmqConnection:
    if uri.startswith("tcp://"):
        from pilothouse.protocols.rfc27.zmq_link import ZmqConnection

        return ZmqConnection(uri)
    return unix_socket.connect(uri)


def flux_world(uri: str, options: dict[str, str]) -> FluxWorld:
    """`flux[:URI][?rfc27=1&limit=8&once=1&key=FILE&patience=30s&notes=0&alloc=worst-fit]`."""
    known = {"rfc27": "", "limit": "0", "once": "", "key": "", "patience": str(DEFAULT_PATIENCE_S), "notes": "", "alloc": ""}
    unknown = set(options) - set(known)
    if unknown:
        raise InputError("flux", f"unknown option {min(unknown)!r}", expected=f"one of {', '.join(known)}")
    chosen = known | options
    limit = whole_number(chosen["limit"])
    if limit is None:
        raise InputError("flux", "not a limit of requests", expected="a whole number", found=repr(chosen["limit"]))
    if chosen["alloc"] and chosen["alloc"] not in ALLOC:
        raise InputError("flux", "unknown way to allocate", expected=f"one of {', '.join(ALLOC)}", found=repr(chosen["alloc"]))
    return FluxWorld(
        f"{uri}?key={chosen['key']}" if chosen["key"] else uri,
        limit=limit,
        strict=chosen["rfc27"] == "1",
        reconnect=chosen["once"] != "1",
        patience_s=duration.parse(chosen["patience"], where="patience"),
        alloc=ALLOC.get(chosen["alloc"]),
    )


class FluxWorld:
    """A Flux instance. `reconnect` False: a lost connection ends the run.

    `patience_s`: how long to wait for a socket that does not exist yet. `alloc`: of which nodes jobs get cores first; None:
    the first block of free cores that holds the job.
    """

    def __init__(
        self,
        uri: str = "",
        *,
        limit: int = 0,
        strict: bool = False,
        reconnect: bool = True,
        patience_s: float = DEFAULT_PATIENCE_S,
        alloc: e.NodeOrder | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.uri = default_uri(uri)
        self.name = f"flux:{self.uri}"
        self.adapter = SchedulerAdapter(alloc)
        self._limit = limit
        self._strict = strict
        self._reconnect = reconnect
        self._patience_s = patience_s
        self._clock = clock
        self._link: Connection | ZmqConnection | None = None
        self._poller = select.poll()
        self._mask = 0
        self._watched: set[int] = set()
        self._begins: e.Begins | None = None
        self._backoff_s = FIRST_BACKOFF_S
        self._retry_at = inf
        self._over = ""
        self._ended = False

    # ---- the contract

    def begin(self, wants: Wants) -> e.Begins:
        self._open()
        self._begins = self.adapter.begins(self._now())
        self.adapter.events.insert(0, e.Began(self._begins.started_at, self._begins))
        return self._begins

    def advance(self) -> e.Batch | None:
        if self._ended:
            return None
        adapter = self.adapter
        while True:
            self._send()
            now = self._now()
            arrived: list[e.CallArrived] = adapter.calls.due(now)
            adapter.events += arrived
            if adapter.stopped or self._over:
                self._ended = True
                adapter.events.append(e.Ended(now, reason=self._over))
            # A manager in simulated time sends the date after the events: they wait for it.
            asked = adapter.asked_quiet and not adapter.engine.reading
            if adapter.events and (adapter.simulated_now is None or asked or self._ended):
                return e.Batch(now, adapter.take_events(), waits=adapter.simulated_now is not None)
            if self._wait():
                # The decider has something to say without being asked.
                return e.Batch(self._now(), [])

    def _now(self) -> float:
        told = self.adapter.simulated_now
        return self._clock() if told is None else told

    def apply(self, reply: Reply) -> None:
        self.adapter.apply(self._now(), reply.decisions)
        self._send()

    def watch(self, fd: int) -> None:
        self._watched.add(fd)
        self._poller.register(fd, select.POLLIN)

    def close(self) -> None:
        if self._link is not None:
            self._link.flush()
            self._disconnect()

    # ---- messages

    def _send(self) -> None:
        """Sends all messages. Answers sched.quiesce when there is nothing left to decide."""
        adapter, link = self.adapter, self._link
        if link is None:
            return
        if adapter.asked_quiet and not adapter.events and not adapter.engine.busy:
            call_at = adapter.calls.next_at
            for request in adapter.asked_quiet:
                adapter.engine.answer_quiesce(request, None if call_at == inf else call_at)
            adapter.asked_quiet.clear()
        messages = adapter.engine.take()
        if messages:
            link.send(messages)
        wanted = select.POLLIN | (select.POLLOUT if link.wants_write else 0)
        if link.closed:
            self._fail("the connection was closed")
        elif wanted != self._mask:
            self._mask = wanted
            self._poller.modify(link.fileno(), wanted)
        for warning in adapter.engine.take_warnings():
            _log.warning("%s: %s", self.uri, warning)

    def _wait(self) -> bool:
        """Waits for the broker, the date of a call, the next attempt to connect, or a watched descriptor (then True)."""
        now = self._clock()
        if now >= self._retry_at:
            self._retry()
            return False
        if self._link is not None and self._link.has_more:
            self._receive()
            return False
        simulated = self.adapter.simulated_now is not None
        until = self._retry_at if simulated else min(self.adapter.calls.next_at, self._retry_at)
        limit_ms = None if until == inf else max(0.0, (until - now) * 1000) + 1
        for fd, mask in self._poller.poll(limit_ms):
            if fd in self._watched:
                return True
            if self._link is not None and mask & select.POLLOUT:
                self._link.flush()
            if mask & ~select.POLLOUT:
                self._receive()
        return False

    def _receive(self) -> None:
        link = self._link
        if link is None:
            return
        engine = self.adapter.engine
        for message in link.receive():
            if isinstance(message, BadFrame):
                _log.warning("%s: %s", self.uri, message.problem)
            else:
                engine.receive(message)
        events = engine.take_events()
        if events:
            self.adapter.handle(self._now(), events)
        if engine.phase is Phase.ONLINE:
            self._backoff_s = FIRST_BACKOFF_S
        failed = next((event for event in events if isinstance(event, s.Failed)), None)
        if failed is not None:
            self._fail(failed.problem)
        elif link.closed:
            self._fail("the connection was closed")

    # ---- connecting

    def _open(self) -> None:
        """Connects and waits for the end of the handshake. Raises PeerError."""
        self._connect_patiently()
        deadline = self._clock() + HANDSHAKE_LIMIT_S
        engine = self.adapter.engine
        while engine.phase is not Phase.ONLINE:
            self._send()
            if self._over:
                raise PeerError(self.uri, self._over)
            if self._clock() > deadline:
                self._disconnect()
                raise PeerError(self.uri, f"no answer for {HANDSHAKE_LIMIT_S:g} s while {engine.phase.value}")
            if self._link is not None and (self._link.has_more or self._poller.poll(500)):
                self._receive()

    def _connect_patiently(self) -> None:
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                self._connect()
                return
            except PeerError as problem:
                if time.monotonic() > deadline:
                    raise
                _log.info("%s; trying again", problem)
                time.sleep(FIRST_BACKOFF_S)

    def _connect(self) -> None:
        link = connect(self.uri)
        self.adapter.engine = SchedulerEngine(limit=self._limit, strict=self._strict)
        self._link = link
        self._mask = select.POLLIN
        self._poller.register(link.fileno(), select.POLLIN)
        self.adapter.engine.begin()

    def _disconnect(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
            # A closed socket has no descriptor to unregister.
            self._poller = select.poll()
            for fd in self._watched:
                self._poller.register(fd, select.POLLIN)

    def _fail(self, problem: str) -> None:
        if self._link is None:
            return
        closed = self._link.closed
        self._disconnect()
        if self._begins is None or not self._reconnect:
            # With `once=1` a closed connection is the regular end of a run.
            self._over = problem if self._begins is None or not closed else ""
            self.adapter.stopped = True
            return
        self.adapter.lost(self._clock(), problem)
        self._retry_later(f"{self.uri}: {problem}")

    def _retry(self) -> None:
        self._retry_at = inf
        try:
            self._connect()
        except PeerError as problem:
            self._retry_later(str(problem))

    def _retry_later(self, problem: str) -> None:
        _log.warning("%s; trying again in %.1f s", problem, self._backoff_s)
        self._retry_at = self._clock() + self._backoff_s
        self._backoff_s = min(2 * self._backoff_s, MOST_BACKOFF_S)

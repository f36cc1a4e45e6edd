"""World `flux[:URI]`: a Flux instance whose scheduler we are. The shell: sockets, the clock, coming back.

Any decider allocates for it. A lost connection (the broker restarts, we were suspended) is tried again with a back-off;
running jobs go on, and hello tells what they hold. URI is `local:///path` (default: $FLUX_URI), or
`tcp://host:port?key=FILE` for a manager of ours on another host.
"""

from __future__ import annotations

import logging
import os
import select
import time
from collections.abc import Callable
from math import inf
from typing import Protocol

from pilothouse.model import events as e
from pilothouse.model.decisions import Reply, Wants
from pilothouse.model.errors import InputError, PeerError
from pilothouse.protocols.rfc27 import scheduler_events as s
from pilothouse.protocols.rfc27 import unix_socket
from pilothouse.protocols.rfc27.frames import BadFrame, Message
from pilothouse.protocols.rfc27.guard import FIRST_BACKOFF_S, MOST_BACKOFF_S
from pilothouse.protocols.rfc27.handshake import Phase
from pilothouse.protocols.rfc27.scheduler import SchedulerEngine
from pilothouse.protocols.rfc27.scheduler_adapter import SchedulerAdapter

_log = logging.getLogger("pilothouse.rfc27")

HANDSHAKE_LIMIT_S = 60.0


class Link(Protocol):
    """A connection to a broker, however it is carried."""

    name: str
    closed: bool

    def fileno(self) -> int: ...
    @property
    def wants_write(self) -> bool: ...
    @property
    def has_more(self) -> bool: ...
    def send(self, messages: list[Message]) -> None: ...
    def flush(self) -> None: ...
    def receive(self) -> list[Message | BadFrame]: ...
    def close(self) -> None: ...


def default_uri(uri: str) -> str:
    """The instance that is meant: the given one, or the one that we run in."""
    found = uri or os.environ.get("FLUX_URI", "")
    if not found:
        raise InputError("flux", "no Flux instance is named", hint="set FLUX_URI, or use flux:local:///path")
    return found


def connect(uri: str) -> Link:
    if uri.startswith("tcp://"):
        from pilothouse.protocols.rfc27.zmq_link import ZmqConnection

        return ZmqConnection(uri)
    return unix_socket.connect(uri)


def flux_world(uri: str, options: dict[str, str]) -> FluxWorld:
    """`flux[:URI][?rfc27=1&limit=8&once=1&key=FILE]`."""
    options = dict(options)
    key = options.pop("key", "")
    strict = options.pop("rfc27", "") == "1"
    once = options.pop("once", "") == "1"
    limit = options.pop("limit", "0")
    if options:
        raise InputError("flux", f"unknown option {min(options)!r}", expected="rfc27, limit, once or key")
    if not limit.isdigit():
        raise InputError("flux", "not a limit of requests", expected="a whole number", found=repr(limit))
    return FluxWorld(f"{uri}?key={key}" if key else uri, limit=int(limit), strict=strict, reconnect=not once)


class FluxWorld:
    """The scheduler's seat of a Flux instance. `reconnect` False: a lost connection ends the run.

    `patience_s`: how long to wait for a socket that is not there yet.
    """

    def __init__(
        self,
        uri: str = "",
        *,
        limit: int = 0,
        strict: bool = False,
        reconnect: bool = True,
        patience_s: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.uri = default_uri(uri)
        self.name = f"flux:{self.uri}"
        self.instance = SchedulerAdapter()
        self._limit = limit
        self._strict = strict
        self._reconnect = reconnect
        self._patience_s = patience_s
        self._clock = clock
        self._link: Link | None = None
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
        self._begins = self.instance.begins(self._now())
        self.instance.events.insert(0, e.Began(self._begins.started_at, self._begins))
        return self._begins

    def advance(self) -> e.Batch | None:
        if self._ended:
            return None
        instance = self.instance
        while True:
            self._say()
            now = self._now()
            if instance.calls.next_date() <= now:
                instance.events.extend(instance.calls.due(now))
            if instance.stopped or self._over:
                self._ended = True
                instance.events.append(e.Ended(now, reason=self._over))
            # a manager in simulated time tells the date after the events: they wait for it
            asked = instance.asked_quiet and not instance.engine.reading
            if instance.events and (instance.told_now is None or asked or self._ended):
                return e.Batch(now, instance.take_events(), waits=instance.told_now is not None)
            if self._wait():
                # a decider that speaks out of turn has something to say
                return e.Batch(self._now(), [])

    def _now(self) -> float:
        told = self.instance.told_now
        return self._clock() if told is None else told

    def apply(self, reply: Reply) -> None:
        self.instance.apply(self._now(), reply.decisions)
        self._say()

    def watch(self, fd: int) -> None:
        self._watched.add(fd)
        self._poller.register(fd, select.POLLIN)

    def close(self) -> None:
        if self._link is not None:
            self._link.flush()
            self._unplug()

    # ---- talking

    def _say(self) -> None:
        """Sends what there is to say, and tells whoever asked that this was all."""
        instance, link = self.instance, self._link
        if link is None:
            return
        if instance.asked_quiet and not instance.events and not instance.engine.busy:
            call_at = instance.calls.next_date()
            for question in instance.asked_quiet:
                instance.engine.answer_quiesce(question, None if call_at == inf else call_at)
            instance.asked_quiet.clear()
        messages = instance.engine.take()
        if messages:
            link.send(messages)
        wanted = select.POLLIN | (select.POLLOUT if link.wants_write else 0)
        if link.closed:
            self._fail("the connection was closed")
        elif wanted != self._mask:
            self._mask = wanted
            self._poller.modify(link.fileno(), wanted)
        for trouble in instance.engine.take_troubles() + instance.troubles:
            _log.warning("%s: %s", self.uri, trouble)
        instance.troubles.clear()

    def _wait(self) -> bool:
        """Waits for the broker, a call's date, the next try to connect, or a watched descriptor (then True)."""
        now = self._clock()
        if now >= self._retry_at:
            self._retry()
            return False
        if self._link is not None and self._link.has_more:
            self._hear()
            return False
        simulated = self.instance.told_now is not None
        until = self._retry_at if simulated else min(self.instance.calls.next_date(), self._retry_at)
        limit_ms = None if until == inf else max(0.0, (until - now) * 1000) + 1
        for fd, mask in self._poller.poll(limit_ms):
            if fd in self._watched:
                return True
            if self._link is not None and mask & select.POLLOUT:
                self._link.flush()
            if mask & ~select.POLLOUT:
                self._hear()
        return False

    def _hear(self) -> None:
        link = self._link
        if link is None:
            return
        engine = self.instance.engine
        for message in link.receive():
            if isinstance(message, BadFrame):
                _log.warning("%s: %s", self.uri, message.problem)
            else:
                engine.receive(message)
        events = engine.take_events()
        if events:
            self.instance.hear(self._now(), events)
        if engine.phase is Phase.ONLINE:
            self._backoff_s = FIRST_BACKOFF_S
        failed = next((event for event in events if isinstance(event, s.Failed)), None)
        if failed is not None:
            self._fail(failed.problem)
        elif link.closed:
            self._fail("the connection was closed")

    # ---- coming and going

    def _open(self) -> None:
        """Connects and shakes hands. Raises PeerError."""
        self._plug_patiently()
        deadline = self._clock() + HANDSHAKE_LIMIT_S
        engine = self.instance.engine
        while engine.phase is not Phase.ONLINE:
            self._say()
            if self._over:
                raise PeerError(self.uri, self._over)
            if self._clock() > deadline:
                self._unplug()
                raise PeerError(self.uri, f"no answer for {HANDSHAKE_LIMIT_S:g} s while {engine.phase.value}")
            if self._link is not None and (self._link.has_more or self._poller.poll(500)):
                self._hear()

    def _plug_patiently(self) -> None:
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                self._plug()
                return
            except PeerError as problem:
                if time.monotonic() > deadline:
                    raise
                _log.info("%s; trying again", problem)
                time.sleep(FIRST_BACKOFF_S)

    def _plug(self) -> None:
        link = connect(self.uri)
        self.instance.engine = SchedulerEngine(limit=self._limit, strict=self._strict)
        self._link = link
        self._mask = select.POLLIN
        self._poller.register(link.fileno(), select.POLLIN)
        self.instance.engine.begin()

    def _unplug(self) -> None:
        if self._link is not None:
            if not self._link.closed:
                self._poller.unregister(self._link.fileno())
            self._link.close()
            self._link = None

    def _fail(self, problem: str) -> None:
        link = self._link
        if link is None:
            return
        # a closed socket has no number any more; the poller forgets it by the one it had
        self._forget_closed()
        self._link = None
        if not link.closed:
            link.close()
        if self._begins is None or not self._reconnect:
            self._over = problem
            return
        _log.warning("%s: %s; trying again in %.1f s", self.uri, problem, self._backoff_s)
        now = self._clock()
        self.instance.lost(now, problem)
        self._retry_at = now + self._backoff_s
        self._backoff_s = min(2 * self._backoff_s, MOST_BACKOFF_S)

    def _forget_closed(self) -> None:
        self._poller = select.poll()
        for fd in self._watched:
            self._poller.register(fd, select.POLLIN)

    def _retry(self) -> None:
        self._retry_at = inf
        try:
            self._plug()
        except PeerError as problem:
            self._retry_at = self._clock() + self._backoff_s
            self._backoff_s = min(2 * self._backoff_s, MOST_BACKOFF_S)
            _log.warning("%s; trying again in %.1f s", problem, self._retry_at - self._clock())

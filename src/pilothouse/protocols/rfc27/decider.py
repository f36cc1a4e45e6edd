"""Decider `rfc27:PATH`: a Flux scheduler allocates for any world of ours; we are its broker and job manager.

The scheduler connects to the socket PATH as it would to a Flux broker. Options: `rfc27=1` (the specification's dialect
for everybody), `pace=DURATION` (how long a scheduler without sched.quiesce must be silent before simulated time goes
on), `key=FILE` (for tcp://host:port instead of PATH).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from pilothouse.core.contract import Traits
from pilothouse.formats import duration
from pilothouse.model.decisions import Reply, Wants
from pilothouse.model.errors import InputError, PeerError
from pilothouse.model.events import Batch, Begins
from pilothouse.protocols.rfc27.manager_adapter import ManagerAdapter
from pilothouse.protocols.rfc27.server import Server, open_server
from pilothouse.protocols.waiting import Waiting

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster

DEFAULT_PACE_S = 0.05
DEFAULT_TIMEOUT_S = 60.0
MOST_PACE_S = 3600.0


class Rfc27Decider:
    """One scheduler at a socket. It may crash and come back; what runs goes on."""

    traits = Traits(speaks_unasked=True, lost_nodes=False, estimates=False)

    def __init__(self, address: str, options: dict[str, str] | None = None, *, timeout: float | None = None) -> None:
        options = dict(options or {})
        self.name = f"rfc27:{address}"
        if not address:
            raise InputError("rfc27", "no socket is named", hint="for example rfc27:/tmp/sched.sock")
        self._address = address
        self._strict = options.pop("rfc27", "") == "1"
        self._pace_s = _seconds(options.pop("pace", str(DEFAULT_PACE_S)))
        self._key = options.pop("key", "")
        if options:
            raise InputError(self.name, f"unknown option {min(options)!r}", expected="rfc27, pace or key")
        self._limit_s = DEFAULT_TIMEOUT_S if timeout is None else timeout
        self._seat: ManagerAdapter | None = None
        self._server: Server | None = None
        self._waits = True
        self._question = 0

    def hello(self) -> Wants:
        return Wants()

    def begin(self, begins: Begins, cluster: Cluster) -> None:
        """Opens the socket, and waits for a scheduler that says that it is ready."""
        self._waits = begins.time_waits
        self._seat = seat = ManagerAdapter(begins, cluster, strict=self._strict, userid=os.geteuid())
        self._server = open_server(seat.broker, self._address, self._key, clock=lambda: seat.now)
        self._await_scheduler()

    def fileno(self) -> int:
        assert self._server is not None
        return self._server.fileno()

    def decide(self, batch: Batch) -> Reply:
        seat, server = self._seat, self._server
        assert seat is not None and server is not None
        seat.hear(batch)
        server.deliver()
        if self._waits or batch.waits:
            self._let_think()
        else:
            while server.step(0.0):
                pass
        return Reply(batch.now, seat.take_decisions())

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _await_scheduler(self) -> None:
        assert self._seat is not None and self._server is not None
        deadline = time.monotonic() + self._limit_s
        waiting = Waiting(f"a scheduler that connects to {self._address}")
        while not self._seat.manager.online:
            left = deadline - time.monotonic()
            if left <= 0:
                raise PeerError(self.name, f"no scheduler became ready within {self._limit_s:g} s")
            self._server.step(min(left, 0.5))
            self._seat.digest()
            waiting.still()

    def _let_think(self) -> None:
        """Simulated time: ask the scheduler to say when it is done; one that cannot is given time to be silent."""
        seat, server = self._seat, self._server
        assert seat is not None and server is not None
        deadline = time.monotonic() + self._limit_s
        while True:
            if not seat.manager.online:
                self._await_scheduler()
            self._question += 1
            seat.manager.ask_quiet(self._question, seat.now)
            seat.broker.flush(seat.now)
            before = seat.heard
            while seat.quiet_until < self._question and seat.manager.online:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise PeerError(self.name, f"silent for {self._limit_s:g} s", event="sched.quiesce")
                server.step(min(left, 0.5))
                seat.digest()
            if not seat.manager.online:
                continue
            if seat.says_quiet:
                # what it said meanwhile may have let more jobs be asked for
                if not seat.more_to_ask:
                    return
            elif not self._pause(deadline) and seat.heard == before and not seat.more_to_ask:
                return

    def _pause(self, deadline: float) -> bool:
        """Waits until nothing has come for the pace; whether anything came."""
        seat, server = self._seat, self._server
        assert seat is not None and server is not None
        came = False
        quiet_at = time.monotonic() + self._pace_s
        while (now := time.monotonic()) < quiet_at:
            if now > deadline:
                raise PeerError(self.name, f"not quiet within {self._limit_s:g} s")
            if server.step(quiet_at - now):
                came = True
                quiet_at = time.monotonic() + self._pace_s
            seat.digest()
        return came


def _seconds(text: str) -> float:
    seconds = duration.parse(text, where="pace")
    if not 0 < seconds < MOST_PACE_S:
        raise InputError("pace", "not a pace", expected="a duration such as 50ms", found=repr(text))
    return seconds

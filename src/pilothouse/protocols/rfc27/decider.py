"""Decider `rfc27:PATH`: a Flux scheduler allocates for any world of ours; we are its broker and job manager.

The scheduler connects to the UNIX socket PATH as it would to a Flux broker. Options: `rfc27=1` (the specification's
dialect for every scheduler), `pace=DURATION` (how long a scheduler without sched.quiesce must be silent before simulated
time goes on), `key=FILE` (for tcp://host:port instead of PATH).
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
from pilothouse.protocols.request_socket import Waiting
from pilothouse.protocols.rfc27.manager_adapter import ManagerAdapter
from pilothouse.protocols.rfc27.server import Server, open_server

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster

DEFAULT_PACE_S = 0.05
DEFAULT_TIMEOUT_S = 60.0
MOST_PACE_S = 3600.0


class Rfc27Decider:
    """One scheduler at a socket. It may crash and come back; running jobs go on."""

    traits = Traits(speaks_unasked=True, requeues=False, lost_nodes=False, estimates=False, memory=False)

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
        self._adapter: ManagerAdapter
        self._server: Server
        self._is_open = False
        self._waits = True
        self._question = 0

    def hello(self) -> Wants:
        return Wants()

    def begin(self, begins: Begins, cluster: Cluster) -> None:
        """Opens the socket, and waits until a scheduler is ready."""
        self._waits = begins.time_waits
        self._adapter = adapter = ManagerAdapter(begins, cluster, strict=self._strict, userid=os.geteuid())
        self._server = open_server(adapter.broker, self._address, self._key, clock=lambda: adapter.now)
        self._is_open = True
        self._await_scheduler()

    def fileno(self) -> int:
        return self._server.fileno()

    def decide(self, batch: Batch) -> Reply:
        self._adapter.handle(batch)
        self._server.deliver()
        if self._waits or batch.waits:
            self._await_answers()
        else:
            while self._server.step(0.0):
                pass
        return Reply(batch.now, self._adapter.take_decisions())

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._server.close()

    def _await_scheduler(self) -> None:
        deadline = time.monotonic() + self._limit_s
        waiting = Waiting(f"a scheduler that connects to {self._address}")
        while not self._adapter.manager.online:
            self._step(deadline, f"no scheduler became ready within {self._limit_s:g} s")
            waiting.still()

    def _await_answers(self) -> None:
        """Simulated time: asks the scheduler to confirm that it is done; one that cannot must be silent for a while."""
        adapter, manager = self._adapter, self._adapter.manager
        deadline = time.monotonic() + self._limit_s
        while True:
            if not manager.online:
                self._await_scheduler()
            self._question += 1
            manager.ask_quiet(self._question, adapter.now)
            adapter.broker.flush(adapter.now)
            before = adapter.answers
            while adapter.quiet_until < self._question and manager.online:
                self._step(deadline, f"silent for {self._limit_s:g} s", event="sched.quiesce")
            if not manager.online:
                continue
            # Answers that came meanwhile may allow more alloc requests.
            settled = adapter.says_quiet or (not self._pause(deadline) and adapter.answers == before)
            if settled and not adapter.more_to_ask:
                return

    def _pause(self, deadline: float) -> bool:
        """Waits until nothing has come for the pace; whether anything came."""
        came = False
        quiet_at = time.monotonic() + self._pace_s
        while (now := time.monotonic()) < quiet_at:
            if self._step(deadline, f"not quiet within {self._limit_s:g} s", most_s=quiet_at - now):
                came = True
                quiet_at = time.monotonic() + self._pace_s
        return came

    def _step(self, deadline: float, problem: str, *, event: str = "", most_s: float = 0.5) -> int:
        """One step of the server; the number of messages that came. Raises PeerError after the deadline."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise PeerError(self.name, problem, event=event)
        came = self._server.step(min(left, most_s))
        self._adapter.process_answers()
        return came


def _seconds(text: str) -> float:
    seconds = duration.parse(text, where="pace")
    if not 0 < seconds < MOST_PACE_S:
        raise InputError("pace", "not a pace", expected="a duration such as 50ms", found=repr(text))
    return seconds

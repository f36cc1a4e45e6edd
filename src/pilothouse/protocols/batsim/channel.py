"""The socket towards a scheduler: one request, one answer, and a clear error for everything else.

In: bytes to send. Out: the bytes of the answer. On the wire this is ZeroMQ's REQ (Batsim connects, the scheduler binds
REP).
"""

from __future__ import annotations

import time

from pilothouse.model.errors import PeerError
from pilothouse.protocols.batsim.codec import MOST_BYTES
from pilothouse.protocols.process import PeerProcess
from pilothouse.protocols.request_socket import SLICE_S, PeerLeft, RequestSocket
from pilothouse.protocols.waiting import Waiting
from pilothouse.protocols.zmtp import WireError

MOST_HANG_UPS = 20
"""So often may a peer hang up before it is ready: one that just ends may still listen, and another take its place."""

LAST_BREATH_S = 1.0
"""A process that closed its socket has mostly ended by then, and how it did says more."""


class SchedulerChannel:
    """Connects when it is first needed; the scheduler may come later. `timeout_s` 0 waits for ever, as Batsim does."""

    def __init__(self, endpoint: str, peer: str, *, timeout_s: float = 0.0, process: PeerProcess | None = None) -> None:
        self.peer = peer
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._process = process
        self._socket = RequestSocket(endpoint, MOST_BYTES)
        self._ready = False

    def exchange(self, request: bytes, last: bool = False) -> bytes:
        """Sends, and waits for the answer. Raises PeerError; but a peer that leaves on the last message gives none."""
        try:
            if not self._ready:
                self._connect()
            answer = self._socket.ask(request)
            return self._wait() if answer is None else answer
        except PeerLeft:
            if last:
                return b""
            if self._process is not None:
                self._process.check(self.peer, LAST_BREATH_S)
            raise PeerError(self.peer, "closed the connection while an answer was expected") from None
        except WireError as problem:
            raise PeerError(self.peer, str(problem)) from None

    def _connect(self) -> None:
        """Waits until somebody is there."""
        since = time.monotonic()
        waiting = Waiting(f"a scheduler that listens at {self._endpoint}")
        hang_ups = 0
        while not self._ready:
            asked_at = time.monotonic()
            try:
                self._ready = self._socket.connect()
            except PeerLeft:
                hang_ups += 1
                if hang_ups == MOST_HANG_UPS:
                    raise PeerError(self.peer, "hangs up on us", hint="is it a ZeroMQ REP socket?") from None
            if not self._ready:
                waiting.still()
                self._look_around(since)
                time.sleep(max(0.0, SLICE_S - (time.monotonic() - asked_at)))

    def _wait(self) -> bytes:
        """No answer yet: the peer takes its time, or is gone."""
        since = time.monotonic()
        while (answer := self._socket.receive()) is None:
            self._look_around(since)
        return answer

    def _look_around(self, since: float) -> None:
        """Nothing came for a while: is the peer still there?"""
        if self._process is not None:
            self._process.check(self.peer)
        if self._timeout_s and time.monotonic() - since > self._timeout_s:
            what = "did not answer" if self._ready else "could not be reached"
            raise PeerError(self.peer, f"{what} for {self._timeout_s:g} s")

    def close(self) -> None:
        """May be called twice."""
        self._socket.close()

"""The connection to a scheduler that binds a ZeroMQ REP socket: one request, one answer, a clear error for all else.

In: the bytes of a request. Out: the bytes of the answer. Used for schedulers of Batsim 2 to 4, and for decision components
of Batsim 5.
"""

from __future__ import annotations

import time

from pilothouse.model.errors import PeerError
from pilothouse.protocols.process import PeerProcess
from pilothouse.protocols.request_socket import SLICE_S, PeerLeft, RequestSocket
from pilothouse.protocols.waiting import Waiting
from pilothouse.protocols.zmtp import WireError

MOST_BYTES = 32 * 2**20
"""Limit of an answer, unless another one is given."""
MOST_HANG_UPS = 20
"""Limit of connections that the peer closes before it is ready: one that is ending may still listen for a while."""

LAST_BREATH_S = 1.0
"""How long to wait for the exit code of a process that closed its socket: it explains more."""


class RequestChannel:
    """Connects with the first request, and waits for the scheduler. `timeout_s` 0: no limit, as in Batsim."""

    def __init__(
        self,
        endpoint: str,
        peer: str,
        *,
        most_bytes: int = MOST_BYTES,
        timeout_s: float = 0.0,
        process: PeerProcess | None = None,
    ) -> None:
        self.peer = peer
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._process = process
        self._socket = RequestSocket(endpoint, most_bytes)
        self._ready = False

    def exchange(self, request: bytes, last: bool = False) -> bytes:
        """Sends a request and waits for the answer. Raises PeerError. If the peer closes the connection on the last
        message, the answer is empty."""
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
        """Waits until a scheduler listens."""
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
                self._check_peer(since)
                time.sleep(max(0.0, SLICE_S - (time.monotonic() - asked_at)))

    def _wait(self) -> bytes:
        """Waits for an answer that did not come at once."""
        since = time.monotonic()
        while (answer := self._socket.receive()) is None:
            self._check_peer(since)
        return answer

    def _check_peer(self, since: float) -> None:
        """Raises PeerError if the process has ended or the time is over."""
        if self._process is not None:
            self._process.check(self.peer)
        if self._timeout_s and time.monotonic() - since > self._timeout_s:
            what = "did not answer" if self._ready else "could not be reached"
            raise PeerError(self.peer, f"{what} for {self._timeout_s:g} s")

    def close(self) -> None:
        """May be called twice."""
        self._socket.close()

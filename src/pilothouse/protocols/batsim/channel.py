"""The socket towards a scheduler: one request, one answer, and a clear error for everything else.

In: bytes to send. Out: the bytes of the answer. On the wire this is ZeroMQ's REQ (Batsim connects, the scheduler binds
REP). The socket is a DEALER that adds REQ's empty frame itself, because a REQ silently drops a second answer, and we
want to name whoever sends one.
"""

from __future__ import annotations

import time

import zmq
from zmq.utils.monitor import recv_monitor_message

from pilothouse.model.errors import InputError, PeerError
from pilothouse.protocols.batsim.codec import MOST_BYTES
from pilothouse.protocols.process import PeerProcess

_READABLE = int(zmq.POLLIN)
_SLICE_MS = 100
"""How often a waiting end looks whether the peer is still there."""


class SchedulerChannel:
    """Connects at once; the scheduler may come later. `timeout_s` 0 waits for ever, as Batsim does."""

    def __init__(
        self, endpoint: str, peer: str, *, timeout_s: float = 0.0, process: PeerProcess | None = None
    ) -> None:
        self.peer = peer
        self._timeout_s = timeout_s
        self._process = process
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.rcvtimeo = _SLICE_MS
        self._socket.maxmsgsize = 4 * MOST_BYTES
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_CONNECTED)
        self._monitor.linger = 0
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError as problem:
            self.close()
            raise InputError("socket endpoint", f"{endpoint!r}: {problem}", hint="e.g. tcp://localhost:28000") from None
        self._connected = self._lost = False
        self._spoken = False

    def exchange(self, request: bytes, *, last: bool = False) -> bytes:
        """Sends, and waits for the answer. Raises PeerError; but a peer that leaves on the last message gives none."""
        socket = self._socket
        if self._spoken and int(socket.get(zmq.EVENTS)) & _READABLE:
            raise PeerError(self.peer, "answered more than once to one message")
        self._spoken = True
        socket.send(b"", zmq.SNDMORE)
        socket.send(request)
        waited_since = time.monotonic()
        while True:
            try:
                delimiter = socket.recv()
            except zmq.Again:
                if self._is_gone() and last:
                    return b""
                self._look_around(waited_since)
                continue
            try:
                # Whatever follows the second frame is still there when the next message is sent.
                answer = b"" if delimiter else socket.recv()
            except zmq.Again:
                answer = b""
            if not answer:
                raise PeerError(self.peer, "sent something that is no answer", hint="is it a REP socket?")
            return answer

    def _is_gone(self) -> bool:
        """Whether the peer has closed the connection and left nothing to read."""
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)["event"]
            self._lost = event != zmq.EVENT_CONNECTED and self._connected
            self._connected = self._connected or event == zmq.EVENT_CONNECTED
        return self._lost and not self._socket.poll(0)

    def _look_around(self, waited_since: float) -> None:
        """Nothing came for a while: is the peer still there?"""
        if self._is_gone():
            raise PeerError(self.peer, "closed the connection while an answer was expected")
        if self._process is not None:
            self._process.check(self.peer)
        waited = time.monotonic() - waited_since
        if self._timeout_s and waited > self._timeout_s:
            what = "did not answer" if self._connected else "could not be reached"
            raise PeerError(self.peer, f"{what} for {self._timeout_s:g} s")

    def close(self) -> None:
        """May be called twice."""
        if not self._socket.closed:
            self._socket.disable_monitor()
            self._monitor.close(0)
            self._socket.close(0)
            self._context.term()

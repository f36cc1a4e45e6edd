"""ZeroMQ REQ sockets without libzmq, and the connection to a scheduler that binds a REP socket.

RequestSocket: one request, one answer over ZMTP (zmtp.py). RequestChannel: the same towards a scheduler of Batsim 2 to 4 or
a decision component of Batsim 5, with a clear error for everything else. In: the bytes of a request. Out: those of the answer.

libzmq passes every message to a thread of its own, which costs more than the rest of a simulation's turn. It also hides the
errors that we report: a peer that has left, is of the wrong kind, answers twice, or answers with too many bytes.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import time
from collections.abc import Callable
from errno import EAGAIN, ECONNABORTED, ECONNREFUSED, ECONNRESET, EHOSTUNREACH, ENETUNREACH, ENOENT, EPIPE, ETIMEDOUT
from fcntl import ioctl
from termios import FIONREAD
from typing import Any

from pilothouse.model.errors import InputError, PeerError
from pilothouse.model.numerals import whole_number
from pilothouse.protocols.process import PeerProcess
from pilothouse.protocols.zmtp import CHUNK, GREETING, READY, Reader, WireError, request_of

SLICE_S = 0.1
"""Limit of the time that a call blocks."""

CONNECT_S = 5.0
"""Limit of the time that connecting to another host blocks."""

PATIENCE_S = 3.0
"""The notice that we wait for a peer comes after this time, and at a terminal sooner."""
AT_A_TERMINAL_S = 1.0

_NOT_LISTENING = frozenset(
    (EAGAIN, ECONNABORTED, ECONNREFUSED, ECONNRESET, EHOSTUNREACH, ENETUNREACH, ENOENT, EPIPE, ETIMEDOUT)
)
_NOTHING = bytes(4)


class PeerLeft(Exception):
    """The connection is closed."""


class Waiting:
    """Call `still()` while waiting: the notice is printed once, on stderr, when it is due."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._tell_at = time.monotonic() + (AT_A_TERMINAL_S if sys.stderr.isatty() else PATIENCE_S)

    def still(self) -> None:
        if time.monotonic() >= self._tell_at:
            self._tell_at = float("inf")
            print(f"pilothouse: waiting for {self._what}", file=sys.stderr, flush=True)


class RequestSocket:
    """`connect` until it returns True; then one request, one answer."""

    def __init__(self, endpoint: str, most_bytes: int) -> None:
        self._endpoint = endpoint
        self._family, self._address = _address(endpoint)
        self._most_bytes = most_bytes
        self._socket: socket.socket | None = None
        self._reader = Reader(most_bytes)
        self._owes_ready = True
        self._number = -1
        self._send: Callable[[bytes], int]
        self._recv: Callable[[int], bytes]
        self._unsent = b""
        self._is_clean = True

    @property
    def is_connected(self) -> bool:
        """Whether the peer has said that it answers requests."""
        return bool(self._reader.peer_kind)

    def connect(self) -> bool:
        """One attempt, or one more slice of one. Raises InputError, WireError, and PeerLeft: closed before it was ready."""
        if self._socket is None:
            self._socket = self._open()
        if self._socket is None:
            return False
        came = self._read()
        self._next()
        # libzmq closes the connection on a READY of the wrong kind before it sends its own, so we wait for its READY
        # first; but not for ever, because it may wait for ours.
        if self._owes_ready and (self.is_connected or not came):
            self._owes_ready = False
            self._socket.sendall(READY)
        return self.is_connected

    def _open(self) -> socket.socket | None:
        opened = socket.socket(self._family, socket.SOCK_STREAM)
        try:
            opened.settimeout(CONNECT_S)
            opened.connect(self._address)
            opened.settimeout(None)
            slice_ = struct.pack("ll", int(SLICE_S), int(SLICE_S % 1 * 1e6))
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, slice_)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, slice_)
            if self._family != socket.AF_UNIX:
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.sendall(GREETING)
        except OSError as problem:
            opened.close()
            if isinstance(problem, TimeoutError) or problem.errno in _NOT_LISTENING:
                return None
            raise InputError("socket endpoint", f"{self._endpoint!r}: {problem.strerror or problem}") from None
        self._reader = Reader(self._most_bytes)
        self._owes_ready = True
        self._number = opened.fileno()
        self._send, self._recv = opened.send, opened.recv
        self._unsent = b""
        return opened

    def fileno(self) -> int:
        return self._number

    def ask(self, body: bytes) -> bytes | None:
        """Sends a request, and waits a slice for the answer. None: not yet, call receive(). Raises PeerLeft, WireError."""
        if not self._is_clean or ioctl(self._number, FIONREAD, _NOTHING) != _NOTHING:
            raise WireError("answered more than once to one message")
        request = request_of(body)
        try:
            sent = self._send(request)
        except BlockingIOError:
            sent = 0
        except ConnectionError:
            raise PeerLeft from None
        if sent != len(request):
            self._unsent = request[sent:]
            return None
        try:
            data = self._recv(CHUNK)
        except BlockingIOError:
            return None
        except ConnectionError:
            raise PeerLeft from None
        size = len(data)
        if size > 4 and size == data[3] + 4 and data[:3] == b"\x01\x00\x00":
            return data[4:]  # The usual answer: one short read, one frame, no buffer.
        return self._take(data)

    def receive(self) -> bytes | None:
        """The answer; None: not yet, or the request is not sent completely yet. Raises PeerLeft, WireError."""
        if self._unsent:
            self._send_rest()
            return None
        try:
            data = self._recv(CHUNK if self._is_clean else self._reader.missing())
        except BlockingIOError:
            return None
        except ConnectionError:
            raise PeerLeft from None
        return self._take(data)

    def _take(self, data: bytes) -> bytes | None:
        """Takes bytes that were read: an answer, a part of one, or none (the end)."""
        if not data:
            self.close()
            raise PeerLeft
        size = len(data)
        if self._is_clean and 11 < size == int.from_bytes(data[3:11], "big") + 11 and data[:3] == b"\x01\x00\x02":
            return data[11:]  # A long frame in one read.
        self._reader.feed(data)
        parts = self._next()
        if parts is None:
            return None
        if len(parts) != 2 or parts[0] or not parts[1]:
            raise WireError("sent something that is no answer (is it a REP socket?)")
        return parts[1]

    def _send_rest(self) -> None:
        try:
            sent = self._send(self._unsent)
        except BlockingIOError:
            return
        except ConnectionError:
            raise PeerLeft from None
        self._unsent = self._unsent[sent:]

    def _read(self) -> bool:
        """Reads what there is, and waits at most a slice for it; False: nothing came."""
        assert self._socket is not None
        try:
            data = self._socket.recv(self._reader.missing())
        except BlockingIOError:
            return False
        except ConnectionError:
            data = b""
        if not data:
            self.close()
            raise PeerLeft
        self._reader.feed(data)
        return True

    def _next(self) -> list[bytes] | None:
        """The next message, if it is complete. Answers PINGs."""
        parts = self._reader.message()
        self._is_clean = self._reader.is_clean
        if self._reader.wants_pong and self._socket is not None:
            pong, self._reader.wants_pong = self._reader.wants_pong, b""
            with contextlib.suppress(OSError):
                self._socket.sendall(pong)
        return parts

    def close(self) -> None:
        """May be called twice; a later connect() starts again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _address(endpoint: str) -> tuple[int, Any]:
    """Family and address of `tcp://HOST:PORT` or `ipc://PATH`. Raises InputError."""
    scheme, _, rest = endpoint.partition("://")
    if scheme == "ipc" and rest:
        return socket.AF_UNIX, b"\0" + rest[1:].encode() if rest.startswith("@") else rest
    host, _, number = rest.rpartition(":")
    port = whole_number(number) or 0
    if scheme != "tcp" or host in ("", "*") or not 0 < port < 65536:
        expected = "tcp://HOST:PORT or ipc://PATH"
        raise InputError("socket endpoint", repr(endpoint), expected=expected, hint="e.g. tcp://localhost:28000")
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except OSError as problem:
        raise InputError("socket endpoint", f"{endpoint!r}: {problem.strerror}") from None
    # A ZeroMQ socket binds to IPv4 by default.
    family, _, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    return family, address


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
        self.ready = False
        """Whether the scheduler has been reached."""

    def exchange(self, request: bytes, last: bool = False) -> bytes:
        """Sends a request and waits for the answer. Raises PeerError. If the peer closes the connection on the last
        message, the answer is empty."""
        try:
            if not self.ready:
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
        while not self.ready:
            asked_at = time.monotonic()
            try:
                self.ready = self._socket.connect()
            except PeerLeft:
                hang_ups += 1
                if hang_ups == MOST_HANG_UPS:
                    raise PeerError(self.peer, "hangs up on us", hint="is it a ZeroMQ REP socket?") from None
            if not self.ready:
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
            what = "did not answer" if self.ready else "could not be reached"
            raise PeerError(self.peer, f"{what} for {self._timeout_s:g} s")

    def close(self) -> None:
        """May be called twice."""
        self._socket.close()

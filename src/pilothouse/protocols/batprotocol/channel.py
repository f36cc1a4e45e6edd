"""Channels to a decision component: a library in this process, a library in a child process, or a ZeroMQ peer.

In: init data, then serialised messages. Out: flags and hello, then replies. PeerError if the component crashes, returns
an error, gives a wrong buffer, does not answer or is not there.
"""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from pilothouse.model.errors import PeerError
from pilothouse.protocols.batprotocol import library_host
from pilothouse.protocols.batprotocol.library_host import (
    HEAD,
    MOST_BYTES,
    CLibrary,
    LibraryProblem,
    ReturnedError,
    receive_exactly,
)
from pilothouse.protocols.request_socket import RequestChannel

try:
    from pilothouse.protocols.batprotocol import _codec
except ImportError:  # ctypes does the same.
    _codec = None  # type: ignore[assignment]

SILENCE_S = 600.0
"""A component that does not answer for this long is an error, unless the user sets another limit."""
END_S = 5.0
"""How long a child process may take to end after its last answer."""


NEEDS_INIT = "; if it wants an init string, give it one: edc:LIBRARY?init=STRING (often init={}) or ?init_file=FILE"
"""What to do about a component that does not start with an empty init string."""


class Channel(Protocol):
    """A way to one decision component."""

    name: str

    def hello(self, init: bytes) -> tuple[int, bytes]:
        """Sends the init data; returns the flags and the serialised hello."""
        ...

    def exchange(self, message: bytes) -> bytes:
        """One request, one reply."""
        ...

    def close(self) -> None:
        """Ends the conversation. May be called twice, and after an error."""
        ...


class InProcessLibrary:
    """The component is loaded into this process: a call costs a microsecond, and its crash is ours."""

    def __init__(self, path: str, method: str = "dlopen") -> None:
        self.name = Path(path).name
        self._path = path
        self._method = method
        self._library: CLibrary | None = None
        self._address = 0

    def hello(self, init: bytes) -> tuple[int, bytes]:
        try:
            self._library = CLibrary(self._path, self._method)
            hello = self._library.init(init)
            if _codec is not None:
                self._address = self._library.address
            return hello
        except LibraryProblem as problem:
            needs = NEEDS_INIT if isinstance(problem, ReturnedError) and not init else ""
            raise PeerError(self.name, f"{problem}{needs}") from None

    def exchange(self, message: bytes) -> bytes:
        if self._address:
            answer = _codec.take_decisions(self._address, message)
            if isinstance(answer, bytes):
                return answer
            wrong = "gave no buffer, or too large a one" if answer is None else f"returned {answer}"
            raise PeerError(self.name, f"batsim_edc_take_decisions {wrong}")
        if self._library is None:
            raise PeerError(self.name, "called before its hello, or after its end")
        try:
            return self._library.take_decisions(message)
        except LibraryProblem as problem:
            raise PeerError(self.name, str(problem)) from None

    def close(self) -> None:
        library, self._library = self._library, None
        self._address = 0
        if library is not None:
            try:
                library.deinit()
            except LibraryProblem as problem:
                raise PeerError(self.name, str(problem)) from None


class ChildLibrary:
    """The component is loaded by a child process and called over a socket pair: its crash is an error, not the end of us.

    A component that does not start with an empty init string gets another try with `or_init`.
    """

    def __init__(
        self, path: str, method: str = "dlopen", silence_s: float = SILENCE_S, *, or_init: bytes = b""
    ) -> None:
        self.name = Path(path).name
        self._path = path
        self._method = method
        self._silence_s = silence_s
        self._or_init = or_init
        self._child: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._failed = False

    def hello(self, init: bytes) -> tuple[int, bytes]:
        try:
            return self._start(init)
        except PeerError as problem:
            if init:
                raise
            first = problem
        if self._or_init:
            self._end(kill=True)
            try:
                hello = self._start(self._or_init)
            except PeerError:
                pass
            else:
                given = self._or_init.decode()
                sys.stderr.write(f"{self.name}: does not start with an empty init string; it was given {given}\n")
                return hello
        raise PeerError(self.name, f"{first.problem}{NEEDS_INIT}") from None

    def _start(self, init: bytes) -> tuple[int, bytes]:
        self._failed = False
        ours, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            program = [sys.executable, "-P", library_host.__file__, self._path, self._method, str(number)]
            self._child = subprocess.Popen(program, pass_fds=(number,), stdin=subprocess.DEVNULL)
        self._link = ours
        ours.settimeout(self._silence_s or None)
        return self._call(b"I", init)

    def exchange(self, message: bytes) -> bytes:
        return self._call(b"T", message)[1]

    def _call(self, kind: bytes, payload: bytes) -> tuple[int, bytes]:
        link = self._link
        if link is None:
            raise PeerError(self.name, "called before its hello, or after its end")
        try:
            link.sendall(HEAD.pack(kind, 0, len(payload)) + payload)
            head = receive_exactly(link, HEAD.size)
            if len(head) < HEAD.size:
                raise self._death()
            sign, number, size = HEAD.unpack(head)
            if size > MOST_BYTES:
                raise PeerError(self.name, f"a reply of {size} bytes")
            answer = receive_exactly(link, size) if size else b""
        except TimeoutError:
            self._end(kill=True)
            raise PeerError(self.name, f"no answer within {self._silence_s:g} s") from None
        except (BrokenPipeError, ConnectionResetError):
            raise self._death() from None
        if sign != b"=":
            self._failed = True
            raise PeerError(self.name, answer.decode(errors="replace"))
        return number, answer

    def _death(self) -> PeerError:
        code = self._end(kill=False)
        if code < 0:
            return PeerError(self.name, f"the component crashed ({signal.Signals(-code).name})")
        return PeerError(self.name, f"the component ended its process with code {code}")

    def _end(self, kill: bool) -> int:
        """Closes the link and waits for the child (or kills it); returns its exit code."""
        link, self._link = self._link, None
        child, self._child = self._child, None
        if link is not None:
            link.close()
        if child is None:
            return 0
        if not kill:
            try:
                return child.wait(END_S)
            except subprocess.TimeoutExpired:
                pass
        child.kill()
        return child.wait()

    def close(self) -> None:
        """Errors at the end are reported only if there was none before."""
        if self._link is None or self._failed:
            self._end(kill=True)
            return
        try:
            self._link.settimeout(END_S)
            self._call(b"Q", b"")
        finally:
            self._end(kill=False)


class ZmqPeer:
    """The component is a process that binds a ZeroMQ REP socket."""

    def __init__(self, endpoint: str, silence_s: float = SILENCE_S) -> None:
        self.name = endpoint
        self._channel = RequestChannel(endpoint, endpoint, most_bytes=MOST_BYTES, timeout_s=silence_s)
        self.exchange = self._channel.exchange
        self.close = self._channel.close

    def hello(self, init: bytes) -> tuple[int, bytes]:
        reply = self.exchange(struct.pack("<I", len(init)) + init)
        if len(reply) < 4:
            raise PeerError(self.name, f"its hello has {len(reply)} bytes, not even the four of its flags")
        (flags,) = struct.unpack_from("<I", reply)
        return int(flags), reply[4:]

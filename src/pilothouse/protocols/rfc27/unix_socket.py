"""RFC 3 messages on UNIX sockets: a connection, and the listener of the broker.

The server's first byte is 0 or an errno. Only the owner may connect: the socket has mode 0700, and the listener asks the
kernel for the peer's user.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from collections import deque
from pathlib import Path

from pilothouse.model.errors import InputError, PeerError
from pilothouse.protocols.rfc27 import frames
from pilothouse.protocols.rfc27.frames import BadFrame, Message, StreamReader

MOST_READ_BYTES = 1 << 18
MOST_UNSENT_BYTES = 256 * 1024 * 1024
"""The connection is closed when the peer leaves more than this unread."""
HANDSHAKE_LIMIT_S = 10.0


class Connection:
    """One non-blocking stream of messages."""

    def __init__(self, stream: socket.socket, name: str) -> None:
        self.name = name
        self.closed = False
        self.unsent_bytes = 0
        self._stream = stream
        self._stream.setblocking(False)
        self._reader = StreamReader()
        self._unsent: deque[bytes] = deque()

    def fileno(self) -> int:
        return self._stream.fileno()

    @property
    def wants_write(self) -> bool:
        return bool(self._unsent)

    @property
    def has_more(self) -> bool:
        """A poll reports unread bytes as long as there are any."""
        return False

    def send(self, messages: list[Message]) -> None:
        """Queues and tries to send. The next `receive` notices a lost peer."""
        if not messages or self.closed:
            return
        data = b"".join(map(frames.encode, messages))
        self._unsent.append(data)
        self.unsent_bytes += len(data)
        self.flush()

    def flush(self) -> None:
        while self._unsent and not self.closed:
            data = self._unsent[0]
            try:
                count = self._stream.send(data)
            except BlockingIOError:
                break
            except OSError:
                self.close()
                break
            self.unsent_bytes -= count
            if count == len(data):
                self._unsent.popleft()
            else:
                self._unsent[0] = data[count:]
        if self.unsent_bytes > MOST_UNSENT_BYTES:
            self.close()

    def receive(self) -> list[Message | BadFrame]:
        """The messages that have arrived. `closed` is set at the end of the stream."""
        if self.closed:
            return []
        try:
            data = self._stream.recv(MOST_READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.close()
            return []
        found = self._reader.feed(data)
        if found and isinstance(found[-1], BadFrame) and found[-1].fatal:
            self.close()
        return found

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._unsent.clear()
            self._stream.close()


class Listener:
    """A listening socket at `path` that only its owner may use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
            raise InputError(str(path), "exists and is not a socket")
        if len(os.fsencode(path)) > 107:
            raise InputError(str(path), "too long for a UNIX socket", expected="at most 107 bytes")
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # bind() creates the file with the rights of the umask.
        before = os.umask(0o077)
        try:
            self._socket.bind(str(path))
        except OSError as problem:
            raise InputError(str(path), f"cannot listen there: {problem.strerror}") from None
        finally:
            os.umask(before)
        path.chmod(0o700)
        self._socket.listen(64)
        self._socket.setblocking(False)
        self._count = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def accept(self) -> Connection | None:
        """The next connection of our own user; None: there is none, or it was refused."""
        try:
            stream, _ = self._socket.accept()
        except (BlockingIOError, ConnectionError):
            return None
        pid, uid, _ = struct.unpack("3i", stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        welcome = uid in (os.geteuid(), 0)
        try:
            stream.send(b"\0" if welcome else bytes((errno.EPERM,)))
        except OSError:
            # The peer has already left.
            welcome = False
        if not welcome:
            stream.close()
            return None
        self._count += 1
        return Connection(stream, f"scheduler {self._count} (pid {pid})")

    def close(self) -> None:
        self._socket.close()
        self.path.unlink(missing_ok=True)


def connect(uri: str) -> Connection:
    """Connects to `local:///path` (or a path). Raises PeerError."""
    path = uri.removeprefix("local://")
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stream.settimeout(HANDSHAKE_LIMIT_S)
    try:
        stream.connect(path)
        greeting = stream.recv(1)
    except OSError as problem:
        stream.close()
        raise PeerError(uri, f"cannot connect: {problem.strerror or problem}") from None
    if greeting != b"\0":
        stream.close()
        reason = os.strerror(greeting[0]) if greeting else "closed the connection"
        raise PeerError(uri, f"refuses us: {reason}")
    return Connection(stream, uri)

"""The key-value service of a run: a thread with sockets around KeyValueStore and RequestReader.

In: where to listen, whom to trust, a shelf for the values. Out: `address` for the clients; put, replace and listen for the
driver in the same process (any thread). It listens on loopback unless told otherwise.

A connection is served if its other end is trusted (`trusts`) or when it has shown the secret. Connections that still owe the
secret are limited in number and time, and so are connections in all: where no descriptor is left, the service accepts none for
a moment. A client that breaks the protocol loses its connection; the others go on.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable

from pilothouse.access.peer import Peer, Whose, hold_ends, peer_of, release_end
from pilothouse.model.errors import InputError
from pilothouse.worlds.live.services.kvs import TEXT, KeyValueStore, Reader, Shelf, ShelfError, Value
from pilothouse.worlds.live.services.kvs_wire import Request, RequestReader, SecretOwed, WireError, sized, value_reply

MOST_CONNECTIONS = 20_000
MOST_UNSENT_BYTES = 2 << 30
"""A client that asks for more than this without reading is cut off."""

MOST_STRANGERS = 512
"""Connections that owe the secret. When there are more, the oldest is closed."""
SECRET_WITHIN_S = 10.0
"""How long a connection may owe the secret."""
PAUSE_S = 0.2
"""How long no connection is accepted after there was no descriptor for one."""
ACCEPT_AT_ONCE = 64
SAY_AGAIN_S = 60.0
"""A refusal is logged once in this time; the count of those in between is logged with the next one."""

_RECEIVE_BYTES = 1 << 18
_SEND_BYTES = 1 << 20
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
log = logging.getLogger("pilothouse.kvs")


def only_us(peer: Peer) -> bool:
    """Trusts programs of this user (and of root) on this host."""
    return peer.whose is Whose.OURS


def everyone(peer: Peer) -> bool:
    return True


def nobody(peer: Peer) -> bool:
    return False


class _Complaints:
    """Logs each kind of complaint once a minute, so that many refused connections do not fill the disk."""

    def __init__(self) -> None:
        self._quiet_until: dict[str, float] = {}
        self._kept_back: dict[str, int] = {}

    def say(self, kind: str, detail: object) -> None:
        now = time.monotonic()
        if now < self._quiet_until.get(kind, 0.0):
            self._kept_back[kind] = self._kept_back.get(kind, 0) + 1
            return
        self._quiet_until[kind] = now + SAY_AGAIN_S
        more = self._kept_back.pop(kind, 0)
        log.warning("key-value service: %s: %s%s", kind, detail, f" (and {more} others before)" if more else "")


class _Connection:
    def __init__(self, sock: socket.socket, peer: Peer, secret_first: bool) -> None:
        self.sock = sock
        self.peer = str(peer)
        self.unknown = peer.whose is Whose.UNKNOWN
        self.since = time.monotonic()
        self.requests = RequestReader(secret_first=secret_first)
        self.unsent = bytearray()
        self.reader: Reader | None = None
        self.closing = False


class KvsServer:
    """Start it, hand out `address`, close it. Also a context manager."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        secret: str = "",
        trusts: Callable[[Peer], bool] | None = None,
        shelf: Shelf | None = None,
        advertised_host: str = "",
    ) -> None:
        """`trusts`: whom to serve without the secret. By default only_us, or nobody if there is a secret."""
        self._secret = secret.encode()
        self._trusts = trusts or (nobody if secret else only_us)
        self._strangers: dict[_Connection, None] = {}
        """Connections that owe the secret, oldest first."""
        self.refused = 0
        """Connections without the secret that were of no known owner: a client that closed before the kernel was asked (Linux
        before 6.17), or a stranger. What they had put is lost."""
        self._complaints = _Complaints()
        self._accept_again_at = 0.0
        self._lock = threading.RLock()
        self._store = KeyValueStore(shelf)
        self._selector = selectors.DefaultSelector()
        self._connections: set[_Connection] = set()
        self._running = True
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._listener.bind((host, port))
        except OSError as error:
            self._listener.close()
            raise InputError(f"{host}:{port}", f"the key-value service cannot listen here: {error.strerror}") from error
        hold_ends(self._listener)  # clients of disBatch connect, put and close: their owner must still be known then
        self._listener.listen(1024)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self.host = advertised_host or host
        self.address = f"{self.host}:{self.port}"
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="kvs", daemon=True)
        self._thread.start()

    def __enter__(self) -> KvsServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all connections and the thread."""
        if self._running:
            self._running = False
            with contextlib.suppress(OSError):  # the thread was awake, and has closed it
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join()

    def put(self, key: str, data: bytes, coding: bytes = TEXT) -> None:
        """Puts a value, or logs why it could not: a run goes on without its monitors."""
        self._do(self._store.put, key, Value(coding, data))

    def replace(self, key: str, data: bytes, coding: bytes = TEXT) -> None:
        """Makes this the key's only value."""
        self._do(self._store.replace, key, Value(coding, data))

    def _do(self, action: Callable[[bytes, Value], None], key: str, value: Value) -> None:
        try:
            with self._lock:
                action(key.encode(), value)
        except ShelfError as error:
            log.warning("nothing was put under %r: %s", key, error)

    def listen(self, key: str, receive: Callable[[Value], None]) -> None:
        """Takes every value that comes under the key and hands it to `receive` (in the service's thread). A WireError that it
        raises closes the connection from which the value came.
        """
        name = key.encode()

        def deliver(value: Value) -> None:
            try:
                receive(value)
            finally:
                self._store.read(Reader(name, True, deliver))

        with self._lock:
            while (early := self._store.shelf.pop_oldest(name)) is not None:
                receive(early)
            self._store.read(Reader(name, True, deliver))

    def _run(self) -> None:
        while self._running:
            events = self._selector.select(self._wait_s())
            with self._lock:
                self._end_strangers()
                if self._accept_again_at and time.monotonic() >= self._accept_again_at:
                    self._accept_again_at = 0.0
                    self._selector.register(self._listener, selectors.EVENT_READ)
                # What has come on connections goes first: it may show who they are.
                for key, mask in events:
                    if key.data in self._connections:
                        self._serve(key.data, mask)
                if any(key.fileobj is self._listener for key, _ in events):
                    self._accept()
        with self._lock:
            for connection in list(self._connections):
                self._send(connection)
                self._drop(connection)
        self._listener.close()
        self._selector.close()

    def _wait_s(self) -> float | None:
        """Until a stranger has to go, or connections are accepted again. None: without limit."""
        dates = [self._accept_again_at] if self._accept_again_at else []
        if self._strangers:
            dates.append(next(iter(self._strangers)).since + SECRET_WITHIN_S)
        return max(0.0, min(dates) - time.monotonic()) if dates else None

    def _end_strangers(self) -> None:
        late = time.monotonic() - SECRET_WITHIN_S
        while self._strangers and next(iter(self._strangers)).since <= late:
            connection = next(iter(self._strangers))
            self._complaints.say(f"no secret came within {SECRET_WITHIN_S:g} s", connection.peer)
            self._drop(connection)

    def _accept(self) -> None:
        for _ in range(ACCEPT_AT_ONCE):
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if self._running and error.errno in _NO_DESCRIPTOR:
                    self._complaints.say("no connection can be accepted", error.strerror)
                    self._selector.unregister(self._listener)
                    self._accept_again_at = time.monotonic() + PAUSE_S
                    if self._strangers:
                        self._drop(next(iter(self._strangers)))
                elif self._running:
                    self._complaints.say("a client went away while it connected", error)
                return
            self._welcome(sock)

    def _welcome(self, sock: socket.socket) -> None:
        peer = peer_of(sock)
        release_end(sock)
        trusted = self._trusts(peer)
        if not trusted and not self._secret:
            self.refused += peer.whose is Whose.UNKNOWN
            self._complaints.say(f"refused a connection of {peer.whose.value}", peer)
            sock.close()
            return
        if len(self._connections) >= MOST_CONNECTIONS:
            self._complaints.say(f"refused a connection, there are {MOST_CONNECTIONS}", peer)
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(sock, peer, not trusted)
        self._connections.add(connection)
        self._selector.register(sock, selectors.EVENT_READ, connection)
        if not trusted:
            self._strangers[connection] = None
            if len(self._strangers) > MOST_STRANGERS:
                oldest = next(iter(self._strangers))
                self._complaints.say(f"more than {MOST_STRANGERS} connections owe the secret; closed the oldest", oldest.peer)
                self._drop(oldest)

    def _serve(self, connection: _Connection, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._selector.modify(connection.sock, selectors.EVENT_READ, connection)
            self._send(connection)
        if not mask & selectors.EVENT_READ or connection not in self._connections:
            return
        try:
            data = connection.sock.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(connection)
            return
        try:
            for request in connection.requests.feed(data):
                self._answer(connection, request)
                if connection.closing:
                    break
        except (WireError, ShelfError) as error:
            self.refused += isinstance(error, SecretOwed) and connection.unknown
            self._complaints.say(f"closed a connection ({error})", connection.peer)
            self._drop(connection)

    def _answer(self, connection: _Connection, request: Request) -> None:
        if request.op == b"auth":
            if not hmac.compare_digest(request.key, self._secret) and self._secret:
                raise WireError("wrong secret")
            connection.requests.unlocked = True
            self._strangers.pop(connection, None)
        elif request.op == b"put_":
            self._store.put(request.key, request.value)
        elif request.op in (b"get_", b"view"):
            # A reply that comes late could not be told from the next one, so a new read ends the one before it.
            if connection.reader is not None:
                self._store.cancel(connection.reader)
            connection.reader = Reader(request.key, request.op == b"get_", self._delivery(connection))
            self._store.read(connection.reader)
        elif request.op == b"mkey":
            self._store.watch(request.key, request.value.data)
        elif request.op == b"dump":
            self._reply(connection, sized(self._store.dump()))
        else:
            connection.closing = True
            self._send(connection)

    def _delivery(self, connection: _Connection) -> Callable[[Value], None]:
        def deliver(value: Value) -> None:
            connection.reader = None
            self._reply(connection, value_reply(value))

        return deliver

    def _reply(self, connection: _Connection, data: bytes) -> None:
        """From any thread, with the lock held. What the client does not take at once is sent when it reads."""
        blocked = bool(connection.unsent)
        connection.unsent += data
        if len(connection.unsent) > MOST_UNSENT_BYTES:
            # Not an exception: the client that put the value is not to blame.
            log.warning("key-value client %s asks for more than it reads; connection closed", connection.peer)
            self._drop(connection)
        elif not blocked:
            self._send(connection)

    def _send(self, connection: _Connection) -> None:
        try:
            while connection.unsent:
                sent = connection.sock.send(connection.unsent[:_SEND_BYTES])
                del connection.unsent[:sent]
        except BlockingIOError:
            self._selector.modify(connection.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)
            return
        except OSError:
            self._drop(connection)
            return
        if connection.closing:
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self._strangers.pop(connection, None)
            connection.closing = True
            if connection.reader is not None:
                self._store.cancel(connection.reader)
            self._selector.unregister(connection.sock)
            connection.sock.close()

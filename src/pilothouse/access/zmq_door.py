"""The doorkeeper of ZeroMQ sockets: a thread that decides which connections may complete their handshake.

In: sockets (`watch` them before they are bound), a client key or none, and which peers to refuse. Out: `hosts`, the addresses
from which the key was shown.

* With CURVE, a connection must know the socket's public key, and have the client key if there is one.
* Without keys (NULL), the owner of the connection decides. libzmq asks for permission (ZAP, ZeroMQ RFC 27) but does not say for
  which connection. It does report each accepted descriptor first (zmq_socket_monitor(3)), from the same thread. So permission is
  given only while every connection that has been accepted and has not shaken hands is one that we admit. The others are shut down
  as soon as they are seen; a client that asks at that moment is sent away with "300" and comes back by itself.
* Connections that have not shaken hands are limited in number (MOST_STRANGERS) and time (HANDSHAKE_MS).

The context must have one I/O thread (the default), as reports and questions must stay in order.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable

import zmq

from pilothouse.access.peer import Peer, Whose, peer_of

MOST_STRANGERS = 256
HANDSHAKE_MS = 10_000
MOST_COMPLAINTS = 20
"""Refusals that are logged."""

_ZAP = "inproc://zeromq.zap.01"
_STOP = "inproc://pilothouse.door"
_DOMAIN = b"pilothouse"
_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
_REPORT = struct.Struct("=Hi")
"""The first frame of a report: event and value (here a descriptor). pyzmq's own reader of it would import asyncio."""
log = logging.getLogger("pilothouse.access")

Refuses = Callable[[Peer], bool]


def all_but_us(peer: Peer) -> bool:
    """For sockets without keys: programs of this user on this host may enter."""
    return peer.whose is not Whose.OURS


def other_users(peer: Peer) -> bool:
    """For sockets with a key that no other user of this host can have."""
    return peer.whose is Whose.ANOTHER_USER


def no_one(peer: Peer) -> bool:
    return False


class Door:
    """One per context. `watch` sockets, `open`, bind the sockets; `close` after them, before the context's end."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], refuses: Refuses, *, client_key: bytes = b"") -> None:
        self.hosts: set[str] = set()
        self._refuses = refuses
        self._client_key = client_key
        self._context = context
        self._zap = context.socket(zmq.REP)
        self._zap.linger = 0
        self._zap.bind(_ZAP)
        self._stop = context.socket(zmq.PAIR)
        self._stop.bind(_STOP)
        self._monitors: list[zmq.Socket[bytes]] = []
        self._guests: dict[tuple[int, int], bool] = {}
        """Connections that have not shaken hands, oldest first: (monitor, descriptor) -> whether it is admitted."""
        self._complaints = 0
        self._thread: threading.Thread | None = None

    def watch(self, made: zmq.Socket[bytes]) -> None:
        made.zap_domain = _DOMAIN
        made.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        monitor = made.get_monitor_socket(_EVENTS)
        monitor.linger = 0
        self._monitors.append(monitor)

    def open(self) -> None:
        self._thread = threading.Thread(target=self._run, name="door", daemon=True)
        self._thread.start()

    def close(self) -> None:
        if self._thread is not None:
            wake = self._context.socket(zmq.PAIR)
            wake.linger = 0
            wake.connect(_STOP)
            wake.send(b"")
            self._thread.join()
            wake.close()
        for used in (*self._monitors, self._zap, self._stop):
            used.close()

    # ---- the thread

    def _run(self) -> None:
        poller = zmq.Poller()
        for source in (*self._monitors, self._zap, self._stop):
            poller.register(source, zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if self._stop in ready:
                return
            self._hear_monitors()
            if self._zap in ready:
                self._answer()

    def _hear_monitors(self) -> None:
        for index, monitor in enumerate(self._monitors):
            while True:
                try:
                    kind, value = _REPORT.unpack(monitor.recv_multipart(zmq.NOBLOCK)[0])
                except zmq.Again:
                    break
                guest = (index, value)
                if kind == zmq.EVENT_ACCEPTED:
                    self._guests.pop(guest, None)
                    self._guests[guest] = self._admit(guest[1])
                else:
                    self._guests.pop(guest, None)
        while len(self._guests) > MOST_STRANGERS:
            _, fd = oldest = next(iter(self._guests))
            del self._guests[oldest]
            with contextlib.suppress(OSError), _same(fd) as connection:
                text = f"more than {MOST_STRANGERS} connections have not shaken hands; closed the oldest"
                self._complain(text, peer_of(connection))
                connection.shutdown(socket.SHUT_RDWR)

    def _admit(self, fd: int) -> bool:
        """Looks at a connection that was accepted. It may be gone, and its number used again: that connection is judged then,
        and will be reported as well.
        """
        try:
            with _same(fd) as connection:
                peer = peer_of(connection)
                if not self._refuses(peer):
                    return True
                self._complain(f"refused a connection of {peer.whose.value}", peer)
                connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # gone: libzmq reports it next
        return False

    def _answer(self) -> None:
        version, request_id, _domain, address, _identity, mechanism, *credentials = self._zap.recv_multipart()
        if mechanism == b"CURVE":
            good = not self._client_key or credentials == [self._client_key]
            verdict = [b"200", b"OK"] if good else [b"400", b"not a key of this run"]
            if good:
                self.hosts.add(address.decode("ascii", "replace"))
        else:
            self._hear_monitors()
            self._forget_closed()
            verdict = [b"200", b"OK"] if all(self._guests.values()) else [b"300", b"come again"]
        self._zap.send_multipart([version, request_id, *verdict, b"", b""])

    def _forget_closed(self) -> None:
        """Those that we refused and libzmq has closed, should its report be missing."""
        for guest in [guest for guest, admitted in self._guests.items() if not admitted]:
            try:
                _same(guest[1]).close()
            except OSError:
                del self._guests[guest]

    def _complain(self, text: str, peer: Peer) -> None:
        self._complaints += 1
        if self._complaints <= MOST_COMPLAINTS:
            last = "; further ones are not logged" if self._complaints == MOST_COMPLAINTS else ""
            log.warning("%s: %s%s", text, peer, last)


def _same(fd: int) -> socket.socket:
    """The connection of a descriptor that libzmq owns; closing it leaves libzmq's open. Raises OSError."""
    copy = os.dup(fd)
    try:
        connection = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise
    if connection.type != socket.SOCK_STREAM or connection.family not in (socket.AF_INET, socket.AF_INET6):
        connection.close()
        raise OSError("not a TCP connection")
    return connection

"""RFC 3 messages between hosts: ZeroMQ with CURVE, a DEALER for the scheduler and a ROUTER for the broker.

Both ends have the same key file (mode 0600): the key pair of the server and the only client key pair that it accepts.
The server writes it; the user copies it to the other host. Peers without it are refused.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs

import msgspec
import zmq
from zmq.auth.thread import ThreadAuthenticator

from pilothouse.model.errors import InputError, PeerError
from pilothouse.protocols.rfc27 import frames
from pilothouse.protocols.rfc27.broker import Broker
from pilothouse.protocols.rfc27.frames import BadFrame, Message
from pilothouse.protocols.rfc27.server import Server

_log = logging.getLogger("pilothouse.rfc27")

PING_S = 1.0
HEARTBEAT_MS, HEARTBEAT_LIMIT_MS = 2000, 6000
MOST_QUEUED = 100_000
MOST_AT_ONCE = 1000


class Keys(msgspec.Struct, frozen=True):
    """Key pairs as Z85 text."""

    server_public: str
    server_secret: str
    client_public: str
    client_secret: str


def write_keys(path: Path) -> Keys:
    """Makes a key file that only its owner can read."""
    server, client = zmq.curve_keypair(), zmq.curve_keypair()
    keys = Keys(server[0].decode(), server[1].decode(), client[0].decode(), client[1].decode())
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.json.encode(keys))
    return keys


def read_keys(path: Path) -> Keys:
    try:
        if path.stat().st_mode & 0o077:
            raise InputError(str(path), "others can read this key", hint="chmod 600")
        return msgspec.json.decode(path.read_bytes(), type=Keys)
    except FileNotFoundError:
        raise InputError(str(path), "no such key file") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise InputError(str(path), f"not a key file: {problem}") from None


def _settle(socket: zmq.Socket[bytes]) -> None:
    socket.setsockopt(zmq.LINGER, 1000)
    socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_LIMIT_MS)
    socket.setsockopt(zmq.MAXMSGSIZE, frames.MOST_MESSAGE_BYTES)
    socket.setsockopt(zmq.SNDHWM, MOST_QUEUED)
    socket.setsockopt(zmq.RCVHWM, MOST_QUEUED)


class ZmqConnection:
    """The scheduler's side: `tcp://host:port?key=FILE`."""

    def __init__(self, uri: str) -> None:
        address, _, query = uri.partition("?")
        key = parse_qs(query).get("key", [""])[0]
        if not key:
            raise InputError(uri, "a manager on another host needs a key", hint="tcp://host:port?key=FILE")
        keys = read_keys(Path(key))
        self.name = uri
        self.closed = False
        self._unsent: list[list[bytes]] = []
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        _settle(self._socket)
        self._socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.client_public.encode())
        self._socket.setsockopt(zmq.CURVE_SECRETKEY, keys.client_secret.encode())
        self._socket.setsockopt(zmq.CURVE_SERVERKEY, keys.server_public.encode())
        # Messages are queued only for a completed connection.
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        watched = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED
        self._monitor: zmq.Socket[bytes] = self._socket.get_monitor_socket(watched)
        self._epoll: select.epoll = select.epoll()
        try:
            self._socket.connect(address)
        except zmq.ZMQError as problem:
            self.close()
            raise PeerError(uri, f"cannot connect: {problem}") from None
        if not self._monitor.poll(10_000):
            self.close()
            raise PeerError(uri, "cannot connect: no server there accepts the key")
        self._epoll.register(int(self._socket.getsockopt(zmq.FD)), select.EPOLLIN)
        self._epoll.register(int(self._monitor.getsockopt(zmq.FD)), select.EPOLLIN)

    def fileno(self) -> int:
        return self._epoll.fileno()

    @property
    def wants_write(self) -> bool:
        return bool(self._unsent)

    @property
    def has_more(self) -> bool:
        """ZeroMQ's descriptor is edge-triggered, and sending may consume the edge."""
        return not self.closed and bool(int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)

    def send(self, messages: list[Message]) -> None:
        self._unsent.extend(map(frames.to_parts, messages))
        self.flush()

    def flush(self) -> None:
        count = 0
        for parts in self._unsent:
            try:
                self._socket.send_multipart(parts, zmq.NOBLOCK)
            except zmq.Again:
                break
            count += 1
        del self._unsent[:count]

    def receive(self) -> list[Message | BadFrame]:
        found: list[Message | BadFrame] = []
        with contextlib.suppress(zmq.Again):
            while True:
                found.append(frames.from_parts(self._socket.recv_multipart(zmq.NOBLOCK)))
        with contextlib.suppress(zmq.Again):
            while True:
                event = self._monitor.recv_multipart(zmq.NOBLOCK)
                if int.from_bytes(event[0][:2], "little") == zmq.EVENT_DISCONNECTED:
                    self.close()
                    break
        return found

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._socket.disable_monitor()
            self._monitor.close()
            self._socket.close()
            self._epoll.close()


class ZmqServer(Server):
    """The manager's side."""

    def __init__(self, broker: Broker, address: str, key: Path, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(broker, clock)
        keys = read_keys(key) if key.exists() else write_keys(key)
        self._epoll = select.epoll()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._authenticator = ThreadAuthenticator(self._context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback("*", credentials_provider=_OnlyThis(keys.client_public.encode()))
        self._socket = self._context.socket(zmq.ROUTER)
        _settle(self._socket)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.CURVE_SECRETKEY, keys.server_secret.encode())
        self._socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.server_public.encode())
        self._socket.setsockopt(zmq.CURVE_SERVER, 1)
        try:
            self._socket.bind(address)
        except zmq.ZMQError as problem:
            self.close()
            raise InputError(address, f"cannot listen there: {problem}") from None
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        self._epoll.register(int(self._socket.getsockopt(zmq.FD)), select.EPOLLIN)
        self._peers: dict[bytes, int] = {}
        self._identities: dict[int, bytes] = {}
        self._ping_at = time.monotonic() + PING_S

    def fileno(self) -> int:
        return self._epoll.fileno()

    def step(self, limit_s: float | None = 0.0) -> int:
        self.deliver()
        count = self._read()
        if not count and limit_s != 0.0:
            until_ping = max(0.0, self._ping_at - time.monotonic()) if self._peers else PING_S
            self._socket.poll(int(1000 * min(limit_s if limit_s is not None else PING_S, until_ping)) + 1)
            count = self._read()
        if time.monotonic() >= self._ping_at:
            self._ping()
        self.deliver()
        return count

    def close(self) -> None:
        if not self._context.closed:
            self._authenticator.stop()
            self._socket.close()
            self._epoll.close()
            self._context.term()

    def _read(self) -> int:
        count = 0
        with contextlib.suppress(zmq.Again):
            while count < MOST_AT_ONCE:
                identity, *parts = self._socket.recv_multipart(zmq.NOBLOCK)
                count += 1
                peer = self._peers.get(identity)
                if peer is None:
                    peer = self._peers[identity] = self._join(f"scheduler {self._last_peer + 1} at {self.address}")
                    self._identities[peer] = identity
                self._receive(peer, f"scheduler {peer}", [frames.from_parts(parts)])
        return count

    def _send(self, messages: list[tuple[int, Message]]) -> None:
        for peer, message in messages:
            identity = self._identities.get(peer)
            if identity is None:
                continue
            try:
                self._socket.send_multipart([identity, *frames.to_parts(message)], zmq.NOBLOCK)
            except zmq.ZMQError as problem:
                _log.warning("scheduler %d: %s", peer, problem)
                del self._peers[self._identities.pop(peer)]
                self._leave(peer)

    def _ping(self) -> None:
        """A ROUTER notices a lost peer only when it sends something to it."""
        self._ping_at = time.monotonic() + PING_S
        self._send([(peer, Message(frames.CONTROL, aux1=0)) for peer in self._identities])


class _OnlyThis:
    """Accepts one public key."""

    def __init__(self, public: bytes) -> None:
        self._public = public

    def callback(self, domain: str, key: bytes) -> bool:
        return bool(key == self._public)

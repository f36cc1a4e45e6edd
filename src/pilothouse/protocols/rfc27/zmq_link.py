"""RFC 3 parts as ZeroMQ frames between hosts, under CURVE: a DEALER for the scheduler, a ROUTER for the little broker.

Both sides have one key file (0600): the server's pair and the one client pair that it lets in. The server writes it; it
is copied to the other host by hand or by ssh. Nobody without it gets past the first frame.
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

_log = logging.getLogger("pilothouse.rfc27")

PING_S = 1.0
HEARTBEAT_MS, HEARTBEAT_LIMIT_MS = 2000, 6000
MOST_QUEUED = 100_000
MOST_AT_ONCE = 1000
DISPATCH_SIZE = 512


class Keys(msgspec.Struct, frozen=True):
    """Z85 texts."""

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
    except msgspec.DecodeError as problem:
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
        # a peer that is not there must not swallow what we say
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
            raise PeerError(uri, "cannot connect: nobody there knows our key")
        self._epoll.register(int(self._socket.getsockopt(zmq.FD)), select.EPOLLIN)
        self._epoll.register(int(self._monitor.getsockopt(zmq.FD)), select.EPOLLIN)

    def fileno(self) -> int:
        return self._epoll.fileno()

    @property
    def wants_write(self) -> bool:
        return bool(self._unsent)

    @property
    def has_more(self) -> bool:
        """ZeroMQ's descriptor tells of a message once; sending may have swallowed that."""
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


class ZmqServer:
    """The manager's side. The same verbs as server.BrokerServer."""

    def __init__(self, broker: Broker, address: str, key: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.broker = broker
        self.clock = clock
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
        self._next_peer = 0
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

    def deliver(self) -> None:
        while True:
            for peer, message in self.broker.take():
                self._send(peer, message)
            if not self.broker.dispatch(self.clock(), DISPATCH_SIZE) and not self.broker.out:
                break
        for trouble in self.broker.take_troubles() + self.broker.manager.take_troubles():
            _log.warning("%s", trouble)
        for remark in self.broker.take_remarks():
            _log.info("%s", remark)

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
                peer = self._peers.get(identity) or self._join(identity)
                message = frames.from_parts(parts)
                if isinstance(message, BadFrame):
                    _log.warning("scheduler %d: %s", peer, message.problem)
                else:
                    self.broker.receive(self.clock(), peer, message)
        return count

    def _join(self, identity: bytes) -> int:
        self._next_peer += 1
        self._peers[identity] = self._next_peer
        self._identities[self._next_peer] = identity
        self.broker.join(self._next_peer, f"scheduler {self._next_peer} at {self.address}")
        return self._next_peer

    def _send(self, peer: int, message: Message) -> None:
        identity = self._identities.get(peer)
        if identity is None:
            return
        try:
            self._socket.send_multipart([identity, *frames.to_parts(message)], zmq.NOBLOCK)
        except zmq.ZMQError as problem:
            _log.warning("scheduler %d: %s", peer, problem)
            self._leave(peer)

    def _ping(self) -> None:
        """ROUTER tells of a lost peer only when something is sent to it."""
        self._ping_at = time.monotonic() + PING_S
        for peer in list(self._identities):
            self._send(peer, Message(frames.CONTROL, aux1=0))

    def _leave(self, peer: int) -> None:
        del self._peers[self._identities.pop(peer)]
        self.broker.leave(self.clock(), peer)
        self.broker.flush(self.clock())


class _OnlyThis:
    """Lets in one public key."""

    def __init__(self, public: bytes) -> None:
        self._public = public

    def callback(self, domain: str, key: bytes) -> bool:
        return bool(key == self._public)

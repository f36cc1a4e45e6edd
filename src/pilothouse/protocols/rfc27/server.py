"""The server of the job manager's end: accepts schedulers and carries messages between them and the broker.

`open_server` makes one for a UNIX socket path, or one on ZeroMQ (zmq_link.py) for `tcp://host:port`.
"""

from __future__ import annotations

import logging
import selectors
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path

from pilothouse.model.errors import InputError
from pilothouse.protocols.rfc27.broker import Broker
from pilothouse.protocols.rfc27.frames import BadFrame, Message
from pilothouse.protocols.rfc27.unix_socket import Connection, Listener

_log = logging.getLogger("pilothouse.rfc27")

HIGH_WATER_BYTES = 1 << 20
"""No more alloc requests are sent while the scheduler has this many bytes to read."""
DISPATCH_SIZE = 512


def open_server(broker: Broker, address: str, key: str, *, clock: Callable[[], float]) -> Server:
    """A server at a path, or at tcp://host:port with the key file that both ends have."""
    if not address.startswith("tcp://"):
        return BrokerServer(broker, Path(address.removeprefix("local://")), clock=clock)
    if not key:
        raise InputError(address, "a scheduler on another host needs a key", hint=f"rfc27:{address}?key=FILE")
    from pilothouse.protocols.rfc27.zmq_link import ZmqServer

    return ZmqServer(broker, address, Path(key), clock=clock)


class Server(ABC):
    """What both kinds share. `step` does what is due; `fileno` becomes readable when something is."""

    def __init__(self, broker: Broker, clock: Callable[[], float]) -> None:
        self.broker = broker
        self.clock = clock
        """The date in eventlogs: the world's, which may be simulated."""
        self._last_peer = 0

    @abstractmethod
    def fileno(self) -> int: ...

    @abstractmethod
    def step(self, limit_s: float | None = 0.0) -> int:
        """Waits up to `limit_s` for messages; returns their number."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _send(self, messages: list[tuple[int, Message]]) -> None: ...

    def _is_congested(self, peer: int) -> bool:
        """The peer has not read enough of what was sent."""
        return False

    def deliver(self) -> None:
        """Sends the messages of the broker, and lets the manager send more alloc requests."""
        broker = self.broker
        while True:
            self._send(broker.take())
            if broker.scheduler is not None and self._is_congested(broker.scheduler):
                break
            if not broker.dispatch(self.clock(), DISPATCH_SIZE) and not broker.out:
                break
        for warning in broker.manager.take_warnings():
            _log.warning("%s", warning)
        for line in broker.take_logged():
            _log.info("%s", line)

    def _join(self, name: str) -> int:
        """The number of a new peer."""
        self._last_peer += 1
        self.broker.join(self._last_peer, name)
        return self._last_peer

    def _receive(self, peer: int, name: str, messages: Iterable[Message | BadFrame]) -> None:
        now = self.clock()
        for message in messages:
            if isinstance(message, BadFrame):
                _log.warning("%s: %s", name, message.problem)
            else:
                self.broker.receive(now, peer, message)

    def _leave(self, peer: int) -> None:
        self.broker.leave(self.clock(), peer)
        self.broker.flush(self.clock())


class BrokerServer(Server):
    """A server at a UNIX socket."""

    def __init__(self, broker: Broker, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(broker, clock)
        self._listener = Listener(path)
        # A world can wait for the descriptor of an epoll.
        self._selector = selectors.EpollSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._peers: dict[int, Connection] = {}

    def fileno(self) -> int:
        return self._selector.fileno()

    def step(self, limit_s: float | None = 0.0) -> int:
        self.deliver()
        count = 0
        for key, events in self._selector.select(limit_s):
            if key.data is None:
                self._accept()
                continue
            if events & selectors.EVENT_WRITE:
                self._flush(key.data)
            if events & selectors.EVENT_READ:
                count += self._read(key.data)
        self.deliver()
        return count

    def close(self) -> None:
        for connection in self._peers.values():
            connection.close()
        self._peers.clear()
        self._selector.close()
        self._listener.close()

    def _is_congested(self, peer: int) -> bool:
        connection = self._peers.get(peer)
        return connection is not None and connection.unsent_bytes > HIGH_WATER_BYTES

    def _accept(self) -> None:
        connection = self._listener.accept()
        if connection is not None:
            peer = self._join(connection.name)
            self._peers[peer] = connection
            self._selector.register(connection, selectors.EVENT_READ, peer)

    def _read(self, peer: int) -> int:
        connection = self._peers.get(peer)
        if connection is None:
            return 0
        found = connection.receive()
        self._receive(peer, connection.name, found)
        if connection.closed:
            self._drop(peer)
        return len(found)

    def _send(self, messages: list[tuple[int, Message]]) -> None:
        by_peer: dict[int, list[Message]] = {}
        for peer, message in messages:
            by_peer.setdefault(peer, []).append(message)
        for peer, outgoing in by_peer.items():
            connection = self._peers.get(peer)
            if connection is not None:
                connection.send(outgoing)
                self._watch_writes(peer, connection)

    def _flush(self, peer: int) -> None:
        connection = self._peers.get(peer)
        if connection is not None:
            connection.flush()
            self._watch_writes(peer, connection)

    def _watch_writes(self, peer: int, connection: Connection) -> None:
        if connection.closed:
            self._drop(peer)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.wants_write else 0)
        if self._selector.get_key(connection).events != wanted:
            self._selector.modify(connection, wanted, peer)

    def _drop(self, peer: int) -> None:
        connection = self._peers.pop(peer, None)
        if connection is None:
            return
        # A closed socket has no descriptor any more: its entry is found by the peer.
        for key in list(self._selector.get_map().values()):
            if key.data == peer:
                self._selector.unregister(key.fileobj if not connection.closed else key.fd)
                break
        connection.close()
        _log.info("%s disconnected", connection.name)
        self._leave(peer)

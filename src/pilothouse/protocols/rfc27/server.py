"""The shell around the little broker: accepts schedulers on a UNIX socket and carries messages both ways.

`open_server` chooses it for a path, and its twin on ZeroMQ for `tcp://host:port`.
"""

from __future__ import annotations

import logging
import selectors
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from pilothouse.model.errors import InputError
from pilothouse.protocols.rfc27.broker import Broker
from pilothouse.protocols.rfc27.frames import BadFrame, Message
from pilothouse.protocols.rfc27.unix_socket import Connection, Listener

_log = logging.getLogger("pilothouse.rfc27")

HIGH_WATER_BYTES = 1 << 20
"""No more jobs are asked for while so much waits to be read by the scheduler."""
DISPATCH_SIZE = 512


class Server(Protocol):
    """What a decider needs of the shell, however messages are carried."""

    def fileno(self) -> int: ...
    def step(self, limit_s: float | None = 0.0) -> int: ...
    def deliver(self) -> None: ...
    def close(self) -> None: ...


def open_server(broker: Broker, address: str, key: str, *, clock: Callable[[], float]) -> Server:
    """Listens at a path, or at tcp://host:port with the key file that both sides have."""
    if not address.startswith("tcp://"):
        return BrokerServer(broker, Path(address.removeprefix("local://")), clock=clock)
    if not key:
        raise InputError(address, "a scheduler on another host needs a key", hint=f"rfc27:{address}?key=FILE")
    from pilothouse.protocols.rfc27.zmq_link import ZmqServer

    return ZmqServer(broker, address, Path(key), clock=clock)


class BrokerServer:
    """`step` does what is due; `fileno` becomes readable when something is."""

    def __init__(self, broker: Broker, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.broker = broker
        self.clock = clock
        """The date that goes into eventlogs: the world's, not necessarily the wall's."""
        self._listener = Listener(path)
        # epoll: its descriptor can itself be waited for by a world
        self._selector = selectors.EpollSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._peers: dict[int, Connection] = {}
        self._next_peer = 0

    def fileno(self) -> int:
        return self._selector.fileno()

    def step(self, limit_s: float | None = 0.0) -> int:
        """Waits up to `limit_s` for something to happen; the number of messages that came."""
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

    def deliver(self) -> None:
        """Sends what broker and manager have to say, and lets the manager ask for more jobs."""
        while True:
            self._send(self.broker.take())
            scheduler = self.broker.scheduler
            peer = self._peers.get(scheduler) if scheduler is not None else None
            if peer is not None and peer.unsent_bytes > HIGH_WATER_BYTES:
                break
            if not self.broker.dispatch(self.clock(), DISPATCH_SIZE) and not self.broker.out:
                break
        for trouble in self.broker.take_troubles() + self.broker.manager.take_troubles():
            _log.warning("%s", trouble)
        for remark in self.broker.take_remarks():
            _log.info("%s", remark)

    @property
    def settled(self) -> bool:
        """Everything that was to be said has left."""
        return not any(peer.wants_write for peer in self._peers.values())

    def close(self) -> None:
        for connection in self._peers.values():
            connection.close()
        self._peers.clear()
        self._selector.close()
        self._listener.close()

    def _accept(self) -> None:
        connection = self._listener.accept()
        if connection is not None:
            self._next_peer += 1
            self._peers[self._next_peer] = connection
            self.broker.join(self._next_peer, connection.name)
            self._selector.register(connection, selectors.EVENT_READ, self._next_peer)

    def _read(self, peer: int) -> int:
        connection = self._peers.get(peer)
        if connection is None:
            return 0
        fd = connection.fileno()
        found = connection.receive()
        now = self.clock()
        for message in found:
            if isinstance(message, BadFrame):
                _log.warning("%s: %s", connection.name, message.problem)
            else:
                self.broker.receive(now, peer, message)
        if connection.closed:
            self._drop(peer, fd)
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

    def _drop(self, peer: int, fd: int = -1) -> None:
        connection = self._peers.pop(peer, None)
        if connection is None:
            return
        for key in list(self._selector.get_map().values()):
            if key.data == peer:
                self._selector.unregister(key.fileobj if not connection.closed else key.fd)
                break
        connection.close()
        _log.info("%s disconnected", connection.name)
        self.broker.leave(self.clock(), peer)
        self.broker.flush(self.clock())

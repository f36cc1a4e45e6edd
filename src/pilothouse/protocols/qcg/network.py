"""The network interface of a manager: a REP socket for requests, a PUB socket for events.

Both listen on loopback by default, and admit connections of the manager's own user only (access/zmq_door.py). Beyond loopback
they require CURVE with the key in the manager's folder: users who can read that file may send requests. `open_to_all` admits
everyone. One JSON text is one request; each gets exactly one answer.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import zmq

from pilothouse.access.files import write_whole
from pilothouse.access.zmq_door import Door, all_but_us, no_one
from pilothouse.model.errors import InputError

PORTS = range(2222, 10_000)
"""Where 0.14.2 looks for a free port."""
MOST_REQUESTS = 64
"""How many requests `serve` answers without a break."""
NEXT_WITHIN_MS = 1
"""Clients often ask again at once: answering now is cheaper than after another turn."""
MOST_IN_A_ROW_S = 0.02
MOST_REQUEST_BYTES = 1 << 30
KEY_FILE = "network.key"
FOLDER_PREFIX = ".qcgpjm-service-"
"""Of the folder in which a manager leaves its address and key."""

Answer = dict[str, object]
"""`{"code": 0 | 1, "message"?: text, "data"?: ...}`, sent as JSON."""


class Endpoint(msgspec.Struct, frozen=True):
    """Where to listen."""

    host: str = "127.0.0.1"
    port: int | None = None
    events_port: int | None = None
    ports: range = PORTS
    events: bool = True
    former_port: int | None = None
    """Where the manager that this one resumes listened: clients may still use that port."""
    open_to_all: bool = False
    """No key, and no look at who connects."""

    @property
    def beyond_loopback(self) -> bool:
        return not (self.host.startswith("127.") or self.host in ("localhost", "::1"))


class Network:
    """Receives requests and publishes events."""

    def __init__(self, endpoint: Endpoint, folder: Path) -> None:
        self._context = zmq.Context()
        self._server_keys: tuple[bytes, bytes] | None = None
        keyless = endpoint.open_to_all or not endpoint.beyond_loopback
        self._door = Door(self._context, no_one if endpoint.open_to_all or not keyless else all_but_us)
        if not keyless:
            self._server_keys = _make_keys(folder / KEY_FILE)
        self._requests = self._socket(zmq.REP)
        self._requests.setsockopt(zmq.MAXMSGSIZE, MOST_REQUEST_BYTES)
        self._requests.setsockopt(zmq.LINGER, 500)
        self._events = self._socket(zmq.PUB) if endpoint.events else None
        self._door.open()
        try:
            self.address = _reachable(endpoint.host, self._bind_requests(endpoint))
            self.events_address: str | None = None
            if self._events is not None:
                self._events.setsockopt(zmq.SNDHWM, 0)
                self._events.setsockopt(zmq.LINGER, 500)
                self.events_address = _reachable(endpoint.host, _bind(self._events, endpoint, endpoint.events_port))
        except zmq.ZMQError as error:
            self.close()
            raise InputError(f"{endpoint.host}:{endpoint.port or '*'}", f"cannot listen there: {error}") from None

    def _bind_requests(self, endpoint: Endpoint) -> int:
        if endpoint.port is None and endpoint.former_port is not None:
            try:
                return _bind(self._requests, endpoint, endpoint.former_port)
            except zmq.ZMQError as error:
                if error.errno != zmq.EADDRINUSE:
                    raise
        return _bind(self._requests, endpoint, endpoint.port)

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        made = self._context.socket(kind)
        if self._server_keys is not None:
            made.curve_server = True
            made.curve_publickey, made.curve_secretkey = self._server_keys
        self._door.watch(made)
        return made

    @property
    def key(self) -> str:
        """The public key that clients need beyond loopback; "" on loopback."""
        return self._server_keys[0].decode() if self._server_keys is not None else ""

    @property
    def fd(self) -> int:
        """Becomes readable when requests may have arrived; then call `serve`."""
        return int(self._requests.getsockopt(zmq.FD))

    def serve(self, handle: Callable[[bytes], Answer]) -> bool:
        """Answers waiting requests, and those that follow at once. Returns whether there were any."""
        until = time.monotonic() + MOST_IN_A_ROW_S
        count = 0
        while True:
            for text in self._received():
                self._requests.send(msgspec.json.encode(handle(text)))
                count += 1
            if not count or time.monotonic() > until or not self._requests.poll(NEXT_WITHIN_MS):
                return count > 0

    def _received(self) -> Iterator[bytes]:
        # The descriptor is edge-triggered: read until nothing is left.
        for _ in range(MOST_REQUESTS):
            if not self.pending:
                return
            yield b"".join(self._requests.recv_multipart())

    @property
    def pending(self) -> bool:
        return bool(int(self._requests.getsockopt(zmq.EVENTS)) & zmq.POLLIN)

    def wait(self, timeout_s: float) -> None:
        """Waits for a request, at most so long."""
        self._requests.poll(int(timeout_s * 1000))

    def publish(self, topic: str, event: dict[str, object]) -> None:
        if self._events is not None:
            self._events.send(f"{topic} ".encode() + msgspec.json.encode(event))

    def close(self) -> None:
        for used in (self._requests, self._events):
            if used is not None:
                used.disable_monitor()
                used.close()
        self._door.close()
        self._context.term()


def _bind(made: zmq.Socket[bytes], endpoint: Endpoint, port: int | None) -> int:
    if port is not None:
        made.bind(f"tcp://{endpoint.host}:{port}")
        return port
    # Random, as several managers of one user start at once on one host.
    for candidate in random.sample(endpoint.ports, len(endpoint.ports)):
        try:
            made.bind(f"tcp://{endpoint.host}:{candidate}")
            return candidate
        except zmq.ZMQError as error:
            if error.errno != zmq.EADDRINUSE:
                raise
    raise InputError(endpoint.host, f"no port is free from {endpoint.ports.start} to {endpoint.ports.stop - 1}")


def _reachable(host: str, port: int) -> str:
    if host in ("*", "0.0.0.0"):
        host = socket.gethostname()
        try:
            found = socket.gethostbyname(host)
        except OSError:
            found = host = "127.0.0.1"
        if not found.startswith("127."):
            host = found  # a name that is loopback here may be known elsewhere
    return f"tcp://{host}:{port}"


def _make_keys(path: Path) -> tuple[bytes, bytes]:
    """A new key pair. The public half is written to the file, readable by the owner only."""
    public, secret = zmq.curve_keypair()
    write_whole(path, public + b"\n")
    return public, secret

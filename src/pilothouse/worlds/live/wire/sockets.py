"""The sockets between driver and engines: ZeroMQ with CURVE keys that are made for one run.

The driver's ROUTER accepts exactly one client key; a program without it can neither join nor read. Keys are kept in the
run's folder (mode 0600) so that a restarted driver is recognised. Engines get them by standard input (EngineConfig) or by
that file, never by a command line.
"""

from __future__ import annotations

import socket
import struct
from math import inf
from pathlib import Path
from typing import BinaryIO

import msgspec
import zmq
from zmq.utils import z85

from pilothouse.access.files import read_own, write_whole
from pilothouse.access.interfaces import ALL
from pilothouse.access.zmq_door import Door, other_users
from pilothouse.model.errors import InputError, RunError

KEYS_FILE = "keys.json"
"""In the run's folder: the keys of the run."""
_LENGTH = struct.Struct("<I")


class Credentials(msgspec.Struct, frozen=True):
    """What an engine needs to reach the driver of its run. Secret."""

    addresses: tuple[str, ...]
    """Where the driver listens; tried in turn."""
    server_public: str
    client_public: str
    client_secret: str


class EngineConfig(Credentials, frozen=True):
    """All that an engine is told. It gets this on its standard input."""

    context: str
    slots: int
    node: str = ""
    """"" : the host's own name."""
    cwd: str = ""
    gpus: tuple[str, ...] = ()
    memory_mb: int = 0
    """Memory for tasks, as declared; 0: what the node has."""
    slot_env: dict[str, tuple[str, ...]] = {}
    ends_at: float = inf
    properties: dict[str, str] = {}
    log: str = ""
    spool: str = ""
    """A folder to make (spool.py); "" : one for temporary files."""
    leased: bool = False
    """See Hello."""
    key: str = ""
    """The name that its context knows it by."""
    deal: tuple[str, ...] = ()
    """Variables of the engine's environment whose comma-separated values are dealt out, one to each slot."""

    def framed(self) -> bytes:
        """With its length in front, as a program in between may hold the pipe open: the end of the stream may come late."""
        data = msgspec.msgpack.encode(self)
        return _LENGTH.pack(len(data)) + data


def read_config(stream: BinaryIO) -> EngineConfig:
    """What `framed` made. Raises EOFError where the stream ends too soon."""
    header = stream.read(_LENGTH.size)
    wanted = _LENGTH.unpack(header)[0] if len(header) == _LENGTH.size else -1
    data = stream.read(wanted) if wanted >= 0 else b""
    if len(data) != wanted:
        raise EOFError("the program that started this engine ended before it had sent the configuration")
    return msgspec.msgpack.decode(data, type=EngineConfig)


class Keys(msgspec.Struct, frozen=True):
    """Z85 text; both pairs are made once per run."""

    server_public: str
    server_secret: str
    client_public: str
    client_secret: str

    @classmethod
    def make(cls) -> Keys:
        server_public, server_secret = zmq.curve_keypair()
        client_public, client_secret = zmq.curve_keypair()
        return cls(*(key.decode() for key in (server_public, server_secret, client_public, client_secret)))

    @classmethod
    def load_or_make(cls, folder: Path) -> Keys:
        path = folder / KEYS_FILE
        try:
            return msgspec.json.decode(read_own(path), type=cls)
        except FileNotFoundError:
            pass
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            hint = "remove it: the run gets new keys, engines that still run end by themselves, and their tasks run again"
            raise InputError(str(path), f"not a key file: {error}", hint=hint) from error
        keys = cls.make()
        write_whole(path, msgspec.json.encode(keys))
        return keys


def own_addresses(port: int, listens: tuple[str, ...]) -> tuple[str, ...]:
    """Where engines may reach the driver: where it listens, or every address that this host seems to have."""
    if ALL not in listens:
        # Loopback is the last to be tried: on another host it is that host.
        return tuple(f"tcp://{host}:{port}" for host in sorted(listens, key=lambda host: host.startswith("127.")))
    found: list[str] = []
    name = socket.gethostname()
    for host in (name, socket.getfqdn()):
        try:
            infos = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)
        except OSError:
            continue
        found.extend(str(info[4][0]) for info in infos)
    # No packet is sent: this asks the kernel which address it would use towards the outside.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            found.append(str(probe.getsockname()[0]))
        except OSError:
            pass
    found.append("127.0.0.1")
    return tuple(f"tcp://{host}:{port}" for host in dict.fromkeys(found))


class DriverSocket:
    """The driver's end. `socket` belongs into a poller; `receive` gives what has come, checked by key."""

    def __init__(self, keys: Keys, *hosts: str, port: int = 0) -> None:
        self._context = zmq.Context()
        self._door = Door(self._context, other_users, client_key=z85.decode(keys.client_public.encode()))
        self.socket = self._context.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self.socket.setsockopt(zmq.SNDHWM, 0)
        self.socket.setsockopt(zmq.RCVHWM, 0)
        self.socket.linger = 500
        self._door.watch(self.socket)
        self._door.open()
        self.socket.curve_server = True
        self.socket.curve_publickey = keys.server_public.encode()
        self.socket.curve_secretkey = keys.server_secret.encode()
        self.port = port
        for host in hosts:
            try:
                self.socket.bind(f"tcp://{host}:{self.port or '*'}")
            except zmq.ZMQError as error:
                self.close()
                raise RunError(f"cannot listen on {host}:{self.port}: {error}") from error
            self.port = int(self.socket.get_string(zmq.LAST_ENDPOINT).rpartition(":")[2])

    @property
    def engine_hosts(self) -> set[str]:
        """The addresses from which programs with the run's key have connected."""
        return self._door.hosts

    def receive(self) -> list[tuple[bytes, bytes]]:
        """All (sender, message) that are here."""
        messages: list[tuple[bytes, bytes]] = []
        while True:
            try:
                parts = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return messages
            if len(parts) == 2:
                messages.append((parts[0], parts[1]))

    def send(self, peer: bytes, message: bytes) -> None:
        self.socket.send_multipart([peer, message])

    def close(self) -> None:
        self.socket.disable_monitor()
        self.socket.close()
        self._door.close()
        self._context.term()


class EngineSocket:
    """An engine's end: connects to the driver's addresses in turn until one answers."""

    def __init__(self, credentials: Credentials, identity: str) -> None:
        self._context = zmq.Context()
        self._credentials = credentials
        self._address = -1
        self._identity = identity
        self.socket = self._connect()

    def _connect(self) -> zmq.Socket[bytes]:
        self._address = (self._address + 1) % len(self._credentials.addresses)
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.IDENTITY, self._identity.encode())
        socket.setsockopt(zmq.RECONNECT_IVL, 100)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.linger = 500
        socket.curve_serverkey = self._credentials.server_public.encode()
        socket.curve_publickey = self._credentials.client_public.encode()
        socket.curve_secretkey = self._credentials.client_secret.encode()
        socket.connect(self._credentials.addresses[self._address])
        return socket

    def try_next_address(self) -> bool:
        """After no answer: another address, if there are several. Whether the socket is a new one."""
        return len(self._credentials.addresses) > 1 and self.rename(self._identity)

    def rename(self, identity: str) -> bool:
        self._identity = identity
        self.socket.close(linger=0)
        self.socket = self._connect()
        return True

    def receive(self) -> list[bytes]:
        messages: list[bytes] = []
        while True:
            try:
                messages.append(self.socket.recv(zmq.NOBLOCK))
            except zmq.Again:
                return messages

    def send(self, message: bytes) -> None:
        self.socket.send(message)

    def close(self) -> None:
        self.socket.close()
        self._context.term()

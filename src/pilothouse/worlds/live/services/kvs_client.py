"""A client of the key-value service, for tasks, tests and scripts. Values are bytes; nothing is ever unpickled.

    with KvsClient.from_environment() as kvs:
        kvs.put("answer", b"42")
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Mapping

from pilothouse.model.errors import InputError, PeerError
from pilothouse.model.numerals import whole_number
from pilothouse.worlds.live.services.kvs import TEXT, Value
from pilothouse.worlds.live.services.kvs_wire import CODING_BYTES, LENGTH_CHARS, Request, request_bytes

ADDRESS_VARIABLE = "DISBATCH_KVSSTCP_HOST"
SECRET_VARIABLE = "PILOTHOUSE_KVS_SECRET"
LOOK_EVERY_S = 0.5
CLOSE_S = 2.0
"""How long a client waits for the service to close its connection."""


class KvsClient:
    def __init__(self, address: str, *, secret: str = "", timeout_s: float | None = None) -> None:
        host, _, number = address.rpartition(":")
        port = whole_number(number)
        if port is None or port > 65535:
            raise InputError(ADDRESS_VARIABLE, "not an address", expected="HOST:PORT", found=repr(address))
        self.address = address
        self._sock = socket.create_connection((host, port), timeout=timeout_s)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if secret:
            self._sock.sendall(request_bytes(Request(b"auth", secret.encode())))

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> KvsClient:
        """As a task finds the service of its run."""
        address = environment.get(ADDRESS_VARIABLE, "")
        return cls(address, secret=environment.get(SECRET_VARIABLE, ""))

    def __enter__(self) -> KvsClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def put(self, key: str, data: bytes, coding: bytes = TEXT) -> None:
        self._sock.sendall(request_bytes(Request(b"put_", key.encode(), Value(coding, data))))

    def get(self, key: str, while_waiting: Callable[[], None] | None = None) -> Value:
        """Takes the oldest value away; waits until there is one, calling `while_waiting` now and then if it is given."""
        return self._read(b"get_", key, while_waiting)

    def view(self, key: str) -> Value:
        """Looks at the newest value; waits until there is one."""
        return self._read(b"view", key)

    def watch(self, watching_key: str, spec: str) -> None:
        self._sock.sendall(request_bytes(Request(b"mkey", watching_key.encode(), Value(b"", spec.encode()))))

    def dump(self) -> bytes:
        """The service's state, as bytes of a pickle."""
        self._sock.sendall(b"dump")
        return self._receive(int(self._receive(LENGTH_CHARS)))

    @property
    def lost(self) -> bool:
        """Whether the service has closed the connection. Only while no answer is waited for."""
        try:
            return bool(select.select([self._sock], [], [], 0)[0]) and not self._sock.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def close(self) -> None:
        """Waits for the service to close as well: it could not tell a client that has gone from a stranger."""
        try:
            self._sock.settimeout(CLOSE_S)
            self._sock.sendall(b"clos")
            while self._sock.recv(1 << 16):
                pass
        except OSError:
            pass  # the service is gone already, which is what closing asks for
        finally:
            self._sock.close()

    def _read(self, op: bytes, key: str, while_waiting: Callable[[], None] | None = None) -> Value:
        self._sock.sendall(request_bytes(Request(op, key.encode())))
        while while_waiting is not None and not select.select([self._sock], [], [], LOOK_EVERY_S)[0]:
            while_waiting()
        coding = self._receive(CODING_BYTES)
        return Value(coding, self._receive(int(self._receive(LENGTH_CHARS))))

    def _receive(self, count: int) -> bytes:
        parts: list[bytes] = []
        while count:
            part = self._sock.recv(min(count, 1 << 20))
            if not part:
                hint = "wrong secret, or the run ended"
                raise PeerError(f"key-value service {self.address}", "closed the connection", hint=hint)
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

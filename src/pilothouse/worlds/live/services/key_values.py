"""The key-value service of a run: its address and secret, kept in the run's folder, and the server behind them.

In: the run's folder, ends of barriers. Out: the environment that lets tasks reach the service. Secret and port are kept in a
file (mode 0600), so that tasks that outlive a driver find the service of the next one. Until a task connects the service is
one sleeping thread.
"""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

import msgspec

from pilothouse.access.files import read_own, write_whole
from pilothouse.access.interfaces import ALL, LOOPBACK
from pilothouse.formats.task_file import TaskReader
from pilothouse.model.errors import InputError
from pilothouse.worlds.live.records import TaskEnded
from pilothouse.worlds.live.services.kvs_client import ADDRESS_VARIABLE, SECRET_VARIABLE
from pilothouse.worlds.live.services.kvs_server import KvsServer

KVS_FILE = "kvs.json"


class _Kept(msgspec.Struct):
    port: int
    secret: str


class KeyValueService:
    """Open it before the world is made, and close it at the end."""

    def __init__(self, folder: Path, *, listens: tuple[str, ...] = (LOOPBACK,), redis: str = "") -> None:
        path = folder / KVS_FILE
        kept = _Kept(0, secrets.token_urlsafe(24))
        try:
            kept = msgspec.json.decode(read_own(path), type=_Kept)
        except FileNotFoundError:
            pass
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            hint = "remove it: the service gets a new secret, and tasks that still run lose it"
            raise InputError(str(path), f"not the file of a key-value service: {error}", hint=hint) from error
        shelf = None
        if redis:
            from pilothouse.worlds.live.services.redis_shelf import RedisShelf

            shelf = RedisShelf(redis, folder.name)
        # One socket: on the one address by which all nodes are reached, else on all interfaces.
        host, shown = (listens[0], "") if len(listens) == 1 and listens[0] != ALL else (ALL, socket.gethostname())
        try:
            self._server = KvsServer(host, kept.port, secret=kept.secret, shelf=shelf, advertised_host=shown)
        except InputError:
            # Another program has the port of the earlier driver. Its tasks lose the service; the run goes on.
            self._server = KvsServer(host, 0, secret=kept.secret, shelf=shelf, advertised_host=shown)
        write_whole(path, msgspec.json.encode(_Kept(self._server.port, kept.secret)))
        self.address = self._server.address
        self.env = {ADDRESS_VARIABLE: self.address, SECRET_VARIABLE: kept.secret}
        self.close = self._server.close

    def task_ended(self, end: TaskEnded) -> None:
        """For LiveWorld.on_task: the id of a barrier that was passed is put under the barrier's key."""
        if key := barrier_key(end):
            self._server.put(key, str(end.task_id).encode())


def barrier_key(end: TaskEnded, edition: int = 3) -> str:
    """The key under which tasks wait for this barrier; "" for a barrier without a key, and for tasks."""
    if end.kind not in ("B", "C"):
        return ""
    (barrier,) = TaskReader("", lenient=True, edition=edition).feed(end.command)
    return barrier.key

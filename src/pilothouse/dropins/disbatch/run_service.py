"""What `pilothouse run` offers besides running: its key-value service, and the script that adds engines to it.

In: the run's folder. Out: the environment that lets tasks reach the service (address and secret), a recorder that also
tells the service, files through which a later context finds the run. The secret and the port are kept in the folder
(mode 0600), so that tasks of an earlier driver find the service of the next one.
"""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

import msgspec

from pilothouse.dropins.disbatch.bridge import Bridge
from pilothouse.dropins.disbatch.context import JOIN_FILE, JoinInfo
from pilothouse.dropins.disbatch.options import ContextOptions
from pilothouse.dropins.disbatch.utility import write_script
from pilothouse.model.errors import InputError
from pilothouse.worlds.live.contexts import Launch
from pilothouse.worlds.live.driver.records import Record, Recorder
from pilothouse.worlds.live.services.kvs_client import ADDRESS_VARIABLE, SECRET_VARIABLE
from pilothouse.worlds.live.services.kvs_server import KvsServer
from pilothouse.worlds.live.services.redis_shelf import RedisShelf
from pilothouse.worlds.live.wire.sockets import write_secret
from pilothouse.worlds.live.world import LiveWorld

KVS_FILE = "kvs.json"
SCRIPT_NAME = "add-engines.sh"


class _Kept(msgspec.Struct):
    port: int
    secret: str


class RunService:
    """Open it before the world is made, `announce` when the world is there, `close` at the end."""

    def __init__(self, folder: Path, *, remote: bool = False, redis: str = "") -> None:
        self._folder = folder
        path = folder / KVS_FILE
        kept = _Kept(0, secrets.token_urlsafe(24))
        if path.exists():
            try:
                kept = msgspec.json.decode(path.read_bytes(), type=_Kept)
            except msgspec.DecodeError as error:
                raise InputError(str(path), f"not the file of a key-value service: {error}") from error
        shelf = RedisShelf(redis, folder.name) if redis else None
        host, shown = ("", socket.gethostname()) if remote else ("127.0.0.1", "")
        try:
            self._server = KvsServer(host, kept.port, secret=kept.secret, shelf=shelf, advertised_host=shown)
        except InputError:
            # Somebody else has the port of the earlier driver; its tasks lose the service, the run does not.
            self._server = KvsServer(host, 0, secret=kept.secret, shelf=shelf, advertised_host=shown)
        write_secret(path, msgspec.json.encode(_Kept(self._server.port, kept.secret)))
        self._bridge = Bridge(self._server)
        self.env = {ADDRESS_VARIABLE: self._server.address, SECRET_VARIABLE: kept.secret}

    @property
    def address(self) -> str:
        return self._server.address

    def recorder(self, journal: Recorder) -> Recorder:
        """The journal, which from now on also tells the service what it keeps."""
        return _Telling(journal, self._bridge)

    def announce(self, launch: Launch) -> Path:
        """Lets contexts join that are started later; the script that starts them."""
        join = JoinInfo(launch, str(self._folder / "added"), "INFO", ContextOptions())
        write_secret(self._folder / JOIN_FILE, msgspec.json.encode(join))
        return write_script(self._folder / SCRIPT_NAME, str(self._folder / "added"), self._folder, self.address)

    def update(self, world: LiveWorld) -> None:
        """Shows monitors how things stand, and does what they ask for; about once a second."""
        self._bridge.answer_requests(world.stop_engine, world.stop_context)
        self._bridge.update()

    def close(self) -> None:
        (self._folder / JOIN_FILE).unlink(missing_ok=True)
        self._bridge.close()
        self._server.close()


class _Telling:
    def __init__(self, journal: Recorder, bridge: Bridge) -> None:
        self._journal = journal
        self._bridge = bridge

    def write(self, records: list[Record]) -> None:
        self._journal.write(records)
        self._bridge.write(records)

    def close(self) -> None:
        self._journal.close()

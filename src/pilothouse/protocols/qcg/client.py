"""Clients of QCG PilotJob Managers, ours or the original.

`QcgClient` sends one request, waits for its answer, and follows a manager's events. `GovernorLink` is how a manager
talks to its governor: it registers, and reports how the governor's jobs end. It never waits for those reports' answers,
because the governor may itself be waiting for this manager.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import zmq

from pilothouse.model.errors import InputError, PeerError, quoted
from pilothouse.protocols.qcg.network import FOLDER_PREFIX, KEY_FILE

DEFAULT_PORT = "5555"
TIMEOUT_S = 30.0
REGISTER_S = 5.0
"""How long a governor may take to answer a registration, as in 0.14.2."""

log = logging.getLogger("pilothouse.qcg")


class QcgClient:
    """A connection to one manager. `key` is the text of its network.key, needed where it listens beyond loopback."""

    def __init__(self, address: str, *, key: str = "", timeout_s: float = TIMEOUT_S) -> None:
        self.address = _complete(address)
        self._key = key
        self._timeout_ms = int(timeout_s * 1000)
        self._context = zmq.Context()
        self._requests = self._socket(zmq.REQ, self.address)

    @classmethod
    def of_folder(cls, folder: Path, *, timeout_s: float = TIMEOUT_S) -> QcgClient:
        """Connects to the manager that works in this directory, or whose own folder it is."""
        for candidate in manager_folders(folder):
            if (candidate / "address").exists():
                key = candidate / KEY_FILE
                text = read_key(str(key)) if key.exists() else ""
                return cls((candidate / "address").read_text(encoding="ascii"), key=text, timeout_s=timeout_s)
        raise InputError(str(folder), "unable to find QCG PJM network interface address", hint="name it with -p or -a")

    def _socket(self, kind: int, address: str) -> zmq.Socket[bytes]:
        return _connected(self._context, kind, address, self._key, linger_ms=0)

    def ask(self, request: str, **fields: object) -> dict[str, object]:
        """Returns the data of the answer. Raises PeerError if the request is refused or not answered in time."""
        answer = self.answer({"request": request, **fields})
        if answer["code"] != 0:
            raise PeerError(self.address, str(answer.get("message", "refused")), event=request)
        data = answer.get("data")
        return data if isinstance(data, dict) else {}

    def answer(self, request: Mapping[str, object]) -> dict[str, object]:
        """Returns the whole answer, also a refusal. Raises PeerError if none comes in time."""
        event = str(request.get("request"))
        self._requests.send(msgspec.json.encode(request))
        if not self._requests.poll(self._timeout_ms):
            # A REQ socket sends nothing more before it has its answer.
            self._requests.close()
            self._requests = self._socket(zmq.REQ, self.address)
            raise PeerError(self.address, f"no answer within {self._timeout_ms / 1000:g} s", event=event)
        answer = msgspec.json.decode(self._requests.recv())
        if not isinstance(answer, dict) or "code" not in answer:
            raise PeerError(self.address, "not an answer", event=event, hint=quoted(answer))
        return answer

    def events(self, *topics: str) -> Iterator[tuple[str, dict[str, object]]]:
        """Yields (topic, event) from now on, without end. Topics: JST, JFI, IST, IFI, NOJ."""
        system = self.ask("status")["System"]
        publisher = system.get("StatusPublisher") if isinstance(system, dict) else None
        if not publisher:
            raise PeerError(self.address, "does not publish events")
        subscriber = self._socket(zmq.SUB, str(publisher))
        for topic in topics or ("",):
            subscriber.setsockopt_string(zmq.SUBSCRIBE, topic)
        try:
            while True:
                name, _, data = subscriber.recv().partition(b" ")
                yield name.decode(), msgspec.json.decode(data)
        finally:
            subscriber.close()

    def close(self) -> None:
        self._requests.close()
        self._context.term()


class Registration(msgspec.Struct):
    """What a manager tells its governor about itself."""

    name: str
    address: str
    nodes: list[tuple[str, int]]
    """(name, cores) of each."""
    reserved: int = 0
    """Cores of the first node that no job gets."""
    slurm: bool = False
    key: str = ""
    """Of its own network interface, where that is not on loopback."""

    def params(self) -> dict[str, object]:
        nodes = [
            {
                "name": node,
                "total_cores": cores,
                "core_ids": list(range(cores)),
                "free_cores": list(range(self.reserved if number == 0 else 0, cores)),
                "crs": None,
            }
            for number, (node, cores) in enumerate(self.nodes)
        ]
        resources = {"type": "SLURM" if self.slurm else "LOCAL", "nodes": nodes, "binding": self.slurm}
        own_key = {"key": self.key} if self.key else {}
        return {"id": self.name, "address": self.address, "resources": resources, "tags": [self.name], **own_key}


class GovernorLink:
    """A manager's connection to its governor. `key` is the text of the governor's network.key."""

    def __init__(self, address: str, registration: Registration, *, key: str = "") -> None:
        self.address = address if "://" in address else f"tcp://{address}"
        self._registration: Registration | None = registration
        self._context = zmq.Context()
        self._socket = _connected(self._context, zmq.DEALER, self.address, key, linger_ms=1000)

    def register(self) -> None:
        """Sends the registration; later calls do nothing."""
        if self._registration is not None:
            self._send("register", "manager", self._registration.params())
            self._registration = None

    def confirm(self) -> None:
        """Waits for the answer to the registration. Raises PeerError."""
        self.register()
        if not self._socket.poll(int(REGISTER_S * 1000)):
            raise PeerError(self.address, f"no answer within {REGISTER_S:g} s", event="register")
        answer = self._received()
        if answer.get("code") != 0:
            raise PeerError(self.address, str(answer.get("message", "refused")), event="register")
        log.info("registered with the manager @ %s", self.address)

    def notify(self, name: str, state: str, attributes: dict[str, object]) -> None:
        """Reports how a job of the governor ended, and reads the answers to earlier reports."""
        self._send("notify", "job", {"name": name, "state": state, "attributes": attributes})
        while self._socket.poll(0):
            answer = self._received()
            if answer.get("code") != 0:
                log.warning("the manager @ %s refused: %s", self.address, answer.get("message"))

    def _send(self, request: str, entity: str, params: dict[str, object]) -> None:
        # An empty frame first: the other end is a REP socket.
        message = msgspec.json.encode({"request": request, "entity": entity, "params": params})
        self._socket.send_multipart([b"", message])

    def _received(self) -> dict[str, object]:
        answer = msgspec.json.decode(self._socket.recv_multipart()[-1])
        return answer if isinstance(answer, dict) else {}

    def close(self) -> None:
        self._socket.close()
        self._context.term()


def manager_folders(path: Path) -> list[Path]:
    """The folders of managers: the path itself, or those in it, the latest first."""
    found = [path] if path.name.startswith(FOLDER_PREFIX) else path.glob(f"{FOLDER_PREFIX}*")
    return sorted((one for one in found if one.is_dir()), key=lambda one: one.stat().st_mtime, reverse=True)


def read_key(path: str | None) -> str:
    """The text of a network.key; "" if no path is given. Raises InputError."""
    try:
        return Path(path).read_text(encoding="ascii") if path else ""
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"the key cannot be read: {error}") from None


def _connected(
    context: zmq.Context[zmq.Socket[bytes]], kind: int, address: str, key: str, *, linger_ms: int
) -> zmq.Socket[bytes]:
    made = context.socket(kind)
    made.setsockopt(zmq.LINGER, linger_ms)
    if key:
        try:
            made.curve_serverkey = key.strip().encode()
        except zmq.ZMQError:
            raise InputError(KEY_FILE, "not the key of a manager", found=quoted(key.strip())) from None
        made.curve_publickey, made.curve_secretkey = zmq.curve_keypair()
    made.connect(address)
    return made


def _complete(address: str) -> str:
    if "://" not in address:
        address = f"tcp://{address}"
    return address if address.rpartition(":")[2].isdigit() else f"{address}:{DEFAULT_PORT}"

"""Talking to a QCG PilotJob Manager, ours or the original: one request, one answer; and the stream of its events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import zmq

from pilothouse.dropins.qcg.folder import PREFIX
from pilothouse.dropins.qcg.network import KEY_FILE
from pilothouse.model.errors import InputError, PeerError, quoted

DEFAULT_PORT = "5555"
TIMEOUT_S = 30.0


class QcgClient:
    """A connection to one manager. Give `key` (the text of its network.key) where it listens beyond loopback."""

    def __init__(self, address: str, *, key: str = "", timeout_s: float = TIMEOUT_S) -> None:
        self.address = _complete(address)
        self._key = key
        self._timeout_ms = int(timeout_s * 1000)
        self._context = zmq.Context()
        self._requests = self._socket(zmq.REQ, self.address)

    @classmethod
    def of_folder(cls, folder: Path, *, timeout_s: float = TIMEOUT_S) -> QcgClient:
        """The manager that works in this directory (or whose own folder it is)."""
        folders = [folder] if folder.name.startswith(PREFIX) else sorted(folder.glob(f"{PREFIX}*"))
        for candidate in sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True):
            if (candidate / "address").exists():
                key = candidate / KEY_FILE
                text = read_key(str(key)) if key.exists() else ""
                return cls((candidate / "address").read_text(encoding="ascii"), key=text, timeout_s=timeout_s)
        raise InputError(str(folder), "unable to find QCG PJM network interface address", hint="name it with -p or -a")

    def _socket(self, kind: int, address: str) -> zmq.Socket[bytes]:
        made = self._context.socket(kind)
        made.setsockopt(zmq.LINGER, 0)
        show_key(made, self._key)
        made.connect(address)
        return made

    def ask(self, request: str, **fields: object) -> dict[str, object]:
        """The data of the answer. A refusal, and silence, are a PeerError."""
        answer = self.answer({"request": request, **fields})
        if answer["code"] != 0:
            raise PeerError(self.address, str(answer.get("message", "refused")), event=request)
        data = answer.get("data")
        return data if isinstance(data, dict) else {}

    def answer(self, request: Mapping[str, object]) -> dict[str, object]:
        """The whole answer, also a refusal. Silence is a PeerError."""
        event = str(request.get("request"))
        self._requests.send(msgspec.json.encode(request))
        if not self._requests.poll(self._timeout_ms):
            self._requests.close()  # it would insist on the answer
            self._requests = self._socket(zmq.REQ, self.address)
            raise PeerError(self.address, f"no answer within {self._timeout_ms / 1000:g} s", event=event)
        answer = msgspec.json.decode(self._requests.recv())
        if not isinstance(answer, dict) or "code" not in answer:
            raise PeerError(self.address, "not an answer", event=event, hint=quoted(answer))
        return answer

    def events(self, *topics: str) -> Iterator[tuple[str, dict[str, object]]]:
        """(topic, event) for ever, from now on: JST, JFI, IST, IFI, NOJ."""
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


def read_key(path: str | None) -> str:
    """The text of a network.key; "" where none is named. Raises InputError."""
    try:
        return Path(path).read_text(encoding="ascii") if path else ""
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"the key cannot be read: {error}") from None


def show_key(made: zmq.Socket[bytes], key: str) -> None:
    """Before it is connected: the way to a manager beyond loopback, by the text of its network.key."""
    if not key:
        return
    try:
        made.curve_serverkey = key.strip().encode()
    except zmq.ZMQError:
        raise InputError(KEY_FILE, "not the key of a manager", found=quoted(key.strip())) from None
    made.curve_publickey, made.curve_secretkey = zmq.curve_keypair()


def _complete(address: str) -> str:
    if "://" not in address:
        address = f"tcp://{address}"
    return address if address.rpartition(":")[2].isdigit() else f"{address}:{DEFAULT_PORT}"

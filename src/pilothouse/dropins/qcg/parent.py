"""The governor of a manager: it is told what this manager has, and how the jobs that came from it end.

Nothing here waits for the governor, which may be waiting for this manager: messages are sent, and the answers are
looked at when they are there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec
import zmq

from pilothouse.dropins.qcg.client import show_key
from pilothouse.dropins.qcg.registry import Entry, state_name
from pilothouse.formats.qcg_description import Dialect
from pilothouse.model.errors import PeerError

log = logging.getLogger("pilothouse.qcg")

REGISTER_S = 5.0
"""How long the governor may take to say that it knows us, as in 0.14.2."""


class Registration(msgspec.Struct):
    """Who registers, and with what."""

    name: str
    address: str
    nodes: list[tuple[str, int]]
    """(name, cores) each."""
    reserved: int = 0
    """Cores of the first node that are taken."""
    slurm: bool = False
    key: str = ""
    """Of its network interface, where that is not on loopback."""

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
        params: dict[str, object] = {
            "id": self.name,
            "address": self.address,
            "resources": resources,
            "tags": [self.name],
        }
        if self.key:
            params["key"] = self.key
        return params


class Parent:
    """The way to a governor."""

    def __init__(self, address: str, registration: Registration, *, key: str = "") -> None:
        """`key` is the text of the governor's network.key, where it listens beyond loopback."""
        self.address = address if "://" in address else f"tcp://{address}"
        self._registration: Registration | None = registration
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 1000)
        show_key(self._socket, key)
        self._socket.connect(self.address)

    def register(self) -> None:
        """Tells the governor of us; later calls do nothing."""
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

    def notify(self, entries: Iterable[Entry]) -> None:
        """How whole jobs ended that came from the governor."""
        for entry in entries:
            if entry.description.attributes:
                state = state_name(entry.life.state, Dialect.LATER)
                params: dict[str, object] = {
                    "name": entry.name,
                    "state": state,
                    "attributes": entry.description.attributes,
                }
                self._send("notify", "job", params)
        while self._socket.poll(0):
            answer = self._received()
            if answer.get("code") != 0:
                log.warning("the manager @ %s refused: %s", self.address, answer.get("message"))

    def _send(self, request: str, entity: str, params: dict[str, object]) -> None:
        # An empty frame first: the other end is a REP socket.
        self._socket.send_multipart(
            [b"", msgspec.json.encode({"request": request, "entity": entity, "params": params})]
        )

    def _received(self) -> dict[str, object]:
        answer = msgspec.json.decode(self._socket.recv_multipart()[-1])
        return answer if isinstance(answer, dict) else {}

    def close(self) -> None:
        self._socket.close()
        self._context.term()

"""A real Batsim 5 as a World: we are its decision component, a process that binds a ZeroMQ socket and answers.

`pilothouse steer --world batprotocol:tcp://127.0.0.1:28000 --by easy`, and then `batsim ... -s tcp://localhost:28000 ''`.
"""

from __future__ import annotations

import struct

import zmq

from pilothouse.model.decisions import Reply, Wants
from pilothouse.model.errors import InputError, PeerError
from pilothouse.model.events import Batch, Begins
from pilothouse.protocols.batprotocol.codec import Format
from pilothouse.protocols.batprotocol.scheduler import PEER, SchedulerSide

SILENCE_S = 3600.0
"""A Batsim that says nothing for so long is taken to be gone."""


class BatprotocolWorld:
    """Binds at once; begin() waits for the Batsim."""

    name = "batprotocol"

    def __init__(self, endpoint: str, *, form: Format = Format.BINARY, silence_s: float = SILENCE_S) -> None:
        self.init = b""
        """What Batsim was told to hand over to its component."""
        self._side = SchedulerSide("steer", form)
        self._silence_s = silence_s
        self._first: Batch | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] | None = zmq.Context()
        self._socket = self._context.socket(zmq.REP)
        self._socket.linger = 1000
        self._socket.rcvtimeo = int(silence_s * 1000)
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as problem:
            self.close()
            raise InputError(endpoint, f"cannot listen there: {problem}") from None

    def begin(self, wants: Wants) -> Begins:
        request = self._receive()
        if len(request) < 4 or struct.unpack_from("<I", request)[0] != len(request) - 4:
            raise PeerError(PEER, "its first request is not the size of the init data and the init data")
        self.init = request[4:]
        self._socket.send(struct.pack("<I", self._side.form) + self._side.hello(wants))
        self._first = self._side.batch(self._receive())
        if self._side.begins is None:
            raise PeerError(PEER, "its first request does not begin the simulation")
        return self._side.begins

    def _receive(self) -> bytes:
        try:
            return self._socket.recv()
        except zmq.Again:
            raise PeerError(PEER, f"said nothing for {self._silence_s:g} s") from None

    def advance(self) -> Batch | None:
        if self._first is not None:
            batch, self._first = self._first, None
            return batch
        if self._side.ended:
            return None
        return self._side.batch(self._receive())

    def apply(self, reply: Reply) -> None:
        self._socket.send(self._side.reply(reply))

    def watch(self, fd: int) -> None:
        """Batsim's time waits for us, so there is nothing to watch."""

    def close(self) -> None:
        context, self._context = self._context, None
        if context is not None:
            self._socket.close()
            context.term()

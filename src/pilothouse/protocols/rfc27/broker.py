"""A minimal Flux broker around our job manager: the services that a scheduler needs. Sans-IO.

In: messages of peers (numbered by the server) and of the manager. Out: (peer, message) pairs. Services: service.add and
.remove, resource.acquire (RFC 28), kvs.lookup and .commit (RFC 16 keys), job-manager.*, attr, config, event, log, ping, and
those that peers register. Every message has a userid and a rolemask, because libflux drops messages of other users: a
request keeps those that its sender gave it, as in Flux, where the owner may act as a guest; one without gets the owner's.
Routes work as in Flux: a request pushes its sender, the response pops it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import msgspec

from pilothouse.formats import fluid
from pilothouse.model.errors import InputError, one_line
from pilothouse.model.idset import IdSet
from pilothouse.model.numerals import whole_number
from pilothouse.protocols.rfc27 import frames, rpc
from pilothouse.protocols.rfc27 import payloads as p
from pilothouse.protocols.rfc27.alloc_requests import MOST_REQUESTS
from pilothouse.protocols.rfc27.frames import Message
from pilothouse.protocols.rfc27.manager import Manager

MOST_KEYS = 100_000
"""Limit of KVS values other than those of jobs."""
MOST_VALUE_BYTES = 16 * 1024 * 1024

_MANAGER_ROUTE = b"job-manager"
_OWN_SERVICES = frozenset(
    ("service", "resource", "kvs", "job-manager", "job-info", "attr", "config", "event", "log", "broker", "module", "groups")
)


class Broker:
    """Peers, services, KVS and inventory. Warnings go to the manager's."""

    def __init__(
        self, manager: Manager, inventory: bytes, up: IdSet, *, userid: int = 0, simulated: bool = False
    ) -> None:
        self.manager = manager
        self.out: list[tuple[int, Message]] = []
        self.logged: list[str] = []
        """Lines that peers sent to the log service."""
        self.attributes = {"rank": "0", "size": "1", "version": "pilothouse", "instance-level": "0"}
        self._inventory = inventory
        self._up = up
        self._userid = userid
        self._simulated = simulated
        self._now: float
        self._services: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._acquirer: tuple[int, Message] | None = None
        self._values: dict[str, bytes] = {}
        self._version = 0

    def take(self) -> list[tuple[int, Message]]:
        out, self.out = self.out, []
        return out

    def take_logged(self) -> list[str]:
        logged, self.logged = self.logged, []
        return logged

    @property
    def scheduler(self) -> int | None:
        """The peer that has registered the service `sched`."""
        return self._services.get("sched")

    def join(self, peer: int, name: str) -> None:
        self._names[peer] = name

    def leave(self, now: float, peer: int) -> None:
        """RFC 27, Finalization: a scheduler that disconnects suspends scheduling."""
        was_scheduler = self.scheduler == peer
        self._services = {service: owner for service, owner in self._services.items() if owner != peer}
        self._names.pop(peer, None)
        if self._acquirer is not None and self._acquirer[0] == peer:
            self._acquirer = None
        if was_scheduler:
            self.manager.lost(now)

    def receive(self, now: float, peer: int, message: Message) -> None:
        self._now = now
        if message.type == frames.RESPONSE:
            self._on_response(now, peer, message)
        elif message.type == frames.REQUEST:
            message.routes = (b"%d" % peer, *(message.routes or ()))
            if not message.rolemask and message.userid == frames.USER_UNKNOWN:
                # Only the owner can connect.
                message.userid, message.rolemask = self._userid, frames.ROLE_OWNER
            self._on_request(now, peer, message)
        else:
            return
        self.flush(now)

    def flush(self, now: float) -> None:
        """Delivers the messages of the manager."""
        while messages := self.manager.take():
            for message in messages:
                if message.type == frames.RESPONSE:
                    self._send_back(message)
                else:
                    self._to_service(now, message)

    def dispatch(self, now: float, most: int = MOST_REQUESTS) -> int:
        """Lets the manager send up to `most` alloc requests; returns their number."""
        sent = self.manager.dispatch(most)
        self.flush(now)
        return sent

    def change_ranks(self, *, up: IdSet | None = None, down: IdSet | None = None, gone: IdSet | None = None) -> None:
        """The inventory changed: the scheduler is told."""
        self._up = ((self._up | (up or IdSet())) - (down or IdSet())) - (gone or IdSet())
        change = {"up": up, "down": down, "shrink": gone}
        told = {name: ranks.to_text(",") for name, ranks in change.items() if ranks}
        if self._acquirer is not None and told:
            self._send_back(rpc.respond(self._acquirer[1], p.encode(told), streaming=True))

    # ---- routing

    def _on_request(self, now: float, peer: int, message: Message) -> None:
        service, _, method = message.topic.partition(".")
        if message.aux1 not in (frames.NODE_ANY, 0):
            self._refuse(message, errno.EHOSTUNREACH, "there is only rank 0")
            return
        if service in self._services:
            self.out.append((self._services[service], message))
        elif not message.of_owner and message.topic not in _OPEN_TO_GUESTS and method != "disconnect":
            self._warn(peer, f"refused {message.topic} of user {message.userid}, who does not own the instance")
            self._refuse(message, errno.EPERM, rpc.OWNER_ONLY)
        elif service == "job-manager" and method == "disconnect":
            if self.scheduler == peer:
                self.manager.lost(now)
        elif service == "job-manager":
            self.manager.receive(now, message)
        else:
            handler = _HANDLERS.get(message.topic)
            if handler is None:
                if method != "disconnect":
                    self._warn(peer, f"unknown service method {message.topic}")
                    self._refuse(message, errno.ENOSYS, f"{message.topic}: unknown service method")
                return
            try:
                handler(self, peer, message)
            except p.PayloadError as problem:
                self._warn(peer, f"{message.topic}: malformed payload: {problem}")
                self._refuse(message, errno.EPROTO, str(problem))

    def _on_response(self, now: float, peer: int, message: Message) -> None:
        routes = message.routes or ()
        # The manager's requests have one route. A response without routes can only be for the manager.
        if not routes or routes[-1] == _MANAGER_ROUTE:
            if peer != self.scheduler:
                self._warn(peer, f"answers {message.topic} without being the scheduler")
                return
            self.manager.receive(now, message)
        else:
            self._send_back(message)

    def _to_service(self, now: float, message: Message) -> None:
        """A request of the manager to a service of a peer. The broker answers for a service that is missing."""
        owner = self._services.get(message.topic.partition(".")[0])
        if owner is None:
            if message.wants_response:
                self.manager.receive(now, rpc.respond_error(message, errno.ENOSYS, "no such service"))
            return
        message.routes = (_MANAGER_ROUTE,)
        self._send(owner, message)

    def _send(self, peer: int, message: Message) -> None:
        message.userid, message.rolemask = self._userid, frames.ROLE_OWNER
        self.out.append((peer, message))

    def _send_back(self, response: Message) -> None:
        routes = response.routes or ()
        peer = whole_number(routes[0].decode("ascii", "replace")) if routes else None
        if peer is None or peer not in self._names:
            return
        response.routes = routes[1:]
        self._send(peer, response)

    def _refuse(self, message: Message, errnum: int, text: str = "") -> None:
        if message.wants_response:
            self._send_back(rpc.respond_error(message, errnum, text))

    def _answer(self, message: Message, payload: Any = None) -> None:
        if message.wants_response:
            self._send_back(rpc.respond(message, None if payload is None else p.encode(payload)))

    def _name(self, peer: int) -> str:
        return self._names.get(peer, f"peer {peer}")

    def _warn(self, peer: int, problem: str) -> None:
        self.manager.warnings.append(f"{self._name(peer)}: {problem}")

    # ---- services of the broker

    def _add_service(self, peer: int, message: Message) -> None:
        service = p.decode(message.body(), p.ServiceRequest).service
        if service in self._services or service in _OWN_SERVICES:
            self._refuse(message, errno.EEXIST)
        elif not service or "." in service:
            self._refuse(message, errno.EINVAL)
        else:
            self._services[service] = peer
            self._answer(message)

    def _remove_service(self, peer: int, message: Message) -> None:
        service = p.decode(message.body(), p.ServiceRequest).service
        if self._services.get(service) != peer:
            self._refuse(message, errno.ENOENT)
        else:
            del self._services[service]
            self._answer(message)

    def _acquire(self, peer: int, message: Message) -> None:
        if self._acquirer is not None:
            self._refuse(message, errno.EBUSY)
            return
        # QUIRK: as in Flux, this stream does not need the streaming flag (test_transcript_14).
        self._acquirer = (peer, message)
        body = b'{"resources":' + self._inventory + b',"up":"' + self._up.to_text(",").encode() + b'"'
        if self._simulated:
            # Our extension, with sched.quiesce: a scheduler of ours uses this date as its clock.
            body += b',"now":%r' % self._now
        body += b"}"
        self._send_back(rpc.respond(message, body, streaming=message.streaming))

    def _lookup(self, peer: int, message: Message) -> None:
        wanted = p.decode(message.body(), p.LookupRequest)
        value = self.read(wanted.key)
        if value is None:
            self._refuse(message, errno.ENOENT)
            return
        self._answer(message, p.LookupAnswer(p.Dirent(1, "val", p.encoded_value(value))))

    def read(self, key: str) -> bytes | None:
        """The value of a key. Values of jobs are kept with the jobs."""
        found = _job_key(key)
        if found is None:
            return self._values.get(key)
        job = self.manager.find(found[0])
        if job is None:
            return None
        value = {"jobspec": job.spec, "R": job.resources or job.committed, "eventlog": job.log}.get(found[1])
        return value or self._values.get(key)

    def _commit(self, peer: int, message: Message) -> None:
        wanted = p.decode(message.body(), p.CommitRequest)
        values = [(op.key, None if op.dirent is None else p.value_of(op.dirent)) for op in wanted.ops]
        if any(value is not None and len(value) > MOST_VALUE_BYTES for _, value in values):
            self._refuse(message, errno.EMSGSIZE, f"a value of more than {MOST_VALUE_BYTES} bytes")
            return
        if len(self._values) + len(values) > MOST_KEYS:
            self._refuse(message, errno.EOVERFLOW, f"more than {MOST_KEYS} keys")
            return
        for key, value in values:
            self._write(key, value)
        self._version += 1
        self._answer(message, {"rootref": f"sha1-{self._version:040x}", "rootseq": self._version})

    def _write(self, key: str, value: bytes | None) -> None:
        found = _job_key(key)
        if found is not None and found[1] == "R":
            job = self.manager.jobs.get(found[0])
            if job is not None:
                job.committed = (value or b"").rstrip(b"\0")
        elif found is not None and found[1] in ("jobspec", "eventlog"):
            self.manager.warnings.append(f"a scheduler may not write {key}")
        elif value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value

    def _look_up_job(self, peer: int, message: Message) -> None:
        """Flux's own schedulers read R and jobspec from job-info."""
        wanted = p.decode(message.body(), p.JobInfoRequest)
        found: dict[str, Any] = {"id": wanted.id}
        for name in wanted.keys:
            value = self.read(fluid.kvs_key(wanted.id, name))
            if value is None:
                self._refuse(message, errno.ENOENT)
                return
            decoded = wanted.flags & p.DECODE_JOB_INFO and name != "eventlog"
            found[name] = p.decode(value, msgspec.Raw) if decoded else value.decode(errors="replace")
        self._answer(message, found)

    def _get_attribute(self, peer: int, message: Message) -> None:
        value = self.attributes.get(p.decode(message.body(), p.NameRequest).name)
        if value is None:
            self._refuse(message, errno.ENOENT)
        else:
            self._answer(message, {"value": value, "flags": 1})

    def _get_config(self, peer: int, message: Message) -> None:
        self._answer(message, {})

    def _accept(self, peer: int, message: Message) -> None:
        self._answer(message)

    def _log(self, peer: int, message: Message) -> None:
        self.logged.append(f"{self._name(peer)} logs: {one_line(message.text(), 500)}")
        self._answer(message)

    def _ping(self, peer: int, message: Message) -> None:
        found = p.decode(message.body(), dict[str, msgspec.Raw]) if message.payload is not None else {}
        self._answer(message, {**found, "userid": message.userid, "rolemask": message.rolemask, "route": "pilothouse"})


def _job_key(key: str) -> tuple[int, str] | None:
    """`job.0000.000b.7000.0000.R` -> (49123688448, "R")."""
    parts = key.split(".", 5)
    if len(parts) != 6 or parts[0] != "job":
        return None
    try:
        return fluid.parse(".".join(parts[1:5])), parts[5]
    except InputError:
        return None


_OPEN_TO_GUESTS = frozenset(
    ("attr.get", "config.get", "event.subscribe", "event.unsubscribe", "broker.ping", "job-manager.resource-status")
)

_HANDLERS: dict[str, Callable[[Broker, int, Message], None]] = {
    "service.add": Broker._add_service,
    "service.remove": Broker._remove_service,
    "resource.acquire": Broker._acquire,
    "kvs.lookup": Broker._lookup,
    "kvs.commit": Broker._commit,
    "job-info.lookup": Broker._look_up_job,
    "attr.get": Broker._get_attribute,
    "config.get": Broker._get_config,
    "event.subscribe": Broker._accept,
    "event.unsubscribe": Broker._accept,
    "broker.module-status": Broker._accept,
    "module.status": Broker._accept,
    "broker.ping": Broker._ping,
    "log.append": Broker._log,
}

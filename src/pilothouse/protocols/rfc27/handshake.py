"""The handshake of a scheduler with a Flux instance (RFC 27, RFC 28), sans-IO.

Requests, in the order that Flux expects: service.add (`sched`, `feasibility`), resource.acquire, sched-hello, kvs.lookup
of each running job's R, sched-ready. Out: events about the inventory and the running jobs, then Ready; or Failed. The
stream of resource.acquire stays open and reports later changes of the inventory.
"""

from __future__ import annotations

import enum
import errno
from functools import partial

import msgspec

from pilothouse.formats import fluid, resource_set
from pilothouse.model.errors import InputError
from pilothouse.model.idset import IdSet
from pilothouse.protocols.rfc27 import payloads as p
from pilothouse.protocols.rfc27 import rpc
from pilothouse.protocols.rfc27.frames import Message
from pilothouse.protocols.rfc27.scheduler_events import (
    Event,
    Failed,
    InstanceExpires,
    Inventory,
    JobHolds,
    PropertiesChanged,
    RanksChanged,
    Ready,
)


class Phase(enum.Enum):
    NEW = "new"
    REGISTERING = "registering its services"
    ACQUIRING = "asking for the inventory"
    GREETING = "asking which jobs hold resources"
    READYING = "saying that it is ready"
    ONLINE = "online"
    FAILED = "failed"


class Handshake(rpc.Endpoint[Event]):
    """The part of a scheduler's end that is about joining the instance."""

    def __init__(self, *, limit: int = 0, strict: bool = False) -> None:
        super().__init__()
        self.phase = Phase.NEW
        self.was_online = False
        self.strict = strict
        self.limit = limit
        """Limit of outstanding alloc requests; 0: no limit."""
        self.held: dict[int, bytes] = {}
        """Job id -> R that was granted. Empty bytes: the job was running before the handshake."""
        self._forced = strict
        self._hello: list[p.HelloJob] = []
        self._lookups = 0

    def begin(self) -> None:
        self.phase = Phase.REGISTERING
        self._call("service.add", p.encode(p.ServiceRequest("sched")), self._on_sched_added)

    def raise_exception(self, job_id: int, kind: str, note: str) -> None:
        """Asks the manager to end a job. The response is ignored."""
        self._call("job-manager.raise", p.encode(p.RaiseRequest(job_id, 0, kind, note)), lambda answer: None)

    def _fail(self, problem: str) -> None:
        self.phase = Phase.FAILED
        self.events.append(Failed(problem))

    def _on_sched_added(self, answer: Message) -> None:
        if answer.errnum == errno.EEXIST:
            self._fail("another scheduler holds the service sched (flux module remove sched-simple)")
        elif answer.errnum:
            self._fail(f"service.add sched: {rpc.error_text(answer)}")
        else:
            self._call("service.add", p.encode(p.ServiceRequest("feasibility")), self._on_feasibility_added)

    def _on_feasibility_added(self, answer: Message) -> None:
        if answer.errnum:
            self.warnings.append(f"service.add feasibility: {rpc.error_text(answer)}; continuing without it")
        self.phase = Phase.ACQUIRING
        self._call("resource.acquire", None, self._on_acquired, streaming=True)

    def _on_acquired(self, answer: Message) -> None:
        if answer.errnum == errno.ENOSYS:
            self._fail("resource.acquire is not offered here: connect to the broker of rank 0")
            return
        if answer.errnum:
            self._fail(f"resource.acquire: {rpc.error_text(answer)}")
            return
        try:
            change = p.decode(answer.body(), p.AcquireAnswer)
            if self.phase is Phase.ACQUIRING:
                resources = resource_set.parse(bytes(change.resources), where="inventory")
                up = IdSet.parse_strict(change.up or "", where="resource.acquire up")
                self.events.append(Inventory(resources, up, change.now))
                self._greet()
                return
            up, down, gone = (
                IdSet.parse_strict(text or "", where="resource.acquire")
                for text in (change.up, change.down, change.shrink)
            )
            added, removed = _rank_sets(change.property_add), _rank_sets(change.property_remove)
        except (p.PayloadError, InputError) as problem:
            if self.phase is Phase.ACQUIRING:
                self._fail(f"resource.acquire: {problem}")
            else:
                self.warnings.append(f"resource.acquire: {problem}")
            return
        if up or down or gone:
            self.events.append(RanksChanged(up, down, gone))
        if added or removed:
            self.events.append(PropertiesChanged(added, removed))
        if change.expiration is not None:
            self.events.append(InstanceExpires(change.expiration))

    def _greet(self) -> None:
        self.phase = Phase.GREETING
        if self.strict:
            self._call("job-manager.sched-hello", None, self._on_hello)
        else:
            self._call("job-manager.sched-hello", b'{"partial-ok":true}', self._on_hello, streaming=True)

    def _on_hello(self, answer: Message) -> None:
        if answer.errnum == errno.ENODATA:
            self._look_up_held()
        elif answer.errnum in (errno.EPROTO, errno.EINVAL) and not self.strict and not self._hello:
            # The manager accepts only the specification's hello: an empty request, one response.
            self.strict = True
            self._greet()
        elif answer.errnum:
            self._fail(f"job-manager.sched-hello: {rpc.error_text(answer)}")
        else:
            self._on_hello_jobs(answer)

    def _on_hello_jobs(self, answer: Message) -> None:
        body = answer.body()
        try:
            found = p.decode(body, dict[str, msgspec.Raw])
            if "alloc" in found:
                self.strict = True
                self._caller.forget(answer.matchtag)
                self._hello = p.decode(body, p.HelloAnswer).alloc
                self._look_up_held()
            else:
                self._hello.append(p.decode(body, p.HelloJob))
        except p.PayloadError as problem:
            self._fail(f"job-manager.sched-hello: {problem}")

    def _look_up_held(self) -> None:
        self._lookups = len(self._hello)
        for job in self._hello:
            self.held[job.id] = b""
            self._call("kvs.lookup", p.lookup_payload(fluid.kvs_key(job.id, "R")), partial(self._on_held_resources, job))
        if not self._lookups:
            self._say_ready()

    def _on_held_resources(self, job: p.HelloJob, answer: Message) -> None:
        """R of a job that was running before the handshake. A job whose R cannot be read is ended."""
        self._lookups -= 1
        try:
            if answer.errnum:
                raise p.PayloadError(rpc.error_text(answer))
            value = p.value_of(p.decode(answer.body(), p.LookupAnswer).val)
            resources = resource_set.parse(value, where=fluid.kvs_key(job.id, "R"))
            if job.free:
                given_back = IdSet.parse_strict(job.free, where="hello free")
                left = resources.only(resources.rank_ids() - given_back)
                start_s, expiration_s = resources.start_s, resources.expiration_s
                resources = msgspec.structs.replace(left, slots=resources.slots, start_s=start_s, expiration_s=expiration_s)
            self.events.append(JobHolds(job, resources))
        except (p.PayloadError, InputError) as problem:
            note = f"its resources could not be read after a scheduler restart: {problem}"
            self.warnings.append(f"job {fluid.to_f58(job.id)}: {note}")
            self.held.pop(job.id, None)
            self.raise_exception(job.id, "scheduler-restart", note)
        if self._lookups == 0:
            self._say_ready()

    def _say_ready(self) -> None:
        self._hello = []
        self.phase = Phase.READYING
        if self.strict:
            # RFC 27, Ready: the specification has only `single` and `unlimited`.
            ready = p.ReadyRequest("single" if self.limit == 1 else "unlimited")
        elif self.limit:
            ready = p.ReadyRequest("limited", self.limit)
        else:
            ready = p.ReadyRequest("unlimited")
        self._call("job-manager.sched-ready", p.encode(ready), self._on_ready)

    def _on_ready(self, answer: Message) -> None:
        if answer.errnum:
            self._fail(f"job-manager.sched-ready: {rpc.error_text(answer)}")
            return
        waiting = 0
        if answer.payload is not None:
            try:
                waiting = p.decode(answer.body(), p.ReadyAnswer).count
            except p.PayloadError as problem:
                self.warnings.append(f"job-manager.sched-ready: {problem}")
        self.phase = Phase.ONLINE
        self.was_online = True
        self.events.append(Ready(self.strict, waiting))


def _rank_sets(texts: dict[str, str] | None) -> dict[str, IdSet]:
    return {name: IdSet.parse_strict(text, where=f"property {name}") for name, text in (texts or {}).items()}

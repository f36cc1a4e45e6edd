"""How a scheduler takes its seat, sans-IO: services, inventory, hello, ready, in the order that real Flux wants.

service.add (`sched`, `feasibility`), resource.acquire, sched-hello with a look at each job's R, sched-ready. Out: events
about the machine and the jobs that hold a part of it, then Ready; or Failed. The inventory goes on changing later.
"""

from __future__ import annotations

import enum

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


class Handshake:
    """The first half of a connection."""

    def __init__(self, *, limit: int = 0, strict: bool = False) -> None:
        self.phase = Phase.NEW
        self.was_online = False
        self.strict = strict
        self.limit = limit
        """How many alloc requests may be outstanding; 0: any number."""
        self.out: list[Message] = []
        self.events: list[Event] = []
        self.troubles: list[str] = []
        self.held: dict[int, bytes] = {}
        """Job id -> R that it was granted; empty where it held it before we came."""
        self._forced = strict
        self._caller = rpc.Caller()
        self._hello: list[p.HelloJob] = []
        self._lookups = 0

    def begin(self) -> None:
        self.phase = Phase.REGISTERING
        self._call("service.add", p.encode(p.ServiceRequest("sched")), self._on_sched_added)

    def take_events(self) -> list[Event]:
        events, self.events = self.events, []
        return events

    def take_troubles(self) -> list[str]:
        troubles, self.troubles = self.troubles, []
        return troubles

    def raise_exception(self, job_id: int, kind: str, note: str) -> None:
        """Asks the manager to end a job."""
        self._call("job-manager.raise", p.encode(p.RaiseRequest(job_id, 0, kind, note)), _ignored)

    def _call(self, topic: str, payload: bytes | None, handler: rpc.Handler, *, streaming: bool = False) -> None:
        self.out.append(self._caller.call(topic, payload, handler, streaming=streaming))

    def _fail(self, problem: str) -> None:
        self.phase = Phase.FAILED
        self.events.append(Failed(problem))

    def _on_sched_added(self, answer: Message) -> None:
        if answer.errnum == rpc.EEXIST:
            self._fail("another scheduler holds the service sched (flux module remove sched-simple)")
        elif answer.errnum:
            self._fail(f"service.add sched: {said(answer)}")
        else:
            self._call("service.add", p.encode(p.ServiceRequest("feasibility")), self._on_feasibility_added)

    def _on_feasibility_added(self, answer: Message) -> None:
        if answer.errnum:
            self.troubles.append(f"service.add feasibility: {said(answer)}; going on without it")
        self.phase = Phase.ACQUIRING
        self._call("resource.acquire", None, self._on_acquired, streaming=True)

    def _on_acquired(self, answer: Message) -> None:
        if answer.errnum == rpc.ENOSYS:
            self._fail("resource.acquire is not offered here: connect to the broker of rank 0")
            return
        if answer.errnum:
            self._fail(f"resource.acquire: {said(answer)}")
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
                self.troubles.append(f"resource.acquire: {problem}")
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
        if answer.errnum == rpc.ENODATA:
            self._look_up_held()
        elif answer.errnum in (rpc.EPROTO, rpc.EINVAL) and not self.strict and not self._hello:
            # a manager that knows only the specification's empty, single-answer request
            self.strict = True
            self._greet()
        elif answer.errnum:
            self._fail(f"job-manager.sched-hello: {said(answer)}")
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
            self._call("kvs.lookup", p.lookup_payload(fluid.kvs_key(job.id, "R")), _Lookup(self, job))
        if not self._lookups:
            self._say_ready()

    def on_held_resources(self, job: p.HelloJob, answer: Message) -> None:
        """R of a job that was running before us; without it the job cannot go on beside new ones."""
        self._lookups -= 1
        try:
            if answer.errnum:
                raise p.PayloadError(said(answer))
            value = p.value_of(p.decode(answer.body(), p.LookupAnswer).val)
            resources = resource_set.parse(value, where=fluid.kvs_key(job.id, "R"))
            if job.free:
                given_back = IdSet.parse_strict(job.free, where="hello free")
                left = resources.only(resources.rank_ids() - given_back)
                resources = msgspec.structs.replace(left, slots=resources.slots, expiration_s=resources.expiration_s)
            self.events.append(JobHolds(job, resources))
        except (p.PayloadError, InputError) as problem:
            note = f"its resources could not be read after a scheduler restart: {problem}"
            self.troubles.append(f"job {fluid.to_f58(job.id)}: {note}")
            self.held.pop(job.id, None)
            self.raise_exception(job.id, "scheduler-restart", note)
        if self._lookups == 0:
            self._say_ready()

    def _say_ready(self) -> None:
        self._hello = []
        self.phase = Phase.READYING
        if self.strict:
            # RFC 27, Ready: the specification knows `single` and `unlimited` only
            ready = p.ReadyRequest("single" if self.limit == 1 else "unlimited")
        elif self.limit:
            ready = p.ReadyRequest("limited", self.limit)
        else:
            ready = p.ReadyRequest("unlimited")
        self._call("job-manager.sched-ready", p.encode(ready), self._on_ready)

    def _on_ready(self, answer: Message) -> None:
        if answer.errnum:
            self._fail(f"job-manager.sched-ready: {said(answer)}")
            return
        waiting = 0
        if answer.payload is not None:
            try:
                waiting = p.decode(answer.body(), p.ReadyAnswer).count
            except p.PayloadError as problem:
                self.troubles.append(f"job-manager.sched-ready: {problem}")
        self.phase = Phase.ONLINE
        self.was_online = True
        self.events.append(Ready(self.strict, waiting))


class _Lookup:
    """Waits for the R of one job of the hello."""

    __slots__ = ("_engine", "_job")

    def __init__(self, engine: Handshake, job: p.HelloJob) -> None:
        self._engine, self._job = engine, job

    def __call__(self, answer: Message) -> None:
        self._engine.on_held_resources(self._job, answer)


def _ignored(answer: Message) -> None:
    """The answer changes nothing."""


def said(answer: Message) -> str:
    """An error answer in words."""
    text = answer.text()
    return f"{rpc.error_name(answer.errnum)}{': ' + text if text else ''}"


def _rank_sets(texts: dict[str, str] | None) -> dict[str, IdSet]:
    return {name: IdSet.parse_strict(text, where=f"property {name}") for name, text in (texts or {}).items()}

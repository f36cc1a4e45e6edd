"""The scheduler's end of RFC 27, sans-IO: messages in, messages and events out. It makes no decisions.

The handshake (handshake.py) comes first. Then the manager sends alloc, cancel, prioritize, free and expiration requests.
The owner gets them as events (scheduler_events.py) and answers with `grant`, `annotate`, `deny`, `answer_feasibility`.

Two dialects, detected from the manager's answers: today's Flux (streaming hello, jobspec in the request, R in the answer,
free without an answer) and the specification's (one `alloc` array, jobspec in the KVS, free answered). `strict` uses the
specification's dialect from the first message.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from functools import partial
from typing import Any

from pilothouse.formats import fluid, resource_set
from pilothouse.model.errors import InputError
from pilothouse.protocols.rfc27 import frames, rpc
from pilothouse.protocols.rfc27 import payloads as p
from pilothouse.protocols.rfc27.frames import Message
from pilothouse.protocols.rfc27.handshake import Handshake, Phase
from pilothouse.protocols.rfc27.scheduler_events import (
    AllocAsked,
    AllocCanceled,
    ExpirationChanged,
    FeasibilityAsked,
    Freed,
    Prioritized,
    QuiesceAsked,
    StatusAsked,
)

MOST_COMMITS = 256
"""Limit of Rs in one kvs.commit."""
MOST_EARLY = 1024
"""Limit of requests that wait for the end of the handshake."""


class SchedulerEngine(Handshake):
    """The state of one connection."""

    def __init__(self, *, limit: int = 0, strict: bool = False) -> None:
        super().__init__(limit=limit, strict=strict)
        self.pending: dict[int, tuple[bytes, ...] | None] = {}
        """Job id -> routes of its open alloc request."""
        self.reading = 0
        """Number of jobspecs that are being read from the KVS."""
        self._routes: dict[tuple[bytes, ...] | None, tuple[bytes, ...] | None] = {}
        self._grants: list[tuple[int, bytes, dict[str, Any] | None]] = []
        self._granting: set[int] = set()
        self._early: list[Message] = []
        """Requests that came during the handshake: clients may ask as soon as the services are registered."""

    # ---- called by the owner

    def take(self) -> list[Message]:
        """The messages to send. Grants made since the last call go out as one commit."""
        if self._grants:
            self._flush_grants()
        return super().take()

    @property
    def busy(self) -> bool:
        """A grant is not committed yet, or a jobspec not read."""
        return bool(self._grants or self._granting or self.reading)

    def grant(self, job_id: int, resources: bytes, annotations: dict[str, Any] | None = None) -> None:
        """RFC 27, Alloc Success: R is committed first; the answer follows the KVS's confirmation."""
        if job_id not in self.pending or job_id in self._granting:
            raise ValueError(f"job {job_id} has no open alloc request")
        self._granting.add(job_id)
        self._grants.append((job_id, resources, annotations))
        if len(self._grants) >= MOST_COMMITS:
            self._flush_grants()

    def annotate(self, job_id: int, notes: Mapping[str, Any]) -> None:
        """RFC 27, Alloc Annotate. Ignored if the job no longer waits."""
        if job_id in self.pending and job_id not in self._granting:
            self._answer(job_id, p.encode({"id": job_id, "type": 1, "annotations": notes}))

    def deny(self, job_id: int, note: str = "") -> None:
        self._answer(job_id, p.encode(p.AllocAnswer(job_id, p.AllocType.DENY, note=note)))
        self.pending.pop(job_id, None)

    def answer_feasibility(self, request: Message, refusal: str = "", errnum: int = errno.EOVERFLOW) -> None:
        self.out.append(rpc.respond_error(request, errnum, refusal) if refusal else rpc.respond(request))

    def answer_status(self, request: Message, everything: bytes, allocated: bytes, down: bytes) -> None:
        body = b'{"all":' + everything + b',"allocated":' + allocated + b',"down":' + down + b"}"
        self.out.append(rpc.respond(request, body))

    def answer_quiesce(self, request: Message, call_at: float | None = None) -> None:
        asked = p.decode(request.body() or b"{}", p.QuiesceRequest)
        self.out.append(rpc.respond(request, p.encode(p.QuiesceAnswer(asked.id, call_at))))

    # ---- messages of the manager

    def receive(self, message: Message) -> None:
        if message.type == frames.RESPONSE:
            self._take_response(message)
            if self._early and self.phase is Phase.ONLINE:
                early, self._early = self._early, []
                for request in early:
                    self._serve(_REQUESTS, request)
        elif message.type == frames.REQUEST and not message.topic.endswith(".disconnect"):
            # A client that has gone leaves nothing behind here.
            if not message.of_owner and message.topic not in _OPEN_TO_GUESTS:
                self.warnings.append(f"refused {message.topic} of user {message.userid}, who does not own the instance")
                self._refuse(message, errno.EPERM, rpc.OWNER_ONLY)
            elif self.phase is Phase.ONLINE or message.topic not in _MAY_WAIT:
                self._serve(_REQUESTS, message)
            elif len(self._early) < MOST_EARLY:
                self._early.append(message)
            else:
                self._refuse(message, errno.EAGAIN, "the scheduler is not ready yet")

    def _malformed(self, message: Message, problem: str) -> None:
        if message.topic not in ("sched.alloc", "sched.free"):
            super()._malformed(message, problem)
            return
        self.warnings.append(f"{message.topic}: malformed payload: {problem}")
        if message.topic == "sched.alloc":
            # An error answer would suspend scheduling for every job; without an answer this job would wait for ever.
            try:
                job_id = p.decode(message.body(), p.JobOnly).id
            except p.PayloadError:
                return
            if job_id not in self.pending and job_id not in self.held:
                self.pending[job_id] = message.routes
                self.deny(job_id, f"malformed alloc request: {problem}")

    # ---- requests of the manager

    def _on_alloc(self, message: Message) -> None:
        asked = p.decode(message.body(), p.AllocRequest)
        if asked.id in self.pending:
            # RFC 27, Implementation: one alloc request in flight for each job. The answer to the first serves both.
            self.warnings.append(f"second sched.alloc for pending job {fluid.to_f58(asked.id)}")
            return
        routes = self._routes.setdefault(message.routes, message.routes)
        if asked.id in self.held:
            self.warnings.append(f"sched.alloc for job {fluid.to_f58(asked.id)}, which holds resources")
            if self.held[asked.id]:
                self.pending[asked.id] = routes
                self._succeed(asked.id, self.held[asked.id], None)
            return
        self.pending[asked.id] = routes
        source = bytes(asked.jobspec)
        if source:
            self._ask(asked, source)
        else:
            self.reading += 1
            self._call("kvs.lookup", p.lookup_payload(fluid.kvs_key(asked.id, "jobspec")), partial(self._on_jobspec, asked))

    def _on_jobspec(self, asked: p.AllocRequest, answer: Message) -> None:
        self.reading -= 1
        if asked.id not in self.pending:
            return
        try:
            if answer.errnum:
                raise p.PayloadError(rpc.error_text(answer))
            self._ask(asked, p.value_of(p.decode(answer.body(), p.LookupAnswer).val))
        except p.PayloadError as problem:
            self.warnings.append(f"jobspec of job {fluid.to_f58(asked.id)}: {problem}")
            self.deny(asked.id, f"its jobspec could not be read: {problem}")

    def _ask(self, asked: p.AllocRequest, source: bytes) -> None:
        self.events.append(AllocAsked(asked.id, asked.priority, asked.userid, asked.t_submit, source))

    def _on_cancel(self, message: Message) -> None:
        job_id = p.decode(message.body(), p.JobOnly).id
        # RFC 27, Cancel: no direct answer; ignored if nothing is pending or the success is on its way.
        if job_id not in self.pending or job_id in self._granting:
            return
        self._answer(job_id, b'{"id":%d,"type":3}' % job_id)
        del self.pending[job_id]
        self.events.append(AllocCanceled(job_id))

    def _on_prioritize(self, message: Message) -> None:
        jobs = p.decode(message.body(), p.PrioritizeRequest).jobs
        known = [(job_id, priority) for job_id, priority in jobs if job_id in self.pending]
        if known:
            self.events.append(Prioritized(known))

    def _on_free(self, message: Message) -> None:
        freed = p.decode(message.body(), p.FreeRequest)
        whole = not freed.R
        if freed.id in self.held:
            resources = None
            if not whole and not freed.final:
                try:
                    resources = resource_set.parse(bytes(freed.R), where="sched.free R")
                except InputError as problem:
                    raise p.PayloadError(str(problem)) from None
            if whole or freed.final:
                del self.held[freed.id]
            self.events.append(Freed(freed.id, resources, whole or freed.final))
        else:
            self.warnings.append(f"sched.free for job {fluid.to_f58(freed.id)}, which holds nothing")
        if whole:
            # Only the specification's dialect expects this answer.
            self.out.append(rpc.respond(message, b'{"id":%d}' % freed.id))

    def _on_expiration(self, message: Message) -> None:
        changed = p.decode(message.body(), p.ExpirationRequest)
        if changed.id not in self.held:
            self.out.append(rpc.respond_error(message, errno.ENOENT, "the job holds no resources"))
            return
        self.events.append(ExpirationChanged(changed.id, changed.expiration))
        self.out.append(rpc.respond(message))

    def _on_feasibility(self, message: Message) -> None:
        source = bytes(p.decode(message.body(), p.FeasibilityRequest).jobspec)
        self.events.append(FeasibilityAsked(message, source))

    def _on_status(self, message: Message) -> None:
        self.events.append(StatusAsked(message))

    def _on_quiesce(self, message: Message) -> None:
        asked = p.decode(message.body() or b"{}", p.QuiesceRequest)
        self.events.append(QuiesceAsked(message, asked.now))

    # ---- answers

    def _answer(self, job_id: int, payload: bytes) -> None:
        # RFC 27, Implementation: errnum and matchtag are zero; the job id matches request and response.
        self.out.append(Message(frames.RESPONSE, "sched.alloc", payload + b"\0", 0, 0, 0, self.pending.get(job_id)))

    def _succeed(self, job_id: int, resources: bytes, annotations: dict[str, Any] | None) -> None:
        payload = b'{"id":%d,"type":0' % job_id
        if not self._forced:
            payload += b',"R":' + resources
        if annotations:
            payload += b',"annotations":' + p.encode(annotations)
        self._answer(job_id, payload + b"}")
        del self.pending[job_id]
        self.held[job_id] = resources

    def _flush_grants(self) -> None:
        grants, self._grants = self._grants, []
        payload = p.commit_values([(fluid.kvs_key(job_id, "R"), value) for job_id, value, _ in grants])
        self._call("kvs.commit", payload, partial(self._on_committed, grants))

    def _on_committed(self, grants: list[tuple[int, bytes, dict[str, Any] | None]], answer: Message) -> None:
        if answer.errnum:
            # These grants were not announced: the manager asks for the jobs again after the next handshake.
            self._fail(f"R could not be committed: {rpc.error_text(answer)}")
            return
        for job_id, resources, notes in grants:
            self._granting.discard(job_id)
            self._succeed(job_id, resources, notes)


_OPEN_TO_GUESTS = frozenset(("feasibility.check", "sched.resource-status"))
"""What every user may ask, because it changes nothing. libschedutil registers the other methods for the owner alone."""

_MAY_WAIT = _OPEN_TO_GUESTS | {"sched.expiration"}
"""What is answered after the handshake if it comes during it. A free request is answered at once: the manager may repeat it
after the handshake, and only one may be open."""

_REQUESTS = {
    "sched.alloc": SchedulerEngine._on_alloc,
    "sched.cancel": SchedulerEngine._on_cancel,
    "sched.prioritize": SchedulerEngine._on_prioritize,
    "sched.free": SchedulerEngine._on_free,
    "sched.expiration": SchedulerEngine._on_expiration,
    "sched.resource-status": SchedulerEngine._on_status,
    "sched.quiesce": SchedulerEngine._on_quiesce,
    "feasibility.check": SchedulerEngine._on_feasibility,
}

"""The job manager's end of RFC 27, sans-IO: orders of its owner and messages of a scheduler in, messages and facts out.

It keeps the jobs in the states of RFC 21, asks the scheduler for resources in priority and submit time order, frees
what ended, merges annotations, and survives any scheduler: an error answer or a disconnect suspends scheduling, hello
and ready resume it, running jobs never notice.

The dialect is the scheduler's: a hello with the streaming flag speaks today's Flux, one without it the specification's
(one `alloc` array, bare alloc and free requests, free answered). `strict` speaks the specification's to everybody.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable

from pilothouse.formats import fluid, resource_set
from pilothouse.model.errors import InputError
from pilothouse.model.idset import IdSet
from pilothouse.protocols.rfc27 import frames, rpc
from pilothouse.protocols.rfc27 import payloads as p
from pilothouse.protocols.rfc27.annotations import merged
from pilothouse.protocols.rfc27.frames import Message
from pilothouse.protocols.rfc27.joblife import JobEvent, State
from pilothouse.protocols.rfc27.managed_job import Alloc, AllocQueue, ManagedJob, priority_of
from pilothouse.protocols.rfc27.manager_facts import (
    Allocated,
    Annotated,
    CancelConfirmed,
    Denied,
    Fact,
    FeasibilityAnswered,
    Quiet,
    Suspended,
    WentOnline,
)

MOST_INACTIVE = 10_000
"""So many jobs are remembered after their end."""
MOST_SPECS = 10_000
"""So many jobspecs are shared by the jobs that have the same."""


class Manager:
    """All jobs of one instance. Take `out`, `facts` and `troubles` after every call."""

    def __init__(self, *, strict: bool = False) -> None:
        self.jobs: dict[int, ManagedJob] = {}
        self.inactive: OrderedDict[int, ManagedJob] = OrderedDict()
        self.out: list[Message] = []
        self.facts: list[Fact] = []
        self.troubles: list[str] = []
        self.online = False
        self.strict = strict
        self.limit = 0
        self.stopped = False
        """The queue is administratively stopped: nothing is asked for."""
        self.pending: dict[int, ManagedJob] = {}
        self.holding: dict[int, ManagedJob] = {}
        self.queue = AllocQueue()
        self._forced = strict
        self._caller = rpc.Caller()
        self._specs: dict[bytes, bytes] = {}
        self._ghosts: set[int] = set()
        """Jobs that are over while their canceled request is still open (today's dialect does not wait)."""
        self._lowest: list[tuple[int, float, int, ManagedJob]] = []
        """Pending jobs, the first to be bumped in front; kept in limited mode only."""
        self._bumping: int | None = None

    def take(self) -> list[Message]:
        out, self.out = self.out, []
        return out

    def take_facts(self) -> list[Fact]:
        facts, self.facts = self.facts, []
        return facts

    def take_troubles(self) -> list[str]:
        troubles, self.troubles = self.troubles, []
        return troubles

    def find(self, job_id: int) -> ManagedJob | None:
        return self.jobs.get(job_id) or self.inactive.get(job_id)

    # ---- what the owner orders

    def submit(self, now: float, job_id: int, spec: bytes, *, userid: int = 0, urgency: int = p.DEFAULT_URGENCY,
               priority: int | None = None) -> ManagedJob:  # fmt: skip
        """A new job; it waits in SCHED when this returns. Its jobspec has been validated by whoever submits it."""
        wanted = priority_of(urgency) if priority is None else priority
        job = ManagedJob(job_id, userid, urgency, wanted, now, self._shared(spec))
        self._admit(now, job)
        self._enqueue(job)
        return job

    def adopt(self, now: float, job_id: int, spec: bytes, resources: bytes, *, userid: int = 0) -> ManagedJob:
        """A job that runs already: the scheduler learns of it by its hello."""
        job = ManagedJob(job_id, userid, p.DEFAULT_URGENCY, p.DEFAULT_URGENCY, now, self._shared(spec))
        self._admit(now, job)
        job.resources = job.committed = resources
        self.holding[job_id] = job
        job.post(now, JobEvent.ALLOC)
        job.started = True
        job.post(now, JobEvent.START)
        return job

    def _shared(self, spec: bytes) -> bytes:
        if len(self._specs) > MOST_SPECS:
            self._specs.clear()
        return self._specs.setdefault(spec, spec)

    def _admit(self, now: float, job: ManagedJob) -> None:
        if job.id in self.jobs:
            raise ValueError(f"job {job.id} exists")
        job.post(now, JobEvent.SUBMIT, {"userid": job.userid, "urgency": job.urgency, "flags": 0, "version": 1})
        job.post(now, JobEvent.VALIDATE)
        job.post(now, JobEvent.DEPEND)
        job.post(now, JobEvent.PRIORITY, {"priority": job.priority})
        self.jobs[job.id] = job

    def set_urgency(self, now: float, job_id: int, urgency: int) -> None:
        """Held (0), expedited (31) or anything between."""
        job = self.jobs[job_id]
        if job.state in (State.RUN, State.CLEANUP):
            return
        job.urgency = urgency
        job.post(now, JobEvent.URGENCY, {"urgency": urgency, "userid": job.userid})
        job.priority = priority_of(urgency)
        job.post(now, JobEvent.PRIORITY, {"priority": job.priority})
        if job.alloc in (Alloc.PENDING, Alloc.CANCELING):
            held = job.priority == p.HELD_PRIORITY
            if not held:
                self._send("sched.prioritize", p.encode({"jobs": [(job.id, job.priority)]}))
            # QUIRK: today's Flux also takes the request back and sends a fresh one (test_transcript_06)
            if held or not self.strict:
                self._cancel_alloc(job)
        else:
            self._requeue(job)

    def prioritize(self, now: float, priorities: Iterable[tuple[int, int]]) -> None:
        """Many at once, as a priority plugin does: one message tells the scheduler of all that it has."""
        told: list[tuple[int, int]] = []
        for job_id, priority in priorities:
            job = self.jobs.get(job_id)
            if job is None or job.state is not State.SCHED or job.priority == priority:
                continue
            job.priority = priority
            job.post(now, JobEvent.PRIORITY, {"priority": priority})
            if job.alloc is Alloc.PENDING:
                if priority == p.HELD_PRIORITY:
                    self._cancel_alloc(job)
                else:
                    told.append((job_id, priority))
                    self._note_pending(job)
            elif job.alloc is not Alloc.CANCELING:
                self._requeue(job)
        if told:
            self._send("sched.prioritize", p.encode({"jobs": told}))

    def cancel(self, now: float, job_id: int, note: str = "", *, kind: str = "cancel") -> None:
        """A fatal exception. What runs is freed when `finish` tells that it is gone."""
        job = self.jobs[job_id]
        context: dict[str, object] = {"type": kind, "severity": 0, "note": note, "userid": job.userid}
        job.post(now, JobEvent.EXCEPTION, context)
        if job.alloc is Alloc.QUEUED:
            self.queue.drop(job)
        elif job.alloc is not Alloc.NONE:
            # RFC 27, Exceptions: a sched.cancel for an outstanding request
            self._cancel_alloc(job)
            job.annotations = None
            if self.strict:
                return
            self._ghosts.add(job_id)
            self._retire_alloc(job)
        if not job.holds:
            self._clean(now, job)
        elif not job.started:
            self._free(now, job)

    def start(self, now: float, job_id: int) -> None:
        job = self.jobs[job_id]
        job.started = True
        job.post(now, JobEvent.START)

    def finish(self, now: float, job_id: int, status: int = 0) -> None:
        """Its tasks are gone; what it holds is freed."""
        job = self.jobs[job_id]
        job.post(now, JobEvent.FINISH, {"status": status})
        job.post(now, JobEvent.RELEASE, {"ranks": "all", "final": True})
        self._free(now, job)

    def release(self, now: float, job_id: int, ranks: IdSet) -> None:
        """Some ranks come back before the job's end. Only today's dialect can say it; else they wait for the end."""
        job = self.jobs[job_id]
        if not job.holds or self.strict:
            return
        held = job.resource_set()
        part = held.only(ranks - IdSet(job.freed_ranks))
        if not part.ranks or ranks.mask | job.freed_ranks == held.rank_ids().mask:
            return
        job.post(now, JobEvent.RELEASE, {"ranks": part.rank_ids().to_text(","), "final": False})
        job.freed_ranks |= part.rank_ids().mask
        if self.online:
            self._send_free(job, resource_set.encode(part), final=False)

    def expire(self, now: float, job_id: int, expiration_s: float) -> None:
        """The time limit of a running job changed (0: none)."""
        job = self.jobs[job_id]
        job.post(now, JobEvent.RESOURCE_UPDATE, {"expiration": expiration_s})
        if self.online and not self.strict:
            payload = p.encode(p.ExpirationRequest(job_id, expiration_s))
            self.out.append(self._caller.call("sched.expiration", payload, self._on_expiration))

    def stop_queue(self) -> None:
        """RFC 27, Cancel: all outstanding requests are taken back, their jobs wait in SCHED."""
        self.stopped = True
        for job in list(self.pending.values()):
            self._cancel_alloc(job)

    def start_queue(self) -> None:
        self.stopped = False

    def ask_feasibility(self, question: int, spec: bytes) -> None:
        def answered(answer: Message) -> None:
            refusal = (answer.text() or rpc.error_name(answer.errnum)) if answer.errnum else ""
            # a scheduler without the service refuses nothing
            self.facts.append(FeasibilityAnswered(question, "" if answer.errnum == rpc.ENOSYS else refusal))

        payload = b'{"jobspec":' + spec + b',"userid":0,"rolemask":1,"urgency":16,"flags":0}'
        self.out.append(self._caller.call("feasibility.check", payload, answered))

    def ask_quiet(self, question: int, now: float | None = None) -> None:
        """sched.quiesce: a scheduler without it answers ENOSYS, but only after it has read all that came before."""

        def answered(answer: Message) -> None:
            said = p.QuiesceAnswer()
            if not answer.errnum and answer.payload is not None:
                said = p.decode(answer.body(), p.QuiesceAnswer)
            self.facts.append(Quiet(question, not answer.errnum, said.call_at))

        payload = p.encode(p.QuiesceRequest(question, now))
        self.out.append(self._caller.call("sched.quiesce", payload, answered))

    def dispatch(self, most: int = 2**62) -> int:
        """Sends up to `most` alloc requests, as many as the scheduler may have; returns how many."""
        sent = 0
        while self.online and not self.stopped and sent < most:
            if self.limit and len(self.pending) >= self.limit:
                self._bump()
                break
            job = self.queue.first()
            if job is None:
                break
            self.queue.pop()
            self._send_alloc(job)
            sent += 1
        return sent

    # ---- what the scheduler says

    def receive(self, now: float, message: Message) -> None:
        if message.type == frames.REQUEST:
            handler = _REQUESTS.get(message.topic)
            if handler is None:
                self.troubles.append(f"unknown request {message.topic}")
                if message.wants_response:
                    self.out.append(rpc.respond_error(message, rpc.ENOSYS))
                return
            try:
                handler(self, now, message)
            except p.PayloadError as problem:
                self.troubles.append(f"{message.topic}: malformed payload: {problem}")
                if message.wants_response:
                    self.out.append(rpc.respond_error(message, rpc.EPROTO, str(problem)))
        elif message.type == frames.RESPONSE:
            self._on_response(now, message)

    def lost(self, now: float, reason: str = "the scheduler disconnected") -> None:
        """RFC 27, Finalization: scheduling is suspended; what runs goes on."""
        if self.online:
            self.facts.append(Suspended(reason))
            self.troubles.append(f"scheduling is suspended: {reason}")
        self.online = False
        self._bumping = None
        self._lowest = []
        self._caller.clear()
        self._ghosts.clear()
        pending, self.pending = self.pending, {}
        for job in pending.values():
            job.alloc = Alloc.NONE
            # RFC 27, Alloc Annotate: annotations are volatile until the allocation succeeds
            job.annotations = None
            if job.state is State.SCHED:
                self._enqueue(job)
            elif job.state is State.CLEANUP and not job.holds:
                self._clean(now, job)
        for job in self.holding.values():
            job.freeing = False

    def _on_response(self, now: float, message: Message) -> None:
        if message.matchtag:
            try:
                awaited = self._caller.take(message)
            except p.PayloadError as problem:
                self.lost(now, f"{message.topic} was answered with a malformed payload: {problem}")
                return
            if not awaited:
                self.troubles.append(f"response to {message.topic} with matchtag {message.matchtag}: nobody asked")
            return
        if message.topic not in ("sched.alloc", "sched.free"):
            self.troubles.append(f"response to {message.topic}: nobody asked")
        elif message.errnum:
            # RFC 27, Implementation: an error answer is a scheduler fatality
            text = message.text()
            name = rpc.error_name(message.errnum)
            self.lost(now, f"{message.topic} was answered with {name}{': ' + text if text else ''}")
        else:
            try:
                if message.topic == "sched.free":
                    self._on_freed(now, p.decode(message.body(), p.JobOnly).id)
                else:
                    self._on_alloc_answer(now, p.decode(message.body(), p.AllocAnswer))
            except p.PayloadError as problem:
                self.lost(now, f"{message.topic} was answered with a malformed payload: {problem}")

    def _on_hello(self, now: float, message: Message) -> None:
        if self.online or self.pending:
            self.lost(now, "a scheduler says hello")
        streaming = bool(message.flags & frames.STREAMING)
        self.strict = self._forced or not streaming
        if self.strict:
            found = [p.HelloJob(j.id, j.priority, j.userid, j.submitted_s) for j in self.holding.values()]
            self.out.append(rpc.respond(message, p.encode(p.HelloAnswer(found))))
            return
        partial = p.decode(message.body(), p.HelloRequest).partial_ok if message.payload is not None else False
        for job in self.holding.values():
            free = IdSet(job.freed_ranks).to_text(",") if partial else ""
            known = p.HelloJob(job.id, job.priority, job.userid, job.submitted_s, free)
            self.out.append(rpc.respond(message, p.encode(known), streaming=True))
        self.out.append(rpc.respond_error(message, rpc.ENODATA))

    def _on_ready(self, now: float, message: Message) -> None:
        ready = p.decode(message.body(), p.ReadyRequest)
        if ready.mode == "unlimited":
            self.limit = 0
        elif ready.mode == "single":
            self.limit = 1
        elif ready.mode == "limited" and ready.limit >= 1:
            self.limit = ready.limit
        else:
            raise p.PayloadError(f"mode {ready.mode!r} with limit {ready.limit}")
        if self.online:
            self.lost(now, "a scheduler says that it is ready")
        self.online = True
        # RFC 27, Ready: the answer is empty; today's Flux counts the jobs that wait
        self.out.append(rpc.respond(message, None if self.strict else b'{"count":%d}' % len(self.queue)))
        self.facts.append(WentOnline(self.strict, self.limit))
        if self.strict:
            for job in list(self.holding.values()):
                if job.state is State.CLEANUP and not job.started:
                    self._free(now, job)

    def _on_resource_status(self, now: float, message: Message) -> None:
        """What `flux resource list` asks today's job manager: the union of all that is allocated."""
        cores: dict[int, int] = {}
        gpus: dict[int, int] = {}
        for job in self.holding.values():
            for entry in job.resource_set().ranks:
                if not job.freed_ranks >> entry.rank & 1:
                    cores[entry.rank] = cores.get(entry.rank, 0) | entry.cores.mask
                    gpus[entry.rank] = gpus.get(entry.rank, 0) | entry.gpus.mask
        held = tuple(resource_set.RankResources(r, IdSet(cores[r]), IdSet(gpus[r])) for r in sorted(cores))
        allocated = resource_set.encode(resource_set.ResourceSet(ranks=held))
        self.out.append(rpc.respond(message, b'{"allocated":' + allocated + b"}"))

    def _on_raise(self, now: float, message: Message) -> None:
        raised = p.decode(message.body(), p.RaiseRequest)
        job = self.jobs.get(raised.id)
        if job is None:
            self.out.append(rpc.respond_error(message, rpc.ENOENT, "unknown job id"))
            return
        if raised.severity == 0:
            self.facts.append(Denied(job.id, raised.note))
        else:
            context: dict[str, object] = {"type": raised.type, "severity": raised.severity, "note": raised.note}
            job.note(now, JobEvent.EXCEPTION, context)
        self.out.append(rpc.respond(message))

    def _on_alloc_answer(self, now: float, answer: p.AllocAnswer) -> None:
        job = self.pending.get(answer.id)
        if job is None:
            self._on_ghost_answer(answer)
        elif answer.type == p.AllocType.SUCCESS:
            self._on_success(now, job, answer)
        elif answer.type == p.AllocType.ANNOTATE:
            if answer.annotations is None:
                raise p.PayloadError("an ANNOTATE answer without annotations")
            job.annotations = merged(job.annotations, answer.annotations)
            self.facts.append(Annotated(job.id, answer.annotations))
        elif answer.type == p.AllocType.DENY:
            self._retire_alloc(job)
            job.annotations = None
            if job.state is State.SCHED:
                context: dict[str, object] = {"type": "alloc", "severity": 0, "userid": job.userid}
                if answer.note:
                    context["note"] = answer.note
                job.post(now, JobEvent.EXCEPTION, context)
                self.facts.append(Denied(job.id, answer.note))
            self._clean(now, job)
        elif answer.type == p.AllocType.CANCEL:
            self._retire_alloc(job)
            job.annotations = None
            if job.state is State.SCHED:
                self._enqueue(job)
            else:
                self._clean(now, job)
            self.facts.append(CancelConfirmed(job.id))
        else:
            raise p.PayloadError(f"unknown answer type {answer.type}")

    def _on_success(self, now: float, job: ManagedJob, answer: p.AllocAnswer) -> None:
        granted = bytes(answer.R) or job.committed
        if not granted:
            raise p.PayloadError(f"success for job {fluid.to_f58(job.id)}, but its R is neither here nor in the KVS")
        try:
            resource_set.parse(granted)
        except InputError as problem:
            raise p.PayloadError(str(problem)) from None
        if not job.committed:
            self.troubles.append(f"job {fluid.to_f58(job.id)}: success before its R was in the KVS")
        self._retire_alloc(job)
        job.resources = granted
        self.holding[job.id] = job
        if answer.annotations:
            job.annotations = merged(job.annotations, answer.annotations)
            self.facts.append(Annotated(job.id, answer.annotations))
        if job.state is State.SCHED:
            context: dict[str, object] = {"annotations": job.annotations} if job.annotations else {}
            job.post(now, JobEvent.ALLOC, context or None)
            self.facts.append(Allocated(job.id, granted))
        else:
            # it was canceled meanwhile: what it got goes back at once
            self._free(now, job)

    def _on_ghost_answer(self, answer: p.AllocAnswer) -> None:
        if answer.id not in self._ghosts:
            self.troubles.append(f"answer of type {answer.type} for {fluid.to_f58(answer.id)}, which is not pending")
            return
        if answer.type == p.AllocType.ANNOTATE:
            return
        self._ghosts.discard(answer.id)
        if answer.type == p.AllocType.SUCCESS and answer.R:
            self._send("sched.free", p.encode(p.FreePart(answer.id, answer.R, True)), flags=0)

    def _on_freed(self, now: float, job_id: int) -> None:
        job = self.holding.get(job_id)
        if job is None or not job.freeing:
            self.troubles.append(f"sched.free answered for job {fluid.to_f58(job_id)}, which is not being freed")
            return
        self._freed(now, job)

    def _on_expiration(self, answer: Message) -> None:
        if answer.errnum and answer.errnum != rpc.ENOSYS:
            self.troubles.append(f"sched.expiration: {answer.text() or rpc.error_name(answer.errnum)}")

    # ---- parts

    def _send(self, topic: str, payload: bytes, flags: int = frames.NORESPONSE) -> None:
        self.out.append(rpc.request(topic, payload, flags=flags))

    def _enqueue(self, job: ManagedJob) -> None:
        # RFC 21: a held job is not asked for
        if job.priority != p.HELD_PRIORITY:
            self.queue.push(job)

    def _requeue(self, job: ManagedJob) -> None:
        if job.priority == p.HELD_PRIORITY:
            self.queue.drop(job)
        else:
            self.queue.push(job)

    def _send_alloc(self, job: ManagedJob) -> None:
        job.alloc = Alloc.PENDING
        self.pending[job.id] = job
        self._note_pending(job)
        payload = b'{"id":%d,"priority":%d,"userid":%d,"t_submit":%r' % (
            job.id, job.priority, job.userid, job.submitted_s,
        )  # fmt: skip
        payload += b"}" if self.strict else b',"jobspec":' + job.spec + b"}"
        self._send("sched.alloc", payload, flags=0)

    def _cancel_alloc(self, job: ManagedJob) -> None:
        if job.alloc is Alloc.PENDING:
            job.alloc = Alloc.CANCELING
            self._send("sched.cancel", b'{"id":%d}' % job.id)

    def _retire_alloc(self, job: ManagedJob) -> None:
        if job.alloc is Alloc.CANCELING and self._bumping == job.id:
            self._bumping = None
        job.alloc = Alloc.NONE
        self.pending.pop(job.id, None)

    def _note_pending(self, job: ManagedJob) -> None:
        if self.limit:
            heapq.heappush(self._lowest, (job.priority, -job.submitted_s, -job.id, job))

    def _bump(self) -> None:
        """In limited mode a job of higher priority takes the place of the lowest pending one, one at a time."""
        first = self.queue.first()
        if first is None or self._bumping is not None:
            return
        while self._lowest:
            priority, _, _, job = self._lowest[0]
            if job.alloc is Alloc.PENDING and job.priority == priority:
                if first.priority > priority:
                    self._bumping = job.id
                    self._cancel_alloc(job)
                return
            heapq.heappop(self._lowest)

    def _free(self, now: float, job: ManagedJob) -> None:
        job.started = False
        if not job.holds or job.freeing:
            return
        if self.strict:
            # the job stays in the next hello until a scheduler has answered
            if self.online:
                job.freeing = True
                self._send("sched.free", b'{"id":%d}' % job.id, flags=0)
            return
        if self.online:
            resources = job.resources
            if job.freed_ranks:
                held = job.resource_set()
                resources = resource_set.encode(held.only(held.rank_ids() - IdSet(job.freed_ranks)))
            self._send_free(job, resources, final=True)
        # today's Flux frees without asking; an absent scheduler learns it from the next hello
        self._freed(now, job)

    def _send_free(self, job: ManagedJob, resources: bytes, *, final: bool) -> None:
        ending = b',"final":true}' if final else b',"final":false}'
        self._send("sched.free", b'{"id":%d,"R":' % job.id + resources + ending, flags=0)

    def _freed(self, now: float, job: ManagedJob) -> None:
        self.holding.pop(job.id, None)
        job.freeing = False
        job.resources = b""
        job.post(now, JobEvent.FREE)
        self._clean(now, job)

    def _clean(self, now: float, job: ManagedJob) -> None:
        job.post(now, JobEvent.CLEAN)
        del self.jobs[job.id]
        self.inactive[job.id] = job
        if len(self.inactive) > MOST_INACTIVE:
            self.inactive.popitem(last=False)


_REQUESTS = {
    "job-manager.sched-hello": Manager._on_hello,
    "job-manager.sched-ready": Manager._on_ready,
    "job-manager.resource-status": Manager._on_resource_status,
    "job-manager.raise": Manager._on_raise,
}

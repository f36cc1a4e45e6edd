"""The job manager's end of RFC 27, sans-IO: calls of its owner and messages of a scheduler in, messages and events out.

It keeps the jobs in the states of RFC 21, sends alloc requests in priority and submit time order, frees the resources of
ended jobs and merges annotations. An error answer or a disconnect of the scheduler suspends scheduling; hello and ready
resume it; running jobs are not affected.

The scheduler chooses the dialect: its hello has the streaming flag (today's Flux) or not (the specification's: one `alloc`
array, bare alloc and free requests, free answered). `strict` uses the specification's dialect for every scheduler.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable

import msgspec

from pilothouse.formats import fluid, resource_set
from pilothouse.model.errors import InputError
from pilothouse.model.idset import IdSet
from pilothouse.protocols.rfc27 import frames, rpc
from pilothouse.protocols.rfc27 import payloads as p
from pilothouse.protocols.rfc27.alloc_requests import AllocRequests
from pilothouse.protocols.rfc27.frames import Message
from pilothouse.protocols.rfc27.job_states import JobEvent, State
from pilothouse.protocols.rfc27.managed_job import Alloc, ManagedJob, merged, priority_of
from pilothouse.protocols.rfc27.manager_events import (
    Allocated,
    Annotated,
    CancelConfirmed,
    Denied,
    FeasibilityAnswered,
    Quiet,
    WentOnline,
)


class Manager(AllocRequests):
    """The jobs of one instance, and the conversation with its scheduler."""

    # ---- called by the owner

    def submit(self, now: float, job_id: int, spec: bytes, *, userid: int = 0, urgency: int = p.DEFAULT_URGENCY,
               priority: int | None = None) -> ManagedJob:  # fmt: skip
        """A new job, in SCHED when this returns. The caller has validated its jobspec."""
        wanted = priority_of(urgency) if priority is None else priority
        job = ManagedJob(job_id, userid, urgency, wanted, float(now), self._shared(spec))
        self._admit(now, job)
        self._enqueue(job)
        return job

    def adopt(self, now: float, job_id: int, spec: bytes, resources: bytes, *, userid: int = 0) -> ManagedJob:
        """A job that is already running: the scheduler learns of it from the hello."""
        job = ManagedJob(job_id, userid, p.DEFAULT_URGENCY, p.DEFAULT_URGENCY, float(now), self._shared(spec))
        self._admit(now, job)
        job.resources = job.committed = resources
        self.holding[job_id] = job
        job.post(now, JobEvent.ALLOC)
        job.started = True
        job.post(now, JobEvent.START)
        return job

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
            # QUIRK: today's Flux also cancels the request and sends a new one (test_transcript_06).
            if held or not self.strict:
                self._cancel_alloc(job)
        else:
            self._enqueue(job)

    def prioritize(self, now: float, priorities: Iterable[tuple[int, int]]) -> None:
        """New priorities of many jobs, as a priority plugin sets them: one message for all pending ones."""
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
                self._enqueue(job)
        if told:
            self._send("sched.prioritize", p.encode({"jobs": told}))

    def cancel(self, now: float, job_id: int, note: str = "", *, kind: str = "cancel") -> None:
        """A fatal exception. The resources of a running job are freed by `finish`."""
        job = self.jobs[job_id]
        context: dict[str, object] = {"type": kind, "severity": 0, "note": note, "userid": job.userid}
        job.post(now, JobEvent.EXCEPTION, context)
        if job.alloc is Alloc.QUEUED:
            self.queue.drop(job)
        elif job.alloc is not Alloc.NONE:
            # RFC 27, Exceptions: a sched.cancel for an outstanding request.
            self._cancel_alloc(job)
            job.annotations = None
            if self.strict:
                return
            self._ended_pending.add(job_id)
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
        """Its tasks have ended; its resources are freed."""
        job = self.jobs[job_id]
        job.post(now, JobEvent.FINISH, {"status": status})
        job.post(now, JobEvent.RELEASE, {"ranks": "all", "final": True})
        self._free(now, job)

    def release(self, now: float, job_id: int, ranks: IdSet) -> None:
        """Ranks that a job gives back before its end. The specification's dialect has no such message: they wait."""
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
            self._send_free(job_id, resource_set.encode(part), final=False)

    def expire(self, now: float, job_id: int, expiration_s: float) -> None:
        """A new time limit of a running job (0: none). One that is being ended keeps its own."""
        job = self.jobs[job_id]
        if job.state is not State.RUN:
            return
        job.post(now, JobEvent.RESOURCE_UPDATE, {"expiration": expiration_s})
        if self.online and not self.strict:
            payload = p.encode(p.ExpirationRequest(job_id, expiration_s))
            self._call("sched.expiration", payload, self._on_expiration)

    def stop_queue(self) -> None:
        """RFC 27, Cancel: all outstanding requests are canceled, their jobs wait in SCHED."""
        self.stopped = True
        for job in list(self.pending.values()):
            self._cancel_alloc(job)

    def start_queue(self) -> None:
        self.stopped = False

    def ask_feasibility(self, question: int, spec: bytes) -> None:
        def answered(answer: Message) -> None:
            refusal = (answer.text() or rpc.error_text(answer)) if answer.errnum else ""
            # A scheduler that is absent or has no such service refuses nothing.
            absent = answer.errnum in (errno.ENOSYS, errno.ECANCELED)
            self.events.append(FeasibilityAnswered(question, "" if absent else refusal))

        payload = b'{"jobspec":' + spec + b',"userid":0,"rolemask":1,"urgency":16,"flags":0}'
        self._call("feasibility.check", payload, answered)

    def ask_quiet(self, question: int, now: float | None = None) -> None:
        """sched.quiesce. A scheduler without it answers ENOSYS, after it has read all earlier messages."""

        def answered(answer: Message) -> None:
            said = p.QuiesceAnswer()
            if not answer.errnum and answer.payload is not None:
                said = p.decode(answer.body(), p.QuiesceAnswer)
            self.events.append(Quiet(question, not answer.errnum, said.call_at))

        payload = p.encode(p.QuiesceRequest(question, now))
        self._call("sched.quiesce", payload, answered)

    # ---- messages of the scheduler

    def receive(self, now: float, message: Message) -> None:
        if message.type == frames.REQUEST:
            self._serve(_REQUESTS, message, now)
        elif message.type == frames.RESPONSE:
            try:
                self._on_response(now, message)
            except p.PayloadError as problem:
                self.lost(now, f"{message.topic} was answered with a malformed payload: {problem}")

    def _on_response(self, now: float, message: Message) -> None:
        if message.matchtag or message.topic not in ("sched.alloc", "sched.free"):
            self._take_response(message)
        elif message.errnum:
            # RFC 27, Implementation: an error answer is a scheduler fatality.
            self.lost(now, f"{message.topic} was answered with {rpc.error_text(message)}")
        elif message.topic == "sched.free":
            self._on_freed(now, p.decode(message.body(), p.JobOnly).id)
        else:
            self._on_alloc_answer(now, p.decode(message.body(), p.AllocAnswer))

    def _on_hello(self, now: float, message: Message) -> None:
        if self.online:
            self.lost(now, "a scheduler says hello")
        streaming = bool(message.flags & frames.STREAMING)
        self.strict = self._forced or not streaming
        if self.strict:
            found = [p.HelloJob(j.id, j.priority, j.userid, j.submitted_s) for j in self.holding.values()]
            self.out.append(rpc.respond(message, p.encode(p.HelloAnswer(found))))
            return
        partial = p.decode(message.body(), p.HelloRequest).partial_ok if message.payload is not None else False
        for job in self.holding.values():
            free = IdSet(job.freed_ranks).to_text(",") if partial and job.freed_ranks else msgspec.UNSET
            known = p.HelloJob(job.id, job.priority, job.userid, job.submitted_s, free)
            self.out.append(rpc.respond(message, p.encode(known)))
        self.out.append(rpc.respond_error(message, errno.ENODATA))

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
        # RFC 27, Ready: the answer is empty; today's Flux sends the number of waiting jobs.
        self.out.append(rpc.respond(message, None if self.strict else b'{"count":%d}' % len(self.queue)))
        self.events.append(WentOnline(self.strict, self.limit))
        if self.strict:
            for job in list(self.holding.values()):
                if job.state is State.CLEANUP and not job.started:
                    self._free(now, job)

    def _on_resource_status(self, now: float, message: Message) -> None:
        """The request of `flux resource list` in today's Flux: the union of all allocated resources."""
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
            self._refuse(message, errno.ENOENT, "unknown job id")
            return
        if raised.severity == 0 and job.state is not State.CLEANUP:
            self.cancel(now, job.id, raised.note, kind=raised.type)
            self.events.append(Denied(job.id, raised.note))
        else:
            context: dict[str, object] = {"type": raised.type, "severity": raised.severity, "note": raised.note}
            job.note(now, JobEvent.EXCEPTION, context)
        self.out.append(rpc.respond(message))

    def _on_alloc_answer(self, now: float, answer: p.AllocAnswer) -> None:
        job = self.pending.get(answer.id)
        if job is None:
            self._on_late_answer(answer)
        elif answer.type == p.AllocType.SUCCESS:
            self._on_success(now, job, answer)
        elif answer.type == p.AllocType.ANNOTATE:
            if answer.annotations is None:
                raise p.PayloadError("an ANNOTATE answer without annotations")
            job.annotations = merged(job.annotations, answer.annotations)
            self.events.append(Annotated(job.id, answer.annotations))
        elif answer.type == p.AllocType.DENY:
            self._retire_alloc(job)
            job.annotations = None
            if job.state is State.SCHED:
                context: dict[str, object] = {"type": "alloc", "severity": 0, "userid": job.userid}
                if answer.note:
                    context["note"] = answer.note
                job.post(now, JobEvent.EXCEPTION, context)
                self.events.append(Denied(job.id, answer.note))
            else:
                self.events.append(CancelConfirmed(job.id))
            self._clean(now, job)
        elif answer.type == p.AllocType.CANCEL:
            self._retire_alloc(job)
            job.annotations = None
            if job.state is State.SCHED:
                self._enqueue(job)
            else:
                self._clean(now, job)
            self.events.append(CancelConfirmed(job.id))
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
            self.warnings.append(f"job {fluid.to_f58(job.id)}: success before its R was in the KVS")
        self._retire_alloc(job)
        job.resources = granted
        self.holding[job.id] = job
        if answer.annotations:
            job.annotations = merged(job.annotations, answer.annotations)
            self.events.append(Annotated(job.id, answer.annotations))
        if job.state is State.SCHED:
            context: dict[str, object] = {"annotations": job.annotations} if job.annotations else {}
            job.post(now, JobEvent.ALLOC, context or None)
            self.events.append(Allocated(job.id, granted))
        else:
            # It was canceled meanwhile: its resources go back at once.
            self.events.append(CancelConfirmed(job.id))
            self._free(now, job)

    def _on_late_answer(self, answer: p.AllocAnswer) -> None:
        if answer.id not in self._ended_pending:
            self.warnings.append(f"answer of type {answer.type} for {fluid.to_f58(answer.id)}, which is not pending")
            return
        if answer.type == p.AllocType.ANNOTATE:
            return
        self._ended_pending.discard(answer.id)
        if answer.type == p.AllocType.SUCCESS and answer.R:
            self._send_free(answer.id, bytes(answer.R), final=True)

    def _on_freed(self, now: float, job_id: int) -> None:
        job = self.holding.get(job_id)
        if job is None or not job.freeing:
            self.warnings.append(f"sched.free answered for job {fluid.to_f58(job_id)}, which is not being freed")
            return
        self._freed(now, job)

    def _on_expiration(self, answer: Message) -> None:
        if answer.errnum not in (0, errno.ENOSYS, errno.ECANCELED):
            self.warnings.append(f"sched.expiration: {rpc.error_text(answer)}")


_REQUESTS = {
    "job-manager.sched-hello": Manager._on_hello,
    "job-manager.sched-ready": Manager._on_ready,
    "job-manager.resource-status": Manager._on_resource_status,
    "job-manager.raise": Manager._on_raise,
}

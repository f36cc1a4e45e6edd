"""The job manager's jobs and their alloc and free requests, sans-IO.

The base of manager.Manager: queue and send an alloc request, cancel it, replace one in limited mode, free resources, clean
up after a job, and recover after the loss of a scheduler.
"""

from __future__ import annotations

import errno
import heapq
from collections import OrderedDict

from pilothouse.formats import resource_set
from pilothouse.model.idset import IdSet
from pilothouse.protocols.rfc27 import frames, rpc
from pilothouse.protocols.rfc27 import payloads as p
from pilothouse.protocols.rfc27.job_states import JobEvent, State
from pilothouse.protocols.rfc27.managed_job import Alloc, AllocQueue, ManagedJob
from pilothouse.protocols.rfc27.manager_events import CancelConfirmed, Event, Suspended

MOST_INACTIVE = 10_000
"""Limit of ended jobs that are remembered."""
MOST_SPECS = 10_000
"""Limit of different jobspecs that jobs share."""
MOST_REQUESTS = 2**62
"""Limit of alloc requests that are sent at once, unless the caller names another: none."""


class AllocRequests(rpc.Endpoint[Event]):
    """All jobs of one instance."""

    def __init__(self, *, strict: bool = False) -> None:
        super().__init__()
        self.jobs: dict[int, ManagedJob] = {}
        self.inactive: OrderedDict[int, ManagedJob] = OrderedDict()
        self.online = False
        self.strict = strict
        self.limit = 0
        self.stopped = False
        """The queue is administratively stopped: no alloc requests are sent."""
        self.pending: dict[int, ManagedJob] = {}
        self.holding: dict[int, ManagedJob] = {}
        self.queue = AllocQueue()
        self._forced = strict
        self._specs: dict[bytes, bytes] = {}
        self._ended_pending: set[int] = set()
        """Ended jobs whose canceled request is still open (today's dialect does not wait for the answer)."""
        self._lowest: list[tuple[int, float, int, ManagedJob]] = []
        """Heap of pending jobs, lowest priority first; kept in limited mode only."""
        self._bumping: int | None = None

    def find(self, job_id: int) -> ManagedJob | None:
        return self.jobs.get(job_id) or self.inactive.get(job_id)

    def dispatch(self, most: int = MOST_REQUESTS) -> int:
        """Sends up to `most` alloc requests within the scheduler's limit; returns their number."""
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

    def lost(self, now: float, reason: str = "the scheduler disconnected") -> None:
        """RFC 27, Finalization: scheduling is suspended; running jobs go on."""
        if self.online:
            self.events.append(Suspended(reason))
            self.warnings.append(f"scheduling is suspended: {reason}")
        self.online = False
        self._bumping = None
        self._lowest = []
        self._caller.fail_all(errno.ECANCELED)
        self._ended_pending.clear()
        pending, self.pending = self.pending, {}
        for job in pending.values():
            job.alloc = Alloc.NONE
            # RFC 27, Alloc Annotate: annotations are volatile until the allocation succeeds.
            job.annotations = None
            if job.state is State.SCHED:
                self._enqueue(job)
            else:
                self._clean(now, job)
                self.events.append(CancelConfirmed(job.id))
        for job in self.holding.values():
            job.freeing = False

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

    def _send(self, topic: str, payload: bytes, flags: int = frames.NORESPONSE) -> None:
        self.out.append(rpc.request(topic, payload, flags=flags))

    def _enqueue(self, job: ManagedJob) -> None:
        """RFC 21: a held job stays out of the queue, or leaves it."""
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
        if self._bumping == job.id:
            self._bumping = None
        job.alloc = Alloc.NONE
        self.pending.pop(job.id, None)

    def _note_pending(self, job: ManagedJob) -> None:
        if self.limit:
            heapq.heappush(self._lowest, (job.priority, -job.submitted_s, -job.id, job))

    def _bump(self) -> None:
        """Limited mode: a job of higher priority replaces the lowest pending one, one at a time."""
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
            # The job is in every hello until a scheduler has answered.
            if self.online:
                job.freeing = True
                self._send("sched.free", b'{"id":%d}' % job.id, flags=0)
            return
        if self.online:
            resources = job.resources
            if job.freed_ranks:
                held = job.resource_set()
                resources = resource_set.encode(held.only(held.rank_ids() - IdSet(job.freed_ranks)))
            self._send_free(job.id, resources, final=True)
        # Today's Flux does not wait for an answer; an absent scheduler learns it from the next hello.
        self._freed(now, job)

    def _send_free(self, job_id: int, resources: bytes, *, final: bool) -> None:
        ending = b',"final":true}' if final else b',"final":false}'
        self._send("sched.free", b'{"id":%d,"R":' % job_id + resources + ending, flags=0)

    def _freed(self, now: float, job: ManagedJob) -> None:
        self.holding.pop(job.id, None)
        job.resources = b""
        job.post(now, JobEvent.FREE)
        self._clean(now, job)

    def _clean(self, now: float, job: ManagedJob) -> None:
        job.post(now, JobEvent.CLEAN)
        del self.jobs[job.id]
        self.inactive[job.id] = job
        if len(self.inactive) > MOST_INACTIVE:
            self.inactive.popitem(last=False)

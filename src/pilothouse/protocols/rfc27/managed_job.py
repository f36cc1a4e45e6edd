"""One job as the job manager keeps it, and the queue of those that wait to be asked for.

A million of them must fit into memory: equal jobspecs share their bytes, the eventlog is one bytes object, everything
that only running jobs have is empty before.
"""

from __future__ import annotations

import enum
import heapq
from typing import Any

import msgspec

from pilothouse.formats import resource_set
from pilothouse.formats.resource_set import ResourceSet
from pilothouse.protocols.rfc27 import job_states, payloads
from pilothouse.protocols.rfc27.job_states import JobEvent, State


class Alloc(enum.IntEnum):
    """Where a job's alloc request is."""

    NONE = 0
    QUEUED = 1
    """It will be sent when the scheduler may have it."""
    PENDING = 2
    """The scheduler has it."""
    CANCELING = 3
    """The scheduler has it, and a sched.cancel after it."""


class ManagedJob(msgspec.Struct, eq=False, gc=False):
    """`gc=False`: it refers to no cycle; a collector that visits a million jobs takes seconds."""

    id: int
    userid: int
    urgency: int
    priority: int
    submitted_s: float
    spec: bytes
    log: bytes = b""
    state: State = State.NEW
    alloc: Alloc = Alloc.NONE
    resources: bytes = b""
    """R as committed; empty while it holds nothing."""
    committed: bytes = b""
    """What the scheduler put into the KVS for it."""
    annotations: dict[str, Any] | None = None
    freed_ranks: int = 0
    """Mask of the ranks given back so far."""
    freeing: bool = False
    """A sched.free waits for its answer (the specification's dialect)."""
    started: bool = False
    """Tasks run: resources come back only when they are gone."""

    def post(self, at: float, event: JobEvent, context: dict[str, object] | None = None) -> None:
        """Log, then act: the eventlog alone leads to the state."""
        self.state = job_states.step(self.state, event)
        self.log += job_states.entry(at, event, context)

    def note(self, at: float, event: JobEvent, context: dict[str, object] | None = None) -> None:
        """An entry that changes no state (a mild exception)."""
        self.log += job_states.entry(at, event, context)

    def resource_set(self) -> ResourceSet:
        return resource_set.parse(self.resources)

    @property
    def holds(self) -> bool:
        return bool(self.resources)


def priority_of(urgency: int) -> int:
    """RFC 21/30: held jobs have none, expedited ones the highest."""
    if urgency == payloads.HELD_URGENCY:
        return payloads.HELD_PRIORITY
    if urgency == payloads.EXPEDITED_URGENCY:
        return payloads.EXPEDITED_PRIORITY
    return urgency


class AllocQueue:
    """Jobs in the order in which they are to be asked for: priority, then submit time. All verbs are O(log n)."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, float, int, ManagedJob]] = []
        self._count = 0

    def push(self, job: ManagedJob) -> None:
        if job.alloc is not Alloc.QUEUED:
            job.alloc = Alloc.QUEUED
            self._count += 1
        heapq.heappush(self._heap, (-job.priority, job.submitted_s, job.id, job))

    def drop(self, job: ManagedJob) -> None:
        """Its entry stays and is skipped later."""
        if job.alloc is Alloc.QUEUED:
            job.alloc = Alloc.NONE
            self._count -= 1
        if len(self._heap) > 64 and len(self._heap) > 4 * self._count:
            self._heap = [entry for entry in self._heap if _valid(entry)]
            heapq.heapify(self._heap)

    def first(self) -> ManagedJob | None:
        while self._heap:
            if _valid(self._heap[0]):
                return self._heap[0][3]
            heapq.heappop(self._heap)
        return None

    def pop(self) -> ManagedJob:
        """The first one; there must be one."""
        job = self.first()
        assert job is not None
        heapq.heappop(self._heap)
        job.alloc = Alloc.NONE
        self._count -= 1
        return job

    def __len__(self) -> int:
        return self._count


def _valid(entry: tuple[int, float, int, ManagedJob]) -> bool:
    job = entry[3]
    return job.alloc is Alloc.QUEUED and -entry[0] == job.priority

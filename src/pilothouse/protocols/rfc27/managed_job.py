"""One job of the job manager, and the queue of jobs whose alloc request is to be sent.

A million jobs must fit into memory: equal jobspecs share their bytes, the eventlog is one bytes object, and members that
only running jobs use are empty before.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Mapping
from typing import Any

import msgspec

from pilothouse.formats import resource_set
from pilothouse.formats.resource_set import ResourceSet
from pilothouse.protocols.rfc27 import job_states, payloads
from pilothouse.protocols.rfc27.job_states import JobEvent, State

MOST_DEPTH = 64
"""Limit of nested dictionaries in annotations that are merged."""
LEAST_HEAP = 64
MOST_HEAP_RATIO = 4
"""A queue with more entries than the first, and than so many for each of its jobs, is cleared of those that it skips."""


class Alloc(enum.IntEnum):
    """State of a job's alloc request."""

    NONE = 0
    QUEUED = 1
    """To be sent when the scheduler's limit allows it."""
    PENDING = 2
    """Sent, not answered."""
    CANCELING = 3
    """Sent, not answered, and a sched.cancel after it."""


class ManagedJob(msgspec.Struct, eq=False, gc=False):
    """`gc=False`: it is in no reference cycle, and visiting a million jobs takes the collector seconds."""

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
    """R; empty while it holds nothing."""
    committed: bytes = b""
    """R as the scheduler committed it to the KVS."""
    annotations: dict[str, Any] | None = None
    freed_ranks: int = 0
    """Mask of the ranks that were given back."""
    freeing: bool = False
    """A sched.free is not answered yet (the specification's dialect)."""
    started: bool = False
    """Its tasks run: resources come back only after their end."""

    def post(self, at: float, event: JobEvent, context: dict[str, object] | None = None) -> None:
        """Appends an event to the eventlog and changes the state."""
        self.state = job_states.step(self.state, event)
        self.log += job_states.entry(at, event, context)

    def note(self, at: float, event: JobEvent, context: dict[str, object] | None = None) -> None:
        """Appends an event that changes no state (an exception of severity > 0)."""
        self.log += job_states.entry(at, event, context)

    def resource_set(self) -> ResourceSet:
        return resource_set.parse(self.resources)

    @property
    def holds(self) -> bool:
        return bool(self.resources)


def priority_of(urgency: int) -> int:
    """The priority of an urgency (RFC 21, RFC 30): held jobs have 0, expedited ones the highest."""
    if urgency == payloads.HELD_URGENCY:
        return payloads.HELD_PRIORITY
    if urgency == payloads.EXPEDITED_URGENCY:
        return payloads.EXPEDITED_PRIORITY
    return urgency


def merged(old: Mapping[str, Any] | None, new: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Annotations after an update (RFC 27, Alloc Annotate): dictionaries merge recursively, null removes a key, other
    values replace. A null for a missing key adds nothing, at any depth."""
    result = dict(old) if old else {}
    for key, value in new.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and depth < MOST_DEPTH:
            before = result.get(key)
            result[key] = merged(before if isinstance(before, Mapping) else None, value, depth + 1)
        else:
            result[key] = value
    return result


class AllocQueue:
    """Jobs by priority, then submit time. All operations are O(log n)."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, float, int, ManagedJob]] = []
        self._count = 0

    def push(self, job: ManagedJob) -> None:
        if job.alloc is not Alloc.QUEUED:
            job.alloc = Alloc.QUEUED
            self._count += 1
        heapq.heappush(self._heap, (-job.priority, job.submitted_s, job.id, job))

    def drop(self, job: ManagedJob) -> None:
        """Removes a job. Its heap entry stays and is skipped later."""
        if job.alloc is Alloc.QUEUED:
            job.alloc = Alloc.NONE
            self._count -= 1
        if len(self._heap) > LEAST_HEAP and len(self._heap) > MOST_HEAP_RATIO * self._count:
            self._heap = [entry for entry in self._heap if _valid(entry)]
            heapq.heapify(self._heap)

    def first(self) -> ManagedJob | None:
        while self._heap:
            if _valid(self._heap[0]):
                return self._heap[0][3]
            heapq.heappop(self._heap)
        return None

    def pop(self) -> ManagedJob:
        """Removes and returns the first job of a queue that is not empty."""
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

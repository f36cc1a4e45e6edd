"""Events of the scheduler's end of RFC 27: what scheduler.SchedulerEngine reports to its owner."""

from __future__ import annotations

import msgspec

from pilothouse.formats.resource_set import ResourceSet
from pilothouse.model.idset import IdSet
from pilothouse.protocols.rfc27.frames import Message
from pilothouse.protocols.rfc27.payloads import HelloJob


class Event(msgspec.Struct):
    """Base of all events."""


class Inventory(Event):
    """All resources of the instance, and the ranks that are up."""

    resources: ResourceSet
    up: IdSet
    now: float | None = None
    """The date of a manager in simulated time."""


class RanksChanged(Event):
    up: IdSet = IdSet()
    down: IdSet = IdSet()
    gone: IdSet = IdSet()


class InstanceExpires(Event):
    """The end of the instance itself (0: none)."""

    expiration_s: float


class PropertiesChanged(Event):
    added: dict[str, IdSet]
    removed: dict[str, IdSet]


class JobHolds(Event):
    """A running job. `resources` is what it still holds."""

    job: HelloJob
    resources: ResourceSet


class Ready(Event):
    """The handshake is done. `strict`: the manager uses the specification's dialect."""

    strict: bool
    waiting: int


class AllocAsked(Event):
    id: int
    priority: int
    userid: int
    submitted_s: float
    spec: bytes


class AllocCanceled(Event):
    id: int


class Prioritized(Event):
    jobs: list[tuple[int, int]]


class Freed(Event):
    """`resources` None: all that the job still holds."""

    id: int
    resources: ResourceSet | None
    final: bool


class ExpirationChanged(Event):
    id: int
    expiration_s: float


class FeasibilityAsked(Event):
    request: Message
    spec: bytes


class StatusAsked(Event):
    request: Message


class QuiesceAsked(Event):
    """Our extension sched.quiesce. It is answered after all answers to earlier requests."""

    request: Message
    now: float | None = None
    """The date of a manager in simulated time."""


class Failed(Event):
    """The handshake or a commit failed: the connection is of no more use."""

    problem: str

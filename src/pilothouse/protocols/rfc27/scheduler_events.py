"""What the scheduler's end of RFC 27 hears: the events that scheduler.SchedulerEngine hands to its owner."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from pilothouse.formats.jobspec import Jobspec
from pilothouse.formats.resource_set import ResourceSet
from pilothouse.model.idset import IdSet
from pilothouse.protocols.rfc27.payloads import HelloJob


class Inventory(msgspec.Struct):
    """All resources there are, and the ranks that are up."""

    resources: ResourceSet
    up: IdSet
    now: float | None = None
    """The manager's date, where it is a simulated one."""


class RanksChanged(msgspec.Struct):
    up: IdSet = IdSet()
    down: IdSet = IdSet()
    gone: IdSet = IdSet()


class InstanceExpires(msgspec.Struct):
    """The instance itself ends then (0: never)."""

    expiration_s: float


class PropertiesChanged(msgspec.Struct):
    added: dict[str, IdSet]
    removed: dict[str, IdSet]


class JobHolds(msgspec.Struct):
    """A job that already holds resources (what it has given back is taken off)."""

    job: HelloJob
    resources: ResourceSet


class Ready(msgspec.Struct):
    """The handshake is done. `strict`: the manager speaks the specification's dialect."""

    strict: bool
    waiting: int


class AllocAsked(msgspec.Struct):
    id: int
    priority: int
    userid: int
    submitted_s: float
    spec: Jobspec
    source: bytes


class AllocCanceled(msgspec.Struct):
    id: int


class Prioritized(msgspec.Struct):
    jobs: list[tuple[int, int]]


class Freed(msgspec.Struct):
    """`resources` is None where all that is left of the job comes back."""

    id: int
    resources: ResourceSet | None
    final: bool


class ExpirationChanged(msgspec.Struct):
    id: int
    expiration_s: float


class FeasibilityAsked(msgspec.Struct):
    question: int
    spec: Jobspec
    source: bytes


class StatusAsked(msgspec.Struct):
    question: int


class QuiesceAsked(msgspec.Struct):
    """The extension sched.quiesce: answered when all that follows from what came before has been said."""

    question: int
    now: float | None = None
    """The manager's date, where it is a simulated one."""


class Failed(msgspec.Struct):
    """The handshake failed, or the KVS does not take our Rs: nothing more will come of this connection."""

    problem: str


Event: TypeAlias = (
    Inventory
    | RanksChanged
    | InstanceExpires
    | PropertiesChanged
    | JobHolds
    | Ready
    | AllocAsked
    | AllocCanceled
    | Prioritized
    | Freed
    | ExpirationChanged
    | FeasibilityAsked
    | StatusAsked
    | QuiesceAsked
    | Failed
)

"""Events of the job manager's end of RFC 27: what manager.Manager reports to its owner."""

from __future__ import annotations

import msgspec


class Event(msgspec.Struct):
    """Base of all events."""


class Allocated(Event):
    id: int
    resources: bytes


class Denied(Event):
    id: int
    note: str


class Annotated(Event):
    """`notes` is the update as it arrived, not the merged dictionary."""

    id: int
    notes: dict[str, object]


class CancelConfirmed(Event):
    id: int


class WentOnline(Event):
    strict: bool
    limit: int


class Suspended(Event):
    reason: str


class FeasibilityAnswered(Event):
    question: int
    refusal: str


class Quiet(Event):
    """The scheduler has read everything that was sent before `question`. `done`: it also says that it has acted on it."""

    question: int
    done: bool
    call_at: float | None = None

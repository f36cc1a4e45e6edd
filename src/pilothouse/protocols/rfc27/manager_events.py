"""What the job manager's end of RFC 27 hears: the events that manager.Manager hands to its owner."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Allocated(msgspec.Struct):
    id: int
    resources: bytes


class Denied(msgspec.Struct):
    id: int
    note: str


class Annotated(msgspec.Struct):
    """`notes` is the update as it came, not the merged dictionary."""

    id: int
    notes: dict[str, object]


class CancelConfirmed(msgspec.Struct):
    id: int


class WentOnline(msgspec.Struct):
    strict: bool
    limit: int


class Suspended(msgspec.Struct):
    reason: str


class FeasibilityAnswered(msgspec.Struct):
    question: int
    refusal: str


class Quiet(msgspec.Struct):
    """The scheduler has read everything that was said before `question`. `done`: and acted on it, as it says itself."""

    question: int
    done: bool
    call_at: float | None = None


Event: TypeAlias = (
    Allocated | Denied | Annotated | CancelConfirmed | WentOnline | Suspended | FeasibilityAnswered | Quiet
)

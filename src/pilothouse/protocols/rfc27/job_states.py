"""RFC 21: the states of a Flux job, and the events that change them.

A job is NEW until its submission is validated, waits in DEPEND for others, in PRIORITY for its priority and in
SCHED for resources; an `alloc` event takes it to RUN, `finish` (or a fatal exception, from anywhere) to CLEANUP, where
its resources are freed, and `clean` makes it INACTIVE for good.

    NEW ─validate─► DEPEND ─depend─► PRIORITY ─priority─► SCHED ─alloc─► RUN ─finish─► CLEANUP ─clean─► INACTIVE
                                        ▲                   │
                                        └──── urgency ──────┘        exception (severity 0): any ─► CLEANUP

The table is total: every (state, event) has a target, or None if the event is illegal in that state.
"""

from __future__ import annotations

import enum

import msgspec


class State(enum.IntEnum):
    """The values are Flux's."""

    NEW = 1
    DEPEND = 2
    PRIORITY = 4
    SCHED = 8
    RUN = 16
    CLEANUP = 32
    INACTIVE = 64

    __hash__ = int.__hash__


class JobEvent(enum.Enum):
    """`encoded` is the name as an eventlog has it. Ten events are posted for each job, so hashing must be quick."""

    SUBMIT = "submit"
    VALIDATE = "validate"
    DEPEND = "depend"
    PRIORITY = "priority"
    URGENCY = "urgency"
    ALLOC = "alloc"
    START = "start"
    FINISH = "finish"
    RELEASE = "release"
    FREE = "free"
    CLEAN = "clean"
    EXCEPTION = "exception"
    """Of severity 0. Others change no state and are not in the table."""
    RESOURCE_UPDATE = "resource-update"

    def __init__(self, name: str) -> None:
        self.encoded = name.encode()

    __hash__ = object.__hash__


_ROWS: dict[State, dict[JobEvent, State]] = {
    State.NEW: {
        JobEvent.SUBMIT: State.NEW,
        JobEvent.VALIDATE: State.DEPEND,
        JobEvent.EXCEPTION: State.CLEANUP,
    },
    State.DEPEND: {
        JobEvent.DEPEND: State.PRIORITY,
        JobEvent.URGENCY: State.DEPEND,
        JobEvent.EXCEPTION: State.CLEANUP,
    },
    State.PRIORITY: {
        JobEvent.PRIORITY: State.SCHED,
        JobEvent.URGENCY: State.PRIORITY,
        JobEvent.EXCEPTION: State.CLEANUP,
    },
    State.SCHED: {
        JobEvent.URGENCY: State.PRIORITY,
        JobEvent.PRIORITY: State.SCHED,
        JobEvent.ALLOC: State.RUN,
        JobEvent.EXCEPTION: State.CLEANUP,
    },
    State.RUN: {
        JobEvent.START: State.RUN,
        JobEvent.RESOURCE_UPDATE: State.RUN,
        JobEvent.RELEASE: State.RUN,
        JobEvent.FINISH: State.CLEANUP,
        JobEvent.EXCEPTION: State.CLEANUP,
    },
    State.CLEANUP: {
        JobEvent.START: State.CLEANUP,
        JobEvent.FINISH: State.CLEANUP,
        JobEvent.RELEASE: State.CLEANUP,
        JobEvent.FREE: State.CLEANUP,
        JobEvent.EXCEPTION: State.CLEANUP,
        JobEvent.CLEAN: State.INACTIVE,
    },
    State.INACTIVE: {},
}

TRANSITIONS: dict[tuple[State, JobEvent], State | None] = {
    (state, event): row.get(event) for state, row in _ROWS.items() for event in JobEvent
}


class IllegalEvent(AssertionError):
    """An event that the job's state does not allow."""


def step(state: State, event: JobEvent) -> State:
    target = TRANSITIONS[state, event]
    if target is None:
        raise IllegalEvent(f"a job in state {state.name} cannot have the event {event.value!r}")
    return target


def entry(at: float, event: JobEvent, context: dict[str, object] | None = None) -> bytes:
    """One line of an eventlog (RFC 18)."""
    if context is None:
        return b'{"timestamp":%.6f,"name":"%s"}\n' % (at, event.encoded)
    return b'{"timestamp":%.6f,"name":"%s","context":%s}\n' % (at, event.encoded, msgspec.json.encode(context))

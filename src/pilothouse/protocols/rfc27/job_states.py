"""RFC 21: the states of a Flux job, the events that move it, and its eventlog (RFC 18).

Theory. A job is NEW until its submission is validated, waits in DEPEND for others, in PRIORITY for its priority and in
SCHED for resources; an `alloc` event takes it to RUN, `finish` (or a fatal exception, from anywhere) to CLEANUP, where
its resources are freed, and `clean` makes it INACTIVE for good.

    NEW ─validate─► DEPEND ─depend─► PRIORITY ─priority─► SCHED ─alloc─► RUN ─finish─► CLEANUP ─clean─► INACTIVE
                                        ▲                   │
                                        └──── urgency ──────┘        exception (severity 0): any ─► CLEANUP

The table is total: every (state, event) has a target or None, which makes the event illegal there.
"""

from __future__ import annotations

import enum

import msgspec


class State(enum.IntEnum):
    """The values are those that Flux gives them."""

    NEW = 1
    DEPEND = 2
    PRIORITY = 4
    SCHED = 8
    RUN = 16
    CLEANUP = 32
    INACTIVE = 64


class JobEvent(enum.Enum):
    SUBMIT = "submit"
    VALIDATE = "validate"
    DEPEND = "depend"
    PRIORITY = "priority"
    URGENCY = "urgency"
    ANNOTATIONS = "annotations"
    ALLOC = "alloc"
    START = "start"
    FINISH = "finish"
    RELEASE = "release"
    FREE = "free"
    CLEAN = "clean"
    EXCEPTION = "exception"
    """Of severity 0; milder ones change no state and are not in the table."""
    RESOURCE_UPDATE = "resource-update"


_S = State

_ROWS: dict[State, dict[JobEvent, State]] = {
    State.NEW: {
        JobEvent.SUBMIT: _S.NEW,
        JobEvent.VALIDATE: _S.DEPEND,
        JobEvent.EXCEPTION: _S.CLEANUP,
    },
    State.DEPEND: {
        JobEvent.DEPEND: _S.PRIORITY,
        JobEvent.URGENCY: _S.DEPEND,
        JobEvent.ANNOTATIONS: _S.DEPEND,
        JobEvent.EXCEPTION: _S.CLEANUP,
    },
    State.PRIORITY: {
        JobEvent.PRIORITY: _S.SCHED,
        JobEvent.URGENCY: _S.PRIORITY,
        JobEvent.ANNOTATIONS: _S.PRIORITY,
        JobEvent.EXCEPTION: _S.CLEANUP,
    },
    State.SCHED: {
        JobEvent.URGENCY: _S.PRIORITY,
        JobEvent.PRIORITY: _S.SCHED,
        JobEvent.ANNOTATIONS: _S.SCHED,
        JobEvent.ALLOC: _S.RUN,
        JobEvent.EXCEPTION: _S.CLEANUP,
    },
    State.RUN: {
        JobEvent.START: _S.RUN,
        JobEvent.ANNOTATIONS: _S.RUN,
        JobEvent.RESOURCE_UPDATE: _S.RUN,
        JobEvent.RELEASE: _S.RUN,
        JobEvent.FINISH: _S.CLEANUP,
        JobEvent.EXCEPTION: _S.CLEANUP,
    },
    State.CLEANUP: {
        JobEvent.START: _S.CLEANUP,
        JobEvent.FINISH: _S.CLEANUP,
        JobEvent.RELEASE: _S.CLEANUP,
        JobEvent.FREE: _S.CLEANUP,
        JobEvent.ANNOTATIONS: _S.CLEANUP,
        JobEvent.EXCEPTION: _S.CLEANUP,
        JobEvent.CLEAN: _S.INACTIVE,
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
    """One line of an eventlog."""
    if context is None:
        return b'{"timestamp":%.6f,"name":"%s"}\n' % (at, event.value.encode())
    return b'{"timestamp":%.6f,"name":"%s","context":%s}\n' % (at, event.value.encode(), msgspec.json.encode(context))


class LogEntry(msgspec.Struct):
    timestamp: float
    name: str
    context: dict[str, object] = {}


_decoder = msgspec.json.Decoder(LogEntry)


def read_log(log: bytes) -> list[LogEntry]:
    return [_decoder.decode(line) for line in log.splitlines()]


def replay(log: bytes) -> State:
    """The state that the eventlog leads to: a restarted manager knows nothing else."""
    state = State.NEW
    for line in read_log(log):
        if line.name == JobEvent.EXCEPTION.value and line.context.get("severity") != 0:
            continue
        state = step(state, JobEvent(line.name))
    return state

"""Reads the eventlogs (RFC 18) that the manager writes, for tests."""

from __future__ import annotations

import msgspec

from pilothouse.protocols.rfc27.job_states import JobEvent, State, step


class LogEntry(msgspec.Struct):
    timestamp: float
    name: str
    context: dict[str, object] = {}


_decoder = msgspec.json.Decoder(LogEntry)


def read_log(log: bytes) -> list[LogEntry]:
    return [_decoder.decode(line) for line in log.splitlines()]


def replay(log: bytes) -> State:
    """The state that the eventlog leads to."""
    state = State.NEW
    for line in read_log(log):
        if line.name == JobEvent.EXCEPTION.value and line.context.get("severity") != 0:
            continue
        state = step(state, JobEvent(line.name))
    return state

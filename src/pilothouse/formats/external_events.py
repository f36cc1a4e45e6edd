"""External events, one JSON object a line, as Batsim 4 and 5 write them.

{"type": "machine_unavailable", "resources": "0-1 3", "timestamp": 20}     (and machine_available)
{"type": "generic", "timestamp": 20, "data": "..."}
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from pilothouse.formats.text_input import JSON_PROBLEMS, read_text
from pilothouse.model.errors import InputError, quoted
from pilothouse.model.events import Event, ExternalEvent, UnitsAvailable, UnitsUnavailable
from pilothouse.model.idset import IdSet


class _Line(msgspec.Struct):
    type: str
    timestamp: float
    resources: str = ""
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_LINE = msgspec.json.Decoder(_Line)
_ORDER = {"machine_available": 0, "machine_unavailable": 1}


def read(
    path: str | Path, name: str = "ee0", *, forward_unknown: bool = False, knows_generic: bool = True, strict: bool = False
) -> list[Event]:
    """The events in order of date; at one date machines become available before others become unavailable.

    An event of an unknown type is an error, unless `forward_unknown`: then it becomes an ExternalEvent with its whole line
    as data. Batsim 4 does not know the type "generic" (`knows_generic=False`). `strict`: as Batsim 5 reads them, data are text,
    and a blank line is empty.
    """
    found: list[tuple[float, int, int, Event]] = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not (line if strict else line.strip()):
            continue
        where = f"{path}:{number}"
        try:
            written = _LINE.decode(line)
        except JSON_PROBLEMS as problem:
            raise InputError(where, f"not an external event: {problem}", found=quoted(line)) from None
        if not written.timestamp >= 0:
            raise InputError(where, "the date of an event", expected="0 or more", found=str(written.timestamp))
        event_id = f"{name}!{len(found)}"
        if written.type in _ORDER:
            event: Event = _machine_event(written, where)
        elif written.type == "generic" and knows_generic:
            if written.data is msgspec.UNSET or (strict and not bytes(written.data).startswith(b'"')):
                wrong = "an event without data that are text" if strict else "an event without data"
                raise InputError(where, wrong, expected='"data": "..."', found=quoted(line))
            event = ExternalEvent(written.timestamp, event_id, "generic", _text(written.data, where))
        elif forward_unknown:
            event = ExternalEvent(written.timestamp, event_id, written.type, line.strip())
        else:
            expected = "machine_available, machine_unavailable or generic"
            raise InputError(where, "unknown type of event", expected=expected, found=quoted(written.type))
        found.append((written.timestamp, _ORDER.get(written.type, 2), len(found), event))
    found.sort(key=lambda entry: entry[:3])
    return [event for _, _, _, event in found]


def _machine_event(written: _Line, where: str) -> UnitsAvailable | UnitsUnavailable:
    units = IdSet.parse(written.resources, where=where)
    if not units:
        raise InputError(where, "no resource is named", expected='"resources": "0-3 7"')
    kind = UnitsAvailable if written.type == "machine_available" else UnitsUnavailable
    return kind(written.timestamp, units)


def _text(raw: msgspec.Raw, where: str) -> str:
    """A string as it is, anything else as JSON."""
    text = bytes(raw).decode()
    try:
        return msgspec.json.decode(text, type=str) if text.startswith('"') else text
    except JSON_PROBLEMS as problem:
        raise InputError(where, f"not an external event: {problem}", found=quoted(text)) from None

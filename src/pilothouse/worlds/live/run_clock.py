"""The clock of a run: dates that a jump of the system's clock does not change.

A driver counts from the date of its start with the monotonic clock, and notes both in the journal. A reader on the same host
reads the same clock; on another host, or after a restart, it has the system's clock only.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from pilothouse.worlds.live.engine.spool import boot_id
from pilothouse.worlds.live.records import Note

NOTE = "clock"


def clock_note(unix_time: float, monotonic: float) -> Note:
    """For the journal: the date of the driver's start by both clocks."""
    return Note(NOTE, f"{unix_time - monotonic!r} {boot_id()}".encode())


def date_now(notes: Mapping[str, bytes]) -> float:
    """Seconds since 1970, as the driver of the run would say."""
    offset, _, boot = notes.get(NOTE, b"").decode("ascii", "replace").partition(" ")
    try:
        return float(offset) + time.monotonic() if boot == boot_id() else time.time()
    except ValueError:
        return time.time()

"""The turns that actors spend on reading the energy meters of machines.

In SimGrid a meter that has not been read at this date costs its reader a turn. No time passes, but others go on meanwhile,
and their messages get ahead.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from pilothouse.model.idset import IdSet
from pilothouse.worlds.simulated.message_server.rounds import Command, turn

if TYPE_CHECKING:
    from pilothouse.worlds.simulated.message_server.server import Server


def read_meters(server: Server, units: IdSet) -> Generator[Command, Any, None]:
    """A job's actor reads the meters of its machines, then of all. What they show is read elsewhere."""
    now, read_at = server.agenda.now, server.meters_read_at
    if not server.begins.energy or not server.rules.meters_take_turns:
        return
    for unit in (*units, *range(len(server.machines))):
        if read_at.get(unit) != now:
            yield turn(partial(read_at.__setitem__, unit, now))


def read_meters_of(server: Server, units: Iterable[int]) -> Generator[Command, Any, None]:
    """Another actor reads the meters of these machines."""
    now, machines = server.agenda.now, server.machines
    for unit in units:
        if machines.meters[unit].last < now:
            yield turn(partial(machines.woke, unit))

"""Power states of a node: which of them are sleep, and which stand for the way to sleep and back.

The property `sleep_pstates` of a node lists triplets `sleep:off:on`, separated by commas. Each names a sleep state, the
transition state that leads into it and the one that leads out of it. Jobs run in all power states that it does not name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Protocol

import msgspec

from pilothouse.model.errors import InputError, quoted
from pilothouse.model.numerals import whole_number


class SleepState(msgspec.Struct, frozen=True):
    """A sleep state, and the transition states that lead into it and out of it."""

    asleep: int
    going_off: int
    coming_on: int


class HasPowerStates(Protocol):
    """A Node, or a host of a simulated platform. `speeds` may be empty where they are unknown."""

    @property
    def name(self) -> str: ...
    @property
    def properties(self) -> dict[str, str]: ...
    @property
    def speeds(self) -> tuple[float, ...]: ...


def sleep_states(node: HasPowerStates) -> Mapping[int, SleepState]:
    """The sleep states of a node by their number. InputError names the node."""
    text = node.properties.get("sleep_pstates", "")
    if not text:
        return {}
    found = _parsed(text, len(node.speeds))
    if found is None:
        where, known = f"host {node.name}: sleep_pstates", f": there are {len(node.speeds)} pstates" if node.speeds else ""
        expected = "triplets like 3:4:5 (sleep:off:on)"
        raise InputError(where, f"not a sleep state{known}", expected=expected, found=quoted(text))
    return found


def computes(node: HasPowerStates, power_state: int) -> bool:
    """Whether jobs can run on the node in that power state."""
    return not any(
        power_state in (sleep.asleep, sleep.going_off, sleep.coming_on) for sleep in sleep_states(node).values()
    )


@lru_cache(maxsize=1024)
def _parsed(text: str, count: int) -> dict[int, SleepState] | None:
    """None: not as it should be. A count of 0 means that any number will do."""
    states: dict[int, SleepState] = {}
    for triplet in text.split(","):
        if not triplet.strip():
            continue
        numbers = [number for part in triplet.split(":") if (number := whole_number(part.strip())) is not None]
        if len(numbers) != 3 or triplet.count(":") != 2:
            return None
        sleep = SleepState(*numbers)
        if count and max(sleep.asleep, sleep.going_off, sleep.coming_on) >= count:
            return None
        states[sleep.asleep] = sleep
    return states

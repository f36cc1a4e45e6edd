"""The energy of hosts: a meter for each, read when something changes, and on request.

Power is `idle` watts while nothing computes, else from `epsilon` (the least that computing costs) up to `full` with the
load, per power state (property wattage_per_state or watt_per_state: `idle:full` or `idle:epsilon:full`,
comma-separated).

A meter that is read multiplies the time since its last reading with the power at the moment of reading. That is how
SimGrid's plugin does it, so what Batsim recorded comes out: a task counts as load already during its latency. With
`exact` the meters are also read whenever the rates of flows change, and the integral is right.
"""

from __future__ import annotations

from pilothouse.model.errors import InputError, quoted
from pilothouse.worlds.simulated.physics.demand import Processor
from pilothouse.worlds.simulated.physics.platform import Host

POWER_PROPERTIES = ("wattage_per_state", "watt_per_state")


class PowerRange:
    """Watts of one power state."""

    __slots__ = ("epsilon", "full", "idle")

    def __init__(self, idle: float, epsilon: float, full: float) -> None:
        self.idle = idle
        self.epsilon = epsilon
        self.full = full

    def at(self, load: float) -> float:
        """Power at a load from 0 to 1."""
        return self.idle if load <= 0 else self.epsilon + (self.full - self.epsilon) * min(load, 1.0)


class Meter:
    """The energy of one host since 0."""

    __slots__ = ("_ranges", "host", "joules", "last", "processor")

    def __init__(self, host: Host, processor: Processor, ranges: list[PowerRange]) -> None:
        self.host = host
        self.processor = processor
        self._ranges = ranges
        self.joules = 0.0
        self.last = 0.0

    def read(self, now: float, pstate: int) -> float:
        """Accounts for the time since the last reading; the sum so far."""
        if now > self.last:
            self.joules += self.power(pstate) * (now - self.last)
            self.last = now
        return self.joules

    def power(self, pstate: int) -> float:
        """Watts at this moment."""
        processor = self.processor
        load = processor.load() / processor.capacity if processor.users else 0.0
        return self.range(pstate).at(load)

    def range(self, pstate: int) -> PowerRange:
        return self._ranges[pstate]


def power_ranges(host: Host, where: str, known: dict[str, list[PowerRange]]) -> list[PowerRange]:
    """Reads the power property of a host; hosts with the same text share the result."""
    for name in POWER_PROPERTIES:
        text = host.properties.get(name)
        if text is not None:
            if text not in known:
                known[text] = [_range(part, f"{where}: host {host.name}: {name}") for part in text.split(",")]
            if len(known[text]) != len(host.speeds):
                expected = f"{len(host.speeds)} entries, one for each power state"
                raise InputError(f"{where}: host {host.name}: {name}", "powers", expected=expected, found=quoted(text))
            return known[text]
    raise InputError(where, f"host {host.name} has no property {POWER_PROPERTIES[0]}, which energy needs")


def _range(text: str, where: str) -> PowerRange:
    try:
        numbers = [float(part) for part in text.split(":")]
    except ValueError:
        numbers = []
    if len(numbers) == 2:
        return PowerRange(numbers[0], numbers[0], numbers[1])
    if len(numbers) == 3:
        return PowerRange(numbers[0], numbers[1], numbers[2])
    raise InputError(where, "not a power", expected="idle:full or idle:epsilon:full in watts", found=quoted(text))

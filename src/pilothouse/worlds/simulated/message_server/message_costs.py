"""What messages to the server cost: the latency of the route to the master host, and one byte over its bandwidth."""

from __future__ import annotations

from functools import cache

from pilothouse.worlds.simulated.message_server.rounds import Cost
from pilothouse.worlds.simulated.physics.platform import MASTER, Platform


class MessageCosts:
    """What one message to the server costs."""

    def __init__(self, platform: Platform) -> None:
        @cache
        def from_unit(unit: int) -> Cost:
            route = platform.route(unit, MASTER)
            return Cost(route.latency, route.bandwidth)

        self.from_unit = from_unit
        self.from_master = from_unit(MASTER)

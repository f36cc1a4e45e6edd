"""Read-only pictures of a run for front ends: its engines, and how much work waits. Sans-IO."""

from __future__ import annotations

import msgspec

from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.live.driver.engines import ProxyState
from pilothouse.worlds.live.driver.state import DriverState
from pilothouse.worlds.live.feeder import Feeding

_UNKNOWN_REST = 10**9
"""Tasks assumed to be left in a source of unknown length."""


class EngineView(msgspec.Struct, frozen=True):
    """One engine that is present, as it was when it was asked for."""

    id: str
    rank: int
    node: str
    """Unique in the run: a second engine on a host is `host#2`."""
    context: str
    key: str
    """What the context that started it calls it."""
    pid: int
    slots: int
    state: ProxyState
    given: int
    """Tasks assigned to it so far."""
    done: int
    failed: int

    @property
    def host(self) -> str:
        return self.node.partition("#")[0]


class Demand(msgspec.Struct, frozen=True):
    """Work that waits and slots that are free, both in slots."""

    waiting: int
    free: int
    busy: frozenset[str]
    """Contexts whose engines have work."""


def engine_views(driver: DriverState) -> list[EngineView]:
    return [
        EngineView(
            joined.engine, joined.rank, joined.node, joined.context, joined.key, joined.pid, joined.slots, proxy.state,
            proxy.given, proxy.done, proxy.failed,
        )
        for proxy in driver.engines.present.values()
        for joined in (proxy.joined,)
    ]  # fmt: skip


def demand(driver: DriverState) -> Demand:
    waiting = driver.waiting + driver.backlog.waiting_here
    feeder = driver.backlog.feeder
    if feeder is not None and feeder.state is Feeding.FEEDING:
        total = driver.backlog.total
        waiting += _UNKNOWN_REST if total is None else max(0, total - feeder.given_out)
    engines = driver.engines.present.values()
    free = sum(proxy.joined.slots for proxy in engines if not proxy.closed_for)
    free -= sum(len(group.units) for group in driver.groups.values() if group.state is not JobState.WAITING)
    busy = frozenset(proxy.joined.context for proxy in engines if proxy.assignments)
    return Demand(waiting * max(1, driver.options.units), max(0, free), busy)

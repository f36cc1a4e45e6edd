"""The driver's table of engines: their states and the units that they own. Sans-IO.

Theory. An engine that says Hello is JOINED and owns a range of units. One that is asked to leave is LEAVING: it gets no
new work. GONE: it said goodbye (or its warden did). LOST: it was not heard for too long, and if it is ever heard again
it is dismissed. After a restart, the engines of the journal are EXPECTED until they are heard.

    EXPECTED ──heard──► JOINED ──asked to leave──► LEAVING ──said goodbye──► GONE
        └───────────────silent──┴──────────────────────┴──► LOST
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right

import msgspec

from pilothouse.model.idset import IdSet
from pilothouse.model.job import Node
from pilothouse.model.numerals import whole_number
from pilothouse.worlds.live.records import EngineJoined
from pilothouse.worlds.live.wire.messages import Channel, FromDriver, Hello


class ProxyState(enum.Enum):
    EXPECTED = "expected"
    JOINED = "joined"
    LEAVING = "leaving"
    GONE = "gone"
    LOST = "lost"


class ProxyStimulus(enum.Enum):
    HEARD = "said hello"
    ASKED_TO_LEAVE = "asked to leave"
    SAID_GOODBYE = "said goodbye"
    SILENT = "not heard for too long"


_S = ProxyState
_ROWS: dict[ProxyState, tuple[ProxyState, ...]] = {
    #               HEARD        ASKED_TO_LEAVE  SAID_GOODBYE  SILENT
    _S.EXPECTED: (_S.JOINED, _S.LEAVING, _S.GONE, _S.LOST),
    _S.JOINED: (_S.JOINED, _S.LEAVING, _S.GONE, _S.LOST),
    _S.LEAVING: (_S.LEAVING, _S.LEAVING, _S.GONE, _S.LOST),
    _S.GONE: (_S.GONE, _S.GONE, _S.GONE, _S.GONE),
    _S.LOST: (_S.LOST, _S.LOST, _S.LOST, _S.LOST),
}
TRANSITIONS: dict[tuple[ProxyState, ProxyStimulus], ProxyState] = {
    (state, stimulus): target
    for state, row in _ROWS.items()
    for stimulus, target in zip(ProxyStimulus, row, strict=True)
}
SPARE_UNITS = 4096
"""Unit numbers of engines that left are reused only when there are more than this many: in most runs a number means one
engine for good, and in large ones sets of units do not grow without end."""
PRESENT = frozenset((ProxyState.EXPECTED, ProxyState.JOINED, ProxyState.LEAVING))


class EngineProxy(msgspec.Struct, eq=False):
    """What the driver knows of one engine."""

    joined: EngineJoined
    state: ProxyState
    heard_at: float
    node: Node
    ends_at: float
    """On the driver's clock; inf: not known to end."""
    free_gpus: list[str]
    channel: Channel[FromDriver]
    speaks_at: float = 0.0
    """When the driver must send something again, if only a sign of life."""
    welcomed: bool = False
    commands: int = 0
    """How many per-engine START commands it was sent."""
    closed_for: str = ""
    """Why it gets no new work; "": it does."""
    leaves_at_once: bool = False
    """It was asked to end its tasks, not to finish them."""
    assignments: set[int] = msgspec.field(default_factory=set)
    given: int = 0
    """Tasks assigned to it so far."""
    done: int = 0
    failed: int = 0

    @property
    def id(self) -> str:
        return self.joined.engine

    @property
    def units(self) -> IdSet:
        return IdSet(self.node.mask)

    def part(self, units: IdSet) -> int:
        """Which of its slots are in this set: a mask that is no wider than the engine has slots."""
        return (units.mask >> self.node.first) & ((1 << self.node.count) - 1)

    def text_of(self, units: IdSet) -> str:
        """The set's text, where all of it is of this engine."""
        first = self.node.first
        runs = IdSet(self.part(units)).intervals()
        return " ".join(f"{first + low}" if low == high else f"{first + low}-{first + high}" for low, high in runs)

    def step(self, stimulus: ProxyStimulus) -> None:
        self.state = TRANSITIONS[self.state, stimulus]


def _properties(record: EngineJoined) -> dict[str, str]:
    """What deciders are shown of a node whose protocols have no other word for it."""
    shown = {"context": record.context, "gpus": str(len(record.gpus)), "memory_mb": str(record.memory_mb)}
    return {name: text for name, text in shown.items() if text != "0"}


class Engines:
    """All engines of the run."""

    def __init__(self) -> None:
        self.present: dict[str, EngineProxy] = {}
        self.departed: dict[str, EngineProxy] = {}
        self.units = 0
        """Units of all present engines."""
        self.spare_units = SPARE_UNITS
        self._next_unit = 0
        self._next_rank = 0
        self._firsts: list[int] = []
        self._owners: list[EngineProxy] = []
        """Present engines by their first units (`_firsts`)."""
        self._names: dict[str, int] = {}
        self._vacant: dict[str, list[tuple[int, int]]] = {}
        """Host -> (first unit, units) of engines that were lost there: an engine that replaces one gets the same."""
        self.keys_by_rank: dict[int, str] = {}
        """Rank -> EngineConfig.key, of all engines that have ever joined."""
        self._keys: dict[str, str] = {}
        """EngineConfig.key -> engine, of those that are present."""

    def reserve_rank(self) -> int:
        """The rank of an engine that must know it before it joins (Hello.properties)."""
        self._next_rank += 1
        return self._next_rank - 1

    def describe(self, engine: str, hello: Hello, at: float, held: int = 0) -> EngineJoined:
        """The record for an engine that joins: its rank, its units, a new node name. `held`: a mask of units that jobs hold
        although their engine may have left.
        """
        count = self._names.get(hello.node, 0) + 1
        name = hello.node if count == 1 else f"{hello.node}#{count}"
        rank = whole_number(hello.properties.get("rank", ""))
        return EngineJoined(
            engine, self._next_rank if rank is None else rank, hello.context, name, hello.slots, self._place(hello, held),
            hello.pid, at, hello.properties.get("key", ""), hello.gpus, hello.memory_mb, hello.cores,
        )  # fmt: skip

    def _place(self, hello: Hello, held: int) -> int:
        """The first unit of a new engine: that of the one it replaces, else a number never used, or if there are too many of
        those, the first gap.
        """
        slots = hello.slots
        for first, count in self._vacant.get(hello.node, ()):
            if count == slots and not (held >> first) & ((1 << slots) - 1) and self._is_gap(first, slots):
                return first
        if self._next_unit + slots <= max(self.spare_units, 2 * (self.units + slots)):
            return self._next_unit
        wanted = (1 << slots) - 1
        end = 0
        for first, proxy in zip(self._firsts, self._owners, strict=True):
            if first - end >= slots and not (held >> end) & wanted:
                return end
            end = first + proxy.joined.slots
        return self._next_unit if held >> end else end

    def _is_gap(self, first: int, slots: int) -> bool:
        """Whether no present engine has any of these units."""
        at = bisect_right(self._firsts, first + slots - 1) - 1
        return at < 0 or self._firsts[at] + self._owners[at].joined.slots <= first

    def enter(self, record: EngineJoined, state: ProxyState, now: float, ends_at: float) -> EngineProxy:
        node = Node(
            record.node, record.first_unit, record.slots, gpus=len(record.gpus), memory_mb=record.memory_mb,
            cores=record.cores or 1, properties=_properties(record),
        )  # fmt: skip
        proxy = EngineProxy(record, state, now, node, ends_at, list(record.gpus), Channel())
        host = record.node.partition("#")[0]
        self._names[host] = self._names.get(host, 0) + 1
        place = (record.first_unit, record.slots)
        if place in self._vacant.get(host, ()):
            self._vacant[host].remove(place)
        self.present[record.engine] = proxy
        self.keys_by_rank[record.rank] = record.key
        if record.key:
            self._keys[record.key] = record.engine
        at = bisect_right(self._firsts, record.first_unit)
        self._firsts.insert(at, record.first_unit)
        self._owners.insert(at, proxy)
        self._next_unit = max(self._next_unit, record.first_unit + record.slots)
        self._next_rank = max(self._next_rank, record.rank + 1)
        self.units += record.slots
        return proxy

    def remove(self, proxy: EngineProxy, stimulus: ProxyStimulus) -> None:
        proxy.step(stimulus)
        del self.present[proxy.id]
        if self._keys.get(proxy.joined.key) == proxy.id:
            del self._keys[proxy.joined.key]
        self.departed[proxy.id] = proxy
        if proxy.state is ProxyState.LOST:
            host = proxy.node.name.partition("#")[0]
            self._vacant.setdefault(host, []).append((proxy.node.first, proxy.node.count))
        at = bisect_left(self._firsts, proxy.joined.first_unit)
        while self._owners[at] is not proxy:  # while a journal is read, its replacement may be there as well
            at += 1
        del self._firsts[at], self._owners[at]
        self.units -= proxy.joined.slots

    def by_key(self, key: str) -> str | None:
        """The id of the present engine with this EngineConfig.key."""
        return self._keys.get(key)

    @property
    def keys_seen(self) -> set[str]:
        """The keys of all engines that have ever joined."""
        return set(self.keys_by_rank.values())

    def holder(self, units: IdSet) -> tuple[EngineProxy | None, bool]:
        """The engine that has the first of these units, and whether it has all of them.

        Most sets are of one engine, and its last unit is found without a look at the whole mask, which with thousands of
        engines is a thousand bytes wide.
        """
        proxy = self.owner(units.mask.bit_length() - 1)
        if proxy is not None and proxy.part(units) << proxy.node.first == units.mask:
            return proxy, True
        return self.owner(units.first()), False

    def owner(self, unit: int) -> EngineProxy | None:
        """The engine that has this unit; None: it has left."""
        index = bisect_right(self._firsts, unit) - 1
        if index < 0:
            return None
        proxy = self._owners[index]
        return proxy if unit < proxy.joined.first_unit + proxy.joined.slots else None

"""The table of engines against a twin that counts units one by one: where a new engine is placed, and who has which units."""

from __future__ import annotations

from random import Random

import pytest

from pilothouse.model.idset import IdSet
from pilothouse.worlds.live.driver.engines import EngineProxy, Engines, ProxyState, ProxyStimulus
from pilothouse.worlds.live.records import EngineJoined
from pilothouse.worlds.live.wire.messages import Hello

HOSTS = ("a", "b")


class Twin:
    """The same rules in the words of their description."""

    def __init__(self, spare_units: int) -> None:
        self.spare_units = spare_units
        self.present: dict[str, tuple[str, range]] = {}
        self.vacant: list[tuple[str, range]] = []
        self.ever = 0
        """The number of units that were ever given out."""

    def place(self, host: str, slots: int, held: set[int]) -> int:
        taken = {unit for _, units in self.present.values() for unit in units}
        for lost_at, units in self.vacant:
            if lost_at == host and len(units) == slots and not (taken | held) & set(units):
                return units.start
        if self.ever + slots <= max(self.spare_units, 2 * (len(taken) + slots)):
            return self.ever
        for start in (0, *sorted(units.stop for _, units in self.present.values())):
            gap = set(range(start, start + slots))
            if start < max(taken, default=-1) and not (taken | held) & gap:
                return start
        end = max(taken, default=-1) + 1
        return self.ever if any(unit >= end for unit in held) else end

    def enter(self, name: str, host: str, units: range) -> None:
        self.present[name] = (host, units)
        if (host, units) in self.vacant:
            self.vacant.remove((host, units))
        self.ever = max(self.ever, units.stop)

    def owner(self, unit: int) -> str | None:
        return next((name for name, (_, units) in self.present.items() if unit in units), None)


def enter(engines: Engines, record: EngineJoined) -> EngineProxy:
    return engines.enter(record, ProxyState.JOINED, 0.0, 0.0)


def hello(host: str, slots: int) -> Hello:
    return Hello(context="c", node=host, slots=slots, pid=1, started_at=0.0)


def check_owners(engines: Engines, twin: Twin, random: Random) -> None:
    assert engines.units == sum(len(units) for _, units in twin.present.values())
    for unit in range(twin.ever + 2):
        proxy = engines.owner(unit)
        assert (None if proxy is None else proxy.id) == twin.owner(unit)
    for _ in range(4):
        low = random.randrange(twin.ever + 1)
        wanted = set(range(low, low + random.randrange(1, 5)))
        if random.random() < 0.3:
            wanted.add(random.randrange(twin.ever + 1))
        found, has_all = engines.holder(IdSet.of(wanted))
        owners = {twin.owner(unit) for unit in wanted}
        assert has_all is (len(owners) == 1 and owners != {None})
        assert (None if found is None else found.id) == twin.owner(min(wanted))
        if has_all:
            assert found is not None
            assert found.text_of(IdSet.of(wanted)) == str(IdSet.of(wanted))
            assert set(IdSet(found.part(IdSet.of(wanted)))) == {unit - found.node.first for unit in wanted}


@pytest.mark.parametrize("seed", range(25))
def test_engines_are_placed_as_described_and_no_unit_has_two_owners(seed: int) -> None:
    random = Random(seed)
    engines, twin = Engines(), Twin(random.choice((0, 8, 30)))
    engines.spare_units = twin.spare_units
    for number in range(40):
        if twin.present and random.random() < 0.45:
            name = random.choice(list(twin.present))
            lost = random.random() < 0.5
            engines.remove(engines.present[name], ProxyStimulus.SILENT if lost else ProxyStimulus.SAID_GOODBYE)
            host, units = twin.present.pop(name)
            twin.vacant += [(host, units)] if lost else []
        else:
            host, slots = random.choice(HOSTS), random.choice((1, 2, 2, 3, 5))
            held = {unit for unit in range(twin.ever) if random.random() < random.choice((0.0, 0.0, 0.2))}
            mask = sum(1 << unit for unit in held)
            record = engines.describe(f"e{number}", hello(host, slots), 0.0, mask)
            assert record.first_unit == twin.place(host, slots, held)
            units = range(record.first_unit, record.first_unit + slots)
            assert not any(twin.owner(unit) for unit in units) and held.isdisjoint(units)
            enter(engines, record)
            twin.enter(record.engine, host, units)
        check_owners(engines, twin, random)


def test_an_engine_gets_the_next_rank_and_the_next_name_of_its_host() -> None:
    engines = Engines()
    for number, (host, name) in enumerate((("a", "a"), ("b", "b"), ("a", "a#2"), ("a", "a#3"), ("b", "b#2"))):
        record = engines.describe(f"e{number}", hello(host, 2), 5.0)
        assert (record.rank, record.node, record.first_unit, record.at) == (number, name, number * 2, 5.0)
        enter(engines, record)
    engines.remove(engines.present["e4"], ProxyStimulus.SAID_GOODBYE)
    record = engines.describe("e5", hello("b", 2), 5.0)
    assert (record.rank, record.node) == (5, "b#3"), "neither is used twice"


def test_what_deciders_see_of_an_engine() -> None:
    engines = Engines()
    full = enter(engines, EngineJoined("e0", 0, "c", "a", 4, 0, 1, 0.0, "k", ("g0", "g1"), 500, 8)).node
    assert (full.name, full.first, full.count, full.gpus, full.memory_mb, full.cores) == ("a", 0, 4, 2, 500, 8)
    assert full.properties == {"context": "c", "gpus": "2", "memory_mb": "500"}
    bare = enter(engines, EngineJoined("e1", 1, "c", "b", 1, 4, 1, 0.0)).node
    assert (bare.gpus, bare.memory_mb, bare.cores, bare.properties) == (0, 0, 1, {"context": "c"})


def test_a_key_belongs_to_the_last_engine_that_came_with_it() -> None:
    engines = Engines()
    for number in range(2):
        enter(engines, EngineJoined(f"e{number}", number, "c", "a", 1, number, 1, 0.0, "k"))
    enter(engines, EngineJoined("e2", 2, "c", "a", 1, 2, 1, 0.0))
    engines.remove(engines.present["e0"], ProxyStimulus.SILENT)
    engines.remove(engines.present["e2"], ProxyStimulus.SILENT)
    assert engines.by_key("k") == "e1" and engines.by_key("") is None
    engines.remove(engines.present["e1"], ProxyStimulus.SILENT)
    assert engines.by_key("k") is None and engines.keys_seen == {"k", ""}


def test_a_replacement_that_a_journal_names_first_is_told_from_the_engine_that_it_replaces() -> None:
    engines = Engines()
    old = enter(engines, EngineJoined("old", 0, "c", "a", 2, 0, 1, 0.0))
    new = enter(engines, EngineJoined("new", 1, "c", "a#2", 2, 0, 1, 0.0))
    engines.remove(new, ProxyStimulus.SILENT)
    assert engines.owner(0) is old and engines.units == 2
    newer = enter(engines, EngineJoined("newer", 2, "c", "a#3", 2, 0, 1, 0.0))
    engines.remove(old, ProxyStimulus.SILENT)
    assert engines.owner(1) is newer and engines.owner(2) is None

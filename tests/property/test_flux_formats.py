"""Flux's formats: what is written is read back, what is read is written by the rules, and nothing else gets in."""

from __future__ import annotations

import contextlib
import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.formats import constraint, duration, fluid, hostlist, jobspec, resource_set
from pilothouse.formats.jobspec import Jobspec
from pilothouse.formats.resource_set import RankResources, ResourceSet
from pilothouse.model.errors import InputError
from pilothouse.model.idset import IdSet

PREFIXES = st.sampled_from(["n", "node", "a-b", "rack1-n", "x"])
SUFFIXES = st.sampled_from(["", "-ib"])
NUMBERS = st.integers(0, 120)
HOSTS = st.one_of(
    st.builds(lambda prefix, number, width, suffix: f"{prefix}{number:0{width}d}{suffix}",
              PREFIXES, NUMBERS, st.sampled_from([1, 2, 3]), SUFFIXES),
    st.sampled_from(["login", "head", "front-end"]),
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 5) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


# ---- hostlist (RFC 29)


@given(st.lists(HOSTS, max_size=30))
def test_hostlist_keeps_names_order_and_repeats(hosts: list[str]) -> None:
    assert hostlist.parse(hostlist.encode(hosts)) == hosts


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("node[0-3]", ["node0", "node1", "node2", "node3"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[1,3-4],login", ["n1", "n3", "n4", "login"]),
        ("n[0-1]-ib", ["n0-ib", "n1-ib"]),
        ("node0,node1,node2,node3", ["node0", "node1", "node2", "node3"]),
        ("", []),
    ],
)
def test_hostlist_examples(text: str, hosts: list[str]) -> None:
    assert hostlist.parse(text) == hosts


def test_hostlist_is_short() -> None:
    assert hostlist.encode([f"node{i}" for i in range(100)]) == "node[0-99]"
    assert hostlist.encode(["n08", "n09", "n10"]) == "n[08-10]"
    assert hostlist.encode(["n8", "n9", "n10", "m"]) == "n[8-10],m"


@pytest.mark.parametrize("text", ["n[", "n]0[", "n[0-", "n[3-1]", "n[a-b]", "n[0-99999999999]", "n[[0]]", "a,,b", "n[]"])
def test_hostlist_that_is_none(text: str) -> None:
    with pytest.raises(InputError):
        hostlist.parse(text)


@given(st.text("n0[]-, 9", max_size=12))
def test_hostlist_never_breaks(text: str) -> None:
    with contextlib.suppress(InputError):
        hostlist.parse(text)


# ---- job ids


@given(st.integers(0, fluid.MOST))
def test_fluid_has_four_forms_of_one_number(number: int) -> None:
    for text in (fluid.to_f58(number), "f" + fluid.to_f58(number)[1:], str(number), hex(number), fluid.to_dothex(number)):
        # a dothex of digits and an F58 of digits cannot be mistaken for one another: one has dots, one a prefix
        assert fluid.parse(text) == number


def test_fluid_examples() -> None:
    assert fluid.kvs_key(49123688448, "R") == "job.0000.000b.7000.0000.R"
    assert fluid.to_f58(0) == "ƒ1"
    assert fluid.to_f58(6731191091817518) == "ƒuZZybuNNy"


@pytest.mark.parametrize("text", ["", "ƒ", "f0", "fIl", "-1", "0x", "1.2", str(2**64), "ƒ" + "z" * 12, "0000.000b.7000"])
def test_fluid_that_is_none(text: str) -> None:
    with pytest.raises(InputError):
        fluid.parse(text)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=3000))
def test_fluids_ascend_even_within_a_millisecond(steps: list[int]) -> None:
    source, millisecond, last = fluid.FluidSource(generator=5), 0, -1
    for step in steps:
        millisecond += step // 3
        made = source.make(millisecond)
        assert made > last and made >> 10 & 0x3FFF == 5
        last = made


# ---- durations (RFC 23)


def test_duration_examples() -> None:
    assert duration.parse("1.5h") == 5400
    assert duration.parse("200ms") == pytest.approx(0.2)
    assert duration.parse("90") == 90
    assert duration.parse("2d") == 172800
    assert math.isinf(duration.parse("infinity")) and math.isinf(duration.parse("INF"))


@pytest.mark.parametrize("text", ["", "-1", "1w", "s", "1 s", "nan", "1e999", "--", "0x10"])
def test_duration_that_is_none(text: str) -> None:
    with pytest.raises(InputError):
        duration.parse(text)


# ---- jobspec V1 (RFC 25)

SPECS = st.builds(
    Jobspec,
    slots=st.integers(1, 100),
    cores_per_slot=st.integers(1, 64),
    gpus_per_slot=st.integers(0, 4),
    nodes=st.integers(0, 10),
    duration_s=st.integers(0, 10**6).map(float),
    queue=st.sampled_from(["", "batch"]),
    command=st.lists(st.text("ab ", min_size=1, max_size=3), min_size=1, max_size=3).map(tuple),
    environment=st.dictionaries(st.text("AB", min_size=1, max_size=2), st.text("ab", max_size=2), max_size=2),
)


@given(SPECS, st.booleans())
def test_jobspec_is_read_back(spec: Jobspec, exclusive: bool) -> None:
    spec = msgspec.structs.replace(spec, exclusive=exclusive and spec.nodes > 0)
    found = jobspec.parse(jobspec.encode(spec))
    assert msgspec.structs.replace(found, attributes={}) == spec
    assert jobspec.parse(jobspec.encode(found)) == found


def test_jobspec_example_of_the_facts() -> None:
    text = """{"version":1,"resources":[{"type":"node","count":2,"exclusive":true,"with":[{"type":"slot","count":4,
    "label":"task","with":[{"type":"core","count":2},{"type":"gpu","count":1}]}]}],"tasks":[{"command":["a.out"],
    "slot":"task","count":{"per_slot":1}}],"attributes":{"system":{"duration":600}}}"""
    spec = jobspec.parse(text)
    assert (spec.total_slots, spec.total_cores, spec.gpus_per_slot) == (8, 16, 1)
    assert spec.exclusive and spec.walltime_s == 600


GOOD = json.loads(jobspec.encode(Jobspec(slots=2, cores_per_slot=1, command=("true",))))


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (["version"], 2, "jobspec.version"),
        (["resources"], [], "jobspec.resources"),
        (["resources", 0, "type"], "rack", "jobspec.resources[0].type"),
        (["resources", 0, "count"], 0, "jobspec.resources[0].count"),
        (["resources", 0, "count"], True, "jobspec.resources[0].count"),
        (["resources", 0, "count"], {"min": 1}, "jobspec.resources[0].count"),
        (["resources", 0, "label"], "", "jobspec.resources[0].label"),
        (["resources", 0, "with"], [{"type": "gpu", "count": 1}], "jobspec.resources[0].with"),
        (["resources", 0, "with", 0, "type"], "node", "jobspec.resources[0].with[0].type"),
        (["tasks", 0, "slot"], "other", "jobspec.tasks[0].slot"),
        (["tasks", 0, "command"], [], "jobspec.tasks[0].command"),
        (["tasks", 0, "count"], {"per_node": 1}, "jobspec.tasks[0].count"),
        (["attributes", "system", "duration"], -1, "jobspec.attributes.system.duration"),
        (["attributes", "system", "constraints"], [], "jobspec.attributes.system.constraints"),
        (["extra"], 1, "jobspec"),
    ],
)
def test_jobspec_errors_name_the_place(path: list[object], value: object, named: str) -> None:
    document = json.loads(json.dumps(GOOD))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(InputError) as caught:
        jobspec.from_object(document)
    assert caught.value.where == named


def test_jobspec_of_a_scheduler_needs_no_tasks() -> None:
    """A job manager may hand on a redacted copy: what is to run is not the scheduler's concern."""
    redacted = {key: value for key, value in GOOD.items() if key != "tasks"}
    with pytest.raises(InputError, match=r"jobspec\.tasks"):
        jobspec.from_object(redacted)
    assert jobspec.from_object({**redacted, "more": 1}, whole=False).total_cores == 2
    with pytest.raises(InputError, match=r"jobspec\.resources"):
        jobspec.from_object({**redacted, "resources": []}, whole=False)


@given(JSON)
def test_jobspec_never_breaks(document: object) -> None:
    with pytest.raises(InputError):
        jobspec.from_object(document)


@given(st.binary(max_size=40))
def test_jobspec_never_breaks_on_bytes(data: bytes) -> None:
    with pytest.raises(InputError):
        jobspec.parse(data)


# ---- R (RFC 20)

RANKS = st.dictionaries(
    st.integers(0, 300), st.tuples(st.integers(1, 2**20), st.sampled_from([0, 0, 1, 5])), min_size=1, max_size=12
)


@given(RANKS, st.booleans(), st.integers(0, 9))
def test_r_is_read_back(entries: dict[int, tuple[int, int]], named: bool, slots: int) -> None:
    ranks = tuple(RankResources(rank, IdSet(cores), IdSet(gpus)) for rank, (cores, gpus) in sorted(entries.items()))
    hosts = tuple(f"n{entry.rank}" for entry in ranks) if named else ()
    properties = {"big": IdSet.of([ranks[0].rank])}
    held = ResourceSet(ranks=ranks, hosts=hosts, slots=slots, start_s=1.5, expiration_s=9.0, properties=properties)
    assert resource_set.parse(resource_set.encode(held)) == held
    half = IdSet.of(entry.rank for entry in ranks[::2])
    assert held.only(half).rank_ids() == half


def test_r_groups_equal_ranks() -> None:
    ranks = tuple(RankResources(rank, IdSet.span(0, 4), IdSet.span(0, 1)) for rank in (0, 1))
    held = ResourceSet(ranks=ranks, hosts=("n0", "n1"), slots=2, start_s=100.0, expiration_s=700.0)
    assert resource_set.to_object(held) == {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": "0-1", "children": {"core": "0-3", "gpu": "0"}}],
            "nodelist": ["n[0-1]"], "nslots": 2, "starttime": 100.0, "expiration": 700.0,
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    ("execution", "named"),
    [
        ({"R_lite": [{"rank": "0", "children": {"core": "3-1"}}]}, "R.execution.R_lite[0].children.core"),
        ({"R_lite": [{"rank": "0,0", "children": {"core": "1"}}]}, "R.execution.R_lite[0].rank"),
        ({"R_lite": [{"rank": "0", "children": {}}, {"rank": "0", "children": {}}]}, "R.execution.R_lite[1].rank"),
        ({"R_lite": [{"rank": "0-1", "children": {"core": "1"}}], "nodelist": ["n0"]}, "R.execution.nodelist"),
        ({"R_lite": [{"rank": "0"}]}, "R.execution.R_lite[0].children"),
        ({"R_lite": [], "starttime": -1}, "R.execution.starttime"),
    ],
)
def test_r_errors_name_the_place(execution: dict[str, object], named: str) -> None:
    with pytest.raises(InputError) as caught:
        resource_set.from_object({"version": 1, "execution": execution})
    assert caught.value.where == named


@given(JSON)
def test_r_never_breaks(document: object) -> None:
    with pytest.raises(InputError):
        resource_set.from_object(document)


# ---- constraints (RFC 31)


def test_constraint_is_expanded_for_the_placement() -> None:
    wanted = {"and": [{"hostlist": ["n[0-1]"]}, {"properties": ["gpu", "^old"]}], "ranks": ["0-2"], "or": []}
    plain = constraint.normalised(wanted)
    assert plain == {
        "and": [{"hostlist": ["n0", "n1"]}, {"properties": ["gpu", "^old"]}], "ranks": ["0", "1", "2"],
    }  # fmt: skip
    with_ranks = constraint.normalised({"not": [{"hostlist": ["n1"]}]}, {"n1": ["7"]})
    assert with_ranks == {"not": [{"and": [{"ranks": ["7"]}]}]}


@pytest.mark.parametrize(
    "wanted", [{"what": []}, {"properties": "gpu"}, {"properties": [1]}, {"not": [3]}, {"ranks": ["a"]}, {"properties": [""]}]
)
def test_constraint_that_is_none(wanted: dict[str, object]) -> None:
    with pytest.raises(InputError):
        constraint.normalised(wanted)

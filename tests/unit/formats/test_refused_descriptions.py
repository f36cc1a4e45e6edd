"""What readers of platforms and of Flux's descriptions refuse, by tables: the input, and the key part of the message; and what is
taken beside it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pilothouse.formats import constraint, jobspec, platform_xml, resource_set
from pilothouse.formats.platform_xml import PlatformFile, parse_platform
from pilothouse.model.errors import InputError
from pilothouse.model.idset import IdSet

# ---- platforms


def platform(inside: str, *, routing: str = "Full") -> PlatformFile:
    return parse_platform(
        f'<platform version="4.1">\n<zone id="z" routing="{routing}">\n{inside}</zone></platform>'.encode()
    )


@pytest.mark.parametrize(
    ("inside", "routing", "problem"),
    [
        ('<host id="h" speed="1Gf" x="1"/>', "Full", r"3: unknown attribute 'x' of <host>"),
        ('<host id="h" speed="1Gf" core="0"/>', "Full", "core of <host>; expected an integer of at least 1, found '0'"),
        ('<host id="h" speed="1Gf" core="x"/>', "Full", "core of <host>; expected an integer of at least 1, found 'x'"),
        ('<host id="h" speed="1Gf" pstate="-1"/>', "Full", "pstate of <host>; expected an integer of at least 0"),
        ('<host id="h" speed="1Gf,2Gf" pstate="2"/>', "Full", "power state 2 of 2"),
        ('<host id="h" speed=","/>', "Full", "a speed must be above zero"),
        ('<host id="h" speed="0f"/>', "Full", "a speed must be above zero"),
        ('<host id="h" speed="1Gx"/>', "Full", "speed is not a quantity; expected a number with a unit such as 1Gf"),
        ('<host speed="1Gf"/>', "Full", "<host> without 'id'"),
        ('<host id="h" speed="1Gf" coordinates="1 2"/>', "Full", "coordinates; expected three numbers"),
        ('<host id="h" speed="1Gf" speed_file="f"/>', "Full", "speed_file: profiles of availability"),
        ('<host id="h" speed="1Gf"><x/></host>', "Full", "unknown element <x> in <host>"),
        ('<host id="h" speed="1Gf"><prop id="a" value="b" c="d"/></host>', "Full", "unknown attribute 'c' of <prop>"),
        ("<x/>", "Full", "3: unknown element <x> in <zone>"),
        ('<peer id="h" speed="1Gf" bw_in="1Bps" bw_out="1Bps"/>', "Full", "a <peer> stands in a zone of routing Vivaldi"),
        ('<peer id="h" speed="1Gf" bw_in="1Bps" bw_out="1Bps" x="1"/>', "Vivaldi", "unknown attribute 'x' of <peer>"),
        ('<router id="r" x="1"/>', "Full", "unknown attribute 'x' of <router>"),
        ('<link id="l" bandwidth="0Bps"/>', "Full", "a bandwidth must be above zero"),
        ('<link id="l" bandwidth="1Bps" latency="1x"/>', "Full", "latency is not a quantity; .* such as 50us"),
        ('<link id="l" bandwidth="1x"/>', "Full", "bandwidth is not a quantity; .* such as 125MBps"),
        ('<link id="l" bandwidth="1Bps" sharing_policy="x"/>', "Full", "sharing_policy of <link>; expected SHARED or FATPIPE"),
        ('<link id="l" bandwidth="1Bps" x="1"/>', "Full", "unknown attribute 'x' of <link>"),
        ('<link id="l" bandwidth="1Bps" state_file="1"/>', "Full", "state_file: profiles"),
        ('<link id="l" bandwidth="1Bps"><x/></link>', "Full", "unknown element <x> in <link>"),
        ('<backbone id="l" bandwidth="1Bps"/>', "Full", "a <backbone> stands in a zone of routing Cluster"),
        ('<backbone id="l" bandwidth="1Bps" x="1"/>', "Cluster", "unknown attribute 'x' of <backbone>"),
        ('<cluster id="c" radical="0-x" speed="1f" bw="1Bps" lat="1s"/>', "Full", "radical; expected numbers and ranges"),
        ('<cluster id="c" radical="x" speed="1f" bw="1Bps" lat="1s"/>', "Full", "radical; expected numbers and ranges"),
        ('<cluster id="c" radical="3-2" speed="1f" bw="1Bps" lat="1s"/>', "Full", "runs backwards"),
        ('<cluster id="c" radical="0-99999999" speed="1f" bw="1Bps" lat="1s"/>', "Full", "more than .* hosts"),
        ('<cluster id="c" radical="0" speed="1f" bw="1Bps" lat="1s" topology="T"/>', "Full", "topology of <cluster>"),
        ('<cluster id="c" radical="0" speed="1f" bw="1Bps" lat="1s" x="1"/>', "Full", "unknown attribute 'x' of <cluster>"),
        ('<cluster id="c" radical="0" speed="1f" bw="1Bps" lat="1s"><x/></cluster>', "Full", "unknown element <x>"),
        ('<cluster id="c" radical="0" speed="1f" bw="1Bps" lat="1s" bb_lat="1s"/>', "Full", "<cluster> without 'bb_bw'"),
        ('<cluster id="c" radical="0" speed="1f" bw="1Bps" lat="1s" loopback_lat="1s"/>', "Full", "without 'loopback_bw'"),
        ('<cabinet id="c" radical="0" speed="1f" bw="1Bps" lat="1s"/>', "Full", "a <cabinet> stands in a zone of routing"),
        ('<cabinet id="c" radical="0" speed="1f" bw="1Bps" lat="1s" core="1"/>', "Cluster", "unknown attribute 'core'"),
        ('<host_link id="c" up="a" down="b"/>', "Full", "a <host_link> stands in a zone of routing Cluster"),
        ('<host_link id="c" up="a" down="b" x="1"/>', "Cluster", "unknown attribute 'x' of <host_link>"),
        ('<route src="a" dst="b" gw_src="c"/>', "Full", "unknown attribute 'gw_src' of <route>"),
        ('<route src="a" dst="b"><x/></route>', "Full", "unknown element <x> in <route>"),
        ('<route src="a" dst="b"><link_ctn id="l" x="1"/></route>', "Full", "unknown attribute 'x' of <link_ctn>"),
        ('<route src="a" dst="b"><link_ctn id="l" direction="x"/></route>', "Full", "direction of <link_ctn>"),
        ('<route src="a" dst="b" symmetrical="x"/>', "Full", "symmetrical of <route>; expected YES or NO"),
        ('<zoneRoute src="a" dst="b" gw_src="c"/>', "Full", "<zoneRoute> without 'gw_dst'"),
        ("words", "Full", "3: text between elements means nothing in a platform; found 'words'"),
    ],
)  # fmt: skip
def test_elements_of_platforms(inside: str, routing: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        platform(inside, routing=routing)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<x/>", r"p:1: the root element is <x>; expected <platform>"),
        (
            '<platform version="3"><zone id="z" routing="Full"/></platform>',
            "a platform of another generation; .* found '3'",
        ),
        (
            '<platform x="3"><zone id="z" routing="Full"/></platform>',
            "unknown attribute 'x' of <platform>; expected version",
        ),
        ("<platform>\n<x/></platform>", r"p:2: unknown element <x> in <platform>"),
        ("<platform></platform>", "a platform has exactly one outermost zone; found 0"),
        ('<platform><zone id="a"/><AS id="b"/></platform>', "exactly one outermost zone; found 2"),
        ('<platform><zone id="z" routing="x"/></platform>', "routing of <zone>; expected Full or"),
        ('<platform><zone id="z" x="1"/></platform>', "unknown attribute 'x' of <zone>"),
        ('<platform><config x="1"/><zone id="z"/></platform>', "unknown attribute 'x' of <config>"),
        ('<platform><config><x/></config><zone id="z"/></platform>', "unknown element <x> in <config>"),
        ('\n\n<?xml version="1.0"?>\n<platform>\n', r"p:5: not well-formed XML: no element found"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><platform/>', "entity declarations are not allowed"),
    ],
)
def test_whole_platforms(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        parse_platform(text.encode(), "p")


def test_what_platforms_hold_is_taken_with_its_defaults() -> None:
    cluster = 'radical="0-1,5" speed="1f" bw="1Bps" lat="1s"'
    found = platform(
        f'<host id="h" speed="1Gf"/><host id="i" speed="1f,2f" pstate="1" core="2" coordinates="1 2 3"/>'
        f'<cluster id="c" {cluster}/><cluster id="d" {cluster} core="3" bb_bw="5Bps" loopback_bw="6Bps" limiter_link="7Bps"/>'
        '<link id="l" bandwidth="8Bps"/><link id="m" bandwidth="8Bps" sharing_policy="FULLDUPLEX" latency="2ms"/>'
        '<route src="h" dst="i"><link_ctn id="l"/><link_ctn id="m" direction="UP"/></route>'
        '<bypassZoneRoute src="h" dst="i" gw_src="j" gw_dst="k" symmetrical="no"/>',
    ).root  # fmt: skip
    one, other = found.hosts
    assert (one.speeds, one.pstate, one.cores, one.coordinates, one.bandwidth_in, one.bandwidth_out) == (
        (1e9,),
        0,
        1,
        None,
        0,
        0,
    )
    assert (other.speeds, other.pstate, other.cores, other.coordinates) == ((1.0, 2.0), 1, 2, (1.0, 2.0, 3.0))
    plain, more = found.clusters
    assert (plain.radical, plain.cores, plain.policy, plain.backbone, plain.cabinet) == (
        [(0, 1), (5, 5)],
        1,
        "SPLITDUPLEX",
        None,
        False,
    )
    assert (plain.loopback_bandwidth, plain.loopback_latency, plain.limiter_bandwidth, plain.router) == (
        0,
        0,
        0,
        "c_router",
    )
    assert more.backbone is not None and (more.backbone.name, more.backbone.bandwidth, more.backbone.latency) == (
        "d_backbone",
        5.0,
        0.0,
    )
    assert (more.cores, more.loopback_bandwidth, more.loopback_latency, more.limiter_bandwidth) == (3, 6.0, 0.0, 7.0)
    assert [(link.bandwidth, link.latency, link.policy) for link in found.links] == [
        (8.0, 0.0, "SHARED"),
        (8.0, 0.002, "SPLITDUPLEX"),
    ]
    route, bypass = found.routes
    assert [(use.name, use.direction) for use in route.links] == [("l", ""), ("m", "UP")]
    assert (route.symmetrical, route.bypass, route.source_gateway) == (True, False, "")
    assert (bypass.symmetrical, bypass.bypass, bypass.source_gateway, bypass.target_gateway) == (False, True, "j", "k")
    zone = platform(f'<cabinet id="c" {cluster}/><backbone id="b" bandwidth="1Bps"/>', routing="Cluster").root
    assert [(cabinet.name, cabinet.cabinet) for cabinet in zone.clusters] == [("c", True)] and zone.backbone is not None
    (peer,) = platform('<peer id="h" speed="1f" bw_in="2Bps" bw_out="3Bps"/>', routing="Vivaldi").root.hosts
    assert (peer.bandwidth_in, peer.bandwidth_out) == (2.0, 3.0)


def test_platforms_have_so_many_hosts_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform_xml, "MOST_HOSTS", 4)
    cluster = '<cluster id="c" radical="{}" speed="1f" bw="1Bps" lat="1s"/>'
    for radical in ("5-8", "5,6-8", "0,1,2,3"):
        assert platform(cluster.format(radical)).root.clusters
    for radical in ("5-9", "5,6-9", "0,1,2,3,4"):
        with pytest.raises(InputError, match="more than 4 hosts"):
            platform(cluster.format(radical))


# ---- specifications of Flux


def spec(**changes: Any) -> dict[str, Any]:
    slot = {"type": "slot", "count": 2, "label": "t", "with": [{"type": "core", "count": 3}]}
    tasks = [{"command": ["true"], "slot": "t", "count": {"per_slot": 1}}]
    return {"version": 1, "resources": [slot], "tasks": tasks, "attributes": {"system": {"duration": 5}}, **changes}


def slot(**changes: Any) -> dict[str, Any]:
    return {"resources": [{**spec()["resources"][0], **changes}]}


def task(**changes: Any) -> dict[str, Any]:
    return {"tasks": [{**spec()["tasks"][0], **changes}]}


def system(**changes: Any) -> dict[str, Any]:
    return {"attributes": {"system": changes}}


CORE, GPU, MEMORY = {"type": "core", "count": 1}, {"type": "gpu", "count": 0}, {"type": "memory", "count": 4, "unit": "GB"}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"version": True}, "jobspec.version: not a V1 jobspec"),
        ({"version": 2}, "jobspec.version: not a V1 jobspec"),
        ({"more": 1}, "jobspec: a key that V1 does not have; found 'more'"),
        ({"resources": []}, "jobspec.resources: V1 has a list of exactly one entry"),
        ({"resources": [1]}, r"resources\[0\]: expected an object"),
        ({"resources": [{"type": "x"}]}, r"resources\[0\].type: V1 begins with a node or a slot"),
        ({"resources": [{"type": "node", "count": 1, "with": [CORE]}]}, r"with\[0\].type: a node holds slots"),
        (slot(count=0), r"resources\[0\].count: not a count; expected an integer of at least 1, found 0"),
        (slot(count=True), r"resources\[0\].count: not a count"),
        (slot(count=2**31), r"resources\[0\].count: not a count"),
        (slot(exclusive=1), r"resources\[0\].exclusive: expected true or false"),
        (slot(label=""), r"resources\[0\].label: a slot needs a label"),
        (slot(label=5), r"resources\[0\].label: a slot needs a label"),
        (slot(**{"with": []}), "a slot holds cores, and may hold GPUs and memory"),
        (slot(**{"with": [CORE, GPU, MEMORY, MEMORY]}), "a slot holds cores, and may hold GPUs and memory"),
        (slot(**{"with": [CORE, GPU, GPU]}), r"with\[2\].type: a slot holds one entry each of cores"),
        (slot(**{"with": [CORE, CORE]}), r"with\[1\].type: a slot holds one entry each of cores"),
        (slot(**{"with": [GPU]}), "a slot needs cores"),
        (slot(**{"with": [{"type": "core", "count": 0}]}), "of at least 1"),
        (slot(**{"with": [CORE, {"type": "gpu", "count": -1}]}), "of at least 0"),
        (
            slot(count=2**20, **{"with": [{"type": "node", "count": 2**12, "with": [CORE]}]}),
            "too many nodes; found 4294967296",
        ),
        (task(command=[]), r"tasks\[0\].command: a command is a list of words"),
        (task(command=[1]), "a command is a list of words"),
        (task(slot="x"), r"tasks\[0\].slot: no slot of this name, only 't'"),
        (task(count={}), "expected per_slot or total"),
        (task(count={"x": 1}), "expected per_slot or total"),
        (task(count={"per_slot": 1, "total": 1}), "expected per_slot or total"),
        (task(count={"total": 0}), "count.total: not a count"),
        (system(duration=-1), "system.duration: not a duration; expected seconds, 0 for none"),
        (system(duration=True), "not a duration"),
        (system(duration="1"), "not a duration"),
        (system(queue=5), "system.queue: expected a text; found 5"),
        (system(cwd=5), "system.cwd: expected a text"),
        (system(constraints=[1]), "system.constraints: expected an object"),
        (system(environment=[1]), "system.environment: expected an object"),
        ({"attributes": [1]}, "jobspec.attributes: expected an object"),
    ],
)
def test_specifications_of_jobs(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        jobspec.from_object(spec(**changes))


def test_specifications_that_are_taken() -> None:
    plain = jobspec.from_object(spec(**system()))
    assert (plain.slots, plain.nodes, plain.nodes_per_slot, plain.duration_s, plain.total_cores) == (2, 0, 0, 0.0, 6)
    assert (plain.exclusive, plain.gpus_per_slot, plain.queue, plain.cwd, plain.walltime_s) == (
        False,
        0,
        "",
        "",
        float("inf"),
    )
    spanning = jobspec.from_object(
        spec(**slot(**{"with": [{"type": "node", "count": 3, "with": [CORE, GPU], "exclusive": True}]}))
    )
    assert (spanning.slots, spanning.nodes, spanning.nodes_per_slot, spanning.total_slots, spanning.exclusive) == (
        1,
        6,
        3,
        2,
        True,
    )
    part = jobspec.from_object(spec(more=1, tasks=None, **system(cwd=5, environment=[1], queue="q")), whole=False)
    assert (part.command, part.tasks, part.cwd, part.environment, part.attributes, part.queue) == (
        (),
        {"per_slot": 1},
        "",
        {},
        {},
        "q",
    )
    assert jobspec.from_object(spec(**slot(**{"with": [GPU, CORE]}))).gpus_per_slot == 0
    assert jobspec.from_object(jobspec.to_object(spanning)) == msgspec.structs.replace(
        spanning, attributes=jobspec.to_object(spanning)["attributes"]
    )


R_LITE: dict[str, Any] = {"rank": "0-1", "children": {"core": "0-1"}}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"R_lite": [R_LITE, {"rank": "1", "children": {}}]},
            r"R_lite\[1\].rank: a rank that an earlier entry has; found 1",
        ),
        ({"R_lite": [{"rank": "0", "children": 5}]}, r"R_lite\[0\].children: expected an object"),
        ({"R_lite": [{"rank": 0, "children": {}}]}, r"R_lite\[0\].rank: expected an idset text"),
        ({"R_lite": [{"rank": "0", "children": {"gpu": 1}}]}, "children.gpu: expected an idset text"),
        ({"nodelist": ["a"]}, "nodelist: 1 hosts for 2 ranks"),
        ({"starttime": -1}, "execution.starttime: not a time"),
        ({"expiration": float("inf")}, "execution.expiration: not a time"),
        ({"expiration": -1}, "execution.expiration: not a time"),
    ],
)
def test_sets_of_resources(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        resource_set.from_object({"version": 1, "execution": {"R_lite": [R_LITE], **changes}})


def test_sets_of_resources_that_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    found = resource_set.from_object({"version": 1, "execution": {"R_lite": [R_LITE]}, "scheduling": {"x": 1}})
    assert (found.slots, found.start_s, found.expiration_s, found.hosts, found.rank_ids()) == (0, 0, 0, (), IdSet(3))
    assert resource_set.from_object(resource_set.to_object(found)) == found
    with pytest.raises(InputError, match=r"R.version: not R version 1"):
        resource_set.from_object({"version": 2, "execution": {"R_lite": []}})
    monkeypatch.setattr(resource_set, "MOST_RANKS", 2)
    assert resource_set.from_object({"version": 1, "execution": {"R_lite": [R_LITE]}}).core_count() == 4
    with pytest.raises(InputError, match=r"more than 2 ranks"):
        resource_set.from_object({"version": 1, "execution": {"R_lite": [{**R_LITE, "rank": "0-2"}]}})


def test_constraints_are_nested_so_deep_and_no_deeper() -> None:
    deep: dict[str, Any] = {"properties": ["a"]}
    for _ in range(constraint.MOST_DEPTH):
        deep = {"not": [deep]}
    assert constraint.normalised(deep) == deep
    with pytest.raises(InputError, match=r"nested deeper than 32"):
        constraint.normalised({"and": [deep]})

"""Platforms: numbers of hosts, roles, and routes as SimGrid finds them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from pilothouse.formats.platform_xml import parse_platform, read_platform
from pilothouse.model.errors import InputError
from pilothouse.worlds.simulated.physics import feasible
from pilothouse.worlds.simulated.physics.platform import MASTER, Platform
from pilothouse.worlds.simulated.physics.platform_builder import Builder
from pilothouse.worlds.simulated.physics.routing import global_route
from unit.worlds.simulated.lab import platform_of

FIXTURES = Path(__file__).parents[4] / "golden/physics"
CLUSTER = '<cluster id="c" prefix="a" suffix="" radical="0-11" speed="1Gf" bw="125MBps" lat="50us" {}/>'
CHAIN = """
<host id="a" speed="1f"/><host id="b" speed="1f"/><host id="c" speed="1f"/><host id="d" speed="1f"/>
<link id="ab" bandwidth="1Bps" latency="1s"/><link id="bc" bandwidth="1Bps" latency="2s"/>
<link id="cd" bandwidth="1Bps" latency="4s"/><link id="x" bandwidth="1Bps" latency="0s"/>
<route src="a" dst="b"><link_ctn id="ab"/></route><route src="b" dst="c"><link_ctn id="bc"/></route>
<route src="c" dst="d"><link_ctn id="cd"/></route>
<route src="a" dst="d"><link_ctn id="x"/><link_ctn id="x"/><link_ctn id="x"/><link_ctn id="x"/></route>
"""


def names(platform: Platform) -> list[str]:
    return [host.name for host in platform.hosts]


def test_numbers_of_hosts_follow_the_generation() -> None:
    four, five = (platform_of(CLUSTER.format(""), generation=generation) for generation in (4, 5))
    assert names(four)[:4] == ["a0", "a1", "a10", "a11"]
    assert names(five)[:4] == ["a0", "a1", "a2", "a3"]
    assert [host.number for host in five.hosts] == list(range(12))


def test_roles_and_limits() -> None:
    body = '<host id="m" speed="1f"/><host id="s" speed="1f"/>' + CLUSTER.format("")
    platform = platform_of(body, master_host="m", roles={"s": "storage"}, most_hosts=3, needs_master=True)
    assert names(platform) == ["a0", "a1", "a2", "s"]
    assert platform.master is not None and platform.master.name == "m"
    assert [node.name for node in platform.nodes()] == ["a0", "a1", "a2"]
    assert [(node.name, node.first) for node in platform.storage_nodes()] == [("s", 3)]
    with pytest.raises(InputError, match='no host has the "master" role'):
        platform_of(CLUSTER.format(""), needs_master=True)
    with pytest.raises(InputError, match="2 master hosts"):
        platform_of(body, master_host="m", roles={"s": "master"})
    with pytest.raises(InputError, match="there is no such host"):
        platform_of(body, roles={"nobody": "storage"})


def test_just_a_number() -> None:
    assert len(Platform.named("100")) == 100
    shaped = Platform.named("4x28")
    assert len(shaped) == 112
    assert [(node.name, node.first, node.count) for node in shaped.nodes()][1] == ("node1", 28, 28)
    assert shaped.route(0, 111).message_cost() == 0.0
    with pytest.raises(InputError, match="no such file"):
        Platform.named("no-such-file.xml")


def test_routes_equal_simgrids() -> None:
    """Recorded from SimGrid 3.32: links by name and latency of pairs of hosts, also of a host with itself.

    Among the graphs there are ways of equal length, where the choice is SimGrid's too.
    """
    for name, routes in json.loads((FIXTURES / "routes.json").read_text()).items():
        hosts = Builder(read_platform(FIXTURES / "inputs" / name)).hosts
        for source, target, links, latency in routes:
            found = global_route(hosts[source], hosts[target])
            assert found is not None
            assert sorted(link.name for link in found.links) == sorted(links), (name, source, target)
            assert found.latency == pytest.approx(latency, rel=1e-12)


def test_properties_of_zones_and_clusters() -> None:
    platform = Platform.load(FIXTURES / "inputs/v4/platforms/properties_example.xml", generation=4)
    first, _, third = platform.nodes()[:3]
    assert (first.properties, first.zone_properties) == ({"Hdd": "180", "mem": "4"}, {"Foo": "bar", "bla": "bli"})
    assert third.properties == {"zone_name": "acme cluster"}
    assert third.zone_properties == {"Foo": "bar", "zone_name": "acme cluster"}
    assert [link.name for link in platform.route(0, 2).links][:1] == ["zone_link"]


def test_a_host_and_itself() -> None:
    plain = platform_of('<host id="a" speed="1f"/>')
    assert plain.route(0, 0).message_cost() == pytest.approx(1e-10), "SimGrid's loopback for parallel tasks"
    cluster = platform_of(CLUSTER.format('bb_bw="2GBps" bb_lat="500us"'))
    assert cluster.route(3, 3).latency == pytest.approx(600e-6)
    looped = platform_of(CLUSTER.format('loopback_bw="1GBps" loopback_lat="1us"'))
    assert looped.route(3, 3).latency == pytest.approx(1e-6)


def test_limiter_and_shared_links() -> None:
    limited = platform_of(CLUSTER.format('limiter_link="100MBps"'))
    assert [link.name for link in limited.route(0, 1).links] == [
        "c_link_0_limiter",
        "c_link_0_UP",
        "c_link_1_DOWN",
        "c_link_1_limiter",
    ]
    shared = platform_of(CLUSTER.format('sharing_policy="SHARED" bb_bw="1GBps" bb_lat="0s"'))
    assert [link.name for link in shared.route(0, 0).links] == ["c_link_0", "c_backbone"]


@pytest.mark.parametrize("routing", ["Floyd", "Dijkstra", "DijkstraCache"])
def test_shortest_ways(routing: str) -> None:
    platform = platform_of(CHAIN, routing)
    assert [link.name for link in platform.route(0, 3).links] == ["ab", "bc", "cd"]
    assert platform.route(3, 0).latency == pytest.approx(7.0)
    assert platform.route(1, 1).message_cost() == pytest.approx(1e-10)


def test_vivaldi_distances_and_peers() -> None:
    body = (
        '<host id="a" speed="1f" coordinates="0 0 1"/><host id="b" speed="1f" coordinates="30 40 2"/>'
        '<peer id="p" speed="1f" bw_in="10Bps" bw_out="20Bps" coordinates="0 0 0"/>'
    )
    platform = platform_of(body, "Vivaldi")
    assert platform.route(0, 1).latency == pytest.approx(0.053)
    assert platform.route(0, 1).links == ()
    assert [link.name for link in platform.route(2, 0).links] == ["link_p_UP"]
    assert platform.route(0, 2).bandwidth == 10.0
    with pytest.raises(InputError, match="no coordinates"):
        platform_of('<host id="a" speed="1f"/>', "Vivaldi").route(0, 0)


def test_no_routing_and_missing_routes() -> None:
    nothing = platform_of('<host id="a" speed="1f"/><host id="b" speed="1f"/>', "None")
    for target in (0, 1):
        assert (nothing.route(0, target).links, nothing.route(0, target).latency) == ((), 0.0)
    with pytest.raises(InputError, match="no master host"):
        nothing.route(0, MASTER)
    zone = '<zone id="{0}z" routing="Full"><host id="{0}" speed="1f"/></zone>'
    apart = platform_of(zone.format("a") + zone.format("b"))
    with pytest.raises(InputError, match=r"test\.xml: no route from host a to host b"):
        apart.route(0, 1)
    with pytest.raises(InputError, match="no route"):
        feasible.check_routes(apart)


def test_zones_that_meet_at_the_master_alone() -> None:
    """Co-allocation over several clusters: each has a route to the master, whose zone has no routes of its own."""
    cluster = (
        '<zone id="z{0}" routing="Cluster"><link id="l{0}" bandwidth="1GBps" latency="1us"/>'
        '<host id="h{0}" speed="1f"/><host_link id="h{0}" up="l{0}" down="l{0}"/><router id="r{0}"/>'
        '<backbone id="b{0}" bandwidth="1GBps" latency="2us"/></zone><link id="m{0}" bandwidth="1GBps" latency="4us"/>'
    )
    route = '<zoneRoute src="z{0}" dst="m" gw_src="r{0}" gw_dst="master_host"><link_ctn id="m{0}"/></zoneRoute>'
    master = '<zone id="m" routing="None"><host id="master_host" speed="1f"/></zone>'
    platform = platform_of(master + cluster.format(0) + cluster.format(1) + route.format(0) + route.format(1))
    assert [link.name for link in platform.route(1, MASTER).links] == ["l1", "b1", "m1"]
    assert platform.route(1, MASTER).latency == platform.route(MASTER, 1).latency == pytest.approx(7e-6)
    assert (platform.route(MASTER, MASTER).links, platform.route(MASTER, MASTER).latency) == ((), 0.0)


def test_one_way_routes_and_bypasses() -> None:
    text = """
    <host id="a" speed="1f"/><host id="b" speed="1f"/>
    <link id="go" bandwidth="1Bps" latency="1s"/><link id="back" bandwidth="1Bps" latency="2s"/>
    <link id="by" bandwidth="1Bps" latency="3s"/>
    <route src="a" dst="b" symmetrical="NO"><link_ctn id="go"/></route>
    <route src="b" dst="a" symmetrical="NO"><link_ctn id="back"/></route>
    """
    platform = platform_of(text)
    assert (platform.route(0, 1).latency, platform.route(1, 0).latency) == (1.0, 2.0)
    bypassed = platform_of(text + '<bypassRoute src="a" dst="b"><link_ctn id="by"/></bypassRoute>')
    assert (bypassed.route(0, 1).latency, bypassed.route(1, 0).latency) == (3.0, 2.0)


def test_graphs_of_zones() -> None:
    zones = "".join(
        f'<zone id="z{i}" routing="Full"><host id="h{i}" speed="1f"/><router id="r{i}"/><link id="in{i}" '
        f'bandwidth="1Bps" latency="1s"/><route src="h{i}" dst="r{i}"><link_ctn id="in{i}"/></route></zone>'
        for i in range(3)
    )
    joins = "".join(
        f'<link id="l{i}" bandwidth="1Bps" latency="10s"/><zoneRoute src="z{i}" dst="z{i + 1}" gw_src="r{i}" '
        f'gw_dst="r{i + 1}"><link_ctn id="l{i}"/></zoneRoute>'
        for i in range(2)
    )
    for routing in ("Floyd", "Dijkstra"):
        platform = platform_of(zones + joins, routing)
        assert [link.name for link in platform.route(0, 2).links] == ["in0", "l0", "l1", "in2"]
        assert platform.route(2, 0).latency == pytest.approx(22.0)


def test_a_hundred_thousand_hosts_load_in_seconds() -> None:
    text = CLUSTER.format('bb_bw="2GBps" bb_lat="0s"').replace("0-11", "0-99999")
    began = time.process_time()
    body = f'<platform version="4.1"><zone id="z" routing="Full">{text}</zone></platform>'
    platform = Platform.from_file(parse_platform(body.encode()))
    assert platform.route(0, 99_999).links[1].name == "c_backbone"
    assert len(platform.nodes()) == 100_000
    assert time.process_time() - began < 10, "routes must not be made at load"

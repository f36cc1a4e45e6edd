"""Routes in clusters with a network of their own. Whole runs of the real Batsim on them are in tests/golden."""

from __future__ import annotations

import pytest

from pilothouse.formats.platform_xml import parse_platform
from pilothouse.model.errors import InputError
from pilothouse.worlds.simulated.physics.platform import Platform


def platform(kind: str, numbers: str, more: str = "", radical: str = "0-15") -> Platform:
    cluster = (
        f'<cluster id="C" prefix="n" suffix="" radical="{radical}" speed="1f" bw="100Bps" lat="1s" '
        f'topology="{kind}" topo_parameters="{numbers}" {more}/>'
    )
    text = f'<platform version="4.1"><zone id="z" routing="Full">{cluster}</zone></platform>'
    return Platform.from_file(parse_platform(text.encode()))


def names(made: Platform, source: int, target: int) -> list[str]:
    return [link.name for link in made.route(source, target).links]


def test_a_torus_goes_the_short_way_round_one_dimension_after_the_other() -> None:
    torus = platform("TORUS", "4,4")
    assert names(torus, 0, 2) == ["C_link_from_0_0_UP", "C_link_from_1_0_UP"]
    assert names(torus, 0, 3) == ["C_link_from_3_0_DOWN"]
    assert names(torus, 3, 0) == ["C_link_from_3_0_UP"]
    assert names(torus, 0, 13) == ["C_link_from_0_0_UP", "C_link_from_13_1_DOWN"]
    assert names(torus, 0, 0) == [] and torus.route(0, 0).latency == 0.0
    assert torus.route(0, 10).latency == 4.0


def test_a_host_of_a_fat_tree_reaches_itself_and_others_over_switches() -> None:
    tree = platform("FAT_TREE", "2;4,4;1,2;1,2")
    assert len(names(tree, 0, 0)) == 2 and len(names(tree, 0, 3)) == 2 and len(names(tree, 0, 4)) == 4
    assert names(tree, 0, 3)[0] == names(tree, 0, 0)[0]
    upper = {tuple(names(tree, 0, target)[1:3]) for target in range(4, 8)}
    assert len(upper) == 4  # Two switches above, with two cables each: the target chooses.


def test_parallel_cables_of_a_dragonfly_are_one_wide_link() -> None:
    dragonfly = platform("DRAGONFLY", "2,3;2,1;2,2;2")
    bandwidths = [link.bandwidth for link in dragonfly.route(0, 15).links]
    # Up, to the router of the other group, to its group, within its chassis, to its chassis, down.
    assert bandwidths == [100.0, 200.0, 300.0, 200.0, 100.0, 100.0]
    assert [link.bandwidth for link in dragonfly.route(0, 1).links] == [100.0, 100.0]


NETWORKS = [("TORUS", "4,4"), ("FAT_TREE", "1;16;1;1"), ("DRAGONFLY", "2,1;2,1;2,1;2")]


@pytest.mark.parametrize(("kind", "numbers"), NETWORKS)
def test_loopbacks_limiters_and_policies(kind: str, numbers: str) -> None:
    plain = platform(kind, numbers)
    looped = platform(kind, numbers, 'loopback_bw="7Bps" loopback_lat="3s"')
    assert [(link.bandwidth, link.latency) for link in looped.route(5, 5).links] == [(7.0, 3.0)]
    limited = platform(kind, numbers, 'limiter_link="5Bps"')
    assert limited.route(0, 1).bandwidth < 10.0 and limited.route(0, 1).latency == plain.route(0, 1).latency
    shared, pipe = (platform(kind, numbers, f'sharing_policy="{policy}"') for policy in ("SHARED", "FATPIPE"))
    assert names(shared, 3, 9) == names(pipe, 3, 9) and all(link.shared for link in pipe.route(3, 9).links)
    assert set(plain.route(3, 9).links).isdisjoint(plain.route(9, 3).links)
    assert set(shared.route(3, 2).links) == set(shared.route(2, 3).links)


def test_the_network_says_how_many_hosts_there_are() -> None:
    assert len(platform("TORUS", "2,2")) == 4
    with pytest.raises(InputError, match="a TORUS of 32 hosts, and the radical has 16"):
        platform("TORUS", "2,16")

"""Platform files: units, and one clear line with file and line number for whatever is wrong."""

from __future__ import annotations

import pytest

from pilothouse.formats.platform_elements import BANDWIDTH_UNITS, quantity
from pilothouse.formats.platform_xml import parse_platform
from pilothouse.model.errors import InputError
from pilothouse.worlds.simulated.physics.platform import Platform


def zone(body: str, routing: str = "Full") -> bytes:
    return f'<platform version="4.1">\n<zone id="z" routing="{routing}">\n{body}\n</zone></platform>'.encode()


@pytest.mark.parametrize(
    ("text", "value"),
    [("1f", 1.0), ("2.5Gf", 2.5e9), ("16.673E9flops", 16.673e9), ("1Kif", 1024.0), ("7", 7.0), ("1e-9Mf", 1e-3)],
)
def test_speeds(text: str, value: float) -> None:
    file = parse_platform(zone(f'<host id="a" speed="{text}"/>'))
    assert file.root.hosts[0].speeds == (pytest.approx(value),)


@pytest.mark.parametrize(
    ("bandwidth", "latency", "expected"),
    [("125MBps", "50us", (125e6, 50e-6)), ("120Mbps", "1ms", (15e6, 1e-3)), ("1GiBps", "0", (1024.0**3, 0.0))],
)
def test_links(bandwidth: str, latency: str, expected: tuple[float, float]) -> None:
    link = parse_platform(zone(f'<link id="l" bandwidth="{bandwidth}" latency="{latency}"/>')).root.links[0]
    assert (link.bandwidth, link.latency) == (pytest.approx(expected[0]), pytest.approx(expected[1]))


def test_blank_lines_before_the_declaration() -> None:
    text = b"\n\n<?xml version='1.0'?>\n" + zone('<host id="a" speed="0f"/>')
    with pytest.raises(InputError, match=r"^p.xml:6: a speed must be above zero"):
        parse_platform(text, "p.xml")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('<hots id="a"/>', r"p.xml:3: unknown element <hots> in <zone>"),
        ('<host id="a" speed="1f" sped="2f"/>', r"p.xml:3: unknown attribute 'sped' of <host>"),
        ('<host id="a" speed="1f">\n<disk id="d"/></host>', r"p.xml:4: <disk> without 'read_bw'"),
        ('<peer id="a" speed="1f"><disk id="d"/></peer>', r"p.xml:3: a <peer> stands in a zone of routing Vivaldi"),
        ('<host id="a" speed="fast"/>', r"p.xml:3: speed is not a quantity"),
        ('<host id="a" speed="-1f"/>', r"p.xml:3: speed is not a quantity"),
        ('<host id="a" speed="nanf"/>', r"p.xml:3: speed is not a quantity"),
        ('<host id="a" speed="1f" pstate="3"/>', r"p.xml:3: power state 3 of 1"),
        ('<host id="a" speed="1f" core="0"/>', r"p.xml:3: core of <host>"),
        ('<host id="a" speed="1f" availability_file="x"/>', r"p.xml:3: availability_file: .*not supported"),
        ('<host speed="1f"/>', r"p.xml:3: <host> without 'id'"),
        ('<link id="l" bandwidth="0Bps" latency="0s"/>', r"p.xml:3: a bandwidth must be above zero"),
        ('<link id="l" bandwidth="1Bps" latency="1parsec"/>', r"p.xml:3: latency is not a quantity"),
        ('<link id="l" bandwidth="1Bps" latency="0s" sharing_policy="WIFI"/>', r"p.xml:3: sharing_policy of <link>"),
        ('<cluster id="c" radical="5-1" speed="1f" bw="1Bps" lat="0s"/>', r"p.xml:3: a range of a radical"),
        ('<cluster id="c" radical="a" speed="1f" bw="1Bps" lat="0s"/>', r"p.xml:3: radical"),
        ('<cluster id="c" radical="0-x" speed="1f" bw="1Bps" lat="0s"/>', r"p.xml:3: radical"),
        ('<cluster id="c" radical="x-3" speed="1f" bw="1Bps" lat="0s"/>', r"p.xml:3: radical"),
        ('<route src="a" dst="b"><link_ctn id="l" way="UP"/></route>', r"p.xml:3: unknown attribute 'way' of <link_ctn>"),
        ('<cluster id="c" radical="0-9999999" speed="1f" bw="1Bps" lat="0s"/>', r"p.xml:3: more than 2000000 hosts"),
        ('<cluster id="c" radical="0-1" speed="1f" bw="1Bps" lat="0s" topology="RING"/>', r"p.xml:3: topology"),
        *(
            (
                f'<cluster id="c" radical="0-7" speed="1f" bw="1Bps" lat="0s" topology="{kind}" topo_parameters="{numbers}"/>',
                f"p.xml:3: topo_parameters of a {kind}; expected .*, found '{numbers}'",
            )
            for kind, numbers in (
                ("TORUS", ""), ("TORUS", "2,0"), ("TORUS", "2;4"), ("TORUS", "2,x"), ("FAT_TREE", "2;4,2;1,2"),
                ("FAT_TREE", "2;4,2,2;1,2;1,2"), ("FAT_TREE", "x"), ("DRAGONFLY", "2,2;2,1;2,2"), ("DRAGONFLY", "3,1;2,1;2,1;2"),
            )
        ),
        ('<cabinet id="c" radical="0-1" speed="1f" bw="1Bps" lat="0s"/>', r"p.xml:3: a <cabinet> stands in a zone"),
        ("hello", r"p.xml:3: text between elements"),
        ('<zone id="y" routing="Magic"/>', r"p.xml:3: routing of <zone>"),
        ('<host id="a" speed="1f"', r"p.xml:4: not well-formed XML"),
    ],
)
def test_refused_with_file_and_line(body: str, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}") as caught:
        parse_platform(zone(body), "p.xml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('<host id="a" speed="1f"/><host id="a" speed="1f"/>', "'a' is declared twice"),
        ('<link id="l" bandwidth="1Bps" latency="0s"/>' * 2, "link 'l' is declared twice"),
        ('<host id="a" speed="1f"/><route src="a" dst="b"/>', "names 'b', which is not in that zone"),
        (
            '<host id="a" speed="1f"/><host id="b" speed="1f"/><route src="a" dst="b"><link_ctn id="l"/></route>',
            "link 'l' does not exist",
        ),
        (
            '<host id="a" speed="1f"/><host id="b" speed="1f"/><link id="l" bandwidth="1Bps" latency="0s" '
            'sharing_policy="SPLITDUPLEX"/><route src="a" dst="b"><link_ctn id="l"/></route>',
            "split duplex",
        ),
        (
            '<host id="a" speed="1f"/><host id="b" speed="1f"/><link id="l" bandwidth="1Bps" latency="0s"/>'
            '<route src="a" dst="b"><link_ctn id="l"/></route><route src="b" dst="a"><link_ctn id="l"/></route>',
            "a second route from b to a",
        ),
        ('<host id="a" speed="1f"><prop id="role" value="king"/></host>', "unknown role 'king'"),
        ('<router id="r"/>', "no compute host"),
    ],
)
def test_impossible_platforms(body: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Platform.from_file(parse_platform(zone(body), "p.xml"))


def test_entities_are_not_expanded() -> None:
    bomb = b'<!DOCTYPE platform [<!ENTITY a "aaaa">]>' + zone('<host id="&a;" speed="1f"/>')
    with pytest.raises(InputError, match="entity declarations"):
        parse_platform(bomb)


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        ("1kBps", 1e3), ("1KiBps", 1024.0), ("1kiBps", 1024.0), ("2MBps", 2e6), ("1MiBps", 1024.0**2), ("8bps", 1.0),
        ("8Kibps", 1024.0), ("1.5GBps", 1.5e9), ("7", 7.0), ("1YiBps", 1024.0**8),
    ],
)  # fmt: skip
def test_units_of_bandwidths(text: str, bytes_per_s: float) -> None:
    assert quantity(text, BANDWIDTH_UNITS) == bytes_per_s


@pytest.mark.parametrize("text", ["", "fast", "1kB", "1Kbps/s", "-"])
def test_what_is_no_bandwidth(text: str) -> None:
    assert quantity(text, BANDWIDTH_UNITS) is None

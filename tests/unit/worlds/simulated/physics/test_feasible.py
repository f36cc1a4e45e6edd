"""Impossible input: one clear line, and nothing is simulated."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pilothouse.model.errors import InputError
from pilothouse.worlds.simulated import inputs

HOSTS = '<host id="a" speed="1Gf"/><host id="b" speed="1Gf"/>'
APART = '<zone id="y" routing="Full"><host id="a" speed="1Gf"/></zone><host id="b" speed="1Gf"/>'
ROUTE = '<link id="l" bandwidth="1GBps" latency="0s"/><route src="a" dst="b"><link_ctn id="l"/></route>'

Load = Callable[..., inputs.Setup]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def loader(profiles: dict[str, Any] | str, platform: str = HOSTS + ROUTE, res: int = 2) -> inputs.Setup:
        (tmp_path / "p.xml").write_text(
            f'<platform version="4.1"><zone id="z" routing="Full">{platform}</zone></platform>'
        )
        text = profiles if isinstance(profiles, str) else json.dumps(profiles)
        job = f'{{"id": "j", "subtime": 0, "res": {res}, "profile": "x"}}'
        (tmp_path / "w.json").write_text(f'{{"nb_res": 2, "jobs": [{job}], "profiles": {text}}}')
        return inputs.load(str(tmp_path / "p.xml"), [str(tmp_path / "w.json")])

    return loader


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ({"type": "parallel", "cpu": [1, 1], "com": [0, 1, 0]}, "matrix 'com' of the wrong size"),
        ({"type": "parallel", "cpu": [1, 1, 1], "com": [0] * 9}, "3"),
        ({"type": "parallel", "cpu": [1, -1], "com": [0] * 4}, "-1"),
        ({"type": "parallel_homogeneous", "cpu": -5, "com": 0}, "-5"),
        ({"type": "parallel_homogeneous_pfs", "bytes_to_read": 1}, "storage 'pfs' is needed, but .* has no host"),
        ({"type": "data_staging", "nb_bytes": 1, "from": "a", "to": "b"}, "storage 'a' is needed"),
        ({"type": "composed", "seq": ["x"]}, "x"),
        ({"type": "composed", "seq": ["missing"]}, "missing"),
        ({"type": "delay", "delay": 0}, "delay"),
    ],
)
def test_refused(load: Load, profile: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load({"x": profile})
    assert "\n" not in str(caught.value)


def test_not_a_number(load: Load) -> None:
    with pytest.raises(InputError):
        load('{"x": {"type": "parallel_homogeneous", "cpu": NaN, "com": 0}}')
    with pytest.raises(InputError):
        load('{"x": {"type": "parallel_homogeneous", "cpu": 1e999, "com": 0}}')


def test_no_route_between_hosts_that_talk(load: Load) -> None:
    talk = {"x": {"type": "parallel_homogeneous", "cpu": 1, "com": 1}}
    with pytest.raises(InputError, match="no route from host a to host b"):
        load(talk, APART)
    assert load({"x": {"type": "parallel_homogeneous", "cpu": 1, "com": 0}}, APART).jobs
    assert load(talk, APART, res=1).jobs
    assert load(talk, HOSTS).jobs
    inner = {"x": {"type": "composed", "seq": ["y"]}, "y": talk["x"]}
    with pytest.raises(InputError, match="no route"):
        load(inner, APART)


def test_merging_what_is_no_task(load: Load) -> None:
    profiles = {
        "x": {"type": "ParallelTaskMergeCompositionProfile", "seq": ["y"]},
        "y": {"type": "DelayProfile", "delay": 1},
    }
    with pytest.raises(InputError, match="only parallel tasks can be merged"):
        load(profiles)


def test_zero_speed(load: Load) -> None:
    with pytest.raises(InputError, match="a speed must be above zero"):
        load({"x": {"type": "delay", "delay": 1}}, HOSTS.replace("1Gf", "0Gf"))

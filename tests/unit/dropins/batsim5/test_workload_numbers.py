"""Integers of a workload have 32 bits in Batsim 5."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pilothouse.dropins.batsim5.inputs import read_workload
from pilothouse.model.errors import InputError

BEYOND = 2**31


def workload(folder: Path, job: dict[str, Any], profile: dict[str, Any], count: int = 4) -> str:
    written = {
        "nb_res": count,
        "jobs": [{"id": "1", "subtime": 0, "res": 1, "profile": "d"} | job],
        "profiles": {"d": {"type": "DelayProfile", "delay": 10}, "s": profile},
    }
    path = folder / "w.json"
    path.write_text(json.dumps(written))
    return str(path)


@pytest.mark.parametrize(
    ("job", "profile", "count"),
    [
        ({"id": BEYOND}, {}, 4),
        ({"res": BEYOND}, {}, 4),
        ({}, {}, BEYOND),
        ({}, {"ret": BEYOND}, 4),
        ({}, {"ret": -BEYOND - 1}, 4),
        ({}, {"repeat": BEYOND}, 4),
    ],
)
def test_an_integer_of_more_than_32_bits_is_refused(
    job: dict[str, Any], profile: dict[str, Any], count: int, tmp_path: Path
) -> None:
    sequence = {"type": "SequentialCompositionProfile", "seq": ["d"]}
    assert read_workload(workload(tmp_path, {"id": ""}, sequence), "w0").jobs[0].id == "w0!"
    with pytest.raises(InputError):
        read_workload(workload(tmp_path, job, sequence | profile, count), "w0")

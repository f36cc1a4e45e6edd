"""Recorded conversations of the real Batsim 2.0.0: the same answers get the same messages, files and keys in Redis."""

from __future__ import annotations

from pathlib import Path

import pytest

import components
from golden.batsim2_player import differences, read
from peers import Count

HERE = Path(__file__).parent / "batsim2"
COPIED = sorted(path.stem for path in HERE.glob("*.json"))

KNOWN = {
    "redis_dyn_static": "A dynamic job of a workload that came from a file is told twice there, and its profile, which that "
    "file holds, is not found in Redis: it aborts. Here it is told once and runs.",
    "state_real": "CHANGE_JOB_STATE of a job that was executed leads to a deadlock later. Here it is refused at once.",
}
"""Recordings that are not reproduced, and why."""


@pytest.mark.parametrize("name", COPIED)
def test_same_messages_and_files(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    recording = read(HERE / f"{name}.json")
    server = request.getfixturevalue("redis_server") if recording["redis"] else None
    assert differences(recording, HERE, tmp_path, server) == []


@pytest.mark.peer("batsim2", "recorded runs: the end, messages, dates, files and Redis")
@pytest.mark.peer_difference("batsim2", "redis_dyn_static: " + KNOWN["redis_dyn_static"])
@pytest.mark.peer_difference("batsim2", "state_real: " + KNOWN["state_real"])
@pytest.mark.peer_difference(
    "batsim2",
    "What it aborts at (SIGABRT, no rows in its files) ends here with one line and exit code 1, and complete files. The "
    "column `wattmin` is not compared: it depends on the version of SimGrid.",
)
def test_every_recording(
    shared_dir: Path,
    tmp_path_factory: pytest.TempPathFactory,
    redis_server: components.RedisServer,
    peer_count: Count,
) -> None:
    folder = shared_dir / "reference/spec-versions"
    found = {
        path.stem: differences(read(path), folder, tmp_path_factory.mktemp("run"), redis_server)
        for path in sorted((folder / "batsim2").glob("*.json"))
    }
    unequal = {name: problems for name, problems in found.items() if problems}
    peer_count(len(found) - len(unequal), len(found))
    assert unequal.keys() == KNOWN.keys(), unequal
    assert len(found) == 55

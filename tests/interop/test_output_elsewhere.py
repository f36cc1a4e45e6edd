"""Hosts that do not see the run's folder: what their tasks write is there nevertheless. See also tests/storms/elsewhere.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.storms.elsewhere import run_elsewhere

import components


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[tuple[components.SshHosts, Path]]:
    """Hosts, and a folder for runs that they do not see."""
    folder = tmp_path / "here"
    folder.mkdir()
    try:
        hosts = components.start_sshd(tmp_path / "sshd", hosts=2, hidden=folder)
    except components.MissingComponent as missing:
        components.unavailable(str(missing))
        raise
    yield hosts, folder
    hosts.stop()


def test_output_comes_home_whatever_is_killed(elsewhere: tuple[components.SshHosts, Path]) -> None:
    """kill -9 of engines and drivers."""
    hosts, folder = elsewhere
    outcome = run_elsewhere(folder, 1, 3, hosts.env, tasks=60)
    assert not outcome.problems
    assert outcome.outputs == 60 and outcome.kills.total() >= 1
    assert len(list((folder / "R").glob("engine-*.output"))) >= 2

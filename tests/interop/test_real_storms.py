"""Short storms with real processes. Longer ones: `python -m tests.storms --kills 1000`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.storms.storm import Plan, run_storm

import components


@pytest.mark.parametrize("once", ["at-least", "at-most"])
@pytest.mark.parametrize("ssh", [False, True], ids=["local", "ssh"])
def test_nothing_is_lost_or_begun_twice_whatever_is_killed(
    sshd_hosts: components.SshHosts, tmp_path: Path, once: str, ssh: bool
) -> None:
    plan = Plan(seed=7, once=once, ssh=("h1", "h2") if ssh else (), tasks=80, kills=6)
    outcome = run_storm(tmp_path / "storm", plan, sshd_hosts.env)
    assert not outcome.problems
    assert sum(outcome.kills.values()) >= 3

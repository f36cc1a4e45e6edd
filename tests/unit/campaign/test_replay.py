"""A simulation that is replayed as it was gives the same schedule, and another one otherwise."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from pilothouse.launch.run_whatif import whatif_run
from pilothouse.model.errors import InputError


@pytest.fixture
def run(tmp_path: Path, pilothouse: Callable[..., subprocess.CompletedProcess[str]]) -> str:
    """200 jobs under easy on 16 units; some run into their walltime."""
    random, date, rows = Random(3), 0, []
    for number in range(1, 201):
        date += random.randrange(40)
        took, asked = random.randrange(1, 300), random.randrange(100, 320)
        rows.append(f"{number} {date} -1 {took} {random.randrange(1, 13)} -1 -1 -1 {asked} -1 1 1 -1 -1 -1 -1 -1 -1")
    (tmp_path / "log.swf").write_text("\n".join(rows) + "\n")
    ran = pilothouse("simulate", "-q", "-p", "16", "-w", "log.swf", "--policy", "easy", "-e", "out/", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    return str(tmp_path / "out")


def test_as_it_was_nothing_differs(run: str) -> None:
    found = whatif_run(run, "easy").difference
    assert found is not None and found.jobs == 200
    assert found.first is None


def test_otherwise_it_does(run: str) -> None:
    slower, faster = whatif_run(run, "fcfs").difference, whatif_run(run, "", 8).difference
    assert slower is not None and slower.first is not None and slower.later > slower.earlier
    assert faster is not None and faster.earlier > 0 and faster.policy_b == "easy on 8 more nodes"


def test_something_must_be_otherwise_and_possible(run: str) -> None:
    with pytest.raises(InputError, match="what should be otherwise"):
        whatif_run(run)
    with pytest.raises(InputError, match="no such policy"):
        whatif_run(run, "nonsense")

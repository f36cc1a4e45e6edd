"""What is read from Slurm's commands. A script stands in for squeue; the interop tests ask the real one."""

from __future__ import annotations

from datetime import datetime
from math import inf
from pathlib import Path

import pytest

from pilothouse.worlds.live.contexts.slurm_queue import allocation_end, is_over, squeue

LISTED = "7 RUNNING 2026-11-15T20:34:48\n8 COMPLETED 2026-11-15T20:30:00\n9 PENDING N/A\n"


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a squeue that says what is in `said`, or fails with what is in `complaint`."""
    script = tmp_path / "squeue"
    script.write_text(f"#!/bin/sh\n[ -f {tmp_path}/complaint ] && cat {tmp_path}/complaint >&2 && exit 1\ncat {tmp_path}/said\n")
    script.chmod(0o755)
    (tmp_path / "said").write_text(LISTED)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_jobs_are_read_from_what_squeue_lists(answers: Path) -> None:
    running, over, waiting = squeue()
    assert (running.job_id, running.state) == ("7", "RUNNING")
    assert running.ends_at == datetime(2026, 11, 15, 20, 34, 48).timestamp()
    assert (over.job_id, over.state) == ("8", "COMPLETED")
    assert (waiting.state, waiting.ends_at) == ("PENDING", inf)


def test_the_end_of_an_allocation_is_known_or_asked_for(answers: Path) -> None:
    assert allocation_end({"SLURM_JOB_END_TIME": "1000"}) == 1000.0
    assert allocation_end({"SLURM_JOB_ID": "7"}) == datetime(2026, 11, 15, 20, 34, 48).timestamp()
    assert allocation_end({}) == inf
    (answers / "complaint").write_text("no controller")
    assert allocation_end({"SLURM_JOB_ID": "7"}) == inf


def test_a_job_is_over_only_if_squeue_says_so(answers: Path) -> None:
    assert not is_over("7")
    (answers / "said").write_text("8 COMPLETED 2026-11-15T20:30:00\n")
    assert is_over("8")
    (answers / "complaint").write_text("slurm_load_jobs error: Invalid job id specified")
    assert is_over("1")
    (answers / "complaint").write_text("no controller")
    assert not is_over("1")

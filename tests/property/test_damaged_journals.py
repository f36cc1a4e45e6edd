"""Journals with flipped bytes: every command that reads one says so in one line, or does its work; none shows a traceback."""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pilothouse.cli.main import cli
from pilothouse.journal.read import read_jobs, read_nodes
from pilothouse.model.errors import PilothouseError

FLIPS = 150
RUN = [sys.executable, "-m", "pilothouse", "run"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    (folder / "tasks.txt").write_text("true\nfalse\necho hello\n" * 5)
    subprocess.run([*RUN, "--dir", "run", "tasks.txt"], cwd=folder, capture_output=True, check=False, timeout=60)
    return folder / "run"


def copy_run(folder: Path, copy: Path) -> None:
    """Without the spools: an engine removes its own when it leaves, which may be now."""
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.spool"))


@pytest.mark.parametrize("seed", range(10))
def test_flipped_bytes_are_a_line_and_not_a_traceback(finished: Path, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    data = (finished / "journal.sqlite").read_bytes()
    damaged = tmp_path / "damaged"
    copy_run(finished, damaged)
    runner = CliRunner()
    for _ in range(FLIPS // 10):
        text = bytearray(data)
        for _ in range(chance.choice((1, 4, 64))):
            text[chance.randrange(len(text))] = chance.randrange(256)
        for left in damaged.glob("journal.sqlite*"):
            left.unlink()
        (damaged / "journal.sqlite").write_bytes(text)
        for command in (
            ["tasks", str(damaged)], ["watch", "--once", str(damaged)], ["tasks", "--json", str(damaged)],
            ["watch", "--json", str(damaged)], ["explain", str(damaged), "1"], ["step", "--once", str(damaged)],
            ["diff", str(damaged), str(damaged)],
        ):  # fmt: skip
            shown = runner.invoke(cli, command)
            assert shown.exception is None or isinstance(shown.exception, PilothouseError | SystemExit), (seed, shown.exc_info)
        for read in (read_jobs, read_nodes):
            with contextlib.suppress(PilothouseError):
                read(damaged)


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_journal_resumes_or_says_so(finished: Path, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    damaged = tmp_path / "damaged"
    copy_run(finished, damaged)
    text = bytearray((finished / "journal.sqlite").read_bytes())
    for _ in range(64):
        text[chance.randrange(len(text))] = chance.randrange(256)
    (damaged / "journal.sqlite").write_bytes(text)
    ran = subprocess.run([*RUN, "--resume", str(damaged)], capture_output=True, text=True, timeout=100, check=False)
    assert "Traceback" not in ran.stderr, (seed, ran.stderr)

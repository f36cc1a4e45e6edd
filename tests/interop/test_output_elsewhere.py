"""Hosts that do not see the run's folder: what their tasks write is there nevertheless, whatever is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import components
from conftest import unavailable
from e2e.live_runs import finish, rows, run, start, tasks, until
from pilothouse.formats.output_pack import STDOUT
from pilothouse.journal.output import open_outputs

TASK = "seq -f '{0}:%g' 1 {1}; sleep 0.05\n"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[tuple[components.SshHosts, Path]]:
    """Hosts, and a folder for runs that they do not see."""
    folder = tmp_path / "here"
    folder.mkdir()
    try:
        hosts = components.start_sshd(tmp_path / "sshd", hosts=2, hidden=folder)
    except components.MissingComponent as missing:
        unavailable(str(missing))
        raise
    yield hosts, folder
    hosts.stop()


def check(folder: Path, lengths: list[int]) -> None:
    """Every task has its output, whole and once."""
    with open_outputs(folder / "R") as reader:
        found = {output.task: output.text(STDOUT).decode() for _, output in reader.read(None)}
    assert set(found) == set(range(len(lengths)))
    for task, length in enumerate(lengths):
        assert found[task] == "".join(f"{task}:{number}\n" for number in range(1, length + 1)), task
    packs = [path.name for path in (folder / "R").glob("*.output")]
    assert len(packs) >= 2


def test_output_comes_home_whatever_is_killed(elsewhere: tuple[components.SshHosts, Path]) -> None:
    """kill -9 of an engine, then of the driver. Some outputs are larger than what may be on its way at once."""
    hosts, folder = elsewhere
    lengths = [3, 200_000, 0, 40_000, *[50] * 40]
    file = tasks(folder, "".join(TASK.format(task, length) for task, length in enumerate(lengths)))
    process = start(folder, file, "--dir", "R", "--ssh", "h1:1,h2:1", "--bundle", "3", env=hosts.env)
    until(lambda: len(rows(folder / "R", "SELECT 1 FROM ends")) >= 6, "some tasks ended")
    assert not list((folder / "R").glob("*.spool"))
    pid = rows(folder / "R", "SELECT pid FROM engines WHERE node = 'h2'")[0][0]
    os.kill(int(pid), signal.SIGKILL)  # type: ignore[call-overload]
    until(lambda: len(rows(folder / "R", "SELECT 1 FROM ends")) >= 16, "more tasks ended")
    process.kill()
    finish(process)
    code, said = run(folder, "--resume", "R", env=hosts.env)
    assert code == 0, said
    check(folder, lengths)

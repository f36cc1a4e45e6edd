"""The files that tasks asked for as their standard streams."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pilothouse.worlds.live.engine.task_files import open_files
from pilothouse.worlds.live.wire.messages import Task, TaskEnvironment

GIVEN = (100, 101, 102)
"""Descriptors of streams that need no file."""


def run(cwd: Path, task: Task, **streams: str) -> tuple[tuple[bool, ...], int]:
    """Writes to what was opened; whether each stream is one that was given, and how many files were opened."""
    opened: list[int] = []
    fds = open_files(task, TaskEnvironment(**streams), str(cwd), GIVEN, opened)  # type: ignore[arg-type]
    try:
        if fds[1] != GIVEN[1]:
            os.write(fds[1], b"out")
        if fds[2] != GIVEN[2]:
            os.write(fds[2], b"err")
        if fds[0] != GIVEN[0]:
            assert os.read(fds[0], 9) == b"in"
        assert set(fds) - set(GIVEN) == set(opened)
        return tuple(fd == given for fd, given in zip(fds, GIVEN, strict=True)), len(opened)
    finally:
        for fd in opened:
            os.close(fd)


def test_streams_without_a_name_stay_as_they_are(tmp_path: Path) -> None:
    assert run(tmp_path, Task(1)) == ((True, True, True), 0)
    assert list(tmp_path.iterdir()) == []


def test_each_named_stream_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "i1").write_text("in")
    streams = {"stdin": "i{task}", "stdout": "new/er/o{line}-{repeat}", "stderr": str(tmp_path / "e{attempt}")}
    assert run(tmp_path, Task(1, line_number=7, repeat_index=3, attempt=2), **streams) == ((False, False, False), 3)
    assert (tmp_path / "new" / "er" / "o7-3").read_text() == "out"
    assert (tmp_path / "e2").read_text() == "err"
    assert (tmp_path / "e2").stat().st_mode & 0o777 == 0o666 & ~_umask()


def test_two_streams_of_one_name_share_a_file(tmp_path: Path) -> None:
    (tmp_path / "both").write_text("what was there before")
    assert run(tmp_path, Task(1), stdout="both", stderr="both") == ((True, False, False), 1)
    assert (tmp_path / "both").read_text() == "outerr"


@pytest.mark.parametrize("name", ["{", "{}", "{other}", "{task.x}", "{task:z}", "{0}", "{task!x}"])
def test_braces_that_mean_nothing_belong_to_the_name(tmp_path: Path, name: str) -> None:
    run(tmp_path, Task(1), stderr=name)
    assert (tmp_path / name).read_text() == "err"


def test_what_earlier_attempts_wrote_stays(tmp_path: Path) -> None:
    for attempt in (1, 2, 3):
        run(tmp_path, Task(5, attempt=attempt), stdout="o{task}", stderr="e{attempt}")
        (tmp_path / "o5").write_text(str(attempt))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "o5": "3", "o5.attempt1": "1", "o5.attempt2": "2", "e1": "err", "e2": "err", "e3": "err",
    }  # fmt: skip
    run(tmp_path, Task(5, attempt=1), stdout="o{task}")
    assert (tmp_path / "o5").read_text() == "out"
    assert not (tmp_path / "o5.attempt0").exists()


def test_a_name_with_the_attempt_is_written_again(tmp_path: Path) -> None:
    """It is the same attempt, begun by another engine."""
    for _ in range(2):
        run(tmp_path, Task(5, attempt=2), stdout="o{attempt}")
    assert [path.name for path in tmp_path.iterdir()] == ["o2"]


def test_a_device_is_not_renamed(tmp_path: Path) -> None:
    assert run(tmp_path, Task(5, attempt=2), stdout=os.devnull) == ((True, False, True), 1)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

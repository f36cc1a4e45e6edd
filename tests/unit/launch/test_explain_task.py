"""`pilothouse explain` of live runs that have little to tell."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pilothouse.journal.store import Journal
from pilothouse.launch.explain_task import task_story
from pilothouse.model.errors import InputError


def journal(folder: Path, **notes: object) -> None:
    written = Journal(folder)
    written.put_notes(started=1.0, decider="fcfs", **notes)
    written.close()


def test_tasks_that_come_from_no_file_are_not_known_before_they_begin(tmp_path: Path) -> None:
    journal(tmp_path)
    with pytest.raises(InputError, match="has not begun, or is not in it"):
        task_story(tmp_path, "5")


def test_several_tasks_of_one_name_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "tasks.txt").write_text("#PILOTHOUSE name=a\nx\ny\n")
    journal(tmp_path, plan=msgspec.msgpack.encode({"source": str(tmp_path / "tasks.txt"), "options": {"units": 1}}))
    with pytest.raises(InputError, match="2 tasks have the name a"):
        task_story(tmp_path, "a")
    found = task_story(tmp_path, "1")
    assert (found.state, found.name, found.waits_for, found.expected_start) == ("waiting", "a", "engine", None)
    assert "an engine" in found.expected_why


def test_a_task_file_that_is_gone_is_a_line(tmp_path: Path) -> None:
    journal(tmp_path, plan=msgspec.msgpack.encode({"source": str(tmp_path / "tasks.txt")}))
    with pytest.raises(InputError, match="cannot read the task file"):
        task_story(tmp_path, "1")

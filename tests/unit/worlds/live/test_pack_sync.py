"""When the packs of a run are put on the disk."""

from __future__ import annotations

import os
from math import inf
from pathlib import Path

import pytest

from pilothouse.formats.output_pack import pack_path
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.engine_files import SYNC_S, PackSync

KEYS = {0: "k0", 1: "k1"}


def end(rank: int, place: int) -> r.TaskEnded:
    return r.TaskEnded(
        0, 1, -1, 1, "N", JobState.SUCCEEDED, 0, rank, "n", 5, 1.0, 2.0, 3, b"", 4, b"", b"x", output=place
    )


@pytest.fixture
def synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are put on the disk, as it happens."""
    for key in KEYS.values():
        pack_path(tmp_path, key).touch()
    found: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: found.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name))
    return found


def test_only_packs_that_were_written_to(tmp_path: Path, synced: list[str]) -> None:
    packs = PackSync(tmp_path)
    packs.note([end(0, 0), end(1, 7), r.Note("x", b"")])
    packs.sync(KEYS, 1.0)
    assert synced == ["engine-k1.output"]
    packs.sync(KEYS, 10.0)
    assert len(synced) == 1, "nothing was written meanwhile"


def test_short_tasks_wait_for_the_disk_together(tmp_path: Path, synced: list[str]) -> None:
    packs = PackSync(tmp_path)
    for tenth in range(4):
        packs.note([end(0, 7)])
        packs.sync(KEYS, 1.0 + tenth * SYNC_S / 2)
    assert len(synced) == 2
    packs.sync(KEYS, inf)
    assert len(synced) == 3, "the last ones at the end of the run"


def test_a_pack_that_was_removed_stops_nothing(tmp_path: Path, synced: list[str]) -> None:
    packs = PackSync(tmp_path)
    pack_path(tmp_path, "k0").unlink()
    packs.note([end(0, 7), end(1, 7)])
    packs.sync(KEYS, 1.0)
    assert synced == ["engine-k1.output"]

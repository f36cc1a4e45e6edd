"""Small files are on the disk before they have their names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pilothouse.access.files import write_whole


def test_what_is_written_whole_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys.json"
    seen: list[tuple[bytes, bool]] = []

    def fdatasync(fd: int) -> None:
        seen.append((os.pread(fd, 100, 0) if os.fstat(fd).st_size else b"", path.exists()))

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    monkeypatch.setattr(os, "pread", lambda fd, size, at: Path(f"/proc/self/fd/{fd}").read_bytes())
    write_whole(path, b"all of it")
    assert seen == [(b"all of it", False)]
    assert path.read_bytes() == b"all of it"

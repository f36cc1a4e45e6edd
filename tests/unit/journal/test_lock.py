"""The lock of a run's folder."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from pilothouse.journal.lock import LOCK_FILE, hold, is_free
from pilothouse.model.errors import InputError, RunError

_HOLD = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); input()"


def test_one_process_holds_a_folder_at_a_time(tmp_path: Path) -> None:
    assert not is_free(tmp_path)  # no lock yet: nothing is known about this folder
    other = subprocess.Popen(
        [sys.executable, "-c", _HOLD, tmp_path / LOCK_FILE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None and other.stdout.readline() == b"held\n"
    assert not is_free(tmp_path)
    with pytest.raises(RunError, match="busy"), hold(tmp_path, RunError("busy")):
        pass
    other.communicate(b"\n")
    assert is_free(tmp_path)
    with hold(tmp_path, RunError("busy"), wait_s=1.0):
        assert not is_free(tmp_path)
    assert is_free(tmp_path)


def test_a_lock_is_waited_for_as_long_as_asked_and_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [5.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", sleep)
    with hold(tmp_path, RunError("busy")):
        with pytest.raises(RunError, match="busy"), hold(tmp_path, RunError("busy")):
            pass
        assert clock == [5.0]
        with pytest.raises(RunError, match="busy"), hold(tmp_path, RunError("busy"), wait_s=2.0):
            pass
        assert 7.0 <= clock[0] < 7.5
    with hold(tmp_path, RunError("busy")):
        assert not is_free(tmp_path)


def test_a_folder_that_is_not_there_cannot_be_held(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"), hold(tmp_path / "none", RunError("busy")):
        pass

"""The script that adds engines to a run, and the file through which they find it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilothouse.launch.add_engines import JOIN_FILE, JoinInfo, joinable, write_script
from pilothouse.model.errors import InputError
from pilothouse.worlds.live.contexts import Launch

LAUNCH = Launch(("tcp://127.0.0.1:1",), "public", "public", "very secret", "/", "/", "python")


def test_the_script_holds_no_secret_and_the_join_file_goes_with_the_run(tmp_path: Path) -> None:
    with joinable(tmp_path, JoinInfo(LAUNCH, "added")):
        script = write_script(tmp_path / "add.sh", "added", tmp_path, "localhost:1")
        assert script.stat().st_mode & 0o777 == 0o700
        assert "very secret" not in script.read_text()
        assert (tmp_path / JOIN_FILE).stat().st_mode & 0o777 == 0o600
        assert JoinInfo.load(tmp_path).launch == LAUNCH
    with pytest.raises(InputError, match="the run is over"):
        JoinInfo.load(tmp_path)

"""`--restart`: a command that crashes is started again; one that ends for good is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pilothouse.launch.restart import is_child, run_with_restarts

SCRIPT = """
import os, pathlib, sys
path = pathlib.Path(sys.argv[1])
path.write_text(path.read_text() + "x" if path.exists() else "x")
assert "PILOTHOUSE_RESTARTED" in os.environ
sys.exit(3 if len(path.read_text()) < 3 else int(sys.argv[2]))
"""


@pytest.mark.parametrize("code", [0, 2, 130])
def test_a_crashed_command_is_started_again_until_it_ends_for_good(tmp_path: Path, code: int) -> None:
    runs = tmp_path / "runs"
    assert run_with_restarts([sys.executable, "-c", SCRIPT, str(runs), str(code)]) == code
    assert runs.read_text() == "xxx"
    assert not is_child()

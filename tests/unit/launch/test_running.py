"""What the commands share around a run."""

from __future__ import annotations

import os
import subprocess
import sys

from pilothouse.launch.running import is_alive


def test_a_process_is_alive_until_it_was_waited_for() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert is_alive(child.pid)
    assert is_alive(os.getpid())
    child.communicate(b"\n")
    assert not is_alive(child.pid)

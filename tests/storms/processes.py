"""The processes of a live run, as /proc shows them, and how to kill them."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

ENGINE_PROGRAM = b"pilothouse.worlds.live.engine.process"


def children(pid: int) -> list[int]:
    """Those of all its threads."""
    try:
        return [int(word) for path in Path(f"/proc/{pid}/task").glob("*/children") for word in path.read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def parent(pid: int) -> int:
    """0: it is gone."""
    try:
        return int(_stat(pid)[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def started(pid: int) -> int:
    """When it began, which tells it from a later process of the same number; 0: it is gone."""
    try:
        words = _stat(pid)
        return 0 if words[0] == "Z" else int(words[19])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def descendants(pid: int) -> list[int]:
    found = children(pid)
    for child in found:
        found.extend(children(child))
    return found


def is_engine_program(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return ENGINE_PROGRAM in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def is_client(pid: int) -> bool:
    """Whether it is a program that has started an engine elsewhere."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip() in ("ssh", "srun")
    return False


def working_in(folder: Path) -> list[int]:
    """Processes whose current folder is this one, whatever they did to their environment and session."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{entry}/cwd") == str(folder) and started(int(entry)):
                    found.append(int(entry))
    return found


def kill(pids: list[int], number: int = signal.SIGKILL) -> list[int]:
    """Sends a signal to all of them, as close together as can be; those that were still there."""
    struck = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            struck.append(pid)
    return struck

"""The processes that descend from this one: adopting, reaping and ending them, by what the kernel knows (Linux).

A subreaper is the parent of every orphan among its descendants, whatever the orphan did to its environment, session or
descriptors. The warden and the cylinders of an engine are subreapers, so no task escapes unless all three are killed at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Container
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
WARDEN = "PILOTHOUSE_WARDEN"
"""In the environment of every task: the warden of its engine. The last resort if all that could end a task was killed."""
_MARK = f"\0{WARDEN}=".encode()


def adopt_orphans() -> None:
    """Makes this process a subreaper."""
    _process_control(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Ends this process when its parent ends."""
    _process_control(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(70)  # it had ended before the kernel knew that we end with it


def _process_control(option: int, value: int) -> None:
    """prctl(2), which Python does not have. Without it (not Linux) orphans are found less surely."""
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def end_children(spared: Container[int] = ()) -> None:
    """Kills all that descends from here, also what moved to sessions of its own, until nothing is left."""
    while victims := [pid for pid in _children() if pid not in spared]:
        for pid in victims:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        for pid in victims:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def reap(group: int = 1) -> None:
    """Takes note of the ends of adopted processes: of one process group, or of all."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass


def _children() -> list[int]:
    """The pids whose parent is this process."""
    me = os.getpid()
    found = []
    for pid in _all_pids():
        with contextlib.suppress(OSError):
            stat = Path("/proc", str(pid), "stat").read_bytes()
            if int(stat.rpartition(b")")[2].split()[1]) == me:
                found.append(pid)
    return found


def mark_tasks() -> None:
    """Tasks of this process (a warden) name it in their environment."""
    os.environ[WARDEN] = f"{os.getpid()}:{_started(os.getpid())}"


def end_orphans() -> list[int]:
    """Ends tasks that were left because their cylinder, its engine and the warden were killed at once."""
    ended = []
    for pid in _all_pids():
        with contextlib.suppress(OSError, ValueError):
            if os.stat(f"/proc/{pid}").st_uid != os.getuid():
                continue  # not ours to end; and a process that is stuck may keep its readers waiting
            environment = Path("/proc", str(pid), "environ").read_bytes()
            if _MARK not in environment:
                continue
            name = environment.partition(_MARK)[2].partition(b"\0")[0].decode()
            warden, _, started = name.partition(":")
            if _started(int(warden)) != int(started):
                os.kill(pid, signal.SIGKILL)
                ended.append(pid)
    return ended


def _all_pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid()]


def _started(pid: int) -> int:
    """When a process began (clock ticks since boot), which tells it from a later one of the same number; 0: it is gone."""
    try:
        return int(Path("/proc", str(pid), "stat").read_bytes().rpartition(b")")[2].split()[19])
    except OSError:
        return 0

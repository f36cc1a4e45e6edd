"""How many files a driver may have open: as many as the system allows, while its programs keep the limit of their user.

A driver has a descriptor for each engine's connection and for each client; the usual limit of 1,024 is too few.
"""

from __future__ import annotations

import contextlib
import resource

from pilothouse.model.errors import RunError

MOST = 65_536
LEAST = 64
_former: list[tuple[int, int]] = []


def raise_limit() -> None:
    """Raises the soft limit of this process. Later calls do nothing. RunError where too few descriptors are allowed."""
    if _former:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    _former.append((soft, hard))
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    if 0 <= wanted < LEAST:  # libzmq ends the process where it cannot open one
        raise RunError(f"only {wanted} open files are allowed, and a run needs {LEAST} (ulimit -n {LEAST})")


def give_former_limit(pid: int) -> None:
    """Gives a child the limit that this process had: programs that use select(2) must not meet large numbers."""
    if _former:
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _former[0])

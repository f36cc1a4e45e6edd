"""The lock of a run's folder: one driver at a time. It ends with the process that holds it, however that ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pilothouse.access.files import open_own
from pilothouse.model.errors import InputError

LOCK_FILE = "lock"
_LOOK_S = 0.1


@contextmanager
def hold(folder: Path, taken: Exception, *, wait_s: float = 0.0) -> Iterator[None]:
    """Holds the folder's lock while the body runs. Raises `taken` if another process still holds it after `wait_s`."""
    until = time.monotonic() + wait_s
    try:
        fd = open_own(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT)
    except FileNotFoundError as error:
        raise InputError(str(folder), f"cannot be written: {error.strerror}") from error
    with os.fdopen(fd, "r+b") as stream:
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise taken from None
                time.sleep(_LOOK_S)
        yield


def is_free(folder: Path) -> bool:
    """Whether the folder has a lock that no process holds. A lock that cannot be opened counts as held."""
    try:
        with os.fdopen(os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True

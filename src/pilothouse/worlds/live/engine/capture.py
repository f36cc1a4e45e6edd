"""A task's stdout and stderr where no files were asked for: counted, cut to a first and a last piece, and kept in a pack.

A cylinder keeps one pipe per stream for all its tasks, so that a task costs no descriptor. A pipe that survivors of a
task may still write to is given up and replaced: their bytes are never counted for the next task.
"""

from __future__ import annotations

import os
from collections.abc import Callable

KEPT_BYTES = 40
"""Of the beginning, and of the end, in a snippet (disBatch's figures)."""
_LAST_BYTES = 400
"""Kept of the end, to find its last line."""
_CHUNK_BYTES = 65536
GAP = b"..."


class Capture:
    """One stream. Give `write_fd` to the child, `drain` whenever `read_fd` is readable, `take` when the task has ended."""

    def __init__(self, keep: Callable[[bytes], None]) -> None:
        """`keep` is given all that is read."""
        self.read_fd, self.write_fd = _pipe()
        self._keep = keep
        self._count = 0
        self._first = b""
        self._last = b""

    def drain(self) -> bool:
        """Takes what is there. Whether nobody can write any more."""
        while True:
            try:
                chunk = os.read(self.read_fd, _CHUNK_BYTES)
            except BlockingIOError:
                return False
            if not chunk:
                return True
            if len(self._first) < KEPT_BYTES:
                self._first += chunk[: KEPT_BYTES - len(self._first)]
            self._count += len(chunk)
            self._keep(chunk)
            self._last = (self._last + chunk)[-_LAST_BYTES:]
            if len(chunk) < _CHUNK_BYTES:
                return False

    def last_line(self) -> bytes:
        """The last line that is not empty (its end, if it is long)."""
        return next((line.strip() for line in reversed(self._last.splitlines()) if line.strip()), b"")

    def take(self) -> tuple[int, bytes]:
        """Bytes seen since the last take, and the snippet."""
        if not self._count:
            return 0, b""
        count, first, last = self._count, self._first, self._last[-KEPT_BYTES:]
        self._count, self._first, self._last = 0, b"", b""
        if count <= len(first):
            return count, first
        if count <= 2 * KEPT_BYTES:
            return count, first + last[2 * KEPT_BYTES - count :]
        return count, first + GAP + last

    def close_write(self) -> None:
        """From now on `drain` notices when the last process that may write is gone. `replace` comes next."""
        os.close(self.write_fd)
        self.write_fd = -1

    def replace(self) -> None:
        """A fresh pipe. Processes that still hold the old one get SIGPIPE, as after the end of a terminal."""
        os.close(self.read_fd)
        if self.write_fd >= 0:
            os.close(self.write_fd)
        self.read_fd, self.write_fd = _pipe()


def _pipe() -> tuple[int, int]:
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    return read_fd, write_fd

"""Takes what tasks write to stdout and stderr, and keeps it in the pack of their engine (formats/output_pack.py).

A cylinder keeps one pipe per stream for all its tasks, so that a task costs no descriptor. A pipe that survivors of a
task may still write to is given up and replaced: their bytes are never counted for the next task.

One PackWriter per cylinder; all cylinders of an engine append to one file. What a task wrote is in the file before its
end is. What exceeds the task's limit is left out: the beginning is kept, and a piece of the end, where errors are.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from math import inf
from pathlib import Path

from pilothouse.formats.output_pack import STDERR, STDOUT, Chunk, encode

FLUSH_S = 0.5
"""How long a running task's output may wait to be written."""
_MOST_WAITING_BYTES = 1 << 18
_MOST_TAIL_BYTES = 1 << 16
KEPT_BYTES = 40
"""Of the beginning, and of the end, in a snippet (disBatch's figures)."""
_LAST_BYTES = 400
"""Kept of the end, to find its last line."""
_CHUNK_BYTES = 65536
GAP = b"..."


class PackTail:
    """Reads a pack that is being written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def size(self) -> int:
        try:
            return os.stat(self._path).st_size
        except FileNotFoundError:
            return 0

    def read(self, at: int, most: int) -> bytes:
        try:
            if self._fd < 0:
                self._fd = os.open(self._path, os.O_RDONLY)
            return os.pread(self._fd, most, at)
        except FileNotFoundError:
            return b""


class PackWriter:
    """Between `begin` and `end`: `add` whatever the task writes, `flush` at the date `flush_at`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._task_id = self._attempt = 0
        self._room = self._tail_bytes = 0
        """Bytes that may still be kept of the beginning, and of the end."""
        self._kept = False
        self._place = 0
        self._waiting: tuple[list[bytes], list[bytes]] = ([], [])
        self._waiting_bytes = 0
        self._positions = [0, 0]
        """Of the first byte that waits, for each stream."""
        self._tails = [b"", b""]
        self._left_out = 0
        self.flush_at = inf

    def begin(self, task_id: int, attempt: int, limit: int) -> None:
        """A task that is about to start; at most `limit` bytes of it are kept."""
        self._task_id, self._attempt = task_id, attempt
        self._tail_bytes = min(_MOST_TAIL_BYTES, limit // 4)
        self._room = limit - 2 * self._tail_bytes
        self._kept = limit > 0
        self._place = self._left_out = 0
        self._positions = [0, 0]

    def add(self, stream: int, data: bytes) -> None:
        if not self._kept:
            return
        if len(data) > self._room:
            beyond = data[self._room :]
            data = data[: self._room]
            tail = self._tails[stream] + beyond
            kept = tail[-self._tail_bytes :] if self._tail_bytes else b""
            self._left_out += len(tail) - len(kept)
            self._tails[stream] = kept
        if not data:
            return
        self._room -= len(data)
        self._waiting[stream].append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= _MOST_WAITING_BYTES:
            self.flush()
        elif self.flush_at == inf:
            self.flush_at = time.monotonic() + FLUSH_S

    def flush(self) -> None:
        """Writes what waits."""
        self.flush_at = inf
        if not self._waiting_bytes:
            return
        self._waiting_bytes = 0
        for stream in (STDOUT, STDERR):
            if pieces := self._waiting[stream]:
                self._write(stream, self._positions[stream], b"".join(pieces))
                self._positions[stream] += sum(map(len, pieces))
                pieces.clear()

    def end(self, written: tuple[int, int]) -> tuple[int, int]:
        """The task has ended, and has written so much to stdout and stderr.

        Returns the place of its last chunk (0: there is none), and how many bytes were left out.
        """
        self.flush()
        for stream, tail in enumerate(self._tails):
            if tail:
                self._write(stream, written[stream] - len(tail), tail)
                self._tails[stream] = b""
        return self._place, self._left_out

    def _write(self, stream: int, position: int, data: bytes) -> None:
        block = encode(Chunk(stream, self._attempt, self._task_id, position, data), self._place)
        try:
            if self._fd < 0:
                self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                weakref.finalize(self, os.close, self._fd)
            if os.write(self._fd, block) == len(block):
                self._place = os.lseek(self._fd, 0, os.SEEK_CUR) - len(block) + 1
                return
        except OSError:
            pass  # a full disk: the task goes on, and is told to have been cut
        self._left_out += len(data)


class Capture:
    """One stream: counted, cut to a first and a last piece, and handed on.

    Give `write_fd` to the child, `drain` whenever `read_fd` is readable, `take` when the task has ended.
    """

    def __init__(self, keep: Callable[[bytes], None]) -> None:
        """`keep` is given all that is read."""
        self.read_fd, self.write_fd = _pipe()
        self._keep = keep
        self._count = 0
        self._first = b""
        self._last = b""

    def drain(self) -> bool:
        """Reads what is there. Returns True when no process can write to the pipe any more."""
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

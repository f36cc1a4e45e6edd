"""Keeps what tasks write in the pack of their engine (formats/output_pack.py), as they write it.

One writer per cylinder; all cylinders of an engine append to one file. What a task wrote is in the file before its end is. What
exceeds the task's limit is left out: the beginning is kept, and a piece of the end, where errors are.
"""

from __future__ import annotations

import os
import time
import weakref
from math import inf
from pathlib import Path

from pilothouse.formats.output_pack import STDERR, STDOUT, Chunk, encode

FLUSH_S = 0.5
"""How long a running task's output may wait to be written."""
_MOST_WAITING_BYTES = 1 << 18
_MOST_TAIL_BYTES = 1 << 16


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

"""Task lines of a pipe: a thread reads it, so that a source that pauses blocks nothing.

In: lines of a stream, a Reader, and a function that wakes the driver. Out: an iterator for a Feeder, which yields
None while the source has nothing to give.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from pilothouse.formats.task_file import TaskLine
from pilothouse.formats.task_table import Reader
from pilothouse.model.errors import InputError, RunError

MOST_AHEAD = 10_000
"""Lines read ahead from a pipe."""


class StreamLines:
    """Iterate it once."""

    def __init__(self, stream: Iterable[bytes], reader: Reader, wake: Callable[[], None]) -> None:
        self._stream = stream
        self._reader = reader
        self._wake = wake
        self._lines: deque[bytes | None] = deque()
        self._problem: InputError | RunError | None = None
        self._room = threading.Semaphore(MOST_AHEAD)
        threading.Thread(target=self._read, name="task stream", daemon=True).start()

    def _read(self) -> None:
        try:
            for line in self._stream:
                self._room.acquire()
                self._lines.append(line)
                if len(self._lines) == 1:
                    self._wake()
        except OSError as problem:
            self._problem = RunError(f"cannot read or keep the tasks: {problem}")
        except InputError as problem:
            self._problem = problem
        self._lines.append(None)
        self._wake()

    def __iter__(self) -> Iterator[TaskLine | None]:
        while not self._reader.over:
            if not self._lines:
                yield None
                continue
            line = self._lines.popleft()
            if line is None:
                if self._problem is not None:
                    raise self._problem
                return
            self._room.release()
            yield from self._reader.feed(line)

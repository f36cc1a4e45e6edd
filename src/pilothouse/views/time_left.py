"""The time that a run has left, as `pilothouse forecast RUN` says it, for views that look again and again.

The forecast is made in a process of its own with low priority, so that it delays neither a driver nor a screen; the next one
begins when the last one is old, and no sooner than twenty times the time that it took. Of very many tasks the rate says
as much, and none is made.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

EVERY_S = 10.0
SHARE = 20.0
MOST_TASKS = 20_000
SAMPLES = 20
_LOW_PRIORITY = 10


class Left(msgspec.Struct, frozen=True):
    """Seconds from now; nine in ten simulations lie between `low` and `high`."""

    low: float
    seconds: float
    high: float

    def later(self, by_s: float) -> Left:
        return Left(*(max(0.0, seconds - by_s) for seconds in (self.low, self.seconds, self.high)))


class TimeLeft:
    """Ask it as often as you like."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - a pipe may fill while nobody reads
        self._began = 0.0
        self._next_at = 0.0
        self._known: tuple[float, Left] | None = None

    def now(self, tasks: int | None) -> Left | None:
        """What is known, with so many tasks that have not ended; None: nothing, or nothing yet."""
        if tasks is None or tasks > MOST_TASKS:
            return None
        at = time.monotonic()
        if self._process is not None and self._process.poll() is not None:
            self._take(at)
        if self._process is None and at >= self._next_at and tasks:
            self._start(at)
        return None if self._known is None else self._known[1].later(at - self._known[0])

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._output.close()

    def _start(self, at: float) -> None:
        self._output.seek(0)
        self._output.truncate()
        self._began = at
        command = [sys.executable, "-m", "pilothouse", "forecast", str(self._folder), "--json", "--samples", str(SAMPLES)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.DEVNULL)
        os.setpriority(os.PRIO_PROCESS, self._process.pid, _LOW_PRIORITY)

    def _take(self, at: float) -> None:
        assert self._process is not None
        good = self._process.returncode == 0
        self._process = None
        self._next_at = at + max(EVERY_S, SHARE * (at - self._began))
        self._output.seek(0)
        self._known = (self._began, msgspec.json.decode(self._output.read(), type=Left)) if good else None

"""A progress line on a terminal or in a notebook for long simulations: jobs done, simulated date, jobs per second, time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from datetime import timedelta
from typing import TextIO

from pilothouse.model.events import Batch

_EVERY_TURNS = 2048
_EVERY_SECONDS = 0.25


class SimulationProgress:
    """Called each turn; looks at the clock every 2048 turns only."""

    def __init__(self, done: Sized, total: int, label: str = "") -> None:
        self._done = done
        self._total = total
        self._label = f"{label} " if label else ""
        self._turns = 0
        self._began = self._shown = time.monotonic()
        self._width = 0

    def __call__(self, batch: Batch) -> None:
        self._turns += 1
        if self._turns % _EVERY_TURNS:
            return
        now = time.monotonic()
        if now - self._shown >= _EVERY_SECONDS:
            self._shown = now
            self._show(batch.now, now - self._began)

    def _show(self, date: float, elapsed: float) -> None:
        done = len(self._done)
        rate = done / elapsed if elapsed else 0.0
        left = timedelta(seconds=round((self._total - done) / rate)) if rate and done <= self._total else "?"
        share = done / self._total if self._total else 1.0
        filled = round(share * 20)
        bar = "█" * filled + "░" * (20 - filled)
        line = (
            f"{self._label}{bar} {share:4.0%}  {done:,} of {self._total:,} jobs  date {timedelta(seconds=round(date))}"
            f"  {rate:,.0f} jobs/s  {left} left"
        )
        sys.stderr.write("\r" + line.ljust(self._width))
        self._width = len(line)
        sys.stderr.flush()

    def close(self) -> None:
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()


def is_seen(stream: TextIO) -> bool:
    """Whether a line that is written over and over is seen so: on a terminal, and below the cell of a notebook."""
    return stream.isatty() or type(stream).__module__.startswith("ipykernel.")


@contextmanager
def progress(
    done: Sized, total: int, label: str = "", *, hidden: bool = False
) -> Iterator[SimulationProgress | None]:
    """A progress line while the body runs; None if `hidden`, or if stderr is neither terminal nor notebook."""
    if hidden or not is_seen(sys.stderr):
        yield None
        return
    bar = SimulationProgress(done, total, label)
    try:
        yield bar
    finally:
        bar.close()


@contextmanager
def counted_progress(total: int, noun: str, *, already: int = 0) -> Iterator[Callable[[int], None]]:
    """Returns a function that takes the number of finished pieces and shows it in a line. Nothing is shown if stderr is
    neither terminal nor notebook."""
    began = time.monotonic()
    shown = 0.0
    width = 0

    def show(done: int) -> None:
        nonlocal shown, width
        now = time.monotonic()
        if now - shown < _EVERY_SECONDS:
            return
        shown = now
        rate = done / (now - began) if now > began else 0.0
        left = timedelta(seconds=round((total - done) / rate)) if rate else "?"
        known = f" ({already:,} known)" if already else ""
        line = f"{done + already:,} of {total + already:,} {noun}{known}  {rate:,.1f}/s  {left} left"
        sys.stderr.write("\r" + line.ljust(width))
        width = len(line)
        sys.stderr.flush()

    if not is_seen(sys.stderr) or not total:
        yield lambda done: None
        return
    try:
        show(0)
        yield show
    finally:
        sys.stderr.write("\r" + " " * width + "\r")
        sys.stderr.flush()

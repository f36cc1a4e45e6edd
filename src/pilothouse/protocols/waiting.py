"""Prints a notice when a wait takes long."""

from __future__ import annotations

import sys
import time

PATIENCE_S = 3.0
"""The notice comes after this time, and at a terminal sooner."""
AT_A_TERMINAL_S = 1.0


class Waiting:
    """Call `still()` while waiting: the notice is printed once, on stderr, when it is due."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._tell_at = time.monotonic() + (AT_A_TERMINAL_S if sys.stderr.isatty() else PATIENCE_S)

    def still(self) -> None:
        if time.monotonic() >= self._tell_at:
            self._tell_at = float("inf")
            print(f"pilothouse: waiting for {self._what}", file=sys.stderr, flush=True)

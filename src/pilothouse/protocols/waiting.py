"""A wait for somebody else that is told: nobody should wonder why nothing happens."""

from __future__ import annotations

import sys
import time

PATIENCE_S = 3.0
"""How long a wait may be without a word. People at a terminal wonder sooner."""
AT_A_TERMINAL_S = 1.0


class Waiting:
    """Says once, on stderr, what is waited for, when `still()` is called and patience is over."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._tell_at = time.monotonic() + (AT_A_TERMINAL_S if sys.stderr.isatty() else PATIENCE_S)

    def still(self) -> None:
        """It is not over yet."""
        if time.monotonic() >= self._tell_at:
            self._tell_at = float("inf")
            print(f"pilothouse: waiting for {self._what}", file=sys.stderr, flush=True)

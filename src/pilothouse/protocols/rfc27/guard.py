"""Starts a scheduler process again when it crashes, with a back-off. Its state is in the manager: hello tells it all."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time

FIRST_BACKOFF_S = 0.1
MOST_BACKOFF_S = 10.0

_GUARDED = "PILOTHOUSE_GUARDED"
_FINAL = (0, 2, 130)
"""A regular end, a mistake of the user's, and Ctrl-C: trying again would not help."""


def guarded() -> bool:
    """Whether this process is the one that is guarded."""
    return _GUARDED in os.environ


def guard(command: list[str]) -> int:
    """Runs the command until it ends for good; its exit code."""
    backoff_s = FIRST_BACKOFF_S
    while True:
        began = time.monotonic()
        code = _run(command)
        if code in _FINAL:
            return code
        if time.monotonic() - began > MOST_BACKOFF_S:
            backoff_s = FIRST_BACKOFF_S
        logging.getLogger("pilothouse.rfc27").warning("the scheduler ended with %d; again in %.1f s", code, backoff_s)
        time.sleep(backoff_s)
        backoff_s = min(2 * backoff_s, MOST_BACKOFF_S)


def _run(command: list[str]) -> int:
    process = subprocess.Popen(command, env={**os.environ, _GUARDED: "1"})
    ended = False

    def end(number: int, frame: object) -> None:
        nonlocal ended
        ended = True
        process.send_signal(number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        code = process.wait()
    except KeyboardInterrupt:
        process.wait()
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0 if ended else code

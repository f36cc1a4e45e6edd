"""Restarts a command after a crash, with a back-off (`steer --restart`).

A scheduler of a Flux instance keeps no state of its own: the manager sends it all in the next handshake.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time

from pilothouse.launch.running import die_with_parent
from pilothouse.launch.signals import on_signals

FIRST_BACKOFF_S = 0.1
MOST_BACKOFF_S = 10.0

_RESTARTED = "PILOTHOUSE_RESTARTED"
_FINAL = (0, 2, 130)
"""Exit codes after which there is no restart: a regular end, an error of the user, Ctrl-C."""


def is_child() -> bool:
    """Whether this process is the command that would be restarted. Then it ends with the process that would restart it."""
    parent = os.environ.get(_RESTARTED, "")
    if parent:
        die_with_parent(int(parent))
    return bool(parent)


def run_with_restarts(command: list[str]) -> int:
    """Runs the command until it ends with a final exit code, which is returned."""
    backoff_s = FIRST_BACKOFF_S
    while True:
        began = time.monotonic()
        code = _run(command)
        if code in _FINAL:
            return code
        if time.monotonic() - began > MOST_BACKOFF_S:
            backoff_s = FIRST_BACKOFF_S
        logging.getLogger("pilothouse").warning("exit code %d; restarting in %.1f s", code, backoff_s)
        time.sleep(backoff_s)
        backoff_s = min(2 * backoff_s, MOST_BACKOFF_S)


def _run(command: list[str]) -> int:
    process = subprocess.Popen(command, env={**os.environ, _RESTARTED: str(os.getpid())})
    ended = False

    def end(number: int) -> None:
        nonlocal ended
        ended = True
        process.send_signal(number)

    try:
        with on_signals(end, signal.SIGTERM):
            code = process.wait()
    except KeyboardInterrupt:
        process.wait()
        return 130
    return 0 if ended else code

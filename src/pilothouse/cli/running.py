"""Around a run: the garbage collector kept calm, and a scheduler that we start for the user and that lives no longer."""

from __future__ import annotations

import gc
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from pilothouse.model.errors import InputError

GRACE_SECONDS = 5.0


def calm_collector() -> None:
    """Simulations make few cycles and many objects that live long: looking for garbage less often saves a sixth."""
    gc.set_threshold(200_000, 50, 100)


@contextmanager
def supervised(command: str | None) -> Iterator[None]:
    """Runs the command beside the body, in a process group of its own; whatever happens, the whole group is ended."""
    if command is None:
        yield
        return
    try:
        process = subprocess.Popen(shlex.split(command), start_new_session=True)
    except (OSError, ValueError) as problem:
        raise InputError("--decider-command", f"cannot be started: {problem}") from None
    try:
        yield
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(GRACE_SECONDS)
            if number == signal.SIGTERM:
                continue
        except subprocess.TimeoutExpired:
            continue
    process.wait()

"""Around a run: the garbage collector kept calm, a scheduler that we start for the user and that lives no longer, and
whether a process of an earlier run is still there."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pilothouse.launch.signals import on_signals
from pilothouse.model.errors import PeerError
from pilothouse.protocols.process import PeerProcess

LOOK_S = 0.1
LAST_WORD_S = 2.0
"""A scheduler that has said its last word may end before the run does; if the run is not over by then, it has died."""


def calm_collector() -> None:
    """Simulations make few cycles and many objects that live long: looking for garbage less often saves a sixth."""
    gc.set_threshold(1_000_000, 50, 100)
    atexit.register(gc.freeze)  # The process ends: what is left needs no search.


def is_alive(pid: int) -> bool:
    """Whether this host has a process of that number, ours or somebody else's."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def supervised(command: str | None) -> Iterator[None]:
    """Runs the command beside the body, in a process group of its own; whatever happens, the whole group is ended.

    If it ends first, the body is interrupted by a PeerError, even where it waits for a message that will never come.
    """
    if command is None:
        yield
        return
    process = PeerProcess(command)
    over = threading.Event()
    deaths: list[PeerError] = []

    def watch() -> None:
        while not over.wait(LOOK_S):
            try:
                process.check("--decider-command")
            except PeerError as death:
                if not over.wait(LAST_WORD_S):
                    deaths.append(death)
                    os.kill(os.getpid(), signal.SIGUSR1)
                return

    def interrupt(number: int) -> None:
        raise deaths[0]

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    orderly = False
    try:
        with on_signals(interrupt, signal.SIGUSR1):
            yield
        orderly = True
    finally:
        over.set()
        watcher.join()
        process.close(orderly=orderly)

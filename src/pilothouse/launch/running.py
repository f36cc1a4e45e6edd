"""Helpers around a run: garbage collection, standard streams, a supervised scheduler, a check whether a process lives."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pilothouse.launch.signals import on_signals
from pilothouse.model.errors import InputError, PeerError
from pilothouse.protocols.process import PeerProcess

_PR_SET_PDEATHSIG = 1
LOOK_S = 0.1
LAST_WORD_S = 2.0
"""A scheduler may end this long before the run does, after its last decision; a longer gap means that it died."""


def calm_collector() -> None:
    """Collects garbage less often: simulations make few cycles and many long-lived objects. Saves a sixth of the time."""
    gc.set_threshold(1_000_000, 50, 100)
    atexit.register(gc.freeze)  # no collection while the process ends


def die_with_parent(parent: int) -> None:
    """For a process that was forked: the kernel (Linux) ends it when the parent ends, whatever it does then."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it had ended before the kernel knew


def is_alive(pid: int) -> bool:
    """Whether this host has a process of that number, of any user."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def check_surroundings() -> None:
    """Opens standard streams that are closed (`2>&-`, some daemons): otherwise other files would get their descriptors, and
    messages would be written into them. Raises InputError if the current folder was deleted.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 - as long as the process
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    try:
        os.getcwd()
    except FileNotFoundError:
        raise InputError("the current folder", "is no more", hint="go to one that is there") from None


@contextmanager
def supervised(command: str | None) -> Iterator[None]:
    """Runs the command beside the body, in a process group of its own, and ends the whole group with the body.

    If the command ends first, a PeerError interrupts the body, even while it waits for a message.
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

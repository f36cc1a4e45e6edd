"""Daemons on this machine: find a program and a free port, start it, wait until it is ready, end it.

Everything listens on loopback. Readiness is a condition that is polled with a deadline, never a guess.
"""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

START_DEADLINE_S = 60.0
STOP_DEADLINE_S = 20.0
POLL_S = 0.02
PRIVATE = 0o077
"""umask(2) of daemons: their files are for their user alone."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PORTS = range(20000, 32000)
"""Below the kernel's own range (32768-60999), so that no outgoing connection takes a port between choice and use."""

_steps = itertools.count()
_given: set[int] = set()
_giving = threading.Lock()


class MissingComponent(Exception):
    """A program is not installed here; the message says which, and what would install it."""


def find_program(name: str, package: str) -> str:
    """The path of an installed program (daemons live in sbin, which a user's PATH may not have)."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}")
    if path is None:
        raise MissingComponent(f"{name} is not installed (Debian package {package})")
    return path


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = START_DEADLINE_S) -> None:
    """Polls until the condition holds. TimeoutError if it does not in time."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {deadline_s:g} s")
        time.sleep(POLL_S)


def free_port(salt: int = 0) -> int:
    """A TCP port that no process listens on. Each process searches from a place of its own, and gives no port twice: who got it
    may not listen yet.
    """
    start = (os.getpid() * 1009 + salt * 11 + next(_steps)) % len(PORTS)
    for step in range(len(PORTS)):
        port = PORTS[(start + step) % len(PORTS)]
        with _giving, socket.socket() as probe:
            if port in _given:
                continue
            # QUIRK: without SO_REUSEADDR a port whose last connection is still in TIME_WAIT counts as taken; good.
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _given.add(port)
            return port
    raise RuntimeError("no free TCP port")


def spawn(arguments: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Starts a daemon in the foreground, with its output in a log file. It ends when this process ends, however it does."""
    setpriv = shutil.which("setpriv", path=SYSTEM_PATH)
    prefix = [setpriv, "--pdeathsig", "TERM"] if setpriv else []
    with log.open("ab") as out:
        return subprocess.Popen(
            [*prefix, *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, start_new_session=True,
            umask=PRIVATE,
        )  # fmt: skip


def stop(process: subprocess.Popen[bytes], deadline_s: float = STOP_DEADLINE_S) -> None:
    """Ends a daemon: SIGTERM, then SIGKILL."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_started(process: subprocess.Popen[bytes], ready: Callable[[], bool], what: str, log: Path) -> None:
    """Polls until ready. RuntimeError with the end of its log if the daemon ends instead."""

    def ready_or_dead() -> bool:
        return process.poll() is not None or ready()

    wait_until(ready_or_dead, f"{what} to start (log: {log})")
    if process.poll() is not None:
        tail = log.read_text(errors="replace")[-2000:] if log.exists() else ""
        raise RuntimeError(f"{what} ended with code {process.returncode} instead of starting:\n{tail}")

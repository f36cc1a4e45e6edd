"""A scheduler process that we start.

The process has its own process group, and ends with us, even if we are killed. In: a command line (`--decider-command`).
Out: whether it still runs, and how it ended.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable

from pilothouse.model.errors import InputError, PeerError

GRACE_S = 5.0
"""How long a scheduler may take to end after the end of the run, and again after SIGTERM."""

_PR_SET_PDEATHSIG = 1


class PeerProcess:
    """`close()` waits for its end, then ends it and all processes of its group."""

    def __init__(self, command: str) -> None:
        try:
            arguments = shlex.split(command)
        except ValueError as problem:
            raise InputError("--decider-command", f"cannot be split into words: {problem}") from None
        if not arguments:
            raise InputError("--decider-command", "is empty")
        self.command = command
        try:
            self._process = subprocess.Popen(
                arguments,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                preexec_fn=_end_with_parent(),  # noqa: PLW1509 (three system calls, no lock)
            )
        except OSError as problem:
            raise InputError("--decider-command", f"cannot start {arguments[0]!r}: {problem.strerror}") from None

    def check(self, peer: str, within_s: float = 0.0) -> None:
        """Raises PeerError if it has ended, or ends within this time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(within_s)
            raise PeerError(peer, f"its process ended ({_how(code)}) while an answer was expected")

    def close(self, *, orderly: bool) -> str:
        """Ends it. Returns how it ended, or an empty text if it ended well."""
        forced = False
        try:
            code = self._process.wait(GRACE_S if orderly else 0.05)
        except subprocess.TimeoutExpired:
            forced = True
            self._signal(signal.SIGTERM)
            try:
                code = self._process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                code = self._process.wait()
        self._signal(signal.SIGKILL)  # The other processes of its group.
        if forced:
            return "it did not end by itself" if orderly else ""
        return _how(code) if code and orderly else ""

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _end_with_parent() -> Callable[[], object] | None:
    """A function for the child process: asks the kernel (Linux) for a SIGTERM when the parent ends."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    set_option, parent = ctypes.CDLL(None).prctl, os.getpid()

    def ask() -> None:
        set_option(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    return ask


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"

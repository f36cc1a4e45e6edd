"""A scheduler process that we start.

The process has a session of its own and a guard (process_guard.py), which ends it and all that it has started when we end, even
if we are killed. In: a command line (`--decider-command`).
Out: whether it still runs, and how it ended.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import subprocess
import sys
import threading
from pathlib import Path

from pilothouse.model.errors import InputError, PeerError

GRACE_S = 5.0
"""How long a scheduler may take to end after the end of the run, and again after SIGTERM."""

_GUARD = str(Path(__file__).with_name("process_guard.py"))

LAST_LINE_S = 1.0
"""How long we wait for the last line of a process that has ended; others may hold its standard error open."""
MOST_SAID = 300
"""Characters of that line that are shown."""


class PeerProcess:
    """`close()` waits for its end, then ends it and all that it has started."""

    def __init__(self, command: str) -> None:
        try:
            arguments = shlex.split(command)
        except ValueError as problem:
            raise InputError("--decider-command", f"cannot be split into words: {problem}") from None
        if not arguments:
            raise InputError("--decider-command", "is empty")
        self.command = command
        life, self._life = os.pipe()
        started, status = os.pipe()
        guard = (sys.executable, "-I", "-S", _GUARD, str(life), str(status), *arguments)
        try:
            self._process = subprocess.Popen(
                guard, start_new_session=True, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=(life, status)
            )
        finally:
            os.close(life)
            os.close(status)
        self._last_line = b""
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        with os.fdopen(started, "rb") as answer:
            error = int(answer.read() or errno.EIO)
        if error:
            self._end()
            raise InputError("--decider-command", f"cannot start {arguments[0]!r}: {os.strerror(error)}")

    def _listen(self) -> None:
        """Passes on what it writes to its standard error, and keeps the last line: as a rule, why it died."""
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                with contextlib.suppress(OSError):
                    os.write(2, line)
                self._last_line = line.strip() or self._last_line

    def check(self, peer: str, within_s: float = 0.0) -> None:
        """Raises PeerError if it has ended, or ends within this time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(within_s)
            self._listener.join(LAST_LINE_S)
            said = f": {self._last_line.decode(errors='replace')[:MOST_SAID]}" if self._last_line else ""
            raise PeerError(peer, f"its process ended ({_how(code)}) while an answer was expected{said}")

    def close(self, *, orderly: bool) -> str:
        """Ends it. Returns how it ended, or an empty text if it ended well."""
        forced = False
        try:
            code = self._process.wait(GRACE_S if orderly else 0.05)
        except subprocess.TimeoutExpired:
            forced = True
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_S)
        code = self._end()
        if forced:
            return "it did not end by itself" if orderly else ""
        return _how(code) if code and orderly else ""

    def _end(self) -> int:
        """The guard ends what is left of it."""
        if self._life >= 0:
            os.close(self._life)
            self._life = -1
        code = self._process.wait()
        self._listener.join(LAST_LINE_S)
        return code


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"

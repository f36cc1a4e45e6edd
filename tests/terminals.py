"""A command on a real terminal of 80 x 24: what it shows, and keys that are pressed."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from types import TracebackType

import components

DEADLINE_S = 60.0


class Terminal:
    """`pilothouse ARGUMENTS` on a pseudo-terminal."""

    def __init__(self, *arguments: object, cwd: Path, width: int = 80, height: int = 24) -> None:
        self._fd, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        command = [sys.executable, "-c", "from pilothouse.cli.main import main; main()", *map(str, arguments)]
        self._process = subprocess.Popen(
            command, cwd=cwd, env={**env, "TERM": "xterm"}, stdin=inner, stdout=inner, stderr=inner, start_new_session=True
        )
        os.close(inner)
        self.seen = ""
        self._looked_at = 0

    def until(self, text: str) -> None:
        """Waits until the text is shown, after what was waited for before."""
        give_up = time.monotonic() + DEADLINE_S
        while (place := self.seen.find(text, self._looked_at)) < 0:
            if time.monotonic() > give_up or not self._read():
                raise AssertionError(f"{text!r} was not shown; but: {self.seen[self._looked_at:]!r}")
        self._looked_at = place + len(text)

    def press(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def ends(self) -> int:
        """Waits for the end; the exit code."""
        while self._read():
            pass
        return self._process.wait(DEADLINE_S)

    def _read(self, timeout_s: float = DEADLINE_S) -> bool:
        """Reads what there is; False: nothing more will come."""
        if not components.readable(self._fd, timeout_s):
            return False
        try:
            data = os.read(self._fd, 1 << 16)
        except OSError:  # the other end is closed
            return False
        self.seen += data.decode("utf-8", "replace")
        return bool(data)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._fd)

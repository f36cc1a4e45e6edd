"""Single keys from the terminal, for screens that are steered with them, and a screen of plain lines (`show`)."""

from __future__ import annotations

import os
import re
import select
import shutil
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_ESCAPES = {
    "\x1b[A": "up", "\x1bOA": "up", "\x1b[B": "down", "\x1bOB": "down",
    "\x1b[C": "right", "\x1bOC": "right", "\x1b[D": "left", "\x1bOD": "left",
    "\x1b[5~": "page up", "\x1b[6~": "page down", "\x1b[H": "home", "\x1b[F": "end", "\x1bOH": "home", "\x1bOF": "end",
    "\x1b": "escape", "\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace", "\t": "tab",
}  # fmt: skip

_KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|.", re.DOTALL)


class Keyboard:
    """Where keys are read, one by one."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._typed: list[str] = []
        """Keys that were read and not asked for yet: a paste, or a quick hand."""

    def key(self, timeout_s: float | None = None) -> str | None:
        """The next key: a character, or a name such as `up`. None: none within the timeout."""
        if not self._typed:
            if not select.select([self._fd], [], [], timeout_s)[0]:
                return None
            typed = os.read(self._fd, 1024).decode("utf-8", "replace")
            self._typed = _KEY.findall(typed) or ["q"]  # nothing to read: the terminal is gone
        key = self._typed.pop(0)
        return _ESCAPES.get(key, key)


@contextmanager
def keyboard() -> Iterator[Keyboard | None]:
    """The keyboard, key by key while the body runs; None: there is none."""
    if not sys.stdin.isatty():
        yield None
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        yield Keyboard(fd)
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


class Prompt:
    """A line that is being typed at the foot of a screen."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.text = ""

    def press(self, key: str) -> bool | None:
        """Takes a key. True: it was entered; False: given up; None: it goes on."""
        if key == "enter":
            return True
        if key == "escape":
            return False
        if key == "backspace":
            self.text = self.text[:-1]
        elif key.isprintable() and len(key) == 1:
            self.text += key
        return None


_RESIZED_S = 0.5
"""How soon a changed size of the terminal is noticed."""


def show(lines: Callable[[int, int], list[str]], press: Callable[[str], bool]) -> None:
    """Fills the terminal with `lines(width, height)`, and again after each key, until `press(key)` is False."""
    out = sys.stdout
    with suppress(KeyboardInterrupt), keyboard() as keys:
        if keys is None:
            return
        out.write("\x1b[?1049h\x1b[?25l")  # the other screen, without a cursor
        try:
            going = True
            while going:
                width, height = shutil.get_terminal_size()
                drawn = "\x1b[K\r\n".join(lines(width, height))
                out.write(f"\x1b[H{drawn}\x1b[K\x1b[J")
                out.flush()
                key = None
                while key is None and shutil.get_terminal_size() == (width, height):
                    key = keys.key(_RESIZED_S)
                going = key is None or press(key)
        finally:
            out.write("\x1b[?25h\x1b[?1049l")
            out.flush()

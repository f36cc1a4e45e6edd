"""Why tasks failed: in words, and many failures as few groups."""

from __future__ import annotations

import signal

import msgspec

MOST_GROUPS = 200
"""Beyond that, failures are counted together."""


def code_text(code: int) -> str:
    """An exit code, or the signal that ended a program, without its SIG: `3`, `SEGV`."""
    try:
        return str(code) if code >= 0 else signal.Signals(-code).name.removeprefix("SIG")
    except ValueError:
        return str(code)


def why(code: int, reason: str) -> str:
    """The reason that is known, or the way in which it ended: `exit code 3`, `ended by SEGV`."""
    text = code_text(code)
    return reason or (f"ended by {text}" if text.isalpha() else f"exit code {text}")


class FailureGroup(msgspec.Struct):
    """Failures that ended in the same way and said the same last."""

    why: str
    last_line: str
    task: int
    """The first of them, with its host, duration and command."""
    line: int
    node: str
    took_s: float
    command: str
    count: int = 1

    def text(self) -> str:
        """One line."""
        said = f": {self.last_line}" if self.last_line else ""
        where = f" on {self.node}" if self.node else ""
        first = f"task {self.task} (line {self.line}){where}, {self.took_s:.1f} s"
        if self.count == 1:
            return f"{first}: {self.why}{said}: {self.command}"
        return f"{self.count:,} x {self.why}{said}  (first: {first}: {self.command})"


class Failures:
    """Collects them as they come."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], FailureGroup] = {}

    def add(
        self, task: int, line: int, code: int, reason: str, node: str, took_s: float, command: bytes, last_line: bytes
    ) -> None:  # fmt: skip
        said = last_line.decode("utf-8", "replace")
        key = (why(code, reason), said)
        if key not in self._groups and len(self._groups) >= MOST_GROUPS:
            key = (key[0], "")
        group = self._groups.get(key)
        if group is not None:
            group.count += 1
            return
        self._groups[key] = FailureGroup(*key, task, line, node, took_s, command.decode("utf-8", "replace"))

    def groups(self) -> list[FailureGroup]:
        """The largest first."""
        return sorted(self._groups.values(), key=lambda group: -group.count)

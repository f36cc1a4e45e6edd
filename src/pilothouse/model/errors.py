"""Every error that a user can meet, and who is to blame for it.

    PilothouseError          one clear line, no traceback; carries the exit code of the command
    ├── InputError           the user's input: where, what was expected, what was found, what to do      exit 2
    ├── DecisionError        a decider's order that breaks a rule: who, which event, which rule          exit 1
    ├── PeerError            a foreign scheduler, manager, client or engine misbehaved: which, how       exit 1
    └── RunError             the run itself could not go on (deadlock, lost connection, full disk)       exit 1

A broken invariant of our own is a plain AssertionError: it stops the run with a traceback.
"""

from __future__ import annotations

from collections.abc import Iterable


class PilothouseError(Exception):
    """Base of all expected errors; str() is the one line that the user sees."""

    exit_code = 1


class InputError(PilothouseError):
    """The user's mistake: `where: expected ..., found ...; hint`."""

    exit_code = 2

    def __init__(self, where: str, problem: str, *, expected: str = "", found: str = "", hint: str = "") -> None:
        self.where = where
        self.problem = problem
        line = f"{where}: {problem}" if where else problem
        if expected:
            line += f"; expected {expected}"
        if found:
            line += f"{', ' if expected else '; '}found {found}"
        if hint:
            line += f" ({hint})"
        super().__init__(one_line(line))


class DecisionError(PilothouseError):
    """An order that was refused; nothing of it was applied."""

    def __init__(self, decider: str, index: int, rule: str, detail: str, *, where: str = "") -> None:
        self.decider = decider
        self.index = index
        self.rule = rule
        self.detail = detail
        at = f" at {where}" if where else ""
        super().__init__(one_line(f"{decider}{at}: decision {index} refused ({rule}): {detail}"))


class PeerError(PilothouseError):
    """A foreign program at the other end of a protocol misbehaved."""

    def __init__(self, peer: str, problem: str, *, event: str = "", hint: str = "") -> None:
        self.peer = peer
        self.problem = problem
        line = f"{peer}: {event + ': ' if event else ''}{problem}"
        if hint:
            line += f" ({hint})"
        super().__init__(one_line(line))


class RunError(PilothouseError):
    """The run could not go on, and no input is to blame."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """A hint for a mistyped name: `did you mean easy?`, or "" if none of the known ones is near."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), 1)
    return f"did you mean {near[0]}?" if near else ""


def one_line(text: str, limit: int = 1000) -> str:
    """The text without line breaks, cut to what a terminal can show."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def quoted(value: object, limit: int = 60) -> str:
    """A found value as it is shown inside an error line."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"

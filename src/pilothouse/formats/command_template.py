"""Commands made from a template and arguments, with the replacement strings of GNU parallel.

In: a template such as `sim --seed {2} < {1} > {1.}.out`, and rows of values, which may have names. Out: command lines.

    {}  {1}  {-1}  {name}     all values with blanks between them; the first; the last; that of a column
    {.} {/} {//} {/.}         without extension; without folder; the folder alone; without both. Also {1.}, {name/} ...
    {#} {%}                   the number of the command, from 1; the number of the slot that runs it, from 1

A template without any of those that stand for a value gets ` {}` at its end. Values are quoted for the shell, so that each stays
what it is wherever the template has it: outside of quotes, within single or double ones, or in `$(...)`. A template that is
just `{}` is not quoted: the values are the commands. Other braces are left as they are.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence

import msgspec

from pilothouse.model.errors import InputError, quoted
from pilothouse.model.numerals import whole_number

_FORM = re.compile(r"\{(#|%|(-?\d+|[A-Za-z_]\w*)?(\.|/|//|/\.)?)\}")
_PLAIN = re.compile(r"[A-Za-z0-9_./,:@%+=-]+")
_EXTENSION = re.compile(r"\.[^/.]+$")
_SLOT = "$((PILOTHOUSE_SLOT+1))"
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")


def _folder(value: str) -> str:
    return posixpath.dirname(value.rstrip("/") or value) or "."


def _last(value: str) -> str:
    return value.rpartition("/")[2]


_CUTS: dict[str, Callable[[str], str]] = {
    "": lambda value: value,
    ".": lambda value: _EXTENSION.sub("", value),
    "/": _last,
    "//": _folder,
    "/.": lambda value: _EXTENSION.sub("", _last(value)),
}


class _Field(msgspec.Struct, frozen=True):
    """One replacement string: a value (`which`: its index, None: all), the number of the command, or the slot."""

    kind: str
    which: int | None
    cut: str
    quote: str
    """The quotation mark that it is within; "" : none."""


class CommandTemplate:
    """A template for rows of values whose columns have these names ("" : none)."""

    def __init__(self, text: str, names: Sequence[str]) -> None:
        """Raises InputError for a template that cannot be a command."""
        if "\n" in text or "\0" in text:
            raise InputError("the command", "must be one line", found=quoted(text), hint="put longer ones into a script")
        text = text.strip()
        if text.startswith("#"):
            raise InputError("the command", "begins with # and is only a comment", found=quoted(text))
        self._names = names
        self._as_they_are = text in ("", "{}")
        if not any(self._stands_for_value(match) for match in _FORM.finditer(text)):
            text = f"{text} {{}}" if text else "{}"
        self._parts = self._split(text)

    def _stands_for_value(self, match: re.Match[str]) -> bool:
        return match[1] not in ("#", "%") and (not match[2] or match[2][0] in "-0123456789" or match[2] in self._names)

    def _split(self, text: str) -> list[str | _Field]:
        """The template as pieces of text and fields, each with the quotes around it."""
        parts: list[str | _Field] = []
        quotes = _Quotes()
        done = 0
        for match in _FORM.finditer(text):
            if match[1] not in ("#", "%") and not self._stands_for_value(match):
                continue
            quotes.read(text[done : match.start()])
            if quotes.in_backquotes:
                hint = "write $(...), in which every value stays what it is"
                raise InputError("the command", f"{match[0]} within backquotes", found=quoted(text), hint=hint)
            parts.append(text[done : match.start()])
            kind = match[1] if match[1] in ("#", "%") else ""
            parts.append(_Field(kind, None if kind else self._index(match), match[3] or "", quotes.around))
            done = match.end()
        return [*parts, text[done:]]

    def _index(self, match: re.Match[str]) -> int | None:
        name = match[2]
        if not name:
            return None
        if name in self._names:
            return self._names.index(name)
        number, count = whole_number(name.removeprefix("-")), len(self._names)
        if number is None or not 1 <= number <= count:
            found = f"there {'is' if count == 1 else 'are'} {count}"
            raise InputError("the command", f"no such value: {match[0]}", expected="numbers from 1 on", found=found)
        return -number if name.startswith("-") else number - 1

    def fill(self, values: Sequence[str], number: int) -> str:
        """The command for these values."""
        made = [part if isinstance(part, str) else self._replacement(part, values, number) for part in self._parts]
        line = "".join(made)
        if "\n" in line or "\0" in line:
            raise InputError(f"command {number}", "a value holds a character that a command cannot", found=quoted(line))
        if not line or line.isspace() or line.lstrip().startswith("#"):
            raise InputError(f"command {number}", "is empty or a comment", found=quoted(line))
        return line

    def _replacement(self, field: _Field, values: Sequence[str], number: int) -> str:
        if field.kind == "#":
            return str(number)
        if field.kind == "%":
            return f"'{_SLOT}'" if field.quote == "'" else _SLOT
        cut = _CUTS[field.cut]
        if field.which is not None:
            return self._quoted(cut(values[field.which]), field.quote)
        return " ".join(self._quoted(cut(value), field.quote) for value in values)

    def _quoted(self, value: str, quote: str) -> str:
        """The value as one word of the shell, or as a part of the word that it is within."""
        if self._as_they_are or _PLAIN.fullmatch(value):
            return value
        if _UNPRINTABLE.search(value):
            word = "$'" + _UNPRINTABLE.sub(_escaped, value.replace("\\", "\\\\").replace("'", "\\'")) + "'"
        else:
            word = "'" + value.replace("'", "'\\''") + "'"
        # Within quotes: they are closed, and opened again behind the word.
        return f"{quote}{word}{quote}"


def in_one_line(command: str) -> str:
    """A command of several lines as one that does the same."""
    if "\n" not in command:
        return command
    return "eval $'" + _UNPRINTABLE.sub(_escaped, command.replace("\\", "\\\\").replace("'", "\\'")) + "'"


def _escaped(match: re.Match[str]) -> str:
    if match[0] == "\0":
        raise InputError("a value", "holds a NUL byte, which no command can hold")
    return f"\\{ord(match[0]):03o}"


class _Quotes:
    """Which quotation mark is open at a place of a shell command. `$(...)` and backquotes begin anew within double quotes."""

    def __init__(self) -> None:
        self._open = [""]

    @property
    def around(self) -> str:
        return self._open[-1] if self._open[-1] in ("'", '"') else ""

    @property
    def in_backquotes(self) -> bool:
        return "`" in self._open

    def read(self, text: str) -> None:
        at = 0
        while at < len(text):
            mark, top = text[at], self._open[-1]
            if top == "'":
                if mark == "'":
                    self._open.pop()
            elif mark == "\\":
                at += 1
            elif mark == '"' or (mark == "'" and top != '"'):
                if top == mark:
                    self._open.pop()
                else:
                    self._open.append(mark)
            elif text.startswith("$(", at):
                self._open.append(")")
                at += 1
            elif mark == "(" and top == ")":
                self._open.append(")")
            elif (mark in ")`") and top == mark:
                self._open.pop()
            elif mark == "`":
                self._open.append(mark)
            at += 1

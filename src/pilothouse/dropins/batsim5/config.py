"""Batsim 5's configuration files: TOML as CLI11 writes it, or INI when the name of a written file ends in .ini.

Read: `key = value` lines, where a value is bare or quoted, a list `["a", "b"]` (over several lines, if need be) or words
`a "b c"`; a key alone is a flag; comments are skipped, and so is the section `[default]`. Written: every option that
was given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pilothouse.model.errors import InputError, quoted

if TYPE_CHECKING:
    from pilothouse.dropins.batsim5.options import Option

_WORD = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|\[[^\[\]]*\]|[^\s,\[\]]+")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?").fullmatch
NOT_CONFIGURABLE = (
    "config",
    "gen_config",
    "help",
    "version",
    "simgrid_version",
    "batsim_git_commit",
    "simgrid_git_commit",
    "dump_execution_context",
)


class UnknownKey(InputError):
    """A key or a section that is no option of Batsim."""


def read(path: str, known: Mapping[str, Option]) -> dict[str, list[list[str]]]:
    """Field -> groups of values, for the options that the file sets. An unknown key is an UnknownKey."""
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(path, f"cannot be read: {problem}") from None
    found: dict[str, list[list[str]]] = {}
    following = enumerate(lines, 1)
    for number, line in following:
        text = line.strip()
        if not text or text[0] in "#;" or text == "[default]":
            continue
        key, equals, rest = text.partition("=")
        name = key.strip().strip("\"'").lstrip("-")
        option = known.get(name)
        if option is None:
            from difflib import get_close_matches

            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else ""
            raise UnknownKey(f"{path}:{number}", "no option of Batsim", found=quoted(name), hint=hint)
        rest = rest.strip() if equals else "true"
        while rest.startswith("[") and "]" not in rest and (more := next(following, None)) is not None:
            rest += " " + more[1].strip()
        words = _words(rest)
        if option.values == 2:
            groups = [words[i : i + 2] for i in range(0, len(words), 2)]
        elif option.values == 0:
            groups = [words[:1]]
        else:
            groups = [words]
        if option.values > 0 and any(len(group) != option.values for group in groups):
            raise InputError(path, f"{key.strip()}: {option.values} values are needed", found=rest)
        if groups and (groups[0] or option.values == 0):
            found[option.field] = groups
    return found


def _words(text: str) -> list[str]:
    if text.startswith("["):
        text = text[1 : text.rindex("]")] if "]" in text else text[1:]
    words = []
    for match in _WORD.finditer(text):
        if match[0].startswith("["):
            words += _words(match[0])
        elif match[1] is not None:
            words.append(re.sub(r"\\(.)", r"\1", match[1]))
        elif match[2] is not None:
            words.append(match[2])
        elif match[0][0] in "#;":
            break
        else:
            words.append(match[0])
    return words


def write(path: str, found: Mapping[str, list[list[str]]], options: Sequence[Option]) -> None:
    ini = path.endswith(".ini")
    lines = []
    for option in options:
        groups = found.get(option.field)
        if groups is None or option.field in NOT_CONFIGURABLE:
            continue
        if option.values == 0:
            lines.append(f"{option.long}=true")
            continue
        words = [_quoted(word) for group in groups for word in group]
        if len(words) == 1:
            lines.append(f"{option.long}={words[0]}")
        elif ini:
            lines.append(f"{option.long}={' '.join(words)}")
        else:
            lines.append(f"{option.long}=[{', '.join(words)}]")
    try:
        Path(path).write_text("\n".join(lines) + "\n")
    except OSError as problem:
        raise InputError(path, f"cannot be written: {problem.strerror}") from None


def _quoted(word: str) -> str:
    if _NUMBER(word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'

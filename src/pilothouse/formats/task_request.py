"""Requests of tasks as text: `cores=4 mem=8G gpus=1 walltime=30m nodes=2 retries=2 name=fit after=prepare env=A=1`.

In: the words of a `#PILOTHOUSE` line, or the columns of a table. Out: a TaskRequest, or an InputError that names the place.
`words_of` writes a request again.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pilothouse.formats import duration
from pilothouse.formats.tables import as_text
from pilothouse.model.errors import InputError, quoted
from pilothouse.model.numerals import whole_number
from pilothouse.model.task_request import TaskRequest

MOST_COUNT = 10**6
MOST_MEMORY_MB = 2**40
_MEMORY = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([KMGT]?)(?:i?B)?", re.I)
_IN_MB = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2}
_NAME = re.compile(r"[\w.:/@+-]+")
_VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.S)
_NEXT_VARIABLE = re.compile(r",(?=[A-Za-z_]\w*=)")


def memory_mb(text: str, where: str) -> int:
    """`8G`, `512M`, `1.5T`, or a number of megabytes (of 2^20 bytes), rounded up. Raises InputError."""
    match = _MEMORY.fullmatch(text.strip())
    found = float(match[1]) * _IN_MB[match[2].upper()] if match else math.nan
    if not found <= MOST_MEMORY_MB:
        raise InputError(where, "not an amount of memory", expected="such as 512M or 8G", found=quoted(text))
    return math.ceil(found)


def variables(text: str, where: str) -> tuple[tuple[str, str], ...]:
    """`A=1,B=two`: a comma begins a new variable only where a name and `=` follow it. Raises InputError."""
    return tuple(_variable(part, where) for part in _NEXT_VARIABLE.split(text))


def _variable(text: str, where: str) -> tuple[str, str]:
    match = _VARIABLE.fullmatch(text)
    if match is None or "\0" in text:
        raise InputError(where, "not a variable", expected="NAME=VALUE", found=quoted(text))
    return match[1], match[2]


def _count(least: int, text: str, where: str) -> int:
    found = whole_number(text)
    if found is None or not least <= found <= MOST_COUNT:
        raise InputError(where, "not a count", expected=f"a whole number of at least {least}", found=quoted(text))
    return found


def walltime_s(text: str, where: str) -> float:
    """`90`, `30m`, `1:30:00`, `inf`. Raises InputError."""
    parts = [part for part in map(whole_number, text.split(":")) if part is not None]
    if len(parts) == text.count(":") + 1 and len(parts) in (2, 3):
        hours, minutes, seconds = [0] * (3 - len(parts)) + parts
        found = 3600.0 * hours + 60.0 * minutes + seconds
    else:
        found = duration.parse(text, where=where)
    if not found:
        raise InputError(where, "no time at all", expected="such as 90, 30m or 1:30:00", found=quoted(text))
    return found


def _name(text: str, where: str) -> str:
    if not _NAME.fullmatch(text):
        raise InputError(where, "not a name", expected="letters, digits and _ . : / @ + -", found=quoted(text))
    return text


def _names(text: str, where: str) -> tuple[str, ...]:
    return tuple(_name(part.strip(), where) for part in text.split(","))


_KEYS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "cores": ("cores", partial(_count, 1)),
    "mem": ("memory_mb", memory_mb),
    "gpus": ("gpus", partial(_count, 0)),
    "walltime": ("walltime", walltime_s),
    "nodes": ("nodes", partial(_count, 1)),
    "retries": ("retries", partial(_count, 0)),
    "name": ("name", _name),
    "after": ("after", _names),
    "env": ("env", variables),
}
"""Key -> the field of TaskRequest, and how its text is read."""
KEYS = tuple(_KEYS)
_MANY = ("after", "env")
"""May be given more than once."""


def parse_words(text: str, where: str) -> TaskRequest | None:
    """What is behind `#PILOTHOUSE`, with words quoted as for a shell; None: nothing. Raises InputError."""
    try:
        words = shlex.split(text)
    except ValueError as problem:
        raise InputError(where, str(problem), found=quoted(text)) from None
    fields: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in _KEYS:
            raise InputError(where, "not a request", expected=f"KEY=VALUE with one of {', '.join(KEYS)}", found=quoted(word))
        field, read = _KEYS[key]
        if field in fields and key not in _MANY:
            raise InputError(where, f"{key} is given twice", found=quoted(text))
        fields[field] = fields.get(field, ()) + read(value, f"{where}: {key}") if key in _MANY else read(value, f"{where}: {key}")
    return TaskRequest(**fields) if fields else None


def from_columns(columns: Mapping[str, object], where: str) -> TaskRequest | None:
    """The columns of a row of a table, or an object of JSON lines; those that are empty are left out. Raises InputError."""
    fields: dict[str, Any] = {}
    for key, value in columns.items():
        if value is None or value == "":
            continue
        field, read = _KEYS[key]
        if key == "env" and isinstance(value, dict):
            fields[field] = tuple(_variable(f"{name}={as_text(text)}", f"{where}: env") for name, text in value.items())
        elif key == "after" and isinstance(value, list):
            fields[field] = tuple(_name(as_text(name), f"{where}: after") for name in value)
        else:
            fields[field] = read(as_text(value), f"{where}: {key}")
    return TaskRequest(**fields) if fields else None


def words_of(request: TaskRequest) -> str:
    """The words that `parse_words` reads."""
    words = []
    for key, (field, _) in _KEYS.items():
        value = getattr(request, field)
        if value is None or value == getattr(_NOTHING, field):
            continue
        if key == "env":
            words += [f"env={name}={text}" for name, text in value]
        elif key == "after":
            words.append(f"after={','.join(value)}")
        else:
            words.append(f"{key}={f'{value}M' if key == 'mem' else f'{value:g}' if key == 'walltime' else value}")
    return shlex.join(words)


_NOTHING = TaskRequest()

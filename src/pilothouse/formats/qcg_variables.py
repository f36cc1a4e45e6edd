"""The variables of QCG job descriptions, `${name}`, which are replaced in two phases.

When a request is accepted: rcnt, uniq, sname, date, time, dateTime, jname, and for the specification's loops it, its,
it_start, it_stop. When a job has its resources: root_wd, ncores, nnodes, nlist, and for 0.14.2's loops it, itval.
In 0.14.2's dialect other names are kept (they may be the shell's); the specification's dialect refuses them. In
0.14.2's dialect each phase also replaces `$$` by `$`, as 0.14.2 does: `$${it}` is `${it}` after the first phase, and a
shell's own `$$` is written `$$$$`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

AT_REQUEST = frozenset(
    {"rcnt", "uniq", "sname", "date", "time", "dateTime", "jname", "it", "its", "it_start", "it_stop"}
)
AT_START = frozenset({"root_wd", "ncores", "nnodes", "nlist", "it", "itval"})
KNOWN = AT_REQUEST | AT_START
LOOP_ONLY = frozenset({"it", "its", "it_start", "it_stop", "itval"})

_VARIABLE = re.compile(r"\$\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}|\$([A-Za-z_][A-Za-z0-9_]*)")
_VARIABLE_OR_DOUBLED = re.compile(rf"{_VARIABLE.pattern}|\$\$")


def replaced(text: str, values: Mapping[str, str], *, doubled: bool = False) -> str:
    """The text with every known variable replaced; others are kept. `doubled`: `$$` stands for `$`."""
    if "$" not in text:
        return text

    def value_of(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        return values.get(name, match[0]) if name else "$"

    return (_VARIABLE_OR_DOUBLED if doubled else _VARIABLE).sub(value_of, text)


def replaced_deep(value: object, values: Mapping[str, str], *, doubled: bool = False) -> object:
    """The same for every text inside a decoded JSON value."""
    if isinstance(value, str):
        return replaced(value, values, doubled=doubled)
    if isinstance(value, list):
        return [replaced_deep(item, values, doubled=doubled) for item in value]
    if isinstance(value, dict):
        return {key: replaced_deep(item, values, doubled=doubled) for key, item in value.items()}
    return value


def unknown_variables(
    value: object, known: frozenset[str] = KNOWN, path: str = "", *, doubled: bool = False
) -> Iterator[tuple[str, str]]:
    """(field, variable) for each `${name}` that no phase will replace. A script's variables are the shell's own."""
    if isinstance(value, str):
        for match in (_VARIABLE_OR_DOUBLED if doubled else _VARIABLE).finditer(value):
            if match[1] and match[1] not in known:
                yield path, match[1]
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from unknown_variables(item, known, f"{path}[{index}]", doubled=doubled)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key != "script":
                yield from unknown_variables(item, known, f"{path}/{key}" if path else str(key), doubled=doubled)

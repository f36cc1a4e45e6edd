"""The variables of QCG job descriptions, `${name}`, which are replaced in two phases.

When a request is accepted: rcnt, uniq, sname, date, time, dateTime, jname, and for the specification's loops it, its,
it_start, it_stop. When a job has its resources: root_wd, ncores, nnodes, nlist, and for 0.14.2's loops it, itval.
Other names are kept: they may be the shell's. Each phase also replaces `$$` by `$`, as the programs of 2018 and of 0.14.2 do:
`$${it}` is `${it}` after the first phase, and a shell's own `$$` takes eight dollars (or `$BASHPID`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_VARIABLE = re.compile(r"\$\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}|\$([A-Za-z_][A-Za-z0-9_]*)|\$\$")


def replaced(text: str, values: Mapping[str, str]) -> str:
    """The text with every known variable replaced, and `$$` by `$`; others are kept."""
    if "$" not in text:
        return text

    def value_of(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        return values.get(name, match[0]) if name else "$"

    return _VARIABLE.sub(value_of, text)


def replaced_deep(value: object, values: Mapping[str, str]) -> object:
    """The same for every text inside a decoded JSON value."""
    if isinstance(value, str):
        return replaced(value, values)
    if isinstance(value, list):
        return [replaced_deep(item, values) for item in value]
    if isinstance(value, dict):
        return {key: replaced_deep(item, values) for key, item in value.items()}
    return value

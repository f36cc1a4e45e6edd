"""Constraints of a Flux job (RFC 31): which nodes may serve it.

In: the object of `attributes.system.constraints`. Out: the same expression, checked, in the plain form that
`core/node_index.py` reads: hostlists and rank sets expanded to names. Operators: `properties` (all of them; `^name`:
not), `hostlist`, `ranks`, `and`, `or`, `not`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pilothouse.formats import hostlist
from pilothouse.model.errors import InputError, quoted
from pilothouse.model.idset import IdSet

MOST_DEPTH = 32

_FORBIDDEN = frozenset("!&'\"^`|()")
"""RFC 20: characters that no property name may hold."""


def normalised(
    constraint: Mapping[str, Any],
    ranks_of: Mapping[str, list[str]] | None = None,
    *,
    where: str = "constraints",
    depth: int = 0,
) -> dict[str, list[Any]]:
    """The checked expression. With `ranks_of` (host name -> ranks), hosts become ranks. Raises InputError."""
    if depth > MOST_DEPTH:
        raise InputError(where, f"constraints nested deeper than {MOST_DEPTH}")
    if not isinstance(constraint, Mapping):
        raise InputError(where, "expected an object with an operator", found=quoted(constraint))
    plain: dict[str, list[Any]] = {}
    for operator, values in constraint.items():
        path = f"{where}.{operator}"
        if not isinstance(values, list):
            raise InputError(path, "expected an array", found=quoted(values))
        if operator in ("and", "or", "not"):
            parts = [normalised(v, ranks_of, where=f"{path}[{i}]", depth=depth + 1) for i, v in enumerate(values)]
            # An empty `or` holds, as an empty `and` does.
            if operator == "and":
                plain.setdefault("and", []).extend(parts)
            elif parts or operator == "not":
                plain[operator] = parts
        elif operator == "properties":
            plain[operator] = [_property(name, path) for name in _texts(values, path)]
        elif operator == "hostlist":
            names = hostlist.parse_all(_texts(values, path), where=path)
            if ranks_of is None:
                plain[operator] = names
            else:
                plain.setdefault("and", []).append({"ranks": [r for name in names for r in ranks_of.get(name, [])]})
        elif operator == "ranks":
            ranks = IdSet()
            for text in _texts(values, path):
                ranks |= IdSet.parse(text, where=path)
            plain[operator] = [str(rank) for rank in ranks]
        else:
            raise InputError(path, "unknown constraint operator", found=quoted(operator))
    return plain


def _property(name: str, where: str) -> str:
    if not name.removeprefix("^") or _FORBIDDEN & set(name.removeprefix("^")):
        raise InputError(where, "not a property name", found=quoted(name))
    return name


def _texts(values: list[object], where: str) -> list[str]:
    for value in values:
        if not isinstance(value, str):
            raise InputError(where, "expected texts", found=quoted(value))
    return [str(value) for value in values]

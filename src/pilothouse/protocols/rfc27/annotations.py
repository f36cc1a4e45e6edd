"""Annotations of a job (RFC 27, Alloc Annotate): a dictionary that every answer of the scheduler may update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_DEPTH = 64


def merged(old: Mapping[str, Any] | None, new: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """The dictionary after the update: dictionaries merge recursively, null removes, anything else replaces or adds.

    A null for a key that does not exist adds nothing, at any depth: a dictionary never holds a null of ours.
    """
    result = dict(old) if old else {}
    for key, value in new.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and depth < MOST_DEPTH:
            before = result.get(key)
            result[key] = merged(before if isinstance(before, Mapping) else None, value, depth + 1)
        else:
            result[key] = value
    return result

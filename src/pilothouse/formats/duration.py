"""Flux Standard Duration (RFC 23): `90`, `1.5h`, `200ms`, `2d`, `inf` in seconds."""

from __future__ import annotations

import math
import re

from pilothouse.model.errors import InputError, quoted

_SECONDS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MOST_CHARACTERS = 400
_FORM = re.compile(r"([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+\.)(ms|s|m|h|d|)")


def parse(text: str, *, where: str = "duration") -> float:
    """Seconds; `inf` and `infinity` are math.inf. Raises InputError."""
    body = text.strip()
    if body.lower() in ("inf", "infinity"):
        return math.inf
    match = _FORM.fullmatch(body) if len(body) <= MOST_CHARACTERS else None
    seconds = float(match[1]) * _SECONDS[match[2]] if match is not None else math.nan
    if not 0 <= seconds < math.inf:
        raise InputError(where, "not a duration", expected="a number with ms, s, m, h or d, or inf", found=quoted(text))
    return seconds

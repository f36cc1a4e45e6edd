"""Whole numbers in texts that users and peers write."""

from __future__ import annotations

import re

_DIGITS = re.compile("[0-9]{1,18}")


def whole_number(text: str) -> int | None:
    """The number that 1 to 18 ASCII digits spell; None for any other text.

    `str.isdigit` does not tell what `int` reads: it is true for "²" and for texts of more than 4,300 digits.
    """
    return int(text) if _DIGITS.fullmatch(text) else None

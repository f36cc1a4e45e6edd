"""The numbers of a JSON file as RapidJSON reads them, which Batsim uses: those of many digits not to the last bit.

In: the text of a file. Out: the same text, where such numbers are written as what is read of them. RapidJSON gathers digits
in an integer up to 2^53, goes on with a double, and then multiplies or divides by a power of ten; each may round. Which of two
things comes first at one instant hangs on such bits.
"""

from __future__ import annotations

import re
from math import isfinite

_MANY_DIGITS = re.compile(rb"\d[\d.]{16,}")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d[\d.]{16,}(?:[eE][-+]?\d+)?')
_NUMBER = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([-+]?\d+))?")
_LAST_FAST = 2**53 - 1
_MOST_DIGITS = 17
_LARGEST_POWER = 308


def as_read(data: bytes) -> bytes:
    """The text with every number of many digits replaced by what RapidJSON reads."""
    return _TOKEN.sub(_replaced, data) if _MANY_DIGITS.search(data) else data


def _replaced(match: re.Match[bytes]) -> bytes:
    token = match[0]
    number = None if token.startswith(b'"') else _NUMBER.fullmatch(token.decode())
    if number is None or (number[3] is None and number[4] is None):
        return token  # Text, or a whole number.
    try:
        value = _value(number)
    except OverflowError:
        return token
    return repr(value).encode() if isfinite(value) else token


def _value(number: re.Match[str]) -> float:
    gathered, power = int(number[2]), int(number[4] or 0)
    digits = len(number[2]) if gathered else 0
    value = float(gathered)
    for digit in number[3] or "":
        if gathered <= _LAST_FAST:
            gathered = gathered * 10 + int(digit)
            value = float(gathered)
        elif digits < _MOST_DIGITS:
            value = value * 10.0 + int(digit)
        else:
            continue
        power -= 1
        digits += bool(value)
    if power < -_LARGEST_POWER:
        value, power = value / 10.0**_LARGEST_POWER, power + _LARGEST_POWER
    if power < -_LARGEST_POWER:
        value = 0.0
    else:
        value = value * 10.0**power if power >= 0 else value / 10.0**-power
    return -value if number[1] else value

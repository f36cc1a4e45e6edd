"""Flux job ids (RFC 19): a 64-bit FLUID and its text forms.

A FLUID is 40 bits of milliseconds since the instance began, 14 bits of generator and 10 bits of sequence. Forms:
F58 (`ƒ2gdgYX`, base 58, prefix U+0192 or a plain `f`), decimal, `0x` hexadecimal, and dothex (`0000.000b.7000.0000`),
which names the job's directory in the KVS (RFC 16).
"""

from __future__ import annotations

import re

from pilothouse.model.errors import InputError, quoted

MOST = 2**64 - 1
_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_DIGIT = {char: value for value, char in enumerate(_ALPHABET)}
_DOTHEX = re.compile(r"[0-9a-fA-F]{4}(\.[0-9a-fA-F]{4}){3}")
_MOST_SEQUENCE = 2**10


def to_f58(fluid: int) -> str:
    if fluid < 0:
        raise ValueError(f"no FLUID is negative: {fluid}")
    digits = ""
    number = fluid
    while number:
        number, digit = divmod(number, 58)
        digits = _ALPHABET[digit] + digits
    return "ƒ" + (digits or _ALPHABET[0])


def to_dothex(fluid: int) -> str:
    text = f"{fluid:016x}"
    return f"{text[:4]}.{text[4:8]}.{text[8:12]}.{text[12:]}"


def kvs_key(fluid: int, name: str) -> str:
    """RFC 16: the key of a job's `jobspec`, `R` or `eventlog`."""
    return f"job.{to_dothex(fluid)}.{name}"


def parse(text: str, *, where: str = "job id") -> int:
    """Reads any of the forms. Raises InputError."""
    body = text.strip()
    number = -1
    if body[:1] in ("ƒ", "f") and body[1:] and all(char in _DIGIT for char in body[1:]) and len(body) <= 12:
        number = 0
        for char in body[1:]:
            number = number * 58 + _DIGIT[char]
    elif _DOTHEX.fullmatch(body):
        number = int(body.replace(".", ""), 16)
    elif body.isascii() and body.isdigit() and len(body) <= 20:
        number = int(body)
    elif re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}", body):
        number = int(body, 16)
    if not 0 <= number <= MOST:
        raise InputError(where, "not a Flux job id", expected="ƒ…, a decimal, 0x… or dothex number", found=quoted(text))
    return number


class FluidSource:
    """Makes ascending ids. The time comes in as milliseconds since the instance began."""

    def __init__(self, generator: int = 0) -> None:
        self._generator = generator & 0x3FFF
        self._millisecond = 0
        self._sequence = 0

    def make(self, milliseconds: int) -> int:
        if milliseconds > self._millisecond:
            self._millisecond, self._sequence = milliseconds, 0
        elif self._sequence + 1 == _MOST_SEQUENCE:
            # the sequence of this millisecond is used up: borrow from the next one, ids stay unique and ascending
            self._millisecond, self._sequence = self._millisecond + 1, 0
        else:
            self._sequence += 1
        return self._millisecond << 24 | self._generator << 10 | self._sequence

"""Hostlists (RFC 29): `node[0-3,7],login1` to and from a list of host names.

In: text, or a list of names. Out: names in order (repeats kept), or the shortest text for them. A range keeps its
zero padding (`n[08-11]`), one bracket per name, with an optional ending (`n[0-1]-ib`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pilothouse.model.errors import InputError, quoted

MOST_HOSTS = 2**20
"""Limit on the hosts of one hostlist: `n[0-999999999]` must not take gigabytes."""

MOST_CHARACTERS = 255
"""Limit of a host name."""

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)", re.DOTALL)
_MOST_DIGITS = 15
_NAME = re.compile(r"[^\[\],\s]*")


def parse(text: str, *, where: str = "hostlist") -> list[str]:
    """The names that the text stands for, in its order. Raises InputError."""
    hosts: list[str] = []
    for part in _split(text, where):
        for host in _expand(part, where):
            if len(hosts) == MOST_HOSTS:
                raise InputError(where, f"more than {MOST_HOSTS} hosts", found=quoted(text))
            hosts.append(host)
    return hosts


def parse_all(texts: Iterable[str], *, where: str = "nodelist") -> list[str]:
    """R's nodelist: an array of hostlists, one after the other."""
    return [host for text in texts for host in parse(text, where=where)]


def encode(hosts: Iterable[str]) -> str:
    """The shortest text whose expansion is exactly these names in this order."""
    parts: list[tuple[str, str, int, list[tuple[int, int]]]] = []
    """Prefix, suffix, digits that numbers are padded to (0: none), ranges (none: a name without number)."""
    for host in hosts:
        match = _NUMBERED.fullmatch(host)
        if match is None or len(match[2]) > _MOST_DIGITS:
            parts.append((host, "", 0, []))
            continue
        prefix, digits, suffix = match.groups()
        number = int(digits)
        width = len(digits) if digits[0] == "0" and len(digits) > 1 else 0
        if parts and parts[-1][3] and parts[-1][:2] == (prefix, suffix) and parts[-1][2] in (width, len(digits)):
            ranges = parts[-1][3]
            if ranges[-1][1] + 1 == number:
                ranges[-1] = (ranges[-1][0], number)
            else:
                ranges.append((number, number))
        else:
            parts.append((prefix, suffix, width, [(number, number)]))
    return ",".join(_compressed(*part) for part in parts)


def _compressed(prefix: str, suffix: str, width: int, ranges: list[tuple[int, int]]) -> str:
    texts = [f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in ranges]
    if len(texts) > 1 or (texts and "-" in texts[0]):
        return f"{prefix}[{','.join(texts)}]{suffix}"
    return f"{prefix}{''.join(texts)}{suffix}"


def _split(text: str, where: str) -> Iterator[str]:
    """Cuts at the commas that stand outside of brackets."""
    depth = start = 0
    for i, char in enumerate(text):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        elif char == "," and depth == 0:
            yield text[start:i]
            start = i + 1
        if depth not in (0, 1):
            raise InputError(where, "brackets that do not match", found=quoted(text))
    if depth:
        raise InputError(where, "brackets that do not match", found=quoted(text))
    if text.strip():
        yield text[start:]


def _expand(part: str, where: str) -> Iterator[str]:
    part = part.strip()
    prefix, bracket, rest = part.partition("[")
    body, _, suffix = rest.partition("]")
    if len(prefix) + len(suffix) > MOST_CHARACTERS:
        raise InputError(where, f"a host name of more than {MOST_CHARACTERS} characters", found=quoted(part))
    if not part or not _NAME.fullmatch(prefix) or not _NAME.fullmatch(suffix):
        raise InputError(where, "not a hostlist", expected="names such as node[0-3],login1", found=quoted(part))
    if not bracket:
        yield part
        return
    for piece in body.split(","):
        match = _RANGE.fullmatch(piece)
        if match is None or len(piece) > 2 * _MOST_DIGITS:
            raise InputError(where, "not a range of host numbers", found=quoted(part))
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise InputError(where, "a range that runs backwards", found=quoted(part))
        if last - first >= MOST_HOSTS:
            raise InputError(where, f"more than {MOST_HOSTS} hosts", found=quoted(part))
        width = len(match[1])
        for number in range(first, last + 1):
            yield f"{prefix}{number:0{width}d}{suffix}"

"""The elements of an XML platform with their line numbers, and the units of its quantities.

In: the bytes of a file. Out: a tree of Elements. Their accessors raise InputError with file and line for attributes that
are missing or malformed.
"""

from __future__ import annotations

import re
from typing import NoReturn
from xml.parsers import expat

from pilothouse.model.errors import InputError, quoted


class Element:
    """An XML element with its file and line."""

    __slots__ = ("attributes", "children", "line", "path", "tag")

    def __init__(self, tag: str, attributes: dict[str, str], path: str, line: int) -> None:
        self.tag = tag
        self.attributes = attributes
        self.path = path
        self.line = line
        self.children: list[Element] = []

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}"

    def refuse(self, problem: str, *, expected: str = "", found: str = "", hint: str = "") -> NoReturn:
        raise InputError(self.where, problem, expected=expected, found=found, hint=hint)

    def expect_routing(self, routing: str, found: str) -> None:
        """InputError unless the zone around this element has that routing."""
        if found != routing:
            self.refuse(f"a <{self.tag}> stands in a zone of routing {routing}", found=quoted(found))

    def unknown(self, parent: Element) -> NoReturn:
        self.refuse(f"unknown element <{self.tag}> in <{parent.tag}>")

    def allow(self, *names: str) -> None:
        for name in self.attributes:
            if name not in names:
                self.refuse(f"unknown attribute {name!r} of <{self.tag}>", expected=", ".join(names) or "none")

    def text(self, name: str, default: str | None = None) -> str:
        value = self.attributes.get(name, default)
        if value is None:
            self.refuse(f"<{self.tag}> without {name!r}")
        return value

    def number(self, name: str, units: dict[str, float], default: str | None = None) -> float:
        return self.quantity(name, self.text(name, default), units)

    def quantity(self, name: str, text: str, units: dict[str, float]) -> float:
        value = quantity(text, units)
        if value is None:
            expected = "a number with a unit such as " + _example(units)
            self.refuse(f"{name} is not a quantity", expected=expected, found=quoted(text))
        return value

    def integer(self, name: str, default: str, least: int) -> int:
        text = self.text(name, default)
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            self.refuse(f"{name} of <{self.tag}>", expected=f"an integer of at least {least}", found=quoted(text))
        return value

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        value = self.text(name, default)
        if value not in choices:
            self.refuse(f"{name} of <{self.tag}>", expected=" or ".join(choices), found=quoted(value))
        return value


_QUANTITY = re.compile(r"([+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)")


def quantity(text: str, units: dict[str, float]) -> float | None:
    """A number with a unit, in base units; None if it is not one."""
    match = _QUANTITY.fullmatch(text.strip())
    return float(match[1]) * units[match[2]] if match is not None and match[2] in units else None


def _scaled(*names: str, per: float = 1.0) -> dict[str, float]:
    units: dict[str, float] = {}
    for name in names:
        units[name] = per
        for exponent, prefix in enumerate("kMGTPEZY", start=1):
            units[prefix + name] = per * 1000.0**exponent
            units[prefix.upper() + "i" + name] = per * 1024.0**exponent
            units[prefix + "i" + name] = per * 1024.0**exponent
    return units


SPEED_UNITS = {"": 1.0, **_scaled("f", "flops")}
BANDWIDTH_UNITS = {"": 1.0, **_scaled("Bps"), **_scaled("bps", per=0.125)}
TIME_UNITS = {"": 1.0, "w": 604800.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
TIME_UNITS |= {"ms": 1e-3, "us": 1e-6, "ns": 1e-9, "ps": 1e-12}


def _example(units: dict[str, float]) -> str:
    return "1Gf" if units is SPEED_UNITS else "125MBps" if units is BANDWIDTH_UNITS else "50us"


def read_elements(body: bytes, path: str, skipped: int) -> Element:
    """The tree of elements with their lines."""
    parser = expat.ParserCreate()
    stack: list[Element] = []
    roots: list[Element] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag, attributes, path, parser.CurrentLineNumber + skipped)
        (stack[-1].children if stack else roots).append(element)
        stack.append(element)

    def where() -> str:
        return f"{path}:{parser.CurrentLineNumber + skipped}"

    def text(data: str) -> None:
        if data.strip() and not (stack and stack[-1].tag == "trace"):
            raise InputError(where(), "text between elements means nothing in a platform", found=quoted(data.strip()))

    def entity(*_: object) -> None:
        raise InputError(where(), "entity declarations are not allowed in a platform")

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: stack.pop()
    parser.CharacterDataHandler = text
    parser.EntityDeclHandler = entity
    try:
        parser.Parse(body, True)
    except expat.ExpatError as error:
        problem = f"not well-formed XML: {expat.errors.messages[error.code]}"
        raise InputError(f"{path}:{error.lineno + skipped}", problem) from error
    return roots[0]

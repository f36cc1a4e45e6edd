"""The runtime of the generated codecs: reads and writes tables, vectors and strings of FlatBuffers, and JSON values.

In: `bytes` of a peer, which are never trusted. Out: Python values, or `Malformed` with the reason.

Reading. A table begins with the signed distance to its vtable, which lists where each field lies. Few vtables are in
use, so each one seen becomes a *shape*, one `struct.Struct` that reads all fields of the table at once. Offsets to
strings, vectors and tables are unsigned and forward, so no reading can go in circles; but one buffer may refer to the
same part many times, so the reader has a *budget* that large or recursive parts draw from.

Writing. Every part (string, vector, table with its vtable in front and its children behind) is made as bytes that are
valid wherever they are placed at a multiple of 8; a parent only needs the lengths of its children.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

from pilothouse.model.numerals import whole_number

MOST_BYTES = 1 << 28
"""No message may be larger (256 MiB)."""
MOST_DEPTH = 64
"""No table may be nested deeper; the protocol's own need is about 10."""
MOST_SHAPES = 512
"""Vtables remembered for one table. A peer that uses more of them is read more slowly."""

_U16 = struct.Struct("<H").unpack_from
_U32 = struct.Struct("<I").unpack_from
_PACK_U32 = struct.Struct("<I").pack
_PACK_ONE = struct.Struct("<II").pack
_SIZES = {"B": 1, "?": 1, "b": 1, "H": 2, "I": 4, "i": 4, "Q": 8, "q": 8, "d": 8}
_SMALL = 256

Values = tuple[Any, ...]
Deltas = tuple[int, ...]


class Malformed(ValueError):
    """The peer's message breaks the schema; the text says how. codec.py turns it into a PeerError."""


class Reader:
    """One buffer that is being read, and the rest of its budget."""

    __slots__ = ("data", "depth", "left", "long_texts", "size")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.left = (1 << 16) + 16 * len(data)
        self.depth = 0
        self.long_texts: dict[int, str] | None = None
        """Long strings that were read, by position: a writer may refer to one string many times."""

    def descend(self) -> None:
        """Begins a table that may contain itself. The caller subtracts one from `depth` at its end."""
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise Malformed(f"tables are nested more than {MOST_DEPTH} deep")
        self.spend(_SMALL)

    def spend(self, amount: int) -> None:
        self.left -= amount
        if self.left < 0:
            raise Malformed("the buffer refers to its own parts so often that it would grow beyond measure")

    def text(self, pos: int) -> str:
        data = self.data
        try:
            (length,) = _U32(data, pos)
        except struct.error:
            raise Malformed(f"a string at byte {pos} lies outside of the buffer of {self.size} bytes") from None
        end = pos + 4 + length
        if end >= self.size or data[end]:
            raise Malformed(f"the string of {length} bytes at byte {pos} does not end inside the buffer with a zero")
        try:
            return data[pos + 4 : end].decode() if length <= _SMALL else self._long_text(pos, end)
        except UnicodeDecodeError:
            raise Malformed(f"the string at byte {pos} is not UTF-8") from None

    def _long_text(self, pos: int, end: int) -> str:
        if self.long_texts is None:
            self.long_texts = {}
        found = self.long_texts.get(pos)
        if found is None:
            self.spend(end - pos)
            found = self.long_texts[pos] = self.data[pos + 4 : end].decode()
        return found

    def count(self, pos: int, width: int) -> int:
        """The length of the vector at pos, whose elements take `width` bytes each."""
        try:
            length = _U32(self.data, pos)[0]
        except struct.error:
            raise Malformed(f"a vector at byte {pos} lies outside of the buffer of {self.size} bytes") from None
        if pos + 4 + length * width > self.size:
            raise Malformed(f"the vector of {length} elements at byte {pos} ends outside of the buffer")
        if length > 16:
            self.spend(length * width)
        return length  # type: ignore[no-any-return]

    def numbers(self, pos: int, code: str, width: int) -> list[Any]:
        count = self.count(pos, width)
        return list(struct.unpack_from(f"<{count}{code}", self.data, pos + 4))

    def places(self, pos: int) -> list[int]:
        """Where the elements of a vector of strings or tables lie."""
        count = self.count(pos, 4)
        if count <= 1:
            return [pos + 4 + _U32(self.data, pos + 4)[0]] if count else []
        offsets = struct.unpack_from(f"<{count}I", self.data, pos + 4)
        return [at + offset for at, offset in zip(range(pos + 4, pos + 4 + 4 * count, 4), offsets, strict=True)]

    def texts(self, pos: int) -> list[str]:
        return [self.text(place) for place in self.places(pos)]


Shape = tuple[Callable[[bytes, int], Values], Values, Callable[[Values], Values] | None, Deltas]
"""Reads the fields that are there, in the order of memory; what to put behind them for those that are not; how to put
both into the order of the schema, None if they are in it; where each field lies in the table."""


class Table:
    """How to read one table of the schema: its fields' struct codes and defaults, and the shapes met so far."""

    __slots__ = ("codes", "defaults", "name", "shapes")

    def __init__(self, name: str, codes: Sequence[str], defaults: Values) -> None:
        self.name = name
        self.codes = tuple(codes)
        self.defaults = defaults
        self.shapes: dict[bytes, Shape] = {}

    def learn(self, data: bytes, vtable: int) -> Shape:
        """The shape of the vtable at this byte."""
        if vtable < 0:
            raise Malformed(f"{self.name}: its vtable lies before the buffer")
        (size,) = _U16(data, vtable)
        key = data[vtable : vtable + size]
        if size < 4 or size % 2 or len(key) != size:
            raise Malformed(f"{self.name}: a vtable of {size} bytes at byte {vtable}")
        slots = struct.unpack_from(f"<{(size - 4) // 2}H", data, vtable + 4)[: len(self.codes)]
        slots += (0,) * (len(self.codes) - len(slots))
        present = sorted((offset, field) for field, offset in enumerate(slots) if offset)
        layout, end = "<", 0
        for offset, field in present:
            if offset < max(4, end):
                raise Malformed(f"{self.name}: fields overlap in the vtable at byte {vtable}")
            code = self.codes[field]
            layout += f"{offset - end}x{code}"
            end = offset + _SIZES[code]
        absent = [field for field, offset in enumerate(slots) if not offset]
        order = [field for _, field in present] + absent
        sort = None
        if order != sorted(order):
            sort = itemgetter(*(order.index(field) for field in range(len(order))))
        rest = tuple(self.defaults[field] for field in absent)
        shape = (struct.Struct(layout).unpack_from, rest, sort, tuple(slots))
        if len(self.shapes) >= MOST_SHAPES:
            self.shapes.clear()
        self.shapes[key] = shape
        return shape


def missing(table: str, field: str) -> Malformed:
    return Malformed(f"{table} has no {field}, which the schema requires")


def unknown_member(union: str, number: int) -> Malformed:
    return Malformed(f"{number} is no member of union {union}")


def unknown_value(enum: str, value: object) -> Malformed:
    return Malformed(f"{value!r} is no value of enum {enum}")


# Writing. Every part has a length that is a multiple of 8.

_ZEROS = tuple(bytes(8 - i) for i in range(8))
_FILL = tuple(bytes(-i % 8) for i in range(8))


@lru_cache(8192)
def put_text(text: str) -> bytes:
    raw = text.encode()
    size = len(raw)
    return _PACK_U32(size) + raw + _ZEROS[(size + 4) & 7]


def put_numbers(code: str, width: int, values: Sequence[Any]) -> bytes:
    """A vector of scalars. Those of 8 bytes must be aligned, so their count stands 4 bytes into the part."""
    count = len(values)
    raw = struct.pack(f"<4xI{count}{code}" if width == 8 else f"<I{count}{code}", count, *values)
    return raw + _FILL[len(raw) & 7]


def put_parts(parts: list[bytes], at: int) -> bytes:
    """A vector of strings (at 0) or tables that begin `at` bytes into their part."""
    count = len(parts)
    if count == 1:
        return _PACK_ONE(1, at + 4) + parts[0]
    base = (4 + 4 * count + 7) & ~7
    offsets = []
    place = base + at - 4
    for part in parts:
        offsets.append(place)
        place += len(part) - 4
    return struct.pack(f"<I{count}I{base - 4 - 4 * count}x", count, *offsets) + b"".join(parts)


# JSON. The peer prints with up to 12 decimals and reads with a strict parser.

_PLAIN = re.compile(r'[ !#-\[\]-~]*').fullmatch
_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"}


def json_text(text: str) -> str:
    if _PLAIN(text):
        return f'"{text}"'
    out = []
    for char in text:
        code = ord(char)
        if char in _SHORT:
            out.append(_SHORT[char])
        elif 32 <= code < 127:
            out.append(char)
        elif code < 0x10000:
            out.append(f"\\u{code:04X}")
        else:
            code -= 0x10000
            out.append(f"\\u{0xD800 + (code >> 10):04X}\\u{0xDC00 + (code & 0x3FF):04X}")
    return '"' + "".join(out) + '"'


def json_number(value: float) -> str:
    text = f"{value:.12f}".rstrip("0")
    return text + "0" if text[-1] == "." else text


def json_numbers(values: Sequence[float]) -> str:
    return "[" + ",".join(map(json_number, values)) + "]"


def json_integers(values: Sequence[int]) -> str:
    return "[" + ",".join(map(str, values)) + "]"


def json_texts(values: Sequence[str]) -> str:
    return "[" + ",".join(map(json_text, values)) + "]"


def fields_of(value: Any, known: frozenset[str], table: str) -> dict[str, Any]:
    """The JSON object of a table; keys that the schema does not know are an error, as they are to the peer."""
    if type(value) is not dict:
        raise Malformed(f"{table}: expected a JSON object, found {value!r:.60}")
    if not value.keys() <= known:
        raise Malformed(f"{table}: unknown field {sorted(value.keys() - known)[0]!r:.60}")
    return value


def read_text(value: Any, table: str, field: str) -> str:
    if type(value) is str:
        return value
    if value is None:
        raise missing(table, field)
    raise Malformed(f"{table}.{field}: expected a string, found {value!r:.60}")


_QUOTED_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?", re.ASCII)


def read_float(value: Any, table: str, field: str) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            pass
    if type(value) is str and _QUOTED_NUMBER.fullmatch(value):
        return float(value)
    raise Malformed(f"{table}.{field}: expected a number, found {value!r:.60}")


def read_integer(value: Any, most: int, table: str, field: str) -> int:
    # flatbuffers takes numbers in quotes as well.
    number = whole_number(value) if type(value) is str else value
    if type(number) is int and 0 <= number <= most:
        return number
    raise Malformed(f"{table}.{field}: expected an integer between 0 and {most}, found {value!r:.60}")


def read_bool(value: Any, table: str, field: str) -> bool:
    if value is True or value is False or (type(value) is int and value in (0, 1)):
        return bool(value)
    raise Malformed(f"{table}.{field}: expected true or false, found {value!r:.60}")


def read_list(value: Any, table: str, field: str) -> list[Any]:
    if type(value) is list:
        return value
    if value is None:
        raise missing(table, field)
    raise Malformed(f"{table}.{field}: expected an array, found {value!r:.60}")


def member_name(fields: dict[str, Any], table: str, field: str) -> Any:
    """The name of the member of a union field, None if absent. Its key must stand before the value's."""
    key = field + "_type"
    for name in fields:
        if name == key:
            value = fields[key]
            if value in ("NONE", 0, None):
                return None
            if fields.get(field) is None:
                raise Malformed(f"{table}.{field}: a type without a value")
            return value
        if name == field and fields[field] is not None:
            raise Malformed(f"{table}: {key} must stand before {field}")
    return None

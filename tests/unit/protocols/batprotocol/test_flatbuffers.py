"""The runtime of the codecs byte by byte: vtables, strings, vectors and budgets of FlatBuffers; JSON as the peer prints it."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from pilothouse.protocols.batprotocol import wire
from pilothouse.protocols.batprotocol.wire import MOST_DEPTH, MOST_SHAPES, Malformed, Reader, Table


def string(text: bytes, *, end: bytes = b"\0") -> bytes:
    return struct.pack("<I", len(text)) + text + end


def test_strings_end_with_a_zero_inside_the_buffer() -> None:
    assert Reader(string(b"abc")).text(0) == "abc" and Reader(string(b"")).text(0) == ""
    assert Reader(b"xx" + string("é".encode())).text(2) == "é"
    for data, problem in (
        (b"\3\0\0", "lies outside of the buffer of 3 bytes"),
        (string(b"abc", end=b""), "does not end inside the buffer with a zero"),
        (string(b"abc", end=b"x"), "does not end inside the buffer with a zero"),
        (struct.pack("<I", 9) + b"abc\0", "the string of 9 bytes at byte 0 does not end"),
        (string(b"\xff"), "is not UTF-8"),
    ):
        with pytest.raises(Malformed, match=problem):
            Reader(data).text(0)


@pytest.mark.parametrize("length", [255, 256, 257, 1000])
def test_long_strings_cost_once(length: int) -> None:
    reader = Reader(string(b"x" * length))
    budget = reader.left
    assert budget == (1 << 16) + 16 * (length + 5)
    for _ in range(3):
        assert reader.text(0) == "x" * length
    assert budget - reader.left == (length + 4 if length > 256 else 0)
    bad = Reader(string(b"x" * length + b"\xff"))
    with pytest.raises(Malformed, match="is not UTF-8"):
        bad.text(0)


def test_vectors_lie_inside_the_buffer() -> None:
    data = b"zz" + struct.pack("<I3H", 3, 7, 8, 9)
    assert Reader(data).numbers(2, "H", 2) == [7, 8, 9] and Reader(data).count(2, 2) == 3
    assert Reader(struct.pack("<I", 0)).numbers(0, "d", 8) == []
    with pytest.raises(Malformed, match="the vector of 3 elements at byte 2 ends outside of the buffer"):
        Reader(data[:-1]).count(2, 2)
    with pytest.raises(Malformed, match="lies outside of the buffer of 12 bytes"):
        Reader(data).count(9, 1)


@pytest.mark.parametrize("length", [15, 16, 17, 40])
def test_long_vectors_draw_from_the_budget(length: int) -> None:
    reader = Reader(struct.pack(f"<I{length}d", length, *[0.5] * length))
    budget = reader.left
    assert reader.numbers(0, "d", 8) == [0.5] * length
    assert budget - reader.left == (8 * length if length > 16 else 0)


def test_the_budget_ends() -> None:
    reader = Reader(b"")
    reader.spend(1 << 16)
    assert reader.left == 0
    with pytest.raises(Malformed, match="beyond measure"):
        reader.spend(1)


def test_tables_may_be_nested_so_deep() -> None:
    reader = Reader(b"")
    budget = reader.left
    for _ in range(MOST_DEPTH):
        reader.descend()
    assert reader.depth == MOST_DEPTH and budget - reader.left == 256 * MOST_DEPTH
    with pytest.raises(Malformed, match="nested more than 64 deep"):
        reader.descend()


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_vectors_of_strings(count: int) -> None:
    texts = [f"text {number}" * (number + 1) for number in range(count)]
    data = wire.put_parts([wire.put_text(text) for text in texts], 0)
    assert len(data) % 8 == 0 or count == 1
    reader = Reader(b"12345678" + data)
    assert reader.count(8, 4) == count
    assert reader.texts(8) == texts
    assert len(reader.places(8)) == count


def test_parts_are_multiples_of_eight_bytes() -> None:
    for size in range(20):
        text = wire.put_text("x" * size)
        assert len(text) % 8 == 0 and Reader(text).text(0) == "x" * size and len(text) < size + 4 + 9
    for code, width in (("d", 8), ("I", 4), ("B", 1)):
        for count in range(10):
            values = [number + 0.5 if code == "d" else number for number in range(count)]
            raw = wire.put_numbers(code, width, values)
            assert len(raw) % 8 == 0 and Reader(raw).numbers(4 if width == 8 else 0, code, width) == values


# ---- vtables


def table() -> Table:
    return Table("T", ["I", "d", "?"], (7, 0.5, True))


def vtable(*slots: int, size: int | None = None) -> bytes:
    return struct.pack(f"<HH{len(slots)}H", 4 + 2 * len(slots) if size is None else size, 99, *slots)


def read(found: wire.Shape, data: bytes) -> tuple[Any, ...]:
    unpack, rest, sort, _ = found
    values = unpack(data, 0) + rest
    return values if sort is None else sort(values)


@pytest.mark.parametrize(
    ("slots", "layout", "values"),
    [
        ((4, 8, 16), "<4xId?", (1, 2.5, False)),
        ((16, 8, 4), "<4x?3xdI", (1, 2.5, False)),
        ((12, 0, 4), "<4x?7xI", (1, 0.5, False)),
        ((0, 4), "<4xd", (7, 2.5, True)),
        ((0, 0, 4), "<4x?", (7, 0.5, False)),
        ((), "<4x", (7, 0.5, True)),
        ((4, 8, 16, 17), "<4xId?", (1, 2.5, False)),
        ((20, 4, 0, 0, 0), "<4xd8xI", (1, 2.5, True)),
    ],
)
def test_fields_are_read_wherever_they_lie(slots: tuple[int, ...], layout: str, values: tuple[Any, ...]) -> None:
    order = sorted((offset, field) for field, offset in enumerate(slots[:3]) if offset)
    data = struct.pack(layout, *((1, 2.5, False)[field] for _, field in order))
    made = table()
    shape = made.learn(b"zz" + vtable(*slots), 2)
    assert read(shape, data) == values
    assert shape[3] == (*slots, 0, 0, 0)[:3]
    assert made.shapes == {vtable(*slots): shape}


@pytest.mark.parametrize(
    ("data", "place", "problem"),
    [
        (vtable(4), -1, "its vtable lies before the buffer"),
        (vtable(4, size=2), 0, "a vtable of 2 bytes at byte 0"),
        (vtable(4, size=5), 0, "a vtable of 5 bytes at byte 0"),
        (vtable(4, size=8), 0, "a vtable of 8 bytes at byte 0"),
        (vtable(3), 0, "fields overlap in the vtable at byte 0"),
        (vtable(4, 7), 0, "fields overlap"),
        (vtable(4, 4), 0, "fields overlap"),
        (vtable(11, 4), 0, "fields overlap"),
    ],
)
def test_vtables_that_make_no_sense(data: bytes, place: int, problem: str) -> None:
    with pytest.raises(Malformed, match=f"T: .*{problem}"):
        table().learn(data, place)
    assert table().learn(vtable(), 0)[3] == (0, 0, 0)


def test_so_many_shapes_are_remembered() -> None:
    made = table()
    for number in range(MOST_SHAPES + 3):
        made.learn(vtable(0, 0, 0, number), 0)
        assert len(made.shapes) == number % MOST_SHAPES + 1


# ---- JSON


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("plain ~!", '"plain ~!"'), ('a"b\\c', '"a\\"b\\\\c"'), ("\n\t\r\b\f", '"\\n\\t\\r\\b\\f"'),
        ("\x00\x1f\x7f", '"\\u0000\\u001F\\u007F"'),
        ("é\uffff", '"\\u00E9\\uFFFF"'), ("\U00010000\U0001f600\U0010ffff", '"\\uD800\\uDC00\\uD83D\\uDE00\\uDBFF\\uDFFF"'),
        ("", '""'), ("a\x1f ~", '"a\\u001F ~"'),
    ],
)  # fmt: skip
def test_texts_are_printed_as_ascii(text: str, written: str) -> None:
    assert wire.json_text(text) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [(0.0, "0.0"), (1.5, "1.5"), (-2.0, "-2.0"), (100.0, "100.0"),
     (1e-12, "0.000000000001"), (1e-13, "0.0"), (1e21, "1000000000000000000000.0")],
)  # fmt: skip
def test_numbers_have_up_to_twelve_decimals(value: float, written: str) -> None:
    assert wire.json_number(value) == written
    assert wire.json_numbers([value, 2.0]) == f"[{written},2.0]" and wire.json_numbers([]) == "[]"


def test_lists_are_printed() -> None:
    assert wire.json_integers([1, 22]) == "[1,22]" and wire.json_texts(["a", '"']) == '["a","\\""]'


@pytest.mark.parametrize(
    ("fields", "member"),
    [
        ({}, None), ({"f": None}, None), ({"f_type": "NONE", "f": {}}, None), ({"f_type": 0}, None), ({"f_type": None}, None),
        ({"x": 1, "f_type": "A", "f": {}}, "A"), ({"f_type": 3, "f": {}}, 3), ({"f": None, "f_type": "NONE"}, None),
    ],
)  # fmt: skip
def test_the_member_of_a_union(fields: dict[str, Any], member: object) -> None:
    assert wire.member_name(fields, "T", "f") == member


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"f_type": "A"}, "T.f: a type without a value"),
        ({"f_type": "A", "f": None}, "T.f: a type without a value"),
        ({"f": {}, "f_type": "A"}, "T: f_type must stand before f"),
        ({"f": {}}, "T: f_type must stand before f"),
    ],
)
def test_unions_that_make_no_sense(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(Malformed, match=problem):
        wire.member_name(fields, "T", "f")

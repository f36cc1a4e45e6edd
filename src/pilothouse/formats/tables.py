"""Tables of text: CSV and TSV with a header, and JSON lines.

In: lines as they come. Out: the names of the columns, and rows of text. A quoted value of a CSV file may span lines.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec

from pilothouse.model.errors import InputError, quoted

Row = tuple[str, ...]
_KINDS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def table_kind(name: str) -> str:
    """`csv`, `tsv` or `jsonl` by the end of a file's name; "" : not a table."""
    return next((kind for ending, kind in _KINDS.items() if name.lower().endswith(ending)), "")


def read_table(lines: Iterable[bytes], name: str, kind: str) -> tuple[Row, Iterator[Row]]:
    """The names of the columns and the rows, lazily. Rows of JSON lines have the columns of the first one. Raises InputError."""
    if kind == "jsonl":
        objects = read_objects(lines, name)
        first = next(objects, None)
        if first is None:
            return (), iter(())
        columns = tuple(first[1])
        return columns, (_values(record, columns, name, number) for number, record in chain((first,), objects))
    rows = read_rows(lines, name, kind)
    header = next(rows, None)
    if header is None:
        return (), iter(())
    columns = tuple(column.strip() for column in header[1])
    return columns, (_whole(row, columns, name, number) for number, row in rows)


def read_rows(lines: Iterable[bytes], name: str, kind: str) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV or TSV file with the number of the line on which each ends; empty lines are left out."""
    reader = csv.reader(_texts(lines), delimiter="\t" if kind == "tsv" else ",", strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise InputError(f"{name}:{reader.line_num}", f"not {kind.upper()}: {error}") from None


def read_objects(lines: Iterable[bytes], name: str) -> Iterator[tuple[int, dict[str, object]]]:
    """The objects of JSON lines with their line numbers; empty lines are left out."""
    decode = msgspec.json.Decoder(dict[str, object]).decode
    for number, line in enumerate(_unmarked(lines), 1):
        if line.strip():
            try:
                yield number, decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise InputError(f"{name}:{number}", f"not a JSON object on one line: {error}") from None


def _unmarked(lines: Iterable[bytes]) -> Iterator[bytes]:
    for number, line in enumerate(lines):
        yield line if number else line.removeprefix(_BYTE_ORDER_MARK)


def _texts(lines: Iterable[bytes]) -> Iterator[str]:
    for line in _unmarked(lines):
        text = line.decode("utf-8", "surrogateescape")
        yield text if text.endswith("\n") else f"{text}\n"


def _whole(row: list[str], columns: Row, name: str, number: int) -> Row:
    if len(row) != len(columns):
        raise InputError(f"{name}:{number}", "not as many values as columns", expected=str(len(columns)), found=str(len(row)))
    return tuple(row)


def _values(record: dict[str, object], columns: Row, name: str, number: int) -> Row:
    if missing := [column for column in columns if column not in record]:
        raise InputError(f"{name}:{number}", "a value is missing", expected=", ".join(columns), found=quoted(missing[0]))
    return tuple(as_text(record[column]) for column in columns)


def as_text(value: object) -> str:
    """A value of JSON as a command has it."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return msgspec.json.encode(value).decode()

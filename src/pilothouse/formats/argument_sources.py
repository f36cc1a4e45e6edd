"""Arguments for commands, as GNU parallel takes them: `::: a b`, `:::: FILE`, and `:::+`, `::::+` for sources that go together.

In: the words after the command, and a function that gives the lines of a file. Out: an `Arguments`: the names of the columns, and
rows of values. Several sources give all combinations, the last one varying fastest; a linked one goes in step with the one before
it. A file whose name ends in .csv, .tsv or .jsonl is a table: its columns have names, and each is one value of a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, product

import msgspec

from pilothouse.formats.tables import Row, read_table, table_kind
from pilothouse.model.errors import InputError, quoted

MARKS = (":::", "::::", ":::+", "::::+")
STANDARD_INPUT = "-"

Lines = Callable[[str], Iterator[bytes]]
"""The lines of a file (`-`: of standard input), without their ends. Raises InputError."""


class _Source(msgspec.Struct):
    names: tuple[str, ...]
    rows: Iterable[Row]


class Arguments(msgspec.Struct):
    names: tuple[str, ...]
    """Of the columns; "" for those without."""
    rows: Iterator[Row]


class Reading(msgspec.Struct, frozen=True):
    """How values are read: a pattern between columns, and whether the first value of each source is its name."""

    colsep: str = ""
    header: bool = False


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of the command, and the sources behind them."""
    at = next((index for index, word in enumerate(words) if word in MARKS), len(words))
    return list(words[:at]), list(words[at:])


def streams(words: Sequence[str]) -> bool:
    """Whether the first source is standard input, so that commands may begin before it ends."""
    return list(words[:2]) in (["::::", STANDARD_INPUT], ["::::+", STANDARD_INPUT])


def read_arguments(words: Sequence[str], lines: Lines, reading: Reading) -> Arguments:
    """All rows, lazily for the first group of sources. Raises InputError."""
    if len([word for word in words if word == STANDARD_INPUT]) > 1 and words.count("::::") + words.count("::::+") > 1:
        raise InputError("::::", "standard input can be read once only", found=quoted(" ".join(words)))
    groups: list[_Source] = []
    for mark, values in _by_mark(words):
        files = mark.startswith("::::")
        if files and not values:
            raise InputError(mark, "no file is named", expected="files, or - for standard input")
        found = [_file(name, lines, reading) for name in values] if files else [_given(values, reading)]
        if mark.endswith("+") and groups:
            for source in found:
                groups[-1] = _linked(groups[-1], source)
        else:
            groups += found
    names = tuple(chain.from_iterable(group.names for group in groups))
    first, rest = groups[0], [list(group.rows) for group in groups[1:]]
    rows = (row + tuple(chain.from_iterable(others)) for row in first.rows for others in product(*rest))
    return Arguments(names, rows)


def _by_mark(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    mark, values = words[0], list[str]()
    for word in [*words[1:], ""]:
        if word in MARKS:
            yield mark, values
            mark, values = word, []
        else:
            values.append(word)
    yield mark, values[:-1]


def _given(values: list[str], reading: Reading) -> _Source:
    return _columns(((value,) for value in values), reading)


def _file(name: str, lines: Lines, reading: Reading) -> _Source:
    kind = table_kind(name)
    if kind and not reading.colsep:
        names, rows = read_table(lines(name), name, kind)
        return _Source(names, rows)
    return _columns(((line.decode("utf-8", "surrogateescape"),) for line in lines(name)), reading)


def _columns(rows: Iterable[Row], reading: Reading) -> _Source:
    """Splits values at `colsep`; the first row may hold the names. All rows have as many values as the first."""
    if reading.colsep:
        try:
            separator = re.compile(reading.colsep)
        except re.error as error:
            raise InputError("--colsep", f"not a pattern: {error}", found=quoted(reading.colsep)) from None
        rows = (tuple(separator.split(row[0])) for row in rows)
    elif not reading.header:
        return _Source(("",), rows)
    rows = iter(rows)
    first = next(rows, None)
    if first is None:
        return _Source(("",), iter(()))
    if reading.header:
        return _Source(first, (_even(row, len(first)) for row in rows))
    return _Source(("",) * len(first), (_even(row, len(first)) for row in chain((first,), rows)))


def _even(row: Row, width: int) -> Row:
    return row if len(row) == width else (*islice(row, width), *("",) * (width - len(row)))


def _linked(one: _Source, other: _Source) -> _Source:
    return _Source((*one.names, *other.names), (a + b for a, b in zip(one.rows, other.rows, strict=False)))

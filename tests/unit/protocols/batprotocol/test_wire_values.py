"""Values of JSON messages: each reader takes its type, and names the table and the field of anything else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pilothouse.protocols.batprotocol import wire

VALUES: list[Any] = ["x", "", 1.5, 7, 0, -1, 256, True, False, None, [], [1], {}, 10**400]


def _small(value: Any, table: str, field: str) -> int:
    return wire.read_integer(value, 255, table, field)


@pytest.mark.parametrize(
    ("read", "taken"),
    [
        (wire.read_text, [("x", "x"), ("", "")]),
        (wire.read_float, [(1.5, 1.5), (7, 7.0), (0, 0.0), (-1, -1.0), (256, 256.0)]),
        (_small, [(7, 7), (0, 0)]),
        (wire.read_bool, [(True, True), (False, False), (0, False)]),
        (wire.read_list, [([], []), ([1], [1])]),
    ],
)
def test_what_is_taken_and_what_is_malformed(read: Callable[[Any, str, str], Any], taken: list[tuple[Any, Any]]) -> None:
    for value in VALUES:
        expected = [found for given, found in taken if type(given) is type(value) and given == value]
        if expected:
            found = read(value, "Table", "field")
            assert found == expected[0] and type(found) is type(expected[0])
        else:
            with pytest.raises(wire.Malformed, match=r"Table.*field"):
                read(value, "Table", "field")


def test_limits_of_integers() -> None:
    read = partial(wire.read_integer, table="T", field="f")
    assert (read(255, 255), read(0, 255)) == (255, 0)
    with pytest.raises(wire.Malformed):
        read(256, 255)


def test_objects_have_known_fields_only() -> None:
    known = frozenset(("a", "b"))
    assert wire.fields_of({"a": 1}, known, "T") == {"a": 1} and wire.fields_of({}, known, "T") == {}
    with pytest.raises(wire.Malformed, match="unknown field 'c'"):
        wire.fields_of({"a": 1, "d": 2, "c": 3}, known, "T")
    with pytest.raises(wire.Malformed, match="expected a JSON object"):
        wire.fields_of([], known, "T")

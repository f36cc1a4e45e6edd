"""Files of external events: their order, their types, and lines that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilothouse.formats.external_events import read
from pilothouse.model.errors import InputError
from pilothouse.model.events import ExternalEvent, UnitsAvailable, UnitsUnavailable
from pilothouse.model.idset import IdSet


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.txt"


def test_order_of_dates_and_at_one_date(path: Path) -> None:
    path.write_text(
        '{"type": "generic", "timestamp": 20, "data": "x"}\n'
        '{"type": "machine_unavailable", "resources": "0-1 3", "timestamp": 20}\n\n'
        '{"type": "generic", "timestamp": 0, "data": {"a": [1]}}\n'
        '{"type": "machine_available", "resources": "2", "timestamp": 20}\n'
        '{"type": "generic", "timestamp": 20, "data": "y"}\n'
    )
    assert read(path, "e") == [
        ExternalEvent(0.0, "e!2", "generic", '{"a": [1]}'),
        UnitsAvailable(20.0, IdSet.of([2])),
        UnitsUnavailable(20.0, IdSet.of([0, 1, 3])),
        ExternalEvent(20.0, "e!0", "generic", "x"),
        ExternalEvent(20.0, "e!4", "generic", "y"),
    ]


def test_unknown_types_are_forwarded_where_that_is_asked_for(path: Path) -> None:
    lines = ['{"type": "flood", "timestamp": 3, "where": "here"}', '{"type": "generic", "timestamp": 4, "data": "x"}']
    path.write_text("\n".join(lines))
    assert read(path, forward_unknown=True, knows_generic=False) == [
        ExternalEvent(3.0, "ee0!0", "flood", lines[0]), ExternalEvent(4.0, "ee0!1", "generic", lines[1]),
    ]  # fmt: skip
    with pytest.raises(InputError, match=r"events.txt:1: unknown type of event"):
        read(path)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("nothing", "not an external event"),
        ('{"type": "machine_available", "timestamp": -1, "resources": "1"}', "the date of an event"),
        ('{"type": "machine_available", "timestamp": 1}', "no resource is named"),
        ('{"type": "machine_available", "timestamp": 1, "resources": "x"}', "events.txt:2"),
        ('{"type": "generic", "timestamp": 1}', "an event without data"),
        ('{"type": "flood", "timestamp": 1}', "unknown type of event"),
    ],
)
def test_wrong_lines_are_told_with_their_number(path: Path, line: str, problem: str) -> None:
    path.write_text(f"\n{line}\n")
    with pytest.raises(InputError, match=problem) as found:
        read(path)
    assert "events.txt:2" in str(found.value)


def test_generic_events_are_not_known_to_batsim_4(path: Path) -> None:
    path.write_text('{"type": "generic", "timestamp": 1, "data": "x"}')
    with pytest.raises(InputError, match="unknown type of event"):
        read(path, knows_generic=False)

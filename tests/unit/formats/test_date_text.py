"""Dates as people write them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from pilothouse.formats.date_text import parse
from pilothouse.model.errors import InputError

NOW = datetime(2026, 11, 16, 12, 30, tzinfo=timezone(timedelta(hours=1)))
"""A Monday."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Friday", "2026-11-21T00:00"),
        ("fri 18:00", "2026-11-20T18:00"),
        ("monday", "2026-11-17T00:00"),
        ("Monday 9:00", "2026-11-23T09:00"),
        ("today", "2026-11-17T00:00"),
        ("tomorrow 08:15", "2026-11-17T08:15"),
        ("18:00", "2026-11-16T18:00"),
        ("9:00", "2026-11-17T09:00"),
        ("2026-11-20", "2026-11-21T00:00"),
        ("2026-11-20T18:00", "2026-11-20T18:00"),
        ("2026-11-20 18:00", "2026-11-20T18:00"),
        ("36h", "2026-11-18T00:30"),
    ],
)
def test_the_next_such_date(text: str, expected: str) -> None:
    assert parse(text, NOW, "--until").isoformat() == f"{expected}:00+01:00"


@pytest.mark.parametrize(
    "text", ["", "someday", "25:00", "24:01", "2026-13-01", "2020-01-01", "fri sat", "-3h", "inf", "1e300d", "9" * 300]
)
def test_no_date_or_a_date_that_is_over(text: str) -> None:
    with pytest.raises(InputError, match="not a date to come"):
        parse(text, NOW, "--until")

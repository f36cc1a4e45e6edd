"""Dates as people write them: `Friday`, `Friday 18:00`, `tomorrow`, `18:00`, `2026-11-20`, `2026-11-20T18:00`, or `36h` from now.

In: a text and the present. Out: a datetime in the same time zone. A day without a time is meant up to its end.
"""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta

from pilothouse.formats import duration
from pilothouse.model.errors import InputError, quoted

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_TIME = re.compile(r"([01]?\d|2[0-4]):([0-5]\d)")
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
EXPECTED = "such as Friday, Friday 18:00, tomorrow, 18:00, 2026-11-20T18:00, or 36h (from now)"


def parse(text: str, now: datetime, where: str) -> datetime:
    """The next such date that is later than now. Raises InputError."""
    wrong = InputError(where, "not a date to come", expected=EXPECTED, found=quoted(text))
    words = text.replace("T", " ", 1).lower().split() if _DATE.match(text) else text.lower().split()
    clock = _TIME.fullmatch(words[-1]) if words else None
    day = words[0] if words and not (clock and len(words) == 1) else ""
    if not words or len(words) > 2 or (len(words) == 2 and clock is None):
        raise wrong
    minutes = 60 * int(clock[1]) + int(clock[2]) if clock else 24 * 60
    if minutes > 24 * 60:
        raise wrong
    try:
        found = _date(day, minutes, now)
    except (ValueError, OverflowError):
        raise wrong from None
    if found is None and clock is None:
        try:
            found = now + timedelta(seconds=duration.parse(text, where=where))
        except (InputError, OverflowError):
            raise wrong from None
    if found is None or found <= now:
        raise wrong
    return found


def _date(day: str, minutes: int, now: datetime) -> datetime | None:
    """So many minutes after the beginning of a day; None: the word is no day."""
    today = datetime.combine(now.date(), time(), now.tzinfo)
    after = timedelta(minutes=minutes)
    if not day:
        return today + after if today + after > now else today + timedelta(days=1) + after
    if day in ("today", "tomorrow"):
        return today + timedelta(days=day == "tomorrow") + after
    if match := _DATE.fullmatch(day):
        return datetime(int(match[1]), int(match[2]), int(match[3]), tzinfo=now.tzinfo) + after
    named = [index for index, name in enumerate(_DAYS) if len(day) >= 3 and name.startswith(day)]
    if not named:
        return None
    found = today + timedelta(days=(named[0] - now.weekday()) % 7) + after
    return found if found > now else found + timedelta(days=7)

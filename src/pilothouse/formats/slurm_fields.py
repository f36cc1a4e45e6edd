"""The fields of Slurm's outputs: dates, time limits, counts, memory, TRES lists, `Key=value` records.

In: text as squeue, sinfo, scontrol and sacct print it. Out: numbers; None where Slurm says that it does not know. Dates are
local time without a zone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from math import inf

from pilothouse.formats.accounting import Fate

NOTHING = frozenset({"", "(null)", "N/A", "n/a", "None", "none", "Unknown", "INVALID"})
"""What Slurm prints for "no value"."""
_LIMIT = re.compile(r"(?:(\d{1,6})-)?(\d{1,6})(?::(\d{1,2}))?(?::(\d{1,2}))?(?:\.\d+)?")
_AMOUNT = re.compile(r"(\d{1,18})(?:\.(\d+))?([KMGTP]?)B?[nc]?", re.IGNORECASE)
_MEBI = {"": 1, "K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}
_KEY = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9_/:]*)=")


_FATES = {
    "PENDING": Fate.WAITING, "RUNNING": Fate.RUNNING, "SUSPENDED": Fate.RUNNING, "COMPLETING": Fate.RUNNING,
    "TIMEOUT": Fate.TIME_LIMIT, "REQUEUED": Fate.REQUEUED, "CANCELLED": Fate.CUT_SHORT, "NODE_FAIL": Fate.CUT_SHORT,
    "PREEMPTED": Fate.CUT_SHORT, "BOOT_FAIL": Fate.CUT_SHORT, "REVOKED": Fate.CUT_SHORT, "OUT_OF_ME": Fate.CUT_SHORT,
}  # fmt: skip


def fate(state: str) -> Fate:
    """What a job's state means for a workload: `CANCELLED by 1000`, `TIMEOUT`, `OUT_OF_MEMORY`."""
    return next((found for start, found in _FATES.items() if state.startswith(start)), Fate.FINISHED)


@lru_cache(maxsize=4096)
def date(text: str) -> float | None:
    """`2026-11-15T20:34:48` in seconds since 1970; None: not known."""
    if text in NOTHING:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None


@lru_cache(maxsize=4096)
def time_limit(text: str) -> float | None:
    """`5:00`, `1:00:00`, `2-00:00:00`, `2-12`, `30` (minutes) in seconds; UNLIMITED is inf; None: not known."""
    if text.upper() in ("UNLIMITED", "INFINITE"):
        return inf
    found = _LIMIT.fullmatch(text)
    if found is None:
        return None
    days, *parts = found.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None:
        numbers += [0] * (3 - len(numbers))
        return int(days) * 86400.0 + numbers[0] * 3600.0 + numbers[1] * 60.0 + numbers[2]
    if len(numbers) == 1:
        return numbers[0] * 60.0
    seconds = 0.0
    for number in numbers:
        seconds = seconds * 60 + number
    return seconds


@lru_cache(maxsize=4096)
def count(text: str) -> int | None:
    """A whole number; `1K` is 1000 for counts, and None what is no number."""
    found = _AMOUNT.fullmatch(text)
    if found is None:
        return None
    number = float(f"{found[1]}.{found[2] or 0}")
    return int(number * {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}[found[3].upper()])


@lru_cache(maxsize=4096)
def memory_mb(text: str) -> int | None:
    """`4000M`, `2G`, `512` (MB), with an ending n or c of old versions."""
    found = _AMOUNT.fullmatch(text)
    if found is None:
        return None
    return int(float(f"{found[1]}.{found[2] or 0}") * _MEBI[found[3].upper()])


def tres(text: str) -> dict[str, str]:
    """`cpu=2,mem=4000M,node=1,gres/gpu=2`."""
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {key: value for key, _, value in pairs}


def gres(text: str) -> dict[str, int]:
    """`gpu:2`, `gres:gpu:a100:2`, `gpu:2(S:0-1),fpga:1`, `gres/gpu:1`: name -> how many, types added up."""
    found: dict[str, int] = {}
    if text in NOTHING:
        return found
    for part in re.sub(r"\([^()]*\)", "", text).split(","):
        words = part.strip().removeprefix("gres:").removeprefix("gres/").replace("=", ":").split(":")
        if not words[0]:
            continue
        number = count(words[-1]) if len(words) > 1 else None
        found[words[0]] = found.get(words[0], 0) + (1 if number is None else number)
    return found


def amounts(text: str) -> dict[str, int]:
    """Licences: `matlab:1,ansys@server:2`, name -> how many."""
    found: dict[str, int] = {}
    if text in NOTHING:
        return found
    for part in text.replace(";", ",").split(","):
        name, _, number = part.strip().replace("=", ":").partition(":")
        if name:
            found[name] = found.get(name, 0) + (count(number) or 1)
    return found


def record(line: str, keys: Sequence[str] = ()) -> dict[str, str]:
    """A line of `Key=value` pairs. Values may hold blanks and `=`: with `keys` only those begin a new value."""
    if keys:
        form = re.compile(r"(?:^|\s)(" + "|".join(map(re.escape, keys)) + ")=")
    else:
        form = _KEY
    marks = list(form.finditer(line))
    ends = [mark.start() for mark in marks[1:]] + [len(line)] * bool(marks)
    return {mark[1]: line[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=True)}

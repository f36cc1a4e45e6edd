"""Opens the files that a run writes."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from pilothouse.model.errors import InputError


def opened(path: str) -> TextIO:
    """A new file, with its folder."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return open(path, "w", encoding="utf-8")
    except OSError as problem:
        raise InputError(path, f"cannot be written: {problem.strerror}") from None

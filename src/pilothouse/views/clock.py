"""Lengths of time in the words of a clock."""

from __future__ import annotations


def clock(seconds: float) -> str:
    """`1:02:03`, or `2d 03:04` for what takes days."""
    whole = round(seconds)
    if whole >= 86400:
        return f"{whole // 86400}d {whole // 3600 % 24:02d}:{whole // 60 % 60:02d}"
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"

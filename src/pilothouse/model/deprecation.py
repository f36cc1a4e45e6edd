"""Warnings about names and options that will go.

A public name is kept for two minor versions after the CHANGELOG has named its successor, and warns in the meantime. The
warning is a FutureWarning, which Python shows to everyone, with the line that uses the name: users of a command see those of
their own policies, too.
"""

from __future__ import annotations

import warnings


class PilothouseDeprecation(FutureWarning):
    """Something that is used will go: the text says when, and what to use instead."""


def deprecated(what: str, instead: str, *, gone_in: str, levels: int = 1) -> None:
    """Warns in the line `levels` calls above the function that calls this."""
    text = f"{what} will be gone in version {gone_in}: use {instead}"
    warnings.warn(text, PilothouseDeprecation, stacklevel=levels + 2)

"""How an expected error is told: one line on standard error, and with --traceback where it came from."""

from __future__ import annotations

import os
import traceback

import click

from pilothouse.model.errors import PilothouseError

VARIABLE = "PILOTHOUSE_TRACEBACK"
"""Set by `pilothouse --traceback`: engines and schedulers that the command starts show theirs, too."""


def tell(line: str, problem: PilothouseError) -> None:
    """Writes the line; before it, if that was asked for, the traceback of what caused the problem."""
    click.echo(told(line, problem), err=True, nl=False)


def told(line: str, problem: PilothouseError) -> str:
    """What `tell` writes."""
    cause = "".join(traceback.format_exception(problem.__cause__ or problem)) if os.environ.get(VARIABLE) else ""
    return f"{cause}pilothouse: {line}\n"

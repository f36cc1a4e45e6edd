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
    if os.environ.get(VARIABLE):
        cause = problem.__cause__ or problem
        click.echo("".join(traceback.format_exception(cause)), err=True, nl=False)
    click.echo(f"pilothouse: {line}", err=True)

"""`pilothouse disbatch`: a drop-in for disBatch, with its options, files, status lines and exit codes."""

from __future__ import annotations

import click


@click.command(
    "disbatch",
    context_settings={"ignore_unknown_options": True, "help_option_names": [], "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Stand in for disBatch: `pilothouse disbatch --help` shows its options and examples."""
    from pilothouse.dropins.disbatch.command import disbatch

    raise click.exceptions.Exit(disbatch(arguments, "pilothouse disbatch"))

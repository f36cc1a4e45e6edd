"""`pilothouse init`: a small project to begin with."""

from __future__ import annotations

import shlex
from pathlib import Path

import click


@click.command("init")
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path, file_okay=False))
def command(folder: Path) -> None:
    """Write a small project into DIR (default: here): a policy, a workload, a task file, a sweep, and the
    commands that use them.

    Files that are there are never overwritten: then nothing is written.

    \b
    Examples:
      pilothouse init mine
      cd mine && cat README.md
    """
    from pilothouse.launch.project import create

    for path in create(folder):
        click.echo(path)
    click.echo(f"next: {'' if folder == Path() else f'cd {shlex.quote(str(folder))}, and '}run the commands of README.md")

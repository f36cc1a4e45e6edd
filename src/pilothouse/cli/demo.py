"""`pilothouse demo`: the first five minutes, done by the computer."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command("demo")
@click.argument("folder", metavar="[DIR]", default="pilothouse-demo", type=click.Path(path_type=Path, file_okay=False))
def command(folder: Path) -> None:
    """Write the project of `pilothouse init` into DIR (default: pilothouse-demo) and run its commands.

    Compares schedulers on 5,000 jobs of a real machine, lets one of them decide about real tasks on this machine, and writes
    a report. Each command is shown, and works again in DIR.

    \b
    Examples:
      pilothouse demo
      uvx pilothouse demo /tmp/demo
    """
    from pilothouse.launch.project import demonstrate

    sys.exit(demonstrate(folder))

"""`pilothouse watch`: a run in the terminal, while it goes on or afterwards."""

from __future__ import annotations

from pathlib import Path

import click

from pilothouse.model.errors import InputError


@click.command("watch")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--once", is_flag=True, help="Show the state now and end; also where the output is no terminal.")
@click.option("--every", default=1.0, show_default=True, metavar="SECONDS", help="How often to look.")
def command(folder: Path, once: bool, every: float) -> None:
    """Watch a running or finished run: tasks, engines, contexts, rate, time left, failures.

    Keys: up and down (or k and j) choose an engine, e asks it to stop, c asks its context to stop, q quits. An
    engine that is asked to stop finishes its tasks first.

    \b
    Examples:
      pilothouse watch tasks.txt.run1
      pilothouse watch --once tasks.txt.run1
    """
    try:
        import rich  # noqa: F401
    except ImportError as error:
        raise InputError("watch", "the terminal view needs the extra pilothouse[ui]") from error
    from pilothouse.views.terminal import watch

    watch(folder, once=once, every_s=every)

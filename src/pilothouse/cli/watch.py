"""`pilothouse watch`: a run in the terminal, while it goes on or afterwards."""

from __future__ import annotations

from contextlib import closing

import click

from pilothouse.model.errors import InputError


@click.command("watch")
@click.argument("folder", metavar="DIR")
@click.option("--once", is_flag=True, help="Show the state now and end; also where the output is no terminal.")
@click.option("--every", default=1.0, show_default=True, metavar="SECONDS", help="How often to look.")
@click.option("--json", "as_json", is_flag=True, help="The state now as JSON, for programs.")
@click.option("--web", is_flag=True, help="In a browser: the same as `pilothouse web`, which has more options.")
def command(folder: str, once: bool, every: float, as_json: bool, web: bool) -> None:
    """Watch the running or finished run in DIR: tasks by age, failures with their last line, engines, rate, time left.

    Keys: up and down (or k and j) choose an engine, e asks it to stop, c asks its context to stop, tab gives one section
    all the room, / searches, q quits. An engine that is asked to stop finishes its tasks first.

    \b
    Examples:
      pilothouse watch tasks.txt.run1
      pilothouse watch --once tasks.txt.run1
      pilothouse watch --json tasks.txt.run1 | jq '.running_tasks[0]'
    """
    if web:
        from pilothouse.cli.web import command as in_browser

        click.get_current_context().invoke(in_browser, run=folder, every=every)
        return
    from pilothouse.journal.run_reader import RunReader
    from pilothouse.views.read_run import live_folder

    found = live_folder(folder)
    if as_json:
        from pilothouse.views import documents

        with closing(RunReader(found)) as reader:
            click.echo(documents.text("watch", reader.read()))
        return
    try:
        import rich  # noqa: F401
    except ImportError as error:
        raise InputError("watch", "the terminal view needs the extra pilothouse[ui]") from error
    from pilothouse.views.terminal import watch

    watch(found, once=once, every_s=every)

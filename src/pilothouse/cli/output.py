"""`pilothouse output`: what the tasks of a run wrote."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("tasks", metavar="[TASK]...", nargs=-1)
@click.option("--stderr", "only_err", is_flag=True, help="What they wrote to stderr, not to stdout.")
@click.option("--both", is_flag=True, help="What they wrote to either.")
@click.option("--json", "json_lines", is_flag=True, help="One JSON object a task.")
@click.option("-f", "--follow", "following", is_flag=True, help="Go on until these tasks have ended, or the run.")
@click.option("--grep", "pattern", metavar="REGEX", help="Only lines that match, with their task in front.")
@click.option(
    "--to", "target", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER",
    help="Write files TASK.stdout and TASK.stderr.",
)  # fmt: skip
def command(
    folder: Path, tasks: tuple[str, ...], only_err: bool, both: bool, json_lines: bool, following: bool, pattern: str | None,
    target: Path | None,
) -> None:  # fmt: skip
    """Print what tasks of the run in DIR wrote to stdout (without TASK: all that ended).

    Tasks are named as in `pilothouse tasks`. Of a task that was tried several times the last attempt is shown.

    \b
    Examples:
      pilothouse output tasks.txt.run1 31415
      pilothouse output tasks.txt.run1 31415 --stderr -f
      pilothouse output tasks.txt.run1 --both --grep 'Traceback|Error'
      pilothouse output tasks.txt.run1 --to outputs/
    """
    from pilothouse.formats.output_pack import STDERR, STDOUT
    from pilothouse.journal.output import open_outputs
    from pilothouse.model.errors import InputError
    from pilothouse.views import task_output

    if sum((following, json_lines, pattern is not None, target is not None)) > 1:
        raise click.UsageError("--follow, --json, --grep and --to do not go together")
    streams = (STDOUT, STDERR) if both or (target and not only_err) else (STDERR,) if only_err else (STDOUT,)
    write = sys.stdout.buffer.write
    with open_outputs(folder) as reader:
        wanted = reader.numbers(tasks) if tasks else None
        if pattern is not None:
            found = task_output.search(reader.read(wanted), pattern, streams, write)
            reader.check()
            sys.exit(0 if found else 1)
        if target is not None:
            click.echo(f"{task_output.export(reader.read(wanted), streams, target):,} files in {target}", err=True)
            reader.check()
            return
        if json_lines:
            for _, output in reader.read(wanted):
                write(task_output.as_json(output) + b"\n")
            reader.check()
            return
        printer = task_output.Printer(write, lambda text: click.echo(text, err=True), streams, headers=len(tasks) != 1)
        if following:
            task_output.follow(folder, reader, wanted, printer)
            reader.check()
            return
        if missing := task_output.show_all(reader, wanted, printer):
            names = ", ".join(map(str, missing))
            raise InputError(str(folder), f"nothing is known of task {names}", hint=f"see: pilothouse tasks {folder}")
        reader.check()

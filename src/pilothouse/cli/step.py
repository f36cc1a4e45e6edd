"""`pilothouse step`: a schedule moment by moment."""

from __future__ import annotations

import sys

import click

from pilothouse.model.errors import InputError


@click.command("step")
@click.argument("run", metavar="PATH")
@click.option("--at", "date", type=float, metavar="SECONDS", help="Begin with the last moment that is not after this date.")
@click.option("--job", metavar="ID", help="Begin where this job started.")
@click.option("--once", is_flag=True, help="Print that moment and end; also where the output is no terminal.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, one line for each moment; with --at or --job for that one.")
def command(run: str, date: float | None, job: str | None, once: bool, as_json: bool) -> None:
    """Step through the schedule of the run at PATH: queue, free units, each decision and its reason.

    Keys: right and left go to the next moment and back, n and p to the next and the last decision, j to a job, t to a
    date, up and down scroll the queue, q quits.

    \b
    Examples:
      pilothouse step out/
      pilothouse step out/ --job 16452
      pilothouse step out/ --at 86400 --once
      pilothouse step out/ --json | jq -c '[.date, .free, (.waiting | length)]'
    """
    from pilothouse.views import documents
    from pilothouse.views.keyboard import show
    from pilothouse.views.moments import Moments
    from pilothouse.views.read_run import read_run
    from pilothouse.views.step_screen import StepScreen, moment_lines

    schedule = read_run(run)
    moments = Moments(schedule)
    if not len(moments):
        raise InputError(run, "nothing has happened in this run")
    index = moments.index_at(date) if date is not None else 0
    if job is not None:
        found = moments.index_of(job)
        if found is None:
            raise InputError(schedule.path, f"there is no job {job!r} in it")
        index = found
    if as_json:
        for moment in [moments[index]] if date is not None or job is not None else moments:
            click.echo(documents.encode("moment", moment))
    elif once or not (sys.stdout.isatty() and sys.stdin.isatty()):
        click.echo("\n".join(moment_lines(moments[index], schedule.name, 100)))
    else:
        screen = StepScreen(moments, index)
        show(screen.lines, screen.press)

"""`pilothouse report`: runs as one HTML file to look at."""

from __future__ import annotations

import click

from pilothouse.cli.options import Seconds


@click.command("report")
@click.argument("runs", metavar="PATH...", nargs=-1, required=True)
@click.option("-o", "--output", default="report.html", show_default=True, metavar="FILE", help="The file to write.")
@click.option(
    "--tau", type=Seconds(above_zero=True), default=10.0, show_default=True, help="Bound of the bounded slowdown, in seconds."
)  # fmt: skip
def command(runs: tuple[str, ...], output: str, tau: float) -> None:
    """Write one HTML file about the runs at each PATH: simulated or live, finished or still going on.

    It needs no network and no other file: a Gantt chart and timelines to zoom, distributions of waits and slowdowns, tables
    by user, width and length, failures by kind, and why each job started when it did. Several runs are stacked, and
    compared with the first.

    \b
    Examples:
      pilothouse report out/ -o run.html
      pilothouse report tasks.txt.run1
      pilothouse report runs/easy runs/easy-sjbf -o comparison.html
    """
    from pilothouse.views.read_run import add_users, read_runs
    from pilothouse.views.report.html import check_report, write_report

    check_report(output, len(runs))
    read = read_runs(runs)
    for run in read:
        add_users(run)
    size = write_report(read, output, tau)
    click.echo(f"report: {output} ({size / 1e6:.1f} MB)")

"""`pilothouse plot`: figures of runs, fit for a paper."""

from __future__ import annotations

import click

from pilothouse.cli.options import Seconds


@click.command("plot")
@click.argument("runs", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "-o", "--output", "outputs", multiple=True, default=("plot.png",), show_default=True, metavar="FILE",
    help="A .png, .svg or .pdf (repeatable: the same figure in each).",
)
@click.option(
    "--kind", "kinds", default="", metavar="KINDS",
    help="Some of utilisation, queue, energy, memory, machines, gantt, waits, slowdowns, with commas between "
    "them.  [default: what suits one run, or several]",
)
@click.option("--from", "begin", type=float, metavar="SECONDS", help="Where the axis of time begins.")
@click.option("--to", "end", type=float, metavar="SECONDS", help="Where it ends.")
@click.option("--width", type=click.FloatRange(2, 40), default=7.2, show_default=True, metavar="INCHES",
              help="Width of the figure; a column of a two-column paper is 3.5.")
@click.option("--title", default="", help="A line above the figure.")
@click.option(
    "--tau", type=Seconds(above_zero=True), default=10.0, show_default=True, help="Bound of the bounded slowdown, in seconds."
)  # fmt: skip
def command(
    runs: tuple[str, ...], outputs: tuple[str, ...], kinds: str, begin: float | None, end: float | None, width: float,
    title: str, tau: float,
) -> None:  # fmt: skip
    """Draw the runs at each PATH into one figure: simulated or live, finished or still going on.

    A PATH is the folder of a run, or what its files begin with (`-e`). Above 1,500 steps a timeline shows means over
    windows; above 5,000 jobs a Gantt chart shows how busy the units are instead of single jobs.

    \b
    Examples:
      pilothouse plot out/ -o run.pdf
      pilothouse plot tasks.txt.run1 -o tasks.png --kind gantt,utilisation
      pilothouse plot fcfs/ easy/ -o comparison.svg --kind queue,waits,slowdowns --width 3.5
      pilothouse plot out/ -o second-day.png --kind gantt --from 86400 --to 172800
    """
    from pilothouse.views.plot_style import check_figure
    from pilothouse.views.plots import draw, kinds_of
    from pilothouse.views.read_run import read_runs

    for path in outputs:
        check_figure(path)
    read = read_runs(runs)
    draw(read, outputs, kinds_of(kinds, read), begin=begin, end=end, width_in=width, title=title, tau=tau)
    for path in outputs:
        click.echo(f"plot: {path}")

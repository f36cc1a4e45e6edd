"""`pilothouse sweep`: many simulations on many cores, one table, and which differences are significant."""

from __future__ import annotations

import sys
from typing import Any

import click

from pilothouse.cli.options import Seconds, complete_policy


def _numbers(text: str, kind: type[int] | type[float], option: str) -> list[Any]:
    """`1,2,3` or `0-9`."""
    found: list[Any] = []
    for part in filter(None, text.split(",")):
        first, dash, last = part.strip().partition("-")
        try:
            found += list(range(int(first), int(last) + 1)) if dash and kind is int else [kind(part)]
        except ValueError:
            raise click.BadParameter(f"{part!r} is not a number", param_hint=option) from None
    return found


@click.command()
@click.argument("grid_file", metavar="[GRID.toml]", required=False, type=click.Path())
@click.option("-o", "--output", "folder", required=True, metavar="DIR", help="The folder of the results.")
@click.option("-p", "--platform", "platforms", multiple=True, metavar="PLATFORM", help="As in `simulate` (repeatable).")
@click.option("-w", "--workload", "workloads", multiple=True, metavar="FILE", help="As in `simulate`, each apart (repeatable).")
@click.option(
    "--policy", "policies", multiple=True, metavar="POLICY", shell_complete=complete_policy,
    help="Policies with commas between them (repeatable).",
)  # fmt: skip
@click.option("--load", "loads", metavar="FACTORS", help="Multiply the arrival rate by these factors: 1,1.2,1.5.")
@click.option("--weeks", metavar="WEEKS", help="Each week of a workload apart: all, or numbers from 0 (0-9,12).")
@click.option("--seeds", metavar="SEEDS", help="A number (1 to that), or seeds with commas between them.")
@click.option("--tau", type=Seconds(above_zero=True), metavar="SECONDS", help="Bound of the bounded slowdown.  [default: 10]")
@click.option("--warm-up", type=Seconds(), metavar="SECONDS", help="Leave jobs of the first SECONDS out of the metrics.")
@click.option("--cool-down", type=Seconds(), metavar="SECONDS", help="Leave jobs of the last SECONDS out of the metrics.")
@click.option("--metric", "metrics", multiple=True, metavar="COLUMN", help="Show these columns of the table (repeatable).")
@click.option("--base", default="", metavar="POLICY", help="Compare with this policy, not with the first.")
@click.option("-j", "--workers", type=click.IntRange(min=1), metavar="N", help="Processes.  [default: all cores]")
@click.option("--dask", default="", metavar="ADDRESS", help="Simulate on the dask cluster of this scheduler instead.")
@click.option("--plot/--no-plot", default=None, help="Draw plot.png and plot.svg.  [default: if matplotlib is there]")
def command(
    grid_file: str | None, folder: str, policies: tuple[str, ...], loads: str | None, weeks: str | None, seeds: str | None,
    metrics: tuple[str, ...], base: str, workers: int | None, dask: str, plot: bool | None, **others: Any,
) -> None:  # fmt: skip
    """Simulate every cell of a grid: policies x options x workloads x platforms x loads x weeks x seeds.

    The grid is in a TOML file, in options, or in both: options replace what the file says. Results are kept in DIR as they
    come. The same command again simulates only what is missing, or what has changed: files, policies, pilothouse itself.

    \b
    Examples:
      pilothouse sweep grid.toml -o results/
      pilothouse sweep -p 100 -w KTH-SP2.swf.gz --policy fcfs,easy --weeks all -o results/
      pilothouse sweep -p 128 -w lublin:jobs=5000 --policy easy,easy-sjbf --load 1,1.2 --seeds 10 -o results/
      pilothouse sweep grid.toml -o results/ --dask tcp://head:8786
    """
    from importlib.util import find_spec

    from pilothouse.launch.comparison import split_policies
    from pilothouse.launch.sweep import command as run
    from pilothouse.launch.workers import cores

    given: dict[str, object] = {name: list(value) if isinstance(value, tuple) else value
                                for name, value in others.items() if value not in (None, ())}  # fmt: skip
    if policies:
        given |= {"policies": [name for text in policies for name in split_policies(text)], "options": {}}
    if loads is not None:
        given["loads"] = _numbers(loads, float, "--load")
    if weeks is not None:
        given["weeks"] = weeks if weeks == "all" else _numbers(weeks, int, "--weeks")
    if seeds is not None:
        given["seeds"] = int(seeds) if seeds.isdecimal() else _numbers(seeds, int, "--seeds")
    sys.exit(run(grid_file=grid_file, folder=folder, given=given, metrics=metrics, base=base, workers=workers or cores(),
                 dask=dask, plot=find_spec("matplotlib") is not None if plot is None else plot))  # fmt: skip

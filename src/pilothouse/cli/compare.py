"""`pilothouse compare`: the same workload under several policies, side by side."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from pilothouse.cli.options import Seconds, complete_policy, platform_option, workload_options
from pilothouse.model.record import JobRecord


@click.command()
@platform_option
@workload_options
@click.option(
    "--policy", "policies", multiple=True, default=("fcfs,easy,easy-sjbf",), show_default=True,
    shell_complete=complete_policy, help="Policies with commas between them (repeatable).",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
@click.option(
    "--tau", type=Seconds(above_zero=True), default=10.0, show_default=True,
    help="Bound of the bounded slowdown, in seconds.",
)  # fmt: skip
@click.option("-e", "--export", "prefix", help="Keep each run's files as PREFIX + policy + / + name.")
@click.option("--plot", metavar="FILE", help="Draw the runs into one figure (.png or .svg).")
def command(
    platform: str,
    workloads: tuple[str, ...],
    events: tuple[str, ...],
    duration: str,
    policies: tuple[str, ...],
    as_json: bool,
    tau: float,
    prefix: str | None,
    plot: str | None,
) -> None:
    """Run WORKLOADs on a simulated PLATFORM under each of several policies.

    The best value of each row has a star (and is green on a terminal; the worst is red).

    \b
    Examples:
      pilothouse compare -p 100 -w KTH-SP2.swf.gz --policy fcfs,easy,easy-sjbf
      pilothouse compare -p 100 -w KTH-SP2.swf.gz --policy easy --policy 'priority:score=r*n,backfill=easy' --json
      pilothouse compare -p 100 -w KTH-SP2.swf.gz --policy fcfs,easy --plot comparison.png
    """
    import msgspec

    from pilothouse.core.session import Session
    from pilothouse.launch import naming
    from pilothouse.launch.outputs import Outputs
    from pilothouse.launch.running import calm_collector
    from pilothouse.launch.simulation import load
    from pilothouse.model.errors import InputError
    from pilothouse.views.metrics import Collector, Metrics
    from pilothouse.views.progress import progress
    from pilothouse.views.tables import comparison

    calm_collector()
    names = list(dict.fromkeys(name for text in policies for name in split_policies(text)))
    if not names:
        raise InputError("--policy", "names no policy")
    for name in names:
        naming.policy(name)
    if plot:
        from pilothouse.views.plots import check_figure

        check_figure(plot)
    setup = load(platform, workloads, events, duration)
    units = setup.begins.units
    results: dict[str, Metrics] = {}
    series: dict[str, list[tuple[float, float, float, int]]] = {}
    waiting: dict[str, int] = {}
    for name in names:
        outputs = Outputs(f"{prefix}{name.replace('/', '_')}/", (), tau) if prefix else None
        collector = Collector(tau)
        record: Callable[[JobRecord], None] = outputs.record if outputs is not None else collector.add
        if plot:
            from pilothouse.views.plots import tee

            record = tee(record, series.setdefault(name, []))
        bar = progress(collector if outputs is None else outputs, len(setup.jobs), name)
        outcome = Session(setup.world(record), naming.decider(name), name=name).run(bar)
        if bar is not None:
            bar.close()
        if outcome.deadlocked:
            waiting[name] = len(outcome.waiting)
        results[name] = outputs.close(units, complete=True) if outputs is not None else collector.metrics(units)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(results)).decode())
    else:
        for line in setup.oddities:
            click.echo(f"note: {line}")
        click.echo(comparison(results, colour=sys.stdout.isatty()))
    if plot:
        from pilothouse.views.plots import draw_comparison

        draw_comparison(series, units, plot)
        if not as_json:
            click.echo(f"plot: {plot}")
    for name, count in waiting.items():
        click.echo(f"pilothouse: {name}: deadlock: {count} jobs were left waiting", err=True)
    if waiting:
        sys.exit(1)


def split_policies(text: str) -> list[str]:
    """`a,b:x=1,y=2,c` as a, b:x=1,y=2, c: a part with a = belongs to the options of the policy before it."""
    names: list[str] = []
    depth = start = 0
    for index, character in enumerate(text + ","):
        depth += (character in "([") - (character in ")]")
        if character != "," or depth:
            continue
        part, start = text[start:index].strip(), index + 1
        if names and "=" in part.partition(":")[0]:
            names[-1] += "," + part
        elif part:
            names.append(part)
    return names

"""Behind `pilothouse compare`: simulates a workload under each of several policies, and shows the results side by side."""

from __future__ import annotations

import sys

import click
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


def compare(
    *,
    platform: str,
    workloads: tuple[str, ...],
    events: tuple[str, ...],
    duration: str,
    policies: tuple[str, ...],
    as_json: bool,
    tau: float,
    prefix: str | None,
    plot: str | None,
) -> int:
    """The options are those of the command. The exit code."""
    calm_collector()
    names = list(dict.fromkeys(name for text in policies for name in split_policies(text)))
    if not names:
        raise InputError("--policy", "names no policy")
    for name in names:
        naming.policy(name)
    if plot:
        from pilothouse.views.plots import check_figure, draw_comparison, tee

        check_figure(plot)
    setup = load(platform, workloads, events, duration)
    units = setup.begins.units
    results: dict[str, Metrics] = {}
    series: dict[str, list[tuple[float, float, float, int]]] = {}
    waiting: dict[str, int] = {}
    for name in names:
        outputs = Outputs(f"{prefix}{name.replace('/', '_')}/", (), tau) if prefix else None
        if outputs is not None:
            outputs.describe(decider=name, units=units, jobs=len(setup.jobs), workloads=list(workloads), platform=platform)
        collector = outputs.collector if outputs is not None else Collector(tau)
        record = tee(collector.add, series.setdefault(name, [])) if plot else collector.add
        with progress(collector, len(setup.jobs), name) as bar:
            outcome = Session(setup.world(record), naming.decider(name), name=name).run(bar)
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
        draw_comparison(series, units, plot)
        if not as_json:
            click.echo(f"plot: {plot}")
    for name, count in waiting.items():
        click.echo(f"pilothouse: {name}: deadlock: {count} jobs were left waiting", err=True)
    return 1 if waiting else 0


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

"""Behind `pilothouse compare`: simulates a workload under each of several policies, and shows the results side by side."""

from __future__ import annotations

import sys

import click

from pilothouse.core.session import Session
from pilothouse.launch import naming
from pilothouse.launch.outputs import Outputs
from pilothouse.launch.running import calm_collector
from pilothouse.launch.simulation import load
from pilothouse.model.errors import InputError, PilothouseError
from pilothouse.views import documents
from pilothouse.views.documents import ComparedRun, ComparisonDocument
from pilothouse.views.metrics import Collector
from pilothouse.views.progress import progress
from pilothouse.views.schedule import Schedule
from pilothouse.views.tables import comparison, terminal_width
from pilothouse.views.telling import tell


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
        from pilothouse.views.plot_style import check_figure

        check_figure(plot)
    setup = load(platform, workloads, events, duration)
    units = setup.begins.units
    found: list[ComparedRun] = []
    schedules: list[Schedule] = []
    for name in names:
        schedule = Schedule(name=name, path="", live=False, policy=name, units=units)
        sinks = [schedule.take] if plot else []
        outputs = Outputs(f"{prefix}{name.replace('/', '_')}/", (), tau, *sinks) if prefix else None
        if outputs is not None:
            outputs.describe(decider=name, units=units, jobs=len(setup.jobs), workloads=list(workloads), platform=platform)
        collector = outputs.collector if outputs is not None else Collector(tau, *sinks)
        run = ComparedRun(policy=name)
        found.append(run)
        try:
            with progress(collector, len(setup.jobs), name) as bar:
                outcome = Session(setup.world(collector.add), naming.decider(name), name=name).run(bar)
        except PilothouseError as problem:
            # The other policies are not to blame: their results are shown.
            run.problem = str(problem)
            tell(f"{name} did not come to the end: {problem}", problem)
        else:
            run.waiting = len(outcome.waiting)
            run.problem = outcome.reason
            run.metrics = collector.metrics(units)
            schedules.append(schedule)
        if outputs is not None:
            outputs.close(units, complete=run.metrics is not None)
    if as_json:
        click.echo(documents.text("comparison", ComparisonDocument(units=units, runs=found, notes=setup.oddities)))
    else:
        for line in setup.oddities:
            click.echo(f"note: {line}")
        results = {run.policy: run.metrics for run in found if run.metrics is not None}
        if results:
            click.echo(comparison(results, colour=sys.stdout.isatty(), width=terminal_width()))
    if plot and schedules:
        from pilothouse.views.plots import draw

        draw(schedules, [plot], tau=tau)
        if not as_json:
            click.echo(f"plot: {plot}")
    return _report(found)


def _report(runs: list[ComparedRun]) -> int:
    """Says which policies left jobs waiting. The exit code."""
    bad = [run for run in runs if run.problem or run.waiting]
    for run in bad:
        if run.waiting:
            left = f"{run.waiting:,} job{'s were' if run.waiting != 1 else ' was'} left waiting"
            click.echo(f"pilothouse: {run.policy}: deadlock: {left}", err=True)
    return 1 if bad else 0


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

"""Behind `pilothouse compare`: simulates a workload under each of several policies, and shows the results side by side."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import click
import msgspec

from pilothouse.core.session import Session
from pilothouse.launch import naming
from pilothouse.launch.outputs import Outputs
from pilothouse.launch.running import calm_collector
from pilothouse.launch.simulation import load
from pilothouse.launch.workers import Died, in_processes, useful_workers
from pilothouse.model.errors import InputError, PilothouseError
from pilothouse.views import documents
from pilothouse.views.documents import ComparedRun, ComparisonDocument
from pilothouse.views.metrics import Collector
from pilothouse.views.progress import counted_progress, progress
from pilothouse.views.schedule import Schedule
from pilothouse.views.tables import comparison, terminal_width
from pilothouse.views.telling import told
from pilothouse.worlds.simulated.shaping import Shaping


class Compared(msgspec.Struct):
    """What came of one policy."""

    run: ComparedRun
    schedule: Schedule | None
    told: str = ""
    """What standard error is to say."""


def run_all(run: Callable[[int], Compared], names: Sequence[str], workers: int) -> list[Compared]:
    """The results of all policies, in the order of `names`."""
    found: dict[int, Compared] = {}
    with counted_progress(len(names) if workers > 1 else 0, "policies") as shown:
        for number, made in in_processes(run, len(names), workers):
            if isinstance(made, Died):
                lost = ComparedRun(policy=names[number], problem=str(made))
                made = Compared(lost, None, f"pilothouse: {names[number]} did not come to the end: {made}\n")
            found[number] = made
            shown(len(found))
    return [found[number] for number in range(len(names))]


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
    report: str | None = None,
    workers: int | None = None,
    load_factor: float = 1.0,
    week: int | None = None,
    warm_up: float = 0.0,
    cool_down: float = 0.0,
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
    if report:
        from pilothouse.views.report.html import check_report

        check_report(report, len(names))
    shaping = Shaping(load_factor, week, warm_up, cool_down)
    setup = load(platform, workloads, events, duration, shaping=shaping)
    units = setup.begins.units
    window = shaping.window(setup.jobs)
    workers = useful_workers(workers, len(names), len(setup.jobs))

    def run(number: int) -> Compared:
        name = names[number]
        schedule = Schedule(name=name, path="", live=False, policy=name, units=units)
        sinks = [schedule.take] if plot or report else []
        outputs = Outputs(f"{prefix}{name.replace('/', '_')}/", (), tau, *sinks, window=window) if prefix else None
        if outputs is not None:
            outputs.describe(decider=name, units=units, jobs=len(setup.jobs), workloads=list(workloads), platform=platform)
        collector = outputs.collector if outputs is not None else Collector(tau, *sinks, window=window)
        made = Compared(ComparedRun(policy=name), schedule if sinks else None)
        try:
            with progress(collector, len(setup.jobs), name, hidden=workers > 1) as bar:
                outcome = Session(setup.world(collector.add), naming.decider(name), name=name).run(bar)
        except PilothouseError as problem:
            # The other policies are not to blame: their results are shown.
            made.run.problem = str(problem)
            made.told = told(f"{name} did not come to the end: {problem}", problem)
        else:
            made.run.waiting = len(outcome.waiting)
            made.run.problem = outcome.reason
            made.run.metrics = collector.metrics(units)
        if outputs is not None:
            outputs.close(units, complete=made.run.metrics is not None)
        return made

    results = run_all(run, names, workers)
    for made in results:
        click.echo(made.told, err=True, nl=False)
    found = [made.run for made in results]
    schedules = [made.schedule for made in results if made.schedule is not None and made.run.metrics is not None]
    if as_json:
        click.echo(documents.text("comparison", ComparisonDocument(units=units, runs=found, notes=setup.oddities)))
    else:
        for line in setup.oddities:
            click.echo(f"note: {line}")
        metrics = {run.policy: run.metrics for run in found if run.metrics is not None}
        if metrics:
            click.echo(comparison(metrics, colour=sys.stdout.isatty(), width=terminal_width()))
    if plot and schedules:
        from pilothouse.views.plots import draw

        draw(schedules, [plot], tau=tau)
        if not as_json:
            click.echo(f"plot: {plot}")
    if report and schedules:
        from pilothouse.views.report.html import write_report

        size = write_report(schedules, report, tau)
        if not as_json:
            click.echo(f"report: {report} ({size / 1e6:.1f} MB)")
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

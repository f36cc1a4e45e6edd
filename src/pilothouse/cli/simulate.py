"""`pilothouse simulate`: one workload, one platform, one decider; Batsim's files out."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from pilothouse.cli.options import Seconds, decider_options, platform_option, workload_options

if TYPE_CHECKING:
    from pilothouse.launch.machine_outputs import MachineTables


@click.command()
@platform_option
@workload_options
@decider_options
@click.option("-e", "--export", "prefix", default="out/", show_default=True, help="Files are called PREFIX + name.")
@click.option(
    "--format", "exports", multiple=True, type=click.Choice(["swf", "jsonl"]), help="Also write jobs.swf, jobs.jsonl."
)
@click.option("--energy", is_flag=True, help="Simulate the energy of hosts (property wattage_per_state of the platform).")
@click.option(
    "--solver", type=click.Choice(["fair-bottleneck", "max-min"]), default="fair-bottleneck", show_default=True,
    help="How parallel tasks share hosts and links.",
)
@click.option("--trace-machines", is_flag=True, help="Also write machine_states.csv and pstate_changes.csv (--energy does).")
@click.option("--control-latency", is_flag=True, help="Charge simulated time for each message to the master host, as Batsim.")
@click.option("--plot", is_flag=True, help="Also draw utilisation, queue and Gantt chart (PNG and SVG).")
@click.option(
    "--tau", type=Seconds(above_zero=True), default=10.0, show_default=True,
    help="Bound of the bounded slowdown, in seconds.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
def command(
    platform: str,
    workloads: tuple[str, ...],
    events: tuple[str, ...],
    duration: str,
    by: str,
    timeout: float | None,
    decider_command: str | None,
    prefix: str,
    exports: tuple[str, ...],
    energy: bool,
    solver: str,
    trace_machines: bool,
    control_latency: bool,
    plot: bool,
    tau: float,
    quiet: bool,
) -> None:
    """Run WORKLOADs on a simulated PLATFORM under one policy or foreign scheduler.

    Writes PREFIX + jobs.csv (a row for each job as it ends), schedule.json and run.json.
    Ends with 0, with 1 if jobs were left waiting for ever, with 2 if the input is wrong.

    \b
    Examples:
      pilothouse simulate -p 100 -w KTH-SP2.swf.gz --policy easy -e out/
      pilothouse simulate -p cluster.xml -w workload.json --policy easy-sjbf:estimate=clairvoyant --plot
      pilothouse simulate -p 64 -w trace.swf --policy mine.py:ShortestFirst
      pilothouse simulate -p 4x28 -w requests.json --policy qcg --duration 300
      pilothouse simulate -p 100 -w trace.swf --by batsim:tcp://localhost:28000
    """
    from pilothouse.core.session import Session
    from pilothouse.launch import naming
    from pilothouse.launch.outputs import Outputs
    from pilothouse.launch.running import calm_collector, supervised
    from pilothouse.launch.simulation import load
    from pilothouse.views.progress import progress

    calm_collector()
    decider = naming.decider(by, timeout=timeout)
    setup = load(
        platform, workloads, events, duration, energy=energy, solver=solver, control_latency=control_latency
    )
    units = setup.begins.units
    machines = _machine_tables(prefix, trace_machines, energy)
    outputs = Outputs(prefix, exports, tau)
    outputs.describe(decider=by, units=units, workloads=list(workloads), platform=platform)
    bar = progress(outputs, len(setup.jobs))
    began = time.process_time()
    complete = False
    try:
        with supervised(decider_command):
            outcome = Session(setup.world(outputs.record, machines), decider, name=by).run(bar)
        complete = True
    finally:
        if bar is not None:
            bar.close()
        extra = {}
        for table in machines:
            table.close()
            extra = table.figures()
        metrics = outputs.close(units, complete=complete, ranks=not quiet, extra=extra)
    if not quiet:
        from pilothouse.views.tables import run_summary

        for line in setup.oddities:
            click.echo(f"note: {line}")
        click.echo(run_summary(metrics, units, by, time.process_time() - began))
        click.echo(f"files: {prefix}jobs.csv, {prefix}schedule.json")
    if plot:
        from pilothouse.views.plots import draw

        for path in draw(prefix, units, title=by):
            if not quiet:
                click.echo(f"plot:  {path}")
    if outcome.deadlocked:
        shown = ", ".join(outcome.waiting[:10]) + (", ..." if len(outcome.waiting) > 10 else "")
        count = len(outcome.waiting)
        what = f"{count} job{'s' if count != 1 else ''} will never start: {shown}" if count else outcome.reason
        click.echo(f"pilothouse: deadlock at {outcome.ended_at:g} s: nothing is left to happen, and {what}", err=True)
        sys.exit(1)


def _machine_tables(prefix: str, wanted: bool, energy: bool) -> list[MachineTables]:
    """The tables of machines, if they were asked for."""
    if not (wanted or energy):
        return []
    from pilothouse.launch.machine_outputs import MachineTables

    return [MachineTables(prefix, energy=energy)]

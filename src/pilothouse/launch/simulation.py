"""Behind `pilothouse simulate`: reads the input, simulates it under one decider, writes the files, prints a summary."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from pilothouse.core.session import Outcome, Session
from pilothouse.formats.workload import Workload
from pilothouse.launch import naming
from pilothouse.launch.estimate_table import EstimateTable
from pilothouse.launch.outputs import Outputs
from pilothouse.launch.running import calm_collector, supervised
from pilothouse.launch.session_files import NowFile, both
from pilothouse.views import documents
from pilothouse.views.documents import RunDocument
from pilothouse.views.progress import progress
from pilothouse.views.schedule import Schedule
from pilothouse.worlds.simulated.inputs import Setup, join, read_workloads
from pilothouse.worlds.simulated.physics.platform import Platform
from pilothouse.worlds.simulated.shaping import AS_IT_IS, Shaping

if TYPE_CHECKING:
    from pilothouse.launch.machine_outputs import MachineTables


BATSIM_DECIDERS = ("batsim", "edc")
NO_LATENCY = "messages took no simulated time, so start times may differ from a real Batsim's; see --control-latency"
"""Printed after a run with a decider that was written for Batsim."""


def load(
    platform: str,
    workloads: Sequence[str],
    events: Sequence[str] = (),
    duration: str = "",
    *,
    energy: bool = False,
    solver: str = "fair-bottleneck",
    control_latency: bool = False,
    shaping: Shaping = AS_IT_IS,
) -> Setup:
    """Reads platform, workloads in any format and external events, or raises InputError before anything was written."""

    shaping.check()
    machine = Platform.named(platform)
    read = [shaping.of(workload) for workload in read_all(workloads, machine, duration)]
    return join(machine, read, events=events, energy=energy, solver=solver, control_latency=control_latency)


def read_all(workloads: Sequence[str], machine: Platform, duration: str = "") -> list[Workload]:
    """Workloads in any format, for that machine."""

    def read_requests(path: str, name: str, dialect: str) -> Workload:
        from pilothouse.formats.qcg_dialect import SPECIFICATION, named
        from pilothouse.formats.qcg_workload import Durations, load_workload

        durations = Durations.named(duration) if duration else Durations()
        return load_workload(path, durations, machine.nodes(), name=name, dialect=named(dialect) if dialect else SPECIFICATION)

    return read_workloads(workloads, machine.compute_count, read_requests)


def simulate(
    *,
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
    pass_every_s: float = 0.0,
    ask_estimates: str | None = None,
    plot: bool,
    report: str | None = None,
    tau: float,
    as_json: bool,
    quiet: bool,
    load_factor: float = 1.0,
    week: int | None = None,
    warm_up: float = 0.0,
    cool_down: float = 0.0,
) -> int:
    """The options are those of the command. The exit code."""
    calm_collector()
    if report:
        from pilothouse.views.report.html import check_report

        check_report(report, 1)
    decider = naming.decider(by, timeout=timeout)
    shaping = Shaping(load_factor, week, warm_up, cool_down)
    setup = load(platform, workloads, events, duration, energy=energy, solver=solver, control_latency=control_latency,
                 shaping=shaping)  # fmt: skip
    setup.pass_every_s = pass_every_s
    if ask_estimates:
        (potential,) = read_workloads([ask_estimates], setup.platform.compute_count, name="potential")
        setup.potential = potential.jobs
    units = setup.begins.units
    schedule = Schedule(name=by, path="", live=False, policy=by, units=units)
    also = [schedule.take] if report else []
    outputs = Outputs(prefix, exports, tau, *also, window=shaping.window(setup.jobs))
    setup.annotated = outputs.annotate
    machines = _machine_tables(prefix, trace_machines, energy)
    estimates = EstimateTable(prefix + "estimates.csv", setup.potential) if ask_estimates else None
    if estimates is not None:
        setup.answered = estimates.answered
    outputs.describe(decider=by, units=units, jobs=len(setup.jobs), workloads=list(workloads), platform=platform)
    now_file = NowFile(prefix, outputs.flush)
    began = time.process_time()
    complete = False
    try:
        with progress(outputs.collector, len(setup.jobs)) as bar, supervised(decider_command):
            now_file.session = session = Session(setup.world(outputs.record, machines), decider, name=by)
            outcome = session.run(now_file.observe if bar is None else both(bar, now_file.observe))
        complete = True
    finally:
        for table in machines:
            table.close()
        if estimates is not None:
            estimates.close()
        extra = machines[0].figures() if machines else {}
        now_file.close()
        metrics = outputs.close(units, complete=complete, ranks=as_json or not quiet, extra=extra)
    took_s = time.process_time() - began
    notes = setup.oddities
    if by.partition(":")[0] in BATSIM_DECIDERS and not (control_latency or pass_every_s):
        notes = [*notes, NO_LATENCY]
    files = [f"{prefix}jobs.csv", f"{prefix}schedule.json"]
    if estimates is not None:
        files.append(estimates.path)
    if plot:
        from pilothouse.views.plots import draw
        from pilothouse.views.read_run import read_run

        plotted = [f"{prefix}plot.png", f"{prefix}plot.svg"]
        draw([read_run(files[0])], plotted, tau=tau, title=by)
        files += plotted
    if report:
        from pilothouse.views.report.html import write_report

        write_report([schedule], report, tau)
        files.append(report)
    if as_json:
        document = RunDocument(
            policy=by, units=units, metrics=metrics, waiting=list(outcome.waiting), files=files, notes=notes
        )
        click.echo(documents.text("run", document))
    elif not quiet:
        from pilothouse.views.tables import run_summary

        for line in notes:
            click.echo(f"note: {line}")
        click.echo(run_summary(metrics, units, by, took_s))
        click.echo(f"files: {', '.join(files)}")
    return _report_deadlock(outcome) if outcome.deadlocked else 0


def _report_deadlock(outcome: Outcome) -> int:
    count = len(outcome.waiting)
    shown = ", ".join(outcome.waiting[:10]) + (", ..." if count > 10 else "")
    what = f"{count} job{'s' if count != 1 else ''} will never start: {shown}" if count else outcome.reason
    click.echo(f"pilothouse: deadlock at {outcome.ended_at:g} s: nothing is left to happen, and {what}", err=True)
    return 1


def _machine_tables(prefix: str, wanted: bool, energy: bool) -> list[MachineTables]:
    """The tables of machines, if they were asked for."""
    if not (wanted or energy):
        return []
    from pilothouse.launch.machine_outputs import MachineTables

    return [MachineTables(prefix, energy=energy)]

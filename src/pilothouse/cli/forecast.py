"""`pilothouse forecast`: a task file, or a run that goes on, in simulated time."""

from __future__ import annotations

import sys
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pilothouse.cli.options import Memory, Walltime, complete_policy
from pilothouse.model.errors import InputError

if TYPE_CHECKING:
    from datetime import datetime

    from pilothouse.campaign.forecast import Forecast
    from pilothouse.launch.forecasts import Asked
    from pilothouse.views.documents import ForecastDocument


@click.command()
@click.argument("file", metavar="FILE|RUN", type=click.Path(path_type=Path))
@click.option("-p", "--nodes", metavar="N|NxM", help="So many slots, or nodes x cores (4x28). With --until: at most so many.")
@click.option(
    "--duration", "durations", multiple=True, metavar="SECONDS|RUN",
    help="How long a task takes (90, or 60,90,200: each takes one of these), or an earlier run to learn from. Several runs tell"
    " how much tasks vary.",
)
@click.option("--until", metavar="DATE", help="How many nodes are enough until then: Friday, 18:00, 2026-11-20T18:00, 36h.")
@click.option("--units", "-c", type=click.IntRange(1), default=1, show_default=True, help="Slots that each task needs.")
@click.option("--mem", type=Memory(), default=0, metavar="SIZE", help="Memory that each task needs.")
@click.option("--gpus-per-task", "-g", type=click.IntRange(0), default=0, metavar="N", help="GPUs that each task needs.")
@click.option("--walltime", type=Walltime(), default=inf, metavar="TIME", help="The most that a task may take.")
@click.option("--node-mem", type=Memory(), default=0, metavar="SIZE", help="Memory of each node.")
@click.option("--node-gpus", type=click.IntRange(0), default=0, metavar="N", help="GPUs of each node.")
@click.option(
    "--policy", default="", metavar="POLICY", shell_complete=complete_policy,
    help="Who decides: see `pilothouse policies`. By default fcfs, or what decides in the run.",
)
@click.option("--samples", type=click.IntRange(0), default=0, metavar="N", help="Simulations; by default as many as are quick.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")  # fmt: skip
def command(
    file: Path, nodes: str | None, durations: tuple[str, ...], until: str | None, units: int, mem: int, gpus_per_task: int,
    walltime: float, node_mem: int, node_gpus: int, policy: str, samples: int, as_json: bool,
) -> None:  # fmt: skip
    """Say when the tasks of FILE would be done on nodes that you may not have, or when RUN will be done.

    Tasks are simulated many times under the policy, with their requests, dependencies and barriers. How long each takes is drawn
    anew each time. Ends with 1 if --until cannot be kept.

    \b
    Examples:
      pilothouse forecast tasks.txt --nodes 4x28 --duration 90
      pilothouse forecast tasks.txt --nodes 64 --duration tasks.txt.run1
      pilothouse forecast tasks.txt --nodes 100x28 --duration tasks.txt.run1 --until Friday
      pilothouse forecast tasks.txt.run2
      pilothouse forecast tasks.txt.run2 --until 18:00
    """
    from datetime import datetime

    from pilothouse.formats import date_text
    from pilothouse.launch.forecasts import Asked
    from pilothouse.views import documents

    now = datetime.now().astimezone()
    date = None if until is None else date_text.parse(until, now, "--until")
    within_s = inf if date is None else (date - now).total_seconds()
    if file.is_dir():
        if nodes is not None:
            raise InputError("--nodes", "a run has its nodes", hint="pilothouse whatif RUN --add-nodes N adds some")
        found = _run(file, durations, policy, samples, within_s)
    else:
        if nodes is None or not durations:
            missing = "--nodes" if nodes is None else "--duration"
            raise InputError(missing, "is needed for a task file", hint=f"pilothouse forecast {file} --nodes 4x28 --duration 90")
        asked = Asked(
            units=units, memory_mb=mem, gpus=gpus_per_task, walltime=walltime, node_memory_mb=node_mem, node_gpus=node_gpus
        )
        found = _file(file, nodes, durations, policy or "fcfs", asked, samples, within_s)
    if date is not None:
        found.until = date.timestamp()
    click.echo(documents.text("forecast", found) if as_json else _text(str(file), found, nodes, date))
    sys.exit(1 if found.in_time is False else 0)


def _file(
    file: Path, nodes: str, durations: tuple[str, ...], policy: str, asked: Asked, samples: int, within_s: float
) -> ForecastDocument:
    from pilothouse.launch.forecasts import forecast_file

    found = forecast_file(file, nodes, durations, policy, asked, within_s=within_s, samples=samples)
    document = _document(found.forecast, found.nodes, policy, found.notes)
    document.in_time = None if within_s == inf else found.in_time
    return document


def _run(folder: Path, durations: tuple[str, ...], policy: str, samples: int, within_s: float) -> ForecastDocument:
    from pilothouse.launch.forecasts import forecast_run, nodes_to_add
    from pilothouse.views.read_run import live_folder

    folder = live_folder(str(folder))
    found = forecast_run(folder, policy=policy, learn_from=durations, samples=samples)
    document = _document(found.forecast, 0, found.policy, found.notes)
    if within_s < inf:
        document.in_time = found.forecast.seconds.high <= within_s
        if not document.in_time and (enough := nodes_to_add(folder, within_s, policy=policy, samples=samples)) is not None:
            document = _document(enough[1], enough[0], found.policy, found.notes)
            document.in_time = False
    document.done_at = found.now + document.seconds
    return document


def _document(found: Forecast, nodes: int, policy: str, notes: tuple[str, ...]) -> ForecastDocument:
    from pilothouse.views.documents import ForecastDocument, ForecastPhase

    return ForecastDocument(
        tasks=found.tasks, slots=found.units, nodes=nodes, policy=policy, seconds=found.seconds.median, low=found.seconds.low,
        high=found.seconds.high, samples=found.samples, utilisation=found.utilisation, notes=list(notes),
        phases=[
            ForecastPhase(tasks=phase.tasks, ends_at=phase.ends.median, low=phase.ends.low, high=phase.ends.high)
            for phase in found.phases
        ],
    )  # fmt: skip


def _text(name: str, found: ForecastDocument, nodes: str | None, date: datetime | None) -> str:
    if found.done_at is not None and not found.tasks:
        return f"{name}: no task is left; what another policy would have done: pilothouse whatif {name} --policy easy"
    lines = []
    if len(found.phases) > 1:
        for number, phase in enumerate(found.phases, 1):
            lines.append(f"  phase {number}: {_tasks(phase.tasks)}, done after {spread(phase.low, phase.ends_at, phase.high)}")
    when = "done after" if found.done_at is None else "done in"
    lines.append(
        f"{name}: {_tasks(found.tasks)} on {found.slots:,} slot{'s' * (found.slots != 1)} under {found.policy} {when} "
        f"{spread(found.low, found.seconds, found.high)}, utilisation {100 * found.utilisation:.1f} %"
    )
    if date is not None:
        lines.append(_until(found, nodes, f"{date:%a %Y-%m-%d %H:%M}"))
    return "\n".join([*lines, *(f"note: {note}" for note in found.notes)])


def _until(found: ForecastDocument, nodes: str | None, date: str) -> str:
    what = "slot" if nodes is not None and "x" not in nodes else "node"
    many = f"{found.nodes:,} {what}{'s' * (found.nodes != 1)}"
    if found.done_at is None:
        return f"until {date}: {many} {'is' if found.nodes == 1 else 'are'} {'' if found.in_time else 'not '}enough"
    if found.in_time:
        return f"until {date}: the nodes that it has are enough"
    return f"until {date}: {many} more would be enough" if found.nodes else f"until {date}: more nodes would not be enough"


def _tasks(count: int) -> str:
    return f"{count:,} task{'s' if count != 1 else ''}"


def spread(low: float, median: float, high: float) -> str:
    """`1:02:03 (0:58:00 to 1:10:00)`: the median, and where nine in ten outcomes lie."""
    texts = [in_words(seconds) for seconds in (low, median, high)]
    return texts[1] if texts[0] == texts[2] else f"{texts[1]} ({texts[0]} to {texts[2]})"


def in_words(seconds: float) -> str:
    """`1 d 02:03:04`, `2:03:04`, or `12.5 s`."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    days, rest = divmod(whole, 86400)
    clock = f"{rest // 3600}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days} d {clock}" if days else clock

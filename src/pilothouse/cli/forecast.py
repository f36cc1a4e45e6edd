"""`pilothouse forecast`: a task file in simulated time."""

from __future__ import annotations

from math import inf
from pathlib import Path

import click

from pilothouse.cli.options import Seconds, complete_policy


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "-p", "--nodes", "platform", required=True, metavar="N|NxM", help="So many slots, or nodes x cores (4x28)."
)
@click.option(
    "--duration", required=True, metavar="SECONDS|DIR", help="How long a task takes, or an earlier run to learn from."
)
@click.option("--units", "-c", type=click.IntRange(1), default=1, show_default=True, help="Slots that each task needs.")
@click.option("--walltime", type=Seconds(above_zero=True), default=inf, metavar="SECONDS", help="The most that a task may take.")
@click.option(
    "--policy", default="fcfs", show_default=True, metavar="POLICY", shell_complete=complete_policy,
    help="Who decides: see `pilothouse policies`.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
def command(file: Path, platform: str, duration: str, units: int, walltime: float, policy: str, as_json: bool) -> None:
    """Say when the tasks of FILE would be done on nodes that you may not have.

    \b
    Examples:
      pilothouse forecast tasks.txt --nodes 4x28 --duration 90
      pilothouse forecast tasks.txt --nodes 64 --duration tasks.txt.run1
      pilothouse forecast tasks.txt --nodes 4x28 --duration tasks.txt.run1 -c 4 --policy easy
    """
    from pilothouse.campaign.forecast import TaskDurations, forecast
    from pilothouse.formats.task_file import check_file, read_file
    from pilothouse.launch import naming
    from pilothouse.views import documents

    naming.policy(policy)
    durations = TaskDurations.named(duration)
    check_file(file)
    with file.open("rb") as stream:
        lines = read_file(stream, str(file))
        found = forecast(lines, platform, durations, lambda: naming.policy(policy), units=units, walltime=walltime)
    if as_json:
        phases = [documents.ForecastPhase(tasks=phase.tasks, ends_at=phase.ends_at) for phase in found.phases]
        document = documents.ForecastDocument(
            tasks=found.tasks, seconds=found.seconds, utilisation=found.utilisation, guessed=found.guessed, phases=phases
        )
        click.echo(documents.text("forecast", document))
        return
    for number, phase in enumerate(found.phases, 1):
        what = f"{phase.tasks:,} task{'s' if phase.tasks != 1 else ''}"
        click.echo(f"  phase {number}: {what}, done after {in_words(phase.ends_at)}")
    click.echo(
        f"{file}: {found.tasks:,} tasks on {found.units:,} slots done after {in_words(found.seconds)}, "
        f"utilisation {100 * found.utilisation:.1f} %"
    )
    if found.guessed:
        click.echo(f"note: {found.guessed:,} tasks are not in {duration}: the mean was taken for them")


def in_words(seconds: float) -> str:
    """`1 d 02:03:04`, `2:03:04`, or `12.5 s`."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    days, rest = divmod(whole, 86400)
    clock = f"{rest // 3600}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days} d {clock}" if days else clock

"""Behind `pilothouse convert`: reads a workload of any format and writes it as an SWF log, whole or week by week."""

from __future__ import annotations

import gzip
from pathlib import Path

import click

from pilothouse.formats import swf
from pilothouse.formats.workload import Workload
from pilothouse.launch.simulation import read_all
from pilothouse.model.errors import InputError, quoted
from pilothouse.model.numerals import whole_number
from pilothouse.worlds.simulated.inputs import oddities_of, read_workloads
from pilothouse.worlds.simulated.physics.platform import Platform
from pilothouse.worlds.simulated.shaping import Shaping, weeks


def convert(
    *,
    platform: str,
    workloads: tuple[str, ...],
    events: tuple[str, ...],
    duration: str,
    target: str,
    load_factor: float,
    weeks: str | None,
) -> None:
    """The options are those of the command."""
    if events:
        raise InputError("--events", "a log has no place for external events")
    if len(workloads) != 1:
        raise InputError("-w", "one workload at a time", found=str(len(workloads)))
    if target != "-" and not target.endswith((".swf", ".swf.gz")):
        raise InputError(target, "not a kind of log that can be written", expected=".swf or .swf.gz")
    Shaping(load_factor).check()
    if platform:
        machine = Platform.named(platform)
        (read,) = read_all(workloads, machine, duration)
        units = machine.compute_count
    else:
        (read,) = read_workloads(workloads, 0)
        units = read.units
    for line in oddities_of(read):
        click.echo(f"note: {line}", err=True)
    chosen = _weeks(weeks, read)
    if len(chosen) > 1 and "{week}" not in target:
        raise InputError(target, f"{len(chosen)} weeks in one file", hint="put {week} into the name: log-{week}.swf")
    for week in chosen:
        made = Shaping(load_factor, week).of(read)
        text, oddities = swf.write_workload(made, units)
        for what, count in oddities.items():
            click.echo(f"note: {count:,} job{'s' if count > 1 else ''} {what}", err=True)
        _write(target.replace("{week}", str(week)), text, len(made.jobs))


def _weeks(text: str | None, workload: Workload) -> list[int] | list[None]:
    if text is None:
        return [None]
    if text == "all":
        return weeks(workload)
    found = [whole_number(part.strip()) for part in text.split(",")]
    numbers = [number for number in found if number is not None]
    if len(numbers) < len(found):
        raise InputError("--weeks", "not weeks", expected="all, or numbers with commas between them", found=quoted(text))
    return numbers


def _write(target: str, text: str, jobs: int) -> None:
    if target == "-":
        click.echo(text, nl=False)
        return
    data = text.encode()
    if target.endswith(".gz"):
        data = gzip.compress(data, mtime=0)  # without a date: the same jobs, the same bytes
    try:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).write_bytes(data)
    except OSError as problem:
        raise InputError(target, f"cannot be written: {problem.strerror}") from None
    click.echo(f"{target}: {jobs:,} jobs", err=True)

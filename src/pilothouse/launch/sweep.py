"""Behind `pilothouse sweep`: simulates every cell of a grid on many cores, keeps results as they come, and shows them.

In: a grid and a folder. Out, in the folder: `cells.jsonl` (the results so far; a sweep that was killed goes on from there),
`results.csv`, `results.parquet`, `summary.txt`, `plot.png` and `plot.svg`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import msgspec

from pilothouse.campaign.cell_cache import CellCache
from pilothouse.campaign.grid import Grid
from pilothouse.campaign.sweep_results import METRICS, Results, Row, check_metrics, summary
from pilothouse.journal.lock import hold
from pilothouse.launch import naming
from pilothouse.launch.cell import CellResult, CellTask, OtherInputs, make_task, run_cell, setup_of, takes_seed
from pilothouse.launch.running import calm_collector
from pilothouse.launch.workers import Died, in_processes
from pilothouse.model.errors import InputError, RunError
from pilothouse.views.progress import counted_progress
from pilothouse.worlds.simulated.generators import is_generated, with_seed
from pilothouse.worlds.simulated.inputs import DIALECT
from pilothouse.worlds.simulated.shaping import weeks

Count = Callable[[int], None]


class Places(msgspec.Struct, frozen=True):
    """Where the names of a grid are: paths in a grid file are relative to it. Workers may have another current folder."""

    folder: Path

    def of(self, name: str) -> str:
        file, mark, dialect = name.partition(DIALECT)
        place = self.folder / file
        return f"{place.absolute()}{mark}{dialect}" if place.is_file() else name

    def policy(self, name: str) -> str:
        file, colon, rest = name.partition(":")
        return self.of(file) + colon + rest if file.endswith(".py") else name


class Swept(msgspec.Struct, frozen=True):
    """A sweep that is over."""

    results: Results
    notes: Sequence[str]
    """What was odd about the inputs."""
    simulated: int
    kept: int
    """Cells whose results were there already."""

    @property
    def bad(self) -> list[Row]:
        return [row for row in self.results.rows if row.problem or row.waiting]


def sweep(grid: Grid, folder: Path, *, places: Places, workers: int = 1, dask: str = "", done: Count | None = None) -> Swept:
    """Simulates what is missing, and writes the table. `done(n)` is called when n cells of this run are done."""
    grid.check("grid")
    variants = grid.variants()
    for policy in variants:
        naming.policy(places.policy(policy))
    notes: dict[str, None] = {}
    whole_weeks: dict[tuple[str, str], list[int]] = {}
    for workload in grid.workloads:
        for platform in map(str, grid.platforms):
            source = places.of(workload)
            if is_generated(source) and grid.seeds:
                source = with_seed(source, grid.seed_numbers()[0])  # that of the first cell: workers inherit it
            setup = setup_of(source, places.of(platform))
            notes |= dict.fromkeys(setup.oddities)
            whole_weeks[workload, platform] = weeks(setup.workloads[0])

    def seeded(name: str) -> bool:
        return "seed=" not in name if is_generated(name) else name in variants and takes_seed(places.policy(name))

    cells = grid.cells(lambda workload, platform: whole_weeks[workload, platform], seeded)
    tasks = [make_task(c, places.of(c.workload), places.of(c.platform), places.policy(c.policy)) for c in cells]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InputError(str(folder), f"cannot be made: {problem.strerror}") from None
    with (
        hold(folder, InputError(str(folder), "another sweep writes there", hint="wait for it, or use another folder")),
        CellCache(folder / "cells.jsonl", CellResult) as cache,
    ):
        missing = list({task.key: task for task in tasks if cache.get(task.key) is None}.values())
        missing.sort(key=lambda task: (task.workload, task.platform, task.cell.load, task.cell.week or 0))  # reads are shared
        found = {task.key: cache.get(task.key) for task in tasks}
        with counted_progress(len(missing), "cells", already=len(tasks) - len(missing)) as shown:
            for count, (number, result) in enumerate(_simulated(missing, workers, dask), 1):
                key = missing[number].key
                if isinstance(result, Died):
                    found[key] = CellResult(problem=str(result))
                else:
                    found[key] = result
                    cache.put(key, result)
                shown(count)
                if done is not None:
                    done(count)
        rows = []
        for task in tasks:
            made = found[task.key]
            assert made is not None
            rows.append(Row(task.cell, variants[task.cell.policy], made.units, made.values, made.waiting, made.problem))
        results = Results(rows)
        _write(folder / "results.csv", lambda path: bool(path.write_bytes(results.csv().encode())))
        _write(folder / "results.parquet", results.write_parquet)
    return Swept(results, list(notes), len(missing), len(tasks) - len(missing))


def _simulated(tasks: list[CellTask], workers: int, dask: str) -> Iterator[tuple[int, CellResult | Died]]:
    try:
        if dask and tasks:
            from pilothouse.launch.dask_workers import on_dask

            yield from on_dask(run_cell, tasks, dask)
        else:
            yield from in_processes(lambda number: run_cell(tasks[number]), len(tasks), workers)
    except OtherInputs as problem:
        raise RunError(str(problem)) from None


def _write(path: Path, write: Callable[[Path], bool]) -> None:
    """Whole or not at all; what an earlier sweep wrote goes if this one cannot write it."""
    partial = path.with_name(path.name + ".new")
    try:
        if write(partial):
            os.replace(partial, path)
        else:
            path.unlink(missing_ok=True)
    except OSError as problem:
        raise RunError(f"{path} cannot be written: {problem.strerror}") from None


def command(
    *,
    grid_file: str | None,
    folder: str,
    given: dict[str, object],
    metrics: Sequence[str],
    base: str,
    workers: int,
    dask: str,
    plot: bool,
) -> int:
    """The options are those of the command; those in `given` replace what the file says. The exit code."""
    calm_collector()
    grid = Grid.read(grid_file) if grid_file else Grid()
    for name, value in given.items():
        setattr(grid, name, value)
    for name, option in (("workloads", "-w"), ("platforms", "-p")):
        if not getattr(grid, name):
            raise InputError(grid_file or "sweep", f"no {name}", hint=f"{option}, or {name} = [...] in a grid file")
    metrics = metrics or METRICS
    check_metrics(metrics)
    if base and base not in grid.variants():
        raise InputError("--base", f"{base} is not among the policies", expected=", ".join(grid.variants()))
    places = Places(Path(grid_file).parent if grid_file else Path())
    began = time.monotonic()
    swept = sweep(grid, Path(folder), places=places, workers=workers, dask=dask)
    took_s = time.monotonic() - began
    for note in swept.notes:
        click.echo(f"note: {note}")
    text = summary(swept.results, metrics, base)
    _write(Path(folder) / "summary.txt", lambda path: bool(path.write_bytes(text.encode())))
    click.echo(text, nl=False)
    files = [name for name in ("results.csv", "results.parquet") if (Path(folder) / name).is_file()] + ["summary.txt"]
    if plot:
        from pilothouse.campaign.sweep_plot import draw

        files += draw(swept.results, metrics, Path(folder), base)
    click.echo(f"{swept.simulated + swept.kept:,} cells: {swept.simulated:,} simulated in {took_s:.1f} s, {swept.kept:,} known")
    click.echo(f"files: {', '.join(str(Path(folder) / name) for name in files)}")
    return _report(swept)


def _report(swept: Swept) -> int:
    bad = swept.bad
    for row in bad[:10]:
        cell = row.cell
        place = " ".join(f"{name} {value}" for name, value in (("week", cell.week), ("seed", cell.seed)) if value is not None)
        what = row.problem or f"deadlock: {row.waiting:,} jobs were left waiting"
        click.echo(f"pilothouse: {cell.policy}, {cell.workload} on {cell.platform} {place}: {what}", err=True)
    if len(bad) > 10:
        click.echo(f"pilothouse: and {len(bad) - 10:,} more cells with problems: see results.csv", err=True)
    return 1 if bad else 0


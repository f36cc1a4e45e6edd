"""Plots of a run: utilisation, queue and Gantt chart over time, and several runs in one figure. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilothouse.formats import jobs_csv
from pilothouse.model.errors import InputError
from pilothouse.model.idset import IdSet
from pilothouse.model.record import JobRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_GANTT_JOBS = 20_000
"""A Gantt chart of more jobs shows only the first ones."""
SLICES = 100
Span = tuple[float, float, float, int]
"""Submitted, started, ended, units."""


def tee(record: Callable[[JobRecord], None], spans: list[Span]) -> Callable[[JobRecord], None]:
    """Also remembers when each job was where."""

    def both(job: JobRecord) -> None:
        record(job)
        if job.started_at is not None:
            spans.append((job.job.submitted_at, job.started_at, job.ended_at, len(job.units)))

    return both


def draw(prefix: str, units: int, *, title: str = "") -> list[str]:
    """Draws PREFIX + jobs.csv into PREFIX + plot.png and plot.svg; returns their paths."""
    plt = _pyplot()
    rows = [row for row in jobs_csv.read(prefix + "jobs.csv") if row.started_at is not None]
    spans = [(row.submitted_at, row.started_at or 0.0, row.ended_at or 0.0, row.width) for row in rows]
    figure, (top, middle, bottom) = plt.subplots(
        3, 1, figsize=(11, 9), sharex=True, layout="constrained", gridspec_kw={"height_ratios": [2, 2, 4]}
    )
    scale, unit = _scale(spans)
    _utilisation(top, spans, units, scale, title or "run")
    _queue(middle, spans, scale, "")
    _gantt(
        bottom, [(r.started_at or 0.0, r.ended_at or 0.0, IdSet.parse(r.allocated)) for r in rows[:MOST_GANTT_JOBS]], units, scale
    )
    if len(rows) > MOST_GANTT_JOBS:
        bottom.set_title(f"the first {MOST_GANTT_JOBS:,} of {len(rows):,} jobs", fontsize="small")
    bottom.set_xlabel(f"time ({unit})")
    top.set_title(title)
    paths = [prefix + "plot.png", prefix + "plot.svg"]
    for path in paths:
        figure.savefig(path, dpi=110)
    plt.close(figure)
    return paths


def check_figure(path: str) -> None:
    """Raises InputError, before a long simulation, if no figure could be drawn into that file."""
    _pyplot()
    if Path(path).suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(path, "cannot draw into this kind of file", expected=".png, .svg or .pdf")


def draw_comparison(runs: dict[str, list[Span]], units: int, path: str) -> None:
    """Utilisation, queue length and waiting times of several runs, one line each."""
    check_figure(path)
    plt = _pyplot()
    figure, (top, middle, bottom) = plt.subplots(3, 1, figsize=(11, 9), layout="constrained")
    scale, unit = _scale([span for spans in runs.values() for span in spans])
    for name, spans in runs.items():
        _mean_utilisation(top, spans, units, scale, name)
        _queue(middle, spans, scale, name)
        waits = sorted(start - submit for submit, start, _, _ in spans)
        bottom.plot([wait / scale for wait in waits], [(i + 1) / len(waits) for i in range(len(waits))], label=name)
    for axes in (top, middle):
        axes.set_xlabel(f"time ({unit})")
    bottom.set_xlabel(f"wait ({unit})")
    bottom.set_ylabel("share of jobs that waited less")
    bottom.set_xscale("symlog", linthresh=60 / scale)
    for axes in (top, middle, bottom):
        axes.legend(fontsize="small")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise InputError("--plot", "matplotlib is not installed", hint="pip install 'pilothouse[plot]'") from None
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "pilothouse"  # the same run, the same bytes
    matplotlib.rcParams["axes.grid"] = True
    matplotlib.rcParams["grid.alpha"] = 0.3
    import matplotlib.pyplot

    return matplotlib.pyplot


def _scale(spans: Sequence[Span]) -> tuple[float, str]:
    """Seconds in the unit that suits the length of the run, and its name."""
    length = max((span[2] for span in spans), default=0.0)
    for seconds, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if length > 4 * seconds:
            return seconds, name
    return 1.0, "seconds"


def _steps(changes: list[tuple[float, int]], scale: float) -> tuple[list[float], list[int]]:
    changes.sort()
    return [date / scale for date, _ in changes], list(accumulate(change for _, change in changes))


def _utilisation(axes: Axes, spans: Sequence[Span], units: int, scale: float, label: str) -> None:
    changes = [change for _, start, end, n in spans for change in ((start, n), (end, -n))]
    dates, used = _steps(changes, scale)
    axes.step(dates, [100 * u / units for u in used], where="post", linewidth=0.8, label=label)
    axes.set_ylabel("units in use (%)")
    axes.set_ylim(0, 105)


def _mean_utilisation(axes: Axes, spans: Sequence[Span], units: int, scale: float, label: str) -> None:
    """Averages over a hundred slices of time: several runs in one plot stay distinguishable."""
    length = max((span[2] for span in spans), default=0.0) / SLICES or 1.0
    used = [0.0] * (SLICES + 1)
    for _, start, end, n in spans:
        first, last = int(start / length), int(end / length)
        for slice_ in range(first, last + 1):
            overlap = min(end, (slice_ + 1) * length) - max(start, slice_ * length)
            used[slice_] += n * overlap
    dates = [(slice_ + 0.5) * length / scale for slice_ in range(SLICES)]
    axes.plot(dates, [100 * amount / (units * length) for amount in used[:SLICES]], label=label)
    axes.set_ylabel("units in use (%, mean)")
    axes.set_ylim(0, 105)


def _queue(axes: Axes, spans: Sequence[Span], scale: float, label: str) -> None:
    changes = [change for submit, start, _, _ in spans for change in ((submit, 1), (start, -1))]
    dates, waiting = _steps(changes, scale)
    axes.step(dates, waiting, where="post", linewidth=0.8, label=label)
    axes.set_ylabel("jobs waiting")
    axes.set_ylim(bottom=0)


def _gantt(axes: Axes, jobs: Sequence[tuple[float, float, IdSet]], units: int, scale: float) -> None:
    """One rectangle for each run of neighbouring units of a job."""
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import hsv_to_rgb

    boxes, colours = [], []
    for number, (start, end, allocated) in enumerate(jobs):
        colour = hsv_to_rgb((number * 0.618034 % 1.0, 0.45, 0.9))
        for first, last in allocated.intervals():
            left, right, low, high = start / scale, end / scale, first, last + 1
            boxes.append(((left, low), (right, low), (right, high), (left, high)))
            colours.append(colour)
    collection = PolyCollection(boxes, facecolors=colours, edgecolors="black", linewidths=0.1)
    collection.set_rasterized(len(boxes) > 2000)
    axes.add_collection(collection)
    axes.autoscale_view()
    axes.set_ylim(0, units)
    axes.set_ylabel("unit")

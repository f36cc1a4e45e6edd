"""The panels of a figure: each draws one thing of one or several runs into one pair of axes. Needs matplotlib.

Every panel labels what it draws with the run's name (`gid` of the artist), so that a test, or a reader of the SVG, finds
the numbers again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from pilothouse.views import plot_data as data
from pilothouse.views.metrics import Metrics, metrics_of
from pilothouse.views.plot_style import BAD, COLOURS, MACHINE_COLOURS, TINTS, length_text, scale_of_waits
from pilothouse.views.schedule import Schedule, Steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Patch

MOST_BOXES_OF_JOBS = 5_000
"""A Gantt chart of more jobs shows the busy share of groups of units instead of jobs."""
MOST_LABELS = 2_000
LABEL_PT = 6.0
_DENSITY_COLUMNS, _DENSITY_LINES = 600, 200


class Look(msgspec.Struct, frozen=True):
    """What all panels of a figure share."""

    begin: float
    end: float
    scale: float
    """Seconds in the unit of the axis of time."""
    tau: float
    colours: dict[str, str]
    metrics: dict[str, Metrics]

    def line_pt(self, name: str) -> float:
        """Later runs have thinner lines: where two curves are one, both are seen."""
        place = list(self.colours).index(name)
        return 1.0 + 0.8 * (len(self.colours) - 1 - place) / max(1, len(self.colours) - 1)

    def shows(self, run: Schedule) -> list[int]:
        """The rows of jobs that ran within the axis of time."""
        return [row for row in run.ran() if run.started[row] < self.end and run.held_until(row) > self.begin]

    @classmethod
    def of(cls, runs: Sequence[Schedule], begin: float, end: float, scale: float, tau: float) -> Look:
        colours = {run.name: COLOURS[place % len(COLOURS)] for place, run in enumerate(runs)}
        return cls(begin, end, scale, tau, colours, {run.name: metrics_of(run, tau) for run in runs})


def utilisation(axes: Axes, runs: Sequence[Schedule], look: Look) -> list[Patch]:
    window, _ = _timeline(axes, {run.name: (run.busy(), 100.0 / (run.units or 1)) for run in runs}, look)
    axes.set_ylabel(_averaged("units in use (%)", window))
    axes.set_ylim(0, 103)
    handles: list[Patch] = []
    for run in runs:
        if run.capacity is None:
            continue
        offered = data.curve(run.capacity, look.begin, look.end, None)
        if (offered.values != run.units).any():
            handles = [axes.stairs(
                100.0 * offered.values / run.units, offered.edges / look.scale, baseline=None, color="black", linestyle=":",
                linewidth=0.9, label="units offered",
            )]  # fmt: skip
    return handles


def queue(axes: Axes, runs: Sequence[Schedule], look: Look) -> list[Patch]:
    window, handles = _timeline(axes, {run.name: (run.waiting(), 1.0) for run in runs}, look, ranges=True)
    axes.set_ylabel(_averaged("jobs waiting", window))
    axes.set_ylim(bottom=0)
    _whole_numbers(axes)
    return handles


def energy(axes: Axes, runs: Sequence[Schedule], look: Look) -> list[Patch]:
    window = data.window_length(look.begin, look.end)
    curves = {run.name: data.rate(run.energy, look.begin, look.end, window) for run in runs if run.energy is not None}
    most = max((float(curve.values.max(initial=0.0)) for curve in curves.values()), default=0.0)
    size, unit = next(((s, u) for s, u in ((1e6, "MW"), (1e3, "kW")) if most >= s), (1.0, "W"))
    for name, curve in curves.items():
        _stairs(axes, name, curve, look, 1.0 / size)
    axes.set_ylabel(_averaged(f"power ({unit})", window))
    axes.set_ylim(0, 1.05 * most / size or 1.0)
    return []


def memory(axes: Axes, runs: Sequence[Schedule], look: Look) -> list[Patch]:
    """The sum of the peaks of running tasks: the most that they may have used at once."""
    timelines = {run.name: run.memory_in_use() for run in runs}
    most = max((steps.highest for steps in timelines.values()), default=0.0)
    size, unit = next(((s, u) for s, u in ((2**40, "TiB"), (2**30, "GiB")) if most >= s), (2**20, "MiB"))
    window, _ = _timeline(axes, {name: (steps, 1.0 / size) for name, steps in timelines.items()}, look)
    axes.set_ylabel(_averaged(f"memory of tasks\n(peaks, {unit})", window))
    axes.set_ylim(bottom=0)
    return []


def machines(axes: Axes, runs: Sequence[Schedule], look: Look) -> list[Patch]:
    """How many machines are in which state, stacked; of one run."""
    (run,) = runs
    busiest = max((len(steps.dates) for steps in run.machine_states.values()), default=0)
    window = data.window_length(look.begin, look.end) if busiest > data.MOST_STEPS else None
    below: data.Numbers | None = None
    handles: list[Patch] = []
    cuts = sorted({date for steps in run.machine_states.values() for date in steps.dates if look.begin < date < look.end})
    for state in MACHINE_COLOURS:
        steps = run.machine_states.get(state)
        if steps is None:
            continue
        curve = data.curve(steps, look.begin, look.end, window)
        edges = curve.edges if window else np.array([look.begin, *cuts, look.end])
        values = curve.values if window else np.array([steps.at(date) for date in edges[:-1]])
        base = np.zeros(len(values)) if below is None else below
        patch = axes.stairs(
            base + values, edges / look.scale, baseline=base, fill=True, color=MACHINE_COLOURS[state], label=state, gid=state
        )
        below = base + values
        if values.any():
            handles.append(patch)
    axes.set_ylabel(_averaged("machines", window))
    axes.set_ylim(bottom=0)
    return handles


def waits(axes: Axes, runs: Sequence[Schedule], look: Look) -> list[Patch]:
    longest = 0.0
    for run in runs:
        values = data.waits(run)
        longest = max(longest, float(values.max(initial=0.0)))
        _distribution(axes, run.name, values, look.metrics[run.name].wait.mean, look)
    scale_of_waits(axes, longest)
    return []


def slowdowns(axes: Axes, runs: Sequence[Schedule], look: Look) -> list[Patch]:
    most = 1.0
    for run in runs:
        values = data.bounded_slowdowns(run, look.tau)
        most = max(most, float(values.max(initial=1.0)))
        _distribution(axes, run.name, values, look.metrics[run.name].bounded_slowdown.mean, look)
    axes.set_xscale("log")
    axes.set_xlim(1, max(most * 1.1, 2.0))
    axes.set_xlabel(f"bounded slowdown (bound {look.tau:g} s)")
    return []


def gantt(axes: Axes, run: Schedule, look: Look, *, key: bool = True) -> list[Patch]:
    """Jobs as boxes, or, where there are too many of them, the busy share of groups of units (`key`: with the key of it)."""
    axes.set_ylim(0, max(run.units, 1))
    axes.grid(False)
    _name_units(axes, run)
    if len(look.shows(run)) > MOST_BOXES_OF_JOBS:
        _density(axes, run, look, key=key)
        return []
    return _boxes(axes, run, look)


# ---- what they share


def _timeline(
    axes: Axes, timelines: dict[str, tuple[Steps, float]], look: Look, *, ranges: bool = False
) -> tuple[float | None, list[Patch]]:
    """Draws step functions. The length of the windows if they were averaged: all of a panel have the same. With `ranges`
    a single run also shows the least and the most of each window."""
    busiest = max(
        (sum(look.begin < date < look.end for date in steps.dates) for steps, _ in timelines.values()), default=0
    )
    window = data.window_length(look.begin, look.end) if busiest > data.MOST_STEPS else None
    handles: list[Patch] = []
    for name, (steps, factor) in timelines.items():
        curve = data.curve(steps, look.begin, look.end, window)
        if len(timelines) == 1:
            top, bottom = curve.values, np.zeros(len(curve.values))
            if ranges and curve.highs is not None and curve.lows is not None:
                top, bottom = curve.highs, curve.lows
            band = axes.stairs(
                top * factor, curve.edges / look.scale, baseline=bottom * factor, fill=True, alpha=0.22,
                color=look.colours[name], linewidth=0, label="least to most",
            )  # fmt: skip
            handles = [band] if top is curve.highs else []
        _stairs(axes, name, curve, look, factor)
    return window, handles


def _whole_numbers(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _stairs(axes: Axes, name: str, curve: data.Curve, look: Look, factor: float) -> None:
    axes.stairs(
        curve.values * factor, curve.edges / look.scale, baseline=None, color=look.colours[name],
        linewidth=look.line_pt(name), gid=name,
    )  # fmt: skip


def _averaged(label: str, window: float | None) -> str:
    return label if window is None else f"{label}\n{length_text(window)} means"


def _distribution(axes: Axes, name: str, values: data.Numbers, mean: float, look: Look) -> None:
    """A step ECDF, with a dot at the mean."""
    axes.set_ylabel("share of jobs")
    axes.set_ylim(0, 1.02)
    if not len(values):
        return
    points, shares = data.distribution(values)
    x = np.concatenate(([points[0]], points))
    y = np.concatenate(([0.0], shares))
    axes.plot(x, y, drawstyle="steps-post", color=look.colours[name], gid=name)
    axes.plot([mean], [float((values <= mean).mean())], "o", color=look.colours[name], markersize=4, gid=f"mean of {name}")


# ---- the Gantt chart


def _name_units(axes: Axes, run: Schedule) -> None:
    if 1 < len(run.nodes) <= 16:
        axes.set_yticks([node.first + node.count / 2 for node in run.nodes], [node.name for node in run.nodes])
        axes.tick_params(axis="y", length=0)
        for node in run.nodes[1:]:
            axes.axhline(node.first, color="black", linewidth=0.4)
        return
    axes.set_ylabel("unit")
    if run.units <= 16:
        axes.set_yticks([unit + 0.5 for unit in range(run.units)], [str(unit) for unit in range(run.units)])
        axes.tick_params(axis="y", length=0)
    else:
        _whole_numbers(axes)


def _boxes(axes: Axes, run: Schedule, look: Look) -> list[Patch]:
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Patch

    rows, starts, ends, lows, highs = data.boxes(run, look.shows(run))
    left, right = starts / look.scale, ends / look.scale
    corners = np.stack([left, lows, right, lows, right, highs, left, highs], axis=1).reshape(-1, 4, 2)
    states = [run.states[row] for row in rows]
    handles: list[Patch] = []
    for state in dict.fromkeys([None, *(state for state in states if state in BAD)]):
        mine = np.array([(known if known in BAD else None) is state for known in states], dtype=bool)
        if not mine.any():
            continue
        name, hatch, edge = BAD[state] if state is not None else ("", "", "#404040")
        tints = [TINTS[int(row) % len(TINTS)] for row in rows[mine]]
        box = PolyCollection(list(corners[mine]), facecolors=tints, edgecolors=edge, linewidths=0.25, hatch=hatch or None)
        box.set_rasterized(len(rows) > MOST_BOXES_OF_JOBS)
        box.set_gid(name or "jobs")
        axes.add_collection(box, autolim=False)
        if state is not None:
            handles.append(Patch(facecolor="white", edgecolor=edge, hatch=hatch, label=name, linewidth=0.5))
    return handles


def label_jobs(axes: Axes, run: Schedule, look: Look) -> None:
    """Writes the number of each job into its widest box, where it fits. The size of the axes must be settled."""
    from matplotlib.patheffects import withStroke

    shown = look.shows(run)
    if len(shown) > MOST_LABELS:
        return
    per_point = 72.0 / axes.figure.dpi
    for row in shown:
        end = min(run.held_until(row), look.end)
        if not run.allocated[row]:
            continue
        low, high = data.widest(run.allocated[row])
        begin = max(run.started[row], look.begin)
        (x0, y0), (x1, y1) = axes.transData.transform([(begin / look.scale, low), (end / look.scale, high + 1)])
        text = run.ids[row].partition("!")[2] or run.ids[row]
        needed = len(text) * LABEL_PT * 0.62 + 2
        if (x1 - x0) * per_point >= needed and (y1 - y0) * per_point >= LABEL_PT + 1:
            middle = ((begin + end) / 2 / look.scale, (low + high + 1) / 2)
            halo = [withStroke(linewidth=2, foreground="white")] if run.states[row] in BAD else []
            axes.annotate(text, middle, ha="center", va="center", fontsize=LABEL_PT, path_effects=halo)


def _density(axes: Axes, run: Schedule, look: Look, *, key: bool) -> None:
    lines = data.unit_rows(run, _DENSITY_LINES)
    shares = data.density(run, look.begin, look.end, _DENSITY_COLUMNS, lines)
    image = axes.imshow(
        shares, origin="lower", aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="nearest", gid=run.name,
        extent=(look.begin / look.scale, look.end / look.scale, 0, run.units),
    )  # fmt: skip
    if not key:
        return
    bar = axes.figure.colorbar(image, cax=axes.inset_axes((0.76, 1.045, 0.22, 0.03)), orientation="horizontal")
    bar.set_ticks([0, 0.5, 1], labels=["idle", "half", "busy"])
    bar.ax.tick_params(labelsize=6, length=2, pad=1, top=True, labeltop=True, bottom=False, labelbottom=False)
    bar.outline.set_linewidth(0.4)

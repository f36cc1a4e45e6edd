"""Figures of runs, fit for a paper: the panels that were asked for, on shared axes, with one legend. Needs matplotlib.

In: schedules (views/schedule.py), and kinds of panels. Out: a PNG, SVG or PDF. Several runs share the panels of timelines
and distributions; each has a Gantt chart of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilothouse.model.errors import InputError, suggestion
from pilothouse.views.plot_style import check_figure, pyplot, time_unit
from pilothouse.views.schedule import Schedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("utilisation", "queue", "energy", "memory", "machines", "gantt", "waits", "slowdowns")
"""In the order in which they are drawn, from top to bottom."""
OF_ONE_RUN = ("utilisation", "queue", "gantt")
OF_SEVERAL = ("utilisation", "queue", "waits", "slowdowns")
DISTRIBUTIONS = ("waits", "slowdowns")
_HEIGHTS_IN = {"gantt": 2.5, "waits": 1.9, "slowdowns": 1.9}
_HEIGHT_IN = 1.3
MOST_RUNS = 8
"""As many colours as a reader tells apart."""


def kinds_of(text: str, runs: Sequence[Schedule]) -> tuple[str, ...]:
    """`gantt,queue` as kinds; "" is what suits the runs. Raises InputError."""
    chosen = [part.strip() for part in text.split(",") if part.strip()]
    for kind in chosen:
        if kind not in KINDS:
            expected = f"some of {', '.join(KINDS)}"
            raise InputError("--kind", f"no such plot: {kind}", expected=expected, hint=suggestion(kind, KINDS))
    if not chosen:
        return OF_ONE_RUN if len(runs) == 1 else OF_SEVERAL
    if "energy" in chosen and not any(run.energy for run in runs):
        raise InputError("--kind", "no energy was recorded in these runs", hint="simulate --energy records it")
    if "memory" in chosen and all(isnan(used) for run in runs for used in run.memory):
        raise InputError("--kind", "no memory was measured in these runs", hint="live runs measure it")
    if "machines" in chosen and (len(runs) != 1 or not runs[0].machine_states):
        raise InputError("--kind", "machines needs one run whose states of machines were recorded",
                         hint="simulate --trace-machines records them")  # fmt: skip
    return tuple(kind for kind in KINDS if kind in chosen)


def draw(runs: Sequence[Schedule], paths: Sequence[str], kinds: Sequence[str] = (), **settings: Any) -> None:
    """Draws one figure into each of the files; settings are those of `figure`."""
    for path in paths:
        check_figure(path)
    made = figure(runs, kinds or kinds_of("", runs), **settings)
    try:
        for path in paths:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            # Without a date the same run gives the same bytes.
            dated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(Path(path).suffix.lower())
            made.savefig(path, dpi=200, metadata=dated)
    finally:
        pyplot().close(made)


def figure(
    runs: Sequence[Schedule],
    kinds: Sequence[str],
    *,
    tau: float = 10.0,
    begin: float | None = None,
    end: float | None = None,
    width_in: float = 7.2,
    title: str = "",
) -> Figure:
    """The figure, laid out. `begin` and `end` cut the axis of time."""
    plt = pyplot()
    if len(runs) > MOST_RUNS:
        raise InputError("plot", f"{len(runs)} runs in one figure", expected=f"at most {MOST_RUNS}")
    from pilothouse.views import plot_panels as panels

    first = min((run.first_submission() for run in runs), default=0.0) if begin is None else begin
    last = max((run.now for run in runs), default=1.0) if end is None else end
    if last <= first:
        last = first + 1.0
    scale, unit = time_unit(last - first if begin is not None or end is not None else last)
    look = panels.Look.of(runs, first, last, scale, tau)
    over_time: list[tuple[str, Sequence[Schedule]]] = []
    for kind in kinds:
        if kind not in DISTRIBUTIONS:
            over_time += [(kind, [run]) for run in runs] if kind == "gantt" else [(kind, runs)]
    spread = [kind for kind in kinds if kind in DISTRIBUTIONS]
    heights = [_HEIGHTS_IN.get(kind, _HEIGHT_IN) for kind, _ in over_time] + [_HEIGHTS_IN[kind] for kind in spread[:1]]
    legend_in = 0.3
    made = plt.figure(figsize=(width_in, sum(heights) + legend_in + 0.35), layout="constrained")
    made.get_layout_engine().set(h_pad=0.04, w_pad=0.04, hspace=0.03)
    grid = made.add_gridspec(len(heights), 2, height_ratios=heights)
    handles = _run_handles(look, runs) if len(runs) > 1 else []
    shared: Any = None
    charts: list[tuple[Any, Schedule]] = []
    for line, (kind, shown) in enumerate(over_time):
        axes = made.add_subplot(grid[line, :], sharex=shared)
        shared = shared or axes
        if kind == "gantt":
            handles += panels.gantt(axes, shown[0], look, key=not charts)
            charts.append((axes, shown[0]))
            if len(runs) > 1:
                axes.set_title(shown[0].name, loc="left")
        else:
            handles += getattr(panels, kind)(axes, shown, look)
        axes.set_xlim(first / scale, last / scale)
        is_last = line == len(over_time) - 1
        axes.tick_params(axis="x", labelbottom=is_last)
        if is_last:
            axes.set_xlabel(f"time ({unit})")
    for place, kind in enumerate(spread):
        axes = made.add_subplot(grid[len(over_time), place if len(spread) > 1 else slice(None)])
        getattr(panels, kind)(axes, runs, look)
        if place:
            axes.set_ylabel("")
    if spread:
        handles.append(_mean_handle())
    made.align_ylabels()
    if title:
        made.suptitle(title, fontsize=9)
    if handles:
        by_label = {str(handle.get_label()): handle for handle in handles}
        made.legend(handles=list(by_label.values()), loc="outside upper center", ncols=min(len(by_label), 5), frameon=False)
    made.draw_without_rendering()
    for axes, run in charts:
        if len(look.shows(run)) <= panels.MOST_BOXES_OF_JOBS:
            panels.label_jobs(axes, run, look)
    return made  # type: ignore[no-any-return]


def _run_handles(look: Any, runs: Sequence[Schedule]) -> list[Any]:
    from matplotlib.lines import Line2D

    return [Line2D([], [], color=look.colours[run.name], label=run.name) for run in runs]


def _mean_handle() -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color="#555555", marker="o", markersize=4, linestyle="", label="mean")

"""How plots look: fonts and sizes for a page of a paper, colours that colour-blind readers tell apart, axes of time."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pilothouse.model.errors import InputError
from pilothouse.model.lifecycle import JobState

KINDS_OF_FILE = (".png", ".svg", ".pdf")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#999999")
"""The palette of Okabe and Ito, in an order that keeps neighbours apart; one colour a run."""
TINTS = ("#8FBFDC", "#F3B183", "#8CD0B4", "#E3B9CF", "#BFE0F5", "#F5D489", "#C9C9C9", "#B9B5E0")
"""Boxes of a Gantt chart: light enough for a label in black."""
BAD: dict[JobState, tuple[str, str, str]] = {
    JobState.FAILED: ("failed", "xxxxxx", "#8B0000"),
    JobState.LOST: ("lost", "xxxxxx", "#8B0000"),
    JobState.TIMED_OUT: ("cut at its walltime", "//////", "#8B0000"),
    JobState.KILLED: ("killed", "\\\\\\\\\\\\", "#8B0000"),
}
"""What a job that did not succeed is called, and how it is hatched."""
MACHINE_COLOURS = {
    "computing": "#0072B2", "idle": "#BFE0F5", "switching on": "#E69F00", "switching off": "#D55E00", "sleeping": "#E8E8E8",
}  # fmt: skip
_TICKS_S = (
    (0.0, "0"), (1.0, "1 s"), (10.0, "10 s"), (60.0, "1 min"), (600.0, "10 min"), (3600.0, "1 h"), (6 * 3600.0, "6 h"),
    (86400.0, "1 d"), (7 * 86400.0, "1 wk"), (30 * 86400.0, "30 d"), (365 * 86400.0, "1 yr"),
)  # fmt: skip


def pyplot() -> Any:
    """matplotlib, set up. Raises InputError if it is not installed."""
    try:
        import matplotlib
    except ImportError:
        raise InputError("plot", "matplotlib is not installed", hint="pip install 'pilothouse[plot]'") from None
    if "ipykernel" not in sys.modules:  # a notebook has a backend of its own, which shows figures
        matplotlib.use("Agg")
    matplotlib.rcParams.update({
        "svg.hashsalt": "pilothouse",  # the same run, the same bytes
        "pdf.fonttype": 42,  # TrueType: publishers refuse the default
        "font.family": "sans-serif",
        "font.size": 8,
        "axes.titlesize": 8,
        "axes.labelsize": 8,
        "xtick.labelsize": 7,
        "ytick.labelsize": 7,
        "legend.fontsize": 7.5,
        "axes.linewidth": 0.6,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.35,
        "grid.linewidth": 0.4,
        "axes.axisbelow": True,
        "hatch.linewidth": 0.5,
        "lines.linewidth": 1.1,
    })  # fmt: skip
    import matplotlib.pyplot

    return matplotlib.pyplot


def check_figure(path: str) -> None:
    """Raises InputError, before a long simulation, if no figure could be drawn into that file."""
    pyplot()
    if Path(path).suffix.lower() not in KINDS_OF_FILE:
        raise InputError(path, "cannot draw into this kind of file", expected=".png, .svg or .pdf")


def time_unit(length: float) -> tuple[float, str]:
    """Seconds in the unit that suits a length of time, and its name."""
    for seconds, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if length > 4 * seconds:
            return seconds, name
    return 1.0, "seconds"


def length_text(seconds: float) -> str:
    """`6 h`: the length of a window."""
    for size, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:g} {name}"
    return f"{seconds:g} s"


def scale_of_waits(axes: Any, longest: float) -> None:
    """An axis of seconds: even for short waits, otherwise even up to a minute and logarithmic beyond."""
    if longest <= 120:
        axes.set_xlabel("wait (s)")
        axes.set_xlim(left=0)
        return
    axes.set_xscale("symlog", linthresh=60.0, linscale=0.6)
    shown = [(seconds, text) for seconds, text in _TICKS_S if not 0 < seconds < 60 and seconds <= longest * 1.2]
    axes.set_xticks([seconds for seconds, _ in shown], [text for _, text in shown])
    axes.set_xticks([], minor=True)
    axes.set_xlim(0, longest * 1.05)
    axes.set_xlabel("wait")

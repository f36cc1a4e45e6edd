"""Figures of a sweep: means with intervals of confidence. With several loads, curves over the load; else dots. Needs matplotlib.

In: results and metrics. Out: plot.png and plot.svg in the folder of the sweep: a row of panels for each workload and
platform, a column for each metric.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from pathlib import Path
from typing import Any

from pilothouse.campaign.significance import FEWEST
from pilothouse.campaign.sweep_results import Results, Row, mean_of, repeated, verdicts
from pilothouse.model.errors import InputError
from pilothouse.views.plot_style import COLOURS, pyplot

MOST_ROWS = 12
_UNITS = {"utilisation": " (%)", "makespan": " (s)", "wait": " (s)", "turnaround": " (s)", "backfilled": " (%)"}
MARKERS = "osD^vPX*"


def draw(results: Results, metrics: Sequence[str], folder: Path, base: str = "") -> list[str]:
    """Draws; the names of the files. Only the first MOST_ROWS of workload and platform are drawn."""
    made = figure(results, metrics, base)
    names = ["plot.png", "plot.svg"]
    for name in names:
        made.savefig(folder / name, dpi=200, metadata={"Date": None} if name.endswith(".svg") else None)
    pyplot().close(made)
    return names


def figure(results: Results, metrics: Sequence[str], base: str = "") -> Any:
    plt = pyplot()
    places: dict[tuple[str, str], dict[float, dict[str, list[Row]]]] = {}
    for (workload, platform, load), runs in results.cases().items():
        places.setdefault((workload, platform), {})[load] = runs
    shown = dict(list(places.items())[:MOST_ROWS])
    policies = list(dict.fromkeys(row.cell.policy for row in results.rows))
    if not shown:
        raise InputError("plot", "no cell to draw")
    several = any(len(loads) > 1 for loads in shown.values())
    height = 2.25 if several else 0.9 + 0.2 * len(policies)
    width = max(4.0, 1.2 + 2.0 * len(metrics) + (0 if several else 0.5))
    columns = max(1, min(4, int(width / (0.55 + 0.065 * max(map(len, policies))))))
    legend = 0.18 * -(-len(policies) // columns) if several else 0.0
    made = plt.figure(figsize=(width, height * len(shown) + legend + 0.25), layout="constrained")
    axes = made.subplots(len(shown), len(metrics), squeeze=False)
    colours = {policy: COLOURS[number % len(COLOURS)] for number, policy in enumerate(policies)}
    for line, ((workload, platform), loads) in zip(axes, shown.items(), strict=True):
        for column, (panel, metric) in enumerate(zip(line, metrics, strict=True)):
            if several:
                _curves(panel, loads, metric, policies, colours)
            else:
                _dots(panel, next(iter(loads.values())), metric, policies, colours, base, names=column == 0)
            label = metric.replace("_", " ") + next((unit for key, unit in _UNITS.items() if metric.startswith(key)), "")
            if several:
                panel.set_ylabel(label)
                panel.set_xlabel("load")
            else:
                panel.set_xlabel(label)
        line[0].set_title(f"{Path(workload).name} on {Path(platform).name}", loc="left")
    most, kind = max((repeated(runs) for runs in results.cases().values()), key=lambda found: found[0])
    if most >= FEWEST:
        judged = "" if several else f"; hollow: no significant difference to {base or policies[0]}"
        made.supxlabel(f"95 % intervals over {kind}{judged}", fontsize=7, x=0.01, ha="left")
    if several:
        handles = axes[0][0].get_legend_handles_labels()
        made.legend(*handles, loc="outside upper center", ncols=columns, frameon=False)
    return made


def _dots(panel: Any, cases: dict[str, list[Row]], metric: str, policies: list[str], colours: dict[str, str], base: str,
          *, names: bool) -> None:  # fmt: skip
    """One line a policy. An empty dot: it does not differ significantly from the base."""
    judged = {found.policy: found for found in verdicts(cases, [metric], base)}
    for place, policy in enumerate(policies):
        rows = cases.get(policy, [])
        found = mean_of(rows, metric)
        if isnan(found.mean):
            continue
        if repeated(cases)[0] >= FEWEST:
            panel.plot([found.low, found.high], [place, place], color=colours[policy], linewidth=1.6, solid_capstyle="butt")
        difference = judged.get(policy)
        same = difference is not None and difference.interval is not None and not difference.significant
        face = "white" if same else colours[policy]
        panel.plot([found.mean], [place], marker="o", markersize=4.5, color=colours[policy], markerfacecolor=face, gid=policy)
    panel.set_yticks(range(len(policies)), policies if names else [""] * len(policies))
    panel.set_ylim(len(policies) - 0.5, -0.5)
    panel.grid(axis="y", visible=False)
    panel.margins(x=0.12)
    panel.locator_params(axis="x", nbins=4)
    panel.xaxis.set_major_formatter("{x:,g}")


def _curves(panel: Any, loads: dict[float, dict[str, list[Row]]], metric: str, policies: list[str],
            colours: dict[str, str]) -> None:  # fmt: skip
    for number, policy in enumerate(policies):
        found = [(load, mean_of(cases[policy], metric), repeated(cases)[0]) for load, cases in sorted(loads.items())
                 if policy in cases]  # fmt: skip
        found = [(load, mean, count) for load, mean, count in found if not isnan(mean.mean)]
        x = [load for load, _, _ in found]
        if all(count >= FEWEST for _, _, count in found):
            low, high = [mean.low for _, mean, _ in found], [mean.high for _, mean, _ in found]
            panel.fill_between(x, low, high, color=colours[policy], alpha=0.15, linewidth=0)
        panel.plot(x, [mean.mean for _, mean, _ in found], color=colours[policy], marker=MARKERS[number % len(MARKERS)],
                   markersize=3.5, label=policy, gid=policy)  # fmt: skip
    panel.set_xticks(sorted(loads))
    panel.yaxis.set_major_formatter("{x:,g}")

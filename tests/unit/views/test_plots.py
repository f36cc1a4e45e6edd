"""Plots: what is drawn is what the metrics say. The numbers are read back from the figure."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

import components
from pilothouse.core.session import Session
from pilothouse.launch import naming
from pilothouse.launch.simulation import load
from pilothouse.model.errors import InputError
from pilothouse.model.lifecycle import JobState
from pilothouse.views import plot_data, plot_panels, plots
from pilothouse.views.metrics import Collector, Metrics
from pilothouse.views.schedule import Schedule, Steps

DAY = 86400.0


def simulated(policy: str, workload: str = "kth-sp2-5000.swf.gz", platform: str = "100") -> tuple[Schedule, Metrics]:
    setup = load(platform, [str(components.ROOT / "examples" / workload)])
    schedule = Schedule(name=policy, path="", live=False, policy=policy, units=setup.begins.units)
    collector = Collector(10.0, schedule.take)
    Session(setup.world(collector.add), naming.decider(policy), name=policy).run()
    return schedule, collector.metrics(schedule.units)


@pytest.fixture(scope="module")
def runs() -> dict[str, tuple[Schedule, Metrics]]:
    return {policy: simulated(policy) for policy in ("easy", "fcfs")}


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    pyplot.close("all")


def drawn(figure: Figure, gid: str, axes: int = 0) -> Any:
    """The artist of that name in a panel."""
    (found,) = [artist for artist in figure.axes[axes].get_children() if artist.get_gid() == gid]
    return found


def integral(figure: Figure, gid: str, axes: int = 0) -> float:
    values, edges, _ = drawn(figure, gid, axes).get_data()
    return float((values * np.diff(edges)).sum()) * DAY


def test_timelines_average_to_the_metrics_whatever_the_order(runs: dict[str, tuple[Schedule, Metrics]]) -> None:
    for order in (("easy", "fcfs"), ("fcfs", "easy")):
        figure = plots.figure([runs[name][0] for name in order], ("utilisation", "queue"))
        for name in order:
            schedule, metrics = runs[name]
            busy = integral(figure, name, 0) / 100 * schedule.units
            assert busy == pytest.approx(metrics.utilisation * schedule.units * metrics.makespan, rel=1e-9)
            assert integral(figure, name, 1) == pytest.approx(metrics.wait.mean * metrics.jobs, rel=1e-9)
        heights = [drawn(figure, name, 1).get_data()[0].max() for name in order]
        assert figure.axes[1].get_ylim()[1] >= max(heights), "no curve is cut off"
        edges = [list(drawn(figure, name, 0).get_data()[1]) for name in order]
        shared = min(map(len, edges)) - 1
        assert edges[0][:shared] == edges[1][:shared], "the same windows"
        assert figure.axes[0].get_xlim() == figure.axes[1].get_xlim()


def test_distributions_pass_through_the_metrics(runs: dict[str, tuple[Schedule, Metrics]]) -> None:
    figure = plots.figure([schedule for schedule, _ in runs.values()], ("waits", "slowdowns"))
    for name, (_, metrics) in runs.items():
        for axes, spread in enumerate((metrics.wait, metrics.bounded_slowdown)):
            line = drawn(figure, name, axes)
            assert line.get_drawstyle() == "steps-post"
            x, y = line.get_data()
            assert x[-1] == pytest.approx(spread.max, rel=1e-9)
            assert y[-1] == 1.0
            for share, expected in ((0.5, spread.median), (0.95, spread.p95)):
                assert x[np.searchsorted(y, share - 1e-9)] == pytest.approx(expected, rel=0.01)
            assert drawn(figure, f"mean of {name}", axes).get_xdata()[0] == spread.mean


def test_the_density_holds_all_busy_time(runs: dict[str, tuple[Schedule, Metrics]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot_panels, "MOST_BOXES_OF_JOBS", 1000)
    schedule, metrics = runs["easy"]
    figure = plots.figure([schedule], ("gantt",))
    cells = drawn(figure, "easy").get_array()
    begin, end = schedule.first_submission(), schedule.now
    assert cells.mean() * (end - begin) == pytest.approx(metrics.utilisation * metrics.makespan, rel=1e-9)


@given(
    st.lists(st.tuples(st.floats(0, 90), st.floats(0.1, 30), st.integers(0, 9), st.integers(1, 4)), min_size=1, max_size=5),
    st.integers(1, 13),
    st.integers(1, 10),
)
def test_each_cell_of_the_density(jobs: list[tuple[float, float, int, int]], columns: int, lines: int) -> None:
    schedule = Schedule(name="", path="", live=False, units=10)
    for start, length, first, count in jobs:
        schedule.ids.append("x")
        schedule.started.append(start)
        schedule.ended.append(start + length)
        schedule.allocated.append(f"{first}-{min(first + count - 1, 9)}")
    found = plot_data.density(schedule, 0, 100, columns, lines)
    expected = np.zeros((lines, columns))
    for start, length, first, count in jobs:
        across = [_overlap(start, start + length, i * 100 / columns, (i + 1) * 100 / columns) for i in range(columns)]
        up = [_overlap(first, min(first + count, 10), i * 10 / lines, (i + 1) * 10 / lines) for i in range(lines)]
        expected += np.outer(up, across)
    assert found == pytest.approx(np.minimum(expected, 1.0), abs=1e-6)


def _overlap(begin: float, end: float, low: float, high: float) -> float:
    return max(0.0, min(end, high) - max(begin, low)) / (high - low)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 50)), min_size=1), st.integers(1, 60))
def test_windows_keep_the_area_and_the_extremes(spans: list[tuple[int, int]], window: int) -> None:
    steps = Steps.summed([c for at, length in spans for c in ((float(at), 1.0), (float(at + length), -1.0))])
    curve = plot_data.curve(steps, 0.0, 150.0, float(window))
    assert (curve.values * np.diff(curve.edges)).sum() == pytest.approx(sum(length for _, length in spans))
    assert curve.highs is not None
    assert curve.lows is not None
    assert curve.highs.max() == steps.highest
    for place in range(len(curve.values)):
        levels = [steps.at(date) for date in range(ceil(curve.edges[place]), ceil(curve.edges[place + 1]))]
        if levels:
            assert (curve.lows[place], curve.highs[place]) == (min(levels), max(levels))


def test_equal_dates_are_one_step() -> None:
    schedule, _ = simulated("easy", "tiny.json", "4")
    figure = plots.figure([schedule], ("utilisation", "queue"))
    for axes in (0, 1):
        values, edges, _ = drawn(figure, "easy", axes).get_data()
        assert (np.diff(edges) > 0).all(), "no spike without a width"
        assert (np.diff(values) != 0).all()


def test_jobs_are_boxes_with_their_names_and_their_fate() -> None:
    schedule, _ = simulated("easy", "tiny.json", "4")
    figure = plots.figure([schedule], ("gantt",))
    axes = figure.axes[0]
    assert {text.get_text() for text in axes.texts} == {"1", "2", "3", "4", "5", "6"}
    cut = drawn(figure, "cut at its walltime")
    assert isinstance(cut, PolyCollection)
    assert cut.get_hatch()
    boxes = [box for name in ("jobs", "cut at its walltime") for box in drawn(figure, name).get_paths()]
    area = sum(np.ptp(path.vertices[:, 0]) * np.ptp(path.vertices[:, 1]) for path in boxes)
    assert area == pytest.approx(schedule.busy().integral(0, schedule.now))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "1", "2", "3"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["cut at its walltime"]


def test_labels_stay_within_their_boxes() -> None:
    schedule, _ = simulated("easy", "tiny.json", "4")
    schedule.ids = [f"w0!a-very-long-name-of-a-job-{number}" for number in range(len(schedule))]
    figure = plots.figure([schedule], ("gantt",), width_in=3.5)
    axes = figure.axes[0]
    for text in axes.texts:
        extent = text.get_window_extent()
        row = schedule.ids.index(f"w0!{text.get_text()}")
        begin, _ = axes.transData.transform((schedule.started[row], 0))
        end, _ = axes.transData.transform((schedule.ended[row], 0))
        assert begin <= extent.x0
        assert extent.x1 <= end


def test_a_run_that_goes_on_is_drawn_up_to_now() -> None:
    schedule = Schedule(name="live", path="", live=True, units=2, now=10.0, over=False, ids=["a", "b"], allocated=["0", "1"])
    schedule.submitted, schedule.started = array("d", [0, 0]), array("d", [1, 2])
    schedule.ended, schedule.widths = array("d", [4, float("nan")]), array("l", [1, 1])
    schedule.states = [JobState.FAILED, JobState.RUNNING]
    schedule.capacity = Steps.summed([(0.5, 2.0)])
    figure = plots.figure([schedule], ("utilisation", "gantt"))
    values, edges, _ = drawn(figure, "live").get_data()
    assert list(edges) == [0, 1, 2, 4, 10]
    assert list(values) == [0, 50, 100, 50]
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {"units offered", "failed"}


def test_energy_and_states_of_machines() -> None:
    schedule, _ = simulated("easy", "tiny.json", "4")
    schedule.energy = Steps(array("d", [0.0, 100.0, 175.0]), array("d", [0.0, 4000.0, 5500.0]))
    schedule.machine_states = {"computing": Steps.summed([(0.0, 3.0), (100.0, -2.0)]), "idle": Steps.summed([(100.0, 2.0)])}
    figure = plots.figure([schedule], ("energy", "machines"))
    values, edges, _ = drawn(figure, "easy").get_data()
    assert (values * np.diff(edges)).sum() == pytest.approx(5500.0)
    tops, _, bases = drawn(figure, "idle", 1).get_data()
    assert list(tops - bases) == [0, 2]
    assert list(tops) == [3, 3]


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_files_are_the_same_each_time(kind: str, tmp_path: Path) -> None:
    schedule, _ = simulated("easy", "tiny.json", "4")
    for name in ("one", "two"):
        plots.draw([schedule], [f"{tmp_path}/{name}.{kind}"])
    one = (tmp_path / f"one.{kind}").read_bytes()
    assert one == (tmp_path / f"two.{kind}").read_bytes()
    if kind == "pdf":
        assert b"/Type3" not in one, "fonts that publishers take"
        assert re.search(rb"/FontFile2|/CIDFontType2", one)


def test_mistakes_are_named() -> None:
    schedule, _ = simulated("easy", "tiny.json", "4")
    with pytest.raises(InputError, match=r"no such plot: gant; .*did you mean gantt\?"):
        plots.kinds_of("queue,gant", [schedule])
    with pytest.raises(InputError, match="no energy was recorded"):
        plots.kinds_of("energy", [schedule])
    with pytest.raises(InputError, match=r"\.png, \.svg or \.pdf"):
        plots.draw([schedule], ["plot.jpg"])


def test_memory_of_running_tasks() -> None:
    schedule, _ = simulated("easy", "tiny.json", "4")
    with pytest.raises(InputError, match="no memory was measured"):
        plots.kinds_of("memory", [schedule])
    schedule.memory = array("d", [2**30 * (row + 1) for row in range(len(schedule))])
    figure = plots.figure([schedule], plots.kinds_of("memory", [schedule]))
    values, edges, _ = drawn(figure, "easy").get_data()
    spans = [schedule.ended[row] - schedule.started[row] for row in range(len(schedule))]
    assert (values * np.diff(edges)).sum() == pytest.approx(sum((row + 1) * span for row, span in enumerate(spans)))
    assert "GiB" in figure.axes[0].get_ylabel()

"""`pilothouse report` in a real Chromium: what it draws is what the metrics say, and nothing in a run becomes a script."""

from __future__ import annotations

import json
import math
import statistics
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

import components
from browsers import Browser, browser
from pilothouse.cli.main import cli
from pilothouse.model.lifecycle import JobState
from pilothouse.views.difference import difference
from pilothouse.views.metrics import metrics_of
from pilothouse.views.read_run import add_users, read_run
from pilothouse.views.report.html import write_report
from pilothouse.views.schedule import Schedule, Steps
from pilothouse.views.story import story

TRACE = components.ROOT / "examples/kth-sp2-5000.swf.gz"
READY = "document.documentElement.dataset.ready === '1'"
EVIL = (
    "<img src=x onerror=window.pwned=1>", "</script><script>window.pwned=2</script>", "\"'><svg onload=window.pwned=3>",
    "@script@ @data@", "${window.pwned=4}", "]]><!--", "&lt;b&gt;",
)  # fmt: skip


def pilothouse(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert done.exit_code == code, (done.output, done.exception)
    return str(done.output)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    try:
        with browser(tmp_path_factory.mktemp("chromium") / "profile") as made:
            yield made
    except components.MissingComponent as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    pilothouse("compare", "-p", 100, "-w", TRACE, "--policy", "easy,easy-sjbf", "-e", f"{folder}/")
    pilothouse("report", folder / "easy", folder / "easy-sjbf", "-o", folder / "two.html")
    return folder


def opened(chromium: Browser, path: Path, **how: object) -> None:
    chromium.open(f"file://{path}", **how)  # type: ignore[arg-type]
    chromium.until(f"{READY} || document.querySelector('#loading.error')")
    assert chromium.js(READY), chromium.js("document.getElementById('loading').textContent")
    assert chromium.problems == []


def test_what_is_drawn_equals_the_metrics(chromium: Browser, runs: Path) -> None:
    opened(chromium, runs / "two.html")
    for place, name in enumerate(("easy", "easy-sjbf")):
        expected = metrics_of(read_run(str(runs / name)))
        drawn = chromium.js(f"""(() => {{
            const run = pilothouse.page.runs[{place}], mean = values => values.reduce((a, b) => a + b, 0) / values.length;
            return {{ wait: mean(run.waits), longest: run.waits.at(-1), slowdown: mean(run.slowdowns),
                      busy: pilothouse.meanOf(run.busy, run.begin, run.end), units: run.units,
                      backfilled: mean(Array.from(run.backfilled)) }};
        }})()""")
        assert drawn["wait"] == pytest.approx(expected.wait.mean, rel=1e-12)
        assert drawn["longest"] == expected.wait.max
        assert drawn["slowdown"] == pytest.approx(expected.bounded_slowdown.mean, rel=1e-12)
        assert drawn["busy"] / drawn["units"] == pytest.approx(expected.utilisation, rel=1e-9)
        assert drawn["backfilled"] == pytest.approx(expected.backfilled)


def test_pixels_are_as_opaque_as_the_units_are_busy(chromium: Browser, runs: Path) -> None:
    opened(chromium, runs / "two.html")
    opacity = chromium.js("""(() => {
        const { runs, whole, colours } = pilothouse.page;
        const image = rasterise(runs[0], whole, colours.get(runs[0]).rgb, 1100, 300);
        let sum = 0;
        for (let at = 3; at < image.data.length; at += 4) sum += image.data[at];
        return sum / 255 / (1100 * 300);
    })()""")
    assert opacity == pytest.approx(metrics_of(read_run(str(runs / "easy"))).utilisation, abs=0.003)


def test_sentences_are_those_of_explain(chromium: Browser, runs: Path) -> None:
    opened(chromium, runs / "two.html")
    run = read_run(str(runs / "easy"))
    rows = list(range(0, len(run), 25))
    said = chromium.js(f"{rows}.map(row => pilothouse.explain(pilothouse.page.runs[0], row))")
    for row, sentence in zip(rows, said, strict=True):
        told = story(run, run.ids[row])
        assert told is not None
        assert sentence == told.sentence


def test_numbers_are_written_as_python_writes_them(chromium: Browser, runs: Path) -> None:
    opened(chromium, runs / "two.html")
    values = [0.0, 1.0, 0.1, 1 / 3, 123456789.123456, 1e10, 12345678901.5, 1e-4, 1.25e-7, 31664481.0, 9999999999.9, 1e22]
    assert chromium.js(f"{values}.map(tenDigits)") == [f"{value:.10g}" for value in values]


def test_deltas_add_up(chromium: Browser, runs: Path) -> None:
    opened(chromium, runs / "two.html")
    found = difference(read_run(str(runs / "easy")), read_run(str(runs / "easy-sjbf")))
    deltas = "Array.from(movedBy(pilothouse.page.runs[1], pilothouse.page.runs))"
    moved = chromium.js(f"{deltas}.filter(delta => Math.abs(delta) > 1e-6)")
    assert len(moved) == len(found.moves)
    assert sum(moved) == pytest.approx(sum(move.delta or 0.0 for move in found.moves))
    text = chromium.js("document.getElementById('tables').textContent")
    assert "first difference at 691379 s" in text


def test_keys_steps_and_the_saved_view(chromium: Browser, runs: Path) -> None:
    opened(chromium, runs / "two.html")
    whole = chromium.js("pilothouse.page.view")
    chromium.key("=", code="Equal")
    chromium.key("ArrowRight", code="ArrowRight")
    closer = chromium.js("pilothouse.page.view")
    assert closer["end"] - closer["begin"] == pytest.approx(0.6 * (whole["end"] - whole["begin"]))
    assert closer["begin"] > whole["begin"] + 0.2 * (whole["end"] - whole["begin"])
    chromium.key("0")
    assert chromium.js("pilothouse.page.view") == whole
    chromium.key("]")
    chromium.key("]")
    assert "started" in chromium.js("document.getElementById('details').textContent")
    later = chromium.js("pilothouse.page.cursor")
    chromium.key("[")
    assert chromium.js("pilothouse.page.cursor") < later
    before = chromium.js("getComputedStyle(document.body).backgroundColor")
    chromium.key("t")
    assert chromium.js("getComputedStyle(document.body).backgroundColor") != before
    chromium.key("t")
    chromium.js("localStorage.clear()")
    for factor in (1, 0.002):
        chromium.js(f"pilothouse.zoom({factor})")
        ElementTree.fromstring(chromium.js("pilothouse.svgOfView()"))


def test_hovering_a_job_tells_its_numbers(chromium: Browser, runs: Path) -> None:
    opened(chromium, runs / "two.html")
    at = chromium.js("""(() => {
        const { runs: [run], view } = pilothouse.page, box = document.querySelector('canvas.gantt').getBoundingClientRect();
        const row = run.byStart.reduce((best, row) => (run.until[row] - run.started[row]) * run.lengths[0]
            > (run.until[best] - run.started[best]) * run.lengths[0] ? row : best);
        const i = run.boxRow.indexOf(row), middle = (run.started[row] + run.until[row]) / 2;
        const unit = (run.boxLow[i] + run.boxHigh[i]) / 2;
        return { id: run.ids[row], x: box.left + 62 + (middle - view.begin) / (view.end - view.begin) * (box.width - 74),
                 y: box.top + 4 + (view.high - unit) / (view.high - view.low) * (box.height - 10) };
    })()""")
    chromium.mouse("mouseMoved", at["x"], at["y"])
    chromium.until("!document.getElementById('tip').hidden")
    text = chromium.js("document.getElementById('tip').textContent")
    assert text.startswith(f"job {at['id']}")
    assert "it needed" in text


def test_nothing_in_a_run_becomes_a_script(chromium: Browser, tmp_path: Path) -> None:
    run = Schedule(name=EVIL[1], path=EVIL[0], live=True, policy=EVIL[0], units=4, now=100.0)
    for row, text in enumerate(EVIL):
        run.ids.append(text)
        run.users.append(text)
        run.submitted.append(0.0)
        run.started.append(row * 1.0)
        run.ended.append(row + 0.5)
        run.requested.append(1)
        run.widths.append(1)
        run.allocated.append("0")
        run.walltimes.append(math.inf)
        run.states.append(JobState.FAILED)
        run.exit_codes.append(1)
        run.reasons[row] = run.last_words[row] = text
        run.commands.append(text)
        run.places.append(text)
    run.machine_states[EVIL[0]] = Steps(array("d", [0.0]), array("d", [1.0]))
    write_report([run, run], str(tmp_path / "evil.html"))
    opened(chromium, tmp_path / "evil.html")
    chromium.js("""for (const row of pilothouse.page.runs[0].ran) {
        pilothouse.choose(pilothouse.page.runs[0], row); pilothouse.find(pilothouse.page.runs[0].ids[row]); pilothouse.step(1);
        tell({ clientX: 0, clientY: 0 }, describe(pilothouse.page.runs[0], row));
    }""")
    shown = chromium.js("document.body.textContent")
    assert all(text in shown for text in EVIL)
    ElementTree.fromstring(chromium.js("pilothouse.svgOfView()"))
    svg = "Object.assign(document.createElement('div'), { innerHTML: pilothouse.svgOfView() })"
    assert chromium.js(f"{svg}.querySelectorAll('script, img, [onload]').length") == 0
    assert chromium.js("document.querySelectorAll('img, svg, script').length") == 2, "the page's own two scripts"
    assert chromium.js("window.pwned === undefined")
    assert chromium.js("document.title") == f"{EVIL[1]} against {EVIL[1]}"
    # And if one did get in, the page's policy would not run it.
    chromium.js("document.body.append(Object.assign(document.createElement('script'), { textContent: 'window.pwned = 9' }))")
    chromium.js("document.body.append(Object.assign(document.createElement('img'), { src: 'http://127.0.0.1:9/' }))")
    assert chromium.js("window.pwned === undefined")


def test_live_runs_show_failures_and_slow_tasks(chromium: Browser, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.txt"
    tasks.write_text("".join(f"sh -c 'echo disk $(({n} + 2)) is full >&2; exit 3'\n" for n in (5, 7)) + "echo fine\n")
    pilothouse("run", tasks, "--dir", tmp_path / "run", "-q", code=1)
    pilothouse("report", tmp_path / "run", "-o", tmp_path / "live.html")
    opened(chromium, tmp_path / "live.html")
    text = chromium.js("document.getElementById('tables').innerText")
    assert "Slowest tasks" in text
    assert ("disk 7 is full" in text) != ("disk 9 is full" in text), "failures of one kind are one row, with one of the lines"
    assert "idle slot hours" in text


def test_power_is_drawn_from_energy(chromium: Browser, runs: Path, tmp_path: Path) -> None:
    run = read_run(str(runs / "easy"))
    run.energy = Steps(array("d", [0.0, 10.0, 30.0]), array("d", [0.0, 1000.0, 1500.5]))
    run.machine_states["idle"] = Steps(array("d", [0.0, 5.0]), array("d", [2.0, 1.0]))
    write_report([run], str(tmp_path / "energy.html"))
    opened(chromium, tmp_path / "energy.html")
    assert chromium.js("pilothouse.meanOf(pilothouse.page.runs[0].power, 0, 30) * 30") == pytest.approx(1500.5)
    assert chromium.js("pilothouse.page.runs[0].power.values[0]") == 100.0
    assert chromium.js("pilothouse.page.panels.map(panel => panel.title)")[-2:] == ["Power (W)", "Machines"]


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (400, False)])
def test_it_fits_the_window(chromium: Browser, runs: Path, width: int, dark: bool) -> None:
    opened(chromium, runs / "two.html", width=width, dark=dark)
    assert chromium.js("document.documentElement.scrollWidth") <= width
    assert chromium.js("document.documentElement.dataset.theme") == ("dark" if dark else "light")


def test_a_report_of_300_000_jobs(chromium: Browser, tmp_path: Path) -> None:
    """As many jobs as CEA-Curie, each on two runs of neighbouring units. In CPU time: the machine may be busy."""
    count, units = 312_826, 93_312
    run = Schedule(name="large", path="large", live=False, units=units)
    for row in range(count):
        start = row * 70.0
        run.submitted.append(start - row % 5000)
        run.started.append(start)
        run.ended.append(start + 60 + row * 31 % 40_000)
    run.ids = [f"w0!{row}" for row in range(count)]
    run.users = [f"u{row % 700}" for row in range(count)]
    run.requested = run.widths = array("l", [20]) * count
    run.allocated = [f"{low}-{low + 9} {low + 500}-{low + 509}" for low in (row * 7919 % (units - 600) for row in range(count))]
    run.walltimes = array("d", [86400.0]) * count
    run.states = [JobState.SUCCEEDED] * count
    run.exit_codes = array("l", [0]) * count
    run.now = max(run.ended)
    began = time.process_time()
    write_report([run], str(tmp_path / "large.html"))
    assert time.process_time() - began < 40
    chromium.call("Performance.enable", timeDomain="threadTicks")
    try:
        opened(chromium, tmp_path / "large.html")
        assert cpu_s(chromium) < 3
        redraws = []
        for percent in range(100, 20, -10):
            before = cpu_s(chromium)
            chromium.js(f"pilothouse.page.view.end = {percent / 100 * run.now}; pilothouse.redraw()")
            redraws.append(cpu_s(chromium) - before)
        assert statistics.median(redraws) < 0.050, redraws
        assert max(redraws) < 0.100, redraws
    finally:
        chromium.call("Performance.disable")


def cpu_s(chromium: Browser) -> float:
    """CPU time of the page's main thread."""
    found = {metric["name"]: metric["value"] for metric in chromium.call("Performance.getMetrics")["metrics"]}
    return float(found["TaskDuration"])


def test_mistakes_are_one_line(runs: Path, tmp_path: Path) -> None:
    for arguments, part in (
        ([runs / "easy", "-o", tmp_path / "report.pdf"], "HTML"),
        ([runs / "nothing"], "no run of that name"),
        ([runs / "easy"] * 5, "at most 4"),
    ):
        done = CliRunner().invoke(cli, ["report", *map(str, arguments)])
        assert done.exit_code != 0
        assert part in str(done.exception), json.dumps(str(done.exception))


def test_users_of_a_trace_are_in_the_tables(runs: Path) -> None:
    run = read_run(str(runs / "easy"))
    add_users(run)
    from pilothouse.views.report.groups import tables

    by_title = {table.title: table for table in tables(run, 10.0)}
    for title in ("Users", "Width", "Length"):
        assert sum(int(row[1] or 0) for row in by_title[title].rows) <= 5000
    assert sum(int(row[1] or 0) for row in by_title["Width"].rows) == 5000
    weighted = sum(float(row[1] or 0) * float(row[3] or 0) for row in by_title["Length"].rows) / 5000
    assert weighted == pytest.approx(metrics_of(run).wait.mean)

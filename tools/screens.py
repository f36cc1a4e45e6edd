"""Makes the pictures of the report and of the dashboard in docs/images: light, dark and narrow, in a real Chromium.

    python tools/screens.py

Look at them afterwards. The run that the dashboard shows is a real one, of tasks that sleep; node names come from a name
space of its own where that can be had (root). Pictures have 64 colours, so that they stay small.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]
from browsers import Browser, browser  # noqa: E402
from e2e.live_runs import until  # noqa: E402
from pilothouse.journal.run_reader import RunReader  # noqa: E402
from pilothouse.worlds.live.requests import AddContext, CancelTask, ask  # noqa: E402

IMAGES = ROOT / "docs" / "images"
SHAPES = {"light": (1180, 900, False), "dark": (1180, 900, True), "narrow": (400, 860, False)}
SCREENS = tuple(f"{what}-{shape}.png" for what in ("report", "dashboard") for shape in SHAPES)
COLOURS = 256
COMMAND = (sys.executable, "-m", "pilothouse")
READY = "document.documentElement.dataset.ready === '1'"
TRAIN = """#!/bin/sh
case $2 in 3 | 11 | 19) sleep 0.3; echo "epoch 1: loss is not a number" >&2; exit 1 ;; 8) sleep 100 ;; esac
sleep 1.$(($2 * 7 % 10))
"""


def shoot(chromium: Browser, name: str) -> None:
    """Takes the picture of the page as it is."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        chromium.picture(Path(folder) / "whole.png")
        whole = Image.open(io.BytesIO((Path(folder) / "whole.png").read_bytes())).convert("RGB")
    whole.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(IMAGES / name, optimize=True)
    print(f"{name}: {(IMAGES / name).stat().st_size / 1000:.0f} kB")


def reports(chromium: Browser, folder: Path) -> None:
    trace = ROOT / "examples/kth-sp2-5000.swf.gz"
    subprocess.run([*COMMAND, "simulate", "-p", "100", "-w", trace, "--policy", "easy", "-e", f"{folder}/", "-q"], check=True)
    subprocess.run([*COMMAND, "report", folder, "-o", folder / "report.html"], check=True, stdout=subprocess.DEVNULL)
    for shape, (width, height, dark) in SHAPES.items():
        chromium.open("about:blank")
        chromium.open(f"file://{folder}/report.html", width=width, height=height, dark=dark)
        chromium.until(READY)
        chromium.js("pilothouse.page.view = { ...pilothouse.page.view, begin: 691200, end: 864000 }; pilothouse.redraw()")
        shoot(chromium, f"report-{shape}.png")


@contextmanager
def live_run(folder: Path) -> Iterator[Path]:
    """A run with failures, a slow task, added engines and answers to requests."""
    (folder / "train").write_text(TRAIN)
    (folder / "train").chmod(0o755)
    (folder / "tasks.txt").write_text("".join(f"./train --seed {seed}\n" for seed in range(120)))
    run = [*COMMAND, "run", "tasks.txt", "--slots", "6", "--dir", "training", "-q"]
    own_name = ["unshare", "--uts", "sh", "-c", 'hostname node1; exec "$@"', "sh"]
    apart = shutil.which("unshare") and subprocess.run([*own_name, "true"], check=False, capture_output=True).returncode == 0
    process = subprocess.Popen([*own_name, *run] if apart else run, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        until((folder / "training/journal.sqlite").exists, "the run begins")
        until((folder / "training/add-engines.sh").exists, "engines can be added")
        ask(folder / "training", AddContext(slots=2))
        ask(folder / "training", CancelTask(100))
        reader = RunReader(folder / "training")
        until(lambda: reader.read().finished >= 40, "a third of the tasks")
        reader.close()
        yield folder / "training"
    finally:
        process.terminate()
        process.wait()


def dashboards(chromium: Browser, folder: Path) -> None:
    with live_run(folder) as run:
        web = subprocess.Popen([*COMMAND, "web", str(run)], stdout=subprocess.PIPE, text=True)
        assert web.stdout is not None
        url = web.stdout.readline().strip()
        try:
            for shape, (width, height, dark) in SHAPES.items():
                chromium.open("about:blank")
                chromium.open(url, width=width, height=height, dark=dark)
                chromium.until("pilothouse.page.runs.length > 0 && pilothouse.live.reports > 2")
                time.sleep(0.5)  # the bar glides
                shoot(chromium, f"dashboard-{shape}.png")
        finally:
            web.terminate()
            web.wait()


def main() -> int:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, browser(Path(name) / "profile") as chromium:
        for what in (reports, dashboards):
            folder = Path(name) / what.__name__
            folder.mkdir()
            what(chromium, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())

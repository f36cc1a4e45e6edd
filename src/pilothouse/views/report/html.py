"""The report's page: template, style, scripts and data in one HTML file that needs no network.

Why a small canvas page of our own and not Bokeh: Bokeh draws each box as a glyph of its own; here the work of a redraw is
bounded by pixels plus boxes. Seen with CEA-Curie (312,807 jobs, 702,900 boxes): Bokeh's Gantt chart alone (WebGL, inline
resources) is 24 MB and is drawn after 13 s; this page is 5.7 MB (65 kB without data), made in 9 s, drawn after 1.5 s, and
redrawn in 40 to 60 ms.

Nothing in a run can become markup or a script: the data is base64, the page makes text nodes of it, and the page's policy
allows the one script and the one style below, by their digests, and no connection.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path

from pilothouse.access.files import write_whole
from pilothouse.model.errors import InputError
from pilothouse.views.metrics import TAU
from pilothouse.views.report.pack import pack
from pilothouse.views.schedule import Schedule

MOST_RUNS = 4
SCRIPTS = ("data.js", "story.js", "chart.js", "page.js")
STYLES = ("page.css",)
LIVE_SCRIPTS = (*SCRIPTS, "live.js")
LIVE_STYLES = (*STYLES, "live.css")


def part(name: str) -> str:
    """A file of the page."""
    return files("pilothouse.views.report").joinpath(name).read_text(encoding="utf-8")


def page(title: str, data: bytes = b"", *, live: bool = False) -> bytes:
    """The page with gzipped data in it; `live`: the page of a dashboard, which fetches its data."""
    script, style = _text(LIVE_SCRIPTS if live else SCRIPTS), _text(LIVE_STYLES if live else STYLES)
    filled = part("page.html")
    # The title comes from outside: it is put in last, so that nothing in it is taken for a place to fill.
    places = (("policy", policy(live=live)), ("style", style), ("script", script), ("data", b64encode(data).decode()))
    for place, text in places:
        filled = filled.replace(f"@{place}@", text, 1)
    return filled.replace("@title@", escape(title), 1).encode()


def policy(*, live: bool = False) -> str:
    """What the page may do: run its own script, use its own style; a dashboard may talk to its own server."""
    script, style = _text(LIVE_SCRIPTS if live else SCRIPTS), _text(LIVE_STYLES if live else STYLES)
    connect = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; img-src data: blob:; connect-src {connect}; base-uri 'none'; "
        f"form-action 'none'; script-src 'sha256-{_digest(script)}'; style-src 'sha256-{_digest(style)}'"
    )


def _text(names: Sequence[str]) -> str:
    return "\n".join(part(name) for name in names)


def _digest(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


def check_report(path: str, runs: int) -> None:
    """Raises InputError, before a long simulation, if no report of so many runs could be written into that file."""
    if not path.endswith((".html", ".htm")):
        raise InputError(path, "a report is an HTML file", expected="a name that ends with .html")
    if runs > MOST_RUNS:
        raise InputError("report", f"{runs} runs in one report", expected=f"at most {MOST_RUNS}")


def write_report(runs: Sequence[Schedule], path: str, tau: float = TAU) -> int:
    """Writes the report of these runs; returns its size in bytes."""
    made = page(" against ".join(run.name for run in runs), pack(runs, tau))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_whole(Path(path), made, mode=0o644)
    return len(made)

"""Every code block of the documentation runs and prints what the page says; every generated table is up to date."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import components


def load_docs_tool() -> ModuleType:
    """tools/docs.py, which is not part of the package."""
    path = components.ROOT / "tools" / "docs.py"
    spec = importlib.util.spec_from_file_location("pilothouse_docs_tool", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


docs = load_docs_tool()


@pytest.mark.parametrize("page", docs.pages(), ids=lambda page: str(page.relative_to(components.ROOT)))
def test_page_is_true(page: Path) -> None:
    shown = docs.difference(page)
    assert not shown, f"run 'python tools/docs.py --write {page.name}' and look at the change:\n{shown}"


def test_a_wrong_page_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo one\ntwo\n```\n")
    assert docs.run_page(page) == "```console\n$ echo one\none\n```\n"
    page.write_text("```console\n$ false\n```\n")
    with pytest.raises(docs.BrokenPage, match="ended with 1"):
        docs.run_page(page)
    page.write_text("```python\nassert 1 == 2\n```\n")
    with pytest.raises(docs.BrokenPage, match="AssertionError"):
        docs.run_page(page)


def test_screens_are_in_the_pages_and_small() -> None:
    """Those that tools/screens.py makes of report and dashboard: light, dark, narrow."""
    text = "".join(page.read_text() for page in docs.pages())
    images = components.ROOT / "docs" / "images"
    for name in ("report", "dashboard"):
        for shape in ("light", "dark", "narrow"):
            assert f"images/{name}-{shape}.png" in text
            assert 5_000 < (images / f"{name}-{shape}.png").stat().st_size < 60_000


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(components.ROOT)}: {target}"
        for page in docs.pages()
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not broken, broken


def test_the_site_is_made_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """Sphinx warns of pages that no menu leads to, and of links and anchors that lead nowhere."""
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-n",
        components.ROOT / "docs",
        tmp_path / "site",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert {"index.html", "tutorial.html", "search.html"} <= {page.name for page in pages}
    elsewhere = r"(?:https?:)?//"
    loaded = re.compile(rf'<(?:script|img|iframe)[^>]* src="{elsewhere}|<link[^>]* href="{elsewhere}|url\({elsewhere}')
    assert not [page.name for page in pages if loaded.search(page.read_text())]

"""Runs the documentation: every code block does what it says, every generated table is up to date.

In: README.md, examples/README.md and docs/. Out: nothing if all is true, otherwise a difference; with --write the
pages are mended (outputs and tables, never the commands).

A page runs from top to bottom in an empty directory with a copy of examples/. The line before a block may say more:

    <!-- file: NAME -->    the block is that file; it is written, not run
    <!-- exit: N -->       the command ends with code N
    <!-- any output -->    what it prints is not compared (times, paths)
    <!-- shown only -->    not run: it needs what a test does not have (another machine)
    <!-- table: NAME -->   what follows, up to <!-- end -->, is made by tools/doc_tables.py
    <!-- picture: FILE --> the picture of the next line is that file, which a block above has made; --write copies it

In a `console` block a line `...` stands for any lines.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import doc_tables

ROOT = Path(__file__).resolve().parent.parent
COMMAND_LIMIT_S = 120
PICTURE = re.compile(r"^<!-- picture: (.+) -->$")
DIRECTIVE = re.compile(r"^<!-- (file|exit|table): (.+) -->$|^<!-- (any output|shown only) -->$")


# What differs from run to run, and what a page shows instead.
MASKS = [
    (re.compile(r"((?:succeeded|failed|skipped).*) in [\d.]+ s  \("), r"\1 in … s  ("),
    (re.compile(r"^(  task \d+ \(line \d+\)), [\d.]+ s:", re.M), r"\1, … s:"),
    (re.compile(r"simulated in [\d.]+ s,"), "simulated in … s,"),
    (re.compile(r"simulated in [\d.]+ CPU s \([\d,]+ jobs/s\)"), "simulated in … CPU s (… jobs/s)"),
]


class BrokenPage(Exception):
    """A block did not do what the page says."""


@dataclass
class Block:
    """One fenced block: its language, where it stands, and what the line before says about it."""

    language: str
    line: int
    body: list[str] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def split(text: str) -> list[str | Block]:
    """The page as lines and blocks, in order."""
    parts: list[str | Block] = []
    block: Block | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if block is not None:
            if line.strip() == "```":
                parts.append(block)
                block = None
            else:
                block.body.append(line)
        elif line.startswith("```"):
            block = Block(line[3:].strip(), number, notes=_notes(parts))
        else:
            parts.append(line)
    if block is not None:
        raise BrokenPage(f"line {block.line}: the block is not closed")
    return parts


def _notes(before: list[str | Block]) -> dict[str, str]:
    notes: dict[str, str] = {}
    for part in reversed(before):
        match = DIRECTIVE.match(part) if isinstance(part, str) else None
        if not match:
            break
        notes[match[1] or match[3]] = match[2] or ""
    return notes


def run_page(path: Path, *, keep_pictures: bool = False) -> str:
    """The page as it should be: outputs as printed now, tables as made now. `keep_pictures`: those that it makes are put
    where it shows them."""
    text = path.read_text(encoding="utf-8")
    parts = split(text)
    with tempfile.TemporaryDirectory(prefix="pilothouse-docs-") as name:
        place = Path(name)
        shutil.copytree(ROOT / "examples", place / "examples")
        lines: list[str] = []
        for part in parts:
            if isinstance(part, str):
                lines.append(part)
            else:
                lines += ["```" + part.language, *_run_block(part, place), "```"]
        _pictures(lines, place, path.parent if keep_pictures else None)
    return _with_tables("\n".join(lines) + "\n")


def _pictures(lines: list[str], place: Path, beside: Path | None) -> None:
    """Every picture of the page was made by it."""
    for line, after in pairwise(lines):
        if match := PICTURE.match(line):
            shown = re.fullmatch(r"!\[.+\]\((.+)\)", after)
            if shown is None:
                raise BrokenPage(f"no picture follows {line!r}")
            if not (place / match[1]).is_file():
                raise BrokenPage(f"{match[1]}: no block makes this picture")
            if beside is not None:
                target = beside / shown[1]
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(place / match[1], target)


def _run_block(block: Block, place: Path) -> list[str]:
    if "file" in block.notes:
        target = place / block.notes["file"]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("\n".join(block.body) + "\n", encoding="utf-8")
    elif "shown only" in block.notes:
        pass
    elif block.language == "console":
        return _run_console(block, place)
    elif block.language == "python":
        code, printed = _run([sys.executable, "-c", "\n".join(block.body)], place)
        if code != 0:
            raise BrokenPage(f"line {block.line}: the Python block ended with {code}:\n{printed}")
    return block.body


def _run_console(block: Block, place: Path) -> list[str]:
    result: list[str] = []
    for command, shown in _commands(block):
        code, printed = _run(["bash", "-c", "\n".join(command).removeprefix("$ ")], place)
        if code != int(block.notes.get("exit", "0")):
            raise BrokenPage(f"line {block.line}: {command[0]!r} ended with {code}:\n{printed}")
        for pattern, shown_instead in MASKS:
            printed = pattern.sub(shown_instead, printed)
        now = [line.rstrip() for line in printed.rstrip("\n").splitlines()]
        result += command
        result += shown if "any output" in block.notes or _matches(shown, now) else now
    return result


def _commands(block: Block) -> list[tuple[list[str], list[str]]]:
    found: list[tuple[list[str], list[str]]] = []
    for line in block.body:
        if line.startswith("$ "):
            found.append(([line], []))
        elif found and found[-1][0][-1].endswith("\\") and not found[-1][1]:
            found[-1][0].append(line)
        elif found:
            found[-1][1].append(line)
        else:
            raise BrokenPage(f"line {block.line}: a console block starts with '$ '")
    return found


def _matches(shown: list[str], printed: list[str]) -> bool:
    pattern = "".join(r"(?:.*\n)*" if line.strip() == "..." else re.escape(line.rstrip()) + r"\n" for line in shown)
    return re.fullmatch(pattern, "".join(line + "\n" for line in printed)) is not None


def _run(command: list[str], place: Path) -> tuple[int, str]:
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    plain = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "CI")}
    env = {**plain, "PATH": path, "COLUMNS": "100", "LINES": "40", "NO_COLOR": "1", "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    ran = subprocess.run(
        command,
        cwd=place,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_LIMIT_S,
        check=False,
    )
    return ran.returncode, ran.stdout.replace(str(place), "/tmp/try")


def _with_tables(text: str) -> str:
    def fresh(match: re.Match[str]) -> str:
        return f"<!-- table: {match[1]} -->\n\n{doc_tables.make(match[1]).strip()}\n\n<!-- end -->"

    return re.sub(r"<!-- table: (.+?) -->\n.*?<!-- end -->", fresh, text, flags=re.DOTALL)


def difference(path: Path) -> str:
    """What is not true on this page; empty if all is."""
    now = run_page(path)
    old = path.read_text(encoding="utf-8")
    name = str(path.relative_to(ROOT))
    return "".join(difflib.unified_diff(old.splitlines(True), now.splitlines(True), f"{name} says", f"{name} is"))


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the documentation and compare it with what happens.")
    parser.add_argument("--write", action="store_true", help="mend outputs and tables in the pages")
    parser.add_argument("pages", nargs="*", type=Path, help="only these pages")
    options = parser.parse_args()
    wrong = 0
    for path in [page.resolve() for page in options.pages] or pages():
        try:
            if options.write:
                path.write_text(run_page(path, keep_pictures=True), encoding="utf-8")
            elif shown := difference(path):
                wrong += 1
                print(shown)
        except (BrokenPage, subprocess.TimeoutExpired) as broken:
            wrong += 1
            print(f"{path.relative_to(ROOT)}: {broken}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

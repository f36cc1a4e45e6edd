"""What tests of `pilothouse run` share: starting it, looking into its journal, and telling when something has happened."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

COMMAND = (sys.executable, "-c", "from pilothouse.cli.main import main; main()")
DEADLINE_S = 60.0


def start(folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """A run in the background, in a folder of its own."""
    return subprocess.Popen(
        [*COMMAND, "run", *arguments],
        cwd=folder,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and what it said."""
    _, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, err


def run(folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    return finish(start(folder, *arguments, env=env))


def tasks(folder: Path, text: str) -> str:
    (folder / "tasks.txt").write_text(text)
    return "tasks.txt"


def rows(run_folder: Path, query: str) -> list[tuple[object, ...]]:
    """Rows of the journal; none while there is no journal."""
    path = run_folder / "journal.sqlite"
    if not path.exists():
        return []
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            return db.execute(query).fetchall()
    except sqlite3.OperationalError:
        return []


def until(condition: Callable[[], object], what: str) -> None:
    """Looks again and again until it holds."""
    give_up = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < give_up, f"never happened: {what}"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # before, or while it was read
        return False

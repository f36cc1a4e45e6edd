"""What tests of `pilothouse run` share: starting it, looking into its journal, and telling when something has happened."""

from __future__ import annotations

import os
import signal
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


def gated(free: int) -> str:
    """Eight tasks; so many end, and the others wait to be killed if they begin before there is a file `go`."""
    return "".join(
        f"[ -e go -o {i} -lt {free} ]; late=$?; echo {i} >> begun; [ $late = 0 ] || sleep 300; echo {i} >> ended\n"
        for i in range(8)
    )


def engine_pid(folder: Path) -> int:
    until(lambda: rows(folder, "SELECT pid FROM engines"), "an engine joined")
    return int(rows(folder, "SELECT pid FROM engines ORDER BY rank DESC")[0][0])  # type: ignore[call-overload]


def lines(path: Path) -> list[str]:
    return sorted(path.read_text().split()) if path.exists() else []


def kill_engine_while_two_run(folder: Path) -> None:
    until(lambda: len(rows(folder / "R", "SELECT task_id FROM ends")) >= 2, "two ends were noted")
    until(lambda: len(lines(folder / "begun")) == 4, "two others run")
    (folder / "go").touch()
    os.kill(engine_pid(folder / "R"), signal.SIGKILL)

"""What tests of disBatch's stand-in share: a clean environment, a started service, status lines, terminal programs."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import components
from pilothouse.dropins.disbatch.status_file import StatusLine, parse_line

DROP_IN = components.ROOT / "libexec" / "disbatch"


def clean_env(base: dict[str, str] | None = None) -> dict[str, str]:
    env = dict(os.environ) if base is None else base
    kept = {name: value for name, value in env.items() if not name.startswith(("SLURM_", "DISBATCH_"))}
    return {**kept, "PATH": f"{DROP_IN}:{kept['PATH']}"}


def results(folder: Path) -> list[StatusLine]:
    (path,) = folder.glob("*_status.txt")
    return [parse_line(line) for line in path.read_text().splitlines()]


@contextmanager
def service(folder: Path, tasks: str) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A started service and its utility script."""
    (folder / "tasks").write_text(tasks)
    command = ["disBatch", "-S", "-p", "serv", "tasks"]
    running = subprocess.Popen(command, cwd=folder, env=clean_env(), stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        assert "script" in running.stdout.readline()
        yield Path(running.stdout.readline().strip()), running
    finally:
        running.kill()
        running.communicate()


def read_until(fd: int, *words: bytes, deadline_s: float = 60) -> bytes:
    """What a terminal program writes, until all these words have appeared."""
    data = b""
    end = time.monotonic() + deadline_s
    while not all(word in data for word in words):
        assert time.monotonic() < end, f"not all of {words!r} appeared in {data[-2000:]!r}"
        if components.readable(fd, 0.5):
            data += os.read(fd, 65536)
    return data


def drain(fd: int) -> None:
    """Reads until the program has closed its terminal."""
    while True:
        try:
            if not os.read(fd, 65536):
                return
        except OSError:
            return


def processes_in(folder: Path) -> list[str]:
    """Those that work in this folder, without zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and Path(os.readlink(entry / "cwd")).is_relative_to(folder):
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:
            continue
    return found

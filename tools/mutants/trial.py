"""Trying mutants: each in a copy of the tree, against the tests that run it, with a limit on time and memory."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from mutants.changes import Change
from mutants.record import TestRecord, environment

MEMORY_BYTES = 6 * 2**30
TESTS_MAX = 120
SECONDS_MAX = 40.0
"""Of tests for one mutant, as recorded."""
FIRST_FILES, FIRST_TESTS = 3, 40
NO_SUCH_TEST = 4
"""Exit code of pytest."""
LEFT_OUT = {".git", ".venv", ".venvs", ".tools", "build", "out", ".hypothesis"}
"""Not copied, at the top of the tree."""


class Trials:
    """Runs mutants, some at once, and collects those that survive."""

    def __init__(self, root: Path, record: TestRecord) -> None:
        self._root = root
        self._record = record
        self._copies: SimpleQueue[Path] = SimpleQueue()
        self._home = Path(tempfile.mkdtemp(prefix="pilothouse-mutants-"))

    def run(self, sample: list[Change], jobs: int) -> list[Change]:
        try:
            for number in range(jobs):
                self._copies.put(self._copy(self._home / str(number)))
            with ThreadPoolExecutor(jobs) as pool:
                outcomes = list(pool.map(self._try, sample))
        finally:
            shutil.rmtree(self._home, ignore_errors=True)
        return [change for change, found in zip(sample, outcomes, strict=True) if not found]

    def _try(self, change: Change) -> bool:
        copy = self._copies.get()
        try:
            return self._try_in(copy, change)
        finally:
            self._copies.put(copy)

    def _try_in(self, copy: Path, change: Change) -> bool:
        path = copy / "src" / "pilothouse" / change.path
        original = path.read_text()
        tests = self._choose(change)
        some: list[str] = []
        word = "no test runs it"
        try:
            path.write_text(change.text(original))
            for some in _rounds(tests):
                word = self._outcome(copy, some)
                if word != "survived":
                    break
        finally:
            path.write_text(original)
        if word == "does not import":  # or the tests are not to be found, with or without the mutant
            command = [sys.executable, "-m", "pytest", "-q", "-p", "mutants.recorder", "--collect-only", *some]
            subprocess.run(command, cwd=copy, env=environment(copy), stdout=subprocess.DEVNULL, check=True)
        place = f"{change.path}:{change.line}"
        before, after = (" ".join(text.split()) for text in (change.before, change.after))
        print(f"{word:>16}  {place}  {before[:60]}  ->  {after[:60]}", flush=True)
        return word not in ("survived", "no test runs it")

    def _choose(self, change: Change) -> list[str]:
        chosen, seconds = [], 0.0
        for test in self._record.tests_of(change.path, change.function)[:TESTS_MAX]:
            seconds += self._record.seconds(test)
            if chosen and seconds > SECONDS_MAX:
                break
            chosen.append(test)
        return chosen

    def _copy(self, copy: Path) -> Path:
        shutil.copytree(self._root, copy, ignore=self._left_out, symlinks=True)
        for name in (".venv", ".venvs", "../shared"):  # the last holds large recordings, which some tests use
            if (self._root / name).exists() and not (copy / name).exists():
                (copy / name).symlink_to((self._root / name).resolve())
        return copy

    def _left_out(self, folder: str, names: list[str]) -> set[str]:
        return LEFT_OUT if Path(folder) == self._root else {"__pycache__"}

    def _outcome(self, copy: Path, tests: list[str]) -> str:
        limit = 60 + 4 * sum(map(self._record.seconds, tests))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "mutants.recorder", "-p", "no:cacheprovider"]
        process = subprocess.Popen(
            [*command, "--timeout=60", *tests],
            cwd=copy,
            env=environment(copy),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        try:
            code = process.wait(limit)
            return "survived" if code == 0 else "does not import" if code == NO_SUCH_TEST else "found"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return "found (too slow)"


def _rounds(tests: list[str]) -> Iterator[list[str]]:
    """The tests of the first few files, then all others: importing many test files takes longer than most tests."""
    files: list[str] = []
    for test in tests:
        name = test.partition("::")[0]
        if name not in files and len(files) < FIRST_FILES:
            files.append(name)
    first = [test for test in tests if test.partition("::")[0] in files][:FIRST_TESTS]
    if first:
        yield first
    rest = [test for test in tests if test not in set(first)]
    if rest:
        yield rest

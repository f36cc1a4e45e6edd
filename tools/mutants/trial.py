"""Trying mutants against the tests that run them: first in forks (`forks.py`), then those that no test has found each in a
copy of the tree, where programs that tests start see it too, with a limit on time and memory.

A busy machine finds no mutants: where a test that takes a while fails, or the tests take too long, the same is tried without
the mutant. A test that fails then too is left out, and a limit that is too short then too is doubled.
"""

from __future__ import annotations

import contextlib
import os
import re
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
from mutants.forked import SURVIVED, TOO_SLOW
from mutants.forks import Forks
from mutants.record import TestRecord, environment

MEMORY_BYTES = 6 * 2**30
TESTS_MAX = 600
SECONDS_MAX = 100.0
"""Of tests for one mutant, as recorded: traced, and perhaps on a busy machine."""
QUICK_S = 0.5
"""A test that takes longer may fail because the machine is busy."""
MOST_DOUBTS = 4
FIRST_FILES, FIRST_TESTS = 3, 40
NO_SUCH_TEST = 4
"""Exit code of pytest."""
PROGRAMS = re.compile(r"\b(subprocess|multiprocessing)\b")
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
        chosen = [self._choose(change) for change in sample]
        forked = Forks(self._root, self._record).run(sample, chosen, jobs)
        found = {number for number, (word, _) in forked.items() if word != SURVIVED}
        for number in sorted(found):
            _tell(sample[number], forked[number][0])
        left = [number for number in range(len(sample)) if number not in found]
        for number in left:
            tried = forked[number][1] if number in forked else []
            chosen[number] = self._choose(sample[number], {test for test in tried if not self._starts_programs(test)})
        try:
            for number in range(jobs):
                self._copies.put(self._copy(self._home / str(number)))
            with ThreadPoolExecutor(jobs) as pool:
                outcomes = list(pool.map(lambda number: self._try(sample[number], chosen[number]), left))
        finally:
            shutil.rmtree(self._home, ignore_errors=True)
        return [sample[number] for number, was_found in zip(left, outcomes, strict=True) if not was_found]

    def _try(self, change: Change, tests: list[str]) -> bool:
        copy = self._copies.get()
        try:
            return self._try_in(copy, change, tests)
        finally:
            self._copies.put(copy)

    def _try_in(self, copy: Path, change: Change, tests: list[str]) -> bool:
        path = copy / "src" / "pilothouse" / change.path
        original = path.read_text()
        some: list[str] = []
        word = SURVIVED if self._record.tests_of(change.path, change.function, change.line) else "no test runs it"
        for some in _rounds(tests):
            word = self._judge(copy, path, change.text(original), original, some)
            if word != SURVIVED:
                break
        if word == "does not import":  # or the tests are not to be found, with or without the mutant
            command = [sys.executable, "-m", "pytest", "-q", "-p", "mutants.recorder", "--collect-only", *some]
            subprocess.run(command, cwd=copy, env=environment(copy), stdout=subprocess.DEVNULL, check=True)
        _tell(change, word)
        return word not in (SURVIVED, "no test runs it")

    def _judge(self, copy: Path, path: Path, changed: str, original: str, tests: list[str]) -> str:
        """Runs tests with the mutant, and those that may have failed for another reason without it."""
        limit_s = 60 + 4 * sum(map(self._record.seconds, tests))
        for _ in range(MOST_DOUBTS):
            try:
                path.write_text(changed)
                word, failed = self._outcome(copy, tests, limit_s)
            finally:
                path.write_text(original)
            if word != TOO_SLOW and (failed is None or self._record.seconds(failed) < QUICK_S):
                return word
            if self._outcome(copy, [failed] if failed else tests, limit_s)[0] == SURVIVED:
                return word
            if failed is None:
                limit_s *= 2
            else:
                tests = [test for test in tests if test != failed]
        return SURVIVED

    def _choose(self, change: Change, tried: set[str] | None = None) -> list[str]:
        chosen: list[str] = []
        seconds = 0.0
        tests = self._record.tests_of(change.path, change.function, change.line)
        for test in [test for test in tests if test not in (tried or ())][:TESTS_MAX]:
            seconds += self._record.seconds(test)
            if chosen and seconds > SECONDS_MAX:
                break
            chosen.append(test)
        return chosen

    def _starts_programs(self, test: str) -> bool:
        """Whether a test may need a second round."""
        return bool(PROGRAMS.search((self._root / test.partition("::")[0]).read_text()))

    def _copy(self, copy: Path) -> Path:
        shutil.copytree(self._root, copy, ignore=self._left_out, symlinks=True)
        for name in (".venv", ".venvs", "../shared"):  # the last holds large recordings, which some tests use
            if (self._root / name).exists() and not (copy / name).exists():
                (copy / name).symlink_to((self._root / name).resolve())
        return copy

    def _left_out(self, folder: str, names: list[str]) -> set[str]:
        return LEFT_OUT if Path(folder) == self._root else {"__pycache__"}

    def _outcome(self, copy: Path, tests: list[str], limit_s: float) -> tuple[str, str | None]:
        """What became of these tests, and which of them failed, if it is known."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "-p", "mutants.recorder", "-p", "no:cacheprovider"]
        with tempfile.TemporaryFile("w+") as said:
            process = subprocess.Popen(
                [*command, f"--timeout={limit_s:.0f}", *tests],
                cwd=copy,
                env=environment(copy),
                stdout=said,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            try:
                code = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                return TOO_SLOW, None
            finally:
                with contextlib.suppress(ProcessLookupError):  # also what the tests have left
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            said.seek(0)
            named = re.findall(r"^(?:FAILED|ERROR) (\S+::.*?)(?: - .*)?$", said.read(), re.MULTILINE)
        failed = next((test for test in tests if test in named), None)
        return SURVIVED if code == 0 else "does not import" if code == NO_SUCH_TEST else "found", failed


def _tell(change: Change, word: str) -> None:
    before, after = (" ".join(text.split()) for text in (change.before, change.after))
    print(f"{word:>16}  {change.path}:{change.line}  {before[:60]}  ->  {after[:60]}", flush=True)


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

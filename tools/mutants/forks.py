"""The first round of trials: mutants against tests that stay in one process, in forks (`forked.py`).

In: mutants and the tests chosen for each. Out: for each mutant the word on it, and the tests that it was tried with. Nothing is
written to the source tree. Most mutants are found here, in the time that the tests themselves take.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from mutants import forked
from mutants.changes import Change
from mutants.record import TestRecord, environment

FOLDERS = ("tests/unit/", "tests/property/", "tests/simtest/", "tests/golden/", "tests/fuzz/")
"""Tests elsewhere start programs, which see no mutant in a fork."""
TEST_S = 10.0
"""A test that takes longer waits for the second round."""
LIMIT_S = 60
"""A test that takes longer with a mutant has found it: it does not end."""
MOST_TESTS, MOST_S = 300, 60.0
"""Of tests for one mutant."""


class Forks:
    def __init__(self, root: Path, record: TestRecord) -> None:
        self._root = root
        self._package = root / "src" / "pilothouse"
        self._record = record

    def run(self, sample: list[Change], chosen: list[list[str]], jobs: int) -> dict[int, tuple[str, list[str]]]:
        """For the numbers of mutants that could be tried: the word, and the tests."""
        tests = {number: self._quick(names) for number, names in enumerate(chosen)}
        order = [number for number, names in tests.items() if names and not self._is_compiled(sample[number])]
        answers: dict[int, tuple[str, list[str]]] = {}
        with tempfile.TemporaryDirectory(prefix="pilothouse-forks-") as folder:
            shares = [order[share::jobs] for share in range(jobs)]
            started = [
                self._start(Path(folder) / str(index), sample, tests, share) for index, share in enumerate(shares) if share
            ]
            for process, answered in started:
                process.wait()
                for line in answered.read_text().splitlines() if answered.exists() else ():
                    answer = json.loads(line)
                    if answer["word"] != forked.UNSUPPORTED:
                        answers[answer["number"]] = answer["word"], tests[answer["number"]]
        return answers

    def _is_compiled(self, change: Change) -> bool:
        """Then the tests run what was compiled, until the source changes."""
        path = self._package / change.path
        return path.with_name(f"_{path.stem}.pxd").exists()

    def _quick(self, names: list[str]) -> list[str]:
        quick: list[str] = []
        seconds = 0.0
        for name in names:
            if name.startswith(FOLDERS) and self._record.seconds(name) <= TEST_S and len(quick) < MOST_TESTS:
                seconds += self._record.seconds(name)
                if quick and seconds > MOST_S:
                    break
                quick.append(name)
        return quick

    def _start(
        self, folder: Path, sample: list[Change], tests: dict[int, list[str]], share: list[int]
    ) -> tuple[subprocess.Popen[bytes], Path]:
        folder.mkdir()
        work, answered = folder / "work", folder / "answers"
        with work.open("w") as file:
            for number in share:
                change = sample[number]
                job = {
                    "number": number,
                    "path": change.path,
                    "function": change.function,
                    "text": change.text((self._package / change.path).read_text()),
                    "tests": tests[number],
                    "limit_s": 20 + 8 * sum(map(self._record.seconds, tests[number])),
                }
                file.write(json.dumps(job) + "\n")
        env = environment(self._root)
        env |= {forked.WORK: str(work), forked.ANSWERS: str(answered), forked.SOURCE: str(self._package)}
        plugins = ["-p", "mutants.recorder", "-p", "mutants.forked", "-p", "no:cacheprovider"]
        files = sorted({name.partition("::")[0] for number in share for name in tests[number]})
        options = [f"--timeout={LIMIT_S}", f"--basetemp={folder / 'tests'}"]
        command = [sys.executable, "-m", "pytest", "-q", *plugins, *options, *files]
        process = subprocess.Popen(command, cwd=self._root, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return process, answered

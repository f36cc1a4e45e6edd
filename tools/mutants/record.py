"""Which tests run which functions and lines of the package, and how long they take; kept in build/mutants."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SECONDS_MAX = 120.0
"""A test that takes longer, or that fails without any mutant, is not used."""


def environment(root: Path) -> dict[str, str]:
    """For pytest in a tree: its own sources come first, in the processes that tests start as well."""
    paths = (root / "src", root / "tools", root / "tools" / "mutants" / "site")
    env = {**os.environ, "PYTHONPATH": ":".join(map(str, paths))}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return env


class TestRecord:
    """`tests_of(path, function, line)` after `refresh(tests)`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = root / "build" / "mutants"
        self._tests: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._by_line: dict[tuple[str, int], set[str]] = defaultdict(set)
        self._by_file: dict[str, set[str]] = defaultdict(set)
        self._seconds: dict[str, float] = {}

    def refresh(self, tests: list[str], *, anew: bool = True, jobs: int = 1) -> None:
        """Records the test files that changed since, or whose helpers in the same folder did (`anew`), and reads all records."""
        self._folder.mkdir(parents=True, exist_ok=True)
        named = [self._root / name for name in tests if anew]
        files = [path for name in named for path in (name, *sorted(name.rglob("test_*.py"))) if path.suffix == ".py"]
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(self._record, dict.fromkeys(files)))
        for path in sorted(self._folder.glob("*.jsonl")):
            if path.name.replace("+", "/").startswith(tuple(name.removesuffix(".py") for name in tests)):
                self._read(path)

    def _record(self, path: Path) -> None:
        name = str(path.relative_to(self._root))
        modules = "\n".join(sorted(str(module.relative_to(self._root)) for module in (self._root / "src").rglob("*.py")))
        helpers = [other for other in sorted(path.parent.glob("*.py")) if not other.name.startswith("test_")]
        content = b"".join(file.read_bytes() for file in (path, *helpers))
        digest = hashlib.sha256(content + modules.encode()).hexdigest()[:12]
        stem = name.removesuffix(".py").replace("/", "+")
        kept = self._folder / f"{stem}.{digest}.jsonl"
        if kept.exists():
            return
        for old in self._folder.glob(f"{stem}.*.jsonl"):
            old.unlink()
        print(f"recording {name}", flush=True)
        fresh = kept.with_suffix(".part")
        fresh.unlink(missing_ok=True)
        env = environment(self._root)
        env |= {"PILOTHOUSE_MUTANTS_RECORD": str(fresh), "PILOTHOUSE_MUTANTS_SOURCE": str(self._root / "src/pilothouse")}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "mutants.recorder", "-p", "no:cacheprovider", name]
        subprocess.run(command, cwd=self._root, env=env, stdout=subprocess.DEVNULL, check=False)
        fresh.touch()
        fresh.rename(kept)

    def _read(self, path: Path) -> None:
        pairs: set[tuple[str, str, str]] = set()
        lines: set[tuple[str, int, str]] = set()
        seconds: dict[str, float] = {}
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if "function" in record:
                pairs.add((record["path"], record["function"], record["test"]))
                lines.update((record["path"], line, record["test"]) for line in record["lines"])
            elif record["passed"] and record["seconds"] < SECONDS_MAX:
                seconds[record["test"]] = record["seconds"]
        for source, function, test in pairs:
            if test in seconds and function:
                self._tests[source, function].add(test)
                self._by_file[source].add(test)
        for source, number, test in lines:
            if test in seconds:
                self._by_line[source, number].add(test)
        self._seconds |= seconds

    def tests_of(self, path: str, function: str, line: int) -> list[str]:
        """The tests that run a function: those that run the line first, the quickest first; for what is outside of all
        functions, those of the file, or if it has no functions, of its folder."""
        found = self._tests.get((path, function)) or self._by_file.get(path)
        if not found:
            found = {test for other, tests in self._by_file.items() if Path(other).parent == Path(path).parent for test in tests}
        near = self._by_line.get((path, line), set())
        return sorted(found, key=lambda test: (test not in near, self._seconds[test], test))

    def seconds(self, test: str) -> float:
        return self._seconds[test]

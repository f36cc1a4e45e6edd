"""Tries mutants of the package against its tests, and prints those that no test notices.

    ./do mutants                              300 mutants, seed 1
    ./do mutants --count 50 --seed 7          others
    ./do mutants --only policies/             of some files
    ./do mutants --only core/place.py --all   every one of a file
    ./do mutants --tests tests/unit tests/property   with these tests only

Which tests run which functions and lines is recorded once and kept in build/mutants; a test file is recorded again when it
or a helper beside it changes, and all of them when modules come, go or move. A mutant is tried against the tests that run
its function, those that run its line first, then the quickest, until one fails, takes too long or all pass: first in a fork
of a process that has imported the tests, then in a copy of the tree. A test that fails without the mutant as well, as on a
busy machine, finds nothing. Equivalent mutants, and others that are not worth a test, are listed with their reasons in
tools/mutants/argued.txt.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from functools import partial
from pathlib import Path

from mutants.changes import Change, changes
from mutants.record import TestRecord
from mutants.trial import Trials

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "pilothouse"
PATTERNS = (
    *(f"{room}/**/*.py" for room in ("model", "policies", "core", "formats", "protocols", "journal")),
    *(f"worlds/live/{room}/*.py" for room in ("driver", "engine", "wire", "services")),
    *(f"worlds/simulated/{room}*.py" for room in ("", "message_server/", "physics/agenda", "physics/machine")),
    *(f"dropins/qcg/{name}*.py" for name in ("job_queue", "registry", "bundles", "governor")),
)
"""State machines, policies, core, formats and codecs; those that talk to sockets and processes are left out."""
KERNEL = {"worlds/live/engine/memory.py"}
"""Left out as well: it is none of these, it reads and writes files of the kernel (/proc, cgroups). Real runs test it."""
TESTS = [f"tests/{kind}" for kind in ("unit", "property", "simtest", "fuzz", "golden", "e2e", "interop")]
ARGUED = Path(__file__).parent / "argued.txt"


def targets() -> list[str]:
    sys.path.insert(0, str(ROOT / "tests"))
    from test_tidy import GENERATED, SHELLS

    found = {str(path.relative_to(PACKAGE)) for pattern in PATTERNS for path in PACKAGE.glob(pattern)}
    return sorted(found - SHELLS - GENERATED - KERNEL)


def argued() -> dict[tuple[str, str, str, str], str]:
    """(path, function or "" for any, before, after) -> why no test needs to notice."""
    entries: dict[tuple[str, str, str, str], str] = {}
    for block in ARGUED.read_text().split("\n\n"):
        lines = [line for line in block.strip().splitlines() if not line.startswith("#")]
        if lines:
            place, before, after, *why = lines
            path, _, function = place.partition(" ")
            entries[path, function, before.removeprefix("- "), after.removeprefix("+ ")] = " ".join(why)
    return entries


def is_argued(change: Change, known: dict[tuple[str, str, str, str], str]) -> bool:
    texts = one_line(change.before), one_line(change.after)
    return (change.path, "", *texts) in known or (change.path, change.function, *texts) in known


def one_line(text: str) -> str:
    return " ".join(text.split())


def drawn(seed: int, change: Change) -> bytes:
    """Sorts mutants by chance. A sample changes little when the source does."""
    parts = (seed, change.path, change.function, change.before, change.after, *([change.nth] if change.nth else []))
    return hashlib.sha256(" ".join(map(str, parts)).encode()).digest()


def main() -> int:
    parser = argparse.ArgumentParser(prog="./do mutants", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", default=[], help="files whose path contains this")
    parser.add_argument("--all", action="store_true", help="all mutants, not a sample")
    parser.add_argument("--jobs", type=int, default=1, help="mutants, or test files to record, at once")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="which tests to use")
    parser.add_argument("--no-record", action="store_true", help="use the records that there are, though tests changed since")
    parser.add_argument("--record", action="store_true", help="record what these tests run, and stop")
    options = parser.parse_args()

    record = TestRecord(ROOT)
    record.refresh(options.tests, anew=not options.no_record, jobs=options.jobs)
    if options.record:
        return 0
    known = argued()
    found: list[Change] = []
    for path in targets():
        if not options.only or any(part in path for part in options.only):
            found += changes(path, (PACKAGE / path).read_text())
    candidates = [change for change in found if not is_argued(change, known)]
    print(f"{len(candidates)} possible mutants, and {len(found) - len(candidates)} that are argued", flush=True)
    if not options.all:
        candidates.sort(key=partial(drawn, options.seed))
    sample: list[Change] = []
    for change in candidates:
        if len(sample) < options.count or options.all:
            sample += [change] if change.is_python((PACKAGE / change.path).read_text()) else []
    survivors = Trials(ROOT, record).run(sample, options.jobs)
    for change in survivors:
        print(f"\nsurvived, in {change.function or 'the module'}:")
        print(change.diff((PACKAGE / change.path).read_text()))
    caught = len(sample) - len(survivors)
    print(f"\nfound {caught} of {len(sample)} mutants ({caught / max(1, len(sample)):.1%}), seed {options.seed}")
    return 0


sys.exit(main())

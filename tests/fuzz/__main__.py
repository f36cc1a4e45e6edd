"""Fuzzes every target of fuzz/targets.py, and counts the inputs.

    ./do fuzz --inputs 1000000              so many damaged inputs, spread over all targets
    ./do fuzz --seconds 60 --target swf     one target, for a minute
    ./do fuzz --atheris --target tasks --inputs 100000   guided by coverage
    ./do fuzz --replay out/fuzz/swf-0f3a    one input again, with its traceback

An input that raises anything but a PilothouseError, or takes more than 5 seconds of CPU time, is written to out/fuzz. Inputs that
led to a repair belong into tests/fuzz/corpus/TARGET: every run begins with them.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import hashlib
import logging
import signal
import sys
import time
import traceback
from pathlib import Path
from random import Random

import components
from fuzz.edits import drawn

if "--atheris" in sys.argv:  # only what is imported here is guided by coverage
    import atheris  # type: ignore[import-not-found]

    with atheris.instrument_imports(include=["pilothouse"]):
        from fuzz.targets import TARGETS
else:
    from fuzz.targets import TARGETS
from pilothouse.model.errors import PilothouseError

OUT = components.ROOT / "out" / "fuzz"
SECONDS_MAX = 5
MOST_OF_A_KIND = 3


class TooSlow(Exception):
    """An input took more than SECONDS_MAX of CPU time."""


def too_slow(*_: object) -> None:
    raise TooSlow(f"took more than {SECONDS_MAX} s")


class Findings:
    """Keeps a few inputs of each kind of failure: the exception and the line of ours that raised it."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def add(self, name: str, data: bytes, problem: BaseException) -> None:
        places = [frame for frame in traceback.extract_tb(problem.__traceback__) if "pilothouse" in frame.filename]
        place = f"{Path(places[-1].filename).name}:{places[-1].lineno}" if places else "?"
        kind = f"{name}: {type(problem).__name__} at {place}"
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if self.counts[kind] <= MOST_OF_A_KIND:
            OUT.mkdir(parents=True, exist_ok=True)
            path = OUT / f"{name}-{hashlib.sha256(data).hexdigest()[:8]}"
            path.write_bytes(data)
            print(f"FOUND {kind}: {str(problem)[:100]!r} by {path.relative_to(components.ROOT)}", flush=True)


def run_one(name: str, data: bytes) -> BaseException | None:
    """What an input raised, if it is a finding."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS_MAX)
    try:
        TARGETS[name].run(data)
    except PilothouseError:
        return None
    except Exception as problem:
        return problem
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return None


def run_random(names: list[str], inputs: int, seconds: float, seed: int) -> tuple[dict[str, int], Findings]:
    random, findings, counts = Random(seed), Findings(), dict.fromkeys(names, 0)
    known = {name: TARGETS[name].seeds() for name in names}
    for name in names:
        for data in known[name]:
            if (problem := run_one(name, data)) is not None:
                findings.add(name, data, problem)
            counts[name] += 1
    weights = [TARGETS[name].weight for name in names]
    ends = time.monotonic() + seconds
    while sum(counts.values()) < inputs and time.monotonic() < ends:
        name = random.choices(names, weights)[0]
        for _ in range(100):
            data = drawn(random, known[name])
            if (problem := run_one(name, data)) is not None:
                findings.add(name, data, problem)
        counts[name] += 100
    return counts, findings


def run_atheris(name: str, inputs: int) -> None:
    """Does not return: libFuzzer ends the process, and prints its own counts."""
    corpus = OUT / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for data in TARGETS[name].seeds():
        (corpus / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)

    def one(data: bytes) -> None:
        with contextlib.suppress(PilothouseError):
            TARGETS[name].run(data)

    atheris.Setup([sys.argv[0], str(corpus), f"-runs={inputs}", "-timeout=5", f"-artifact_prefix={OUT}/{name}-"], one)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(prog="./do fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", action="append", choices=list(TARGETS), default=[])
    parser.add_argument("--atheris", action="store_true", help="guided by coverage; one target")
    parser.add_argument("--replay", type=Path, help="an input that was found")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGPROF, too_slow)
    faulthandler.enable()
    names = options.target or list(TARGETS)
    if options.replay is not None:
        name = max((name for name in TARGETS if options.replay.name.startswith(f"{name}-")), key=len)
        TARGETS[name].run(options.replay.read_bytes())
        return 0
    if options.atheris:
        run_atheris(names[0], options.inputs)
    began = time.monotonic()
    counts, findings = run_random(names, options.inputs, options.seconds, options.seed)
    for name, count in counts.items():
        print(f"{name:>22} {count:>10,}")
    total = sum(counts.values())
    print(f"{total:,} inputs in {time.monotonic() - began:.0f} s, seed {options.seed}: {len(findings.counts)} findings")
    for kind, count in findings.counts.items():
        print(f"  {kind} ({count} times)")
    return 1 if findings.counts else 0


if __name__ == "__main__":
    sys.exit(main())

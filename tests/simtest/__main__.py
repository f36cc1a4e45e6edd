"""Any number of storms: `python -m tests.simtest --seeds N --first S`."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from typing import Protocol

from tests.simtest.storm import Storm


class Runs(Protocol):
    def run(self) -> None: ...


def run_storms(storm: Callable[[int], Runs], module: str) -> int:
    """Runs storms by the options of the command line; prints the seed of each that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--stop", action="store_true", help="stop at the first failure, with its traceback")
    arguments = parser.parse_args()
    began = time.process_time()
    failed = []
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        try:
            storm(seed).run()
        except Exception:
            failed.append(seed)
            last = traceback.format_exc()
            print(
                f"seed {seed}: {last.strip().splitlines()[-1]}   (python -m {module} --seeds 1 --first {seed} --stop)"
            )
            if arguments.stop:
                print(last)
                break
    spent = time.process_time() - began
    print(f"{arguments.seeds} storms, {len(failed)} failed, {spent:.1f} CPU s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run_storms(Storm, "tests.simtest"))

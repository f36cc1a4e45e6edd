"""Kills processes of real runs: `python -m tests.storms --kills 1000 --tasks 20000`.

Prints what was counted. The folder of a storm in which something went wrong is kept; `--kills 1 --seed N` repeats storm N.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.components import MissingComponent, start_sshd
from tests.storms.elsewhere import run_elsewhere
from tests.storms.storm import Outcome, Plan, first_plan, run_storm

MOST_TOLD = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-ssh", action="store_true")
    parser.add_argument("--elsewhere", action="store_true", help="one storm over hosts that do not see the run's folder")
    arguments = parser.parse_args()
    top = Path(tempfile.mkdtemp(prefix="storms-"))
    if arguments.elsewhere:
        return _elsewhere(top, arguments.seed, arguments.kills)
    sshd = None
    if not arguments.no_ssh:
        try:
            sshd = start_sshd(top / "sshd")
        except MissingComponent as missing:
            print(f"no storms over ssh: {missing}")
    hosts = sshd.names[:2] if sshd else ()
    total, began = Outcome(), time.monotonic()
    plan = first_plan(arguments.seed, hosts)
    try:
        while sum(total.kills.values()) < arguments.kills or total.tasks < arguments.tasks:
            outcome = run_storm(top / str(plan.seed), plan, sshd.env if sshd else None)
            _tell(plan, outcome, top / str(plan.seed))
            total.add(outcome)
            plan = plan.next(hosts)
    finally:
        if sshd is not None:
            sshd.stop()
    _print(total, time.monotonic() - began)
    if not total.problems:
        shutil.rmtree(top)
    return 1 if total.problems else 0


def _elsewhere(top: Path, seed: int, kills: int) -> int:
    (top / "here").mkdir()
    sshd, began = start_sshd(top / "sshd", hosts=2, hidden=top / "here"), time.monotonic()
    try:
        outcome = run_elsewhere(top / "here", seed, kills, sshd.env)
    finally:
        sshd.stop()
    _print(outcome, time.monotonic() - began)
    for problem in outcome.problems[:MOST_TOLD]:
        print(f"    {problem}")
    return 1 if outcome.problems else 0


def _tell(plan: Plan, outcome: Outcome, folder: Path) -> None:
    where = "ssh " + ",".join(plan.ssh) if plan.ssh else "local"
    kills = sum(outcome.kills.values())
    print(f"storm {plan.seed}: {plan.once}, {where}, {kills} kills, {len(outcome.problems)} problems", flush=True)
    for problem in outcome.problems[:MOST_TOLD]:
        print(f"    {problem}", flush=True)
    if outcome.problems:
        print(f"    kept: {folder}", flush=True)
    else:
        shutil.rmtree(folder)


def _print(total: Outcome, spent_s: float) -> None:
    print(f"{sum(total.kills.values())} kills over {total.tasks:,} tasks in {spent_s:.0f} s")
    print("  killed: " + ", ".join(f"{name} {count}" for name, count in total.kills.most_common()))
    print("  when: " + ", ".join(f"{name} {count}" for name, count in total.moments.most_common()))
    print(f"  {total.together} of them together with others")
    print(
        f"  lost {len(total.lost)}, twice {len(total.twice)}, orphans {len(total.orphans)}, "
        f"slots exceeded {len(total.slots_exceeded)}, other problems {len(total.other)}"
    )
    print(f"  outputs of finished tasks: {total.outputs:,} looked at, {len(total.wrong_outputs)} not whole or there twice")
    print(
        f"  cut off: {total.repeated} ran again, {total.reported_lost} were reported as lost; "
        f"{total.unknown_ends} ended at the very moment of a kill"
    )


if __name__ == "__main__":
    sys.exit(main())

"""Kills and stops processes of real runs: `python -m tests.storms --kills 1000 --tasks 20000`.

Storms take place on this host, over ssh, inside an allocation of a loopback Slurm, in a Pool and in the stand-ins for disBatch
and QCG-PilotJob, in turn (--only: in one of them). Prints what was counted. The folder of a storm in which something went wrong
is kept; `--kills 1 --seed N` repeats storm N.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.components import MissingComponent, slurm_cluster, start_sshd, stop_slurm
from tests.e2e.live_runs import until
from tests.storms.elsewhere import run_elsewhere
from tests.storms.programs import run_program_storm
from tests.storms.storm import Outcome, Plan, run_storm

MOST_TOLD = 20
RUNS = ("local", "ssh", "slurm")
PROGRAMS = ("pool", "disbatch", "qcg")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=[*RUNS, *PROGRAMS], action="append")
    parser.add_argument("--elsewhere", action="store_true", help="one storm over hosts that do not see the run's folder")
    arguments = parser.parse_args()
    top = Path(tempfile.mkdtemp(prefix="storms-"))
    if arguments.elsewhere:
        return _elsewhere(top, arguments.seed, arguments.kills)
    total, began, seed = Outcome(), time.monotonic(), arguments.seed
    with ExitStack() as stack:
        kinds, envs = list(arguments.only or (*RUNS, *PROGRAMS)), {"local": dict(os.environ)}
        for kind, opened in (("ssh", _ssh), ("slurm", _allocation)):
            if kind in kinds:
                try:
                    envs[kind] = stack.enter_context(opened(top / kind))
                except MissingComponent as missing:
                    print(f"no storms with {kind}: {missing}")
                    kinds.remove(kind)
        while sum(total.kills.values()) < arguments.kills or total.tasks < arguments.tasks:
            kind, turn = kinds[seed % len(kinds)], seed // len(kinds)
            folder = top / str(seed)
            if kind in PROGRAMS:
                where, outcome = kind, run_program_storm(folder, kind, seed, 15)
            else:
                once = ("at-least", "at-most")[turn % 2]
                plan = Plan(seed, once, ("h1", "h2")[: 1 + turn // 2 % 2] if kind == "ssh" else (), kind == "slurm")
                where, outcome = f"{once}, {plan.where}", run_storm(folder, plan, envs[kind])
            _tell(seed, where, outcome, folder)
            total.add(outcome)
            seed += 1
    _print(total, time.monotonic() - began)
    if not total.problems:
        shutil.rmtree(top)
    return 1 if total.problems else 0


@contextmanager
def _ssh(folder: Path) -> Iterator[dict[str, str]]:
    sshd = start_sshd(folder)
    try:
        yield sshd.env
    finally:
        sshd.stop()


@contextmanager
def _allocation(folder: Path) -> Iterator[dict[str, str]]:
    """The environment inside an allocation of two nodes, which is held meanwhile."""
    cluster = slurm_cluster(folder, os.getpid())
    seen = folder / "environment"
    script = f"echo $$ > {seen}.pid; env -0 > {seen}.new; mv {seen}.new {seen}; exec sleep infinity"
    holder = subprocess.Popen(["salloc", "-Q", "-N", "2", "--ntasks-per-node=2", "sh", "-c", script], env=cluster.env)
    try:
        until(seen.exists, "the allocation is there")
        yield dict(entry.split("=", 1) for entry in seen.read_text().split("\0") if entry)
    finally:
        with contextlib.suppress(OSError):
            os.kill(int(Path(f"{seen}.pid").read_text()), signal.SIGKILL)  # salloc ends with its command
        with contextlib.suppress(subprocess.TimeoutExpired):
            holder.wait(10)
        holder.kill()
        stop_slurm(folder)


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


def _tell(seed: int, where: str, outcome: Outcome, folder: Path) -> None:
    kills, stops = sum(outcome.kills.values()), sum(outcome.stops.values())
    print(f"storm {seed}: {where}, {kills} kills, {stops} stops, {len(outcome.problems)} problems", flush=True)
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
    print("  stopped and continued: " + ", ".join(f"{name} {count}" for name, count in total.stops.most_common()))
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

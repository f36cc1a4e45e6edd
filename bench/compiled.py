"""What each compiled part gains: one whole run with it and without it, turn about.

    python bench/compiled.py [--part masks,codec] [--best-of 5] [--jobs 100000]

Prints the CPU seconds (user and system, children included, best of N) of runs that need a part, with the part and with
its Python twin, and their ratio. For real tasks it prints wall seconds between the first start and the last end: their
engine is no child of the command. A part is switched off by a sitecustomize.py that makes its import fail, in the run and
in all of its children; the product knows nothing of this. A part is worth its lines if some run gains 1.2 or more.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import batprotocol
import physics
import protocol
import simulate
import tasks

ROOT = Path(__file__).resolve().parent.parent
SWITCH = """
import os, sys
class Absent:
    hidden = os.environ.get("HIDE_COMPILED", "").split()
    def find_spec(self, name, path=None, target=None):
        if name in self.hidden:
            raise ImportError(name + " is switched off")
sys.meta_path.insert(0, Absent())
"""
PILOTHOUSE = [sys.executable, "-m", "pilothouse"]
WIDE_HOSTS = 65_536
PARTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "masks": ("pilothouse.model._masks", ("easy", "wide easy", "conservative")),
    "backfill queue": ("pilothouse.policies._backfill_queue", ("fcfs", "easy", "easy-sjbf", "wfp3")),
    "reservation plan": ("pilothouse.policies._reservation_plan", ("conservative",)),
    "rows": ("pilothouse.formats._rows", ("fcfs", "easy")),
    "agenda": ("pilothouse.worlds.simulated.physics._agenda", ("fcfs", "easy")),
    "sharing": ("pilothouse.worlds.simulated.physics._sharing", ("parallel tasks",)),
    "codec": ("pilothouse.protocols.batprotocol._codec", ("edc", "batsim5")),
    "rounds": ("pilothouse.worlds.simulated.message_server._rounds", ("batsim5", "batsim4")),
    "stepped": ("pilothouse.worlds.simulated.physics._agenda", ("batsim5", "batsim4")),
    "spawn": ("pilothouse.worlds.live.engine._spawn", ("tasks", "tiny tasks")),
}
"""Part -> its module, and the runs that might need it."""


class Lab:
    """A folder with inputs, each made when it is first needed, and the commands of the runs."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self.folder = folder
        self.jobs = jobs
        (folder / "switch").mkdir()
        (folder / "switch" / "sitecustomize.py").write_text(SWITCH)
        self._runs = 0
        self._edc: tuple[str, str, str] | None = None

    def simulation(self, policy: str, hosts: int = simulate.HOSTS) -> list[str]:
        workload = self.folder / f"{hosts}.json"
        if not workload.exists():
            simulate.make_workload(workload, self.jobs, hosts)
        return [*PILOTHOUSE, "simulate", "-q", "-p", str(hosts), "-w", str(workload), "--policy", policy, *self.out()]

    def parallel_tasks(self) -> list[str]:
        platform, workload = self.folder / "cluster.xml", self.folder / "parallel.json"
        platform.write_text(physics.PLATFORM)
        physics.make_workload(workload, 1000)
        return [*PILOTHOUSE, "simulate", "-q", "-p", str(platform), "-w", str(workload), "--policy", "fcfs", *self.out()]

    def edc(self, drop_in: bool) -> list[str]:
        self._edc = self._edc or batprotocol.write_inputs(self.folder, self.jobs // 2)
        platform, workload, library = self._edc
        inputs = ["-q", "-p", platform, "-w", workload, *self.out()]
        if drop_in:
            return [*PILOTHOUSE, "batsim", *inputs, "-m", "master_host0", "-l", library, ""]
        return [*PILOTHOUSE, "simulate", *inputs, "--by", f"edc:{library}?inprocess=1"]

    def run_tasks(self, program: str) -> float:
        """Wall seconds of 3000 tasks on two slots."""
        file, folder = self.folder / "tasks.txt", self.folder / f"R{self._runs}"
        self._runs += 1
        file.write_text(f"{program}\n" * tasks.TASKS)
        subprocess.run([*PILOTHOUSE, "run", str(file), "--slots", "2", "--dir", str(folder), "-q"], check=True)
        (span,) = tasks.query(folder, "SELECT max(ended_at) - min(started_at) FROM ends")
        return span

    def tiny(self) -> str:
        """A program without a C library, so that starting it is all that is measured."""
        source, program = self.folder / "tiny.c", self.folder / "tiny"
        if not program.exists():
            source.write_text(tasks.TINY)
            subprocess.run(["gcc", "-O2", "-nostdlib", "-static", str(source), "-o", str(program)], check=True)
        return str(program)

    def out(self) -> list[str]:
        return ["-e", f"{self.folder}/out/"]

    def batsim4(self) -> float:
        """CPU seconds of our side; the scheduler's do not count."""
        folder, jobs = self.folder / "batsim4", self.jobs // 5
        if not folder.exists():
            folder.mkdir()
            (folder / "platform.xml").write_text(protocol.PLATFORM)
            protocol.write_workload(folder / "workload.json", jobs)
        return protocol.measure(folder, jobs)

    def cost(self, run: str, hidden: str) -> float:
        """Seconds of one run without the hidden module."""
        os.environ["PYTHONPATH"] = f"{self.folder}/switch:{ROOT / 'src'}"
        os.environ["HIDE_COMPILED"] = hidden
        makers: dict[str, Callable[[], list[str]]] = {
            "wide easy": lambda: self.simulation("easy", WIDE_HOSTS),
            "parallel tasks": self.parallel_tasks,
            "edc": lambda: self.edc(drop_in=False),
            "batsim5": lambda: self.edc(drop_in=True),
        }
        if run == "batsim4":
            return self.batsim4()
        if run in ("tasks", "tiny tasks"):
            return self.run_tasks("/bin/true" if run == "tasks" else self.tiny())
        command = makers[run]() if run in makers else self.simulation(run)
        before = os.times()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default=",".join(PARTS), help="default: all")
    parser.add_argument("--best-of", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=100_000)
    options = parser.parse_args()
    print(f"{'part':15} {'run':15} {'with, s':>11} {'without':>8} {'gain':>6}")
    with tempfile.TemporaryDirectory() as name:
        lab = Lab(Path(name), options.jobs)
        for part in options.part.split(","):
            module, runs = PARTS[part]
            if importlib.util.find_spec(module) is None:
                sys.exit(f"{module} is not compiled here: run `./do setup`")
            for run in runs:
                turns = [(lab.cost(run, ""), lab.cost(run, module)) for _ in range(options.best_of)]
                on, off = (min(column) for column in zip(*turns, strict=True))
                print(f"{part:15} {run:15} {on:11.2f} {off:8.2f} {off / on:6.2f}", flush=True)


if __name__ == "__main__":
    main()

"""Random jobs on a real loopback Slurm, steered by any decider, disturbed, and judged by slurmctld's own log.

`python -m tests.interop.slurm_trial --jobs 200 --by easy` is the long form; tests/interop/test_slurm_world.py runs it with
fewer jobs. Disturbances: kill -9 of the steering program, a restarted slurmctld, held, cancelled and requeued jobs, a drained
node. What must hold: every job ends, on the nodes it was ordered to, no node has two steered jobs, no job starts before what
it depends on, and none overtakes an earlier order by more than one scheduling pass.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from pilothouse.formats import hostlist
from pilothouse.worlds.slurm.daemons import free_port
from pilothouse.worlds.slurm.lab import Lab
from pilothouse.worlds.slurm.lab_files import parse_shape
from pilothouse.worlds.slurm.look import OVER

LINE = re.compile(r"\[([^\]]+)\] (.*)")
JOB = r"JobId=(\d+(?:_\d+)?)(?:\((\d+)\))?"
ORDERED = re.compile(rf"(?:sched: )?_update_job: setting partition to (\S+) for {JOB}")
PLACED = re.compile(rf"(?:sched: )?_update_job: setting req_nodes to (\S*) for {JOB}")
STARTED = re.compile(rf"(?:sched: Allocate {JOB} NodeList=(\S+) .*Partition=go|.*Started {JOB} in go on (\S+))")
ENDED = re.compile(
    rf"_job_complete: {JOB} done|_slurm_rpc_kill_job: REQUEST_KILL_JOB {JOB}|_job_requeue.*{JOB}"
    rf"|Time limit exhausted for {JOB}"
)
PASS_S = 2.5
"""A scheduling pass on a busy machine."""


class Trial:
    """One run of jobs on a lab."""

    def __init__(self, lab: Lab, by: Callable[[], tuple[str, list[str]]], *, jobs: int, seed: int) -> None:
        self.lab = lab
        self.jobs = jobs
        self.rng = random.Random(seed)
        self.ids: list[str] = []
        """Jobs as squeue lists them."""
        self.after: dict[str, str] = {}
        self.held = ""
        self._listed: dict[str, str] = {}
        self._by = by
        self._logged = lab.folder / "slurmctld.log"
        self._from = self._logged.stat().st_size
        self._out = (lab.folder / "steer.log").open("ab")

    # ---- Slurm's commands

    def slurm(self, *command: str) -> str:
        done = subprocess.run(command, env=self.lab.env, capture_output=True, text=True, timeout=60, check=False, cwd="/tmp")
        return done.stdout.strip()

    def submit(self, *options: str, sleep: float) -> str:
        return self.slurm("sbatch", "--parsable", "-o", "/dev/null", "-p", "queue", *options, "--wrap", f"sleep {sleep:.1f}")

    def states(self) -> dict[str, str]:
        rows = (line.split() for line in self.slurm("squeue", "-h", "-a", "-r", "-t", "all", "-o", "%i %T").splitlines())
        found = {row[0]: row[1] for row in rows if len(row) == 2}
        # Ended jobs are not listed for ever, and elements of arrays that were cancelled while they waited not at all.
        for job, state in self._listed.items():
            if found and job not in found:
                found[job] = state if state in OVER else "CANCELLED"
        self._listed.update(found)
        return found

    def submit_all(self) -> None:
        rng, made = self.rng, 0
        while made < self.jobs:
            nodes = f"-N{rng.choice([1, 1, 2, 2, 3, 4])}"
            options, sleep = [nodes, f"-t{rng.randint(1, 5)}"], rng.uniform(0.0, 2.0)
            if rng.random() < 0.1 and self.jobs - made > 3:
                array = self.submit(*options, "--array=1-3", sleep=sleep)
                self.ids += [f"{array}_{task}" for task in (1, 2, 3)]
                made += 3
                continue
            earlier = rng.choice(self.ids) if self.ids and rng.random() < 0.12 else ""
            if earlier:
                options.append(f"--dependency=afterany:{earlier}")
            if rng.random() < 0.05:
                options.append("--begin=now+3")
            job = self.submit(*options, sleep=sleep)
            if earlier:
                self.after[job] = earlier
            self.ids.append(job)
            made += 1

    # ---- the run

    def run(self, limit_s: float = 900.0, plan: list[tuple[int, str]] | None = None) -> None:
        """`plan`: at how many jobs left what happens."""
        self.submit_all()
        end = time.monotonic() + limit_s
        plan = self._plan() if plan is None else plan
        steer, beside = self._start()
        try:
            while True:
                states = self.states()
                left = [job for job in self.ids if states.get(job) not in OVER]
                if not left:
                    break
                assert time.monotonic() < end, f"not over: {[(job, states.get(job)) for job in left]}"
                while plan and len(left) <= plan[0][0]:
                    act = plan[0][1]
                    if act == "kill":
                        steer.kill()
                        steer.wait()
                    elif not getattr(self, act)(states) and len(left) > plan[0][0] - 2:
                        break
                    plan.pop(0)
                    if steer.poll() is not None:
                        break
                if steer.poll() is not None:
                    assert steer.returncode in (0, -signal.SIGKILL), (self.lab.folder / "steer.log").read_text()[-2000:]
                    _end(beside)
                    steer, beside = self._start()
                time.sleep(0.1)
        finally:
            steer.kill()
            steer.wait()
            _end(beside)
            self.slurm("scontrol", "update", "nodename=n7", "state=resume")

    def _start(self) -> tuple[subprocess.Popen[bytes], list[subprocess.Popen[bytes]]]:
        by, command = self._by()
        beside = [subprocess.Popen(command, stdout=self._out, stderr=self._out, start_new_session=True)] if command else []
        steer = [sys.executable, "-m", "pilothouse", "steer", "--world", "slurm?once=1&patience=10s", "--by", by]
        return subprocess.Popen(steer, env=self.lab.env, stdout=self._out, stderr=self._out), beside

    def _plan(self) -> list[tuple[int, str]]:
        """At how many jobs left what happens."""
        spread = 0.8 * self.jobs / 10
        order = ["hold", "kill", "cancel", "drain", "requeue", "kill", "controller", "resume", "kill", "release"]
        return [(int(self.jobs - (index + 1) * spread), act) for index, act in enumerate(order)]

    def _some(self, states: dict[str, str], state: str) -> str:
        found = [job for job in self.ids if states.get(job) == state]
        return self.rng.choice(found) if found else ""

    def hold(self, states: dict[str, str]) -> bool:
        self.held = self.held or self._some(states, "PENDING")
        return self._done("scontrol", "hold", self.held)

    def release(self, states: dict[str, str]) -> bool:
        return self._done("scontrol", "release", self.held)

    def drain(self, states: dict[str, str]) -> bool:
        return self._done("scontrol", "update", "nodename=n7", "state=drain", "reason=trial")

    def resume(self, states: dict[str, str]) -> bool:
        return self._done("scontrol", "update", "nodename=n7", "state=resume")

    def cancel(self, states: dict[str, str]) -> bool:
        return self._done("scancel", self._some(states, "PENDING"))

    def requeue(self, states: dict[str, str]) -> bool:
        """Tried again until one is found that still runs, for a while."""
        return self._done("scontrol", "requeue", self._some(states, "RUNNING"))

    def controller(self, states: dict[str, str]) -> bool:
        # QUIRK: slurmctld that ends between an allocation and its launch forgets to launch: the job "runs" until its limit.
        while time.time() - self._last_start() < 0.3:
            time.sleep(0.02)
        self.lab.restart_controller()
        return True

    def _done(self, *command: str) -> bool:
        if not command[-1]:
            return False
        done = subprocess.run(command, env=self.lab.env, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode == 0

    def _last_start(self) -> float:
        found = [match for match in map(LINE.match, self._logged.read_text().splitlines()) if match and STARTED.match(match[2])]
        return datetime.fromisoformat(found[-1][1]).timestamp() if found else 0.0

    # ---- the verdict

    def judge(self) -> dict[str, float]:
        """Reads slurmctld's log; raises AssertionError, or returns figures."""
        ordered: dict[str, float] = {}
        names: dict[str, set[str]] = {}
        running: dict[str, set[str]] = {}
        over: set[str] = set()
        waits: list[float] = []
        starts = wrong = 0
        latest_order_started = -1.0
        problems: list[str] = []
        with self._logged.open() as log:
            log.seek(self._from)
            lines = [found for found in map(LINE.match, log) if found]
        for found in lines:
            at, text = datetime.fromisoformat(found[1]).timestamp(), found[2]
            if match := ORDERED.match(text):
                job = match[2]
                if match[1] == "go":
                    ordered[job] = at
                else:
                    ordered.pop(job, None)
                    running.pop(job, None)
            elif match := PLACED.match(text):
                names[match[2]] = set(filter(None, match[1].split(",")))
            elif match := STARTED.match(text):
                job, nodes = match[1] or match[4], set(hostlist.parse(match[3] or match[6]))
                starts += 1
                if nodes != names.get(job):
                    problems.append(f"job {job} was ordered to {names.get(job)} and started on {nodes}")
                for other, taken in running.items():
                    if taken & nodes:
                        problems.append(f"jobs {other} and {job} are both on {taken & nodes}")
                earlier = self.after.get(job)
                if earlier and not self._is_over(earlier, over):
                    problems.append(f"job {job} started before {earlier} had ended")
                order = ordered.pop(job, at)
                waits.append(at - order)
                wrong += order < latest_order_started - PASS_S
                latest_order_started = max(latest_order_started, order)
                running[job] = nodes
            elif match := ENDED.match(text):
                job = match[1] or match[3] or match[5] or match[7]
                running.pop(job, None)
                over.add(job)
        assert not problems, problems
        assert wrong == 0, f"{wrong} starts were overtaken by later orders"
        states = self.states()
        missing = [job for job in self.ids if states.get(job) not in OVER]
        assert not missing, missing
        cancelled = sum(states[job] == "CANCELLED" for job in self.ids)
        return {
            "jobs": len(self.ids),
            "starts": starts,
            "cancelled": cancelled,
            "median wait of an order": statistics.median(waits),
            "longest wait of an order": max(waits),
        }

    @staticmethod
    def _is_over(job: str, over: set[str]) -> bool:
        return job in over


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
        process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--by", default="easy", help="{port} is replaced by a free port")
    parser.add_argument("--beside", default="", help="the command of a scheduler; {port} as above")
    parser.add_argument("--shape", default="8x4")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pilothouse-trial-") as folder:
        lab = Lab(Path(folder), parse_shape(arguments.shape))
        lab.start()
        try:

            def by() -> tuple[str, list[str]]:
                port = free_port()
                return arguments.by.format(port=port), shlex.split(arguments.beside.format(port=port))

            trial = Trial(lab, by, jobs=arguments.jobs, seed=arguments.seed)
            began = time.monotonic()
            trial.run()
            print(f"{arguments.by}: {time.monotonic() - began:.0f} s, {trial.judge()}")
        finally:
            lab.stop()
            if "KEEP" in os.environ:
                subprocess.run(["cp", "-r", folder, os.environ["KEEP"]], check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())

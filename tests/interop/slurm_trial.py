"""Random jobs on a real loopback Slurm, steered by any decider, disturbed, and judged by slurmctld's own log.

`python -m tests.interop.slurm_trial --jobs 200 --by easy` runs one; tests/interop/test_slurm_trials.py runs four at once.
Disturbances: kill -9 of the steering program, a restarted slurmctld, held, cancelled and requeued jobs, a drained node. Every
job must end; slurm_verdict.py says what else must hold.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.interop.slurm_verdict import ORDERED, STARTED, dated, judge

from pilothouse.worlds.slurm.daemons import free_port
from pilothouse.worlds.slurm.lab import Lab
from pilothouse.worlds.slurm.lab_files import parse_shape
from pilothouse.worlds.slurm.look import OVER

POLL_S = 0.4
LONG_S = 1.0
"""Jobs that run so long can be requeued before they end."""
LAUNCH_S = 0.5
END_S = 60.0


class Trial:
    """One run of jobs on a lab."""

    def __init__(self, lab: Lab, by: Callable[[], tuple[str, list[str]]], *, jobs: int, seed: int) -> None:
        self.lab = lab
        self.jobs = jobs
        self.rng = random.Random(seed)
        self.ids: list[str] = []
        """Jobs as squeue lists them."""
        self.after: dict[str, str] = {}
        self.requeued: dict[str, float] = {}
        self.held = ""
        self._sleeps: dict[str, float] = {}
        self._steers_since = 0.0
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
        command = ("sbatch", "--parsable", "-o", "/dev/null", "-p", "queue", *options, "--wrap", f"sleep {sleep:.1f}")
        job = self.slurm(*command)
        while not job.isdigit():  # slurmctld is being restarted.
            time.sleep(POLL_S)
            job = self.slurm(*command)
        self._sleeps[job] = sleep
        return job

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
        """As fast as Slurm takes them."""
        rng, made = self.rng, 0
        while made < self.jobs:
            nodes = f"-N{rng.choice([1, 1, 1, 1, 2, 2, 3, 4])}"
            options, sleep = [nodes, f"-t{rng.randint(1, 5)}"], rng.choice([0.0, 0.0, 0.0, 0.1, 0.2, 0.3, 2.0])
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
        """Jobs are submitted meanwhile. `plan`: at how many jobs left what happens."""
        submitter = threading.Thread(target=self.submit_all)
        submitter.start()
        end = time.monotonic() + limit_s
        plan = self._plan() if plan is None else plan
        steer, beside = self._start()
        try:
            while True:
                states = self.states()
                left = [job for job in self.ids if states.get(job) not in OVER]
                count = len(left) + max(0, self.jobs - len(self.ids))
                if not count and not submitter.is_alive():
                    assert not plan, f"did not happen: {plan}"
                    steer.terminate()
                    steer.wait(END_S)
                    break
                assert time.monotonic() < end, f"not over: {[(job, states.get(job)) for job in left]}"
                while plan and count <= plan[0][0]:
                    act = plan[0][1]
                    if act == "kill":
                        steer.kill()
                        steer.wait()
                    elif not getattr(self, act)(states):
                        break  # It is tried again.
                    plan.pop(0)
                    if steer.poll() is not None:
                        break
                if steer.poll() is not None:
                    assert steer.returncode == -signal.SIGKILL, (self.lab.folder / "steer.log").read_text()[-2000:]
                    _end(beside)
                    steer, beside = self._start()
                time.sleep(POLL_S)
        finally:
            steer.kill()
            steer.wait()
            _end(beside)
            submitter.join()
            self.slurm("scontrol", "update", "nodename=n7", "state=resume")

    def _start(self) -> tuple[subprocess.Popen[bytes], list[subprocess.Popen[bytes]]]:
        by, command = self._by()
        self._steers_since = time.time()
        beside = [subprocess.Popen(command, stdout=self._out, stderr=self._out, start_new_session=True)] if command else []
        steer = [sys.executable, "-m", "pilothouse", "steer", "--world", "slurm?patience=10s", "--by", by]
        return subprocess.Popen(steer, env=self.lab.env, stdout=self._out, stderr=self._out), beside

    def _plan(self) -> list[tuple[int, str]]:
        """At how many jobs left what happens."""
        spread = 0.8 * self.jobs / 10
        order = ["hold", "kill", "cancel", "drain", "requeue", "kill", "controller", "resume", "kill", "release"]
        return [(int(self.jobs - (index + 1) * spread), act) for index, act in enumerate(order)]

    def _some(self, states: dict[str, str], state: str) -> str:
        found = [job for job in self.ids if states.get(job) == state and job != self.held]
        return self.rng.choice(found) if found else ""

    def hold(self, states: dict[str, str]) -> bool:
        self.held = self._some(states, "PENDING")
        return self._done("scontrol", "hold", self.held)

    def release(self, states: dict[str, str]) -> bool:
        return self._done("scontrol", "release", self.held)

    def drain(self, states: dict[str, str]) -> bool:
        return self._done("scontrol", "update", "nodename=n7", "state=drain", "reason=trial")

    def resume(self, states: dict[str, str]) -> bool:
        if self._done("scontrol", "update", "nodename=n7", "state=resume"):
            return True
        state = self.slurm("sinfo", "-h", "-n", "n7", "-o", "%T")
        return bool(state) and "drain" not in state  # A restarted slurmctld may have forgotten.

    def cancel(self, states: dict[str, str]) -> bool:
        return self._done("scancel", self._some(states, "PENDING"))

    def requeue(self, states: dict[str, str]) -> bool:
        """One that still runs when Slurm hears of it."""
        found = [job for job in self.ids if states.get(job) == "RUNNING" and self._sleeps.get(job, 0.0) > LONG_S]
        job = found[0] if found else ""
        asked_at = time.time()
        if not self._done("scontrol", "requeue", job):
            return False
        self.requeued[job] = asked_at
        return True

    def controller(self, states: dict[str, str]) -> bool:
        # QUIRK: slurmctld that ends between an allocation and its launch forgets to launch: the job "runs" until its limit.
        # So nothing starts in the last moments. The new slurmctld reads from its configuration that the partition is UP.
        if self._last(ORDERED) < self._steers_since:
            return False  # The steering program has not begun: it would complain that the partition is DOWN.
        self.slurm("scontrol", "update", "partitionname=go", "state=DOWN")
        while time.time() - self._last(STARTED) < LAUNCH_S:
            time.sleep(0.02)
        self.lab.restart_controller()
        return True

    def _done(self, *command: str) -> bool:
        if not command[-1]:
            return False
        done = subprocess.run(command, env=self.lab.env, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode == 0

    def _last(self, what: re.Pattern[str]) -> float:
        with self._logged.open() as log:
            return max((at for at, text in dated(log) if what.match(text)), default=0.0)

    def judge(self) -> dict[str, float]:
        """What slurmctld's log says. Raises AssertionError, or returns figures."""
        with self._logged.open() as log:
            log.seek(self._from)
            figures = judge(log, self.after, self.requeued)
        states = self.states()
        missing = [job for job in self.ids if states.get(job) not in OVER]
        assert not missing, missing
        return {"jobs": len(self.ids), "cancelled": sum(states[job] == "CANCELLED" for job in self.ids), **figures}


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
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            print(f"CPU time of all programs: {used.ru_utime + used.ru_stime:.0f} s")
            if "KEEP" in os.environ:
                subprocess.run(["cp", "-r", folder, os.environ["KEEP"]], check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Random jobs of all the options that place a job, on nodes of several sizes, steered under fcfs beside a plain Slurm.

`python -m tests.interop.slurm_options --jobs 1000` runs the same jobs on two loopback Slurms at once: one is steered, with
kill -9 of the steering program now and then; the other one schedules them itself, by its main scheduler, in order. On both
another partition over the same nodes runs jobs of its own. Each job writes down what Slurm granted it and what its tasks saw;
`judge` holds that against its options. The figures are the mean waits. test_slurm_world.py runs a short one.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import msgspec
from tests.interop.slurm_verdict import dated

from pilothouse.worlds.slurm import records
from pilothouse.worlds.slurm.lab import Lab
from pilothouse.worlds.slurm.lab_files import LabShape, parse_shape
from pilothouse.worlds.slurm.look import OVER

SHAPE = "2x2:memory=1000,2x4:gpu=2:memory=2000,2x8:gpu=4:memory=4000,1x16:memory=8000:disk=5000,1x6:memory=8000"
BETWEEN_S = 0.75
"""From one submission to the next, on average."""
FOREIGN = 0.1
"""The share of jobs that go to the other partition."""
STARTED = re.compile(r"(?:sched: Allocate JobId=(\d+) |.*Started JobId=(\d+) in )")
SUBMITTED = re.compile(r"_slurm_rpc_submit_batch_job: JobId=(\d+)")
SCRIPT = """cd {place}
scontrol -o -d show job $SLURM_JOB_ID > $SLURM_JOB_ID.granted
srun {overcommit} printenv SLURMD_NODENAME > $SLURM_JOB_ID.seen 2> $SLURM_JOB_ID.complaint
sleep {sleep:.1f}"""


class Wanted(msgspec.Struct):
    """A job: its options, and what they mean."""

    options: tuple[str, ...]
    sleep_s: float
    submitted_at: float
    tasks: int = 1
    cpus_per_task: int = 1
    nodes: tuple[int, int] = (1, 1000)
    tasks_per_node: int = 0
    cpus_per_node: int = 0
    memory_mb: int = 0
    memory_mb_per_cpu: int = 0
    disk_mb: int = 0
    gpus: int = 0
    gpus_per_node: int = 0
    gpus_per_task: int = 0
    cpus_per_gpu: int = 0
    feature: str = ""
    named: str = ""
    excluded: str = ""
    whole: bool = False
    overcommits: bool = False
    foreign: bool = False


def plan(count: int, seed: int, between_s: float = BETWEEN_S) -> list[Wanted]:
    rng = random.Random(seed)
    at, jobs = 0.0, []
    while len(jobs) < count:
        job = _one(rng, at)
        if job is not None:
            jobs.append(job)
            at += rng.expovariate(1 / between_s)
    return jobs


def _one(rng: random.Random, at: float) -> Wanted | None:
    job = Wanted((), rng.uniform(0.5, 8.0), at)
    options = ["-t1"]
    kind = rng.choice(["tasks", "tasks", "wide", "nodes", "range", "per node", "cpus", "task cpus", "gpus", "task gpus",
                       "node gpus", "gpu cpus", "overcommit", "min cpus", "exclusive"])  # fmt: skip
    if kind in ("tasks", "wide"):
        job.tasks = rng.randint(8, 14) if kind == "wide" else rng.randint(1, 6)
        options.append(f"-n{job.tasks}")
    elif kind == "nodes":
        nodes = rng.randint(1, 4)
        job.nodes, job.tasks = (nodes, nodes), rng.randint(nodes, 2 * nodes + 2)
        options += [f"-N{nodes}", f"-n{job.tasks}"]
    elif kind == "range":
        job.nodes, job.tasks = (2, 4), 4
        options += ["-N2-4", "-n4"]
    elif kind == "per node":
        job.tasks_per_node, nodes = rng.randint(1, 3), rng.randint(1, 3)
        job.tasks, job.nodes = job.tasks_per_node * nodes, (nodes, nodes)
        options += [f"-N{nodes}", f"--ntasks-per-node={job.tasks_per_node}"]
    elif kind == "cpus":
        job.cpus_per_task = rng.choice([2, 3, 5, 8])
        options.append(f"-c{job.cpus_per_task}")
    elif kind == "task cpus":
        job.tasks, job.cpus_per_task = rng.choice([(2, 2), (4, 3), (3, 2), (2, 4)])
        options += [f"-n{job.tasks}", f"-c{job.cpus_per_task}"]
    elif kind == "gpus":
        job.gpus = rng.randint(1, 4)
        options.append(f"--gpus={job.gpus}")
    elif kind == "task gpus":
        job.tasks, job.gpus_per_task = rng.randint(1, 4), 1
        options += [f"-n{job.tasks}", "--gpus-per-task=1"]
    elif kind == "node gpus":
        nodes, job.gpus_per_node = rng.randint(1, 3), rng.randint(1, 2)
        job.nodes = (nodes, nodes)
        job.tasks = nodes
        options += [f"-N{nodes}", f"--gpus-per-node={job.gpus_per_node}"]
    elif kind == "gpu cpus":
        job.gpus, job.cpus_per_gpu = rng.randint(1, 2), rng.randint(1, 2)
        options += [f"--gpus={job.gpus}", f"--cpus-per-gpu={job.cpus_per_gpu}"]
        if rng.random() < 0.5:
            options.append("--mem-per-gpu=200")
    elif kind == "overcommit":
        job.tasks, job.nodes, job.overcommits = 6, (1, 1), True
        options += ["-n6", "-O", "-N1"]
    elif kind == "min cpus":
        job.cpus_per_node = rng.choice([3, 5])
        options.append(f"--mincpus={job.cpus_per_node}")
    else:
        job.whole, job.nodes = True, (1, 1)
        options += ["--exclusive", "-N1"]
    small = job.tasks <= 4 and job.nodes[0] == 1 and not (job.gpus or job.gpus_per_task or job.gpus_per_node)
    extra = rng.random()
    if extra < 0.1:
        job.memory_mb = rng.choice([300, 900]) if not small else rng.choice([500, 1500, 3500])
        options.append(f"--mem={job.memory_mb}")
    elif extra < 0.2 and not job.whole:
        job.memory_mb_per_cpu = rng.choice([50, 200])
        options.append(f"--mem-per-cpu={job.memory_mb_per_cpu}")
    if small and kind == "tasks":
        choice = rng.random()
        if choice < 0.1:
            job.disk_mb = 1000
            options.append("--tmp=1000")
        elif choice < 0.2:
            job.feature = rng.choice(["low", "high"])
            options += ["-C", job.feature]
        elif choice < 0.3:
            job.named = rng.choice(["n5", "n7"])
            options += ["-w", job.named]
        elif choice < 0.4:
            job.excluded = "n7"
            options += ["-x", "n7"]
    if "--mem-per-gpu=200" in options:
        options = [option for option in options if not option.startswith(("--mem=", "--mem-per-cpu="))]
        job.memory_mb = job.memory_mb_per_cpu = 0
    job.foreign = rng.random() < FOREIGN
    job.options = tuple(options)
    return job


class Run:
    """The jobs on one Slurm."""

    def __init__(self, lab: Lab, jobs: list[Wanted], *, steered: bool) -> None:
        self.lab, self.jobs, self.steered = lab, jobs, steered
        self.place = lab.folder / "seen"
        self.place.mkdir()
        self.ids: dict[str, Wanted] = {}
        self.refused: list[Wanted] = []

    def slurm(self, *command: str) -> str:
        done = subprocess.run(command, env=self.lab.env, capture_output=True, text=True, timeout=60, check=False, cwd="/tmp")
        return done.stdout.strip()

    def submit_all(self) -> None:
        began = time.monotonic()
        for job in self.jobs:
            time.sleep(max(0.0, began + job.submitted_at - time.monotonic()))
            partition = "main" if job.foreign else "cpuqueue" if self.steered else "cpugo"
            overcommit = "-O" if job.overcommits else f"-c{job.cpus_per_task}" if job.cpus_per_task > 1 else ""
            script = SCRIPT.format(place=self.place, sleep=job.sleep_s, overcommit=overcommit)
            command = ("sbatch", "--parsable", "-o", "/dev/null", "-p", partition, *job.options, "--wrap", script)
            job_id = self.slurm(*command)
            if job_id:
                self.ids[job_id] = job
            else:
                self.refused.append(job)

    def run(self, *, kills: int, limit_s: float) -> None:
        submitter = threading.Thread(target=self.submit_all)
        submitter.start()
        steer = self._steer() if self.steered else None
        end, span = time.monotonic() + limit_s, self.jobs[-1].submitted_at
        kill_at = [time.monotonic() + span * (number + 1) / (kills + 1) for number in range(kills)]
        try:
            while submitter.is_alive() or not self._over():
                assert time.monotonic() < end, f"not over: {self._states()}"
                if steer is not None:
                    if kill_at and time.monotonic() > kill_at[0]:
                        kill_at.pop(0)
                        steer.kill()
                        steer.wait()
                        steer = self._steer()
                    assert steer.poll() is None, (self.lab.folder / "steer.log").read_text()[-2000:]
                time.sleep(0.5)
        finally:
            if steer is not None:
                steer.kill()
                steer.wait()
            submitter.join()

    def _steer(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "pilothouse", "steer", "--world", "slurm:cpuqueue:cpugo", "--by", "fcfs"]
        with (self.lab.folder / "steer.log").open("ab") as out:
            return subprocess.Popen(command, env=self.lab.env, stdout=out, stderr=out)

    def _states(self) -> dict[str, str]:
        rows = (line.split() for line in self.slurm("squeue", "-h", "-a", "-t", "all", "-o", "%i %T").splitlines())
        return {row[0]: row[1] for row in rows if len(row) == 2 and row[1] not in OVER}

    def _over(self) -> bool:
        return not self._states()

    def waits(self) -> dict[str, float]:
        """Job id -> seconds from submission to allocation, by slurmctld's log."""
        submitted: dict[str, float] = {}
        found: dict[str, float] = {}
        with (self.lab.folder / "slurmctld.log").open() as log:
            for at, text in dated(log):
                if match := SUBMITTED.match(text):
                    submitted[match[1]] = at
                elif match := STARTED.match(text):
                    job = match[1] or match[2]
                    found[job] = at - submitted.get(job, at)
        return found

    def judge(self) -> list[str]:
        """What jobs did not get of what they asked for."""
        found = ((job_id, job, text) for job_id, job in self.ids.items() for text in self._of(job_id, job))
        return [f"job {job_id} {' '.join(job.options)}: {text}" for job_id, job, text in found]

    def _of(self, job_id: str, job: Wanted) -> list[str]:
        granted, seen = self.place / f"{job_id}.granted", self.place / f"{job_id}.seen"
        if not granted.exists() or not seen.exists():
            return ["it did not run"]
        complaint = (self.place / f"{job_id}.complaint").read_text().strip()
        found = [complaint] if complaint else []
        given = records.read_given(granted.read_text())
        return found + judge(job, given, seen.read_text().split(), self.lab.shape)


def judge(job: Wanted, given: dict[str, records.Part], seen: list[str], shape: LabShape) -> list[str]:
    """`given`: node -> what Slurm granted; `seen`: the node of each task."""
    kinds = dict(zip(shape.names, shape.kinds, strict=True))
    cpus = sum(part.cpus for part in given.values())
    gpus = sum(records.gpus_of(part.gres) for part in given.values())
    on = {name: seen.count(name) for name in given}
    half = shape.names[: (len(shape.names) + 1) // 2]
    places = sum(part.cpus // job.cpus_per_task for part in given.values())
    wanted_gpus = job.gpus + job.gpus_per_task * job.tasks + job.gpus_per_node * len(given)
    rules = {
        f"{len(given)} nodes": job.nodes[0] <= len(given) <= job.nodes[1],
        # Without a number of tasks srun starts one on each node.
        f"{len(seen)} tasks ran": len(seen) == job.tasks or (job.gpus and len(seen) == len(given)),
        "tasks on nodes that were not granted": set(seen) <= set(given),
        f"{cpus} CPUs": job.overcommits or (cpus >= job.tasks * job.cpus_per_task and places >= job.tasks),
        f"tasks {on} on {given}": job.overcommits or all(on[n] * job.cpus_per_task <= given[n].cpus for n in given),
        "fewer tasks than asked for on a node": not job.tasks_per_node or set(on.values()) == {job.tasks_per_node},
        "fewer CPUs than asked for on a node": all(part.cpus >= job.cpus_per_node for part in given.values()),
        f"{gpus} GPUs": gpus >= wanted_gpus and cpus >= job.cpus_per_gpu * job.gpus,
        "a node without memory": all(part.memory_mb >= job.memory_mb for part in given.values()),
        "CPUs without memory": all(part.memory_mb >= job.memory_mb_per_cpu * part.cpus for part in given.values()),
        "a node without a disk": all(kinds[name].disk_mb >= job.disk_mb for name in given),
        "a node without its feature": not job.feature or all((name in half) == (job.feature == "low") for name in given),
        f"not on {job.named}": not job.named or job.named in given,
        f"on {job.excluded}": job.excluded not in given,
        "not the whole node": not job.whole or all(part.cpus == kinds[name].cpus for name, part in given.items()),
    }
    return [rule for rule, held in rules.items() if not held]


class Plain(Lab):
    """Slurm's main scheduler, in order of submission, without backfilling."""

    def _slurm_conf(self) -> str:
        return super()._slurm_conf().replace("SchedulerType=sched/backfill", "SchedulerType=sched/builtin")


def run_steered(folder: Path, jobs: list[Wanted], *, kills: int, limit_s: float, shape: str = SHAPE) -> Run:
    return _run(Lab(folder, parse_shape(shape)), jobs, kills=kills, limit_s=limit_s, steered=True)


def _run(lab: Lab, jobs: list[Wanted], *, kills: int, limit_s: float, steered: bool) -> Run:
    lab.start()
    try:
        made = Run(lab, jobs, steered=steered)
        made.run(kills=kills, limit_s=limit_s)
        return made
    finally:
        lab.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--between", type=float, default=BETWEEN_S)
    parser.add_argument("--keep", type=Path, help="a folder for logs")
    arguments = parser.parse_args()
    jobs = plan(arguments.jobs, arguments.seed, arguments.between)
    with tempfile.TemporaryDirectory(prefix="pilothouse-options-") as made:
        folder, runs = arguments.keep or Path(made), {}

        def one(name: str, lab: Lab, steered: bool) -> None:
            runs[name] = _run(lab, jobs, kills=arguments.kills, limit_s=3600.0, steered=steered)

        shape = parse_shape(SHAPE)
        threads = [
            threading.Thread(target=one, args=("steered", Lab(folder / "steered", shape), True)),
            threading.Thread(target=one, args=("plain", Plain(folder / "plain", shape), False)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        means = {}
        for name, run in runs.items():
            problems, waits = run.judge(), run.waits()
            ours = [waits[job_id] for job_id, job in run.ids.items() if not job.foreign and job_id in waits]
            means[name] = statistics.mean(ours)
            print(f"{name}: {len(run.ids)} jobs ({sum(job.foreign for job in run.ids.values())} of another partition),"
                  f" {len(run.refused)} refused by sbatch; {len(problems)} problems;"
                  f" mean wait {means[name]:.2f} s, median {statistics.median(ours):.2f} s")  # fmt: skip
            for problem in problems[:20]:
                print(f"  {problem}")
        log = (folder / "steered/steer.log").read_text().splitlines()
        print(f"lines of the steering program: {len(log)}; taken back: {sum('taken back' in line for line in log)}")
        print(f"ratio of mean waits: {means['steered'] / means['plain']:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

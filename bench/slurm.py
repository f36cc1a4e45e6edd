"""What steering a Slurm costs: `python bench/slurm.py` (needs Slurm's programs; starts a loopback Slurm of 8 nodes).

* CPU time of one look at 10,000 waiting jobs: ours, and that of Slurm's commands. The first look reads every line; later
  ones only what changed.
* How long an order waits for Slurm, beside how long `sbatch` into an ordinary partition waits, on the same Slurm: both wait
  for its scheduling pass.
"""

from __future__ import annotations

import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from pilothouse.worlds.slurm.lab import Lab
from pilothouse.worlds.slurm.lab_files import parse_shape
from pilothouse.worlds.slurm.link import Asked, SlurmLink
from pilothouse.worlds.slurm.look import Look
from pilothouse.worlds.slurm.steering import Pair
from pilothouse.worlds.slurm.world import begins_of, first_look, steering_for

JOBS = 10_000
STARTS = 30
LINE = re.compile(r"\[([^\]]+)\] (.*)")
ORDERED = re.compile(r".*_update_job: setting partition to go for JobId=(\d+)")
SUBMITTED = re.compile(r"_slurm_rpc_submit_batch_job: JobId=(\d+)")
STARTED = re.compile(r".*(?:Allocate|Started) JobId=(\d+)")


def main() -> None:
    import os

    with tempfile.TemporaryDirectory(prefix="pilothouse-bench-") as folder:
        lab = Lab(Path(folder), parse_shape("8x4"))
        lab.start()
        os.environ.update(lab.env)
        try:
            orders(lab)
            looks()
        finally:
            lab.stop()


def orders(lab: Lab) -> None:
    waits = {}
    for partition, began in (("queue", ORDERED), ("main", SUBMITTED)):
        position = (lab.folder / "slurmctld.log").stat().st_size
        steer = None
        if partition == "queue":
            command = [sys.executable, "-m", "pilothouse", "steer", "--world", "slurm", "--by", "fcfs"]
            steer = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        for _ in range(STARTS):
            sbatch(partition, "--wrap", "sleep 0.1")
            time.sleep(0.43)
        time.sleep(3)
        if steer is not None:
            steer.terminate()
            steer.wait()
        waits[partition] = waits_in(lab.folder / "slurmctld.log", position, began)
    ours, plain = statistics.median(waits["queue"]), statistics.median(waits["main"])
    print(f"order to allocation, median of {len(waits['queue'])}: {ours:.2f} s; longest {max(waits['queue']):.2f} s")
    print(f"sbatch to allocation, median of {len(waits['main'])}: {plain:.2f} s; longest {max(waits['main']):.2f} s")
    print(f"ratio: {ours / plain:.2f}")


def waits_in(log: Path, position: int, began: re.Pattern[str]) -> list[float]:
    since: dict[str, float] = {}
    waits = []
    with log.open() as file:
        file.seek(position)
        for found in filter(None, map(LINE.match, file)):
            at, text = datetime.fromisoformat(found[1]).timestamp(), found[2]
            if match := began.match(text):
                since[match[1]] = at
            elif (match := STARTED.match(text)) and match[1] in since:
                waits.append(at - since.pop(match[1]))
    return waits


def sbatch(partition: str, *options: str) -> None:
    command = ["sbatch", "-o", "/dev/null", "-p", partition, "-N1", "-t1", *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/tmp")


def looks() -> None:
    sbatch("queue", f"--array=1-{JOBS}", "--wrap", "true")
    link = SlurmLink()
    facts = link.facts()
    steering = steering_for(Pair(), facts)

    def first() -> Look:
        look = first_look(link)
        begins_of(steering, link.now(), look, facts)
        steering.take_events()
        return look

    def again() -> Look:
        link.ask(Asked())
        while True:
            for heard in link.wait(link.now() + 60):
                if isinstance(heard, Look):
                    steering.observe(link.now(), heard)
                    return heard

    show("first look", [cost(first)])
    show("later looks", [cost(again) for _ in range(5)])
    link.close()


def cost(act: Callable[[], Look]) -> tuple[float, float, int]:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.process_time()
    look = act()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    theirs = after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime
    return time.process_time() - began, theirs, len(look.jobs)


def show(what: str, costs: list[tuple[float, float, int]]) -> None:
    ours, theirs, jobs = min(costs)
    print(f"{what} at {jobs:,} jobs: {1000 * ours:.0f} ms CPU of ours, {1000 * theirs:.0f} ms of Slurm's commands")


if __name__ == "__main__":
    main()

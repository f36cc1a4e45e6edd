"""What steering a Slurm costs: `python bench/slurm.py` (needs Slurm's programs; starts a loopback Slurm of 8 nodes).

* CPU time of one look at 10,000 waiting jobs: ours, and that of Slurm's commands. The first look reads every line; later
  ones only what changed.
* How long an order waits for Slurm, beside how long `sbatch` into an ordinary partition waits, on the same Slurm: both wait
  for its scheduling pass.
* The same 300 jobs on this Slurm and in a simulation, under easy (8 minutes): how many start in the same order, and both
  makespans. Starts within one scheduling pass have no order.

`python bench/slurm.py twin` (or orders, looks) makes one of them.
"""

from __future__ import annotations

import os
import random
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

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # for what the tests share with this

from tests.interop.slurm_twin import as_seen, makespan, plan, same_order, seen_on, simulated  # noqa: E402

from pilothouse.formats import slurm_fields  # noqa: E402
from pilothouse.worlds.slurm.book import Pair  # noqa: E402
from pilothouse.worlds.slurm.lab import Lab  # noqa: E402
from pilothouse.worlds.slurm.lab_files import parse_shape  # noqa: E402
from pilothouse.worlds.slurm.link import Asked, SlurmLink  # noqa: E402
from pilothouse.worlds.slurm.look import Look  # noqa: E402
from pilothouse.worlds.slurm.world import begins_of, first_look, steering_for  # noqa: E402

JOBS = 10_000
STARTS = 100
TWINS = 300
LINE = re.compile(r"\[([^\]]+)\] (.*)")
ORDERED = re.compile(r".*_update_job: setting partition to go for JobId=(\d+)")
SUBMITTED = re.compile(r"_slurm_rpc_submit_batch_job: JobId=(\d+)")
STARTED = re.compile(r".*(?:Allocate|Started) JobId=(\d+)")


def main() -> None:
    wanted = sys.argv[1:] or ["orders", "twin", "looks"]
    with tempfile.TemporaryDirectory(prefix="pilothouse-bench-") as folder:
        lab = Lab(Path(folder), parse_shape("8x4"))
        lab.start()
        os.environ.update(lab.env)
        try:
            if "orders" in wanted:
                orders(lab)
            if "twin" in wanted:
                twin(lab)
            if "looks" in wanted:
                looks()
        finally:
            lab.stop()


def orders(lab: Lab) -> None:
    """Both kinds of jobs are submitted in turn, at random moments between two passes."""
    rng = random.Random(1)
    log = lab.folder / "slurmctld.log"
    position = log.stat().st_size
    command = [sys.executable, "-m", "pilothouse", "steer", "--world", "slurm", "--by", "fcfs"]
    steer = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    for _ in range(STARTS):
        for partition in ("queue", "main"):
            # Plain jobs have a node of their own: otherwise one of each kind may go for the same node.
            sbatch(partition, "-w" if partition == "main" else "-x", "n8", "--wrap", "sleep 0.1")
            time.sleep(rng.uniform(0.1, 1.1))
    time.sleep(3)
    steer.terminate()
    steer.wait()
    ours, plain = waits_in(log, position, ORDERED), waits_in(log, position, SUBMITTED, "main")
    for what, waits in (("order", ours), ("sbatch", plain)):
        print(f"{what} to allocation, median of {len(waits)}: {statistics.median(waits):.2f} s; longest {max(waits):.2f} s")
    print(f"ratio of the medians: {statistics.median(ours) / statistics.median(plain):.2f}")


def waits_in(log: Path, position: int, began: re.Pattern[str], partition: str = "") -> list[float]:
    since: dict[str, float] = {}
    waits = []
    with log.open() as file:
        file.seek(position)
        for found in filter(None, map(LINE.match, file)):
            at, text = datetime.fromisoformat(found[1]).timestamp(), found[2]
            if match := began.match(text):
                since[match[1]] = at
            elif (match := STARTED.match(text)) and match[1] in since and partition in text:
                waits.append(at - since.pop(match[1]))
    return waits


def twin(lab: Lab) -> None:
    """The simulation gets the jobs as planned, or with the submissions and durations that Slurm saw."""
    jobs = plan(TWINS, 0)
    real = seen_on(lab, "easy", jobs)
    waited = sum(dates.started_at - dates.submitted_at > 2.0 for dates in real.values())
    print(f"{len(real)} jobs under easy, {waited} waited for more than 2 s; makespan {makespan(real):.0f} s")
    for what, told in (("as planned", jobs), ("as Slurm saw them", as_seen(jobs, real))):
        for pass_every_s in (0.0, 1.0):
            other = simulated(told, lab.shape.nodes, "easy", pass_every_s)
            print(
                f"simulated {what}, --control-latency {pass_every_s:g}s: same order for {same_order(real, other):.1%}"
                f" of the jobs, makespan {makespan(other) / makespan(real) - 1:+.1%}"
            )


def sbatch(partition: str, *options: str) -> None:
    command = ["sbatch", "-o", "/dev/null", "-p", partition, "-N1", "-t1", *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/tmp")


def looks() -> None:
    sbatch("queue", f"--array=1-{JOBS}", "--wrap", "true")
    facts = SlurmLink().facts()

    def first() -> Look:
        """As in a new process: nothing is known."""
        nonlocal link, steering
        for read in (slurm_fields.date, slurm_fields.time_limit, slurm_fields.count, slurm_fields.memory_mb):
            read.cache_clear()
        link, steering = SlurmLink(), steering_for(Pair(), facts)
        look = first_look(link)
        begins_of(steering, link.now(), look, facts)
        steering.take_events()
        return look

    link, steering = SlurmLink(), steering_for(Pair(), facts)

    def again() -> Look:
        link.ask(Asked())
        while True:
            for heard in link.wait(link.now() + 60):
                if isinstance(heard, Look):
                    steering.observe(link.now(), heard)
                    return heard

    show("first look", [cost(first) for _ in range(5)])
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

"""CPU seconds of our scheduler per 1,000 jobs with a shape, on 1,000 nodes of 48 cores and 4 GPUs, through our job manager
and a UNIX socket.

    python bench/shaped.py                       # easy, conservative and filler; whole nodes, GPUs, slots, constraints
    python bench/shaped.py --policy easy --kind gpus

The machine is full for most of the run, and hundreds of jobs wait. Flux's own backfill module used 7 CPU s per 1,000
`-N --exclusive` jobs and 3 for GPU jobs on such a machine. Asked: at most 5.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pilothouse.formats import jobspec, resource_set
from pilothouse.formats.fluid import FluidSource
from pilothouse.formats.jobspec import Jobspec
from pilothouse.formats.resource_set import RankResources, ResourceSet
from pilothouse.model.idset import IdSet
from pilothouse.protocols.rfc27.broker import Broker
from pilothouse.protocols.rfc27.manager import Manager
from pilothouse.protocols.rfc27.manager_events import Allocated
from pilothouse.protocols.rfc27.server import BrokerServer

NODES, CORES, GPUS = 1000, 48, 4
ASKED_CPU_S = 5.0
POLICIES = ("easy", "conservative", "filler")


def whole_nodes(rng: random.Random) -> dict[str, object]:
    return {"slots": 1, "cores_per_slot": 1, "nodes": rng.choice((1, 2, 4, 8, 16, 64)), "exclusive": True}


def gpus(rng: random.Random) -> dict[str, object]:
    return {"slots": rng.choice((1, 4, 16, 64, 256)), "cores_per_slot": rng.choice((1, 4)), "gpus_per_slot": 1}


def gpu_nodes(rng: random.Random) -> dict[str, object]:
    nodes, wanted = rng.choice((1, 4, 16, 64)), rng.choice((1, 2, 4))
    return {"slots": 1, "cores_per_slot": 8, "nodes": nodes, "gpus_per_slot": wanted}


def slots(rng: random.Random) -> dict[str, object]:
    return {"slots": rng.choice((1, 8, 64, 256)), "cores_per_slot": rng.choice((5, 12, 24))}


def constrained(rng: random.Random) -> dict[str, object]:
    return {**whole_nodes(rng), "constraints": {"properties": [rng.choice(("fast", "large", "^fast"))]}}


def plain_cores(rng: random.Random) -> dict[str, object]:
    return {"slots": rng.choice((1, 48, 480, 4800)), "cores_per_slot": 1}


KINDS: dict[str, Callable[[random.Random], dict[str, object]]] = {
    "whole nodes": whole_nodes, "gpus": gpus, "gpu nodes": gpu_nodes, "slots": slots, "constrained": constrained,
    "plain cores": plain_cores,
}  # fmt: skip


def inventory() -> bytes:
    ranks = tuple(RankResources(rank, IdSet.span(0, CORES), IdSet.span(0, GPUS)) for rank in range(NODES))
    properties = {"fast": IdSet.span(0, NODES // 2), "large": IdSet.span(NODES // 4, NODES // 2)}
    hosts = tuple(f"node{rank}" for rank in range(NODES))
    return resource_set.encode(ResourceSet(ranks=ranks, hosts=hosts, properties=properties))


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def one_run(folder: str, policy: str, kind: str, jobs: int, seed: int) -> float:
    """CPU seconds of the scheduler per 1,000 jobs. Jobs end one after the other, in the order of their durations."""
    rng = random.Random(seed)
    manager = Manager()
    path = Path(folder) / "shaped.sock"
    server = BrokerServer(Broker(manager, inventory(), IdSet.span(0, NODES)), path)
    command = [sys.executable, "-m", "pilothouse", "steer", "--by", policy, "--world", f"flux:local://{path}?once=1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while not manager.online:
            server.step(1.0)
        began, ids = cpu_s(process.pid), FluidSource()
        durations: dict[int, float] = {}
        for number in range(jobs):
            duration = float(rng.choice((60, 600, 3600)) * rng.randint(1, 10))
            wanted = Jobspec(command=("a.out", str(number)), duration_s=duration, **KINDS[kind](rng))  # type: ignore[arg-type]
            job_id = ids.make(number + 1)
            durations[job_id] = duration * rng.random()
            manager.submit(time.time(), job_id, jobspec.encode(wanted))
        ends: list[tuple[float, int]] = []
        ended, clock = 0, 0.0
        while ended < jobs:
            # With nothing to end the scheduler has to speak first; else it gets a moment.
            server.step(1.0 if not ends else 0.002)
            for event in manager.take_events():
                if type(event) is Allocated:
                    manager.start(time.time(), event.id)
                    heapq.heappush(ends, (clock + durations[event.id], event.id))
            if ends and not len(manager.queue):
                clock, job_id = heapq.heappop(ends)
                manager.finish(time.time(), job_id)
                server.broker.flush(time.time())
                ended += 1
        return (cpu_s(process.pid) - began) * 1000 / jobs
    finally:
        server.close()
        process.wait(60)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--policy", choices=POLICIES)
    parser.add_argument("--kind", choices=list(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory(prefix="shaped-") as folder:
        for policy in [options.policy] if options.policy else POLICIES:
            for kind in [options.kind] if options.kind else KINDS:
                cost = one_run(folder, policy, kind, options.jobs, options.seed)
                print(f"{policy:12} {kind:12} {cost:6.2f} CPU s per 1,000 jobs (asked: at most {ASKED_CPU_S:g})", flush=True)
                good = good and cost <= ASKED_CPU_S
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

"""How much faster a sweep is on two cores than on one.

    python bench/sweep.py [--jobs 20000] [--cells 8] [--workers 2]

Two ratios, measured in turn, from the best of --best-of rounds. By the clock: it means something only where the machine has
idle cores, so the load average stands beside it, and what two copies of a busy loop gain at that moment. By CPU time: all of a
sweep in one process, divided by what its longest worker and the process that leads them take. That is the gain on idle cores.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pilothouse.campaign.grid import Grid
from pilothouse.launch.cell import make_task, run_cell
from pilothouse.launch.running import calm_collector
from pilothouse.launch.sweep import Places, sweep
from pilothouse.launch.workers import in_processes


def clock(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def swept(grid: Grid, workers: int) -> tuple[float, float]:
    """Seconds of the clock, and CPU seconds of this process."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        took = clock(lambda: sweep(grid, Path(folder), places=Places(Path()), workers=workers))
        return took, time.process_time() - began


def longest_worker(grid: Grid, workers: int) -> float:
    """CPU seconds of the worker that has the most to do."""
    cells = grid.cells(lambda workload, platform: [], lambda name: True)
    tasks = [make_task(cell, cell.workload, cell.platform, cell.policy) for cell in cells]

    def work(number: int) -> tuple[int, float]:
        run_cell(tasks[number])
        return os.getpid(), time.process_time()

    used: dict[int, float] = {}
    for _, found in in_processes(work, len(tasks), workers):
        assert isinstance(found, tuple)
        used[found[0]] = max(used.get(found[0], 0.0), found[1])
    return max(used.values())


def busy(number: int) -> int:
    total = 0
    for value in range(6_000_000):
        total += value & number
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--cells", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--best-of", type=int, default=3)
    given = parser.parse_args()
    calm_collector()
    grid = Grid(workloads=[f"lublin:jobs={given.jobs}"], platforms=["256"], policies=["easy"], seeds=given.cells)
    print(f"{given.cells} cells of {given.jobs:,} jobs, {len(os.sched_getaffinity(0))} cores")
    rounds = []
    for _ in range(given.best_of):
        alone = clock(lambda: busy(1)) * given.workers
        allowed = alone / clock(lambda: list(in_processes(busy, given.workers, given.workers)))
        (one, one_cpu), (many, leader_cpu) = swept(grid, 1), swept(grid, given.workers)
        worker_cpu = longest_worker(grid, given.workers)
        rounds.append((one, many, one_cpu, leader_cpu + worker_cpu, -allowed))
        print(f"  clock: {one:.2f} s and {many:.2f} s ({one / many:.2f}; busy loops {allowed:.2f})  CPU: {one_cpu:.2f} s, and "
              f"{leader_cpu:.2f} s leading + {worker_cpu:.2f} s in the longest worker"
              f"  load average {os.getloadavg()[0]:.1f}")  # fmt: skip
    one, many, one_cpu, many_cpu, allowed = (min(column) for column in zip(*rounds, strict=True))
    print(f"{given.workers} processes by the clock: {one / many:.2f} times as fast as one (busy loops: {-allowed:.2f})")
    print(f"{given.workers} processes by CPU time: {one_cpu / many_cpu:.2f} times as fast as one")


if __name__ == "__main__":
    main()

"""Sweeps: the same bytes however cells are simulated, whatever dies meanwhile; what is kept and what is simulated again."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec import structs

import components
from pilothouse.campaign.grid import Cell, Grid
from pilothouse.launch.cell import OtherInputs, make_task, run_cell
from pilothouse.launch.sweep import Places, Swept, sweep
from pilothouse.launch.workers import MOST_TRIES, Died, in_processes
from pilothouse.model.errors import InputError, PilothouseError

GRID = Grid(workloads=["bursts:jobs=12", "lublin:jobs=12"], platforms=["8"], policies=["fcfs", "easy"], seeds=50)
"""200 quick cells."""


def swept(folder: Path, grid: Grid = GRID, **settings: object) -> Swept:
    return sweep(grid, folder, places=Places(folder.parent), **settings)  # type: ignore[arg-type]


def files(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in ("results.csv", "results.parquet")]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 cells in this process."""
    folder = tmp_path_factory.mktemp("sweep") / "alone"
    assert len(swept(folder).results.rows) == 200
    return folder


def test_processes_give_the_same_bytes(alone: Path, tmp_path: Path) -> None:
    found = swept(tmp_path / "two", workers=2)
    assert (found.simulated, found.kept) == (200, 0)
    assert files(tmp_path / "two") == files(alone)


def test_a_worker_that_is_killed_loses_nothing(alone: Path, tmp_path: Path) -> None:
    killed = []

    def kill(count: int) -> None:
        if count in (20, 60):
            killed.append(multiprocessing.active_children()[0])
            killed[-1].kill()

    found = swept(tmp_path / "two", workers=2, done=kill)
    assert len(killed) == 2 and not found.bad
    assert files(tmp_path / "two") == files(alone)


def test_dask_gives_the_same_bytes_when_a_worker_is_killed(alone: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    address = str(tmp_path / "scheduler.json")
    here = ["--host", "127.0.0.1"]
    commands = [["scheduler", *here, "--port", "0", "--no-dashboard", "--no-jupyter", "--scheduler-file", address]]
    commands += [["worker", *here, "--no-nanny", "--nthreads", "1", "--no-dashboard", "--scheduler-file", address]] * 2
    programs = [subprocess.Popen([sys.executable, "-m", f"distributed.cli.dask_{name}", *rest], stderr=subprocess.DEVNULL)
                for name, *rest in commands]  # fmt: skip
    killed = []

    def kill(count: int) -> None:
        if count == 70:
            programs[1].kill()
            killed.append(programs[1].wait())

    try:
        components.wait_until(lambda: Path(address).is_file(), "dask's scheduler")
        found = swept(tmp_path / "dask", dask=address, done=kill)
    finally:
        for program in programs:
            program.kill()
            program.wait()
    assert killed == [-signal.SIGKILL] and (found.simulated, found.kept) == (200, 0)
    assert files(tmp_path / "dask") == files(alone)


def test_a_killed_sweep_goes_on_where_it_was(alone: Path, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    argv = [sys.executable, "-m", "pilothouse", "sweep", "-p", "8", "-w", "bursts:jobs=12", "-w", "lublin:jobs=12"]
    argv += ["--policy", "fcfs,easy", "--seeds", "50", "-o", str(folder), "-j", "2", "--no-plot"]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    kept = folder / "cells.jsonl"
    components.wait_until(lambda: kept.is_file() and kept.read_bytes().count(b"\n") >= 30, "30 cells")
    process.kill()
    process.wait()
    with kept.open("ab") as stream:
        stream.write(b'["0123", {"units"')  # as a crash may leave it
    before = kept.read_bytes().count(b"\n")
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert f"{before:,} known" in done.stdout and "200 cells" in done.stdout
    assert files(folder) == files(alone)
    assert swept(folder).simulated == 0


def test_what_changed_is_simulated_again(tmp_path: Path) -> None:
    log, mine = tmp_path / "log.swf", tmp_path / "mine.py"
    rows = [f"{n} {n * 10} -1 100 -1 -1 -1 {n % 3 + 1} 120 -1 1 1 -1 -1 -1 -1 -1 -1" for n in range(1, 9)]
    log.write_text("\n".join(rows) + "\n")
    code = "from pilothouse import Policy\nclass Mine(Policy):\n    def __init__(self, seed: int = 0):\n        pass\n"
    mine.write_text(code + "    def schedule(self, cluster):\n        [cluster.start(job) for job in list(cluster.queue)]\n")
    grid = Grid(workloads=["log.swf"], platforms=["4"], policies=["fcfs", "mine.py:Mine"], seeds=2)
    folder = tmp_path / "out"
    assert swept(folder, grid).simulated == 3
    assert [row.cell.seed for row in swept(folder, grid).results.rows] == [None, 1, 2]
    assert swept(folder, grid).kept == 3
    mine.write_text(mine.read_text() + "# changed\n")
    assert swept(folder, grid).simulated == 2
    os.rename(log, tmp_path / "moved.swf")
    grid.workloads = ["moved.swf"]
    assert swept(folder, grid).simulated == 0, "the contents count, not the place"
    (tmp_path / "moved.swf").write_text("\n".join(rows[1:]) + "\n")
    assert swept(folder, grid).simulated == 3


def test_a_policy_that_fails_is_a_row_with_a_problem(tmp_path: Path) -> None:
    code = "from pilothouse import Policy\nclass Bad(Policy):\n    def schedule(self, cluster):\n"
    (tmp_path / "bad.py").write_text(code + "        raise ValueError('no idea')\n")
    grid = Grid(workloads=["poisson:jobs=9"], platforms=["4"], policies=["bad.py:Bad", "easy"])
    bad, good = swept(tmp_path / "out", grid).results.rows
    assert "no idea" in bad.problem and bad.values is None and not good.problem
    lines = (tmp_path / "out" / "results.csv").read_text().splitlines()
    assert len(lines) == 3 and "no idea" in lines[1]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"workloads": ["nothing.swf"]}, "no such file"),
        ({"workloads": ["lublin:jbos=3"]}, "no option 'jbos'.*did you mean jobs"),
        ({"platforms": ["machine"]}, "no such file, and no number of hosts"),
        ({"policies": ["esay"]}, "no such policy"),
        ({"weeks": [7]}, ""),
    ],
)
def test_mistakes_come_before_any_work(changes: dict[str, list[object]], says: str, tmp_path: Path) -> None:
    grid = Grid(**{"workloads": ["poisson:jobs=9"], "platforms": ["4"], "policies": ["easy"], **changes})  # type: ignore[arg-type]
    if not says:
        (row,) = swept(tmp_path / "out", grid).results.rows
        assert "no job in week 7" in row.problem
        return
    with pytest.raises(InputError, match=says):
        swept(tmp_path / "out", grid)
    assert not (tmp_path / "out" / "results.csv").exists()


def test_a_worker_with_other_inputs_refuses(tmp_path: Path) -> None:
    cell = Cell("poisson:jobs=5", "4", 1.0, None, None, "easy")
    task = make_task(cell, cell.workload, cell.platform, cell.policy)
    assert not run_cell(task).problem
    other = structs.replace(task, digests=("of another version", *task.digests[1:]))
    with pytest.raises(OtherInputs, match="must be the same on all machines"):
        run_cell(other)
    assert other.key != task.key


def test_two_sweeps_do_not_write_one_folder(tmp_path: Path) -> None:
    from pilothouse.journal.lock import hold

    (tmp_path / "out").mkdir()
    with hold(tmp_path / "out", RuntimeError()), pytest.raises(PilothouseError, match="another sweep writes there"):
        swept(tmp_path / "out", Grid(workloads=["poisson:jobs=3"], platforms=["4"]))


def test_work_that_kills_its_worker_is_given_up() -> None:
    def work(number: int) -> int:
        if number == 3:
            os._exit(9)
        return number * number

    found = dict(in_processes(work, 6, 2))
    assert found == {0: 0, 1: 1, 2: 4, 3: Died(9), 4: 16, 5: 25}
    assert str(MOST_TRIES) in str(found[3]) and "code 9" in str(found[3])


def test_work_that_raises_ends_all_with_its_traceback() -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        list(in_processes(lambda number: 1 // (number - 2), 5, 2))
    assert not multiprocessing.active_children()


def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    """At once, in the middle of their work: they hold the lock of a sweep that is to go on."""
    code = (
        "import os, sys, time\nfrom pilothouse.launch.workers import in_processes\n"
        "def work(n):\n    open(f'{sys.argv[1]}/{os.getpid()}', 'w').close()\n    time.sleep(600)\n"
        "for _ in in_processes(work, 9, 2): pass\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    components.wait_until(lambda: len(list(tmp_path.iterdir())) >= 2, "two workers")
    workers = [int(path.name) for path in tmp_path.iterdir()]
    process.kill()
    process.wait()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.01)

"""`compare`: several processes print and write what one does, whatever policies do."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import components
from pilothouse import Cluster, Policy, compare
from pilothouse.campaign import frames
from pilothouse.cli.compare import command
from pilothouse.launch.workers import FEWEST_JOBS, cores, useful_workers

LOG = str(components.ROOT / "examples" / "kth-sp2-5000.swf.gz")
BAD = """
from pilothouse import Policy
class Bad(Policy):
    def schedule(self, cluster):
        raise ValueError("no idea")
class Idle(Policy):
    def schedule(self, cluster):
        pass
"""


def run(folder: Path, workers: int, *more: str) -> tuple[Result, dict[str, bytes]]:
    folder.mkdir()
    (folder.parent / "bad.py").write_text(BAD)
    bad = f"{folder.parent}/bad.py"
    argv = ["-p", "100", "-w", LOG, "--week", "3", "--policy", f"fcfs,{bad}:Bad,easy,{bad}:Idle"]
    found = CliRunner().invoke(command, [*argv, "-j", str(workers), "-e", f"{folder}/", *more])
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}
    return found, files


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_processes_print_and_write_what_one_does(more: tuple[str, ...], tmp_path: Path) -> None:
    one, files = run(tmp_path / "one", 1, *more)
    two, same_files = run(tmp_path / "two", 2, *more)
    assert (two.stdout, two.stderr, two.exit_code) == (one.stdout, one.stderr, one.exit_code)
    assert one.exit_code == 1 and "no idea" in one.stderr and "left waiting" in one.stderr
    assert files == same_files and sum(name.endswith("jobs.csv") for name in files) == 4


class Counts(Policy):
    """Remembers how often it was asked."""

    asked = 0

    def schedule(self, cluster: Cluster) -> None:
        self.asked += 1
        for job in list(cluster.queue):
            cluster.start(job)


class Breaks(Policy):
    def schedule(self, cluster: Cluster) -> None:
        raise ValueError("no idea")


def test_python_processes_find_what_one_does() -> None:
    mine = Counts()

    def compared(workers: int) -> object:
        found = compare(workload=LOG, platform=100, week=3, workers=workers,
                        policies=["fcfs", Breaks, Counts, {"mine": mine}, "easy"])  # fmt: skip
        assert list(found) == ["fcfs", "Counts", "mine", "easy"] and "no idea" in found.failed["Breaks"]
        return frames.rows_of(found.jobs, "jobs"), repr(found), found.failed

    one = compared(1)
    mine.asked = 0
    assert compared(3) == one
    assert mine.asked > 0, "an object runs in this process, where its owner can look at it"


def test_workers_are_used_where_they_help() -> None:
    assert useful_workers(None, 3, 100) == 1 and useful_workers(2, 3, 100) == 2
    assert useful_workers(None, 3, FEWEST_JOBS) == min(3, cores())

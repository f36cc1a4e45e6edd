"""Cores, memory and GPUs of a node are never overbooked, whatever decides: checked from the journal, moment by moment."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.live_runs import rows
from interop.test_every_pair import Beside, finish, flux_scheduler, library, pilothouse, pybatsim
from pilothouse.model.idset import IdSet
from pilothouse.worlds.live.records import gpus_of_text

CORES, MEMORY_MB, GPUS = 8, 16 * 1024, 2
TASKS = 500


def easy(beside: Beside, folder: Path, request: pytest.FixtureRequest) -> str:
    return "easy"


def filler(beside: Beside, folder: Path, request: pytest.FixtureRequest) -> str:
    return "filler"


def mixed_tasks(seed: int) -> str:
    """Tasks that ask for all kinds of things, in blocks and alone; some wait for others."""
    chance = random.Random(seed)
    lines, left = [], TASKS
    for block in range(TASKS):
        words = [f"name=b{block}"]
        if chance.random() < 0.7:
            words.append(f"cores={chance.randint(1, CORES)}")
        if chance.random() < 0.7:
            words.append(f"mem={chance.choice([1, 2, 4, 6, 9, 16])}G")
        if chance.random() < 0.3:
            words.append(f"gpus={chance.randint(1, GPUS)}")
        if block > 10 and chance.random() < 0.1:
            words.append(f"after=b{chance.randrange(block - 10)}")
        count = min(left, chance.choice([1, 1, 2, 5, 20]))
        lines += ["", "#PILOTHOUSE " + " ".join(words), *["/bin/sleep 0.0" + str(chance.randint(0, 3)) for _ in range(count)]]
        left -= count
        if not left:
            break
    return "\n".join(lines) + "\n"


def assert_never_overbooked(folder: Path) -> int:
    """The most jobs that ran at once."""
    moments: list[tuple[float, int, int]] = []
    found = rows(folder, "SELECT at, closed_at, units, gpus, memory_mb FROM assignments")
    for index, (began, ended, *_) in enumerate(found):
        assert isinstance(began, float) and isinstance(ended, float)
        moments += [(began, 1, index), (ended, 0, index)]  # what ends at a moment is free at that moment
    units, gpus, memory_mb, running, most = 0, set[str](), 0, 0, 0
    for _, begins, index in sorted(moments):
        taken = IdSet.parse(str(found[index][2])).mask
        names = {name for named in gpus_of_text(str(found[index][3])).values() for name in named}
        if begins:
            assert not units & taken and not gpus & names
            units, gpus, running = units | taken, gpus | names, running + 1
            memory_mb += int(str(found[index][4]))
        else:
            units, gpus, running = units & ~taken, gpus - names, running - 1
            memory_mb -= int(str(found[index][4]))
        assert units.bit_count() <= CORES and memory_mb <= MEMORY_MB and len(gpus) <= GPUS
        most = max(most, running)
    assert not units and not gpus and not memory_mb
    return most


def pybatsim_easy(beside: Beside, folder: Path, request: pytest.FixtureRequest) -> str:
    return pybatsim("pybatsim3", "easyBackfill", beside, folder, request)


@pytest.mark.parametrize("decider", [easy, filler, pybatsim_easy, library, flux_scheduler])
def test_mixed_tasks_never_overbook_a_node(
    decider: Callable[[Beside, Path, pytest.FixtureRequest], str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "tasks.txt").write_text(mixed_tasks(14))
    node = ("--slots", CORES, "--node-mem", "16G", "--gpu-list", "0,1")
    with contextlib.ExitStack() as beside:
        by = decider(beside, tmp_path, request)
        finish(pilothouse("run", "tasks.txt", "--dir", "R", *node, "--walltime", 60, "--by", by), tmp_path)
    states = rows(tmp_path / "R", "SELECT state, count(*) FROM ends WHERE final GROUP BY state")
    assert states == [("succeeded", TASKS)]
    assert assert_never_overbooked(tmp_path / "R") > 2

"""Grids of sweeps: which cells they have, in which order, and what mistakes look like."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilothouse.campaign.grid import Grid, with_options
from pilothouse.model.errors import InputError


def cells(grid: Grid, *seeded: str, weeks: tuple[int, ...] = (0, 1)) -> list[tuple[object, ...]]:
    found = grid.cells(lambda workload, platform: weeks, lambda name: name in seeded)
    return [(cell.workload, cell.platform, cell.load, cell.week, cell.seed, cell.policy) for cell in found]


def test_cells_are_the_product_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(
        'workloads = ["a", "b"]\nplatforms = [4, "8"]\npolicies = ["fcfs", "easy"]\nloads = [1.0, 2.0]\nweeks = "all"\n'
        '[options.easy]\nestimate = ["requested", "2x"]\n'
    )
    grid = Grid.read(str(path))
    grid.check(str(path))
    found = cells(grid)
    assert len(found) == 2 * 2 * 2 * 2 * 3
    assert found[:4] == [
        ("a", "4", 1.0, 0, None, "fcfs"), ("a", "4", 1.0, 0, None, "easy:estimate=requested"),
        ("a", "4", 1.0, 0, None, "easy:estimate=2x"), ("a", "4", 1.0, 1, None, "fcfs"),
    ]  # fmt: skip
    assert found[-1] == ("b", "8", 2.0, 1, None, "easy:estimate=2x")


def test_seeds_only_where_they_make_a_difference() -> None:
    grid = Grid(workloads=["log", "made"], platforms=["4"], policies=["fcfs", "random"], seeds=2)
    found = cells(grid, "made", "random")
    assert [(workload, policy, seed) for workload, _, _, _, seed, policy in found] == [
        ("log", "fcfs", None), ("log", "random", 1), ("log", "random", 2),
        ("made", "fcfs", 1), ("made", "fcfs", 2), ("made", "random", 1), ("made", "random", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "joined"),
    [
        ("easy", "easy:x=1"), ("priority:score=r*n", "priority:score=r*n,x=1"), ("mine.py:Mine", "mine.py:Mine:x=1"),
        ("mine.py:Mine:y=2", "mine.py:Mine:y=2,x=1"), ("pack.mod:Mine", "pack.mod:Mine:x=1"),
    ],
)  # fmt: skip
def test_options_join_a_policy(policy: str, joined: str) -> None:
    assert with_options(policy, ["x=1"]) == joined
    assert with_options(policy, []) == policy


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("workloads = [", "not TOML"),
        ('workload = ["a"]', "unknown key 'workload'.*did you mean workloads"),
        ('workloads = "a"', "not a grid"),
        ('platforms = [4]\nworkloads = []', "workloads: none is named"),
        ('platforms = [4]\nworkloads = ["a"]\nloads = [0]', "loads; expected numbers above 0"),
        ('platforms = [4]\nworkloads = ["a"]\nloads = [nan]', "loads; expected numbers above 0"),
        ('platforms = [4]\nworkloads = ["a"]\nweeks = "some"', "weeks; expected"),
        ('platforms = [4]\nworkloads = ["a"]\nweeks = [-1]', "weeks; expected numbers from 0"),
        ('platforms = [4]\nworkloads = ["a"]\nseeds = 0', "seeds; expected"),
        ('platforms = [4]\nworkloads = ["a"]\nwarm_up = -1', "warm_up; expected seconds"),
        ('platforms = [4]\nworkloads = ["a"]\n[options.esay]\nestimate = "2x"', "options for 'esay'"),
    ],
)
def test_mistakes_are_one_line(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=says) as caught:
        Grid.read(str(path)).check(str(path))
    assert "\n" not in str(caught.value) and "grid.toml" in str(caught.value)


def test_too_many_cells_are_refused_before_they_are_made() -> None:
    grid = Grid(workloads=["made"], platforms=["4"], policies=["fcfs"], seeds=list(range(1_000_001)))
    with pytest.raises(InputError, match="too many cells"):
        cells(grid, "made")

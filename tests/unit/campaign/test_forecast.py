"""A forecast is what the arithmetic says, and what an earlier run taught."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from math import ceil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.campaign.forecast import Forecast, TaskDurations, forecast
from pilothouse.formats.task_file import TaskReader
from pilothouse.model.errors import InputError
from pilothouse.policies.catalog import make


def told(text: str, platform: str, durations: TaskDurations, units: int = 1) -> Forecast:
    lines = TaskReader("tasks").read(text.encode().splitlines(keepends=True))
    return forecast(lines, platform, durations, lambda: make("fcfs", {}), units=units)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=4), st.integers(1, 6), st.integers(1, 3))
def test_equal_tasks_come_in_rounds_and_barriers_add_up(counts: list[int], slots: int, units: int) -> None:
    text = "#DISBATCH BARRIER\n".join("true\n" * count for count in counts)
    if units > slots:
        with pytest.raises(InputError, match="larger than the platform"):
            told(text, str(slots), TaskDurations(7), units)
        return
    found = told(text, str(slots), TaskDurations(7), units)
    rounds = [ceil(count / (slots // units)) for count in counts]
    assert [phase.tasks for phase in found.phases] == counts
    assert found.seconds == 7 * sum(rounds)
    assert found.utilisation == pytest.approx(sum(counts) * units / (sum(rounds) * slots))


def test_an_earlier_run_teaches_each_task_or_its_line_or_all() -> None:
    durations = TaskDurations(5, {(1, 0): 2, (1, 1): 4, (2, -1): 9})
    found = told("#DISBATCH REPEAT 3 true\ntrue\ntrue\n", "100", durations)
    assert found.seconds == 9
    assert found.busy_unit_s == 2 + 4 + 3 + 9 + 5
    assert found.guessed == 2


def test_an_empty_file_is_done_at_once() -> None:
    found = told("# nothing\n", "4", TaskDurations(5))
    assert (found.tasks, found.seconds, found.utilisation) == (0, 0, 0)


def test_from_a_real_run_to_its_forecast(
    tmp_path: Path, pilothouse: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (tmp_path / "tasks").write_text("#DISBATCH REPEAT 4 sleep 0.2\n")
    ran = pilothouse("run", "tasks", "--slots", "2", "--dir", "run", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    shown = pilothouse("forecast", "tasks", "--nodes", "4", "--duration", "run", "--json", cwd=tmp_path)
    found = json.loads(shown.stdout)
    assert (found["tasks"], found["guessed"]) == (4, 0)
    assert 0.2 <= found["seconds"] < 0.4, "four at once take as long as one"
    empty = pilothouse("forecast", "tasks", "--nodes", "4", "--duration", "nowhere", cwd=tmp_path)
    assert (empty.returncode, empty.stderr.count("\n")) == (2, 1)

"""Forecasts and what-ifs of real runs: finished ones, and one that goes on."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import components
from e2e import live_runs
from pilothouse.launch.forecasts import forecast_run, forecast_start, nodes_to_add
from pilothouse.launch.run_whatif import start_in_run, whatif_run
from pilothouse.model.errors import InputError
from pilothouse.model.job import Job
from pilothouse.views.time_left import TimeLeft

EXAMPLES = components.ROOT / "examples"
Command = Callable[..., subprocess.CompletedProcess[str]]


def test_from_a_finished_run_to_forecast_and_what_if(tmp_path: Path, pilothouse: Command) -> None:
    (tmp_path / "tasks").write_text("#PILOTHOUSE cores=2\nsleep 0.4\n\n#DISBATCH REPEAT 4 sleep 0.2\n")
    (tmp_path / "own.py").write_text("from pilothouse.policies.queueing import Queueing\n\n\nclass Own(Queueing):\n    pass\n")
    ran = pilothouse("run", "tasks", "--slots", "2", "--dir", "run", "--policy", "own.py:Own", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(pilothouse("forecast", "tasks", "--nodes", "6", "--duration", "run", "--json", cwd=tmp_path).stdout)
    assert (told["tasks"], told["slots"]) == (5, 6)
    assert 0.3 < told["low"] <= told["seconds"] <= told["high"] < 2
    enough = pilothouse("forecast", "tasks", "--nodes", "9x2", "--duration", "run", "--until", "30s", cwd=tmp_path)
    assert enough.returncode == 0
    assert "1 node is enough" in enough.stdout
    assert "run: no task is left; " in pilothouse("forecast", "run", cwd=tmp_path).stdout
    (tmp_path / "others").write_text("./another --program\n" * 5)
    for wrong in (("others", "run"), ("tasks", "nowhere"), ("tasks", ".")):
        refused = pilothouse("forecast", wrong[0], "--nodes", "4", "--duration", wrong[1], cwd=tmp_path)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused.stderr
    otherwise = whatif_run(str(tmp_path / "run"), "easy", 2).difference
    assert otherwise is not None and otherwise.jobs == 5
    assert otherwise.earlier == 4, "all but the first start at once on six slots"
    assert not any("cannot be simulated" in note for note in whatif_run(str(tmp_path / "run"), "easy", 0).notes), "another folder"
    assert any("replayed as it was" in note for note in whatif_run(str(tmp_path / "run"), "", 1).notes)


def test_a_run_that_goes_on_is_run_ahead(tmp_path: Path) -> None:
    """Four short tasks have ended, two long ones run, and four tasks wait; one of them for all others."""
    text = "sleep 0.1\n" * 4 + "sleep 600\n" * 2 + "sleep 0.2\n" * 3 + "#DISBATCH BARRIER\nsleep 0.3\n"
    process = live_runs.start(tmp_path, live_runs.tasks(tmp_path, text), "--slots", "2", "--dir", "run")
    folder = tmp_path / "run"
    try:
        begun = "SELECT 1 FROM assignments WHERE closed_at IS NULL"
        ended = "SELECT 1 FROM ends WHERE final"
        live_runs.until(
            lambda: len(live_runs.rows(folder, ended)) == 4 and len(live_runs.rows(folder, begun)) == 2, "long tasks run"
        )
        found = forecast_run(folder, samples=20)
        assert (found.forecast.tasks, found.running, found.policy) == (6, 2, "fcfs")
        assert found.forecast.seconds.low > 0
        (_, sixth), (_, tenth) = forecast_start(folder, "6", 0), forecast_start(folder, "10", 3)
        assert 0 < sixth.low <= sixth.median <= tenth.median and tenth.low >= sixth.low
        more = nodes_to_add(folder, 1e9, samples=20)
        assert more is not None and more[0] == 0
        with closing(TimeLeft(folder)) as left:
            live_runs.until(lambda: left.now(6), "a forecast in a process of its own")
            shown = left.now(6)
            assert shown is not None and 0 <= shown.low <= shown.seconds <= shown.high
            assert left.now(10**6) is None, "the rate says as much"
        otherwise = whatif_run(str(folder), "easy", 2)
        assert otherwise.now is not None and otherwise.otherwise is not None
        assert (otherwise.now.slots, otherwise.otherwise.slots) == (2, 6)
        last = start_in_run(str(folder), "", Job("submitted", 2)).submitted
        assert last is not None and (last.policy, last.slots) == ("fcfs", 2)
        assert 0 < last.low <= last.seconds <= last.high, "two tasks run, and it needs both slots"
    finally:
        process.terminate()
        live_runs.finish(process)
    with pytest.raises(InputError, match="no engine"):
        forecast_run(folder)


def test_submit_is_for_what_goes_on(tmp_path: Path, pilothouse: Command) -> None:
    assert pilothouse("simulate", "-p", "4", "-w", str(EXAMPLES / "tiny.json"), "-e", "out/", cwd=tmp_path).returncode == 0
    for more, problem in (
        (("out/", "--submit", "4"), "nothing can be submitted to a run that is over"),
        (("out/", "--submit", "4x"), "--submit: not a job"),
        (("out/", "--submit", "0:5m"), "--submit: not a job"),
        (("out/", "--submit", "4:soon"), "--submit"),
        (("out/", "--submit", "4", "--add-nodes", "1"), "--submit or --add-nodes"),
    ):
        refused = pilothouse("whatif", *more, cwd=tmp_path)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1) and problem in refused.stderr

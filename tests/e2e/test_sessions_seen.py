"""Simulations and steering sessions that go on leave on disk what views need: ended jobs, and what runs and waits."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from math import isnan
from pathlib import Path

from e2e.live_runs import COMMAND, until
from pilothouse.model.lifecycle import JobState
from pilothouse.views.read_run import read_run
from pilothouse.views.schedule import Schedule
from pilothouse.views.session_now import read_now

SLOW = """
import time
from pathlib import Path
from pilothouse import Policy

class Slow(Policy):
    "First come, first served; takes its time until there is a file `go`."
    def schedule(self, cluster):
        if cluster.now > 100 and not Path("go").exists():
            time.sleep(0.05)
        for job in list(cluster.queue):
            if not cluster.start(job):
                break
"""
JOBS = "".join(f"{n} {2 * n} -1 50 3 -1 -1 3 60 -1 1 7 1 -1 1 -1 -1 -1\n" for n in range(1, 301))


def is_seen(folder: Path, prefix: Path, total: int | None) -> None:
    """While it goes on: jobs have ended, some run, some wait and it is known why. Then it may end."""
    until(lambda: read_now(f"{prefix}/") is not None and len(read_run(str(prefix))) > 5, "something can be seen")
    run, now = read_run(str(prefix)), read_now(f"{prefix}/")
    assert now is not None and not run.over and run.total == total
    assert {JobState.SUCCEEDED, JobState.RUNNING, JobState.WAITING} <= set(run.states)
    for row, state in enumerate(run.states):
        assert isnan(run.ended[row]) == (state in (JobState.RUNNING, JobState.WAITING))
        assert isnan(run.started[row]) == (state is JobState.WAITING)
    assert run.busy().at(now.now) <= 4
    assert any("3 units" in job.why or "needs 3" in job.why for job in now.jobs), now.jobs[:5]
    (folder / "go").touch()


def dates(run: Schedule) -> dict[str, tuple[float, float]]:
    """Start and end of each job, by its number."""
    return {job.rpartition("!")[2]: (run.started[row], run.ended[row]) for row, job in enumerate(run.ids)}


def test_a_simulation_that_goes_on(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "w.swf").write_text(JOBS)
    simulate = [*COMMAND, "simulate", "-p", "4", "-w", "w.swf", "--policy", "slow.py:Slow", "-e", "out/", "-q"]
    process = subprocess.Popen(simulate, cwd=tmp_path)
    is_seen(tmp_path, tmp_path / "out", 300)
    assert process.wait(60) == 0
    run = read_run(str(tmp_path / "out"))
    assert run.over and len(run) == 300 and set(run.states) == {JobState.SUCCEEDED}
    assert not (tmp_path / "out/now.json").exists()


def test_a_steering_session_that_goes_on(tmp_path: Path, free_port: Callable[[], int]) -> None:
    """Our Batsim 4 stands for a foreign one."""
    (tmp_path / "slow.py").write_text(SLOW)
    jobs = [{"id": n, "subtime": 2 * n, "walltime": 60, "res": 3, "profile": "p"} for n in range(1, 301)]
    workload = {"nb_res": 4, "jobs": jobs, "profiles": {"p": {"type": "delay", "delay": 50}}}
    (tmp_path / "w.json").write_text(json.dumps(workload))
    hosts = "".join(f'<host id="h{n}" speed="1Gf"/>' for n in range(5))
    (tmp_path / "p.xml").write_text(
        f'<?xml version="1.0"?><platform version="4.1"><zone id="z" routing="Full">{hosts}</zone></platform>'
    )
    port = free_port()
    steer = [*COMMAND, "steer", "--world", f"batsim:tcp://*:{port}", "--by", "slow.py:Slow", "-e", "seen/"]
    there = ["-s", f"tcp://localhost:{port}", "-e", "other", "-m", "h4", "-q"]
    batsim = [*COMMAND, "batsim4", "-p", "p.xml", "-w", "w.json", *there]
    ours = subprocess.Popen(steer, cwd=tmp_path, stdout=subprocess.DEVNULL)
    theirs = subprocess.Popen(batsim, cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        is_seen(tmp_path, tmp_path / "seen", None)
        assert ours.wait(60) == 0 and theirs.wait(60) == 0
    finally:
        ours.kill()
        theirs.kill()
    run = read_run(str(tmp_path / "seen"))
    assert run.over and len(run) == 300
    mine, told = dates(run), dates(read_run(str(tmp_path / "other")))
    assert mine.keys() == told.keys()
    assert all(abs(mine[job][place] - told[job][place]) < 0.5 for job in mine for place in (0, 1))

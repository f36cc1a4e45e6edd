"""Commands that look at runs, as a user meets them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import components

ROOT = components.ROOT
TRACE = ROOT / "examples/kth-sp2-5000.swf.gz"

BAD = """
import json
from pilothouse import Policy

class Raises(Policy):
    def schedule(self, cluster):
        if cluster.now > 1000:
            json.loads("{")

class Nothing(Policy):
    def schedule(self, cluster):
        pass
"""


def pilothouse(*arguments: object, cwd: Path, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from pilothouse.cli.main import main; main()", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == code, done.stderr
    return done


def test_one_bad_policy_leaves_the_others_their_results(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(BAD)
    policies = "bad.py:Raises,easy,bad.py:Nothing,fcfs"
    arguments = ("compare", "-p", 100, "-w", TRACE, "--policy", policies)
    shown = pilothouse(*arguments, cwd=tmp_path, code=1, COLUMNS="80")
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert "easy " in shown.stdout
    assert f"{tmp_path}/bad.py:8" in shown.stderr, "the policy's line, not the library's"
    assert "Traceback" not in shown.stderr
    assert "5,000 jobs were left waiting" in shown.stderr
    found = json.loads(pilothouse(*arguments, "--json", cwd=tmp_path, code=1).stdout)
    assert (found["kind"], found["schema"]) == ("comparison", 1)
    by_name = {run["policy"]: run for run in found["runs"]}
    assert by_name["easy"]["metrics"]["jobs"] == 5000
    assert by_name["bad.py:Raises"]["metrics"] is None
    assert "JSONDecodeError" in by_name["bad.py:Raises"]["problem"]
    assert by_name["bad.py:Nothing"]["waiting"] == 5000


def test_the_traceback_of_a_policy(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(BAD)
    arguments = ("simulate", "-p", 100, "-w", TRACE, "--policy", "bad.py:Raises", "-e", "out/")
    short = pilothouse(*arguments, cwd=tmp_path, code=1).stderr
    assert short.count("\n") == 1
    assert "bad.py:8" in short
    assert "--traceback" in short
    long = pilothouse("--traceback", *arguments, cwd=tmp_path, code=1).stderr
    assert "decoder.py" in long
    assert long.endswith(short)


def test_mistyped_names_get_a_suggestion(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(BAD)
    mistakes = {"eazy": "easy", "eazy:estimate=2x": "easy", "easy:estimat=2x": "estimate", "bad.py:Raise": "Raises"}
    for policy, near in mistakes.items():
        said = pilothouse("simulate", "-p", 100, "-w", TRACE, "--policy", policy, cwd=tmp_path, code=2).stderr
        assert f"did you mean {near}?" in said


def test_a_run_is_named_by_its_folder(tmp_path: Path) -> None:
    pilothouse("compare", "-p", 100, "-w", TRACE, "--policy", "easy,fcfs", "-e", "runs/", "--plot", "c.pdf", cwd=tmp_path)
    assert "(policy easy)" in pilothouse("explain", "runs/easy", "40", cwd=tmp_path).stdout
    assert "did you mean easy?" in pilothouse("explain", "runs/eazy", "40", cwd=tmp_path, code=2).stderr
    assert (tmp_path / "c.pdf").read_bytes().startswith(b"%PDF")
    shown = pilothouse("plot", "runs/easy", "runs/fcfs/", "-o", "a.svg", "-o", "b.png", cwd=tmp_path)
    assert shown.stdout == "plot: a.svg\nplot: b.png\n"
    said = pilothouse("plot", "runs/easy", "--kind", "gant", cwd=tmp_path, code=2).stderr
    assert "did you mean gantt?" in said


def test_a_live_run_is_drawn(tmp_path: Path) -> None:
    (tmp_path / "tasks.txt").write_text("true\nsleep 0.1\nfalse\n")
    pilothouse("run", "tasks.txt", "--slots", 2, cwd=tmp_path, code=1)
    pilothouse("plot", "tasks.txt.run1", "-o", "live.png", cwd=tmp_path)
    assert (tmp_path / "live.png").read_bytes().startswith(b"\x89PNG")

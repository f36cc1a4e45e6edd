"""Commands that look at runs, as a user meets them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import components
from e2e import live_runs
from terminals import Terminal

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


def test_what_changed(tmp_path: Path) -> None:
    pilothouse("compare", "-p", 100, "-w", TRACE, "--policy", "easy,easy-sjbf", "-e", "runs/", cwd=tmp_path)
    shown = pilothouse("diff", "runs/easy", "runs/easy-sjbf", cwd=tmp_path, code=1).stdout
    assert "first difference at 691379 s" in shown
    assert "A started w0!184" in shown
    assert "B started w0!185" in shown
    found = json.loads(pilothouse("diff", "runs/easy", "runs/easy-sjbf", "--json", cwd=tmp_path, code=1).stdout)
    assert (found["kind"], found["schema"]) == ("difference", 1)
    assert found["first"]["only_b"][0]["job"] == "w0!185"
    mean = next(row for row in found["metrics"] if row["metric"] == "wait mean")
    assert abs(sum(move["delta"] for move in found["moves"]) / found["jobs"] - mean["difference"]) < 1e-6
    assert "no decision differs" in pilothouse("diff", "runs/easy", "runs/easy", cwd=tmp_path).stdout
    assert "did you mean easy?" in pilothouse("diff", "runs/easy", "runs/eas", cwd=tmp_path, code=2).stderr


def test_stepping_on_a_terminal(tmp_path: Path) -> None:
    """The keys of a real terminal move it; it ends with the screen as it was."""
    tiny = ROOT / "examples/tiny.json"
    pilothouse("simulate", "-q", "-p", 4, "-w", tiny, "--policy", "easy", "-e", "out/", cwd=tmp_path)
    once = pilothouse("step", "out/", "--job", "5", cwd=tmp_path).stdout
    assert "start 5 on 3 (1 units): backfilled past 2, 4" in once
    lines = pilothouse("step", "out/", "--json", cwd=tmp_path).stdout.splitlines()
    assert [json.loads(line)["date"] for line in lines] == [0, 5, 10, 15, 20, 90, 100, 105, 155, 165, 175]
    with Terminal("step", "out/", cwd=tmp_path) as terminal:
        terminal.until("moment 1 of 11")
        terminal.press("\x1b[C")
        terminal.until("moment 2 of 11")
        terminal.press("j5\r")
        terminal.until("moment 6 of 11")
        terminal.press("\x1b[D")
        terminal.until("moment 5 of 11")
        terminal.press("q")
        assert terminal.ends() == 0
    assert terminal.seen.rstrip().endswith("\x1b[?25h\x1b[?1049l")


DOCUMENTED = {
    "run": ("simulate", "-p", 4, "-w", ROOT / "examples/tiny.json", "-e", "again/", "--json"),
    "comparison": ("compare", "-p", 4, "-w", ROOT / "examples/tiny.json", "--json"),
    "explanation": ("explain", "out/", "1", "--json"),
    "task_story": ("explain", "tasks.txt.run1", "0", "--json"),
    "difference": ("diff", "out/", "out/", "--json"),
    "moment": ("step", "out/", "--json"),
    "policies": ("policies", "--json"),
    "forecast": ("forecast", "tasks.txt", "--nodes", 2, "--duration", 3, "--json"),
    "task": ("tasks", "tasks.txt.run1", "--json"),
    "watch": ("watch", "tasks.txt.run1", "--json"),
}


def test_every_document_is_documented(tmp_path: Path) -> None:
    """Kind, schema and the fields of the page: no more and no fewer."""
    (tmp_path / "tasks.txt").write_text("true\n")
    pilothouse("run", "tasks.txt", "--slots", 1, cwd=tmp_path)
    pilothouse("simulate", "-q", "-p", 4, "-w", ROOT / "examples/tiny.json", "-e", "out/", cwd=tmp_path)
    page = (ROOT / "docs/reference/json.md").read_text()
    for kind, command in DOCUMENTED.items():
        said = pilothouse(*command, cwd=tmp_path).stdout
        document = json.loads(said.splitlines()[0] if kind in ("moment", "task") else said)
        assert (document.pop("kind"), document.pop("schema")) == (kind, 1)
        section = page.partition(f"### {kind}\n")[2].partition("\n### ")[0]
        assert set(re.findall(r"^\| `(\w+):", section, re.MULTILINE)) == set(document), kind


def test_watching_a_run_that_goes_on(tmp_path: Path) -> None:
    """Groups of short tasks and a long one: what runs, what failed, on a terminal and as JSON."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    (tmp_path / "tasks.txt").write_text(f"cat {gate}\nsh -c 'echo bad luck >&2; exit 3'\n" + "true\n" * 20)
    run = live_runs.start(tmp_path, "tasks.txt", "--slots", "2")
    folder = tmp_path / "tasks.txt.run1"
    try:
        live_runs.until(lambda: live_runs.rows(folder, "SELECT 1 FROM ends WHERE task_id = 21"), "the short tasks end")
        live_runs.until(lambda: watched(folder, tmp_path)["running"] == 1, "only one is left")
        found = watched(folder, tmp_path)
        assert (found["kind"], found["schema"]) == ("watch", 1)
        assert [task["task_id"] for task in found["running_tasks"]] == [0]
        assert found["running_tasks"][0]["slots"] in ("0", "1")
        assert found["failures"][0]["last_words"] == "bad luck"
        assert (found["finished"], found["failed"], found["waiting"]) == (21, 1, 0)
        with Terminal("watch", folder, cwd=tmp_path) as terminal:
            terminal.until("bad luck")
            terminal.press("/cat\r")
            terminal.until("only what has 'cat'")
            terminal.press("q")
            assert terminal.ends() == 0
    finally:
        gate.write_text("")
        live_runs.finish(run)
    assert watched(folder, tmp_path)["running_tasks"] == []
    assert "is a simulation" in pilothouse("watch", simulated(tmp_path), "--json", cwd=tmp_path, code=2).stderr


def watched(folder: Path, cwd: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(pilothouse("watch", folder, "--json", cwd=cwd).stdout)
    return found


def simulated(cwd: Path) -> str:
    pilothouse("simulate", "-q", "-p", 4, "-w", ROOT / "examples/tiny.json", "-e", "out/", cwd=cwd)
    return "out/"

"""`pilothouse explain`, `tasks` and `watch` of a live run: what a task waits for, where it runs, how it ended."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from e2e import live_runs
from e2e.test_look import pilothouse


def explained(folder: Path, task: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(pilothouse("explain", "R", task, "--json", cwd=folder).stdout)
    return found


def test_a_run_that_goes_on_and_its_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    (tmp_path / "tasks.txt").write_text(
        "true\nsh -c 'echo too bad >&2; exit 3'\n#DISBATCH BARRIER\n"
        "#PILOTHOUSE name=gate\ncat gate\n\n"
        "#PILOTHOUSE cores=2\nwide\n\n"
        "#PILOTHOUSE after=gate name=next\ntrue\n\n"
        "#PILOTHOUSE mem=700M\ntrue\n\n"
        "#DISBATCH BARRIER\ntrue\n"
    )  # fmt: skip
    run = live_runs.start(tmp_path, "tasks.txt", "--slots", "2", "--dir", "R", "--node-mem", "1G", "--retries", "1")
    try:
        journal = tmp_path / "R"
        live_runs.until(lambda: live_runs.rows(journal, "SELECT 1 FROM assignments WHERE job_id = '3'"), "the gate is reached")
        running = explained(tmp_path, "gate")
        assert (running["state"], running["task"], running["slots"] in ("0", "1")) == ("running", 3, True)
        assert "runs on" in pilothouse("explain", "R", "3", cwd=tmp_path).stdout
        wide = explained(tmp_path, "4")
        assert (wide["waits_for"], wide["line"]) == ("cores", 8)
        assert running["since"] - 60 < wide["since"] <= running["since"]
        assert wide["expected_start"] > 0 and "fcfs" in wide["expected_why"]
        assert explained(tmp_path, "next")["reason"] == "gate: task 3 runs"
        assert explained(tmp_path, "6")["waits_for"] == "policy"
        assert "task 4, which waits for cores, is before it" in explained(tmp_path, "6")["reason"]
        said = pilothouse("explain", "R", "8", cwd=tmp_path).stdout
        assert "waits for the barrier of line 16: 4 tasks before it have not ended; it waits since" in said
        assert "expected start: " in said
        rows = {row["task"]: row for row in map(json.loads, pilothouse("tasks", "R", "--json", cwd=tmp_path).stdout.splitlines())}
        assert rows[4]["state"] == "waiting" and rows[4]["reason"] == f"waits for {wide['reason']}"
        table = pilothouse("tasks", "R", "--waiting", cwd=tmp_path).stdout.splitlines()
        assert [line.split()[0] for line in table[1:]] == ["4", "5", "6", "8"]
        watched = json.loads(pilothouse("watch", "R", "--json", cwd=tmp_path).stdout)
        assert (watched["next_task"], watched["waits_for"]) == (4, wide["reason"])
        assert f"task 4 waits for {wide['reason']}"[:60] in pilothouse("watch", "R", "--once", cwd=tmp_path).stdout
        assert "there is no task 99" in pilothouse("explain", "R", "99", cwd=tmp_path, code=2).stderr
    finally:
        (tmp_path / "gate").write_text("")
        live_runs.finish(run)
    failed = explained(tmp_path, "1")
    assert [attempt["last_line"] for attempt in failed["attempts"]] == ["too bad", "too bad"]
    said = pilothouse("explain", "R", "1", cwd=tmp_path).stdout
    assert "failed (exit code 3)" in said and "its last line on stderr: too bad" in said and "attempt 1: failed" in said
    assert "succeeded" in pilothouse("explain", "R", "next", cwd=tmp_path).stdout

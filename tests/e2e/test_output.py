"""`pilothouse output`: what tasks wrote is kept and found."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import components

PILOTHOUSE = [sys.executable, "-c", "from pilothouse.cli.main import main; main()"]


def pilothouse(folder: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*PILOTHOUSE, *words], check=False, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture
def run(tmp_path: Path) -> Path:
    lines = ["echo out; echo err >&2", "seq 1 30000", "echo wrong >&2; exit 3", "true"]
    (tmp_path / "tasks.txt").write_text("\n".join(lines) + "\n")
    pilothouse(tmp_path, "run", "tasks.txt", "--dir", "R", "--slots", "2", "-q", code=1)
    return tmp_path


def test_streams_of_a_task(run: Path) -> None:
    assert pilothouse(run, "output", "R", "0").stdout == "out\n"
    assert pilothouse(run, "output", "R", "0", "--stderr").stdout == "err\n"
    assert sorted(pilothouse(run, "output", "R", "0", "--both").stdout.split()) == ["err", "out"]
    assert pilothouse(run, "output", "R", "1").stdout == "".join(f"{number}\n" for number in range(1, 30001))
    assert pilothouse(run, "output", "R", "3").stdout == ""
    assert "nothing is known of task 7" in pilothouse(run, "output", "R", "7", code=2).stderr


def test_all_tasks_as_text_lines_json_and_files(run: Path) -> None:
    assert "==> task 2 (failed, exit 3) <==\n" in pilothouse(run, "output", "R").stdout
    objects = [json.loads(line) for line in pilothouse(run, "output", "R", "--json").stdout.splitlines()]
    assert {row["task"]: row["stderr"] for row in objects} == {0: "err\n", 1: "", 2: "wrong\n", 3: ""}
    found = pilothouse(run, "output", "R", "--both", "--grep", "^(wr|29999$)").stdout.splitlines()
    assert sorted(found) == ["1: 29999", "2: wrong"]
    pilothouse(run, "output", "R", "--grep", "nowhere", code=1)
    pilothouse(run, "output", "R", "--to", "files")
    assert sorted(path.name for path in (run / "files").iterdir()) == ["0.stderr", "0.stdout", "1.stdout", "2.stderr"]
    assert "File exists" in pilothouse(run, "output", "R", "--to", "files", code=2).stderr
    assert "regular expression" in pilothouse(run, "output", "R", "--grep", "(", code=2).stderr


def test_what_exceeds_the_limits_is_said(tmp_path: Path) -> None:
    (tmp_path / "tasks.txt").write_text("seq 1 5000\n" * 8)
    pilothouse(tmp_path, "run", "tasks.txt", "--dir", "R", "--slots", "1", "-q", "--output-limit", "10k,30k", "--bundle", "1")
    first = pilothouse(tmp_path, "output", "R", "0")
    assert first.stdout.startswith("1\n2\n") and first.stdout.endswith("4999\n5000\n") and "left out" in first.stdout
    assert "were not kept" in first.stderr
    sizes = [len(pilothouse(tmp_path, "output", "R", str(task)).stdout) for task in range(8)]
    assert max(sizes) < 11_000 and sum(sizes) < 42_000 and sizes[-1] < 100
    assert "--output-limit" in pilothouse(tmp_path, "run", "tasks.txt", "--output-limit", "much", code=2).stderr


def test_a_running_task_is_followed(tmp_path: Path) -> None:
    (tmp_path / "tasks.txt").write_text("echo first; until [ -e go ]; do sleep 0.05; done; echo last\n")
    running = subprocess.Popen([*PILOTHOUSE, "run", "tasks.txt", "--dir", "R", "-q"], cwd=tmp_path)
    components.wait_until(lambda: any((tmp_path / "R").glob("*.output")), "the first output")
    following = subprocess.Popen([*PILOTHOUSE, "output", "R", "0", "-f"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert following.stdout is not None and following.stdout.readline() == "first\n"
    (tmp_path / "go").touch()
    assert following.stdout.readline() == "last\n"
    assert following.wait(30) == 0 and running.wait(30) == 0


def test_nothing_of_a_finished_task_is_lost_with_engine_and_driver(tmp_path: Path) -> None:
    lines = [f"seq {number}000 {number}999; echo done >&2" for number in range(10, 40)]
    (tmp_path / "tasks.txt").write_text("\n".join([*lines, "until [ -e go ]; do sleep 0.05; done"]) + "\n")
    words = ["run", "tasks.txt", "--dir", "R", "--slots", "1", "-q", "--once", "at-most"]
    driver = subprocess.Popen([*PILOTHOUSE, *words], cwd=tmp_path)
    components.wait_until(lambda: sum(pack.stat().st_size for pack in (tmp_path / "R").glob("*.output")) > 20_000, "output")
    engines = subprocess.run(["pgrep", "-P", str(driver.pid)], check=False, capture_output=True, text=True).stdout.split()
    for pid in (driver.pid, *map(int, engines)):
        os.kill(pid, signal.SIGKILL)
    driver.wait()
    (tmp_path / "go").touch()
    subprocess.run([*PILOTHOUSE, "run", "--resume", "R", "-q"], check=False, cwd=tmp_path, timeout=60)
    objects = [json.loads(line) for line in pilothouse(tmp_path, "output", "R", "--json").stdout.splitlines()]
    succeeded = {row["task"]: row["stdout"] for row in objects if row["state"] == "succeeded" and row["task"] < 30}
    assert len(succeeded) >= 28
    for task, text in succeeded.items():
        assert text == "".join(f"{number}\n" for number in range((task + 10) * 1000, (task + 11) * 1000)), task


@pytest.mark.parametrize("words", [("--out", "all.txt"), ("--err", "{attempt}.txt"), ("--out", "{line}.txt")])
def test_two_tasks_never_write_one_file(tmp_path: Path, words: tuple[str, str]) -> None:
    (tmp_path / "tasks.txt").write_text("#DISBATCH REPEAT 3 echo hi\n")
    said = pilothouse(tmp_path, "run", "tasks.txt", "--dir", "R", *words, code=2).stderr
    assert "would write to one file" in said and "{task}" in said and not (tmp_path / "R").exists()


def test_a_retried_task_keeps_the_files_of_its_first_attempt(tmp_path: Path) -> None:
    (tmp_path / "tasks.txt").write_text("cat number; [ -e good ]\n")
    (tmp_path / "number").write_text("1\n")
    pilothouse(tmp_path, "run", "tasks.txt", "--dir", "R", "--out", "{task}.txt", "-q", code=1)
    (tmp_path / "number").write_text("2\n")
    (tmp_path / "good").touch()
    pilothouse(tmp_path, "run", "--resume", "R", "--retry-failed", "-q")
    assert (tmp_path / "0.txt").read_text() == "2\n" and (tmp_path / "0.txt.attempt1").read_text() == "1\n"
    assert pilothouse(tmp_path, "output", "R", "0").stdout == "2\n"


def test_output_comes_in_the_order_of_the_tasks_not_of_their_ends(tmp_path: Path) -> None:
    """The first task ends when the second one has."""
    (tmp_path / "tasks").write_text("while [ ! -e ended ]; do sleep 0.01; done; echo first\necho second; touch ended\n")
    pilothouse(tmp_path, "run", "tasks", "--slots", "2", "--dir", "run", "-q")
    shown = pilothouse(tmp_path, "output", "run").stdout
    assert shown.index("first") < shown.index("second")


def test_damage_hides_nothing_that_is_whole(tmp_path: Path) -> None:
    (tmp_path / "tasks.txt").write_text("".join(f"echo output {number}\n" for number in range(6)))
    pilothouse(tmp_path, "run", "tasks.txt", "--dir", "R", "--slots", "1", "-q")
    (pack,) = (tmp_path / "R").glob("*.output")
    pack.write_bytes(pack.read_bytes().replace(b"output 2", b"output X"))
    done = pilothouse(tmp_path, "output", "R", "--to", "files", code=2)
    assert sorted(path.name for path in (tmp_path / "files").iterdir()) == [f"{task}.stdout" for task in (0, 1, 3, 4, 5)]
    assert "the output of 1 task is damaged (2), the rest is whole" in done.stderr
    shown = pilothouse(tmp_path, "output", "R", code=2)
    assert shown.stdout.count("output") == 5 and "damaged" in shown.stderr
    rows = [json.loads(line) for line in pilothouse(tmp_path, "output", "R", "--json", code=2).stdout.splitlines()]
    assert [row["task"] for row in rows if row["damage"]] == [2]
    assert pilothouse(tmp_path, "output", "R", "3").stdout == "output 3\n"


def test_a_cut_key_file_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "tasks.txt").write_text("true\n")
    pilothouse(tmp_path, "run", "tasks.txt", "--dir", "R", "-q")
    keys = tmp_path / "R" / "keys.json"
    keys.write_bytes(keys.read_bytes()[:20])
    assert "remove it" in pilothouse(tmp_path, "run", "--resume", "R", code=2).stderr
    keys.unlink()
    pilothouse(tmp_path, "run", "--resume", "R", "-q")

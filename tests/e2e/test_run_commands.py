"""`pilothouse run 'cmd {}' ::: ...` with real processes on this host."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

from e2e.live_runs import COMMAND, rows, run, tasks


def dry_run(folder: Path, *words: str, text: str | None = None) -> list[str]:
    command = [*COMMAND, "run", "--dry-run", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, input=text, check=False)
    assert done.returncode == 0, done.stderr
    assert "nothing was run" in done.stderr
    assert not list(folder.glob("*.run*"))
    return done.stdout.splitlines()


def test_a_command_for_each_combination_and_a_resumed_run(tmp_path: Path) -> None:
    values = (":::", "-a", "b c", ":::", "1", "2")
    code, said = run(tmp_path, "--dir", "R", "test '{1}' != 'b c' -o -e go && echo {1} {2} > 'o-{#}'", *values)
    assert code == 1 and "2 succeeded, 2 failed" in said
    (tmp_path / "go").touch()
    assert run(tmp_path, "--resume", "R", "--retry-failed")[0] == 0
    assert [(tmp_path / f"o-{i}").read_text() for i in (1, 2, 3, 4)] == ["-a 1\n", "-a 2\n", "b c 1\n", "b c 2\n"]
    assert len(rows(tmp_path / "R", "SELECT 1 FROM ends")) == 6


def test_arguments_come_by_a_pipe_while_the_run_goes_on(tmp_path: Path) -> None:
    process = subprocess.Popen([*COMMAND, "run", "--dir", "R", "echo {} > {}"], cwd=tmp_path, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"first\n")
    process.stdin.flush()
    while not (tmp_path / "first").exists():
        assert process.poll() is None
    process.stdin.write(b"second")
    process.stdin.close()
    assert process.wait(60) == 0
    assert (tmp_path / "second").exists()
    assert (tmp_path / "R" / "tasks.txt").read_text() == "echo first > first\necho second > second\n"


def test_a_bad_value_of_a_pipe_ends_the_run_in_one_line(tmp_path: Path) -> None:
    command = [*COMMAND, "run", "--dir", "R", "echo {}"]
    done = subprocess.run(command, cwd=tmp_path, input=b"a\n\0\n", capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(b"pilothouse: a value: holds a NUL byte")


def test_dry_run_shows_a_task_file_that_does_the_same(tmp_path: Path) -> None:
    text = "#DISBATCH PERENGINE START true\n#DISBATCH PREFIX nice \na\n\n#DISBATCH BARRIER\n#DISBATCH REPEAT 2 start 5 b\n"
    shown = dry_run(tmp_path, tasks(tmp_path, text))
    assert shown == [
        "#DISBATCH PERENGINE START true", "nice a", "#DISBATCH BARRIER",
        "#DISBATCH REPEAT 1 start 5 nice b", "#DISBATCH REPEAT 1 start 6 nice b",
    ]  # fmt: skip
    tasks(tmp_path, "\n".join(shown))
    assert dry_run(tmp_path, "tasks.txt") == shown
    assert dry_run(tmp_path, "echo {}", "::::", "-", text="a\nb\n") == ["echo a", "echo b"]
    assert dry_run(tmp_path, "-", text="a\nb") == ["a", "b"]


def test_mistakes_leave_no_folder(tmp_path: Path) -> None:
    for words in (("a {2}", ":::", "b"), ("a", "::::", "nowhere"), ("a", "--colsep", "(", ":::", "b"), ("a", "b")):
        code, said = run(tmp_path, *words)
        assert code == 2 and said.strip(), words
        assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_progress_on_a_terminal_tells_what_is_left(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    words = ["run", "--dir", "R", "--slots", "1", "sleep {}", ":::", "0.1", "1.2", "1.2"]
    process = subprocess.Popen([*COMMAND, *words], cwd=tmp_path, stdin=theirs, stderr=theirs, env={**os.environ, "COLUMNS": "60"})
    os.close(theirs)
    said = b""
    try:
        while chunk := os.read(ours, 1000):
            said += chunk
    except OSError:
        pass  # the other end is closed
    assert process.wait(60) == 0
    lines = said.decode().split("\r\x1b[K")
    assert any("of 3 done" in line and " left" in line for line in lines)
    assert all(len(line) < 60 for line in lines[:-1])

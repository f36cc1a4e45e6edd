"""`pilothouse run 'cmd' ::: ...` makes the commands that GNU parallel makes."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

import components
from e2e.live_runs import COMMAND

CASES = [
    "echo ::: a b ::: 1 2",
    "echo {1} {2} ::: a b ::: 1 2 ::: x",
    "echo ::: a b c :::+ 1 2",
    "echo {2}-{1} ::: a b :::+ 1 2 ::: x y",
    "echo {.} {/} {//} {/.} {#} ::: /a/b.c/d.tar.gz e .h x/ /r a.b/c",
    "echo {1.} {1/} {1//} {1/.} {-1} ::: d/e.f ::: g",
    "echo x{} :::: list",
    "echo {c}/{n} ::: c red blue ::: n 1 2",
    "echo {y}-{x}-{1} :::: columns",
    "{} ::: true",
    " ::: true",
]


@pytest.mark.parametrize("case", CASES)
def test_same_commands(tmp_path: Path, case: str) -> None:
    parallel = components.find_program("parallel", "parallel")
    (tmp_path / "list").write_text("a\n\nb.c\n")
    (tmp_path / "columns").write_text("x,y\n1,2\n3,4\n")
    options = ["--header", ":"] if "{c}" in case or "{y}" in case else []
    options += ["--colsep", ","] if "columns" in case else []
    words = [*options, *case.split()]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PARALLEL_HOME": str(tmp_path / "home")}
    theirs = subprocess.run(
        [parallel, "--will-cite", "-k", "--dry-run", *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    ).stdout  # fmt: skip
    ours = subprocess.run([*COMMAND, "run", "--dry-run", *words], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert _words(ours) == _words(theirs)


def _words(said: str) -> list[list[str]]:
    return [shlex.split(line) for line in said.splitlines()]

"""A small project to begin with: behind `pilothouse init`, which writes it, and `pilothouse demo`, which also runs it.

In: a folder. Out: a policy, a workload, a task file and a sweep in it, and a README.md with the commands that use
them. The files are those of `examples/`, which is part of the package.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from pilothouse.model.errors import InputError

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FILES = {
    "shortest_first.py": "a scheduler of your own: change it",
    "kth-sp2-5000.swf.gz": "a workload: 5,000 jobs of a real machine with 100 processors (KTH SP2)",
    "tasks.txt": "a task file: real commands, a repetition and a barrier",
    "grid.toml": "a sweep: each of five weeks of the workload under three schedulers",
}
_OWN = "shortest_first.py:ShortestFirst"


@dataclass(frozen=True)
class Step:
    """One command of the project."""

    aim: str
    words: tuple[str, ...]
    figure: str = ""
    """Also draws this, where matplotlib is installed."""
    shown_only: bool = False
    """In README.md; the demo leaves it out."""

    def command(self, *, drawn: bool) -> tuple[str, ...]:
        return (*self.words, "--plot", self.figure) if self.figure and drawn else self.words


STEPS = (
    Step(
        "three schedulers on the workload, one of them your own",
        ("compare", "-p", "100", "-w", "kth-sp2-5000.swf.gz", "--policy", f"fcfs,easy,{_OWN}", "-e", "runs/"),
        figure="comparison.png",
    ),
    Step("the same scheduler decides about real tasks on this machine", ("run", "tasks.txt", "--by", _OWN)),
    Step("one page to look at: both runs of the workload", ("report", "runs/fcfs", "runs/easy", "-o", "report.html")),
    Step("which differences are more than chance", ("sweep", "grid.toml", "-o", "weeks/"), shown_only=True),
)


def create(folder: Path) -> list[Path]:
    """Writes the project. Raises InputError, and writes nothing, if one of its files is there."""
    made = [folder / name for name in (*FILES, "README.md")]
    for path in made:
        if path.exists():
            raise InputError(str(path), "is there already", hint="name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copyfile(EXAMPLES / name, folder / name)
    (folder / "README.md").write_text(readme(), encoding="utf-8")
    return made


def readme() -> str:
    """What the files are, and what to do with them."""
    lines = ["# A project with Pilothouse", "", "| file | what it is |", "|---|---|"]
    lines += [f"| `{name}` | {text} |" for name, text in FILES.items()]
    lines += ["", "In this folder:", "", "```console"]
    for step in STEPS:
        lines += [f"$ pilothouse {' '.join(step.words)}"]
    lines += ["```", "", "`pilothouse COMMAND --help` shows the options of a command, with examples.", ""]
    return "\n".join(lines)


def demonstrate(folder: Path) -> int:
    """Writes the project and runs its commands, each shown before. The exit code of the first that fails, or 0."""
    create(folder)
    drawn = importlib.util.find_spec("matplotlib") is not None
    for step in STEPS:
        if step.shown_only:
            continue
        words = step.command(drawn=drawn)
        click.secho(f"==> {step.aim}", bold=True)
        click.echo(f"    pilothouse {' '.join(words)}")
        ended = subprocess.run([sys.executable, "-P", "-m", "pilothouse", *words], cwd=folder, check=False)
        if ended.returncode:
            return abs(ended.returncode)
    total = (folder / "results" / "total.txt").read_text().strip()
    click.echo(f"1 + 2 + ... + 40000 = {total}, added up by eight tasks")
    figures = "report.html and comparison.png" if drawn else "report.html (and pip install 'pilothouse[plot]' for figures)"
    click.secho(f"==> everything is in {folder}: look at {figures}", bold=True)
    click.secho(f"==> change {_OWN.partition(':')[0]} there, and run these commands again in that folder", bold=True)
    return 0

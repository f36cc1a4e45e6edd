"""The first five minutes: `pilothouse` alone, `init`, `demo`, and the drop-ins in a folder of one's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import components
from pilothouse.launch import project, shims
from pilothouse.model.errors import InputError

PILOTHOUSE = [sys.executable, "-m", "pilothouse"]


def run(*words: object, cwd: Path, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=os.environ | variables, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_the_command_alone_shows_what_one_can_do(tmp_path: Path) -> None:
    from pilothouse.cli.main import AIMS

    shown = run(*PILOTHOUSE, cwd=tmp_path).stdout
    assert all(aim in shown for aim in AIMS)


def test_init_writes_what_the_demo_runs(tmp_path: Path) -> None:
    """The demo itself is run from a wheel (tests/test_packaging.py)."""
    *written, what_next = run(*PILOTHOUSE, "init", "mine", cwd=tmp_path).stdout.splitlines()
    assert what_next == "next: cd mine, and run the commands of README.md"
    assert sorted(written) == sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "mine").iterdir())
    commands = (tmp_path / "mine" / "README.md").read_text()
    assert all(f"$ pilothouse {' '.join(step.words)}\n" in commands for step in project.STEPS)
    for _ in "once", "again":
        run(*PILOTHOUSE, *next(step.words for step in project.STEPS if step.words[0] == "run"), cwd=tmp_path / "mine")
    (sweep,) = [step.words for step in project.STEPS if step.shown_only]
    assert "3 cells: 3 simulated" in run(*PILOTHOUSE, *sweep, "--no-plot", "--weeks", "0", cwd=tmp_path / "mine").stdout
    (tmp_path / "mine" / "shortest_first.py").unlink()
    refused = run(*PILOTHOUSE, "init", "mine", cwd=tmp_path, code=2).stderr
    assert refused == "pilothouse: mine/kth-sp2-5000.swf.gz: is there already (name another folder)\n"
    assert not (tmp_path / "mine" / "shortest_first.py").exists(), "nothing is written then"


def test_shims_start_this_installation_from_any_place(tmp_path: Path) -> None:
    folder = tmp_path / "my shims"
    run(*PILOTHOUSE, "shims", folder, cwd=tmp_path)
    copy = shutil.copy(folder / "disBatch", tmp_path / "slurm_script")  # as sbatch does
    (tmp_path / "tasks").write_text("echo one > one\n")
    # The caller's own Python, whose variables are not ours.
    elsewhere = {"PATH": f"{folder}:/usr/bin:/bin", "PYTHONPATH": str(tmp_path), "PYTHONHOME": "/nowhere"}
    (tmp_path / "msgspec.py").write_text("raise SystemExit('not ours')\n")
    run(copy, "-s", "localhost:1", "tasks", cwd=tmp_path, **elsewhere | {"PYTHONHOME": ""})
    assert (tmp_path / "one").read_text() == "one\n"
    assert run(folder / "batsim", "--version", cwd=tmp_path, **elsewhere).stdout == "v5.0.0-rc2\n"
    for name, shown in (("qcg-pm-service", "Usage: qcg-pm-service"), ("qcg-pm", "Usage: qcg-pm")):
        assert shown in run(folder / name, "--help", cwd=tmp_path, **elsewhere).stdout
    for name, version in (("batsim4", "v4.2.1"), ("batsim2", "v2.0.0")):
        shims.write(tmp_path / name, [name])
        assert run(tmp_path / name / "batsim", "--version", cwd=tmp_path).stdout == f"{version}\n"


def test_shims_are_removed_and_nothing_else_is(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    assert shims.write(folder, ["batsim"]) == shims.write(folder, ["batsim"]), "writing again is no mistake"
    (folder / "batsim").write_text("#!/bin/sh\n# mine\n")
    with pytest.raises(InputError, match="batsim: is there, and `pilothouse shims` did not write it"):
        shims.write(folder, ["batsim", "qcg"])
    assert not (folder / "qcg-pm").exists(), "nothing is written then"
    shims.remove(folder)
    assert [path.name for path in folder.rglob("*")] == ["batsim"]
    with pytest.raises(InputError, match="holds nothing that `pilothouse shims` wrote"):
        shims.remove(folder)
    (folder / "batsim").unlink()
    with pytest.raises(InputError, match="two drop-ins are named batsim"):
        shims.write(folder, ["batsim", "batsim4"])
    shims.write(folder, ["qcg"])
    assert "removed" in run(*PILOTHOUSE, "shims", folder, "--remove", cwd=tmp_path).stdout
    assert not folder.exists()


def test_shims_and_libexec_have_the_same_names() -> None:
    tree = {path.name for path in (components.ROOT / "libexec").glob("*/*") if path.is_file()}
    assert tree == {name for names in shims.DROP_INS.values() for name in names}


def test_the_modulefile_puts_the_commands_into_path(tmp_path: Path) -> None:
    try:
        modulecmd = components.find_program("modulecmd", "environment-modules")
    except components.MissingComponent as missing:
        pytest.skip(str(missing))
    folder = tmp_path / "my shims"
    shims.write(folder, ["disbatch"])
    script = run(modulecmd, "sh", "load", "pilothouse", cwd=tmp_path, MODULEPATH=str(folder / "modulefiles")).stdout
    found = run("sh", "-c", f'{script}\necho "$PATH"', cwd=tmp_path).stdout
    assert found.startswith(f"{folder}:")


def test_files_of_the_user_are_not_taken_for_modules(tmp_path: Path) -> None:
    """Engines are started in the user's folder, which may hold a file of any name."""
    (tmp_path / "msgspec.py").write_text("raise SystemExit('not ours')\n")
    shown = run(installed_command(), "run", "echo {}", ":::", "1", cwd=tmp_path)
    assert "1 succeeded" in shown.stderr


def installed_command() -> Path:
    """The installed command: unlike `python -m`, it does not look into the current folder either."""
    return Path(sys.executable).parent / "pilothouse"

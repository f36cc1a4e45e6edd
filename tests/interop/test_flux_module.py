"""`pilothouse flux-module`: scheduler modules of Flux decide for our worlds, outside of a broker.

With the real Flux where it is installed; and always with a stand-in for its command and its package, in which a module
talks over the socket as the RFCs say.
"""

from __future__ import annotations

import csv
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLAIN = ROOT / "tests/interop/plain_flux_scheduler.py"
PROGRAM = [sys.executable, "-m", "pilothouse"]
WORKLOAD = {
    "nb_res": 8,
    "jobs": [{"id": str(i), "subtime": i, "walltime": 60, "res": 1 + i % 5, "profile": "d"} for i in range(6)],
    "profiles": {"d": {"type": "delay", "delay": 20}},
}

# As the package of Flux: a module may only call set_running inside of a broker.
STAND_IN = {
    "python/flux/__init__.py": (
        "class Flux:\n    def __init__(self, uri):\n        self.path = uri.removeprefix('local://')\n"
    ),
    "python/flux/brokermod.py": (
        "class BrokerModule:\n"
        "    def __init__(self, h, *args):\n"
        "        self.path, self.mode = h.path, args[0] if args else 'unlimited'\n"
        "        if self.mode not in ('unlimited', 'single'):\n"
        "            raise ValueError(f'unknown argument {args[0]!r}')\n"
        "    def set_running(self):\n        raise OSError('no broker')\n"
        "    def debug_test(self, flag, clear=False):\n        raise OSError('no broker')\n"
        "def resolve_entry_point(mod):\n    return mod.mod_main\n"
    ),
    "modules/sched-plain.py": (
        "import runpy, sys\nfrom flux.brokermod import BrokerModule\n"
        "class Plain(BrokerModule):\n"
        "    def run(self):\n"
        "        self.set_running()\n"
        "        assert not self.debug_test(1)\n"
        f"        sys.argv = ['plain', self.path, self.mode]\n        runpy.run_path({str(PLAIN)!r}, run_name='__main__')\n"
        "def mod_main(h, *args):\n    Plain(h, *args).run()\n"
    ),
    "modules/sched-lost.py": "def mod_main(h, *args):\n    raise OSError('reactor exited with error')\n",
    "modules/sched-compiled.so": "",
}


@pytest.fixture
def stand_in(tmp_path: Path) -> str:
    """The path of a command that runs Python as `flux python` does."""
    for name, text in STAND_IN.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    command = tmp_path / "flux"
    command.write_text(
        f'#!/bin/sh\n[ "$1" = python ] || exit 3\nshift\nexport PYTHONPATH={tmp_path}/python '
        f'FLUX_MODULE_PATH={tmp_path}/nowhere:{tmp_path}/modules\nexec {sys.executable} "$@"\n'
    )
    command.chmod(0o755)
    return str(command)


def module_of(flux: str, tmp_path: Path, *words: str) -> list[str]:
    return [*PROGRAM, "flux-module", *words, "--flux", flux, "--socket", f"{tmp_path}/s.sock"]


def simulate(tmp_path: Path, module: list[str]) -> subprocess.CompletedProcess[str]:
    (tmp_path / "w.json").write_text(json.dumps(WORKLOAD))
    command = [*PROGRAM, "simulate", "-p", "8", "-w", f"{tmp_path}/w.json", "--by", f"rfc27:{tmp_path}/s.sock",
               "--decider-command", shlex.join(module), "-e", f"{tmp_path}/out/"]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)


def starts(tmp_path: Path) -> dict[str, float]:
    with (tmp_path / "out/jobs.csv").open() as file:
        return {row["job_id"]: float(row["starting_time"]) for row in csv.DictReader(file)}


@pytest.mark.parametrize("arguments", [(), ("single",)])
def test_a_module_of_a_flux_installation_schedules_a_simulation(
    arguments: tuple[str, ...], stand_in: str, tmp_path: Path
) -> None:
    done = simulate(tmp_path, module_of(stand_in, tmp_path, "sched-plain", *arguments))
    assert done.returncode == 0, done.stderr
    found = starts(tmp_path)
    assert len(found) == 6 and sorted(found.values()) == [found[str(i)] for i in range(6)], "first come, first served"


@pytest.mark.peer("flux", "its own scheduler modules and our manager")
@pytest.mark.parametrize("module", ["sched-simple", "sched-fifo", "sched-backfill"])
def test_the_modules_of_the_real_flux_schedule_a_simulation(module: str, tmp_path: Path) -> None:
    flux = shutil.which("flux")
    if flux is None:
        pytest.skip("real component missing: flux (no Debian package; its recorded messages are in tests/golden/flux)")
    done = simulate(tmp_path, module_of(flux, tmp_path, module))
    assert done.returncode == 0, done.stderr
    found = starts(tmp_path)
    assert len(found) == 6
    if module != "sched-backfill":
        assert sorted(found.values()) == [found[str(i)] for i in range(6)]


@pytest.mark.peer_difference("flux", "Scheduler modules that are compiled need a broker; `flux-module` says so.")
@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("sched-nowhere",), 2, "sched-nowhere: no such module in Python; looked in"),
        (("sched-compiled",), 2, "sched-compiled is compiled: only a broker can load it"),
        (("./nowhere.py",), 2, "./nowhere.py: no such file"),
        (("sched-plain", "--patience", "0"), 1, "s.sock: no manager listens there after 0 s"),
    ],
)
def test_what_cannot_run_is_one_line(
    words: tuple[str, ...], code: int, told: str, stand_in: str, tmp_path: Path
) -> None:
    command = module_of(stand_in, tmp_path, *words)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
    assert told in done.stderr


def test_a_flux_that_is_not_installed_is_one_line(tmp_path: Path) -> None:
    command = module_of("no-such-flux", tmp_path, "sched-simple")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "no such program; found 'no-such-flux' (install Flux, or name its command with --flux)" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [(("sched-plain", "queue-depth=x"), "unknown argument 'queue-depth=x'"), (("sched-lost",), "reactor exited")],
)
def test_a_module_that_fails_ends_the_run_with_its_words(
    words: tuple[str, ...], told: str, stand_in: str, tmp_path: Path
) -> None:
    done = simulate(tmp_path, module_of(stand_in, tmp_path, *words))
    assert done.returncode == 1
    assert f"pilothouse flux-module: {words[0]}: {told}" in done.stderr
    assert "--decider-command: its process ended (exit code 1)" in done.stderr


def test_a_module_ends_with_the_manager(stand_in: str, tmp_path: Path) -> None:
    """Started apart, as a service would: it waits for the socket, and ends well when the run is over."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    module = subprocess.Popen(module_of(stand_in, tmp_path, "sched-plain"), env=environment)
    try:
        assert simulate(tmp_path, ["sleep", "100"]).returncode == 0
        assert module.wait(timeout=30) == 0
    finally:
        module.kill()
        module.wait()


def test_the_service_of_the_documentation_schedules(tmp_path: Path) -> None:
    """The command of the unit in docs/how-to/flux.md, with another installation and another socket."""
    page = (ROOT / "docs/how-to/flux.md").read_text()
    (line,) = [line.partition("=")[2] for line in page.splitlines() if line.startswith("ExecStart=")]
    program, *words = shlex.split(line.replace("/run/flux/local", f"{tmp_path}/s.sock"))
    assert program.endswith("/pilothouse")
    done = simulate(tmp_path, [*PROGRAM, *words])
    assert done.returncode == 0, done.stderr
    assert len(starts(tmp_path)) == 6

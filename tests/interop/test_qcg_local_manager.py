"""Programs that let qcg-pilotjob's LocalManager start their manager: ours is started, in both ways that we document."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pilothouse.launch import shims

pytestmark = pytest.mark.peer("qcg", "programs written for its LocalManager")

PROGRAM = """
import inspect, json, os, sys
from IMPORTED import LocalManager
from qcg.pilotjob.api import errors, manager as real
from qcg.pilotjob.api.job import Jobs

given = ["--nodes", 2, "--wd", os.getcwd(), *sys.argv[1:]]
try:
    manager = LocalManager(given, {"init_timeout": 60, "poll_delay": 1})
except errors.ServiceError as problem:
    print(json.dumps({"problem": str(problem)}))
    sys.exit()
job = {"name": "a", "exec": "/usr/bin/env", "stdout": "a.out"}
ids = manager.submit(Jobs().add(**job).add(name="b", exec="/bin/false"))
states = manager.wait4(ids)
system = manager.system_status()["System"]
resources = manager.resources()
manager.finish()
print(json.dumps({
    "states": states, "cores": resources["total_cores"], "wd": system["Wd"], "code": manager.qcgpm_process.exitcode,
    "signature": str(inspect.signature(LocalManager.__init__).replace(return_annotation=inspect.Signature.empty)),
    "is real": isinstance(manager, real.LocalManager),
}))
"""

Program = Callable[..., dict[str, Any]]


@pytest.fixture(params=["by its import", "by the environment"])
def program(request: pytest.FixtureRequest, client_env: Callable[[str], Path], repository: Path, tmp_path: Path) -> Program:
    ours = request.param == "by its import"
    # The Python of the client has only the client library.
    entry = repository / "src" if ours else tmp_path / "shims" / "python"
    if not ours:
        shims.write(entry.parent, ["qcg"])
    text = PROGRAM.replace("IMPORTED", "pilothouse.qcg" if ours else "qcg.pilotjob.api.manager")

    def run(*arguments: str, **variables: str) -> dict[str, Any]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SLURM_"))}
        done = subprocess.run(
            [client_env("qcg"), "-c", text, *arguments], cwd=tmp_path, check=False, capture_output=True, text=True,
            timeout=120, env=kept | {"PYTHONPATH": str(entry), **variables},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return {**json.loads(done.stdout.splitlines()[-1]), "stderr": done.stderr}

    return run


def test_a_program_gets_our_manager(program: Program, tmp_path: Path) -> None:
    found = program()
    assert found["states"] == {"a": "SUCCEED", "b": "FAILED"}
    assert (found["cores"], found["wd"], found["code"], found["is real"]) == (2, str(tmp_path), 0, True)
    assert found["signature"].startswith("(self, server_args") and ", cfg" in found["signature"]
    (folder,) = tmp_path.glob(".qcgpjm-service-*")
    assert (folder / "journal.sqlite").exists(), "a manager of ours"
    environment = (tmp_path / "a.out").read_text()
    assert "shims/python" not in environment


def test_a_manager_that_cannot_start_is_an_error_of_the_library(program: Program) -> None:
    assert program("--nodes", "none")["stderr"].count("--nodes: number of cores") == 1
    wrong = program("--resume", "nowhere")
    assert "not exists or is not valid QCG-PilotJob auxiliary directory" in wrong["problem"]
    problem = program(PILOTHOUSE_QCG_SERVICE="sh -c 'exit 3'")["problem"]
    # LocalManager itself may look whether the process lives before it reads why not.
    assert "ended with code 3" in problem or problem == "Service process killed"


def test_other_files_of_the_same_name_are_run_and_children_are_left_alone(
    client_env: Callable[[str], Path], repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.customized = True\n")
    path = os.pathsep.join([str(repository / "libexec/qcg/python"), str(tmp_path)])
    text = "import os, sys; print(sys.customized, os.environ['PYTHONPATH'])"
    done = subprocess.run(
        [client_env("qcg"), "-c", text], env=os.environ | {"PYTHONPATH": path}, check=True, capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip
    assert done.stdout == f"True {tmp_path}\n"

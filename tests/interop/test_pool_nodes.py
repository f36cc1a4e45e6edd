"""Pool on other hosts: over a real ssh, and on the nodes of a real Slurm allocation."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import components
from pilothouse import Pool
from pilothouse.model.errors import InputError


def where(_: int) -> str:
    time.sleep(0.2)  # long enough for another worker to take the next call
    return os.environ["PILOTHOUSE_NODE"]


def test_calls_and_commands_on_ssh_hosts(sshd_hosts: components.SshHosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", sshd_hosts.env["PATH"])
    with Pool(ssh=["h1:1", "h2:1"]) as pool:
        assert pool.command("echo $PILOTHOUSE_NODE", nodes=2).result(60)
        assert set(pool.map(where, range(6))) == {"h1", "h2"}
        with pytest.raises(ZeroDivisionError):
            pool.submit(divmod, 1, 0).result(60)


SCRIPT = """
import os, time
from pilothouse import Pool

def where(_):
    time.sleep(0.2)
    return os.environ["PILOTHOUSE_NODE"]

for make in (Pool.slurm, Pool.here):
    with make(policy="easy") as pool:
        print(len(set(pool.map(where, range(8)))), pool.command("true", units=2).result().return_code)
"""


def test_the_nodes_of_a_slurm_allocation(slurm_cluster: components.SlurmCluster, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    env = {**slurm_cluster.env, "PYTHONPATH": str(components.ROOT / "src")}
    done = subprocess.run(
        ["salloc", "-N", "2", "--ntasks-per-node=2", sys.executable, "script.py"], cwd=tmp_path, env=env, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "2 0\n2 0\n"), done.stderr


def test_outside_of_an_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("SLURM_", "PBS_", "LSB_", "FLUX_")) or name in ("JOB_ID", "PE_HOSTFILE"):
            monkeypatch.delenv(name)
    with pytest.raises(InputError, match="not inside a Slurm allocation"):
        Pool.slurm()
    with Pool.here(slots=1) as pool:
        assert pool.submit(where, 0).result(60) == os.uname().nodename

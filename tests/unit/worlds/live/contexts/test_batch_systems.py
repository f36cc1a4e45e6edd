"""Allocations of SGE, PBS, LSF and Flux as their environment describes them, and the table of batch systems."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pilothouse.cli import run as command
from pilothouse.model.errors import InputError
from pilothouse.worlds.live.contexts.allocations import start_command
from pilothouse.worlds.live.contexts.batch_systems import BATCH_SYSTEMS, FLUX, LSF, PBS, SGE, around, job_name
from pilothouse.worlds.live.contexts.layout import ContextOptions, plan


def file(tmp_path: Path, text: str) -> str:
    (tmp_path / "hosts").write_text(text)
    return str(tmp_path / "hosts")


def test_the_command_offers_every_batch_system() -> None:
    assert {name: system.kind for name, system in BATCH_SYSTEMS.items()} == command.BATCH_SYSTEMS


def test_sge(tmp_path: Path) -> None:
    hosts = file(tmp_path, "n1.site 4 all.q@n1 UNDEFINED\nn2.site 2 all.q@n2 0,0:0,1\n")
    env = {"JOB_ID": "12", "SGE_TASK_ID": "undefined", "PE_HOSTFILE": hosts, "CUDA_VISIBLE_DEVICES": "0,1"}
    found = SGE.inside(env)
    assert (found.job_id, found.slots, found.gpus) == ("12", {"n1.site": 4, "n2.site": 2}, ("0", "1"))
    assert start_command(found, "n2.site", ["python", "-c", "a b"]) == ["qrsh", "-inherit", "n2.site", "python -c 'a b'"]
    alone = SGE.inside({"JOB_ID": "12", "SGE_TASK_ID": "3"})
    assert (alone.job_id, alone.slots) == ("12.3", {socket.gethostname(): 1})


def test_pbs(tmp_path: Path) -> None:
    env = {"PBS_JOBID": "4711.server.site", "PBS_NODEFILE": file(tmp_path, "n1\nn1\nn2\n"), "NCPUS": "8"}
    assert (PBS.inside(env).job_id, PBS.inside(env).slots) == ("4711", {"n1": 2, "n2": 1}), "a line for each process"
    env["PBS_NODEFILE"] = file(tmp_path, "n1\nn2\n")
    assert PBS.inside(env).slots == {"n1": 8, "n2": 8}, "a line for each chunk"
    assert start_command(PBS.inside(env), "n2", ["a b"])[-2:] == ["n2", "'a b'"]


def test_lsf(tmp_path: Path) -> None:
    env = {"LSB_JOBID": "9", "LSB_JOBINDEX": "0", "LSB_MCPU_HOSTS": "n1 2 n2 4 "}
    assert (LSF.inside(env).job_id, LSF.inside(env).slots) == ("9", {"n1": 2, "n2": 4})
    env = {"LSB_JOBID": "9", "LSB_JOBINDEX": "5", "LSB_DJOB_HOSTFILE": file(tmp_path, "n1\nn1\nn2\n")}
    assert (LSF.inside(env).job_id, LSF.inside(env).slots) == ("9[5]", {"n1": 2, "n2": 1})
    assert start_command(LSF.inside(env), "n2", ["a", "b c"]) == ["blaunch", "n2", "a 'b c'"]


R = (
    '{"version": 1, "execution": {"R_lite": [{"rank": "0-1", "children": {"core": "0-3", "gpu": "0"}}, '
    '{"rank": "2", "children": {"core": "0-1", "gpu": "0-1"}}], "nodelist": [%s], "starttime": 1, "expiration": 2000000000}}'
)


@pytest.mark.parametrize(
    ("hosts", "slots"),
    [('"n[1-3]"', {"n1": 4, "n2": 4, "n3": 2}), ('"n1,n1,n1"', {"n1-0": 4, "n1-1": 4, "n1-2": 2})],
)
def test_flux(hosts: str, slots: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the text that `flux resource R` of flux-core 0.88 prints."""
    program = tmp_path / "flux"
    program.write_text(f"#!/bin/sh\n[ \"$*\" = 'resource R' ] && cat <<'END'\n{R % hosts}\nEND\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = FLUX.inside({"FLUX_URI": "local:///x", "FLUX_ENCLOSING_ID": "ƒ2f"})
    assert (found.job_id, found.slots, found.gpus, found.ends_at) == ("ƒ2f", slots, ("0",), 2e9)
    last = list(slots)[-1]
    assert start_command(found, last, ["a", "b c"]) == ["flux", "exec", "--rank=2", "--", "a", "b c"]


def test_the_innermost_batch_system_is_found() -> None:
    assert around({"JOB_ID": "1"}) is None, "a variable that anything may set"
    assert around({"FLUX_URI": "local:///x", "FLUX_JOB_ID": "ƒ2"}) is None, "one task of an instance that others use too"
    found = around({"SLURM_JOB_ID": "1", "FLUX_URI": "local:///x"})
    assert found is not None and found.name == "flux"


@pytest.mark.parametrize(
    ("name", "env", "complaint"),
    [
        ("sge", {}, "not inside a job of SGE"),
        ("sge", {"JOB_ID": "1", "PE_HOSTFILE": "/nowhere"}, "PE_HOSTFILE"),
        ("lsf", {"LSB_JOBID": "1", "LSB_MCPU_HOSTS": "n1 4 n2"}, "HOST SLOTS"),
        ("lsf", {"LSB_JOBID": "1", "LSB_MCPU_HOSTS": "n1 x"}, "HOST SLOTS"),
        ("lsf", {"LSB_JOBID": "1", "LSB_DJOB_HOSTFILE": "/dev/null"}, "names no host"),
    ],
)
def test_an_environment_that_cannot_be_is_said(name: str, env: dict[str, str], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        BATCH_SYSTEMS[name].inside(env)
    if name == "sge" and env:
        with pytest.raises(InputError, match="not a line of a PE host file"):
            SGE.inside({"JOB_ID": "1", "PE_HOSTFILE": __file__})


def test_added_engines_take_the_nodes_of_the_job(tmp_path: Path) -> None:
    env = {"LSB_JOBID": "9", "LSB_MCPU_HOSTS": "n1 2 n2 5"}
    layout = plan(
        ContextOptions(cpus_per_task=2), env, rank=0, host="here", expand=str.split, read=str, other=lambda: LSF.inside(env)
    )
    assert (layout.kind, layout.label) == ("LSF", "J9")
    assert [(node.name, node.cylinders) for node in layout.nodes] == [("n1", 1), ("n2", 2)]


def test_names_that_every_batch_system_takes() -> None:
    assert job_name("7 of/them: x.run1") == "pilothouse-7_of_them__x.run1"
    assert len(job_name("x" * 500)) == 60

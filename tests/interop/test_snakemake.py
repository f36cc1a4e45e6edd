"""The snakemake executor plugin with the real snakemake: a workflow inside a Slurm allocation, what jobs ask for, failures, an
interrupt."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import components
from e2e.live_runs import alive, rows, until

WORKFLOW = """
rule all:
    input: "total"

rule part:
    output: "parts/{n}"
    shell: "echo {wildcards.n} $PILOTHOUSE_NODE $SLURM_JOB_ID > {output}"

rule total:
    input: expand("parts/{n}", n=range(198))
    output: "total"
    run:
        with open(output[0], "w") as file:
            print(sum(int(open(name).read().split()[0]) for name in input), file=file)
"""


@pytest.fixture(scope="session")
def snakemake(client_env: Callable[[str], Path]) -> list[str]:
    return [str(client_env("snakemake")), "-m", "snakemake", "--executor", "pilothouse"]


def environment(base: dict[str, str] | None = None) -> dict[str, str]:
    """Snakemake finds the plugin on its path, as it does where the package is installed."""
    return {**(base or os.environ), "PYTHONPATH": str(components.ROOT / "src"), "XDG_CACHE_HOME": os.environ["HOME"]}


def journal(folder: Path) -> Path:
    (found,) = (folder / ".snakemake" / "pilothouse").iterdir()
    return found


def test_a_workflow_of_200_jobs_runs_inside_one_allocation(
    snakemake: list[str], slurm_cluster: components.SlurmCluster, tmp_path: Path
) -> None:
    (tmp_path / "Snakefile").write_text(WORKFLOW)
    done = subprocess.run(
        ["salloc", "-N", "2", "--ntasks-per-node=4", *snakemake, "--jobs", "200", "--default-resources", "mem_mb=100"],
        cwd=tmp_path, env=environment(slurm_cluster.env), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "200 of 200 steps (100%) done" in done.stderr
    assert (tmp_path / "total").read_text() == f"{sum(range(198))}\n"
    said = [(tmp_path / "parts" / str(n)).read_text().split() for n in range(198)]
    assert len({job for _, _, job in said}) == 1, "one allocation"
    assert len({node for _, node, _ in said}) == 2, "both of its nodes"
    assert rows(journal(tmp_path), "SELECT count(*) FROM ends WHERE state = 'succeeded'") == [(199,)]


def test_jobs_get_what_they_ask_for_and_failures_say_why(snakemake: list[str], tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(
        'rule all:\n    input: "wide", "gpu", "long"\n'
        'rule wide:\n    output: "wide"\n    threads: 2\n    resources: mem_mb=150\n'
        '    shell: "echo $OMP_NUM_THREADS > {output}"\n'
        'rule gpu:\n    output: "gpu"\n    log: "said.log"\n    resources: gpus=1, mem_mb=100\n'
        '    shell: "echo $CUDA_VISIBLE_DEVICES > {output}; echo to the log > {log}"\n'
        'rule bad:\n    output: "bad"\n    shell: "echo noise; echo the disk is full >&2; exit 3"\n'
        'rule huge:\n    output: "huge"\n    threads: 3\n    shell: "touch {output}"\n'
        'rule long:\n    output: "long"\n    resources: runtime=1\n    shell: "touch {output}"\n'
    )
    command = [*snakemake, "--jobs", "9", "--pilothouse-slots", "2", "--default-resources", "mem_mb=100"]
    env = {**environment(), "CUDA_VISIBLE_DEVICES": "5,7"}
    done = subprocess.run(
        [*command, "--keep-going", "all", "bad", "huge"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert (tmp_path / "wide").read_text() == "2\n"
    assert (tmp_path / "gpu").read_text() in ("5\n", "7\n")
    assert (tmp_path / "said.log").read_text() == "to the log\n"
    assert re.search(r"exit code 3.*: the disk is full", done.stderr)
    log = tmp_path / ".snakemake" / "pilothouse_logs" / "bad.log"
    assert log.read_text() == "noise\nthe disk is full\n" and str(log) in done.stderr
    assert re.search(r"rule huge.*?message:[^\n]*\b3\b", done.stderr, re.DOTALL), done.stderr
    assert rows(journal(tmp_path), "SELECT count(*) FROM ends WHERE state = 'succeeded'") == [(3,)]


def test_an_interrupt_ends_the_jobs(snakemake: list[str], tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text('rule one:\n    output: "one"\n    shell: "echo $$ > began; sleep 300; touch {output}"\n')
    running = subprocess.Popen(
        [*snakemake, "--jobs", "1"], cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    began = tmp_path / "began"
    until(lambda: began.exists() and began.read_text().strip(), "the job began")
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 1, said
    until(lambda: not alive(int(began.read_text())), "the job ended")

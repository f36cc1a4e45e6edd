"""`pilothouse run` in jobs of a real Grid Engine, and jobs that come with the work."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import components
import sge_cell
from e2e.live_runs import COMMAND, rows, run, tasks, until
from pilothouse.model.errors import PeerError
from pilothouse.worlds.live.contexts.batch_queue import BatchQueue
from pilothouse.worlds.live.contexts.batch_systems import SGE, BatchJob


@pytest.fixture(scope="module")
def sge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sge_cell.SgeCell]:
    try:
        cell = sge_cell.start_sge(tmp_path_factory.mktemp("sge") / "cell")
    except components.MissingComponent as missing:
        components.unavailable(str(missing))
        raise
    yield cell
    cell.stop()


def test_jobs_come_with_the_work_and_go_without_it(sge: sge_cell.SgeCell, tmp_path: Path) -> None:
    file = tasks(tmp_path, "echo $JOB_ID $NSLOTS > job$PILOTHOUSE_TASK; sleep 0.3\n" * 6)
    auto = ["--auto", "sge", "--auto-slots", "3", "--auto-options", "-pe smp 3"]
    code, said = run(tmp_path, file, "--dir", "R", *auto, env=sge.env)
    assert code == 0, said
    jobs = {(tmp_path / f"job{i}").read_text() for i in range(6)}
    (job,) = jobs
    number, slots = job.split()
    assert slots == "3"
    assert rows(tmp_path / "R", "SELECT slots, context FROM engines") == [(3, f"J{number}")]
    until(lambda: number not in sge.run("qstat").stdout.split(), "the job ended")
    assert "pilothouse: " not in said, said


def test_a_run_inside_a_job_starts_its_engines_with_qrsh(sge: sge_cell.SgeCell, tmp_path: Path) -> None:
    """The job's only host is named by another name, so that it counts as one elsewhere."""
    tasks(tmp_path, "echo $PILOTHOUSE_NODE $SGE_TASK_ID > on$PILOTHOUSE_TASK\n" * 6)
    script = tmp_path / "job.sh"
    script.write_text(
        "#!/bin/sh\nsed 's/^[^ ]*/localhost/' $PE_HOSTFILE > hosts\nexport PE_HOSTFILE=$PWD/hosts\n"
        f"exec {shlex.join(COMMAND)} run tasks.txt --dir R\n"
    )
    script.chmod(0o755)
    submit = ["qsub", "-V", "-wd", str(tmp_path), "-j", "y", "-o", f"{tmp_path}/log", "-sync", "y", "-pe", "smp", "2", "-b", "y"]
    done = sge.run(*submit, str(script))
    said = f"qsub: {done.stdout}{done.stderr}\njob: {(tmp_path / 'log').read_text()}"
    assert done.returncode == 0 and "6 succeeded" in said, said
    assert rows(tmp_path / "R", "SELECT node, slots FROM engines") == [("localhost", 2)]
    assert {(tmp_path / f"on{i}").read_text().split()[0] for i in range(6)} == {"localhost"}


def test_a_refusal_is_quoted(sge: sge_cell.SgeCell) -> None:
    queue = BatchQueue(SGE, BatchJob("/bin/true", "x", str(sge.directory), ("-pe", "nowhere", "3")))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SGE_ROOT", "SGE_CELL", "SGE_QMASTER_PORT", "SGE_EXECD_PORT"):
            patch.setenv(name, sge.env[name])
        with pytest.raises(PeerError, match="nowhere"):
            queue.submit()

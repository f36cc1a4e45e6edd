"""`pilothouse run` in jobs of PBS and LSF, and jobs that come with the work: against a stand-in of their commands
(tests/batch_stand_in.py), with a real sshd for the hosts of PBS."""

from __future__ import annotations

from pathlib import Path

import pytest

import batch_stand_in
import components
from e2e.live_runs import rows, run, tasks, until
from pilothouse.model.errors import PeerError
from pilothouse.worlds.live.contexts.batch_queue import BatchQueue
from pilothouse.worlds.live.contexts.batch_systems import LSF, PBS, BatchJob, BatchSystem, job_name

TASK = "echo $PILOTHOUSE_NODE $STAND_IN_HOST > on$PILOTHOUSE_TASK; sleep 0.3\n"


def test_jobs_of_pbs_come_with_the_work_and_go_without_it(sshd_hosts: components.SshHosts, tmp_path: Path) -> None:
    env = {**sshd_hosts.env, **batch_stand_in.commands(tmp_path / "jobs", batch_stand_in.PBS), "STAND_IN_HOSTS": "h1 h2"}
    env["PATH"] = f"{tmp_path / 'jobs' / 'bin'}:{sshd_hosts.env['PATH']}"
    file = tasks(tmp_path, TASK * 8)
    auto = ["--auto", "pbs", "--auto-jobs", "2", "--auto-slots", "4", "--auto-options", "-l select=2:ncpus=2"]
    code, said = run(tmp_path, file, "--dir", "R", *auto, env=env)
    assert code == 0, said
    assert {(tmp_path / f"on{i}").read_text().strip() for i in range(8)} == {"h1", "h2"}
    assert {context for (context,) in rows(tmp_path / "R", "SELECT DISTINCT context FROM engines")} <= {"J1", "J2"}
    until(lambda: not batch_stand_in.jobs(tmp_path / "jobs"), "the jobs ended")
    assert "Unknown Job" not in said


def test_jobs_of_lsf_come_with_the_work_and_go_without_it(tmp_path: Path) -> None:
    env = {**batch_stand_in.commands(tmp_path / "jobs", batch_stand_in.LSF), "STAND_IN_HOSTS": "127.0.0.2 127.0.0.3"}
    file = tasks(tmp_path, TASK * 8)
    code, said = run(tmp_path, file, "--dir", "R", "--auto", "lsf", "--auto-slots", "4", env=env)
    assert code == 0, said
    hosts = {(tmp_path / f"on{i}").read_text().strip() for i in range(8)}
    assert hosts == {"127.0.0.2 127.0.0.2", "127.0.0.3 127.0.0.3"}, "blaunch started the engine of each host"
    until(lambda: not batch_stand_in.jobs(tmp_path / "jobs"), "the jobs ended")


def test_a_run_inside_a_job_takes_its_nodes(sshd_hosts: components.SshHosts, tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("h1\nh2\n")
    env = {**sshd_hosts.env, "PBS_JOBID": "7.server", "PBS_NODEFILE": str(tmp_path / "nodes"), "NCPUS": "3"}
    code, said = run(tmp_path, tasks(tmp_path, "sleep 0.3\n" * 6), "--dir", "R", env=env)
    assert code == 0, said
    assert rows(tmp_path / "R", "SELECT node, slots, context FROM engines ORDER BY node") == [("h1", 3, "J7"), ("h2", 3, "J7")]


@pytest.mark.parametrize("system", [PBS, LSF], ids=["pbs", "lsf"])
def test_what_the_commands_answer(system: BatchSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = batch_stand_in.PBS if system is PBS else batch_stand_in.LSF
    for name, value in batch_stand_in.commands(tmp_path, names).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("STAND_IN_HOSTS", "h1")
    script = tmp_path / "script.sh"
    script.write_text("#!/bin/sh\nexec sleep 300\n")
    script.chmod(0o700)
    queue = BatchQueue(system, BatchJob(str(script), job_name("tasks.run1"), str(tmp_path), ()))
    assert queue.known(["1"]) == set()
    job_id = queue.submit()
    assert job_id == "1" and queue.known(["1", "7"]) == {"1"}
    queue.cancel(["1"])
    until(lambda: not queue.known(["1"]), "the job ended")
    queue.cancel(["1"])  # it has ended meanwhile
    with pytest.raises(PeerError, match=r"-z|-l"):
        BatchQueue(system, BatchJob(str(script), "x", str(tmp_path), ("-l", "z") if system is PBS else ("-z",))).submit()

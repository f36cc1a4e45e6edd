"""`pilothouse run` on several nodes: a real sshd that is four hosts, a real Slurm of four nodes."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import components
from e2e.live_runs import COMMAND, finish, rows, run, start, tasks, until


def nodes_used(folder: Path) -> set[object]:
    return {row[0] for row in rows(folder, "SELECT DISTINCT node FROM ends WHERE kind = 'N'")}


def test_ssh_hosts_share_the_work(sshd_hosts: components.SshHosts, tmp_path: Path) -> None:
    file = tasks(tmp_path, "sleep 0.3; echo $PILOTHOUSE_NODE > on$PILOTHOUSE_TASK\n" * 8)
    code, said = run(tmp_path, file, "--dir", "R", "--ssh", "h1:2,h2:2", env=sshd_hosts.env)
    assert code == 0, said
    assert nodes_used(tmp_path / "R") == {"h1", "h2"}
    assert {(tmp_path / f"on{i}").read_text().strip() for i in range(8)} == {"h1", "h2"}


def test_killed_driver_finds_its_ssh_engines_again(sshd_hosts: components.SshHosts, tmp_path: Path) -> None:
    file = tasks(tmp_path, "".join(f"echo {i} >> begun; sleep 0.5\n" for i in range(10)))
    process = start(tmp_path, file, "--dir", "R", "--ssh", "h1:2", "--ssh", "h2:1", env=sshd_hosts.env)
    begun = tmp_path / "begun"
    until(lambda: begun.exists() and len(begun.read_text().split()) >= 4, "four tasks began")
    process.kill()
    finish(process)
    code, said = run(tmp_path, "--resume", "R", env=sshd_hosts.env)
    assert code == 0, said
    assert sorted(map(int, begun.read_text().split())) == list(range(10))


def test_killed_ssh_engine_is_replaced(sshd_hosts: components.SshHosts, tmp_path: Path) -> None:
    file = tasks(tmp_path, "sleep 0.5\n" * 10)
    process = start(tmp_path, file, "--dir", "R", "--ssh", "h1:1,h3:1", env=sshd_hosts.env)
    until(lambda: len(rows(tmp_path / "R", "SELECT 1 FROM ends")) >= 2, "two tasks ended")
    pid = rows(tmp_path / "R", "SELECT pid FROM engines WHERE node = 'h3'")[0][0]
    os.kill(int(pid), signal.SIGKILL)  # type: ignore[call-overload]
    code, said = finish(process)
    assert code == 0, said
    assert rows(tmp_path / "R", "SELECT count(DISTINCT task_id) FROM ends WHERE state = 'succeeded'") == [(10,)]


def test_death_of_the_ssh_client_changes_nothing(sshd_hosts: components.SshHosts, tmp_path: Path) -> None:
    """The engine goes on, and no other takes its slots."""
    task = "date +%s.%N > began{0}; echo {0} >> begun; sleep 0.6; date +%s.%N > ended{0}\n"
    file = tasks(tmp_path, "".join(task.format(i) for i in range(8)))
    process = start(tmp_path, file, "--dir", "R", "--ssh", "h1:2", env=sshd_hosts.env)
    begun = tmp_path / "begun"
    until(lambda: begun.exists() and len(begun.read_text().split()) >= 2, "two tasks began")
    for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        if b"ssh" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(int(pid), signal.SIGKILL)
    code, said = finish(process)
    assert code == 0, said
    assert "it goes on" in said
    assert sorted(map(int, begun.read_text().split())) == list(range(8))
    spans = [tuple(float((tmp_path / f"{word}{i}").read_text()) for word in ("began", "ended")) for i in range(8)]
    assert max(sum(began <= at < ended for began, ended in spans) for at, _ in spans) <= 2, "two slots"
    assert len(rows(tmp_path / "R", "SELECT 1 FROM engines")) == 1


def test_unreachable_host_is_reported(sshd_hosts: components.SshHosts, tmp_path: Path) -> None:
    code, said = run(tmp_path, tasks(tmp_path, "true\n"), "--ssh", "nowhere.invalid:2", env=sshd_hosts.env)
    assert code == 1
    assert "nowhere.invalid" in said


def test_a_bad_host_is_named_and_the_others_do_the_work(sshd_hosts: components.SshHosts, tmp_path: Path) -> None:
    file = tasks(tmp_path, "true\n" * 6)
    code, said = run(tmp_path, file, "--dir", "R", "--ssh", "nowhere.invalid,h1", "--slots", "2", env=sshd_hosts.env)
    assert code == 0 and "6 succeeded" in said
    assert "ssh: nowhere.invalid: an engine was lost" in said
    assert rows(tmp_path / "R", "SELECT node, slots FROM engines") == [("h1", 2)]


def test_slurm_allocation(slurm_cluster: components.SlurmCluster, tmp_path: Path) -> None:
    file = tasks(tmp_path, "sleep 0.5; echo $SLURM_JOB_ID >> jobs\n" * 12)
    done = subprocess.run(
        ["salloc", "-N", "2", "--ntasks-per-node=3", *COMMAND, "run", file, "--dir", "R", "--slurm"],
        cwd=tmp_path, env=slurm_cluster.env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(nodes_used(tmp_path / "R")) == 2
    assert rows(tmp_path / "R", "SELECT slots, context FROM engines ORDER BY rank")[0][0] == 3
    assert len(set((tmp_path / "jobs").read_text().split())) == 1


def test_slurm_node_lost_in_the_middle(slurm_cluster: components.SlurmCluster, tmp_path: Path) -> None:
    file = tasks(tmp_path, "sleep 0.5\n" * 16)
    process = subprocess.Popen(
        ["salloc", "-N", "2", "--ntasks-per-node=2", *COMMAND, "run", file, "--dir", "R", "--slurm"],
        cwd=tmp_path, env=slurm_cluster.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until(lambda: len(rows(tmp_path / "R", "SELECT 1 FROM ends")) >= 2, "two tasks ended")
    pid = rows(tmp_path / "R", "SELECT pid FROM engines ORDER BY rank")[0][0]
    os.kill(int(pid), signal.SIGKILL)  # type: ignore[call-overload]
    code, said = finish(process)
    assert code == 0, said
    assert rows(tmp_path / "R", "SELECT count(DISTINCT task_id) FROM ends WHERE state = 'succeeded'") == [(16,)]

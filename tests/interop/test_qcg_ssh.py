"""The manager on nodes that it reaches over ssh."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

from components import SshHosts, qcg_address
from pilothouse.protocols.qcg.client import QcgClient


def test_jobs_on_two_hosts(sshd_hosts: SshHosts, repository: Path, tmp_path: Path) -> None:
    jobs = [
        {"name": "it", "iteration": {"stop": 6}, "execution": {"exec": "sleep", "args": ["0.2"]}},
        {
            "name": "span",
            "execution": {
                "exec": "sh",
                "args": ["-c", "echo $QCG_PM_NODELIST $QCG_PM_TASKS_PER_NODE"],
                "stdout": "span",
            },
            "resources": {"numNodes": 2, "numCores": 2},
        },
    ]
    requests = [{"request": "submit", "jobs": jobs}, {"request": "control", "command": "finishAfterAllTasksDone"}]
    (tmp_path / "r.json").write_text(json.dumps(requests))
    hosts = f"{sshd_hosts.names[0]}:2,{sshd_hosts.names[1]}:2"
    done = subprocess.run(
        [repository / "libexec/qcg/qcg-pm-service", "r.json", "--ssh", hosts],
        cwd=tmp_path,
        env=sshd_hosts.env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (folder,) = tmp_path.glob(".qcgpjm-service-*")
    report = [json.loads(line) for line in (folder / "jobs.report").read_text().splitlines()]
    assert {entry["state"] for entry in report} == {"SUCCEED"}, report
    places = {entry["runtime"]["allocation"].partition("[")[0] for entry in report if ":" in entry["name"]}
    assert places == set(sshd_hosts.names[:2])
    nodes, counts = (tmp_path / "span").read_text().split()
    assert sorted(nodes.split(",")) == sorted(sshd_hosts.names[:2]) and counts == "2,2"


def with_ssh(sshd_hosts: SshHosts, folder: Path, before: str) -> dict[str, str]:
    """The environment for a program whose `ssh` does something first."""
    folder.mkdir()
    (folder / "ssh").write_text(f'#!/bin/sh\n{before}\nexec {sshd_hosts.bin_dir}/ssh "$@"\n')
    (folder / "ssh").chmod(0o755)
    return {**sshd_hosts.env, "PATH": f"{folder}:{sshd_hosts.env['PATH']}"}


def test_a_node_that_comes_late_is_used_when_it_is_there(
    sshd_hosts: SshHosts, repository: Path, tmp_path: Path
) -> None:
    first, late = sshd_hosts.names[:2]
    wait = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    environment = with_ssh(sshd_hosts, tmp_path / "bin", f'case " $* " in *" {late} "*) {wait};; esac')
    command = [repository / "libexec/qcg/qcg-pm-service", "--net", "--ssh", f"{first}:1,{late}:2"]
    command += ["--nl-ready-threshold", "0.5"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment)
    try:
        qcg_address(tmp_path, process)
        client = QcgClient.of_folder(tmp_path, timeout_s=60)
        assert client.ask("resourcesInfo")["total_cores"] == 1, "it begins without the late one"
        (tmp_path / "go").touch()
        while client.ask("resourcesInfo")["total_cores"] == 1:
            time.sleep(0.02)
        size = {"numCores": 3}
        client.ask("submit", jobs=[{"name": "all", "execution": {"exec": "true"}, "resources": size}])
        client.ask("control", command="finishAfterAllTasksDone")
        client.close()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    (report,) = tmp_path.glob(".qcgpjm-service-*/jobs.report")
    (entry,) = [json.loads(line) for line in report.read_text().splitlines()]
    assert (entry["state"], entry["runtime"]["allocation"]) == ("SUCCEED", f"{first}[0],{late}[0:1]")


def test_a_node_that_cannot_be_reached_is_not_waited_for(
    sshd_hosts: SshHosts, repository: Path, tmp_path: Path
) -> None:
    good, bad = sshd_hosts.names[:2]
    environment = with_ssh(sshd_hosts, tmp_path / "bin", f'case " $* " in *" {bad} "*) exit 255;; esac')
    requests = [{"request": "submit", "jobs": [{"name": "a", "execution": {"exec": "true"}}]}]
    (tmp_path / "r.json").write_text(json.dumps(requests))
    command = [repository / "libexec/qcg/qcg-pm-service", "r.json", "--ssh", f"{good}:1,{bad}:1"]
    assert subprocess.run(command, cwd=tmp_path, env=environment, timeout=100, check=False).returncode == 0
    (report,) = tmp_path.glob(".qcgpjm-service-*/jobs.report")
    entry = json.loads(report.read_text())
    assert (entry["state"], entry["runtime"]["allocation"]) == ("SUCCEED", f"{good}[0]")

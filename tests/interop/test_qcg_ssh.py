"""The manager on nodes that it reaches over ssh."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from components import SshHosts


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

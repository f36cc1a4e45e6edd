"""Each real component that other tests rely on starts, does real work, and is reachable on loopback only."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

import components


def test_redis_keeps_a_value(redis_server: components.RedisServer) -> None:
    client = redis.Redis(host=redis_server.host, port=redis_server.port)
    client.set("key", "value")
    assert client.get("key") == b"value"
    client.delete("key")


@pytest.mark.parametrize(
    ("name", "statement", "printed"),
    [
        ("pybatsim2", "import batsim.batsim, importlib.metadata as m; print(m.version('pybatsim'))", "2.1.1"),
        ("pybatsim3", "import batsim.batsim, importlib.metadata as m; print(m.version('pybatsim'))", "3.2.1"),
        ("qcg", "import qcg.pilotjob.api.manager, importlib.metadata as m; print(m.version('qcg-pilotjob'))", "0.14.2"),
        ("disbatch", "import disbatch, importlib.metadata as m; print(m.version('disbatch'))", "3.0"),
    ],
)
def test_client_environments_hold_the_expected_releases(
    client_env: Callable[[str], Path], name: str, statement: str, printed: str
) -> None:
    ran = subprocess.run([client_env(name), "-c", statement], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout.strip()) == (0, printed), ran.stderr


def test_ssh_hosts_are_told_apart_by_their_address(sshd_hosts: components.SshHosts) -> None:
    for number, host in enumerate(sshd_hosts.names, 1):
        ran = sshd_hosts.run(host, "echo $SSH_CONNECTION")
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.split()[2:] == [f"127.0.0.{number + 1}", str(sshd_hosts.port)]


def test_ssh_passes_exit_codes(sshd_hosts: components.SshHosts) -> None:
    assert sshd_hosts.run("h2", "exit 7").returncode == 7


def test_slurm_runs_on_four_nodes(slurm_cluster: components.SlurmCluster) -> None:
    ran = slurm_cluster.run("srun", "-N4", "-l", "sh", "-c", "echo $SLURMD_NODENAME")
    assert ran.returncode == 0, ran.stderr
    assert sorted(line.split()[1] for line in ran.stdout.splitlines()) == list(slurm_cluster.nodes)


def test_slurm_runs_batch_jobs_and_says_how_they_ended(slurm_cluster: components.SlurmCluster, tmp_path: Path) -> None:
    out = tmp_path / "out"
    submitted = slurm_cluster.run("sbatch", "--parsable", "--wait", "-n3", "-o", str(out), "--wrap", "exit 3")
    assert submitted.returncode == 3, submitted.stderr
    shown = slurm_cluster.run("scontrol", "-o", "show", "job", submitted.stdout.strip())
    assert "ExitCode=3:0" in shown.stdout


def test_everything_listens_on_loopback_only(
    redis_server: components.RedisServer, sshd_hosts: components.SshHosts, slurm_cluster: components.SlurmCluster
) -> None:
    slurm_ports = [
        int(word.partition("=")[2])
        for line in slurm_cluster.conf.read_text().splitlines()
        for word in line.split()
        if word.startswith(("Port=", "SlurmctldPort="))
    ]
    assert len(slurm_ports) == 1 + len(slurm_cluster.nodes)
    listening = _listening_addresses()
    for port in [redis_server.port, sshd_hosts.port, *slurm_ports]:
        assert listening.get(port), f"nobody listens on {port}"
        assert all(address.startswith("127.") for address in listening[port]), (port, listening[port])


def _listening_addresses() -> dict[int, set[str]]:
    """Port to local addresses of every listening TCP socket, from the kernel's tables."""
    found: dict[int, set[str]] = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, state = line.split()[1], line.split()[3]
        if state == "0A":
            address, port = local.split(":")
            text = socket.inet_ntoa(bytes.fromhex(address)[::-1])
            found.setdefault(int(port, 16), set()).add(text)
    for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]:
        local, state = line.split()[1], line.split()[3]
        if state == "0A":
            found.setdefault(int(local.split(":")[1], 16), set()).add("ipv6 " + local.split(":")[0])
    return found

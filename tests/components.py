"""The real programs that tests talk to: Redis, sshd, Slurm, and other projects' clients in environments of their own.

In: a directory to keep files in, and what is installed on this machine. Out: small handles (`RedisServer`, `SshHosts`,
`SlurmCluster`) that say how to reach what was started and end it again. Everything listens on loopback only. Readiness
is always a condition that is polled with a deadline, never a guess.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from pilothouse.worlds.slurm import lab
from pilothouse.worlds.slurm.daemons import (
    POLL_S,
    STOP_DEADLINE_S,
    SYSTEM_PATH,
    MissingComponent,
    find_program,
    free_port,
    spawn,
    stop,
    wait_started,
    wait_until,
)

__all__ = ["MissingComponent", "free_port", "lab", "wait_until"]

ROOT = Path(__file__).resolve().parent.parent
CLIENT_ENVIRONMENTS = ("pybatsim2", "pybatsim3", "qcg", "disbatch", "snakemake", "recipes")
def qcg_address(folder: Path, manager: subprocess.Popen[bytes]) -> str:
    """Where the QCG manager that works in a directory listens, as soon as it does."""
    while not (found := list(folder.glob(".qcgpjm-service-*/address"))):
        assert manager.poll() is None, f"it ended with code {manager.returncode}"
        time.sleep(POLL_S)
    return found[0].read_text()


def readable(fd: int, timeout_s: float) -> bool:
    """Whether there is something to read within that time; unlike select, for descriptors of any number."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


def unavailable(reason: str) -> None:
    """What a missing real component means: failure in CI, a skip that is told elsewhere."""
    if in_ci():
        pytest.fail(f"real component missing in CI: {reason}", pytrace=False)
    pytest.skip(f"real component missing: {reason}")


def can_connect(port: int, host: str = "127.0.0.1") -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


def end_leftovers(mark: str, grace_s: float = 5.0) -> list[str]:
    """Processes that have `NAME=value` in their environment and outlive the grace: ended, and named."""
    end = time.monotonic() + grace_s
    while (left := _marked(mark)) and time.monotonic() < end:
        time.sleep(POLL_S)
    for pid in left:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return [f"{pid} {command}" for pid, command in left.items()]


def _marked(mark: str) -> dict[int, str]:
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ").strip()[:200]
    return found


# --- Redis -----------------------------------------------------------------------------------------------------------


@dataclass
class RedisServer:
    """A real redis-server on its own port, without persistence."""

    port: int
    process: subprocess.Popen[bytes]
    host: str = "127.0.0.1"

    @property
    def url(self) -> str:
        return f"redis://{self.host}:{self.port}"

    def stop(self) -> None:
        stop(self.process)


def start_redis(directory: Path) -> RedisServer:
    program = find_program("redis-server", "redis-server")
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    log = directory / "redis.log"
    settings = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(directory)]
    process = spawn([program, "--port", str(port), *settings], log)
    wait_started(process, lambda: can_connect(port), "redis-server", log)
    return RedisServer(port, process)


# --- ssh hosts -------------------------------------------------------------------------------------------------------


@dataclass
class SshHosts:
    """One sshd that answers as hosts h1..h4 (127.0.0.2 ...). `env` makes plain `ssh` and `scp` find them by name."""

    directory: Path
    port: int
    names: tuple[str, ...]
    config: Path
    bin_dir: Path
    process: subprocess.Popen[bytes]

    @property
    def env(self) -> dict[str, str]:
        """The environment for a program that calls plain `ssh h1 ...`."""
        return {**os.environ, "PATH": f"{self.bin_dir}:{os.environ.get('PATH', SYSTEM_PATH)}"}

    def run(self, host: str, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["ssh", host, command], env=self.env, capture_output=True, text=True, timeout=60, check=False
        )

    def stop(self) -> None:
        stop(self.process)


def _make_key(path: Path) -> None:
    keygen = find_program("ssh-keygen", "openssh-client")
    subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def _without(directory: Path, hidden: Path) -> Path:
    """A program that runs what an ssh client asks for where the folder is another one."""
    script = directory / "elsewhere"
    inside = f'mount -t tmpfs none {hidden} && exec sh -c "$SSH_ORIGINAL_COMMAND"'
    script.write_text(f"#!/bin/sh\nexec unshare -m sh -c {shlex.quote(inside)}\n")
    script.chmod(0o755)
    trial = ["unshare", "-m", "mount", "-t", "tmpfs", "none", str(hidden)]
    if subprocess.run(trial, check=False, capture_output=True).returncode:
        raise MissingComponent("another file system for ssh hosts: unshare -m and mount are not allowed here")
    return script


def start_sshd(directory: Path, hosts: int = 4, hidden: Path | None = None) -> SshHosts:
    """`hidden`: a folder that these hosts do not see; they have an empty one of the same name. That needs root."""
    sshd = find_program("sshd", "openssh-server")
    ssh = find_program("ssh", "openssh-client")
    scp = find_program("scp", "openssh-client")
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd's empty directory for privilege separation
    port = free_port()
    host_key, user_key, authorized = directory / "host_key", directory / "user_key", directory / "authorized_keys"
    _make_key(host_key)
    _make_key(user_key)
    authorized.write_text(user_key.with_suffix(".pub").read_text())
    names = tuple(f"h{number}" for number in range(1, hosts + 1))
    addresses = [f"127.0.0.{number + 1}" for number in range(1, hosts + 1)]
    server_config = directory / "sshd_config"
    server_config.write_text(
        "\n".join(
            [
                f"Port {port}",
                *(f"ListenAddress {address}" for address in addresses),
                f"HostKey {host_key}",
                f"AuthorizedKeysFile {authorized}",
                f"PidFile {directory / 'sshd.pid'}",
                "UsePAM no",
                "StrictModes no",
                "MaxStartups 200:30:400",
                "MaxSessions 100",
                "PasswordAuthentication no",
                "KbdInteractiveAuthentication no",
                "PermitRootLogin prohibit-password",
                "AcceptEnv *",
                # A bash that sshd starts reads the user's ~/.bashrc if it is not within another shell. What is in there is not
                # ours: pyenv waits a minute for its lock, for ever after if a test has killed whoever held it.
                "SetEnv SHLVL=1",
                "Subsystem sftp internal-sftp",
                *([f"ForceCommand {_without(directory, hidden)}"] if hidden is not None else []),
                "",
            ]
        )
    )
    config = directory / "ssh_config"
    config.write_text(
        "".join(f"Host {name}\n  HostName {address}\n" for name, address in zip(names, addresses, strict=True))
        + f"Host *\n  Port {port}\n  User {getpass.getuser()}\n  IdentityFile {user_key}\n  IdentitiesOnly yes\n"
        + f"  StrictHostKeyChecking no\n  UserKnownHostsFile {directory / 'known_hosts'}\n  LogLevel ERROR\n"
        + "  BatchMode yes\n"
    )
    bin_dir = directory / "bin"
    bin_dir.mkdir()
    for name, program in (("ssh", ssh), ("scp", scp)):
        wrapper = bin_dir / name
        wrapper.write_text(f'#!/bin/sh\nexec {program} -F {config} "$@"\n')
        wrapper.chmod(0o755)
    log = directory / "sshd.log"
    process = spawn([sshd, "-D", "-e", "-f", str(server_config)], log)
    started = SshHosts(directory, port, names, config, bin_dir, process)
    wait_started(process, lambda: all(can_connect(port, address) for address in addresses), "sshd", log)
    return started


# --- Slurm -----------------------------------------------------------------------------------------------------------

SLURM_NODES = 4
SLURM_CPUS = 8


@dataclass
class SlurmCluster:
    """A real Slurm of four emulated nodes n1..n4, eight CPUs each. `env` makes srun, sbatch and salloc use it."""

    directory: Path
    conf: Path
    nodes: tuple[str, ...]
    cpus_per_node: int
    keeper_pid: int

    @property
    def env(self) -> dict[str, str]:
        """The environment for a program that calls plain `srun`, `sbatch`, `squeue`, ..."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        return {**clean, "SLURM_CONF": str(self.conf)}

    @property
    def partition(self) -> str:
        return "main"

    @property
    def accounting(self) -> Path:
        """The text file to which Slurm writes one line per ended job."""
        return self.directory / "jobcomp.txt"

    def run(self, *command: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self.env, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=self.directory
        )


def slurm_cluster(directory: Path, owner_pid: int, nodes: int = SLURM_NODES, cpus: int = SLURM_CPUS) -> SlurmCluster:
    """The cluster in this directory, started if it is not there yet; `pilothouse slurm-lab` keeps it until the owner ends.

    Call it under a lock when several processes share the directory.
    """
    lab.programs()
    directory.mkdir(parents=True, exist_ok=True)
    ready = directory / "ready.json"
    if not ready.exists():
        log = directory / "keeper.log"
        command = [sys.executable, "-m", "pilothouse", "slurm-lab", f"{nodes}x{cpus}", "--dir", str(directory)]
        with log.open("ab") as out:
            keeper = subprocess.Popen(
                [*command, "--until-ended", str(owner_pid)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        wait_started(keeper, ready.exists, "Slurm", log)
    pid = json.loads(ready.read_text())["pid"]
    names = tuple(f"n{number}" for number in range(1, nodes + 1))
    return SlurmCluster(directory, directory / "slurm.conf", names, cpus, pid)


def stop_slurm(directory: Path) -> None:
    """End the cluster kept in this directory, if there is one, and wait until it is gone."""
    ready = directory / "ready.json"
    if ready.exists():
        pid = json.loads(ready.read_text())["pid"]
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(pid)
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
            readable(pidfd, 3 * STOP_DEADLINE_S)
            os.close(pidfd)


# --- other projects' clients -----------------------------------------------------------------------------------------


def client_python(name: str) -> Path:
    """The Python of the environment in which another project's client is installed."""
    if name not in CLIENT_ENVIRONMENTS:
        raise ValueError(f"no such client environment: {name!r}; there are {', '.join(CLIENT_ENVIRONMENTS)}")
    python = ROOT / ".venvs" / name / "bin" / "python"
    if not python.exists():
        raise MissingComponent(f"client environment .venvs/{name} is not there ('./do test' makes it)")
    return python

"""The real programs that tests talk to: Redis, sshd, Slurm, and other projects' clients in environments of their own.

In: a directory to keep files in, and what is installed on this machine. Out: small handles (`RedisServer`, `SshHosts`,
`SlurmCluster`) that say how to reach what was started and end it again. Everything listens on loopback only. Readiness
is always a condition that is polled with a deadline, never a guess.

Also a command: `python tests/components.py slurm DIRECTORY OWNER_PID` holds a Slurm cluster until its owner is gone.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
CLIENT_ENVIRONMENTS = ("pybatsim2", "pybatsim3", "qcg", "disbatch")
START_DEADLINE_S = 60.0
STOP_DEADLINE_S = 20.0
POLL_S = 0.02
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Below the kernel's own range (32768-60999), so that no outgoing connection takes a port between choice and use.
PORTS = range(20000, 32000)


class MissingComponent(Exception):
    """A real program is not installed here; the message says which, and what would install it."""


def find_program(name: str, package: str) -> str:
    """The path of an installed program (daemons live in sbin, which a user's PATH may not have)."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}")
    if path is None:
        raise MissingComponent(f"{name} is not installed (Debian package {package}; './do test' as root installs it)")
    return path


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = START_DEADLINE_S) -> None:
    """Poll until the condition holds; say what did not happen when it does not in time."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {deadline_s:g} s")
        time.sleep(POLL_S)


def qcg_address(folder: Path, manager: subprocess.Popen[bytes]) -> str:
    """Where the QCG manager that works in a directory listens, as soon as it does."""
    while not (found := list(folder.glob(".qcgpjm-service-*/address"))):
        assert manager.poll() is None, f"it ended with code {manager.returncode}"
        time.sleep(POLL_S)
    return found[0].read_text()


def free_port(salt: int = 0) -> int:
    """A TCP port that nobody listens on; each process searches from a place of its own."""
    start = (os.getpid() * 37 + salt * 11 + next(_port_steps)) % len(PORTS)
    for step in range(len(PORTS)):
        port = PORTS[(start + step) % len(PORTS)]
        with socket.socket() as probe:
            # QUIRK: without SO_REUSEADDR a port whose last connection is still in TIME_WAIT counts as taken; good.
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free TCP port")


def _count() -> Iterator[int]:
    step = 0
    while True:
        yield step
        step += 1


_port_steps = _count()


def can_connect(port: int, host: str = "127.0.0.1") -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


def spawn(arguments: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a daemon in the foreground, its output in a log file; it ends when this process ends, however it does."""
    setpriv = shutil.which("setpriv", path=SYSTEM_PATH)
    prefix = [setpriv, "--pdeathsig", "TERM"] if setpriv else []
    out: IO[bytes]
    with log.open("ab") as out:
        return subprocess.Popen(
            [*prefix, *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, start_new_session=True
        )


def stop(process: subprocess.Popen[bytes], deadline_s: float = STOP_DEADLINE_S) -> None:
    """End a daemon: politely, then by force."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_started(process: subprocess.Popen[bytes], ready: Callable[[], bool], what: str, log: Path) -> None:
    """Poll until ready; a daemon that died instead is reported with the end of its log."""

    def ready_or_dead() -> bool:
        return process.poll() is not None or ready()

    wait_until(ready_or_dead, f"{what} to start (log: {log})")
    if process.poll() is not None:
        tail = log.read_text(errors="replace")[-2000:] if log.exists() else ""
        raise RuntimeError(f"{what} ended with code {process.returncode} instead of starting:\n{tail}")


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


def start_sshd(directory: Path, hosts: int = 4) -> SshHosts:
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
SLURM_MEMORY_MB = 4000


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


def _slurm_programs() -> dict[str, str]:
    packages = {"munged": "munge", "mungekey": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd"}
    clients = {"srun": "slurm-client", "sinfo": "slurm-client", "scontrol": "slurm-client"}
    return {name: find_program(name, package) for name, package in {**packages, **clients}.items()}


def slurm_cluster(directory: Path, owner_pid: int) -> SlurmCluster:
    """The cluster in this directory, started if it is not there yet; kept by a process of its own until the owner ends.

    Call it under a lock when several processes share the directory.
    """
    _slurm_programs()
    directory.mkdir(parents=True, exist_ok=True)
    ready = directory / "ready.json"
    if not ready.exists():
        log = directory / "keeper.log"
        with log.open("ab") as out:
            keeper = subprocess.Popen(
                [sys.executable, str(Path(__file__).resolve()), "slurm", str(directory), str(owner_pid)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        wait_started(keeper, ready.exists, "Slurm", log)
    pid = json.loads(ready.read_text())["pid"]
    nodes = tuple(f"n{number}" for number in range(1, SLURM_NODES + 1))
    return SlurmCluster(directory, directory / "slurm.conf", nodes, SLURM_CPUS, pid)


def stop_slurm(directory: Path) -> None:
    """End the cluster kept in this directory, if there is one, and wait until it is gone."""
    ready = directory / "ready.json"
    if ready.exists():
        pid = json.loads(ready.read_text())["pid"]
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(pid)
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
            select.select([pidfd], [], [], 3 * STOP_DEADLINE_S)
            os.close(pidfd)


def _write_slurm_conf(directory: Path) -> Path:
    host = socket.gethostname().split(".")[0]
    user = getpass.getuser()
    first = free_port()
    node_ports = [free_port(salt=number) for number in range(1, SLURM_NODES + 1)]
    conf = directory / "slurm.conf"
    lines = [
        "ClusterName=pilothouse",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={first}",
        f"SlurmUser={user}",
        f"SlurmdUser={user}",
        "AuthType=auth/munge",
        "CredType=cred/munge",
        f"AuthInfo=socket={directory / 'munge.socket'}",
        "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny",
        f"StateSaveLocation={directory / 'state'}",
        f"SlurmdSpoolDir={directory}/spool-%n",
        f"SlurmctldPidFile={directory / 'slurmctld.pid'}",
        f"SlurmdPidFile={directory}/slurmd-%n.pid",
        f"SlurmctldLogFile={directory / 'slurmctld.log'}",
        f"SlurmdLogFile={directory}/slurmd-%n.log",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SwitchType=switch/none",
        "MpiDefault=none",
        "JobAcctGatherType=jobacct_gather/none",
        "AccountingStorageType=accounting_storage/none",
        "JobCompType=jobcomp/filetxt",
        f"JobCompLoc={directory / 'jobcomp.txt'}",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=sched_min_interval=0,bf_interval=1,batch_sched_delay=0",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU",
        "SlurmdParameters=config_overrides",
        "ReturnToService=2",
        "InactiveLimit=0",
        "KillWait=2",
        "MinJobAge=300",
        "WaitTime=0",
        *(
            f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={SLURM_CPUS}"
            f" RealMemory={SLURM_MEMORY_MB} State=UNKNOWN"
            for number, port in enumerate(node_ports, 1)
        ),
        f"PartitionName=main Nodes=n[1-{SLURM_NODES}] Default=YES MaxTime=INFINITE DefaultTime=10 State=UP",
        "",
    ]
    conf.write_text("\n".join(lines))
    (directory / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
    return conf


def keep_slurm(directory: Path, owner_pid: int) -> None:
    """Start Slurm's daemons as children of this process, say so in ready.json, hold them until the owner is gone."""
    programs = _slurm_programs()
    owner = os.pidfd_open(owner_pid)
    told, teller = os.pipe()
    os.set_blocking(teller, False)
    signal.set_wakeup_fd(teller)
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    directory.chmod(0o755)
    (directory / "state").mkdir(exist_ok=True)
    conf = _write_slurm_conf(directory)
    env = {**os.environ, "SLURM_CONF": str(conf), "PATH": f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"}
    key, munge_socket = directory / "munge.key", directory / "munge.socket"
    if not key.exists():
        subprocess.run([programs["mungekey"], "--create", f"--keyfile={key}"], check=True)
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        munged = [programs["munged"], "--foreground", "--force", f"--key-file={key}", f"--socket={munge_socket}"]
        munged += [f"--pid-file={directory / 'munged.pid'}", f"--seed-file={directory / 'munge.seed'}"]
        munged += [f"--log-file={directory / 'munged.log'}"]
        daemons.append(spawn(munged, directory / "munged.out"))
        wait_started(daemons[-1], munge_socket.exists, "munged", directory / "munged.out")
        daemons.append(spawn([programs["slurmctld"], "-D", "-c", "-f", str(conf)], directory / "slurmctld.out", env))
        for number in range(1, SLURM_NODES + 1):
            log = directory / f"slurmd-n{number}.out"
            daemons.append(spawn([programs["slurmd"], "-D", "-f", str(conf), "-N", f"n{number}"], log, env))

        def all_idle() -> bool:
            for daemon in daemons:
                if daemon.poll() is not None:
                    raise RuntimeError(f"{daemon.args!r} ended with code {daemon.returncode}; logs in {directory}")
            sinfo = [programs["sinfo"], "-h", "-t", "idle", "-o", "%D"]
            idle = subprocess.run(sinfo, env=env, capture_output=True, text=True, check=False)
            return idle.stdout.strip() == str(SLURM_NODES)

        wait_until(all_idle, f"{SLURM_NODES} idle Slurm nodes (logs in {directory})")
        partial = directory / "ready.partial"
        partial.write_text(json.dumps({"pid": os.getpid()}))
        partial.rename(directory / "ready.json")
        select.select([owner, told], [], [])
    finally:
        (directory / "ready.json").unlink(missing_ok=True)
        for command in (["scancel", "--full", f"--user={getpass.getuser()}"], ["scontrol", "shutdown"]):
            program = shutil.which(command[0], path=env["PATH"])
            if program and len(daemons) > 1:
                subprocess.run([program, *command[1:]], env=env, capture_output=True, check=False, timeout=30)
        for daemon in reversed(daemons):
            stop(daemon)


# --- other projects' clients -----------------------------------------------------------------------------------------


def client_python(name: str) -> Path:
    """The Python of the environment in which another project's client is installed."""
    if name not in CLIENT_ENVIRONMENTS:
        raise ValueError(f"no such client environment: {name!r}; there are {', '.join(CLIENT_ENVIRONMENTS)}")
    python = ROOT / ".venvs" / name / "bin" / "python"
    if not python.exists():
        raise MissingComponent(f"client environment .venvs/{name} is not there ('./do test' makes it)")
    return python


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] != "slurm":
        sys.exit("usage: components.py slurm DIRECTORY OWNER_PID")
    keep_slurm(Path(sys.argv[2]), int(sys.argv[3]))

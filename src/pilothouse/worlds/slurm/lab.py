"""A real Slurm on this machine: munged, slurmctld and one slurmd for each emulated node, all on loopback.

`start` runs the daemons as children of this process; `Lab.stop` ends them. All nodes share this kernel, so nothing is
enforced: a job sleeps as well on 4 emulated CPUs as on one real one. Only the user who started it can submit jobs: the
folder with munged's socket is private.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

from pilothouse.access.files import own_folder
from pilothouse.access.user import has_name, user_name
from pilothouse.model.errors import InputError
from pilothouse.worlds.slurm import daemons, lab_files
from pilothouse.worlds.slurm.lab_files import LabShape

PROGRAMS = {
    **{"munged": "munge", "mungekey": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd"},
    **dict.fromkeys(("sinfo", "squeue", "scontrol", "scancel", "sbatch"), "slurm-client"),
}
"""Program -> Debian package."""
LUA_PLUGIN = "job_submit_lua.so"
PLUGIN_FOLDERS = ("/usr/lib/x86_64-linux-gnu/slurm-wlm", "/usr/lib/slurm", "/usr/lib64/slurm", "/usr/lib/slurm-wlm")


def programs() -> dict[str, str]:
    """Name -> path. Raises MissingComponent."""
    return {name: daemons.find_program(name, package) for name, package in PROGRAMS.items()}


def environment(conf: Path) -> dict[str, str]:
    """The environment for programs that call plain `srun`, `sbatch`, `squeue`, ..."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
    return {**clean, "SLURM_CONF": str(conf), "PATH": f"{clean.get('PATH', '')}:{daemons.SYSTEM_PATH}"}


class Lab:
    """A Slurm that runs."""

    def __init__(self, folder: Path, shape: LabShape) -> None:
        self.folder = folder
        self.shape = shape
        self.conf = folder / "slurm.conf"
        self.env = environment(self.conf)
        self._programs = programs()
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._controller: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when all nodes are idle."""
        folder, shape = self.folder, self.shape
        if not has_name():
            problem = f"uid {os.geteuid()} has no entry in /etc/passwd, and Slurm needs one"
            raise InputError("slurm-lab", problem, hint="run it as a user that has one")
        own_folder(folder, ours=True)
        (folder / "state").mkdir(exist_ok=True)
        for name, text in lab_files.files(folder, self._slurm_conf(), shape).items():
            (folder / name).write_text(text)
        try:
            self._start_munge()
            self.start_controller(clean=True)
            for name in shape.names:
                command = [self._programs["slurmd"], "-D", "-f", str(self.conf), "-N", name]
                self._daemons.append(daemons.spawn(command, folder / f"slurmd-{name}.out", self.env))
            daemons.wait_until(self._all_idle, f"{len(shape.kinds)} idle Slurm nodes (logs in {folder})")
        except BaseException:
            self.stop()
            raise

    def _slurm_conf(self) -> str:
        return lab_files.slurm_conf(
            self.folder,
            self.shape,
            host=socket.gethostname().split(".")[0],
            user=user_name(),
            controller_port=daemons.free_port(),
            node_ports=[daemons.free_port(salt=number) for number in range(1, len(self.shape.kinds) + 1)],
            lua=any((Path(folder) / LUA_PLUGIN).exists() for folder in PLUGIN_FOLDERS),
        )

    def _start_munge(self) -> None:
        folder = self.folder
        key, munge_socket, log = folder / "munge.key", folder / "munge.socket", folder / "munged.out"
        if not key.exists():
            subprocess.run([self._programs["mungekey"], "--create", f"--keyfile={key}"], check=True)
        command = [self._programs["munged"], "--foreground", "--force", f"--key-file={key}", f"--socket={munge_socket}"]
        command += [f"--pid-file={folder / 'munged.pid'}", f"--seed-file={folder / 'munge.seed'}"]
        command += [f"--log-file={folder / 'munged.log'}"]
        self._daemons.append(daemons.spawn(command, log))
        daemons.wait_started(self._daemons[-1], munge_socket.exists, "munged", log)

    def start_controller(self, *, clean: bool = False) -> None:
        """Starts slurmctld: with the state that it left, or (`clean`) without jobs."""
        command = [self._programs["slurmctld"], "-D", *(["-c"] if clean else []), "-f", str(self.conf)]
        self._controller = daemons.spawn(command, self.folder / "slurmctld.out", self.env)

    def restart_controller(self) -> None:
        """Ends slurmctld in order, and starts it again. (One that is killed forgets the last seconds.)"""
        if self._controller is not None:
            daemons.stop(self._controller)
        self.start_controller()

    def _all_idle(self) -> bool:
        for daemon in (*self._daemons, *((self._controller,) if self._controller else ())):
            if daemon.poll() is not None:
                raise RuntimeError(f"{daemon.args!r} ended with code {daemon.returncode}; logs in {self.folder}")
        sinfo = [self._programs["sinfo"], "-h", "-p", "main", "-t", "idle", "-o", "%D"]
        idle = subprocess.run(sinfo, env=self.env, capture_output=True, text=True, check=False)
        return idle.stdout.strip() == str(len(self.shape.kinds))

    def stop(self) -> None:
        """Cancels all jobs and ends the daemons."""
        if self._controller is not None:
            for command in (["scancel", "--full", f"--user={user_name()}"], ["scontrol", "shutdown"]):
                program = shutil.which(command[0], path=self.env["PATH"])
                if program and self._controller.poll() is None:
                    subprocess.run([program, *command[1:]], env=self.env, capture_output=True, check=False, timeout=30)
            daemons.stop(self._controller)
            self._controller = None
        while self._daemons:
            daemons.stop(self._daemons.pop())

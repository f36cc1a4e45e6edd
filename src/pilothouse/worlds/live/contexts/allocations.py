"""Allocations of SGE, PBS, LSF and Flux: the nodes that a batch job was given, and how a program is started on one of them.

In: the environment of the job, and the files and commands that it names. Out: an `Allocation`, or InputError if the environment
contradicts itself. batch_systems.py lists them; Slurm has a context of its own (slurm.py).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from pathlib import Path

from pilothouse.formats import resource_set
from pilothouse.model.errors import InputError, PeerError, quoted
from pilothouse.model.numerals import whole_number
from pilothouse.worlds.live.contexts import Launch
from pilothouse.worlds.live.contexts.layout import Allocation, same_host
from pilothouse.worlds.live.contexts.programs import ProgramContext, engine_command
from pilothouse.worlds.live.contexts.ssh import SSH
from pilothouse.worlds.slurm_commands import run

Environment = Mapping[str, str]


class AllocationContext(ProgramContext):
    """One engine on each node of an allocation. On this host it is started directly."""

    def __init__(self, allocation: Allocation, *, memory_mb: int = 0) -> None:
        super().__init__(
            f"J{allocation.job_id}", allocation.slots, gpus=allocation.gpus, memory_mb=memory_mb, ends_at=allocation.ends_at
        )
        self._allocation = allocation
        self._host = os.uname().nodename
        self.remote = any(not same_host(node, self._host) for node in allocation.slots)

    def command(self, part: str, launch: Launch) -> list[str]:
        words = engine_command(launch.python)
        return words if same_host(part, self._host) else start_command(self._allocation, part, words)


def start_command(allocation: Allocation, node: str, words: Sequence[str]) -> list[str]:
    """Starts a program on a node, and passes its own standard input on."""
    return _STARTS[allocation.kind](allocation.addresses.get(node, node), words)


# ---- SGE (Sun, Son of, Univa, Altair Grid Engine)


def sge(env: Environment) -> Allocation:
    """From the PE's host file, `HOST SLOTS QUEUE PROCESSORS` on each line; a job without a PE has one slot here."""
    task = env.get("SGE_TASK_ID", "undefined")
    job_id = env["JOB_ID"] if task == "undefined" else f"{env['JOB_ID']}.{task}"
    name = env.get("PE_HOSTFILE", "")
    if not name:
        return _allocation("SGE", job_id, [os.uname().nodename], env)
    hosts: list[str] = []
    for number, line in enumerate(_lines(name, "PE_HOSTFILE"), 1):
        words = line.split()
        count = whole_number(words[1]) if len(words) > 1 else None
        if not count:
            raise InputError(f"{name}:{number}", "not a line of a PE host file", expected="HOST SLOTS ...", found=quoted(line))
        hosts += [words[0]] * count
    return _allocation("SGE", job_id, hosts, env)


def _by_qrsh(node: str, words: Sequence[str]) -> list[str]:
    """Needs a PE with `control_slaves TRUE`. A shell on the node takes the words apart."""
    return ["qrsh", "-inherit", node, shlex.join(words)]


# ---- PBS (OpenPBS, PBS Professional, Torque)


def pbs(env: Environment) -> Allocation:
    """From the node file: a host for each slot. If each has one line only, it may have NCPUS cores: PBS Professional writes
    one line for each chunk."""
    name = env["PBS_NODEFILE"]
    hosts = _lines(name, "PBS_NODEFILE")
    cores = whole_number(env.get("NCPUS", "")) or 1
    if len(set(hosts)) == len(hosts):
        hosts = [host for host in hosts for _ in range(cores)]
    return _allocation("PBS", pbs_id(env["PBS_JOBID"]), hosts, env)


def pbs_id(text: str) -> str:
    """`4711` of `4711.server.domain`: different commands show different parts of the server's name."""
    return text.strip().partition(".")[0]


def _by_ssh(node: str, words: Sequence[str]) -> list[str]:
    """pbsdsh does not pass standard input on, by which an engine gets its configuration."""
    return [*SSH, node, shlex.join(words)]


# ---- LSF


def lsf(env: Environment) -> Allocation:
    """From LSB_MCPU_HOSTS (`HOST SLOTS HOST SLOTS ...`), or from a file with a host for each slot where that is too long."""
    index = env.get("LSB_JOBINDEX", "0")
    job_id = env["LSB_JOBID"] if index in ("", "0") else f"{env['LSB_JOBID']}[{index}]"
    text = env.get("LSB_MCPU_HOSTS", "")
    if not text:
        return _allocation("LSF", job_id, _lines(env.get("LSB_DJOB_HOSTFILE", ""), "LSB_DJOB_HOSTFILE"), env)
    words = text.split()
    counts = [whole_number(word) for word in words[1::2]]
    if len(words) % 2 or not all(counts):
        raise InputError("LSB_MCPU_HOSTS", "not a list of hosts", expected="HOST SLOTS HOST SLOTS ...", found=quoted(text))
    hosts = [host for host, count in zip(words[::2], counts, strict=True) for _ in range(count or 0)]
    return _allocation("LSF", job_id, hosts, env)


def _by_blaunch(node: str, words: Sequence[str]) -> list[str]:
    """Takes its words as rsh does: a shell on the node takes them apart."""
    return ["blaunch", node, shlex.join(words)]


# ---- Flux


def flux(env: Environment) -> Allocation:
    """All of the instance that we are in (`flux alloc`, `flux batch`, `flux start`): its R (RFC 20). Brokers are told apart by
    their ranks where several are on one host."""
    try:
        found = resource_set.parse(run(["flux", "resource", "R"]), where="flux resource R")
    except PeerError as error:
        raise InputError("--flux", f"{error}") from error
    hosts = found.hosts or tuple(f"rank{entry.rank}" for entry in found.ranks)
    alone = len(set(hosts)) == len(hosts)
    used = [
        (host if alone else f"{host}-{entry.rank}", entry)
        for host, entry in zip(hosts, found.ranks, strict=True)
        if entry.cores
    ]
    if not used:
        raise InputError("flux resource R", "no broker of this instance has a core")
    return Allocation(
        "Flux",
        env.get("FLUX_ENCLOSING_ID", "flux"),
        {name: len(entry.cores) for name, entry in used},
        tuple(str(gpu) for gpu in min((entry.gpus for _, entry in used), key=len)),
        {name: str(entry.rank) for name, entry in used},
        found.expiration_s or inf,
    )


def _by_flux_exec(rank: str, words: Sequence[str]) -> list[str]:
    return ["flux", "exec", f"--rank={rank}", "--", *words]


# ---- what they share

_STARTS: dict[str, Callable[[str, Sequence[str]], list[str]]] = {
    "SGE": _by_qrsh, "PBS": _by_ssh, "LSF": _by_blaunch, "Flux": _by_flux_exec,
}  # fmt: skip


def _allocation(kind: str, job_id: str, hosts: Iterable[str], env: Environment) -> Allocation:
    """A slot for each time that a host is named."""
    slots: dict[str, int] = {}
    for host in hosts:
        slots[host] = slots.get(host, 0) + 1
    gpus = tuple(part for part in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if part)
    return Allocation(kind, job_id, slots, gpus)


def _lines(name: str, variable: str) -> list[str]:
    """Lines of the file that a variable names."""
    try:
        lines = [line.strip() for line in Path(name).read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(variable, f"its file cannot be read: {error}", found=quoted(name)) from error
    if not lines:
        raise InputError(variable, "its file names no host", found=quoted(name))
    return lines

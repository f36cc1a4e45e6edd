"""The options of `pilothouse qcg`, and the nodes that they mean."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec

from pilothouse.dropins.qcg.layout import expanded
from pilothouse.dropins.qcg.nodes import VirtualNodes, parse_nodes
from pilothouse.formats.hostlist import parse as parse_hostlist
from pilothouse.model.errors import InputError
from pilothouse.worlds.live.contexts.programs import ProgramContext

Nodes = list[tuple[str, int]]
"""(name, cores) each."""


class Choices(msgspec.Struct, kw_only=True):
    """The options of the command, by their names."""

    net: bool
    net_port: int | None
    net_pub_port: int | None
    net_port_min: int | None
    net_port_max: int | None
    net_address: str
    disable_pub: bool
    file: bool
    file_path: str | None
    wd: str
    envschema: str
    resources: str
    nodes: str | None
    hosts: tuple[str, ...]
    report_format: str | None
    report_file: str
    level: str
    show_progress: bool
    system_core: bool
    instance: str | None
    tags: str | None
    resume: str | None
    by: str
    slurm_limit_nodes_range_begin: int | None
    slurm_limit_nodes_range_end: int | None
    governor: bool
    parent: str | None
    parent_key: str | None
    slurm_partition_nodes: int | None
    slurm_resources_file: str | None
    nl_init_timeout: float
    nl_ready_threshold: float
    without_effect: list[str]
    """A line for each option that was given and changes nothing."""

    @property
    def networked(self) -> bool:
        ports = (self.net_port, self.net_pub_port, self.net_port_min, self.net_port_max)
        return self.net or self.governs or bool(self.parent) or any(port is not None for port in ports)

    @property
    def governs(self) -> bool:
        return self.governor or self.slurm_partition_nodes is not None


class Allocation(msgspec.Struct):
    """Where jobs run, and what is special about it."""

    context: ProgramContext
    nodes: Nodes
    slurm: bool = False
    reserved: int = 0
    """Cores of the first node that no job gets."""
    cluster: str = "local"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.nodes)


def allocation(choices: Choices) -> Allocation:
    """The nodes that jobs may use. Raises InputError."""
    nodes = named_nodes(choices)
    usable = list(nodes)
    if choices.system_core:
        first, cores = nodes[0]
        if cores < 2:
            raise InputError("--system-core", f"node {first} has one core only")
        usable[0] = (first, cores - 1)
    reserved = int(choices.system_core)
    if choices.hosts:
        from pilothouse.worlds.live.contexts.ssh import SshContext

        return Allocation(SshContext(dict(usable)), nodes, reserved=reserved)
    if in_slurm(choices):
        from pilothouse.worlds.live.contexts.slurm import SlurmContext

        # Cores are what the allocation has, not the tasks that its batch script was started with.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_NTASKS")}
        if nodes:
            environment["SLURM_JOB_NODELIST"] = ",".join(name for name, _ in usable)
            environment["SLURM_JOB_CPUS_PER_NODE"] = ",".join(str(cores) for _, cores in usable)
        context = SlurmContext.of_environment(environment)
        cluster = environment.get("SLURM_CLUSTER_NAME", "local")
        return Allocation(context, nodes, slurm=True, reserved=reserved, cluster=cluster)
    gpus = tuple(part for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part)
    return Allocation(VirtualNodes(usable, gpus=gpus), nodes, reserved=reserved)


def in_slurm(choices: Choices) -> bool:
    inside = "SLURM_JOB_ID" in os.environ or "SLURM_JOBID" in os.environ
    return choices.resources == "slurm" or (choices.resources == "auto" and not choices.nodes and inside)


def named_nodes(choices: Choices) -> Nodes:
    """All nodes that the options speak of. Raises InputError."""
    if choices.hosts:
        from pilothouse.worlds.live.contexts.ssh import parse_hosts

        return list(parse_hosts(choices.hosts).items())
    if in_slurm(choices):
        return _slurm_nodes(choices)
    return parse_nodes(choices.nodes or "", socket.gethostname(), len(os.sched_getaffinity(0)))


def _slurm_nodes(choices: Choices) -> Nodes:
    """The nodes of the allocation that we are in, or the part of them that was asked for."""
    if choices.slurm_resources_file:
        return _nodes_of_file(Path(choices.slurm_resources_file))
    names = parse_hostlist(os.environ.get("SLURM_JOB_NODELIST") or os.environ.get("SLURM_NODELIST", ""))
    begin = choices.slurm_limit_nodes_range_begin or 0
    end = choices.slurm_limit_nodes_range_end if choices.slurm_limit_nodes_range_end is not None else len(names)
    if names and not 0 <= begin < end <= len(names):
        raise InputError("--slurm-limit-nodes-range-begin", f"no nodes from {begin} to {end} among {len(names)}")
    counts = expanded(os.environ.get("SLURM_JOB_CPUS_PER_NODE", "1"), len(names)) if names else []
    return list(zip(names, counts, strict=True))[begin:end]


def _nodes_of_file(path: Path) -> Nodes:
    """What a governor of 0.14.2 writes for the managers of its partitions."""
    try:
        nodes = msgspec.json.decode(path.read_bytes())["nodes"]
        return [(str(node["name"]), int(node["total_cores"])) for node in nodes]
    except OSError as error:
        raise InputError(str(path), "cannot be read", found=error.strerror or "") from None
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise InputError(str(path), f"no description of nodes: {error!r}") from None

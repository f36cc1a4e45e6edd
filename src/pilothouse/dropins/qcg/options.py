"""The options of `pilothouse qcg`, and the nodes that they select.

`QcgOptions` holds the options by name; `allocation` turns them into an `Allocation`: the nodes, and the context that
starts engines on them (this host, ssh, or Slurm).
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec

from pilothouse.formats.hostlist import parse as parse_hostlist
from pilothouse.model.errors import InputError, quoted
from pilothouse.model.numerals import whole_number
from pilothouse.worlds.live.contexts.layout import slurm_counts
from pilothouse.worlds.live.contexts.programs import ProgramContext

MOST_NODES = 1024
"""On this host."""

Nodes = list[tuple[str, int]]
"""(name, cores) of each."""


_WHERE = ("nodes", "hosts", "resources", "slurm_limit_nodes_range_begin", "slurm_limit_nodes_range_end", "slurm_resources_file")
"""Options that say on which nodes jobs run: of a resumed manager either all are new or none is."""
_HOW = ("dialect", "envschema", "system_core", "report_format", "report_file", "by")


class QcgOptions(msgspec.Struct, kw_only=True):
    """The options of the command, by their names."""

    net: bool
    net_port: int | None
    net_pub_port: int | None
    net_port_min: int | None
    net_port_max: int | None
    net_address: str
    open_to_all: bool
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
    dialect: str
    given: frozenset[str]
    """The names of the options on the command line."""
    slurm_limit_nodes_range_begin: int | None
    slurm_limit_nodes_range_end: int | None
    governor: bool
    parent: str | None
    parent_key: str | None
    slurm_partition_nodes: int | None
    slurm_resources_file: str | None
    nl_init_timeout: float
    nl_ready_threshold: float
    address_fd: int | None
    """Where a program waits for the address of the network interface, or for what is wrong (local_manager.py)."""
    without_effect: list[str]
    """One message for each given option that has no effect."""

    @property
    def networked(self) -> bool:
        ports = (self.net_port, self.net_pub_port, self.net_port_min, self.net_port_max)
        return self.net or self.governs or bool(self.parent) or any(port is not None for port in ports)

    @property
    def governs(self) -> bool:
        return self.governor or self.slurm_partition_nodes is not None

    def kept(self) -> dict[str, object]:
        """The options that a resumed manager goes on with, unless others are given to it."""
        return {name: getattr(self, name) for name in (*_WHERE, *_HOW)}

    def resumed(self, kept: dict[str, object]) -> QcgOptions:
        """These options for a manager that goes on with one that had kept its own. Raises InputError."""
        if "dialect" in self.given and self.dialect != kept["dialect"]:
            raise InputError("--dialect", f"the manager that is resumed speaks {kept['dialect']}", found=self.dialect)
        names = [name for name in _HOW if name not in self.given]
        if self.given.isdisjoint(_WHERE):
            names += _WHERE
        try:
            return msgspec.convert(msgspec.to_builtins(self) | {name: kept[name] for name in names}, QcgOptions)
        except (KeyError, msgspec.ValidationError) as error:
            raise InputError("start.json", f"not the options of a manager: {error}") from None


class VirtualNodes(ProgramContext):
    """Nodes on this host: one engine for each name of `--nodes`."""

    NAME = "nodes"
    remote = False

    def __init__(self, nodes: Nodes, *, gpus: tuple[str, ...] = ()) -> None:
        super().__init__(self.NAME, dict(nodes), gpus=gpus)

    def adopt(self, engines: dict[str, str]) -> None:
        # An engine takes the place of a node of its own name only.
        super().adopt({key: node for key, node in engines.items() if node in self.slots})


class Allocation(msgspec.Struct):
    """The nodes that jobs run on, and how to reach them."""

    context: ProgramContext
    nodes: Nodes
    slurm: bool = False
    reserved: int = 0
    """Cores of the first node that no job gets."""
    cluster: str = "local"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.nodes)


def allocation(options: QcgOptions) -> Allocation:
    """The nodes that jobs may use, and the context that reaches them. Raises InputError."""
    nodes = named_nodes(options)
    usable = list(nodes)
    if options.system_core:
        first, cores = nodes[0]
        if cores < 2:
            raise InputError("--system-core", f"node {first} has one core only")
        usable[0] = (first, cores - 1)
    reserved = int(options.system_core)
    if options.hosts:
        from pilothouse.worlds.live.contexts.ssh import SshContext

        return Allocation(SshContext(dict(usable)), nodes, reserved=reserved)
    if in_slurm(options):
        from pilothouse.worlds.live.contexts.slurm import SlurmContext

        # Count the CPUs of the allocation, not the tasks that its batch script asked for.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_NTASKS")}
        if nodes:
            environment["SLURM_JOB_NODELIST"] = ",".join(name for name, _ in usable)
            environment["SLURM_JOB_CPUS_PER_NODE"] = ",".join(str(cores) for _, cores in usable)
        context = SlurmContext.of_environment(environment)
        cluster = environment.get("SLURM_CLUSTER_NAME", "local")
        return Allocation(context, nodes, slurm=True, reserved=reserved, cluster=cluster)
    gpus = tuple(part for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part)
    return Allocation(VirtualNodes(usable, gpus=gpus), nodes, reserved=reserved)


def in_slurm(options: QcgOptions) -> bool:
    inside = "SLURM_JOB_ID" in os.environ or "SLURM_JOBID" in os.environ
    return options.resources == "slurm" or (options.resources == "auto" and not options.nodes and inside)


def named_nodes(options: QcgOptions) -> Nodes:
    """All nodes that the options name. Raises InputError."""
    if options.hosts:
        from pilothouse.worlds.live.contexts.ssh import parse_hosts

        return list(parse_hosts(options.hosts).items())
    if in_slurm(options):
        return _slurm_nodes(options)
    return parse_nodes(options.nodes or "", socket.gethostname(), len(os.sched_getaffinity(0)))


def _slurm_nodes(options: QcgOptions) -> Nodes:
    """The nodes of this Slurm allocation, or the range of them that was asked for."""
    if options.slurm_resources_file:
        return _nodes_of_file(Path(options.slurm_resources_file))
    names = parse_hostlist(os.environ.get("SLURM_JOB_NODELIST") or os.environ.get("SLURM_NODELIST", ""))
    begin = options.slurm_limit_nodes_range_begin or 0
    end = options.slurm_limit_nodes_range_end if options.slurm_limit_nodes_range_end is not None else len(names)
    if names and not 0 <= begin < end <= len(names):
        raise InputError("--slurm-limit-nodes-range-begin", f"no nodes from {begin} to {end} among {len(names)}")
    variable = "SLURM_JOB_CPUS_PER_NODE"
    counts = slurm_counts(os.environ.get(variable, "1"), variable) if names else []
    if len(counts) != len(names):
        raise InputError(variable, f"{len(counts)} counts for {len(names)} nodes")
    return list(zip(names, counts, strict=True))[begin:end]


def _nodes_of_file(path: Path) -> Nodes:
    """Reads the file that a governor of 0.14.2 writes for the managers of its partitions."""
    try:
        nodes = msgspec.json.decode(path.read_bytes())["nodes"]
        return [(str(node["name"]), int(node["total_cores"])) for node in nodes]
    except OSError as error:
        raise InputError(str(path), "cannot be read", found=error.strerror or "") from None
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise InputError(str(path), f"no description of nodes: {error!r}") from None


def parse_nodes(text: str, host: str, cores: int) -> Nodes:
    """Reads `4,4,2` or `a:4,b:2`; an empty text means this host with its cores. Raises InputError."""
    if not text:
        return [(host, cores)]
    nodes: Nodes = []
    for number, part in enumerate(text.split(",")):
        name, _, count = part.strip().rpartition(":")
        cores_here = whole_number(count) or 0
        if cores_here < 1:
            raise InputError(
                "--nodes", "number of cores for a node must not be less than 1", expected="4,4,2 or a:4,b:2",
                found=quoted(text),
            )  # fmt: skip
        nodes.append((name or f"n{number}", cores_here))
    if len(nodes) > MOST_NODES:
        raise InputError("--nodes", f"more than {MOST_NODES} nodes on one host")
    if len({name for name, _ in nodes}) < len(nodes):
        raise InputError("--nodes", "two nodes have one name", found=quoted(text))
    return nodes

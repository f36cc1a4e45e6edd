"""Which nodes a context has, and how many cylinders and cores per task on each: the rules of disBatch as a function.

In: the context's options, the environment (Slurm's variables, DISBATCH_SSH_NODELIST), the allocation of another batch system,
this host's name. Out: a `Layout`. Slurm wins over a node list in the environment, this over other batch systems, `-s` over all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import inf

import msgspec

from pilothouse.model.errors import InputError, quoted
from pilothouse.model.numerals import whole_number

SLURM_RETIRE = 'scontrol update JobId="${SLURM_JOB_ID:-$SLURM_JOBID}" NodeList="${DRIVER_NODE:+$DRIVER_NODE,}$ACTIVE"'
_SLURM_COUNT = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,6})\))?")


class ContextOptions(msgspec.Struct, frozen=True):
    """Options that determine the engines and cylinders of a context. None: not given, so a later default may apply."""

    task_limit: int = 0
    cpus_per_task: float | None = None
    env_resources: tuple[str, ...] = ()
    fill: bool = False
    retire_command: str | None = None
    """None: the batch system's own; "": none."""
    label: str = ""
    ssh_nodes: tuple[str, ...] = ()
    tasks_per_node: int | None = None
    gpu: bool = False
    edition: int = 3
    """Of disBatch, whose rules are used: 3, or 2 (2021)."""

    def or_else(self, run: ContextOptions) -> ContextOptions:
        """What a context that was added later takes over from the run."""
        return msgspec.structs.replace(
            self,
            cpus_per_task=self.cpus_per_task if self.cpus_per_task is not None else run.cpus_per_task,
            tasks_per_node=self.tasks_per_node if self.tasks_per_node is not None else run.tasks_per_node,
            env_resources=self.env_resources or run.env_resources,
            edition=run.edition,
        )

    @property
    def dealt(self) -> tuple[str, ...]:
        """Variables whose values are dealt out to the cylinders."""
        gpus = ("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL") if self.gpu and self.edition == 2 else ()
        return self.env_resources + gpus


class NoContext(Exception):
    """Neither a job of a batch system nor a list of ssh nodes is there."""


class Allocation(msgspec.Struct, frozen=True):
    """The nodes that a batch system other than Slurm gave to a job (allocations.py)."""

    kind: str
    """`SGE`, `PBS`, ..."""
    job_id: str
    slots: dict[str, int]
    """Node -> slots, in the order of the batch system."""
    gpus: tuple[str, ...] = ()
    """Of every node."""
    addresses: dict[str, str] = {}
    """What the batch system calls a node, where that is not its name."""
    ends_at: float = inf
    """Seconds since 1970; inf: not known."""


class NodePlan(msgspec.Struct, frozen=True):
    name: str
    cylinders: int
    cores_per_task: int
    cores: int = 0
    """All that the context has on this node."""


class Layout(msgspec.Struct, frozen=True):
    kind: str
    """`SSH`, or the batch system: `Slurm`, `SGE`, ..."""
    nodes: tuple[NodePlan, ...]
    label: str
    retire_command: str = ""
    launch_env: tuple[tuple[str, str], ...] = ()
    """Put into the environment of srun."""
    warnings: tuple[str, ...] = ()
    allocation: Allocation | None = None
    """If its nodes are those of a batch system other than Slurm."""

    @property
    def usable(self) -> tuple[NodePlan, ...]:
        return tuple(node for node in self.nodes if node.cylinders)


def plan(
    options: ContextOptions,
    env: Mapping[str, str],
    *,
    rank: int,
    host: str,
    expand: Callable[[str], list[str]],
    read: Callable[[str], str],
    other: Callable[[], Allocation | None] = lambda: None,
) -> Layout:
    """The context that options and environment ask for. `expand` writes a Slurm host list out; `read` reads a file; `other` looks
    for the allocation of another batch system.

    Raises NoContext, or InputError for a node list that cannot be read.
    """
    if options.ssh_nodes:
        layout = _ssh(",".join(options.ssh_nodes), options, rank, host)
    elif "SLURM_JOBID" in env or "SLURM_JOB_ID" in env:
        layout = _slurm(options, env, expand, read)
    elif "DISBATCH_SSH_NODELIST" in env:
        layout = _ssh(env["DISBATCH_SSH_NODELIST"], options, rank, host)
    elif (found := other()) is not None:
        label = options.label or f"J{found.job_id}"
        layout = Layout(found.kind, _by_cores(found.slots, options), label, allocation=found)
    else:
        raise NoContext
    if options.retire_command is not None:
        layout = msgspec.structs.replace(layout, retire_command=options.retire_command)
    return layout


def _ssh(text: str, options: ContextOptions, rank: int, host: str) -> Layout:
    cores: dict[str, int] = {}
    warnings: list[str] = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = item.rpartition(":")
        count = whole_number(number)
        if not name or count is None:
            raise InputError("ssh nodes", "not a node", expected="HOST:CORECOUNT", found=quoted(item))
        name = host if name == "localhost" else name
        if name in cores:
            warnings.append(f"{name} is named more than once: its cores are added up")
        cores[name] = cores.get(name, 0) + count
    return Layout("SSH", _by_cores(cores, options), options.label or f"SSH{rank}", warnings=tuple(warnings))


def _by_cores(cores: Mapping[str, int], options: ContextOptions) -> tuple[NodePlan, ...]:
    per_task = 1 if options.cpus_per_task is None else options.cpus_per_task
    nodes = []
    for name, count_here in cores.items():
        cylinders = options.tasks_per_node or _divide(count_here, per_task)
        if options.edition == 2:
            cylinders = min(cylinders, _divide(count_here, per_task))
        nodes.append(NodePlan(name, cylinders, count_here // cylinders if cylinders else count_here, count_here))
    return tuple(nodes)


def _slurm(
    options: ContextOptions, env: Mapping[str, str], expand: Callable[[str], list[str]], read: Callable[[str], str]
) -> Layout:
    warnings: list[str] = []
    job = env.get("SLURM_JOB_ID") or env["SLURM_JOBID"]
    names = expand(_set(env, "SLURM_NODELIST"))
    if options.edition == 2:
        counts = slurm_counts(_set(env, "SLURM_TASKS_PER_NODE"), "SLURM_TASKS_PER_NODE")
        nodes_2 = _by_cores(dict(zip(names, counts, strict=True)), options)
        return Layout("Slurm", nodes_2, options.label or f"J{job}", SLURM_RETIRE, _launch_env(env, read))
    cpus = slurm_counts(_set(env, "SLURM_JOB_CPUS_PER_NODE"), "SLURM_JOB_CPUS_PER_NODE")
    tasks = slurm_counts(_set(env, "SLURM_TASKS_PER_NODE"), "SLURM_TASKS_PER_NODE")
    allotted = env.get("SLURM_CPUS_PER_TASK")
    per_task: float = int(allotted) if allotted else 1
    if options.cpus_per_task is not None:
        if allotted and options.cpus_per_task != int(allotted):
            warnings.append(f"-c {options.cpus_per_task:g} is used although SLURM_CPUS_PER_TASK says {allotted}")
        per_task = options.cpus_per_task
    per_node = options.tasks_per_node
    told = env.get("SLURM_NTASKS_PER_NODE")
    if per_node is None and told:
        per_node = int(told)
    elif per_node is not None and told and per_node != int(told):
        warnings.append(f"-t {per_node} is used although SLURM_NTASKS_PER_NODE says {told}")
    gpus = "CUDA_VISIBLE_DEVICES" in env or "GPU_DEVICE_ORDINAL" in env
    if options.fill and gpus:
        warnings.append("--fill does nothing where there are GPUs")
    nodes = []
    for name, cpus_here, tasks_here in zip(names, cpus, tasks, strict=True):
        if per_node:
            cylinders = per_node
        elif options.fill and not gpus:
            cylinders = _divide(cpus_here, per_task)
        else:
            cylinders = min(tasks_here, _divide(cpus_here, per_task))
        if options.cpus_per_task is not None:
            cores = int(options.cpus_per_task)
        else:
            cores = cpus_here // cylinders if cylinders else cpus_here
        nodes.append(NodePlan(name, cylinders, cores, cpus_here))
    return Layout(
        "Slurm", tuple(nodes), options.label or f"J{job}", SLURM_RETIRE, _launch_env(env, read), tuple(warnings)
    )


def _set(env: Mapping[str, str], name: str) -> str:
    if name not in env:
        raise InputError(name, "is not set, although SLURM_JOBID is", hint="run this inside a Slurm job, or give nodes with -s")
    return env[name]


def _launch_env(env: Mapping[str, str], read: Callable[[str], str]) -> tuple[tuple[str, str], ...]:
    """What goes into srun's environment: the user's file, or defaults that keep each task on its cores."""
    path = env.get("DISBATCH_SLURM_SRUN_OPTIONS_FILE")
    if not path:
        return (("SLURM_CPU_BIND", env.get("SLURM_CPU_BIND", "cores")), ("SLURM_MPI_TYPE", "none"))
    pairs = []
    for number, line in enumerate(read(path).splitlines(), 1):
        name, equals, value = line.partition("=")
        if line and not equals:
            raise InputError(f"{path}:{number}", "not an srun option", expected="NAME=VALUE", found=quoted(line))
        if line:
            pairs.append((name, value))
    return tuple(pairs)


def slurm_counts(text: str, where: str) -> list[int]:
    """`2(x3),1` as [2, 2, 2, 1]. Raises InputError."""
    counts: list[int] = []
    for part in text.split(","):
        match = _SLURM_COUNT.fullmatch(part.strip())
        if match is None:
            raise InputError(where, "not a list of counts", expected="such as 8(x3),4", found=quoted(text))
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def only_here(nodes: str, host: str) -> bool:
    """Whether all nodes of an ssh list (`localhost:4,other:8`) are this host; False for an empty list."""
    names = {node.strip().rpartition(":")[0] for node in nodes.split(",") if node.strip()}
    return bool(names) and names <= {"localhost", host}


def same_host(one: str, other: str) -> bool:
    return one.split(".", 1)[0] == other.split(".", 1)[0]


def _divide(cores: int, per_task: float) -> int:
    return int(cores // per_task) if per_task > 0 else cores

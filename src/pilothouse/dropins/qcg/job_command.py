"""The command of a job, made when its cores are known: arguments, environment, directories and files.

`NodeLayout` turns units into cores of nodes. `prepare` takes a description, an index, the cores on each node and the
manager's `LaunchSettings`, and returns a `PreparedJob`: the caller makes the directories, writes the files and starts
the command. Variables of the second phase are replaced here. The environment follows the specification ("Executor");
jobs in 0.14.2's dialect get what that version sets, which writes counts per node differently. In the specification's
dialect parallel jobs get a host file, and a run configuration for `srun --multi-prog`, wherever they run.

Execution models change the command of parallel jobs inside Slurm only: a plain process on the first node (default),
one srun task with all cores (threads), mpirun (openmpi, intelmpi) or srun (srunmpi) with one task per core.
"""

from __future__ import annotations

import shlex
from itertools import groupby
from posixpath import dirname, join
from typing import NamedTuple

import msgspec

from pilothouse.formats.qcg_description import Description, Execution
from pilothouse.formats.qcg_variables import replaced
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Command, Node

MOST_CACHED = 1024
"""How many sets of units are cached: single cores recur all the time."""


class Share(NamedTuple):
    """A node, and the numbers of some of its cores."""

    node: str
    cores: tuple[int, ...]


class NodeLayout:
    """The nodes of an allocation in order."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self.nodes = nodes
        self._cores = {node.name: _core_ids(node) for node in nodes}
        self._cache: dict[int, list[Share]] = {}

    def add(self, nodes: tuple[Node, ...]) -> None:
        """Nodes that joined later."""
        self.nodes += nodes
        self._cores |= {node.name: _core_ids(node) for node in nodes}
        self._cache.clear()

    def shares(self, units: IdSet) -> list[Share]:
        """The nodes that the units are on, each with the cores of it."""
        found = self._cache.get(units.mask)
        if found is None:
            if len(self._cache) >= MOST_CACHED:
                self._cache.clear()
            found = self._cache[units.mask] = self._found(units)
        return found

    def _found(self, units: IdSet) -> list[Share]:
        found = []
        for node in self.nodes:
            mask = units.mask & node.mask
            if mask:
                cores = self._cores[node.name]
                # A node whose engine was replaced has joined again as `name#2`.
                name = node.name.partition("#")[0]
                found.append(Share(name, tuple(cores[unit - node.first] for unit in IdSet(mask))))
        return found

    def named_cores(self, units: IdSet) -> str:
        """0.14.2: `n0[0:1],n1[0]`."""
        return ",".join(f"{share.node}[{':'.join(map(str, share.cores))}]" for share in self.shares(units))

    def counted_cores(self, units: IdSet) -> str:
        """The specification: `e0003:2`."""
        return ",".join(f"{share.node}:{len(share.cores)}" for share in self.shares(units))


def _core_ids(node: Node) -> list[int]:
    """The operating system's core numbers where they are known, otherwise numbers from 0."""
    text = node.properties.get("cores", "")
    ids = list(IdSet.parse(text)) if text else []
    return ids if len(ids) >= node.count else list(range(node.count))


class LaunchSettings(msgspec.Struct, frozen=True):
    """What all jobs of one manager have in common."""

    root_wd: str
    address: str | None = None
    """Of the network interface, for jobs that submit jobs."""
    slurm: bool = False
    """The manager runs inside a Slurm allocation: execution models and host files apply."""
    slurm_variables: bool = False
    binding: bool = False
    """Core numbers are real: jobs may be bound to them."""


class PreparedJob(msgspec.Struct, frozen=True):
    """A command, and what must exist before it starts."""

    command: Command
    wd: str
    program: str
    directories: tuple[str, ...]
    files: tuple[tuple[str, str], ...] = ()


class _Cores:
    """The cores of one job, counted."""

    def __init__(self, shares: list[Share]) -> None:
        self.shares = shares
        self.counts = [len(share.cores) for share in shares]
        self.total = sum(self.counts)
        self.nodes = ",".join([share.node for share in shares])

    @property
    def numbers(self) -> list[int]:
        return [core for share in self.shares for core in share.cores]


def prepare(
    description: Description, index: int | None, shares: list[Share], settings: LaunchSettings, step_id: str
) -> PreparedJob:
    """Everything that one start of a job needs."""
    name = description.name if index is None else f"{description.name}:{index}"
    cores = _Cores(shares)
    execution = _replaced(description, index, cores, settings)
    wd = join(settings.root_wd, execution.wd) if execution.wd is not None else settings.root_wd
    env = dict(execution.env)
    files: list[tuple[str, str]] = []
    if settings.address:
        env["QCG_PM_ZMQ_ADDRESS"] = settings.address
    env |= _qcg_variables(cores, step_id)
    if settings.slurm_variables:
        # What starts a job under 0.14's models is a present srun, which takes no list for SLURM_NTASKS_PER_NODE.
        listed = description.dialect.counts_per_node and execution.model in (None, "default")
        env |= _slurm_variables(cores, settings, listed=listed)
    if execution.script:
        words = ["bash", "-l", "-c", execution.script]
    else:
        words = [execution.exec or "", *execution.args]
    dialect = description.dialect
    if settings.slurm or (dialect.machine_files and (settings.slurm_variables or cores.total > 1)):
        hostfile = join(wd, f".{name}.hostfile")
        files.append((hostfile, "".join(f"{share.node}\n" * len(share.cores) for share in shares)))
        if dialect.machine_files:
            files.append((join(wd, f".{name}.runconfig"), _run_configuration(words, cores.total)))
        if (settings.slurm or settings.slurm_variables) and execution.model not in ("openmpi", "intelmpi"):
            # mpirun starts its daemons by srun, one per node: srun must not spread those by the tasks' file.
            env["SLURM_HOSTFILE"] = hostfile
    if settings.slurm and cores.total > 1:
        rankfile = join(wd, f".{name}.rankfile")
        words = _modelled(words, execution, cores, settings, rankfile)
        if execution.model == "openmpi" and settings.binding:
            ranks = enumerate((share.node, core) for share in shares for core in share.cores)
            files.append((rankfile, "".join(f"rank {rank}={node} slot={core}\n" for rank, (node, core) in ranks)))
        if settings.binding:
            env["QCG_PM_CPU_SET"] = ",".join(map(str, cores.numbers))
        if execution.model == "intelmpi":
            env["I_MPI_PIN"] = "1"
            env["I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS"] = "-v --overcommit --oversubscribe --mem-per-cpu=0"
    words = _in_shell(words, execution)
    stdin, stdout, stderr = (
        join(folder, path) if path else ""
        for folder, path in (
            (settings.root_wd if dialect.stdin_in_root else wd, execution.stdin), (wd, execution.stdout), (wd, execution.stderr)
        )
    )  # fmt: skip
    directories = {wd, *(dirname(path) for path in (stdout, stderr) if path)}
    command = Command(
        argv=tuple(words), env=env, cwd=wd, stdin=_escaped(stdin), stdout=_escaped(stdout), stderr=_escaped(stderr)
    )
    return PreparedJob(command, wd, execution.program, tuple(sorted(directories)), tuple(files))


def _escaped(path: str) -> str:
    """The live world reads braces in file names as placeholders. A QCG job's names contain none."""
    return path.replace("{", "{{").replace("}", "}}") if "{" in path or "}" in path else path


def _replaced(description: Description, index: int | None, cores: _Cores, settings: LaunchSettings) -> Execution:
    if not _holds_dollars(description.execution):
        return description.execution
    values = {
        "root_wd": settings.root_wd,
        "ncores": str(cores.total),
        "nnodes": str(len(cores.shares)),
        "nlist": cores.nodes,
    }
    if index is not None and description.iteration is not None:
        values["it"] = str(index)
        values["itval"] = description.iteration.value(index)
    execution = description.execution
    changes: dict[str, object] = {}
    for field in ("exec", "script", "wd", "stdin", "stdout", "stderr", "venv"):
        text = getattr(execution, field)
        if text is not None and "$" in text:
            changes[field] = replaced(text, values)
    changes["args"] = tuple(replaced(arg, values) for arg in execution.args)
    changes["env"] = {key: replaced(value, values) for key, value in execution.env.items()}
    return msgspec.structs.replace(execution, **changes)


def _holds_dollars(execution: Execution) -> bool:
    texts = (execution.exec, execution.script, execution.wd, execution.stdin, execution.stdout, execution.stderr)
    words = (*texts, execution.venv, *execution.args, *execution.env.values())
    return any(word is not None and "$" in word for word in words)


def _in_shell(words: list[str], execution: Execution) -> list[str]:
    """Modules and virtual environments need a shell around the command."""
    if execution.modules is None and execution.venv is None:
        return words
    steps = []
    if execution.modules:
        steps.append(f"source /etc/profile && module load {' '.join(map(shlex.quote, execution.modules))}")
    if execution.venv:
        steps.append(f"source {shlex.quote(execution.venv)}/bin/activate")
    steps.append(f"exec {shlex.join(words)}")
    return ["bash", "-l", "-c", "; ".join(steps)]


def _modelled(
    words: list[str], execution: Execution, cores: _Cores, settings: LaunchSettings, rankfile: str
) -> list[str]:
    """The command under the job's execution model."""
    options = execution.model_opts
    mpirun = str(options.get("mpirun") or "mpirun")
    match execution.model:
        case "threads":
            head = ["srun", "-n", "1", "--cpus-per-task", str(cores.total), "-w", cores.shares[0].node]
            bind = f"mask_cpu:{_mask(cores.numbers)}" if settings.binding else "none"
            return [*head, "--overcommit", "--overlap", "--mem-per-cpu=0", f"--cpu-bind={bind}", *words]
        case "openmpi":
            head = ["--rankfile", rankfile] if settings.binding else ["-n", str(cores.total), "--bind-to", "none"]
            return [mpirun, *head, *_list(options.get("mpirun_args")), *words]
        case "intelmpi":
            head = ["-n", str(cores.total)]
            if settings.binding:
                head = []
                for share in cores.shares:
                    pins = ",".join(map(str, share.cores))
                    head += [":"] if head else []
                    head += ["-host", share.node, "-n", str(len(share.cores))]
                    head += ["-env", f"I_MPI_PIN_PROCESSOR_LIST={pins}"]
            return [mpirun, *head, *_list(options.get("mpirun_args")), *words]
        case "srunmpi":
            bind = "none"
            if settings.binding:
                bind = "mask_cpu:" + ",".join(_mask([core]) for core in cores.numbers)
            head = ["srun", "-n", str(cores.total), "--overcommit", "--overlap", "--mem-per-cpu=0", "-m", "arbitrary"]
            return [*head, f"--cpu-bind={bind}", *_list(options.get("srun_args")), *words]
    return words


def _mask(cores: list[int]) -> str:
    return hex(sum(1 << core for core in cores))


def _run_configuration(words: list[str], ranks: int) -> str:
    """For `srun --multi-prog`: the first rank runs the program, which starts the others itself."""
    others = {1: "", 2: "1 /bin/true\n"}.get(ranks, f"1-{ranks - 1} /bin/true\n")
    return f"0\t{shlex.join(words)}\n{others}"


def _list(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def _qcg_variables(cores: _Cores, step_id: str) -> dict[str, str]:
    """The specification, "QCG execution environment"."""
    total = str(cores.total)
    return {
        "QCG_PM_NNODES": str(len(cores.shares)),
        "QCG_PM_NODELIST": cores.nodes,
        "QCG_PM_NPROCS": total,
        "QCG_PM_NTASKS": total,
        "QCG_PM_STEP_ID": step_id,
        "QCG_PM_TASKS_PER_NODE": ",".join(map(str, cores.counts)),
    }


def _slurm_variables(cores: _Cores, settings: LaunchSettings, *, listed: bool) -> dict[str, str]:
    """The specification, "SLURM execution environment"; 0.14.2 writes counts in Slurm's own short form."""
    total, nodes = str(cores.total), str(len(cores.shares))
    variables = {
        "SLURM_NNODES": nodes,
        "SLURM_NODELIST": cores.nodes,
        "SLURM_NPROCS": total,
        "SLURM_NTASKS": total,
        "SLURM_JOB_NODELIST": cores.nodes,
        "SLURM_JOB_NUM_NODES": nodes,
        "SLURM_STEP_NODELIST": cores.nodes,
        "SLURM_STEP_NUM_NODES": nodes,
        "SLURM_STEP_NUM_TASKS": total,
    }
    if listed:
        counts = ",".join(map(str, cores.counts))
        per_node = ("SLURM_NTASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
        # Without it the steps that a job starts wait for the cores that the step of its engine has.
        overlap = {"SLURM_OVERLAP": "1"} if settings.slurm else {}
        return variables | dict.fromkeys(per_node, counts) | overlap
    runs = [(count, len(list(same))) for count, same in groupby(cores.counts)]
    counts = ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in runs)
    variables |= dict.fromkeys(("SLURM_JOB_CPUS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"), counts)
    variables["SLURM_OVERLAP"] = "1"
    if len(set(cores.counts)) == 1:
        variables["SLURM_NTASKS_PER_NODE"] = str(cores.counts[0])
    if settings.binding:
        variables["SLURM_CPU_BIND"] = "verbose,mask_cpu:" + ",".join(_mask([core]) for core in cores.numbers)
    return variables

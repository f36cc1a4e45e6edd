"""What is started for a job once it has its cores: words, environment, files. Nothing is started here.

Comes in: a description, an index, the shares of the nodes, and the surroundings of the manager. Goes out: a `Launch`:
the command, the directories that must exist and the files that must be written before. Variables of the second phase
are replaced here. The environment follows the specification ("Executor"), and for jobs of 0.14.2's dialect what that
version really sets, which differs in the form of the counts per node.

Execution models change the command of parallel jobs inside Slurm only: a plain process on the first node (default),
one srun task with all cores (threads), mpirun (openmpi, intelmpi) or srun (srunmpi) with one task per core.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from posixpath import dirname, isabs, join

import msgspec

from pilothouse.dropins.qcg.layout import Share, compressed
from pilothouse.formats.qcg_description import Description, Dialect, Execution
from pilothouse.formats.qcg_variables import replaced
from pilothouse.model.job import Command


class Surroundings(msgspec.Struct, frozen=True):
    """What all jobs of one manager have in common."""

    root_wd: str
    address: str | None = None
    """Of the network interface, for jobs that submit jobs."""
    slurm: bool = False
    """The manager runs inside a Slurm allocation: its models and host files make sense."""
    slurm_variables: bool = False
    binding: bool = False
    """Core numbers are real: jobs may be bound to them."""


class Launch(msgspec.Struct, frozen=True):
    command: Command
    wd: str
    program: str
    directories: tuple[str, ...]
    files: tuple[tuple[str, str], ...] = ()


class _Place(msgspec.Struct, frozen=True):
    """The shares of a job, counted."""

    name: str
    wd: str
    shares: list[Share]
    cores: int
    counts: list[int]
    nodes: str

    @property
    def core_numbers(self) -> list[int]:
        return [core for share in self.shares for core in share.cores]


def _placed(name: str, wd: str, shares: list[Share]) -> _Place:
    counts = [len(share.cores) for share in shares]
    return _Place(name, wd, shares, sum(counts), counts, ",".join([share.node for share in shares]))


def prepare(
    description: Description, index: int | None, shares: list[Share], around: Surroundings, step_id: str
) -> Launch:
    """Everything that one start of a job needs."""
    name = description.name if index is None else f"{description.name}:{index}"
    execution = _replaced(description, index, shares, around)
    wd = around.root_wd
    if execution.wd is not None:
        wd = execution.wd if isabs(execution.wd) else join(around.root_wd, execution.wd)
    place = _placed(name, wd, shares)
    env = dict(execution.env)
    files: list[tuple[str, str]] = []
    if around.address:
        env["QCG_PM_ZMQ_ADDRESS"] = around.address
    env |= qcg_variables(place, step_id)
    if around.slurm_variables:
        env |= slurm_variables(place, description.dialect, around)
    if around.slurm:
        hostfile = join(wd, f".{name}.hostfile")
        files.append((hostfile, "".join(f"{share.node}\n" * len(share.cores) for share in shares)))
        if execution.model not in ("openmpi", "intelmpi"):
            # mpirun starts its daemons by srun, one per node: srun must not spread those by the tasks' file.
            env["SLURM_HOSTFILE"] = hostfile
    words = _words(execution)
    streams = {
        "stdin": _path(wd, execution.stdin),
        "stdout": _path(wd, execution.stdout),
        "stderr": _path(wd, execution.stderr),
    }
    if around.slurm and place.cores > 1:
        words = _modelled(words, execution, place, around, files)
        if around.binding:
            env["QCG_PM_CPU_SET"] = ",".join(map(str, place.core_numbers))
        if execution.model == "intelmpi":
            env["I_MPI_PIN"] = "1"
            env["I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS"] = "-v --overcommit --oversubscribe --mem-per-cpu=0"
    words = _in_shell(words, execution)
    directories = {wd, *(dirname(path) for stream, path in streams.items() if path and stream != "stdin")}
    # File names of live tasks may hold placeholders in braces; ours are meant as they stand.
    streams = {
        stream: path.replace("{", "{{").replace("}", "}}") if "{" in path or "}" in path else path
        for stream, path in streams.items()
    }
    command = Command(argv=tuple(words), env=env, cwd=wd, **streams)
    return Launch(command, wd, execution.program, tuple(sorted(directories)), tuple(files))


def _replaced(description: Description, index: int | None, shares: list[Share], around: Surroundings) -> Execution:
    if not _holds_dollars(description.execution):
        return description.execution
    values = {
        "root_wd": around.root_wd,
        "ncores": str(sum(len(share.cores) for share in shares)),
        "nnodes": str(len(shares)),
        "nlist": ",".join(share.node for share in shares),
    }
    if index is not None and description.iteration is not None:
        values["it"] = str(index)
        values["itval"] = description.iteration.value(index)
    execution = description.execution
    doubled = description.dialect is not Dialect.SPECIFICATION
    changes: dict[str, object] = {}
    for field in ("exec", "script", "wd", "stdin", "stdout", "stderr", "venv"):
        text = getattr(execution, field)
        if text is not None and "$" in text:
            changes[field] = replaced(text, values, doubled=doubled)
    changes["args"] = tuple(replaced(arg, values, doubled=doubled) for arg in execution.args)
    changes["env"] = {key: replaced(value, values, doubled=doubled) for key, value in execution.env.items()}
    return msgspec.structs.replace(execution, **changes)


def _holds_dollars(execution: Execution) -> bool:
    texts = (execution.exec, execution.script, execution.wd, execution.stdin, execution.stdout, execution.stderr)
    words = (*texts, execution.venv, *execution.args, *execution.env.values())
    return any(word is not None and "$" in word for word in words)


def _path(wd: str, name: str | None) -> str:
    if not name:
        return ""
    return name if isabs(name) else join(wd, name)


def _words(execution: Execution) -> list[str]:
    if execution.script:
        return ["bash", "-l", "-c", execution.script]
    return [execution.exec or "", *execution.args]


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
    words: list[str], execution: Execution, place: _Place, around: Surroundings, files: list[tuple[str, str]]
) -> list[str]:
    options = execution.model_opts
    mpirun = str(options.get("mpirun") or "mpirun")
    match execution.model:
        case "threads":
            head = ["srun", "-n", "1", "--cpus-per-task", str(place.cores), "-w", place.shares[0].node]
            bind = f"mask_cpu:{_mask(place.core_numbers)}" if around.binding else "none"
            return [*head, "--overcommit", "--overlap", "--mem-per-cpu=0", f"--cpu-bind={bind}", *words]
        case "openmpi":
            if around.binding:
                rankfile = join(place.wd, f".{place.name}.rankfile")
                lines = [(share.node, core) for share in place.shares for core in share.cores]
                text = "".join(f"rank {rank}={node} slot={core}\n" for rank, (node, core) in enumerate(lines))
                files.append((rankfile, text))
                head = ["--rankfile", rankfile]
            else:
                head = ["-n", str(place.cores), "--bind-to", "none"]
            return [mpirun, *head, *_list(options.get("mpirun_args")), *words]
        case "intelmpi":
            head = ["-n", str(place.cores)]
            if around.binding:
                head = []
                for share in place.shares:
                    pins = ",".join(map(str, share.cores))
                    head += [":"] if head else []
                    head += ["-host", share.node, "-n", str(len(share.cores))]
                    head += ["-env", f"I_MPI_PIN_PROCESSOR_LIST={pins}"]
            return [mpirun, *head, *_list(options.get("mpirun_args")), *words]
        case "srunmpi":
            bind = "none"
            if around.binding:
                bind = "mask_cpu:" + ",".join(_mask([core]) for core in place.core_numbers)
            head = ["srun", "-n", str(place.cores), "--overcommit", "--overlap", "--mem-per-cpu=0", "-m", "arbitrary"]
            return [*head, f"--cpu-bind={bind}", *_list(options.get("srun_args")), *words]
    return words


def _mask(cores: list[int]) -> str:
    return hex(sum(1 << core for core in cores))


def _list(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def qcg_variables(place: _Place, step_id: str) -> Mapping[str, str]:
    """The specification, "QCG execution environment"."""
    cores = str(place.cores)
    return {
        "QCG_PM_NNODES": str(len(place.shares)),
        "QCG_PM_NODELIST": place.nodes,
        "QCG_PM_NPROCS": cores,
        "QCG_PM_NTASKS": cores,
        "QCG_PM_STEP_ID": step_id,
        "QCG_PM_TASKS_PER_NODE": ",".join(map(str, place.counts)),
    }


def slurm_variables(place: _Place, dialect: Dialect, around: Surroundings) -> dict[str, str]:
    """The specification, "SLURM execution environment"; 0.14.2 writes counts in Slurm's own short form."""
    cores, nodes, counts = str(place.cores), str(len(place.shares)), place.counts
    variables = {
        "SLURM_NNODES": nodes,
        "SLURM_NODELIST": place.nodes,
        "SLURM_NPROCS": cores,
        "SLURM_NTASKS": cores,
        "SLURM_JOB_NODELIST": place.nodes,
        "SLURM_JOB_NUM_NODES": nodes,
        "SLURM_STEP_NODELIST": place.nodes,
        "SLURM_STEP_NUM_NODES": nodes,
        "SLURM_STEP_NUM_TASKS": cores,
    }
    if dialect is Dialect.SPECIFICATION:
        listed = ",".join(map(str, counts))
        variables |= {
            "SLURM_NTASKS_PER_NODE": listed,
            "SLURM_STEP_TASKS_PER_NODE": listed,
            "SLURM_TASKS_PER_NODE": listed,
        }
        return variables
    short = compressed(counts)
    variables |= {
        "SLURM_JOB_CPUS_PER_NODE": short,
        "SLURM_STEP_TASKS_PER_NODE": short,
        "SLURM_TASKS_PER_NODE": short,
        "SLURM_OVERLAP": "1",
    }
    if len(set(counts)) == 1:
        variables["SLURM_NTASKS_PER_NODE"] = str(counts[0])
    if around.binding:
        variables["SLURM_CPU_BIND"] = "verbose,mask_cpu:" + ",".join(_mask([core]) for core in place.core_numbers)
    return variables

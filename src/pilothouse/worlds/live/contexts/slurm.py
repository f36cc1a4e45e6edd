"""The Slurm context: the nodes of the allocation that we are in, one engine on each, started by one srun per node."""

from __future__ import annotations

from collections.abc import Mapping

from pilothouse.formats.hostlist import parse as parse_hostlist
from pilothouse.model.errors import InputError, quoted
from pilothouse.worlds.live.contexts import Launch
from pilothouse.worlds.live.contexts.layout import slurm_counts
from pilothouse.worlds.live.contexts.programs import ProgramContext, engine_command
from pilothouse.worlds.live.contexts.slurm_queue import allocation_end

SRUN = ("srun", "--nodes=1", "--ntasks=1", "--overlap", "--cpu-bind=none", "--mpi=none", "--kill-on-bad-exit=0")


class SlurmContext(ProgramContext):
    """Nodes of one Slurm job: the slots of each, and the CPUs that its engine gets."""

    def __init__(
        self, nodes: dict[str, int], *, job_id: str, cpus: dict[str, int], gpus: tuple[str, ...], memory_mb: int, ends_at: float
    ) -> None:
        super().__init__(f"J{job_id}", nodes, gpus=gpus, memory_mb=memory_mb, ends_at=ends_at)
        self._job_id = job_id
        self._cpus = cpus

    @classmethod
    def of_environment(cls, environment: Mapping[str, str], *, memory_mb: int = 0) -> SlurmContext:
        """The allocation that the SLURM_ variables describe: a slot for each task if tasks were asked for, else for
        each CPU. `memory_mb` of each node, if it is not what was asked of Slurm."""
        job_id = environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID", "")
        names = environment.get("SLURM_JOB_NODELIST") or environment.get("SLURM_NODELIST", "")
        if not job_id or not names:
            raise InputError("--slurm", "not inside a Slurm allocation", hint="use salloc or sbatch, or --ssh")
        nodes = parse_hostlist(names)
        cpus = _counts(environment, "SLURM_JOB_CPUS_PER_NODE", len(nodes)) or [1] * len(nodes)
        slots = cpus
        if "SLURM_NTASKS" in environment or "SLURM_NTASKS_PER_NODE" in environment:
            slots = _counts(environment, "SLURM_TASKS_PER_NODE", len(nodes)) or cpus
        gpus = environment.get("SLURM_JOB_GPUS") or environment.get("CUDA_VISIBLE_DEVICES", "")
        return cls(
            dict(zip(nodes, slots, strict=True)),
            job_id=job_id,
            cpus=dict(zip(nodes, cpus, strict=True)),
            gpus=tuple(part for part in gpus.split(",") if part),
            memory_mb=memory_mb or _memory_mb(environment, min(cpus)),
            ends_at=allocation_end(environment),
        )

    def command(self, part: str, launch: Launch) -> list[str]:
        step = [f"--jobid={self._job_id}", f"--nodelist={part}", f"--cpus-per-task={self._cpus[part]}"]
        return [*SRUN, *step, *engine_command(launch.python)]


def _memory_mb(environment: Mapping[str, str], cpus: int) -> int:
    """The memory of each node that was asked of Slurm; 0: none was, and the allocation has what the nodes have."""
    per_node = environment.get("SLURM_MEM_PER_NODE", "0")
    per_cpu = environment.get("SLURM_MEM_PER_CPU", "0")
    if per_node.isdigit() and int(per_node):
        return int(per_node)
    return int(per_cpu) * cpus if per_cpu.isdigit() else 0


def _counts(environment: Mapping[str, str], variable: str, nodes: int) -> list[int]:
    """One count for each node; none if the variable is not set."""
    text = environment.get(variable)
    counts = slurm_counts(text, variable) if text else []
    if counts and len(counts) != nodes:
        raise InputError(variable, f"{len(counts)} counts for {nodes} nodes", found=quoted(text))
    return counts

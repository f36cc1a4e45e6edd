"""The Slurm context: the nodes of the allocation that we are in, one engine on each, started by one srun per node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import inf
from pathlib import Path

from pilothouse.formats.hostlist import parse as parse_hostlist
from pilothouse.model.errors import InputError, quoted
from pilothouse.worlds.live.contexts import Departure, Launch
from pilothouse.worlds.live.contexts.programs import Programs, engine_command, new_key

SRUN = ("srun", "--nodes=1", "--ntasks=1", "--overlap", "--cpu-bind=none", "--mpi=none", "--kill-on-bad-exit=0")
_COUNT = re.compile(r"(\d+)(?:\(x(\d+)\))?")


class SlurmContext:
    """Nodes of one Slurm job and the slots on each."""

    remote = True

    def __init__(
        self,
        nodes: dict[str, int],
        *,
        job_id: str,
        name: str = "",
        cpus: dict[str, int] | None = None,
        gpus: tuple[str, ...] = (),
        ends_at: float = inf,
    ) -> None:
        self.name = name or f"J{job_id}"
        self.engines = len(nodes)
        self._nodes = nodes
        self._job_id = job_id
        self._cpus = cpus or nodes
        self._gpus = gpus
        self._ends_at = ends_at
        self._programs = Programs(self.name)

    @classmethod
    def of_environment(cls, environment: Mapping[str, str], *, name: str = "", units: int = 1) -> SlurmContext:
        """The allocation that the SLURM_ variables describe: a slot for each task if tasks were asked for, else for
        each CPU."""
        job_id = environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID", "")
        names = environment.get("SLURM_JOB_NODELIST") or environment.get("SLURM_NODELIST", "")
        if not job_id or not names:
            raise InputError("--slurm", "not inside a Slurm allocation", hint="use salloc or sbatch, or --ssh")
        nodes = parse_hostlist(names)
        cpus = _counts(environment.get("SLURM_JOB_CPUS_PER_NODE", "1"), len(nodes), "SLURM_JOB_CPUS_PER_NODE")
        slots = cpus
        if "SLURM_NTASKS" in environment or "SLURM_NTASKS_PER_NODE" in environment:
            slots = _counts(environment.get("SLURM_TASKS_PER_NODE", ""), len(nodes), "SLURM_TASKS_PER_NODE") or cpus
        gpus = environment.get("SLURM_JOB_GPUS") or environment.get("CUDA_VISIBLE_DEVICES", "")
        return cls(
            dict(zip(nodes, slots, strict=True)),
            job_id=job_id,
            name=name,
            cpus=dict(zip(nodes, cpus, strict=True)),
            gpus=tuple(part for part in gpus.split(",") if part),
            ends_at=float(environment.get("SLURM_JOB_END_TIME") or inf),
        )

    def start(self, launch: Launch) -> None:
        for node, slots in self._nodes.items():
            key = new_key(self.name)
            log = str(Path(launch.folder) / f"engine-{key}-{node}.log")
            config = launch.config(
                self.name, slots, node=node, key=key, gpus=self._gpus, ends_at=self._ends_at, log=log
            )
            step = [f"--jobid={self._job_id}", f"--nodelist={node}", f"--cpus-per-task={self._cpus[node]}"]
            self._programs.start([*SRUN, *step, *engine_command(launch.python)], config)

    def ended(self) -> list[Departure]:
        return self._programs.ended()

    def close(self) -> None:
        self._programs.forget()


def _counts(text: str, nodes: int, where: str) -> list[int]:
    """`8(x3),4` for four nodes."""
    counts: list[int] = []
    for part in text.split(",") if text else ():
        match = _COUNT.fullmatch(part.strip())
        if match is None:
            raise InputError(where, "not a list of counts", expected="such as 8(x3),4", found=quoted(text))
        counts += [int(match[1])] * int(match[2] or 1)
    if counts and len(counts) != nodes:
        raise InputError(where, f"{len(counts)} counts for {nodes} nodes", found=quoted(text))
    return counts

"""The batch systems that runs know: one table.

For each: whether we are in one of its jobs and on which nodes, how an engine is started there, and the commands that submit, list
and cancel jobs. No input or output here except through allocations.py; batch_queue.py runs the commands.

PSI/J (psij-python 0.9.11) was weighed as a way to submit, and left out. It does not know SGE. Native options are pairs of key and
value, not the words that users have; for LSF it writes directives into a file that `bsub FILE` does not read. It starts nothing
on the nodes of an allocation, looks at the queue every 30 s, and pins packaging and psutil. Importing it takes 0.15 s of CPU,
twice that of the live world; this table takes 0.01 s. It would replace four command lines in each row.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from pilothouse.model.errors import InputError
from pilothouse.worlds.live.contexts import allocations
from pilothouse.worlds.live.contexts.allocations import AllocationContext, Environment
from pilothouse.worlds.live.contexts.layout import Allocation

if TYPE_CHECKING:
    from pilothouse.worlds.live.contexts.programs import ProgramContext


class BatchJob(msgspec.Struct, frozen=True):
    """A batch job that runs a script without arguments."""

    script: str
    name: str
    """Letters, digits, `_`, `.` and `-`; begins with a letter."""
    folder: str
    """For its log."""
    options: tuple[str, ...]
    """As the user gives them to the command that submits."""


class BatchSystem(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """As options name it."""
    kind: str
    """As users write it."""
    is_around: Callable[[Environment], bool]
    """Whether a program with this environment runs in one of its jobs."""
    allocation: Callable[[Environment], Allocation] | None
    """The nodes of this job. None: see `context`."""
    submit: Callable[[BatchJob], list[str]]
    job_id: str
    """A pattern that finds the job's id in the answer."""
    enough: Callable[[int], tuple[str, ...]]
    """Options for a job with so many slots, if the user gives none."""
    listing: Callable[[str], list[str]]
    """Lists jobs, one on each line; at least those with this name that wait or run."""
    id_and_state: tuple[int, int]
    """Columns of the listing."""
    over: frozenset[str]
    """States of jobs that neither wait nor run."""
    nothing: str = ""
    """What the listing command complains of if there is no job."""
    cancel: tuple[str, ...]
    plain_id: Callable[[str], str] = str

    def context(self, env: Environment, *, memory_mb: int = 0) -> ProgramContext:
        """One engine on each node of the job that we are in. Raises InputError if we are in none."""
        if self.allocation is None:
            from pilothouse.worlds.live.contexts.slurm import SlurmContext

            return SlurmContext.of_environment(env, memory_mb=memory_mb)
        return AllocationContext(self.inside(env), memory_mb=memory_mb)

    def inside(self, env: Environment) -> Allocation:
        if self.allocation is None or not self.is_around(env):
            raise InputError(f"--{self.name}", f"not inside a job of {self.kind}", hint="submit this command, or use --ssh")
        return self.allocation(env)


def _slurm_submit(job: BatchJob) -> list[str]:
    words = ["sbatch", "--parsable", f"--job-name={job.name}", f"--output={job.folder}/allocation-%j.log", *job.options]
    return [*words, "--wrap", f"exec {shlex.quote(job.script)}"]


def _sge_submit(job: BatchJob) -> list[str]:
    log = f"{job.folder}/allocation-$JOB_ID.log"
    return ["qsub", "-terse", "-V", "-cwd", "-N", job.name, "-j", "y", "-o", log, *job.options, "-b", "y", job.script]


def _pbs_submit(job: BatchJob) -> list[str]:
    # Some servers take no more than 15 characters for a name.
    return ["qsub", "-V", "-N", job.name[:15], "-j", "oe", "-o", f"{job.folder}/", *job.options, job.script]


def _lsf_submit(job: BatchJob) -> list[str]:
    return ["bsub", "-J", job.name, "-o", f"{job.folder}/allocation-%J.log", *job.options, shlex.quote(job.script)]


def _flux_submit(job: BatchJob) -> list[str]:
    log = f"--output={job.folder}/allocation-{{{{id}}}}.log"
    return ["flux", "batch", f"--job-name={job.name}", log, *job.options, job.script]


def _sge_enough(slots: int) -> tuple[str, ...]:
    """Parallel environments have the names that a site gives them."""
    if slots > 1:
        raise InputError("--auto-options", "a job of SGE with several slots needs a PE", expected=f"-pe NAME {slots}")
    return ()


SLURM = BatchSystem(
    name="slurm", kind="Slurm",
    is_around=lambda env: "SLURM_JOB_ID" in env or "SLURM_JOBID" in env,
    allocation=None,
    submit=_slurm_submit, job_id=r"^(\d+)", enough=lambda slots: (f"--ntasks={slots}",),
    listing=lambda name: ["squeue", "--noheader", "--states=all", "--format=%A %T", f"--name={name}"],
    id_and_state=(0, 1),
    over=frozenset({"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"}),
    cancel=("scancel",),
)  # fmt: skip
SGE = BatchSystem(
    name="sge", kind="SGE",
    is_around=lambda env: "JOB_ID" in env and ("PE_HOSTFILE" in env or "SGE_TASK_ID" in env),
    allocation=allocations.sge,
    submit=_sge_submit, job_id=r"^(\d+)", enough=_sge_enough,
    listing=lambda name: ["qstat"], id_and_state=(0, 4), over=frozenset({"Eqw", "Ehqw"}),
    cancel=("qdel",),
)  # fmt: skip
PBS = BatchSystem(
    name="pbs", kind="PBS",
    is_around=lambda env: "PBS_JOBID" in env and "PBS_NODEFILE" in env,
    allocation=allocations.pbs,
    submit=_pbs_submit, job_id=r"^([0-9\[\]]+)", enough=lambda slots: ("-l", f"select=1:ncpus={slots}"),
    listing=lambda name: ["qstat"], id_and_state=(0, 4), over=frozenset({"C", "F", "X"}),
    cancel=("qdel",), plain_id=allocations.pbs_id,
)  # fmt: skip
LSF = BatchSystem(
    name="lsf", kind="LSF",
    is_around=lambda env: "LSB_JOBID" in env and ("LSB_MCPU_HOSTS" in env or "LSB_DJOB_HOSTFILE" in env),
    allocation=allocations.lsf,
    submit=_lsf_submit, job_id=r"Job <(\d+)>", enough=lambda slots: ("-n", str(slots), "-R", "span[hosts=1]"),
    listing=lambda name: ["bjobs", "-w"], id_and_state=(0, 2), over=frozenset({"DONE", "EXIT", "ZOMBI"}),
    nothing="No unfinished job found", cancel=("bkill",),
)  # fmt: skip
FLUX = BatchSystem(
    name="flux", kind="Flux",
    # A job of `flux run` has the URI of its instance, but only a part of the instance's cores.
    is_around=lambda env: "FLUX_URI" in env and "FLUX_JOB_ID" not in env,
    allocation=allocations.flux,
    submit=_flux_submit, job_id=r"^(\S+)", enough=lambda slots: (f"--nslots={slots}",),
    listing=lambda name: ["flux", "jobs", "--no-header", "--format={id.f58} {state}", f"--name={name}"],
    id_and_state=(0, 1), over=frozenset({"INACTIVE", "CLEANUP"}), cancel=("flux", "cancel"),
)  # fmt: skip
BATCH_SYSTEMS: dict[str, BatchSystem] = {system.name: system for system in (FLUX, SLURM, SGE, PBS, LSF)}
"""Flux first: an instance may have been started in a job of another."""


def around(env: Mapping[str, str]) -> BatchSystem | None:
    """The batch system whose job we are in."""
    return next((system for system in BATCH_SYSTEMS.values() if system.is_around(env)), None)


def job_name(text: str) -> str:
    """A name that every batch system takes."""
    return f"pilothouse-{re.sub(r'[^A-Za-z0-9_.-]', '_', text)}"[:60]

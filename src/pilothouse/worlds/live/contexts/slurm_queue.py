"""Slurm's command squeue.

In: job ids and options. Out: jobs as squeue lists them; PeerError if it fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import msgspec

from pilothouse.formats import slurm_fields
from pilothouse.model.errors import PeerError
from pilothouse.model.numerals import whole_number
from pilothouse.worlds.slurm_commands import COMMAND_TIMEOUT_S
from pilothouse.worlds.slurm_commands import run as _run

END_TIMEOUT_S = 20.0
"""For the end of an allocation: a run starts without it if Slurm is slow."""


class SlurmJob(msgspec.Struct, frozen=True):
    """A line of squeue."""

    job_id: str
    state: str
    ends_at: float
    """Seconds since 1970; inf: not known or without limit."""


def squeue(*filters: str, timeout_s: float = COMMAND_TIMEOUT_S) -> list[SlurmJob]:
    """The jobs that squeue lists with these options, such as `--jobs=4711`. Jobs long over are not listed, or an error."""
    listed = _run(["squeue", "--noheader", "--format=%A %T %e", *filters], timeout_s)
    rows = (line.split() for line in listed.splitlines())
    return [SlurmJob(row[0], row[1], slurm_fields.date(row[2]) or inf) for row in rows if len(row) == 3]


def allocation_end(env: Mapping[str, str]) -> float:
    """When the Slurm job of this environment ends (seconds since 1970); inf: not known. Older Slurms must be asked."""
    if (known := whole_number(env.get("SLURM_JOB_END_TIME", ""))) is not None:
        return float(known)
    job_id = env.get("SLURM_JOB_ID", "")
    try:
        found = squeue(f"--jobs={job_id}", timeout_s=END_TIMEOUT_S) if job_id else []
    except PeerError:
        return inf
    return found[0].ends_at if found else inf


def is_over(job_id: str) -> bool:
    """Whether this job has ended. False if squeue fails."""
    try:
        return all(job.state not in ("RUNNING", "SUSPENDED") for job in squeue(f"--jobs={job_id}", "--states=all"))
    except PeerError as error:
        return "Invalid job id" in str(error)  # squeue's answer about a job that is long over

"""Which of Slurm's logs a file is: sacct by columns, sacct --json, jobcomp/filetxt."""

from __future__ import annotations

from collections.abc import Callable

from pilothouse.formats.workload import Workload


def reader(data: bytes) -> Callable[..., Workload] | None:
    """The function `(path, name, *, units)` that reads it; None: it is no log of Slurm's."""
    head = data[:4096].lstrip()
    if head.startswith(b"JobId="):
        from pilothouse.formats import slurm_jobcomp

        return slurm_jobcomp.read
    if head.startswith(b"JobID") or (head.startswith(b"{") and b'"association"' in data and b'"meta"' in data):
        from pilothouse.formats import slurm_sacct

        return slurm_sacct.read
    return None

"""Which resource manager's log a file is: Slurm (sacct by columns, sacct --json, jobcomp/filetxt), PBS, LSF or Flux."""

from __future__ import annotations

import re
from collections.abc import Callable

from pilothouse.formats.workload import Workload

_PBS = re.compile(rb"\s*\d\d/\d\d/\d{4} \d\d:\d\d:\d\d(?:\.\d+)?;\w{1,2};")
_LSF = re.compile(rb'\s*(?:#[^\n]*\n\s*)*"(?:JOB_FINISH2?|JOB_RESIZE|EVENT_ADRSV_FINISH)" "')
_FLUX = re.compile(rb'"t_submit"\s*:')

HEAD_BYTES = 4096
"""Comments and blanks before the first record are no longer than this."""


def reader(data: bytes) -> Callable[..., Workload] | None:
    """The function `(path, name, *, units)` that reads it; None: it is no such log."""
    head = data[:HEAD_BYTES].lstrip()
    if head.startswith(b"JobId="):
        from pilothouse.formats import slurm_jobcomp

        return slurm_jobcomp.read
    if head.startswith(b"JobID") or (head.startswith(b"{") and b'"association"' in data and b'"meta"' in data):
        from pilothouse.formats import slurm_sacct

        return slurm_sacct.read
    if _PBS.match(head):
        from pilothouse.formats import pbs_log

        return pbs_log.read
    if _LSF.match(head):
        from pilothouse.formats import lsf_log

        return lsf_log.read
    if head.startswith(b"{") and _FLUX.search(data):
        from pilothouse.formats import flux_jobs

        return flux_jobs.read
    return None

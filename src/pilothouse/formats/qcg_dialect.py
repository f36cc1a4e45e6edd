"""The two dialects of QCG requests: that of the specification (2018) and that of qcg-pilotjob 0.14.

A manager speaks one of them, which its user chooses; it is never guessed from a request. Everything that differs between the
two is a field of `Dialect`, so that readers, answers, reports and the environment of jobs ask this one table.
"""

from __future__ import annotations

import msgspec

from pilothouse.model.errors import InputError, quoted


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between the two dialects."""

    name: str
    # ---- requests
    loops_are_jobs: bool
    """`iterate`: each index is a job of its own. Else `iteration`: one job with iterations `name:index`."""
    sizes_required: bool
    """`resources` and `dependencies.after` must be there, and a size is a dictionary. Else one core is the default."""
    split_inside: bool
    """`split-into` is a key of a size. Else sizes may have a `scheduler`."""
    open_ranges: bool
    """A range may have one end only."""
    any_name: bool
    """Names may hold blanks, quotes and unknown variables."""
    one_name: bool
    """`jobName` names the job of a request. (`jobNames` is understood in both dialects.)"""
    # ---- jobs
    too_large_fails: bool
    """A job larger than the allocation fails and the others run. Else its request is refused."""
    first_name_stays: bool
    """If one request has a name twice it is refused, but the first job of each name runs. Else nothing of it runs."""
    stdin_in_root: bool
    """Relative paths of stdin start in the manager's working directory. Else in the job's."""
    machine_files: bool
    """Parallel jobs get a host file and a run configuration everywhere. Else a host file, inside Slurm."""
    counts_per_node: bool
    """Variables with counts per node have one number for each node. Else Slurm's short form, `2(x2)`."""
    # ---- the manager
    waits_at_end_of_file: bool
    """Without a control request, the end of a request file means: wait for the jobs. Else: finish."""
    finish_delay_s: float
    """How long a manager goes on, and accepts jobs, after `finish`."""
    # ---- answers and reports
    scheduled_state: bool
    """There is a state SCHEDULED between QUEUED and EXECUTING."""
    plain_answers: bool
    """Answers to submit, listJobs, resourcesInfo and status requests in the specification's form; `node:cores` as place."""
    files_in_wd: bool
    """service.log and jobs.report are in the working directory."""
    report_format: str


SPECIFICATION = Dialect(
    name="2018", loops_are_jobs=True, sizes_required=True, split_inside=True, open_ranges=True, any_name=True,
    one_name=True, too_large_fails=True, first_name_stays=True, stdin_in_root=True,
    machine_files=True, counts_per_node=True, waits_at_end_of_file=False, finish_delay_s=0.0, scheduled_state=False,
    plain_answers=True, files_in_wd=True, report_format="text",
)  # fmt: skip
LATER = Dialect(
    name="0.14", loops_are_jobs=False, sizes_required=False, split_inside=False, open_ranges=False, any_name=False,
    one_name=False, too_large_fails=False, first_name_stays=False, stdin_in_root=False,
    machine_files=False, counts_per_node=False, waits_at_end_of_file=True, finish_delay_s=2.0, scheduled_state=True,
    plain_answers=False, files_in_wd=False, report_format="json",
)  # fmt: skip
DIALECTS = {dialect.name: dialect for dialect in (SPECIFICATION, LATER)}


def named(name: str) -> Dialect:
    """The dialect of that name. Raises InputError."""
    if name not in DIALECTS:
        raise InputError("dialect", "unknown", expected=" or ".join(DIALECTS), found=quoted(name))
    return DIALECTS[name]

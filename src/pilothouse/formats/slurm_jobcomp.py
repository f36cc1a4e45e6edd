"""The file of `JobCompType=jobcomp/filetxt`: one line of `Key=value` pairs for each job that ended.

Values may hold blanks (names of jobs do), so a line is cut at the keys that Slurm writes. The file tells neither the CPUs that
were asked for nor dependencies; CPUs are those that the job had. A requeued run has the state PENDING and no nodes: it is
counted as an earlier run whose length is not known.
"""

from __future__ import annotations

from pathlib import Path

from pilothouse.formats import slurm_fields as fields
from pilothouse.formats.accounting import AccountedJob, workload
from pilothouse.formats.text_input import read_bytes
from pilothouse.formats.workload import Workload
from pilothouse.model.errors import InputError, quoted

KEYS = (
    *("JobId", "UserId", "GroupId", "Name", "JobState", "Partition", "TimeLimit", "StartTime", "EndTime", "NodeList"),
    *("NodeCnt", "ProcCnt", "WorkDir", "ReservationName", "Gres", "Tres", "Account", "QOS", "WcKey", "Cluster"),
    *("SubmitTime", "EligibleTime", "ArrayJobId", "ArrayTaskId", "HetJobId", "HetJobOffset", "DerivedExitCode", "ExitCode"),
)


def read(path: str | Path, name: str = "w0", *, units: int = 0) -> Workload:
    """Reads a log. Larger jobs than `units` CPUs are left out."""
    rows = []
    for number, line in enumerate(read_bytes(path).decode("utf-8", "replace").split("\n"), 1):
        if not line.strip():
            continue
        found = fields.record(line, KEYS)
        if "JobId" not in found or "JobState" not in found:
            raise InputError(f"{path}:{number}", "not a line of jobcomp/filetxt", expected="JobId=...", found=quoted(line))
        rows.append(_row(found))
    return workload(rows, path, name, units=units)


def _row(found: dict[str, str]) -> AccountedJob:
    minutes = fields.count(found.get("TimeLimit", ""))
    task = found.get("ArrayTaskId", "")
    return AccountedJob(
        f"{found['ArrayJobId']}_{task}" if "ArrayJobId" in found and task.isdigit() else found["JobId"],
        fields.fate(found["JobState"]),
        fields.count(found.get("ProcCnt", "")),
        fields.date(found.get("SubmitTime", "")),
        fields.date(found.get("EligibleTime", "")),
        fields.date(found.get("StartTime", "")),
        fields.date(found.get("EndTime", "")),
        limit_s=minutes * 60.0 if minutes is not None else fields.time_limit(found.get("TimeLimit", "")),
        user=found.get("UserId", "").partition("(")[0],
    )

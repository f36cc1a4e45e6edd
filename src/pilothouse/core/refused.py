"""Wrong decisions in a world that outlives them: each costs one job at most.

A simulation ends with an error when its decider makes a wrong decision. A resource manager must go on: other users' jobs
wait. There (`Begins.survives_refusals`) the Cluster passes refused decisions to `Refused.add`. A job whose start was refused
keeps waiting, with a note; after MOST_REFUSALS refusals in a row it is rejected. Other wrong decisions are dropped.
`starts` and `warnings` are for the owner of the turn: the decider has to hear what became of the job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilothouse.model import decisions as d
from pilothouse.model.job import Job

if TYPE_CHECKING:
    from pilothouse.core.check import Refusal
    from pilothouse.core.cluster import Cluster

MOST_REFUSALS = 3
"""A job is rejected when its start was refused so many times."""
MOST_JOBS = 10_000
"""Limit of jobs whose refusals are counted."""
MOST_WARNINGS = 1000


class Refused:
    """The refused decisions of one run."""

    def __init__(self) -> None:
        self.starts: list[tuple[d.StartJob, Job]] = []
        """Refused starts of this turn, and their jobs, which wait or have just been rejected."""
        self.warnings: list[str] = []
        self._counts: dict[str, int] = {}

    def add(self, cluster: Cluster, decision: d.Decision, refusal: Refusal) -> None:
        """Takes note of a wrong decision; books what follows for its job."""
        problem = f"{cluster.decider}: {refusal.rule}: {refusal.detail}"
        if len(self.warnings) < MOST_WARNINGS:
            self.warnings.append(f"refused a {type(decision).__name__}: {problem}")
        if type(decision) is not d.StartJob or decision.job_id not in cluster.waiting:
            return
        job_id = decision.job_id
        self.starts.append((decision, cluster.waiting[job_id]))
        count = self._counts.pop(job_id, 0) + 1
        if count >= MOST_REFUSALS:
            cluster.book(d.RejectJob(cluster.now, job_id, f"refused {count} times: {problem}"))
            return
        if len(self._counts) >= MOST_JOBS:
            self._counts.clear()
        self._counts[job_id] = count
        note = f"a decision about it was refused ({problem}); it is tried again"
        cluster.book(d.Annotate(cluster.now, job_id, {"sched": {"reason_pending": note}}))

    def take_starts(self) -> list[tuple[d.StartJob, Job]]:
        starts, self.starts = self.starts, []
        return starts

    def take_warnings(self) -> list[str]:
        warnings, self.warnings = self.warnings, []
        return warnings

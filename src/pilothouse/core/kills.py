"""Kills that a decider asked for and whose jobs have not all ended. For worlds in which jobs need time to end.

In: KillJobs, and the ends of jobs. Out: one JobsKilled for each KillJobs, when the last of its jobs has ended. Jobs that
had ended before count as killed: they have no progress.
"""

from __future__ import annotations

from collections.abc import Container

from pilothouse.model.decisions import KillJobs
from pilothouse.model.events import JobsKilled


class PendingKills:
    def __init__(self) -> None:
        self._open: list[tuple[set[str], tuple[str, ...]]] = []
        """For each KillJobs: its jobs that have not ended, and all of its jobs."""

    def __bool__(self) -> bool:
        return bool(self._open)

    def ask(self, decision: KillJobs, alive: Container[str], now: float) -> list[JobsKilled]:
        self._open.append(({job_id for job_id in decision.job_ids if job_id in alive}, decision.job_ids))
        return self.ended("", now)

    def ended(self, job_id: str, now: float) -> list[JobsKilled]:
        """A job has ended: the kills that are done now."""
        for left, _ in self._open:
            left.discard(job_id)
        done = [JobsKilled(now, names, {}) for left, names in self._open if not left]
        self._open = [kill for kill in self._open if kill[0]]
        return done

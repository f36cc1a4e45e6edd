"""Jobs that wait for other jobs. Sans-IO.

A live world holds such a job back itself (core/contract.py), so that deciders without a word for dependencies can
drive it. A job whose predecessor did not succeed is omitted, and so are those that wait for it.
"""

from __future__ import annotations

from pilothouse.model.job import Job
from pilothouse.model.lifecycle import Stimulus
from pilothouse.worlds.live.driver.task_groups import TaskGroup


class Dependencies:
    """Who waits for whom among the submitted jobs."""

    def __init__(self) -> None:
        self._succeeded: dict[str, bool] = {}
        self._missing: dict[str, set[str]] = {}
        self._groups: dict[str, TaskGroup] = {}
        self._waiting_for: dict[str, list[str]] = {}

    @property
    def waiting(self) -> int:
        return len(self._groups)

    def add(self, job: Job, group: TaskGroup) -> Stimulus:
        """What becomes of a new job: QUEUED, HELD or OMITTED."""
        if any(self._succeeded.get(other) is False for other in job.after):
            return Stimulus.OMITTED
        missing = {other for other in job.after if other not in self._succeeded}
        if not missing:
            return Stimulus.QUEUED
        self._missing[job.id] = missing
        self._groups[job.id] = group
        for other in missing:
            self._waiting_for.setdefault(other, []).append(job.id)
        return Stimulus.HELD

    def remove(self, job_id: str) -> TaskGroup | None:
        """Takes back a job that is held."""
        self._missing.pop(job_id, None)
        return self._groups.pop(job_id, None)

    def ended(self, job_id: str, *, succeeded: bool) -> tuple[list[TaskGroup], list[TaskGroup]]:
        """TaskGroups that may be queued now, and groups that never will be."""
        self._succeeded[job_id] = succeeded
        free: list[TaskGroup] = []
        omitted: list[TaskGroup] = []
        for waiting in self._waiting_for.pop(job_id, ()):
            missing = self._missing.get(waiting)
            if missing is None:
                continue
            missing.discard(job_id)
            if not succeeded or not missing:
                del self._missing[waiting]
                (omitted if not succeeded else free).append(self._groups.pop(waiting))
        return free, omitted

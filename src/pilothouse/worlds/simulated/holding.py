"""Jobs that wait for other jobs: which may be submitted, which must be held, which never will run."""

from __future__ import annotations

from collections.abc import Iterable

from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState


class Holding:
    """`active` is False where no job depends on another: then nothing here costs anything."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        known: set[str] = set()
        needed: set[str] = set()
        for job in jobs:
            if job.after:
                needed.update(job.after)
        self.active = bool(needed)
        if self.active:
            known = {job.id for job in jobs}
        self.held: dict[str, Job] = {}
        self._missing: dict[str, set[str]] = {}
        self._outcome: dict[str, JobState] = dict.fromkeys(needed - known, JobState.OMITTED)
        self._needed = needed
        self._hopeless: list[Job] = []

    def admit(self, job: Job) -> bool:
        """Whether all jobs that this one waits for have succeeded; if not, it is held (unless it is hopeless)."""
        missing = {name for name in job.after if self._outcome.get(name) is not JobState.SUCCEEDED}
        if not missing:
            return True
        if not self.is_hopeless(job):
            self.held[job.id] = job
            self._missing[job.id] = missing
        return False

    def is_hopeless(self, job: Job) -> bool:
        """Whether a job that this one waits for has ended without success, or does not exist."""
        return any(self._outcome.get(name, JobState.SUCCEEDED) is not JobState.SUCCEEDED for name in job.after)

    def ended(self, job_id: str, state: JobState) -> list[Job]:
        """Takes note of an end; returns the held jobs that it sets free."""
        if job_id not in self._needed:
            return []
        self._outcome[job_id] = state
        freed = []
        for name in [name for name, missing in self._missing.items() if job_id in missing]:
            if state is not JobState.SUCCEEDED:
                self._hopeless.append(self.held.pop(name))
                del self._missing[name]
                continue
            self._missing[name].discard(job_id)
            if not self._missing[name]:
                del self._missing[name]
                freed.append(self.held.pop(name))
        return freed

    def take_hopeless(self) -> list[Job]:
        """The held jobs that an end has made impossible."""
        hopeless, self._hopeless = self._hopeless, []
        return hopeless

"""What a session leaves on disk while it goes on, so that views can follow it: jobs that have ended, and what runs and waits.

In: a Session, as an observer that is called after every turn. Out: PREFIX + now.json (views/session_now.py), about once a
second and never for more than a hundredth of the time; jobs.csv is flushed with it. `EndedJobs` makes the records of a world that
makes none itself (a Slurm, a Flux, a Batsim).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import chain, islice
from math import inf
from pathlib import Path

import msgspec

from pilothouse.access.files import write_whole
from pilothouse.core.explain import why_waiting
from pilothouse.core.session import Outcome, Session
from pilothouse.launch.outputs import Outputs
from pilothouse.model.events import Batch, JobEnded, JobSubmitted
from pilothouse.model.job import Job
from pilothouse.model.record import JobRecord
from pilothouse.views.session_now import MOST, MOST_REASONS, NAME, PresentJob, SessionNow

EVERY_S = 1.0
PAUSE_FACTOR = 100.0
MOST_SKIPPED = 4096
"""Turns after which the clock is looked at again, where turns are quick."""


class NowFile:
    """`session` is the one that is run and calls `observe` after each turn; `flush` writes ended jobs to their files."""

    def __init__(self, prefix: str, flush: Callable[[], None]) -> None:
        self.session: Session | None = None
        self._path = Path(prefix + NAME)
        self._flush = flush
        self._skip = 0
        self._looked_at = time.monotonic()
        self._write_at = self._looked_at + EVERY_S
        self._skipped = 1

    def observe(self, batch: Batch) -> None:
        """Costs a hundredth of a quick simulation: as `__call__` it cost twice as much."""
        self._skip -= 1
        if self._skip > 0:
            return
        now = time.monotonic()
        # So many turns as take a tenth of the interval.
        per_turn_s = (now - self._looked_at) / self._skipped
        self._skip = self._skipped = int(max(1, min(MOST_SKIPPED, 2 * self._skipped, 0.1 * EVERY_S / max(per_turn_s, 1e-9))))
        self._looked_at = now
        if now >= self._write_at:
            self._flush()
            self._write(batch.now)
            took_s = time.monotonic() - now
            self._write_at = now + max(EVERY_S, PAUSE_FACTOR * took_s)

    def _write(self, now: float) -> None:
        assert self.session is not None
        cluster = self.session.cluster
        reasons = {job.id: why_waiting(cluster, job)[1] for job in islice(cluster.waiting.values(), MOST_REASONS)}
        held = (
            _present(run.job, run.started_at, run.units.to_text()) for run in islice(cluster.running.values(), MOST)
        )
        queue = (_present(job, why=reasons.get(job.id, "")) for job in islice(cluster.waiting.values(), MOST))
        found = SessionNow(
            now, cluster.total, cluster.free, len(cluster.waiting), len(cluster.running), list(chain(held, queue))
        )
        write_whole(self._path, msgspec.json.encode(found), mode=0o644)

    def close(self) -> None:
        self._path.unlink(missing_ok=True)


def both(one: Callable[[Batch], None], other: Callable[[Batch], None]) -> Callable[[Batch], None]:
    """An observer that is two."""

    def observe(batch: Batch) -> None:
        one(batch)
        other(batch)

    return observe


def _present(job: Job, started_at: float | None = None, units: str = "", why: str = "") -> PresentJob:
    walltime = None if job.walltime == inf else job.walltime
    return PresentJob(job.id, job.submitted_at, job.units, walltime, job.user, started_at, units, why)


class EndedJobs:
    """An observer that makes a record of every job that ends in a world."""

    def __init__(self, session: Session, record: Callable[[JobRecord], None]) -> None:
        self._session = session
        self._record = record
        self._jobs: dict[str, Job] = {}
        self._started: dict[str, float] = {}

    def __call__(self, batch: Batch) -> None:
        for event in batch.events:
            if type(event) is JobSubmitted:
                self._jobs[event.job.id] = event.job
            elif type(event) is JobEnded and (job := self._jobs.pop(event.job_id, None)) is not None:
                start = self._started.pop(event.job_id, None)
                self._record(JobRecord(job, event.state, start, event.at, event.units, event.return_code))
        for job_id, run in self._session.cluster.running.items():
            if job_id not in self._started:
                self._started[job_id] = run.started_at
                self._jobs.setdefault(job_id, run.job)


def run_recorded(session: Session, prefix: str) -> Outcome:
    """Runs a session in a world that writes nothing itself, with the files of a simulation."""
    outputs = Outputs(prefix)
    now_file = NowFile(prefix, outputs.flush)
    now_file.session = session
    ended = EndedJobs(session, outputs.record)
    outputs.describe(decider=session.name, steering=True)
    units, complete = 0, False

    def observe(batch: Batch) -> None:
        nonlocal units
        units = session.cluster.total
        ended(batch)
        now_file.observe(batch)

    try:
        outcome = session.run(observe)
        complete = True
        return outcome
    finally:
        now_file.close()
        outputs.close(units, complete=complete)

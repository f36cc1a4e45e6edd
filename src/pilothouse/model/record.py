"""What is remembered of a job when it has ended: the row that outputs, metrics and views are made of."""

from __future__ import annotations

import msgspec

from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState


class JobRecord(msgspec.Struct, eq=False, gc=False):
    """`started_at` is None for a job that never started."""

    job: Job
    state: JobState
    started_at: float | None
    ended_at: float
    units: IdSet
    return_code: int = 0
    energy_j: float | None = None
    metadata: str = ""
    execution_s: float | None = None
    """How long it ran, where that is told otherwise than by its dates (Batsim lets no job run for 0 seconds)."""

"""Finished jobs as JSON lines: one object a job, every field under its plain name."""

from __future__ import annotations

from math import inf
from typing import TextIO

import msgspec

from pilothouse.model.record import JobRecord


class JobsJsonl:
    """Writes a line as each job ends."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._encode = msgspec.json.Encoder().encode

    def write_all(self, records: list[JobRecord]) -> None:
        for record in records:
            self._write(record)

    def _write(self, record: JobRecord) -> None:
        job = record.job
        line = {
            "id": job.id,
            "profile": job.profile.name if job.profile is not None else None,
            "units": job.units,
            "walltime": None if job.walltime == inf else job.walltime,
            "user": job.user,
            "submitted_at": job.submitted_at,
            "started_at": record.started_at,
            "ended_at": None if record.started_at is None else record.ended_at,
            "state": record.state.value,
            "return_code": record.return_code,
            "allocated": record.units.to_text(),
            "energy_j": record.energy_j,
            "metadata": record.metadata,
        }
        self._stream.write(self._encode(line).decode() + "\n")

    def close(self) -> None:
        self._stream.close()

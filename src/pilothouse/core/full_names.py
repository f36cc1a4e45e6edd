"""Full names: schedulers that know jobs as `workload!name` drive worlds whose jobs have plain names.

`Names.out` turns the ids of a batch into full ones, `Names.back` those of a reply into ours again. Where ids are full already
(simulated workloads) nothing is touched and nothing costs.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import msgspec

from pilothouse.model.decisions import Decision, Reply
from pilothouse.model.events import Batch, Event
from pilothouse.model.job import Job

WORKLOAD = "w0!"


class Names:
    """The names of one run; `active` from the first job on whose id is not full."""

    def __init__(self) -> None:
        self.active = False

    def out(self, batch: Batch) -> Batch:
        if not self.active:
            jobs = [job for job in map(_job_of, batch.events) if job is not None]
            self.active = any("!" not in job.id for job in jobs)
            if not self.active:
                return batch
        return Batch(batch.now, [self._renamed(event, _full) for event in batch.events], batch.waits)

    def back(self, reply: Reply) -> Reply:
        if not self.active:
            return reply
        return Reply(reply.now, [self._renamed(order, _plain) for order in reply.decisions])

    @staticmethod
    def _renamed(said: Event | Decision, rename: Any) -> Any:
        """A copy with every id of a job renamed."""
        changes: dict[str, object] = {}
        if hasattr(said, "job_id"):
            changes["job_id"] = rename(said.job_id)
        if hasattr(said, "job_ids"):
            changes["job_ids"] = tuple(map(rename, said.job_ids))
        for field in ("progress", "priorities"):
            values = getattr(said, field, None)
            if isinstance(values, dict):
                changes[field] = {rename(job_id): value for job_id, value in values.items()}
        job = _job_of(said)
        if job is not None:
            changes["job"] = msgspec.structs.replace(job, id=rename(job.id))
        return msgspec.structs.replace(said, **changes) if changes else said


def plain_name(job_id: str, known: Container[str]) -> str:
    """The name under which a job is known here, given the one that a scheduler knows."""
    return job_id if job_id in known else job_id.removeprefix(WORKLOAD)


def _job_of(said: Event | Decision) -> Job | None:
    job = getattr(said, "job", None)
    return job if isinstance(job, Job) else None


def _full(job_id: str) -> str:
    return job_id if "!" in job_id else WORKLOAD + job_id


def _plain(job_id: str) -> str:
    return job_id.removeprefix(WORKLOAD)

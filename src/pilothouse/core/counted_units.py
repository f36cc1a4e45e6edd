"""Placement for deciders whose protocol knows numbers of units and nothing else (Batsim): we choose the units of jobs with a
shape.

The decider is told of a job that asks for so many units. When it starts the job, core/place.py chooses the units: nodes,
GPUs and constraints as asked. From then on the decider's units are not ours, so any start whose units are not free is
placed here as well; events name the units that the decider chose. A start that does not fit yet is held. The units that
the first held job will get are kept free for it. A job that no state of the cluster could hold is rejected with the reason,
and the decider never hears of it.

Nothing of this happens before the first job with a shape is submitted.
"""

from __future__ import annotations

import msgspec

from pilothouse.core import place
from pilothouse.core.check import refuse_start
from pilothouse.core.cluster import Cluster
from pilothouse.core.held_starts import HeldStarts, killed
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.answers import Never
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.masks import first_block, lowest_bits


class CountedUnits:
    """What one decider chose, and where it really is."""

    def __init__(self, cluster: Cluster) -> None:
        self.active = False
        """A job with a shape was submitted: from then on batches and decisions go through here."""
        self._cluster = cluster
        self._chosen: dict[str, IdSet] = {}
        """The units that the decider chose for running jobs, where they are others than ours."""
        self._held = HeldStarts()

    # ---- events

    def events(self, batch: e.Batch) -> tuple[e.Batch, list[d.Decision]]:
        """The batch in terms of numbers, and decisions that are made for the decider."""
        told = self._held.take_later()
        own: list[d.Decision] = []
        for event in batch.events:
            if isinstance(event, e.JobSubmitted) and event.job.shape is not None:
                told += self._submitted(event, own)
            elif isinstance(event, e.JobEnded | e.JobRequeued):
                told.append(self._ended(event))
            elif isinstance(event, e.JobWithdrawn) and (ended := self._held.end(event.at, event.job_id)) is not None:
                own.append(d.ConfirmWithdrawal(event.at, event.job_id))
                told.append(ended)
            elif not (isinstance(event, e.UnitsFreed) and event.job_id in self._chosen):
                told.append(event)
        return e.Batch(batch.now, told, batch.waits), own

    def _submitted(self, event: e.JobSubmitted, own: list[d.Decision]) -> list[e.Event]:
        job, cluster = event.job, self._cluster
        never = cluster.could_ever_run(job)
        if never is not None:
            own.append(d.RejectJob(event.at, job.id, never.reason))
            return []
        units = min(place.least_units(cluster, job), cluster.total)
        return [e.JobSubmitted(event.at, msgspec.structs.replace(job, units=units, most_units=0, shape=None))]

    def _ended(self, event: e.JobEnded | e.JobRequeued) -> e.Event:
        chosen = self._chosen.pop(event.job_id, None)
        if chosen is None or isinstance(event, e.JobRequeued):
            return event
        return msgspec.structs.replace(event, units=chosen)

    # ---- decisions

    def decisions(self, decision: d.Decision) -> list[d.Decision]:
        """The decision with units that suit the job; none if it has to wait."""
        if isinstance(decision, d.StartJob):
            job = self._cluster.waiting.get(decision.job_id)
            return [decision] if job is None or job.id in self._held else self._start(job, decision)
        if isinstance(decision, d.KillJobs) and not self._held.keys().isdisjoint(decision.job_ids):
            return self._held.kill(decision, "killed by the scheduler before it could start")
        return [decision]

    def released(self, now: float) -> d.Decision | None:
        """The start of the first held job that fits now."""
        avoid = 0
        for job_id, decision in self._held.items():
            job = self._cluster.waiting.get(job_id)
            placed = None if job is None else self._placed(job, decision, avoid)
            if placed is not None or job is None:
                del self._held[job_id]
                return placed or self.released(now)
            if not avoid:
                avoid = self._reserved(job)
        return None

    def _start(self, job: Job, decision: d.StartJob) -> list[d.Decision]:
        if job.shape is None:
            given = len(decision.units)
            unmoved = not self._held and refuse_start(self._cluster, decision) is None
            if unmoved or given < job.units or given > max(job.most_units, job.units):
                return [decision]  # A wrong number is the decider's mistake.
        first = next(iter(self._held), None)
        placed = self._placed(job, decision, 0 if first is None else self._reserved(self._cluster.waiting[first]))
        if placed is None:
            self._held[job.id] = decision
            return []
        return [placed]

    def _placed(self, job: Job, decision: d.StartJob, avoid: int) -> d.Decision | None:
        cluster = self._cluster
        if job.shape is None:
            free, count = cluster.free_mask & ~avoid, len(decision.units)
            found = (first_block(free, count) or lowest_bits(free, count)) if free.bit_count() >= count else None
        else:
            answer = place.choose(cluster, job, least=True, avoid=avoid)
            if isinstance(answer, Never):
                self._held.later.append(killed(cluster.now, job.id, decision.units))
                return d.RejectJob(cluster.now, job.id, answer.reason)
            found = answer if isinstance(answer, int) else None
        if found is None:
            return None
        self._chosen[job.id] = decision.units
        return d.StartJob(max(decision.at, cluster.now), job.id, IdSet(found))

    def _reserved(self, job: Job) -> int:
        """The units that a held job gets when all running jobs have ended; 0: it waits for nodes that are not there."""
        cluster = self._cluster
        if job.shape is None:
            return 0
        found = cluster.when_fits(job, [(0.0, job_id) for job_id in cluster.running])
        return 0 if found is None else found[1]

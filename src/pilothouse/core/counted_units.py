"""Placement for deciders whose protocol knows numbers of units and nothing else (Batsim): we choose the units of jobs with a
shape. For those that know all but memory (Flux), starts wait for memory.

The decider is told of a job that asks for so many units. When it starts the job, core/place.py chooses the units: nodes,
GPUs and constraints as asked. From then on the decider's units are not ours, so any start whose units are not free is
placed here as well; events name the units that the decider chose. A start that does not fit yet is held. The units that
the first held job will get are kept free for it. A job that no state of the cluster could hold is rejected with the reason,
and the decider never hears of it.

A decider that knows all but memory keeps its units: a start for which a node has not enough memory left is held, and those
behind it that ask for memory as well. The decider takes it for running, so that its units stay its own.

Nothing of this happens before the first such job is submitted. In a world that outlives wrong decisions
(Begins.survives_refusals) two more things begin it for deciders that only count: units that are unavailable, which such
deciders are not told of (many schedulers end when a machine is gone), and jobs that ran before the decider joined, which it
never hears of.
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

    def __init__(self, cluster: Cluster, *, shapes: bool) -> None:
        """`shapes`: the decider knows all but memory."""
        begins = cluster.begins
        self.hides_absence = begins.survives_refusals and not shapes
        """The decider is not told of units that are unavailable, nor of jobs that ran before."""
        self.active = self.hides_absence and bool(begins.running or begins.unavailable)
        """Something was told that the decider has no words for: from then on batches and decisions go through here."""
        self._unknown = {run.job.id for run in begins.running} if self.hides_absence else set()
        """Jobs that the decider was never told of."""
        self._shapes = shapes
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
            if self.hides_absence and isinstance(event, e.UnitsAvailable | e.UnitsUnavailable):
                continue
            if self.hides_absence and isinstance(event, e.JobHolds):
                if event.job_id not in self._chosen:
                    self._unknown.add(event.job_id)
            elif getattr(event, "job_id", None) in self._unknown:
                told += self._of_unknown(event, own)
            elif isinstance(event, e.JobSubmitted) and (self._asks_more(event.job) or event.job.id in self._unknown):
                told += self._submitted(event, own)
            elif isinstance(event, e.JobEnded | e.JobRequeued):
                told.append(self._ended(event))
            elif isinstance(event, e.JobWithdrawn) and (ended := self._held.end(event.at, event.job_id)) is not None:
                own.append(d.ConfirmWithdrawal(event.at, event.job_id))
                told.append(ended)
            elif not (isinstance(event, e.UnitsFreed) and event.job_id in self._chosen):
                told.append(event)
        return e.Batch(batch.now, told, batch.waits), own

    def begins_with(self, event: e.Event) -> bool:
        """Whether the decider has no words for this event."""
        if isinstance(event, e.JobSubmitted):
            return event.job.shape is not None
        return self.hides_absence and isinstance(event, e.UnitsUnavailable | e.JobHolds)

    def _of_unknown(self, event: e.Event, own: list[d.Decision]) -> list[e.Event]:
        """Events about jobs that the decider was never told of. One that waits again is told as submitted."""
        if isinstance(event, e.JobWithdrawn):
            own.append(d.ConfirmWithdrawal(event.at, event.job_id))
        elif isinstance(event, e.JobRequeued) and event.job_id in self._cluster.waiting:
            return self._submitted(e.JobSubmitted(event.at, self._cluster.waiting[event.job_id]), own)
        return []

    def _asks_more(self, job: Job) -> bool:
        """Whether a job asks for what the decider's protocol has no word for."""
        return job.shape is not None and (not self._shapes or job.shape.has_memory)

    def _submitted(self, event: e.JobSubmitted, own: list[d.Decision]) -> list[e.Event]:
        job, cluster = event.job, self._cluster
        self._unknown.discard(job.id)
        if job.shape is None:
            return [event]
        never = cluster.could_ever_run(job)
        if never is not None:
            own.append(d.RejectJob(event.at, job.id, never.reason))
            return []
        if self._shapes:
            shape = msgspec.structs.replace(job.shape, memory_mb_per_node=0, memory_mb_per_chunk=0)
            return [e.JobSubmitted(event.at, msgspec.structs.replace(job, shape=shape))]
        units = place.least_units(cluster, job)
        asked = msgspec.json.encode({name: value for name, value in msgspec.structs.asdict(job.shape).items() if value}).decode()
        told = msgspec.structs.replace(job, units=units, most_units=0, shape=None, extra_data=job.extra_data or asked)
        return [e.JobSubmitted(event.at, told)]

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
                avoid = -1 if self._shapes else self._reserved(job)
        return None

    def _start(self, job: Job, decision: d.StartJob) -> list[d.Decision]:
        if self._shapes:
            if not self._asks_more(job) or (not self._held and self._has_memory(job, decision)):
                return [decision]
            self._held[job.id] = decision
            return []
        if job.shape is None:
            given = len(decision.units)
            unmoved = not self._held and refuse_start(self._cluster, decision) is None
            if unmoved or given < job.units or given > max(job.most_units, job.units):
                if self.hides_absence:
                    self._chosen[job.id] = decision.units
                return [decision]  # A wrong number is the decider's mistake.
        waiting = self._cluster.waiting
        first = next((waiting[job_id] for job_id in self._held if job_id in waiting), None)
        placed = self._placed(job, decision, 0 if first is None else self._reserved(first))
        if placed is None:
            self._held[job.id] = decision
            return []
        return [placed]

    def _has_memory(self, job: Job, decision: d.StartJob) -> bool:
        """Whether a start is held back by nothing, or by something else than memory, which is the decider's mistake."""
        cluster = self._cluster
        return refuse_start(cluster, decision) is None or refuse_start(cluster, decision, memory=False) is not None

    def _placed(self, job: Job, decision: d.StartJob, avoid: int) -> d.Decision | None:
        cluster = self._cluster
        if self._shapes:
            decision.at = max(decision.at, cluster.now)
            return decision if not avoid and self._has_memory(job, decision) else None
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

"""A Flux instance as our events, and our decisions as Flux's: the pure half of the World.

In: events of the scheduler engine, decisions of a decider. Out: events, and calls of the engine. It remembers which job is
which, what each holds, and, over a lost connection, what the decider has been told.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from math import inf
from typing import Any

import msgspec

from pilothouse.core.cluster import Cluster
from pilothouse.formats.jobspec import Jobspec
from pilothouse.formats.resource_set import ResourceSet
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import InputError, RunError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.protocols.rfc27 import job_conversion
from pilothouse.protocols.rfc27 import scheduler_events as s
from pilothouse.protocols.rfc27.calls import Calls
from pilothouse.protocols.rfc27.machine import Machine
from pilothouse.protocols.rfc27.scheduler import SchedulerEngine

MOST_SPECS = 1024
"""So many different jobspecs are remembered: jobs of one script look alike."""


class _Known(msgspec.Struct, frozen=True):
    spec: Jobspec
    shape: Shape | None


class _Waiting(msgspec.Struct, gc=False):
    """A job that the manager asks for."""

    id: int
    job: Job
    slots: int
    told: bool = False
    """The decider has been told of this request: a decision that comes before that means an earlier one."""


class _Held(msgspec.Struct):
    """A job that has resources."""

    id: int
    units: IdSet
    gpus: tuple[tuple[int, int], ...]
    started_at: float


class SchedulerAdapter:
    """One Flux instance, over all its connections. `events` collects what the decider has to hear."""

    def __init__(self) -> None:
        self.machine: Machine
        self.engine: SchedulerEngine
        self.calls = Calls()
        self.events: list[e.Event] = []
        self.troubles: list[str] = []
        self.stopped = False
        self.asked_quiet: list[int] = []
        self.told_now: float | None = None
        """The date of a manager whose time is simulated: nothing happens between its questions."""
        self._waiting: dict[str, _Waiting] = {}
        self._held: dict[str, _Held] = {}
        self._strangers: dict[str, _Held] = {}
        """Jobs that held resources when a connection came back, and that the decider never heard of."""
        self._annotated: set[str] = set()
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._up = IdSet()
        self._fits: Cluster | None = None
        self._greeted: list[s.JobHolds] = []
        self._running: list[e.Running] = []
        """What was running when we first came."""
        self._began = False
        self._unsupported: set[type] = set()

    # ---- events

    def hear(self, now: float, events: list[s.Event]) -> None:
        for event in events:
            _HEARD[type(event)](self, now, event)

    def take_events(self) -> list[e.Event]:
        """What to tell next. A job that was taken back and asked for again is told of in two batches: a decision that
        answers the first can then not be mistaken for one that knows the second."""
        withdrawn: set[str] = set()
        cut = len(self.events)
        for index, event in enumerate(self.events):
            kind = type(event)
            if kind is e.JobWithdrawn:
                withdrawn.add(event.job_id)  # type: ignore[union-attr]
            elif kind is e.JobSubmitted:
                job_id = event.job.id  # type: ignore[union-attr]
                if job_id in withdrawn:
                    cut = index
                    break
                waiting = self._waiting.get(job_id)
                if waiting is not None and waiting.job is event.job:  # type: ignore[union-attr]
                    waiting.told = True
        taken, self.events = self.events[:cut], self.events[cut:]
        return taken

    def begins(self, now: float) -> e.Begins:
        """After the first handshake: what there is, and which jobs hold what."""
        down = self.machine.units_on(self.machine.inventory.rank_ids() - self._up)
        return e.Begins(
            nodes=self.machine.nodes(),
            time_waits=False,
            started_at=now,
            unavailable=down,
            running=tuple(self._running),
        )

    def _note_running(self) -> None:
        """The first handshake is done: what the manager says from here on is about jobs that we know."""
        for known in self._greeted:
            job_id, held = self._taken(known)
            self._held[job_id] = held
            walltime = known.resources.expiration_s - held.started_at if known.resources.expiration_s else inf
            job = Job(job_id, len(held.units), walltime, known.job.t_submit, priority=known.job.priority)
            job.user = str(known.job.userid)
            if held.gpus:
                # which rank has how many cannot be said of a job; the most of any is safe for all
                most = max(mask.bit_count() for _, mask in held.gpus)
                job.shape = Shape(nodes=len(known.resources.ranks), gpus_per_node=most)
            self._running.append(e.Running(job, held.units, held.started_at))
        self._greeted = []
        self._began = True

    def lost(self, now: float, reason: str) -> None:
        """The connection is gone: what waited will be asked for again, what runs goes on."""
        for job_id in self._waiting:
            self.events.append(e.JobWithdrawn(now, job_id))
        self._waiting.clear()
        self._annotated.clear()
        self.asked_quiet.clear()
        # a connection that never got to its hello knows nothing about who holds what
        for job_id, held in list(self._held.items()) if self.engine.was_online else ():
            if held.id not in self.engine.held:
                # granted, but the answer never left
                self._end(now, job_id, JobState.KILLED, reason)
        self._greeted = []

    def _hear_inventory(self, now: float, event: s.Inventory) -> None:
        self.told_now = event.now
        if self._began:
            known = [(r.rank, r.cores, r.gpus) for r in self.machine.inventory.ranks]
            if [(r.rank, r.cores, r.gpus) for r in event.resources.ranks] != known:
                raise RunError("the Flux instance came back with another inventory: start anew (or use --restart)")
            self._change_ranks(now, event.up, self.machine.inventory.rank_ids() - event.up)
        else:
            self.machine = Machine(event.resources)
            self._up = event.up

    def _hear_ranks(self, now: float, event: s.RanksChanged) -> None:
        self._change_ranks(now, event.up, event.down)
        if event.gone:
            units = self.machine.units_on(event.gone)
            names = tuple(node.name for node in self.machine.nodes_of(event.gone))
            self.events.append(e.NodesLeft(now, names, units))
            self._up -= event.gone
            self._fits = None

    def _change_ranks(self, now: float, up: IdSet, down: IdSet) -> None:
        """Only what is new is told."""
        came, went = up - self._up, down & self._up
        self._up = (self._up | up) - down
        if came:
            self.events.append(e.UnitsAvailable(now, self.machine.units_on(came)))
        if went:
            self.events.append(e.UnitsUnavailable(now, self.machine.units_on(went)))

    def _hear_properties(self, now: float, event: s.PropertiesChanged) -> None:
        properties = self.machine.properties
        touched = IdSet()
        for name, ranks in event.added.items():
            properties[name] = properties.get(name, IdSet()) | ranks
            touched |= ranks
        for name, ranks in event.removed.items():
            properties[name] = properties.get(name, IdSet()) - ranks
            touched |= ranks
        self._fits = None
        self.events.append(e.NodesJoined(now, self.machine.nodes_of(touched)))

    def _hear_instance_end(self, now: float, event: s.InstanceExpires) -> None:
        self.machine.ends_s = event.expiration_s

    def _hear_holds(self, now: float, event: s.JobHolds) -> None:
        self._greeted.append(event)

    def _hear_ready(self, now: float, event: s.Ready) -> None:
        """After a later handshake: compare what is held now with what the decider believes."""
        if not self._began:
            self._note_running()
            return
        greeted = {job_conversion.our_id(known.job.id): known for known in self._greeted}
        self._greeted = []
        for job_id in [job_id for job_id in self._held if job_id not in greeted]:
            self._end(now, job_id, JobState.SUCCEEDED, "it ended while nobody listened")
        for job_id in [job_id for job_id in self._strangers if job_id not in greeted]:
            self._end_stranger(now, job_id)
        for job_id, known in greeted.items():
            if job_id in self._held:
                self._give_back(now, job_id, known.resources)
            elif job_id not in self._strangers:
                _, held = self._taken(known)
                self._strangers[job_id] = held
                self.events.append(e.UnitsUnavailable(now, held.units))

    def _give_back(self, now: float, job_id: str, left: ResourceSet) -> None:
        """A job of ours holds only this any more: the rest came back while nobody listened."""
        held = self._held[job_id]
        freed = held.units - self.machine.units_in(left)
        if freed:
            self._free_part(now, job_id, freed, self.machine.inventory.rank_ids() - left.rank_ids())

    def _taken(self, known: s.JobHolds) -> tuple[str, _Held]:
        units = self.machine.units_in(known.resources)
        gpus = self.machine.gpus_in(known.resources)
        self.machine.take(gpus)
        return job_conversion.our_id(known.job.id), _Held(known.job.id, units, gpus, known.resources.start_s)

    def _hear_alloc(self, now: float, event: s.AllocAsked) -> None:
        try:
            known = self._recall(event.spec, event.source)
        except InputError as problem:
            self.engine.deny(event.id, str(problem))
            return
        job_id = job_conversion.our_id(event.id)
        job = job_conversion.to_job(job_id, known.spec, known.shape)
        job.submitted_at = event.submitted_s or now
        job.priority = event.priority
        job.user = str(event.userid)
        self._waiting[job_id] = _Waiting(event.id, job, known.spec.total_slots)
        self.events.append(e.JobSubmitted(now, job))

    def _recall(self, spec: Jobspec, source: bytes) -> _Known:
        known = self._known.get(source)
        if known is None:
            shape = job_conversion.shape_of(spec, self.machine.ranks_of_hosts() if spec.constraints else None)
            known = self._known[source] = _Known(spec, shape)
            if len(self._known) > MOST_SPECS:
                self._known.popitem(last=False)
        return known

    def _hear_cancel(self, now: float, event: s.AllocCanceled) -> None:
        job_id = job_conversion.our_id(event.id)
        if self._waiting.pop(job_id, None) is not None:
            self._annotated.discard(job_id)
            self.events.append(e.JobWithdrawn(now, job_id))

    def _hear_priorities(self, now: float, event: s.Prioritized) -> None:
        changed = {job_conversion.our_id(job_id): float(priority) for job_id, priority in event.jobs}
        self.events.append(e.PrioritiesChanged(now, changed))

    def _hear_freed(self, now: float, event: s.Freed) -> None:
        job_id = job_conversion.our_id(event.id)
        held = self._held.get(job_id)
        stranger = self._strangers.get(job_id)
        if stranger is not None and event.final:
            self._end_stranger(now, job_id)
        elif held is None:
            return
        elif event.final:
            self._end(now, job_id, JobState.SUCCEEDED, "")
        elif event.resources is not None:
            units = self.machine.units_in(event.resources) & held.units
            self._free_part(now, job_id, units, event.resources.rank_ids())

    def _free_part(self, now: float, job_id: str, units: IdSet, ranks: IdSet) -> None:
        held = self._held[job_id]
        self.machine.give_back(tuple(part for part in held.gpus if part[0] in ranks))
        held.gpus = tuple(part for part in held.gpus if part[0] not in ranks)
        held.units -= units
        self.events.append(e.UnitsFreed(now, job_id, units))

    def _hear_expiration(self, now: float, event: s.ExpirationChanged) -> None:
        job_id = job_conversion.our_id(event.id)
        held = self._held.get(job_id)
        if held is not None:
            walltime = event.expiration_s - held.started_at if event.expiration_s else inf
            self.events.append(e.WalltimeChanged(now, job_id, walltime))

    def _hear_feasibility(self, now: float, event: s.FeasibilityAsked) -> None:
        """Answered here, at once: no decider must be asked whether a job fits an empty machine."""
        try:
            known = self._recall(event.spec, event.source)
        except InputError as problem:
            self.engine.answer_feasibility(event.question, str(problem))
            return
        if self._fits is None:
            self._fits = Cluster(e.Begins(nodes=self.machine.nodes()), "feasibility")
        refusal = self._fits.could_ever_run(job_conversion.to_job("?", known.spec, known.shape))
        self.engine.answer_feasibility(event.question, refusal.reason if refusal is not None else "")

    def _hear_status(self, now: float, event: s.StatusAsked) -> None:
        allocated = IdSet()
        for held in (*self._held.values(), *self._strangers.values()):
            allocated |= held.units
        everything = self.machine.inventory.rank_ids()
        self.engine.answer_status(
            event.question,
            self.machine.part_of(self.machine.units_on(everything)),
            self.machine.part_of(allocated),
            self.machine.part_of(self.machine.units_on(everything - self._up)),
        )

    def _hear_quiesce(self, now: float, event: s.QuiesceAsked) -> None:
        self.asked_quiet.append(event.question)
        if event.now is not None:
            self.told_now = event.now
            for waiting in self.events:
                waiting.at = event.now

    def _hear_failed(self, now: float, event: s.Failed) -> None:
        """The shell sees to it: the connection is over."""

    def _end(self, now: float, job_id: str, state: JobState, reason: str) -> None:
        held = self._held.pop(job_id)
        self.machine.give_back(held.gpus)
        self.events.append(e.JobEnded(now, job_id, state, 0, held.units, reason))

    def _end_stranger(self, now: float, job_id: str) -> None:
        held = self._strangers.pop(job_id)
        self.machine.give_back(held.gpus)
        self.events.append(e.UnitsAvailable(now, held.units))

    # ---- decisions

    def apply(self, now: float, decisions: list[d.Decision]) -> None:
        for decision in decisions:
            kind = type(decision)
            carry_out = _DECISIONS.get(kind)
            if carry_out is not None:
                carry_out(self, now, decision)
            elif kind not in self._unsupported:
                self._unsupported.add(kind)
                self.troubles.append(f"Flux has no word for {kind.__name__}; such decisions are dropped")

    def _start(self, now: float, decision: d.StartJob) -> None:
        found = self._waiting.get(decision.job_id)
        if found is None or not found.told:
            # it was withdrawn while the decider thought: the decider believes it started, and must hear that it ended
            ended = e.JobEnded(now, decision.job_id, JobState.KILLED, 0, decision.units, "withdrawn before it could start")
            self.events.insert(0, ended)
            return
        del self._waiting[decision.job_id]
        job = found.job
        grant = self.machine.grant(job, decision.units, found.slots, now)
        self._held[decision.job_id] = _Held(found.id, decision.units, grant.gpus, now)
        notes: dict[str, Any] = {"resource_summary": grant.summary}
        if decision.job_id in self._annotated:
            self._annotated.discard(decision.job_id)
            # RFC 27, Alloc Success: what is not relevant any more may be deleted
            notes |= {"reason_pending": None, "t_estimate": None}
        if job.shape is not None and job.shape.queue:
            notes["queue"] = job.shape.queue
        self.engine.grant(found.id, grant.resources, {"sched": notes})

    def _reject(self, now: float, decision: d.RejectJob) -> None:
        found = self._waiting.get(decision.job_id)
        if found is not None and found.told:
            del self._waiting[decision.job_id]
            self._annotated.discard(decision.job_id)
            self.engine.deny(found.id, decision.reason or "the scheduler will never start it")

    def _annotate(self, now: float, decision: d.Annotate) -> None:
        found = self._waiting.get(decision.job_id)
        if found is not None:
            self._annotated.add(decision.job_id)
            self.engine.annotate(found.id, decision.notes)

    def _set_metadata(self, now: float, decision: d.SetMetadata) -> None:
        self._annotate(now, d.Annotate(decision.at, decision.job_id, {"user": {"metadata": decision.text}}))

    def _kill(self, now: float, decision: d.KillJobs) -> None:
        for job_id in decision.job_ids:
            held = self._held.get(job_id)
            if held is not None:
                self.engine.raise_exception(held.id, "cancel", "killed by the scheduler")

    def _call_at(self, now: float, decision: d.CallAt) -> None:
        self.calls.once(decision)

    def _call_every(self, now: float, decision: d.CallEvery) -> None:
        self.calls.every(decision, now)

    def _stop_calls(self, now: float, decision: d.StopCalls) -> None:
        self.calls.stop(decision)

    def _stop_world(self, now: float, decision: d.StopWorld) -> None:
        self.stopped = True

    def _nothing(self, now: float, decision: d.ConfirmWithdrawal) -> None:
        """The engine confirmed the cancel when it came."""


_HEARD: dict[type, Callable[[SchedulerAdapter, float, Any], None]] = {
    s.Inventory: SchedulerAdapter._hear_inventory,
    s.RanksChanged: SchedulerAdapter._hear_ranks,
    s.PropertiesChanged: SchedulerAdapter._hear_properties,
    s.InstanceExpires: SchedulerAdapter._hear_instance_end,
    s.JobHolds: SchedulerAdapter._hear_holds,
    s.Ready: SchedulerAdapter._hear_ready,
    s.AllocAsked: SchedulerAdapter._hear_alloc,
    s.AllocCanceled: SchedulerAdapter._hear_cancel,
    s.Prioritized: SchedulerAdapter._hear_priorities,
    s.Freed: SchedulerAdapter._hear_freed,
    s.ExpirationChanged: SchedulerAdapter._hear_expiration,
    s.FeasibilityAsked: SchedulerAdapter._hear_feasibility,
    s.StatusAsked: SchedulerAdapter._hear_status,
    s.QuiesceAsked: SchedulerAdapter._hear_quiesce,
    s.Failed: SchedulerAdapter._hear_failed,
}

_DECISIONS: dict[type, Callable[[SchedulerAdapter, float, Any], None]] = {
    d.StartJob: SchedulerAdapter._start,
    d.RejectJob: SchedulerAdapter._reject,
    d.Annotate: SchedulerAdapter._annotate,
    d.SetMetadata: SchedulerAdapter._set_metadata,
    d.KillJobs: SchedulerAdapter._kill,
    d.CallAt: SchedulerAdapter._call_at,
    d.CallEvery: SchedulerAdapter._call_every,
    d.StopCalls: SchedulerAdapter._stop_calls,
    d.StopWorld: SchedulerAdapter._stop_world,
    d.ConfirmWithdrawal: SchedulerAdapter._nothing,
}

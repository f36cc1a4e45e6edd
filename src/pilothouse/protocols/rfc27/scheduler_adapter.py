"""Translates between a Flux instance and our decider: the part of world.FluxWorld without sockets and clock.

In: events of the scheduler's end (scheduler.SchedulerEngine), and decisions. Out: our events, and calls of the
scheduler's end. It knows the id of each job in both worlds, the units that it holds, and, across lost connections, what
the decider has been told.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable
from math import inf
from typing import Any

import msgspec

from pilothouse.core.calls import Calls
from pilothouse.core.cluster import Cluster
from pilothouse.core.decision_table import WHAT, nothing, table
from pilothouse.core.kills import PendingKills
from pilothouse.formats import fluid, jobspec
from pilothouse.formats.jobspec import Jobspec
from pilothouse.formats.resource_set import ResourceSet
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import DecisionError, InputError, RunError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.protocols.rfc27 import job_conversion
from pilothouse.protocols.rfc27 import scheduler_events as s
from pilothouse.protocols.rfc27.frames import Message
from pilothouse.protocols.rfc27.job_conversion import our_id
from pilothouse.protocols.rfc27.machine import Machine
from pilothouse.protocols.rfc27.scheduler import SchedulerEngine

MOST_SPECS = 1024
"""Limit of different jobspecs that are cached: jobs of one script are alike."""


class _Waiting(msgspec.Struct, gc=False):
    """A job with an open alloc request."""

    id: int
    job: Job
    slots: int
    told: bool = False
    """The decider has been told of this request. A decision before that is about an earlier request."""
    annotated: bool = False


class _Held(msgspec.Struct):
    """A job that holds resources."""

    id: int
    units: IdSet
    gpus: tuple[tuple[int, int], ...]
    started_at: float


class SchedulerAdapter:
    """One Flux instance, across all its connections. `events` collects what the decider has to be told."""

    def __init__(self, alloc: e.NodeOrder | None = None) -> None:
        self._alloc = alloc
        """Of which nodes jobs get cores first; None: see world.FluxWorld."""
        self.machine: Machine
        self.engine: SchedulerEngine
        self.calls = Calls()
        self._kills = PendingKills()
        self.events: list[e.Event] = []
        self.stopped = False
        self.asked_quiet: list[Message] = []
        self.simulated_now: float | None = None
        """The date of a manager in simulated time: nothing happens between its sched.quiesce requests."""
        self._waiting: dict[str, _Waiting] = {}
        self._held: dict[str, _Held] = {}
        self._specs: OrderedDict[bytes, tuple[Jobspec, Shape | None]] = OrderedDict()
        self._shapes: dict[bytes, Shape] = {}
        self._up: IdSet
        self._gone = IdSet()
        self._fits: Cluster | None = None
        self._hello_jobs: list[s.JobHolds] = []
        self._running: list[e.Running] = []
        """Running jobs of the first handshake."""
        self._began = False
        self._now: float

    # ---- events

    def handle(self, now: float, events: list[s.Event]) -> None:
        for event in events:
            _ON_EVENT[type(event)](self, now, event)

    def take_events(self) -> list[e.Event]:
        """The events of the next batch. If a job was canceled and asked for again, the second request waits for the batch
        after: a decision about the first request cannot be mistaken for one about the second."""
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
        """After the first handshake: the nodes and the running jobs."""
        down = self.machine.units - self.machine.units_on(self._up)
        return e.Begins(
            nodes=self.machine.nodes(),
            time_waits=False,
            started_at=now,
            unavailable=down,
            running=tuple(self._running),
            survives_refusals=True,
            node_order=self._alloc or e.NodeOrder.NUMBERED,
            cannot=frozenset(WHAT.keys() - _HANDLERS.keys()),
        )

    def _note_running(self) -> None:
        """The first handshake is done: its running jobs are part of Begins."""
        for known in self._hello_jobs:
            job, held = self._hold(known)
            self._running.append(e.Running(job, held.units, held.started_at))
        self._hello_jobs = []
        self._began = True

    def _on_holds(self, now: float, event: s.JobHolds) -> None:
        """A job that ran before the handshake. One on ranks that are no longer there is ended, as by Flux's schedulers."""
        unknown = self.machine.unknown_ranks(event.resources)
        if unknown:
            note = f"it runs on ranks that are not in the inventory: {unknown.to_text(',')}"
            self.engine.warnings.append(f"job {our_id(event.job.id)}: {note}")
            self.engine.raise_exception(event.job.id, "scheduler-restart", note)
        if self.machine.units_in(event.resources):
            self._hello_jobs.append(event)

    def _hold(self, known: s.JobHolds) -> tuple[Job, _Held]:
        """A running job of a handshake."""
        resources = known.resources
        job_id, gpus = our_id(known.job.id), self.machine.gpus_in(resources)
        self.machine.take(gpus)
        held = self._held[job_id] = _Held(known.job.id, self.machine.units_in(resources), gpus, resources.start_s)
        walltime = resources.expiration_s - held.started_at if resources.expiration_s else inf
        job = Job(job_id, len(held.units), walltime, known.job.t_submit, priority=known.job.priority)
        job.user = str(known.job.userid)
        if gpus:
            # A Job has one number of GPUs for all its nodes: the highest is safe.
            most = max(mask.bit_count() for _, mask in gpus)
            job.shape = Shape(nodes=len(resources.ranks), gpus_per_node=most)
        return job, held

    def lost(self, now: float, reason: str) -> None:
        """The connection is lost: waiting jobs will be asked for again, running ones go on."""
        for job_id in self._waiting:
            self.events.append(e.JobWithdrawn(now, job_id))
        self._waiting.clear()
        self.asked_quiet.clear()
        # A connection that was never online says nothing about held resources.
        for job_id, held in list(self._held.items()) if self.engine.was_online else ():
            if held.id not in self.engine.held:
                # Granted, but the answer was never sent.
                self._end(now, job_id, JobState.KILLED, reason)
        self._hello_jobs = []

    def _on_inventory(self, now: float, event: s.Inventory) -> None:
        self.simulated_now = event.now
        if self._began:
            machine, resources = self.machine, event.resources
            if self._left_of(resources) != self._left_of(machine.inventory):
                raise RunError("the Flux instance came back with another inventory: start anew (or use --restart)")
            machine.ends_s, machine.scheduling = resources.expiration_s, resources.scheduling
            before, after = machine.properties, resources.properties
            self._on_properties(now, s.PropertiesChanged(_without(after, before), _without(before, after)))
            self._change_ranks(now, event.up, machine.inventory.rank_ids() - event.up)
        else:
            self.machine = Machine(event.resources)
            self._up = event.up

    def _left_of(self, resources: ResourceSet) -> list[tuple[int, IdSet, IdSet]]:
        """Ranks with their cores and GPUs, without those that have gone for good."""
        return [(entry.rank, entry.cores, entry.gpus) for entry in resources.ranks if entry.rank not in self._gone]

    def _on_ranks(self, now: float, event: s.RanksChanged) -> None:
        self._change_ranks(now, event.up, event.down)
        if event.gone:
            units = self.machine.units_on(event.gone)
            names = tuple(node.name for node in self.machine.nodes_of(event.gone))
            self.events.append(e.NodesLeft(now, names, units))
            self._up -= event.gone
            self._gone |= event.gone
            self._fits = None

    def _change_ranks(self, now: float, up: IdSet, down: IdSet) -> None:
        """Reports only actual changes."""
        came, went = up - self._up, down & self._up
        self._up = (self._up | up) - down
        if came:
            self.events.append(e.UnitsAvailable(now, self.machine.units_on(came)))
        if went:
            self.events.append(e.UnitsUnavailable(now, self.machine.units_on(went)))

    def _on_properties(self, now: float, event: s.PropertiesChanged) -> None:
        properties = self.machine.properties
        touched = IdSet()
        for name, ranks in event.added.items():
            properties[name] = properties.get(name, IdSet()) | ranks
            touched |= ranks
        for name, ranks in event.removed.items():
            properties[name] = properties.get(name, IdSet()) - ranks
            touched |= ranks
        if touched:
            self._fits = None
            self.events.append(e.NodesJoined(now, self.machine.nodes_of(touched - self._gone)))

    def _on_instance_end(self, now: float, event: s.InstanceExpires) -> None:
        self.machine.ends_s = event.expiration_s

    def _on_ready(self, now: float, event: s.Ready) -> None:
        """After a later handshake: compares the running jobs with what the decider was told."""
        if not self._began:
            self._note_running()
            return
        greeted = {our_id(known.job.id): known for known in self._hello_jobs}
        self._hello_jobs = []
        for job_id in [job_id for job_id in self._held if job_id not in greeted]:
            self._end(now, job_id, JobState.SUCCEEDED, "it ended while the connection was lost")
        for job_id in [job_id for job_id in greeted if job_id in self._held]:
            self._give_back(now, job_id, greeted.pop(job_id).resources)
        for known in greeted.values():
            job, held = self._hold(known)
            self.events.append(e.JobHolds(now, job, held.units, held.started_at))

    def _give_back(self, now: float, job_id: str, left: ResourceSet) -> None:
        """A job holds only `left`: it gave the rest back while the connection was lost."""
        held = self._held[job_id]
        freed = held.units - self.machine.units_in(left)
        if freed:
            self._free_part(now, job_id, freed, self.machine.inventory.rank_ids() - left.rank_ids())

    def _on_alloc(self, now: float, event: s.AllocAsked) -> None:
        try:
            spec, shape = self._parsed(event.spec)
        except InputError as problem:
            self.engine.deny(event.id, str(problem))
            return
        job_id = our_id(event.id)
        job = job_conversion.to_job(job_id, spec, shape)
        job.submitted_at = event.submitted_s or now
        job.priority = event.priority
        job.user = str(event.userid)
        self._waiting[job_id] = _Waiting(event.id, job, spec.total_slots)
        self.events.append(e.JobSubmitted(now, job))

    def _parsed(self, source: bytes) -> tuple[Jobspec, Shape | None]:
        """A jobspec and the shape of its job. Raises InputError."""
        found = self._specs.get(source)
        if found is None:
            spec = jobspec.parse(source, whole=False)
            shape = job_conversion.shape_of(spec, self.machine.ranks_of_hosts() if spec.constraints else None)
            if shape is None and self._alloc is not None:
                shape = Shape(chunk=1)  # it is placed node by node
            if shape is not None:
                # Equal requests share their shape: core/cluster.py knows then that they fit alike.
                if len(self._shapes) > MOST_SPECS:
                    self._shapes.clear()
                shape = self._shapes.setdefault(msgspec.json.encode(shape), shape)
            found = self._specs[source] = spec, shape
            if len(self._specs) > MOST_SPECS:
                self._specs.popitem(last=False)
        return found

    def _on_cancel(self, now: float, event: s.AllocCanceled) -> None:
        job_id = our_id(event.id)
        if self._waiting.pop(job_id, None) is not None:
            self.events.append(e.JobWithdrawn(now, job_id))

    def _on_priorities(self, now: float, event: s.Prioritized) -> None:
        changed = {our_id(job_id): float(priority) for job_id, priority in event.jobs}
        self.events.append(e.PrioritiesChanged(now, changed))

    def _on_freed(self, now: float, event: s.Freed) -> None:
        job_id = our_id(event.id)
        held = self._held.get(job_id)
        if held is None:
            return
        if event.final:
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

    def _on_expiration(self, now: float, event: s.ExpirationChanged) -> None:
        job_id = our_id(event.id)
        held = self._held.get(job_id)
        if held is not None:
            walltime = event.expiration_s - held.started_at if event.expiration_s else inf
            self.events.append(e.WalltimeChanged(now, job_id, walltime))

    def _on_feasibility(self, now: float, event: s.FeasibilityAsked) -> None:
        """Answered at once: whether a job fits an empty machine does not depend on the decider."""
        try:
            spec, shape = self._parsed(event.spec)
        except InputError as problem:
            self.engine.answer_feasibility(event.request, str(problem), errno.EINVAL)
            return
        refusal = self._empty_machine().could_ever_run(job_conversion.to_job("?", spec, shape))
        self.engine.answer_feasibility(event.request, refusal.reason if refusal is not None else "")

    def _empty_machine(self) -> Cluster:
        if self._fits is None:
            left = self.machine.inventory.rank_ids() - self._gone
            self._fits = Cluster(e.Begins(nodes=self.machine.nodes_of(left)), "feasibility")
        return self._fits

    def _on_status(self, now: float, event: s.StatusAsked) -> None:
        allocated = IdSet()
        for held in self._held.values():
            allocated |= held.units
        machine = self.machine
        groups = (machine.units, allocated, machine.units - machine.units_on(self._up))
        self.engine.answer_status(event.request, *map(machine.resources, groups))

    def _on_quiesce(self, now: float, event: s.QuiesceAsked) -> None:
        self.asked_quiet.append(event.request)
        if event.now is not None:
            self.simulated_now = event.now
            for waiting in self.events:
                waiting.at = event.now

    def _end(self, now: float, job_id: str, state: JobState, reason: str) -> None:
        held = self._held.pop(job_id)
        self.machine.give_back(held.gpus)
        self.events.append(e.JobEnded(now, job_id, state, 0, held.units, reason))
        self.events += self._kills.ended(job_id, now)

    # ---- decisions

    def apply(self, now: float, decisions: list[d.Decision]) -> None:
        """Carries out decisions. What this world cannot do is dropped with a warning: other users' jobs wait."""
        self._now = now
        for decision in decisions:
            try:
                _DECISIONS[type(decision)](self, decision)
            except DecisionError as problem:
                self.engine.warnings.append(str(problem))

    def _start(self, decision: d.StartJob) -> None:
        now, found = self._now, self._waiting.get(decision.job_id)
        if found is None or not found.told:
            # The job was canceled before the decision: for the decider it started, so it is told that it ended.
            ended = e.JobEnded(now, decision.job_id, JobState.KILLED, 0, decision.units, "withdrawn before it could start")
            self.events.insert(0, ended)
            return
        del self._waiting[decision.job_id]
        job = found.job
        grant = self.machine.grant(job, decision.units, found.slots, now)
        self._held[decision.job_id] = _Held(found.id, decision.units, grant.gpus, now)
        notes: dict[str, Any] = {"resource_summary": grant.summary}
        if found.annotated:
            # RFC 27, Alloc Success: annotations that are no longer relevant may be deleted.
            notes |= {"reason_pending": None, "t_estimate": None}
        if job.shape is not None and job.shape.queue:
            notes["queue"] = job.shape.queue
        first = next(iter(self._waiting.values()), None)
        if first is not None and first.told and first.job.submitted_at < job.submitted_at and first.job.priority >= job.priority:
            # As Flux's sched-backfill says it: the job that it overtook.
            notes |= {"backfill": "f" + fluid.to_f58(first.id)[1:], "selection_type": "backfill"}
        self.engine.grant(found.id, grant.resources, {"sched": notes})

    def _reject(self, decision: d.RejectJob) -> None:
        found = self._waiting.get(decision.job_id)
        if found is not None and found.told:
            del self._waiting[decision.job_id]
            self.engine.deny(found.id, decision.reason or self._why_rejected(found.job))

    def _why_rejected(self, job: Job) -> str:
        """For schedulers whose protocol has no word for a reason: what we know ourselves."""
        never = self._empty_machine().could_ever_run(job)
        return "the scheduler rejected it and gave no reason" if never is None else never.reason

    def _annotate(self, decision: d.Annotate) -> None:
        found = self._waiting.get(decision.job_id)
        if found is not None:
            found.annotated = True
            self.engine.annotate(found.id, decision.notes)

    def _set_metadata(self, decision: d.SetMetadata) -> None:
        self._annotate(d.Annotate(decision.at, decision.job_id, {"user": {"metadata": decision.text}}))

    def _kill(self, decision: d.KillJobs) -> None:
        self.events += self._kills.ask(decision, self._held, self._now)
        for job_id in decision.job_ids:
            held = self._held.get(job_id)
            if held is not None:
                self.engine.raise_exception(held.id, "cancel", "killed by the scheduler")

    def _ask_calls(self, decision: d.CallAt | d.CallEvery | d.StopCalls) -> None:
        self.calls.ask(decision, self._now)

    def _stop_world(self, decision: d.StopWorld) -> None:
        self.stopped = True


def _without(these: dict[str, IdSet], others: dict[str, IdSet]) -> dict[str, IdSet]:
    """Property -> the ranks that have it in the first and not in the second."""
    return {name: ranks - others.get(name, IdSet()) for name, ranks in these.items()}


_ON_EVENT: dict[type, Callable[[SchedulerAdapter, float, Any], None]] = {
    s.Inventory: SchedulerAdapter._on_inventory,
    s.RanksChanged: SchedulerAdapter._on_ranks,
    s.PropertiesChanged: SchedulerAdapter._on_properties,
    s.InstanceExpires: SchedulerAdapter._on_instance_end,
    s.JobHolds: SchedulerAdapter._on_holds,
    s.Ready: SchedulerAdapter._on_ready,
    s.AllocAsked: SchedulerAdapter._on_alloc,
    s.AllocCanceled: SchedulerAdapter._on_cancel,
    s.Prioritized: SchedulerAdapter._on_priorities,
    s.Freed: SchedulerAdapter._on_freed,
    s.ExpirationChanged: SchedulerAdapter._on_expiration,
    s.FeasibilityAsked: SchedulerAdapter._on_feasibility,
    s.StatusAsked: SchedulerAdapter._on_status,
    s.QuiesceAsked: SchedulerAdapter._on_quiesce,
    s.Failed: lambda self, now, event: None,  # The world closes the connection.
}

_HANDLERS: dict[type, Callable[[SchedulerAdapter, Any], None]] = {
    d.StartJob: SchedulerAdapter._start,
    d.RejectJob: SchedulerAdapter._reject,
    d.Annotate: SchedulerAdapter._annotate,
    d.SetMetadata: SchedulerAdapter._set_metadata,
    d.KillJobs: SchedulerAdapter._kill,
    d.CallAt: SchedulerAdapter._ask_calls,
    d.CallEvery: SchedulerAdapter._ask_calls,
    d.StopCalls: SchedulerAdapter._ask_calls,
    d.StopWorld: SchedulerAdapter._stop_world,
    d.ConfirmWithdrawal: nothing,  # The cancel was confirmed when it arrived.
}
_DECISIONS = table(_HANDLERS, "flux")

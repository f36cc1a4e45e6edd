"""Translates between one of our worlds and a Flux scheduler: the part of decider.Rfc27Decider without sockets.

In: our events. Out: decisions. In between: the manager's end of RFC 27 (manager.Manager) and its broker. A node is a
rank, a unit is a core; a job becomes a jobspec with a FLUID, the scheduler's R becomes units. An R that core/check.py
refuses ends its job with an exception and never reaches the world.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

from pilothouse.core.check import refuse_start
from pilothouse.formats import resource_set
from pilothouse.formats.fluid import FluidSource
from pilothouse.formats.resource_set import RankResources, ResourceSet
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState
from pilothouse.protocols.rfc27 import job_conversion
from pilothouse.protocols.rfc27 import manager_events as m
from pilothouse.protocols.rfc27.broker import Broker
from pilothouse.protocols.rfc27.job_states import State
from pilothouse.protocols.rfc27.machine import Machine
from pilothouse.protocols.rfc27.manager import Manager

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster

MOST_SPECS = 4096


class ManagerAdapter:
    """The job manager of one run."""

    def __init__(self, begins: e.Begins, cluster: Cluster, *, strict: bool = False, userid: int = 0) -> None:
        self.now = begins.started_at
        self.manager = Manager(strict=strict)
        self.quiet_until = 0
        """The last sched.quiesce request that was answered."""
        self.says_quiet = False
        """The scheduler has sched.quiesce."""
        self.answers = 0
        """Number of answers so far that changed anything."""
        self._cluster = cluster
        self._began = begins.started_at
        self._userid = userid
        self._nodes: tuple[Node, ...] = begins.nodes
        self._up = IdSet.of(rank for rank, node in enumerate(begins.nodes) if not node.mask & begins.unavailable.mask)
        inventory = _inventory(begins.nodes)
        self._machine = Machine(inventory, [node.first for node in begins.nodes])
        self.broker = Broker(
            self.manager, resource_set.encode(inventory), self._up, userid=userid, simulated=begins.time_waits
        )
        self._fluids = FluidSource()
        self._flux_ids: dict[str, int] = {}
        self._our_ids: dict[int, str] = {}
        self._decisions: list[d.Decision] = []
        self._taken = 0
        """Units of this turn's starts: the cluster books them only after the turn."""
        self._specs: dict[tuple[int, float], bytes] = {}
        self._withdrawn: dict[int, str] = {}
        """Withdrawn jobs whose alloc request the scheduler has not answered (the specification's dialect)."""
        self._questions: dict[int, str] = {}
        self._asked = 0
        self._elsewhere: dict[str, IdSet] = {}
        """Units of jobs that the scheduler does not know."""
        for run in begins.running:
            self._note_running(run)

    def handle(self, batch: e.Batch) -> None:
        """Passes the world's events on to the manager."""
        self.now = batch.now
        for event in batch.events:
            handler = _ON_EVENT.get(type(event))
            if handler is not None:
                handler(self, event)
        self.process_answers()

    def take_decisions(self) -> list[d.Decision]:
        self.process_answers()
        decisions, self._decisions = self._decisions, []
        self._taken = 0
        return decisions

    @property
    def more_to_ask(self) -> bool:
        """An alloc request could be sent at once."""
        manager = self.manager
        room = not manager.limit or len(manager.pending) < manager.limit
        return manager.online and room and not manager.stopped and len(manager.queue) > 0

    # ---- events of the manager

    def process_answers(self) -> None:
        """Turns what the scheduler said into decisions."""
        for event in self.manager.take_events():
            handler = _ON_ANSWER.get(type(event))
            if handler is not None:
                self.answers += 1
                handler(self, event)
            elif isinstance(event, m.Quiet):
                self.quiet_until = event.question
                self.says_quiet = event.done
                if event.call_at is not None and event.call_at > self.now:
                    self._decisions.append(d.CallAt(self.now, event.call_at, "rfc27"))
        self.broker.flush(self.now)

    def _scheduler_allocated(self, event: m.Allocated) -> None:
        job_id, job = self._our_ids.get(event.id), self.manager.jobs.get(event.id)
        if job_id is None or job is None or job.state is not State.RUN:
            # It has ended since.
            return
        decision = d.StartJob(self.now, job_id, self._machine.units_in(resource_set.parse(event.resources)))
        refusal = self._refusal(decision)
        if refusal:
            self.manager.warnings.append(f"job {job_id}: {refusal}; the allocation is taken back")
            self.manager.cancel(self.now, event.id, refusal, kind="alloc")
            self._forget(event.id)
            if job_id in self._cluster.waiting:
                self._decisions.append(d.RejectJob(self.now, job_id, refusal))
            return
        self.manager.start(self.now, event.id)
        self._decisions.append(decision)
        self._taken |= decision.units.mask

    def _refusal(self, decision: d.StartJob) -> str:
        if decision.units.mask & self._cluster.away_mask:
            return ""  # The session holds it back until the node is back.
        refused = refuse_start(self._cluster, decision, memory=False)  # jobspecs have no word for it
        if refused is not None:
            return f"{refused.rule}: {refused.detail}"
        if decision.units.mask & self._taken and not self._cluster.sharing:
            return f"unit already in use: {IdSet(decision.units.mask & self._taken)} was given away in this same turn"
        return ""

    def _scheduler_denied(self, event: m.Denied) -> None:
        job_id, job = self._our_ids.get(event.id), self.manager.jobs.get(event.id)
        if job_id is None:
            return
        if job is not None and job.started:
            # Its resources are freed when it has ended.
            self._decisions.append(d.KillJobs(self.now, (job_id,)))
            return
        self._forget(event.id)
        if job_id in self._cluster.waiting:
            self._decisions.append(d.RejectJob(self.now, job_id, event.note))

    def _scheduler_annotated(self, event: m.Annotated) -> None:
        job_id = self._our_ids.get(event.id)
        if job_id is not None:
            self._decisions.append(d.Annotate(self.now, job_id, event.notes))

    def _scheduler_canceled(self, event: m.CancelConfirmed) -> None:
        job_id = self._withdrawn.pop(event.id, None)
        if job_id is not None:
            self._confirm(job_id)

    def _scheduler_feasibility(self, event: m.FeasibilityAnswered) -> None:
        question = self._questions.pop(event.question, None)
        if question is not None:
            self._decisions.append(d.AnswerFeasibility(self.now, question, event.refusal))

    # ---- events of the world

    def _on_submitted(self, event: e.JobSubmitted) -> None:
        job = event.job
        flux_id = self._new_id(event.at, job.id)
        self.manager.submit(
            event.at, flux_id, self._spec(job), userid=self._userid, priority=job_conversion.priority_of(job.priority)
        )

    def _on_ended(self, event: e.JobEnded) -> None:
        flux_id = self._flux_ids.get(event.job_id)
        if flux_id is None:
            self._on_available(e.UnitsAvailable(event.at, self._elsewhere.pop(event.job_id, IdSet())))
            return
        job = self.manager.jobs.get(flux_id)
        if job is not None:
            if event.state in (JobState.KILLED, JobState.TIMED_OUT, JobState.LOST):
                kind = {JobState.KILLED: "cancel", JobState.TIMED_OUT: "timeout"}.get(event.state, "node-failure")
                self.manager.cancel(event.at, flux_id, event.reason, kind=kind)
            if job.holds:
                # A wait status: an exit code, or the number of a signal.
                self.manager.finish(event.at, flux_id, max(event.return_code << 8, -event.return_code))
        self._forget(flux_id)

    def _on_withdrawn(self, event: e.JobWithdrawn) -> None:
        flux_id = self._flux_ids.get(event.job_id)
        if flux_id is not None:
            # What the scheduler says of it from now on is no concern of the world.
            self._forget(flux_id)
            if flux_id in self.manager.jobs:
                self.manager.cancel(event.at, flux_id)
            if flux_id in self.manager.pending:
                # Only the specification's dialect waits for the scheduler's answer.
                self._withdrawn[flux_id] = event.job_id
                return
        self._confirm(event.job_id)

    def _confirm(self, job_id: str) -> None:
        if job_id in self._cluster.withdrawn:
            self._decisions.append(d.ConfirmWithdrawal(self.now, job_id))

    def _on_priorities(self, event: e.PrioritiesChanged) -> None:
        known = ((self._flux_ids.get(job_id), priority) for job_id, priority in event.priorities.items())
        changed = [(flux_id, job_conversion.priority_of(priority)) for flux_id, priority in known if flux_id is not None]
        self.manager.prioritize(event.at, changed)

    def _on_walltime(self, event: e.WalltimeChanged) -> None:
        flux_id = self._flux_ids.get(event.job_id)
        run = self._cluster.running.get(event.job_id)
        if flux_id is not None and run is not None:
            expiration = 0.0 if event.walltime == inf else run.started_at + event.walltime
            self.manager.expire(event.at, flux_id, expiration)

    def _on_freed(self, event: e.UnitsFreed) -> None:
        flux_id = self._flux_ids.get(event.job_id)
        run = self._cluster.running.get(event.job_id)
        if flux_id is not None and run is not None:
            # A rank is released when the job holds none of its units.
            self.manager.release(event.at, flux_id, self._ranks(event.units) - self._ranks(run.units))

    def _on_holds(self, event: e.JobHolds) -> None:
        """RFC 27 has no word for a job that another scheduler started: its ranks are down."""
        if event.job_id not in self._flux_ids:
            self._elsewhere[event.job_id] = event.units
            self._on_unavailable(e.UnitsUnavailable(event.at, event.units))

    def _on_available(self, event: e.UnitsAvailable) -> None:
        up = self._ranks(event.units) - self._off()
        self.broker.change_ranks(up=up - self._up)
        self._up |= up

    def _on_unavailable(self, event: e.UnitsUnavailable | e.UnitsSwitched) -> None:
        """A rank is down if any of its units is: Flux has no partly available ranks."""
        off = self._off()
        up = self._machine.inventory.rank_ids() - off
        self.broker.change_ranks(up=up - self._up, down=off & self._up)
        self._up = up

    def _on_left(self, event: e.NodesLeft) -> None:
        gone = IdSet.of(rank for rank, node in enumerate(self._nodes) if node.name in event.names)
        self.broker.change_ranks(gone=gone)
        self._up -= gone

    def _on_joined(self, event: e.NodesJoined) -> None:
        names = {node.name for node in self._nodes}
        if any(node.name not in names for node in event.nodes):
            self.manager.warnings.append("RFC 28 cannot announce new nodes: the scheduler will not use them")

    def _on_feasibility(self, event: e.FeasibilityAsked) -> None:
        self._asked += 1
        self._questions[self._asked] = event.question_id
        self.manager.ask_feasibility(self._asked, self._spec(event.job))

    # ---- parts

    def _new_id(self, at: float, job_id: str) -> int:
        flux_id = self._fluids.make(1 + int((at - self._began) * 1000))
        self._flux_ids[job_id] = flux_id
        self._our_ids[flux_id] = job_id
        return flux_id

    def _forget(self, flux_id: int) -> None:
        self._flux_ids.pop(self._our_ids.pop(flux_id), None)

    def _spec(self, job: Job) -> bytes:
        """The jobspec of a job; equal requests share it."""
        if job.shape is not None or job.command is not None:
            return job_conversion.jobspec_of(job)
        key = (job.units, job.walltime)
        spec = self._specs.get(key)
        if spec is None:
            if len(self._specs) > MOST_SPECS:
                self._specs.clear()
            spec = self._specs[key] = job_conversion.jobspec_of(job)
        return spec

    def _note_running(self, run: e.Running) -> None:
        """A job that was running before the scheduler connected: it is in the first hello."""
        flux_id = self._new_id(self._began, run.job.id)
        expiration = 0.0 if run.job.walltime == inf else run.started_at + run.job.walltime
        held = self._machine.resources(run.units, run.started_at, expiration)
        self.manager.adopt(run.started_at, flux_id, self._spec(run.job), held, userid=self._userid)

    def _off(self) -> IdSet:
        off = self._cluster.off_mask
        for units in self._elsewhere.values():
            off |= units.mask
        return self._ranks(IdSet(off))

    def _ranks(self, units: IdSet) -> IdSet:
        return IdSet.of(rank for rank, _ in self._machine.ranks_in(units))


def _inventory(nodes: tuple[Node, ...]) -> ResourceSet:
    """Our nodes as ranks. Names that cannot be in a hostlist are replaced."""
    ranks = tuple(
        RankResources(rank, IdSet.span(0, node.count), IdSet.span(0, node.gpus)) for rank, node in enumerate(nodes)
    )
    plain = not any(set(node.name) & set("[], \t\n") or not node.name for node in nodes)
    hosts = tuple(node.name if plain else f"node{rank}" for rank, node in enumerate(nodes))
    properties: dict[str, IdSet] = {}
    for rank, node in enumerate(nodes):
        for name, value in node.properties.items():
            if value == "" and name:
                properties[name] = properties.get(name, IdSet()) | IdSet.span(rank, 1)
    return ResourceSet(ranks=ranks, hosts=hosts, properties=properties)


_ON_EVENT: dict[type, Callable[[ManagerAdapter, Any], None]] = {
    e.JobSubmitted: ManagerAdapter._on_submitted,
    e.JobEnded: ManagerAdapter._on_ended,
    e.JobWithdrawn: ManagerAdapter._on_withdrawn,
    e.PrioritiesChanged: ManagerAdapter._on_priorities,
    e.WalltimeChanged: ManagerAdapter._on_walltime,
    e.UnitsFreed: ManagerAdapter._on_freed,
    e.JobHolds: ManagerAdapter._on_holds,
    e.UnitsAvailable: ManagerAdapter._on_available,
    e.UnitsUnavailable: ManagerAdapter._on_unavailable,
    e.UnitsSwitched: ManagerAdapter._on_unavailable,
    e.NodesLeft: ManagerAdapter._on_left,
    e.NodesJoined: ManagerAdapter._on_joined,
    e.FeasibilityAsked: ManagerAdapter._on_feasibility,
}

_ON_ANSWER: dict[type, Callable[[ManagerAdapter, Any], None]] = {
    m.Allocated: ManagerAdapter._scheduler_allocated,
    m.Denied: ManagerAdapter._scheduler_denied,
    m.Annotated: ManagerAdapter._scheduler_annotated,
    m.CancelConfirmed: ManagerAdapter._scheduler_canceled,
    m.FeasibilityAnswered: ManagerAdapter._scheduler_feasibility,
}

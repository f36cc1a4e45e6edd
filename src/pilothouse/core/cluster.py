"""The Cluster: what a decider has been told so far, and the decisions of this turn.

Events come in through `observe`, decisions through `book` (or the verbs `start`, `reject`, `kill`, ... that a policy uses).
core/check.py judges each decision; then it is booked here, so that the next one is judged against it. The world only sees
decisions that passed. Queue, running jobs, free units and expected ends are always up to date.

Per job: one submission (0.4 µs), one start (3 µs at 512 units), one end (1 µs).
"""

from __future__ import annotations

from collections.abc import Callable, KeysView, Sequence
from typing import Any

from pilothouse.core import place
from pilothouse.core.check import RULES, Refusal
from pilothouse.core.decision_table import WHAT
from pilothouse.core.misfits import Misfits
from pilothouse.core.node_index import FreeNodes, NodeTable, units_of
from pilothouse.core.node_timetable import NodeTimetable
from pilothouse.core.refused import Refused
from pilothouse.core.waiting_queue import Queue
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.answers import Answer, Never, NotNow, Placed
from pilothouse.model.decisions import StartJob
from pilothouse.model.errors import DecisionError
from pilothouse.model.events import Running
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState
from pilothouse.model.masks import FreeUnits, PlainFreeUnits
from pilothouse.model.power_states import computes


class Cluster:
    """What is known of one world, and the decisions of this turn.

    A policy looks at `now`, `queue` (the waiting jobs, in order of arrival), `running` (job id -> job, units, start), `free`
    and `total` (numbers of units), `free_units`, `nodes` and `reservations`; and decides with the verbs below.

    It has fewer than 30 attributes: Python finds the methods of larger objects more slowly.
    """

    def __init__(self, begins: e.Begins, decider: str, wants: d.Wants | None = None) -> None:
        wants = wants or d.Wants()
        self.decider = decider
        self.begins = begins
        self.now = begins.started_at
        self.nodes: dict[str, Node] = {node.name: node for node in begins.nodes}
        self.waiting: dict[str, Job] = {}
        self.running: dict[str, e.Running] = {}
        self.final: dict[str, JobState] = {}
        self.withdrawn: set[str] = set()
        self.registered: set[str] = set()
        self.queue = Queue(self.waiting)
        self.decisions: list[d.Decision] = []
        self.calls: set[str] = set()
        self.reservations: dict[str, float] = {}
        """Job id -> when a policy expects to start it; for estimates and explanations. See `expected_starts`."""
        self.plan_ahead: Callable[[], dict[str, float]] | None = None
        """Set by a policy that computes these dates only when they are asked for."""
        self.refused = Refused() if begins.survives_refusals else None
        self.registering = begins.dynamic_registration
        self.sharing = begins.compute_sharing if wants.compute_sharing is None else wants.compute_sharing
        self.count_rule = _count_rule(begins, wants)
        self.all_mask = units_of(begins.nodes)
        self.storage_mask = units_of(begins.storage)
        self.total = self.all_mask.bit_count()
        self.off_mask = begins.unavailable.mask
        self.away_mask = 0
        """Units of nodes that were lost and may come back (see translate.py)."""
        self._busy_aside = 0
        """Units that jobs hold although they are off, or their node has left."""
        usable = self.all_mask & ~self.off_mask
        self._free_set: PlainFreeUnits = FreeUnits(usable)
        self.free = usable.bit_count()
        self._table: NodeTable | None = None
        """Made when the first job with a shape is looked at."""
        self._views: dict[bool, FreeNodes] = {}
        """By whether units are to be avoided."""
        self._misfits = Misfits()
        for run in begins.running:
            self.running[run.job.id] = run
            self._take(run.job, run.units.mask)

    # ---- what a policy asks

    @property
    def units(self) -> IdSet:
        """All units, free or not."""
        return IdSet(self.all_mask)

    @property
    def free_units(self) -> IdSet:
        """The units that a job may be started on now."""
        return IdSet(self._free_set.mask)

    @property
    def free_mask(self) -> int:
        """The same as a mask. On wide clusters it costs more than a start."""
        return self._free_set.mask

    @property
    def busy_mask(self) -> int:
        """The units that jobs hold."""
        return self.all_mask & ~(self.off_mask | self._free_set.mask) | self._busy_aside

    @property
    def job_ids(self) -> KeysView[str]:
        """The ids of the waiting jobs."""
        return self.waiting.keys()

    def state_of(self, job_id: str) -> JobState | None:
        """The state of a job; None: there is no such job."""
        if job_id in self.waiting:
            return JobState.WAITING
        if job_id in self.running:
            return JobState.RUNNING
        return self.final.get(job_id)

    @property
    def node_table(self) -> NodeTable:
        """The nodes by position, for core/place.py."""
        if self._table is None:
            self._table = NodeTable(self.nodes.values(), self.running.values())
        return self._table

    def free_nodes(self, avoid: int = 0) -> FreeNodes:
        """The nodes by free units, for core/place.py."""
        view = self._views.get(bool(avoid))
        if view is None:
            view = self._views[bool(avoid)] = FreeNodes(self.node_table)
        view.update(self.free_mask & ~avoid if avoid else self.free_mask)
        return view

    def expected_end(self, job_id: str) -> float:
        """When a running job will have used up its walltime (inf: it has none)."""
        run = self.running[job_id]
        return run.started_at + run.job.walltime

    def returning(self, run: Running) -> int:
        """How many units a running job will give back: those that are unavailable stay so."""
        return (run.units.mask & ~self.off_mask).bit_count() if self.off_mask else len(run.units)

    def expected_starts(self) -> dict[str, float]:
        """Job id -> when the policy expects to start it, for those waiting jobs for which it knows."""
        return self.reservations if self.plan_ahead is None else self.plan_ahead()

    def could_ever_run(self, job: Job) -> Never | None:
        """None if the job fits the whole cluster, else why not."""
        return place.never(self, job)

    def least_units(self, job: Job) -> int:
        """The least number of units in all that a job takes: whole nodes count with all their units."""
        return place.least_units(self, job)

    # ---- what a policy decides

    def start(
        self,
        job: Job,
        units: IdSet | None = None,
        *,
        placement: d.Placement | None = None,
        least: bool = False,
        avoid: int = 0,
        most: int | None = None,
        lowest: bool = False,
    ) -> Answer:
        """Starts a waiting job, on the first block of free units that holds it (else the lowest free ones), or on `units`.

        `least`: on as few units as it needs, if it could use more; `avoid`: a mask of units to leave alone (with their GPUs and
        memory, where it comes from `when_fits`); `most`: not if a job with a shape would take more units than that (whole nodes);
        `lowest`: on the lowest free units, whether they are a block or not (if it has no shape and avoids none).
        """
        if units is not None:
            self.book(StartJob(self.now, job.id, units, placement))
            run = self.running.get(job.id)
            return Placed(units) if run is not None and run.units is units else NotNow("the decision was refused")
        job_id = job.id
        if job_id not in self.waiting:
            self.book(StartJob(self.now, job_id, IdSet(), placement))  # refused: it says why
            return NotNow("it does not wait")
        # What we choose ourselves keeps the rules by construction.
        if job.shape is None and 0 < job.units <= self.free and not avoid:
            count = job.units if least else job.most_units or job.units
            if count > self.free:
                count = self.free
            bits, shift = self._free_set.take_lowest(count) if lowest else self._free_set.take_block(count)
            units = IdSet(bits, shift)
            self.free -= count
        else:
            found = self._choose(job, least, avoid)
            if type(found) is not int:
                return found  # type: ignore[return-value]
            if most is not None and found.bit_count() > most:
                return NotNow("it would take units that are reserved for another job")
            units = IdSet(found)
            self._take(job, found)
            if isinstance(avoid, place.Reserved):
                avoid.take(self.node_table, job, found)
        now = self.now
        del self.waiting[job_id]
        self.running[job_id] = Running(job, units, now)
        if self.reservations:
            self.reservations.pop(job_id, None)
        self.decisions.append(StartJob(now, job_id, units, placement))
        return Placed(units)

    def _choose(self, job: Job, least: bool, avoid: int) -> int | NotNow | Never:
        if job.shape is None:
            return place.choose(self, job, least=least, avoid=avoid)
        known = self._misfits.answer(job, least, avoid)
        if known is not None:
            return known
        found = place.choose(self, job, least=least, avoid=avoid)
        if type(found) is NotNow:
            self._misfits.add(job, least, avoid, found)
        return found

    def when_fits(self, job: Job, ends: Sequence[tuple[float, str]]) -> tuple[float, place.Reserved] | None:
        """When a waiting job with a shape can start if these running jobs end then (date, job id; ascending), and what it
        gets then; None: it would not fit."""
        return place.when(self, job, ends)

    def timetable(self, ends: Sequence[tuple[float, str]]) -> NodeTimetable:
        """What nodes have free over time if these running jobs end then (date, job id)."""
        return NodeTimetable(self, ends)

    def reject(self, job: Job, reason: str = "") -> None:
        """Refuses a waiting job for good."""
        self.book(d.RejectJob(self.now, job.id, reason))

    def kill(self, *jobs: Job) -> None:
        """Ends running jobs."""
        self.book(d.KillJobs(self.now, tuple(job.id for job in jobs)))

    def call_at(self, when: float, call_id: str = "") -> None:
        """Asks to be asked again at that date."""
        self.book(d.CallAt(self.now, when, call_id))

    def expect(self, job: Job, when: float) -> None:
        """Notes when the policy means to start a waiting job."""
        self.reservations[job.id] = when

    # ---- booking decisions

    def book(self, decision: d.Decision) -> None:
        """Judges a decision, and books it. A wrong one is a DecisionError, or (with `refused`) costs one job at most; then
        nothing of it is booked."""
        kind = type(decision)
        refusal = RULES[kind](self, decision)
        cannot = self.begins.cannot
        if cannot and kind in cannot:
            refusal = Refusal("not in this world", f"this world cannot {WHAT[kind]}")
        if refusal is not None:
            if self.refused is None:
                raise self._error(refusal)
            self.refused.add(self, decision, refusal)
            return
        book = _BOOKS.get(kind)
        if book is not None:
            book(self, decision)
        self.decisions.append(decision)

    def take_decisions(self) -> list[d.Decision]:
        """Ends the turn: the decisions that were booked in it."""
        decisions, self.decisions = self.decisions, []
        return decisions

    def _error(self, refusal: Refusal) -> DecisionError:
        return DecisionError(self.decider, len(self.decisions), refusal.rule, f"{refusal.detail} (at {self.now:g} s)")

    def _book_start(self, decision: StartJob) -> None:
        self._book_run(self.waiting.pop(decision.job_id), decision.units, decision.at)

    def _book_run(self, job: Job, units: IdSet, started_at: float) -> None:
        self.running[job.id] = Running(job, units, started_at)
        self._take(job, units.mask)
        self.reservations.pop(job.id, None)

    def _book_reject(self, decision: d.RejectJob) -> None:
        del self.waiting[decision.job_id]
        self.final[decision.job_id] = JobState.OMITTED if decision.omitted else JobState.REFUSED
        self.reservations.pop(decision.job_id, None)

    def _book_withdrawal(self, decision: d.ConfirmWithdrawal) -> None:
        self.withdrawn.discard(decision.job_id)
        self.final[decision.job_id] = JobState.KILLED

    def _book_calls(self, decision: d.CallEvery) -> None:
        self.calls.add(decision.call_id)

    def _book_stop_calls(self, decision: d.StopCalls) -> None:
        self.calls.discard(decision.call_id)

    def _book_registration(self, decision: d.RegisterJob) -> None:
        self.registered.add(decision.job.id)
        if not self.begins.acknowledge_registration:
            self.waiting[decision.job.id] = decision.job

    def _book_finish(self, decision: d.FinishRegistration) -> None:
        self.registering = False

    def _book_resume(self, decision: d.ResumeRegistration) -> None:
        self.registering = self.begins.dynamic_registration

    def _book_switch(self, decision: d.SwitchUnits) -> None:
        # Neither a transition nor (perhaps) the target state can run jobs; UnitsSwitched says what it became.
        self._set_off(self.off_mask | decision.units.mask)

    def _book_state(self, decision: d.SetJobState) -> None:
        if decision.state is JobState.RUNNING:
            job = self.waiting.pop(decision.job_id, None)
            if job is not None:
                self.running[job.id] = Running(job, IdSet(), decision.at)
            return
        self.waiting.pop(decision.job_id, None)
        run = self.running.pop(decision.job_id, None)
        if run is not None:
            self._give_back(run.job, run.units)
        self.final[decision.job_id] = decision.state

    # ---- units

    def _take(self, job: Job, mask: int) -> None:
        self.free -= self._free_set.take(mask)
        if mask & self.all_mask != mask or mask & self.off_mask:
            self._busy_aside |= mask & (self.off_mask | ~self.all_mask)
        if self._table is not None and job.shape is not None:
            self._table.count_extras(job, mask, 1)

    def _give_back(self, job: Job, units: IdSet, kept: int = 0) -> None:
        """`kept`: a mask of the units that it still holds."""
        if self.sharing:
            for run in self.running.values():
                units = units - run.units
        if self._busy_aside:
            # Some of its units may be off, or gone.
            mask = units.mask
            self._busy_aside &= ~mask
            self.free += self._free_set.give(mask & self.all_mask & ~self.off_mask)
        else:
            self.free += self._free_set.give(units.bits, units.shift)
        if self._table is not None:
            self._misfits.clear()
            self._table.count_extras(job, units.mask | kept, -1)
            if kept:
                self._table.count_extras(job, kept, 1)

    def _nodes_changed(self) -> None:
        self._table = None
        self._views.clear()

    def _set_off(self, mask: int) -> None:
        self._set_usable(self.all_mask, mask)

    def _set_usable(self, all_mask: int, off_mask: int) -> None:
        """There are other units now, or others of them can run jobs."""
        busy = self.busy_mask
        usable = all_mask & ~off_mask
        self._misfits.clear()
        self.all_mask, self.off_mask = all_mask, off_mask
        self._busy_aside = busy & ~usable
        self._free_set.mask = free = usable & ~busy
        self.free = free.bit_count()

    # ---- events

    def observe(self, event: e.Event) -> None:
        """Takes note of one event."""
        note = _NOTES.get(type(event))
        if note is not None:
            note(self, event)

    def _note_submitted(self, event: e.JobSubmitted) -> None:
        self.waiting[event.job.id] = event.job

    def note_ended(self, event: e.JobEnded) -> Job | None:
        """Takes note of an end; returns the job if it held units."""
        self.final[event.job_id] = event.state
        run = self.running.pop(event.job_id, None)
        if run is None:
            self.waiting.pop(event.job_id, None)
            return None
        self._give_back(run.job, run.units)
        return run.job

    def _note_requeued(self, event: e.JobRequeued) -> None:
        run = self.running.pop(event.job_id, None)
        if run is not None:
            self._give_back(run.job, run.units)
            self.waiting[event.job_id] = run.job

    def _note_withdrawn(self, event: e.JobWithdrawn) -> None:
        if self.waiting.pop(event.job_id, None) is not None:
            self.withdrawn.add(event.job_id)
            self.reservations.pop(event.job_id, None)

    def _note_priorities(self, event: e.PrioritiesChanged) -> None:
        for job_id, priority in event.priorities.items():
            job = self.waiting.get(job_id)
            if job is not None:
                job.priority = priority

    def _note_walltime(self, event: e.WalltimeChanged) -> None:
        run = self.running.get(event.job_id)
        job = run.job if run is not None else self.waiting.get(event.job_id)
        if job is not None:
            job.walltime = event.walltime

    def _note_freed(self, event: e.UnitsFreed) -> None:
        run = self.running.get(event.job_id)
        if run is None:
            return  # its end has the same date and was noted first: all its units came back then
        run.units = run.units - event.units
        self._give_back(run.job, event.units, run.units.mask)

    def _note_holds(self, event: e.JobHolds) -> None:
        run = self.running.pop(event.job.id, None)
        if run is not None:
            self._give_back(run.job, run.units)
        self.waiting.pop(event.job.id, None)
        self._book_run(event.job, event.units, event.started_at)

    def _note_available(self, event: e.UnitsAvailable) -> None:
        self._set_off(self.off_mask & ~event.units.mask)

    def _note_unavailable(self, event: e.UnitsUnavailable) -> None:
        self._set_off(self.off_mask | event.units.mask)

    def _note_joined(self, event: e.NodesJoined) -> None:
        all_mask = self.all_mask
        for node in event.nodes:
            self.nodes[node.name] = node
            all_mask |= node.mask
            self.away_mask &= ~node.mask
        self._nodes_changed()
        self._set_usable(all_mask, self.off_mask)
        self.total = self.all_mask.bit_count()

    def _note_left(self, event: e.NodesLeft) -> None:
        for name in event.names:
            self.nodes.pop(name, None)
        self._nodes_changed()
        if event.may_return:
            self.away_mask |= event.units.mask
        self._set_usable(self.all_mask & ~event.units.mask, self.off_mask & ~event.units.mask)
        self.total = self.all_mask.bit_count()

    def _note_switched(self, event: e.UnitsSwitched) -> None:
        on = 0
        for node in self.begins.nodes:
            if node.mask & event.units.mask and computes(node, event.power_state):
                on |= node.mask
        self._set_off((self.off_mask | event.units.mask) & ~on)

    def _note_call(self, event: e.CallArrived) -> None:
        if event.last:
            self.calls.discard(event.call_id)


def _count_rule(begins: e.Begins, wants: d.Wants) -> str | None:
    """ "exact", "least", or None: an allocation of any size will do."""
    if wants.least_count:
        return "least"
    exact = begins.exact_count if wants.exact_count is None else wants.exact_count
    return "exact" if exact else None


_BOOKS: dict[type, Callable[[Cluster, Any], None]] = {
    StartJob: Cluster._book_start,
    d.RejectJob: Cluster._book_reject,
    d.ConfirmWithdrawal: Cluster._book_withdrawal,
    d.CallEvery: Cluster._book_calls,
    d.StopCalls: Cluster._book_stop_calls,
    d.RegisterJob: Cluster._book_registration,
    d.FinishRegistration: Cluster._book_finish,
    d.ResumeRegistration: Cluster._book_resume,
    d.SwitchUnits: Cluster._book_switch,
    d.SetJobState: Cluster._book_state,
}

_NOTES: dict[type, Callable[[Cluster, Any], object]] = {
    e.JobSubmitted: Cluster._note_submitted,
    e.JobEnded: Cluster.note_ended,
    e.JobRequeued: Cluster._note_requeued,
    e.JobWithdrawn: Cluster._note_withdrawn,
    e.PrioritiesChanged: Cluster._note_priorities,
    e.WalltimeChanged: Cluster._note_walltime,
    e.UnitsFreed: Cluster._note_freed,
    e.JobHolds: Cluster._note_holds,
    e.UnitsAvailable: Cluster._note_available,
    e.UnitsUnavailable: Cluster._note_unavailable,
    e.NodesJoined: Cluster._note_joined,
    e.NodesLeft: Cluster._note_left,
    e.UnitsSwitched: Cluster._note_switched,
    e.CallArrived: Cluster._note_call,
}

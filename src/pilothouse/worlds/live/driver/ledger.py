"""The driver's ledger: what there is to know about a run, and what each record changes in it. Sans-IO.

`update` is the only place where records change state; it runs for what happens now and, after a restart, for what the
journal tells. What decides which records to make builds on this class: outcomes.py, engagement.py, driver.py.
"""

from __future__ import annotations

from math import inf

import msgspec

from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Command, Job, Shape
from pilothouse.model.lifecycle import FINAL, JobState, Stimulus
from pilothouse.worlds.live.driver import records as r
from pilothouse.worlds.live.driver.calls import Calls
from pilothouse.worlds.live.driver.dependencies import Dependencies
from pilothouse.worlds.live.driver.engines import PRESENT, ProxyState, ProxyStimulus, Roster
from pilothouse.worlds.live.driver.options import LiveOptions
from pilothouse.worlds.live.driver.task_groups import NODE_LOST, Backlog, DoneIds, Lot
from pilothouse.worlds.live.wire.messages import (
    Kill,
    Surroundings,
    TaskOrder,
)

NOT_HEARD = "not heard since the restart"
LIMIT = "limit of "
KILL = "end of "
"""Names of notes: how many more tasks a context may be given, and jobs that were to be ended."""


class Ledger:
    """All tables of one run."""

    def __init__(
        self,
        options: LiveOptions,
        session: int,
        unix_offset: float,
        done: DoneIds | None = None,
    ) -> None:
        self.options = options
        self.session = session
        self.roster = Roster()
        self.done = done or DoneIds()
        self.records: list[r.Record] = []
        self.events: list[e.Event] = []
        self.lots: dict[str, Lot] = {}
        """Told to the decider and not ended."""
        self.waiting = 0
        self.over = False
        self.running_tasks = 0
        template = Job("", options.units, options.walltime, shape=options.shape)
        bundle = 1 if options.walltime != inf else options.bundle
        self.backlog = Backlog(template, options.surroundings, bundle, self.done)
        self.calls = Calls()
        self._unix_offset = unix_offset
        self._assignments: dict[int, Lot] = {}
        self._next_assignment = 1
        self._next_task = 0
        self._dependencies = Dependencies()
        self._ended_jobs: list[tuple[str, bool]] = []
        self._losses: dict[int, int] = {}
        self._restored: dict[int, r.Assigned] = {}
        self._dirty: dict[str, None] = {}
        self._begun = False
        self._no_more = False
        self._told_no_more = False
        self._stopping = ""
        self._fail_fast = False
        self._parting_until = inf
        self._limits: dict[str, int] = dict(options.context_limits)
        self._kills: list[tuple[set[str], tuple[str, ...]]] = []
        self.lost_engines: list[r.EngineJoined] = []
        """Those lost since somebody last looked: their contexts may start others."""
        self._kills_before: dict[str, str] = {}
        """Jobs that an earlier driver was asked to end, and why."""
        self._dismissals: list[str] = []
        self._not_ready_for: list[str] = []
        self._spanning: set[str] = set()
        """Running jobs that have units of several engines."""
        self._not_yet_told: dict[str, None] = {}
        """Engines that are to leave, once such a job has ended."""
        self._known_jobs: dict[str, tuple[int, bytes]] = {}
        """Submitted jobs that have not ended: task id, and the job itself while restoring."""
        self.counts: dict[JobState, int] = dict.fromkeys(FINAL, 0)
        """Tasks by final state."""

    def _record(self, record: r.Record, now: float) -> None:
        self.records.append(record)
        self.update(record, now)

    def update(self, record: r.Record, now: float, *, restoring: bool = False) -> None:
        """What a record means, whether it happens now or is read in the journal."""
        match record:
            case r.TaskEnded():
                self._note_end(record, restoring=restoring)
            case r.Assigned(id=number, job_id=job_id, engine=engine):
                self._next_assignment = max(self._next_assignment, number + 1)
                if restoring:
                    self._restored[number] = record
                else:
                    lot = self.lots[job_id]
                    lot.assignment, lot.engine = number, engine
                    self._assignments[number] = lot
                    self.roster.engines[engine].assignments.add(number)
                    self.running_tasks += len(lot.tasks)
            case r.Returned(id=number, tasks=tasks):
                if restoring:
                    kept = [order for order in self._restored[number].tasks if order.task_id not in tasks]
                    self._restored[number] = msgspec.structs.replace(self._restored[number], tasks=kept)
                else:
                    for task_id in tasks:
                        self.backlog.give_back(self._assignments[number].tasks.pop(task_id))
                    self.running_tasks -= len(tasks)
            case r.Closed(id=number):
                self._restored.pop(number, None)
                closed = self._assignments.pop(number, None)
                if closed is not None:
                    self.running_tasks -= len(closed.tasks)
                    self.roster.engines[closed.engine].assignments.discard(number)
                    closed.assignment, closed.engine = 0, ""
            case r.EngineJoined():
                state = ProxyState.EXPECTED if restoring else ProxyState.JOINED
                proxy = self.roster.enter(record, state, now, inf)
                if restoring:
                    proxy.closed_for = NOT_HEARD
            case r.EngineLeft(engine=engine, lost=lost):
                if lost and not restoring:
                    self.lost_engines.append(self.roster.engines[engine].joined)
                stimulus = ProxyStimulus.SILENT if lost else ProxyStimulus.SAID_GOODBYE
                self.roster.remove(self.roster.engines[engine], stimulus)
            case r.JobKnown(job_id=job_id, task_id=task_id, data=data):
                self._next_task = max(self._next_task, task_id + 1)
                self._known_jobs[job_id] = (task_id, data if restoring else b"")
            case r.Note(name=name, value=value) if name.startswith(LIMIT):
                self._limits[name.removeprefix(LIMIT)] = int(value)
            case r.Note(name=name, value=value) if name.startswith(KILL) and restoring:
                self._kills_before[name.removeprefix(KILL)] = value.decode()
            case _:
                pass

    def _note_end(self, record: r.TaskEnded, *, restoring: bool) -> None:
        if record.kind == "P":
            return
        lot = self.lots.get(record.job_id)
        succeeded = record.state is JobState.SUCCEEDED
        if lot is not None and not succeeded:
            lot.worst, lot.code = record.state, record.return_code
        if not record.final:
            self.backlog.attempts[record.task_id] = record.attempt + 1
            if record.state is JobState.LOST:
                self._losses[record.task_id] = self._losses.get(record.task_id, 0) + 1
            return
        self.done.add(record.task_id, failed=not succeeded)
        self.backlog.attempts.pop(record.task_id, None)
        self._losses.pop(record.task_id, None)
        if record.kind != "N":
            return
        self.counts[record.state] += 1
        if lot is not None and lot.tasks.pop(record.task_id, None) is not None and lot.assignment:
            self.running_tasks -= 1
        if self._known_jobs.pop(record.job_id, None) is not None:
            self._ended_jobs.append((record.job_id, succeeded))
        elif not restoring:
            self.backlog.ended(record.task_id, failed=not succeeded)

    @property
    def stopped_because(self) -> str:
        """Why the run was stopped before its time; "": it was not."""
        return self._stopping

    def _take_back(self, assigned: r.Assigned) -> None:
        """An assignment that an engine may still have."""
        attempts, proxy = self.backlog.attempts, self.roster.engines[assigned.engine]
        tasks = {
            order.task_id: order
            for order in assigned.tasks
            if order.task_id not in self.done and attempts.get(order.task_id, 1) <= order.attempt
        }
        known = self._known_jobs.get(assigned.job_id)
        if known is not None:
            lot = self._lot_of(job_from(known[1]), known[0])
            lot.tasks = tasks
        else:
            lot = self.backlog.lot_of_before(assigned.job_id, tasks)
            self.backlog.held.update(tasks)
        lot.units = IdSet.parse(assigned.units)
        for stimulus in (Stimulus.QUEUED, Stimulus.ALLOCATED, Stimulus.LAUNCHED):
            lot.step(stimulus)
        lot.assignment, lot.engine = assigned.id, proxy.id
        if lot.units.mask & ~proxy.node.mask:
            self._spanning.add(assigned.job_id)
            owners = [self.roster.owner(unit) for unit in lot.units]
            if any(owner is None or owner.state not in PRESENT for owner in owners):
                self._kill_lot(lot, NODE_LOST)
        lot.kill_reason = self._kills_before.get(assigned.job_id, lot.kill_reason)
        self.lots[assigned.job_id] = lot
        self._assignments[assigned.id] = lot
        proxy.assignments.add(assigned.id)
        self.running_tasks += len(tasks)

    def _lot_of(self, job: Job, task_id: int, attempt: int = 1) -> Lot:
        if job.command is None:
            return Lot(job, {task_id: TaskOrder(task_id, attempt=attempt)}, Surroundings(), from_file=False)
        order = order_for(job.command, task_id, attempt)
        return Lot(job, {task_id: order}, self._surroundings_of(job, job.command), from_file=False)

    def _surroundings_of(self, job: Job, command: Command) -> Surroundings:
        return Surroundings(
            job.walltime, command.cwd, command.stdin, command.stdout, command.stderr, command.env,
            self.options.surroundings.bind,
        )  # fmt: skip

    def _kill_lot(self, lot: Lot, reason: str) -> None:
        lot.kill_reason = lot.kill_reason or reason
        proxy = self.roster.engines.get(lot.engine)
        if proxy is not None and proxy.welcomed:
            proxy.channel.push(Kill((lot.assignment,), reason))
            self._dirty[proxy.id] = None


def order_for(command: Command, task_id: int, attempt: int) -> TaskOrder:
    """The one task of a submitted job."""
    return TaskOrder(
        task_id, attempt=attempt, line=command.line.encode("utf-8", "surrogateescape"),
        argv=tuple(word.encode("utf-8", "surrogateescape") for word in command.argv),
    )  # fmt: skip


def plain_job(job: Job) -> Job:
    """The job without what only simulations and forwarding protocols need."""
    if job.profile is None and job.source is None and (job.shape is None or job.shape.constraint is None):
        return job
    shape = None if job.shape is None else msgspec.structs.replace(job.shape, constraint=None)
    return msgspec.structs.replace(job, profile=None, source=None, shape=shape)


def job_from(data: bytes) -> Job:
    """What `plain_job` left of a job, out of the journal (a profile could not be decoded, and a live world has
    none).
    """
    fields = msgspec.msgpack.decode(data)
    fields["shape"] = msgspec.convert(fields["shape"], Shape | None)
    fields["command"] = msgspec.convert(fields["command"], Command | None)
    fields["after"] = tuple(fields["after"])
    return Job(**fields)

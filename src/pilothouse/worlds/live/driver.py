"""The driver (controller): the whole state of a live run, as a state machine without IO.

Stimuli come in through methods: frames of engines, decisions, jobs, requests of users, the passing of time. What must
be done goes out through three lists: `records` (to be written down first), then `frames` (to be sent), and `events`
(for the decider). The shell around it (world.py) keeps that order, so nothing is ever sent or acknowledged that a
restarted driver would not know of.

`update` is the only place where records change state; it runs for what happens now and, after a restart, for what the
journal tells. Everything else only decides which records to make.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

import msgspec

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import DecisionError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Command, Job, Shape
from pilothouse.model.lifecycle import ENDS, FINAL, JobState, Stimulus
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.calls import Calls
from pilothouse.worlds.live.dependencies import Dependencies
from pilothouse.worlds.live.feeder import Feeder, Feeding
from pilothouse.worlds.live.messages import (
    LOST_CODE,
    VERSION,
    Assignment,
    Bye,
    Dismiss,
    DriverFrame,
    EngineFrame,
    Finished,
    Hello,
    Kill,
    Leave,
    Report,
    Result,
    Start,
    Surroundings,
    TaskOrder,
    Welcome,
)
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.roster import PRESENT, Proxy, ProxyState, ProxyStimulus, Roster
from pilothouse.worlds.live.work import CUT_S, NODE_LOST, Backlog, DoneIds, Lot, order_of

TICK_S = 1.0
NOT_HEARD = "not heard since the restart"
ACK_WITHIN_S = 0.5
PARTING_S = 15.0
"""How long the driver waits for engines to say goodbye when all work is done."""
_NOTHING_MORE = frozenset((Feeding.EXHAUSTED, Feeding.STOPPED))
_KINDS_OF_END = {"walltime": JobState.TIMED_OUT, "killed": JobState.KILLED, "dismissed": JobState.LOST}


class Driver:
    """One run."""

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
        bundle = 1 if options.walltime != inf or options.context_limits else options.bundle
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
        self._dismissals: list[str] = []
        self._spanning: set[str] = set()
        """Running jobs that have units of several engines."""
        self._known_jobs: dict[str, tuple[int, bytes]] = {}
        """Submitted jobs that have not ended: task id, and the job itself while restoring."""
        self.counts: dict[JobState, int] = dict.fromkeys(FINAL, 0)
        """Tasks by final state."""

    # ---- records: the only place where they change state

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
                stimulus = ProxyStimulus.SILENT if lost else ProxyStimulus.SAID_GOODBYE
                self.roster.remove(self.roster.engines[engine], stimulus)
            case r.JobKnown(job_id=job_id, task_id=task_id, data=data):
                self._next_task = max(self._next_task, task_id + 1)
                self._known_jobs[job_id] = (task_id, data if restoring else b"")
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

    # ---- beginning and end

    def begins(self, now: float) -> e.Begins:
        """What the decider is told first; from now on changes are events."""
        self._begun = True
        self.events.clear()
        running = tuple(
            e.Running(lot.job, lot.units, now) for lot in self.lots.values() if lot.state is not JobState.WAITING
        )
        nodes = tuple(proxy.node for proxy in self.roster.engines.values())
        off = [proxy.units.mask for proxy in self.roster.engines.values() if proxy.closed_for]
        begins = e.Begins(
            nodes, time_waits=False, started_at=now, running=running, unavailable=IdSet(sum(off)),
            config={"world": "live"},
        )  # fmt: skip
        self.events.append(e.Began(now, begins))
        # Jobs whose engine was found gone before the decider was there.
        waiting = [lot.job for lot in self.lots.values() if lot.state is JobState.WAITING]
        self.events.extend(e.JobSubmitted(now, job) for job in waiting)
        return begins

    def restore(self, records: Iterable[r.Record], now: float) -> None:
        """Comes to the state that the journal describes; engines that had not left are expected back."""
        for record in records:
            self.update(record, now, restoring=True)
        for assigned in list(self._restored.values()):
            self._take_back(assigned)
        self._restored.clear()
        self._release_dependents(now)
        for task_id, data in list(self._known_jobs.values()):
            job = _job_of(data)
            if job.id not in self.lots:
                self._admit(job, task_id, now)

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
            lot = self._lot_of(_job_of(known[1]), known[0])
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
        self.lots[assigned.job_id] = lot
        self._assignments[assigned.id] = lot
        proxy.assignments.add(assigned.id)
        self.running_tasks += len(tasks)

    def feed(self, feeder: Feeder) -> None:
        """Where the tasks of the file come from. After `restore`, as a feeder looks ahead past what is done."""
        self.backlog.feeder = feeder
        self._no_more = not self.options.service

    def no_more(self) -> None:
        """No job will be submitted from outside any more: the run ends when what there is has ended."""
        self._no_more = True

    def stop(self, reason: str, now: float) -> None:
        """Begins nothing more, ends what runs, and then ends the run. What has no result yet may be resumed later."""
        if self._stopping:
            return
        self._stopping = reason
        self._no_more = True
        if self.backlog.feeder is not None:
            self.backlog.feeder.stop()
        for lot in list(self.lots.values()):
            if lot.state is JobState.WAITING:
                self.events.append(e.JobWithdrawn(now, lot.job.id))
                lot.step(Stimulus.KILLED)
                del self.lots[lot.job.id]
                self.waiting -= 1
            else:
                self._kill_lot(lot, "killed")

    @property
    def stopped_because(self) -> str:
        """Why the run was stopped before its time; "": it was not."""
        return self._stopping

    # ---- jobs from outside

    def submit(self, job: Job, now: float) -> int:
        """A job with a command; the task id that it got. It waits for `job.after` here."""
        assert job.command is not None, "a live world runs commands"
        task_id = self._next_task
        self._record(r.JobKnown(job.id, task_id, msgspec.msgpack.encode(_plain(job))), now)
        self._admit(job, task_id, now)
        return task_id

    def _admit(self, job: Job, task_id: int, now: float) -> None:
        lot = self._lot_of(job, task_id)
        state = self._dependencies.add(job, lot)
        if state is Stimulus.OMITTED:
            self._end_unstarted(lot, JobState.OMITTED, "a job that it waits for did not succeed", now)
        elif state is Stimulus.HELD:
            lot.step(Stimulus.HELD)
        else:
            self.backlog.add(lot)

    def _release_dependents(self, now: float) -> None:
        """What the ends of submitted jobs mean for those that wait for them."""
        while self._ended_jobs:
            job_id, succeeded = self._ended_jobs.pop()
            free, omitted = self._dependencies.ended(job_id, succeeded=succeeded)
            for lot in free:
                self.backlog.add(lot)
            for lot in omitted:
                self._end_unstarted(lot, JobState.OMITTED, f"job {job_id} did not succeed", now)

    def cancel(self, job_id: str, now: float) -> bool:
        """Takes a job back, or ends it; False if it is not known or over."""
        lot = self.lots.get(job_id)
        if lot is None:
            lot = self._dependencies.remove(job_id) or self.backlog.withdraw(job_id)
            if lot is None:
                return False
            self._end_unstarted(lot, JobState.KILLED, "cancelled", now)
        elif lot.state is JobState.WAITING:
            self._withdraw(lot, now)
        else:
            self._kill_lot(lot, "killed")
        return True

    # ---- engines

    def hear(self, frame: EngineFrame, now: float) -> None:
        """A frame of an engine, or of its warden."""
        proxy = self.roster.engines.get(frame.engine)
        if proxy is None:
            self._hear_stranger(frame, now)
            return
        proxy.heard_at = now
        self._dirty[proxy.id] = None
        if frame.session == 0:
            self._hear_newcomer(proxy, frame, now)
            return
        if frame.session != self.session or not proxy.welcomed:
            proxy.speaks_at = now  # it must learn of this incarnation
            return
        if proxy.channel.take(frame.seq, frame.ack, now):
            proxy.speaks_at = min(proxy.speaks_at, now + ACK_WITHIN_S)
            for body in frame.bodies:
                if type(body) is Report:
                    self._report(proxy, body, now)
                elif type(body) is Bye:
                    self._goodbye(proxy, body, now)

    def _hear_stranger(self, frame: EngineFrame, now: float) -> None:
        hello = next((body for body in frame.bodies if type(body) is Hello), None)
        departed = self.roster.departed.get(frame.engine)
        if departed is not None and departed.state is ProxyState.GONE and frame.session == self.session:
            departed.speaks_at = now  # it has not heard that we know
            self._dirty[frame.engine] = None
        elif hello is None or departed is not None or self._stopping or self.over:
            self._dismissals.append(frame.engine)
        else:
            record = self.roster.describe(frame.engine, hello, now + self._unix_offset)
            self._record(record, now)
            proxy = self.roster.engines[frame.engine]
            proxy.ends_at = hello.ends_at - self._unix_offset
            self._welcome(proxy)
            if self._begun:
                self.events.append(e.NodesJoined(now, (proxy.node,)))
            if proxy.ends_at - now < self._least_time():
                self._close_for(proxy, "its allocation ends", now)
            limit = hello.properties.get("task_limit", "")
            if limit.isdigit():
                self._limits.setdefault(proxy.joined.context, int(limit))
            if self._limits.get(proxy.joined.context, 1) <= 0:
                self.ask_to_leave(proxy.id, "task limit of its context", now)

    def _hear_newcomer(self, proxy: Proxy, frame: EngineFrame, now: float) -> None:
        """Hello of an engine that we know (it had not heard our welcome, or we were restarted), or a warden's last
        word.
        """
        for body in frame.bodies:
            if type(body) is Report:
                self._report(proxy, body, now)
            elif type(body) is Bye:
                self._goodbye(proxy, body, now)
            elif type(body) is Hello and not proxy.welcomed:
                proxy.step(ProxyStimulus.HEARD)
                proxy.ends_at = body.ends_at - self._unix_offset
                self._welcome(proxy)
                if proxy.closed_for == NOT_HEARD:
                    proxy.closed_for = ""
                    if self._begun:
                        self.events.append(e.UnitsAvailable(now, proxy.units))
                missing = [number for number in proxy.assignments if number not in body.held]
                for number in sorted(missing):
                    self._send_assignment(proxy, number, self._assignments[number])
                if body.leaving:
                    self.ask_to_leave(proxy.id, "it was leaving", now)

    def _welcome(self, proxy: Proxy) -> None:
        options, feeder = self.options, self.backlog.feeder
        proxy.welcomed = True
        proxy.channel.push(
            Welcome(
                rank=proxy.joined.rank,
                env={
                    **options.env,
                    "PILOTHOUSE_ENGINE": str(proxy.joined.rank),
                    "PILOTHOUSE_NODE": proxy.joined.node,
                    "DISBATCH_ENGINE_RANK": str(proxy.joined.rank),
                },
                task_env=options.task_env,
                heartbeat_s=max(options.heartbeat_s, len(self.roster.engines) / 500),
                wait_for_driver_s=options.wait_for_driver_s,
                grace_s=options.grace_s,
                first_unit=proxy.joined.first_unit,
                on_join=[order_of(line) for line in feeder.engine_start] if feeder else [],
                on_leave=[order_of(line) for line in feeder.engine_stop] if feeder else [],
            )
        )
        self._dirty[proxy.id] = None

    def ask_to_leave(self, engine: str, reason: str, now: float, *, at_once: bool = False) -> bool:
        """Soft shutdown: it finishes what it has (or is made to), then goes. False if there is no such engine."""
        proxy = self.roster.engines.get(engine)
        if proxy is None:
            return False
        self._close_for(proxy, reason, now)
        if proxy.state is not ProxyState.LEAVING or at_once:
            proxy.step(ProxyStimulus.ASKED_TO_LEAVE)
            proxy.channel.push(Leave(reason, at_once))
            self._dirty[proxy.id] = None
        return True

    def stop_context(self, context: str, reason: str, now: float) -> int:
        """Soft shutdown of all engines of a context; how many were asked."""
        members = [proxy.id for proxy in self.roster.engines.values() if proxy.joined.context == context]
        for engine in members:
            self.ask_to_leave(engine, reason, now)
        return len(members)

    def engine_vanished(self, engine: str, reason: str, now: float) -> None:
        """Whoever started it knows that its process is no more, and nobody spoke for it."""
        proxy = self.roster.engines.get(engine)
        if proxy is not None:
            self._engine_lost(proxy, reason, None, now)

    def _close_for(self, proxy: Proxy, reason: str, now: float) -> None:
        if not proxy.closed_for:
            proxy.closed_for = reason
            if self._begun and self._parting_until == inf:
                self.events.append(e.UnitsUnavailable(now, proxy.units))

    def _goodbye(self, proxy: Proxy, bye: Bye, now: float) -> None:
        proxy.speaks_at = now
        if bye.died:
            self._engine_lost(proxy, bye.reason, set(bye.begun), now)
        else:
            self._engine_lost(proxy, "", set(), now)

    def _engine_lost(self, proxy: Proxy, reason: str, begun: set[int] | None, now: float) -> None:
        """It is gone. What it had runs again, or is reported lost; `begun` (None: nobody knows) had been started."""
        for number in sorted(proxy.assignments):
            lot = self._assignments[number]
            for order in list(lot.tasks.values()):
                if begun is not None and order.task_id not in begun:
                    continue
                self._lose(lot, order, proxy, reason, now)
            self._release(lot, proxy, now)
            self._settle_lot(lot, proxy, reason, now)
        for job_id in [job_id for job_id in self._spanning if self.lots[job_id].units.mask & proxy.node.mask]:
            self._kill_lot(self.lots[job_id], NODE_LOST)
        lost = bool(reason)
        self._record(r.EngineLeft(proxy.id, now + self._unix_offset, reason or "done", lost), now)
        if self._begun and self._parting_until == inf:
            # When all work is done engines leave, which is no news for a decider.
            self.events.append(e.NodesLeft(now, (proxy.node.name,), proxy.units))
        if proxy.state is ProxyState.LOST:
            self._dismissals.append(proxy.id)

    def _lose(self, lot: Lot, order: TaskOrder, proxy: Proxy, reason: str, now: float) -> None:
        """A task that was begun, or may have been, on an engine that is gone."""
        losses = self._losses.get(order.task_id, 0) + 1
        again = self.options.reissue and not self.options.at_most_once and losses < self.options.most_losses
        again = again and not lot.killed and not self._stopping
        at = now + self._unix_offset
        result = Result(order.task_id, order.attempt, LOST_CODE, -1, at, at, reason=reason or "its engine left")
        self._record(self._ended(order, result, JobState.LOST, lot, proxy, final=not again), now)
        if again:
            lot.tasks[order.task_id] = msgspec.structs.replace(order, attempt=order.attempt + 1)

    # ---- results

    def _report(self, proxy: Proxy, report: Report, now: float) -> None:
        for result in report.per_engine:
            self._per_engine_result(proxy, result, now)
        for finished in report.finished:
            self._finished(proxy, finished, now)

    def _finished(self, proxy: Proxy, finished: Finished, now: float) -> None:
        lot = self._assignments.get(finished.assignment)
        if lot is None:
            return  # told twice, or taken away from it meanwhile
        for result in finished.results:
            order = lot.tasks.get(result.task_id)
            if order is not None and order.attempt == result.attempt:
                self._task_result(lot, order, result, proxy, now)
        returned = tuple(task_id for task_id in finished.returned if task_id in lot.tasks)
        if returned and lot.from_file and not lot.kill_reason:
            self._record(r.Returned(finished.assignment, returned), now)
        if finished.closed:
            self._release(lot, proxy, now)
            self._settle_lot(lot, proxy, NODE_LOST, now)

    def _settle_lot(self, lot: Lot, proxy: Proxy, reason: str, now: float) -> None:
        """It is on no engine any more: what is left of it waits again, unless it was to be ended."""
        if lot.killed:
            for order in list(lot.tasks.values()):
                self._unbegun_end(lot, order, proxy, now)
        if lot.tasks:
            self._requeue(lot, reason, now)
        else:
            self._finish_lot(lot, now)

    def _task_result(self, lot: Lot, order: TaskOrder, result: Result, proxy: Proxy, now: float) -> None:
        if result.reason == NODE_LOST:
            self._lose(lot, order, proxy, NODE_LOST, now)
            return
        if not result.reason:
            state = JobState.FAILED if result.return_code else JobState.SUCCEEDED
            self.backlog.pace.note(result.ended_at - result.started_at)
        else:
            state = _KINDS_OF_END.get(result.reason, JobState.FAILED)
        retry = (
            state in (JobState.FAILED, JobState.TIMED_OUT)
            and order.attempt - self._losses.get(order.task_id, 0) <= self.options.retries
            and not self._stopping
            and lot.from_file
        )
        cut_off = state is JobState.KILLED and bool(self._stopping)
        self._record(self._ended(order, result, state, lot, proxy, final=not retry and not cut_off), now)
        if cut_off:
            del lot.tasks[order.task_id]
            self.running_tasks -= 1
        elif retry:
            del lot.tasks[order.task_id]
            self.running_tasks -= 1
            self.backlog.give_back(msgspec.structs.replace(order, attempt=order.attempt + 1))
        elif state is JobState.SUCCEEDED:
            proxy.done += 1
        else:
            proxy.failed += 1
            if self.options.fail_fast:
                self._fail_fast = True

    def _unbegun_end(self, lot: Lot, order: TaskOrder, proxy: Proxy | None, now: float) -> None:
        """A task of a killed lot that had not been begun."""
        if self._stopping:
            del lot.tasks[order.task_id]
            return
        at = now + self._unix_offset
        result = Result(order.task_id, order.attempt, -15, -1, at, at, reason=lot.kill_reason or "not begun")
        self._record(self._ended(order, result, JobState.KILLED, lot, proxy, final=True), now)

    def _per_engine_result(self, proxy: Proxy, result: Result, now: float) -> None:
        feeder = self.backlog.feeder
        if feeder is None:
            return
        stopping = result.task_id < 0
        lines = feeder.engine_stop if stopping else feeder.engine_start
        index = -1 - result.task_id if stopping else result.task_id
        state = JobState.FAILED if result.return_code else JobState.SUCCEEDED
        line = next((line for line in lines if line.task_id == index), None)
        if line is not None:
            order = msgspec.structs.replace(order_of(line), task_id=index)
            result.task_id = index
            self._record(self._ended(order, result, state, None, proxy, kind="P"), now)

    def _ended(
        self, order: TaskOrder, result: Result, state: JobState, lot: Lot | None, proxy: Proxy | None,
        *, kind: str = "N", final: bool = True,
    ) -> r.TaskEnded:  # fmt: skip
        return r.TaskEnded(
            order.task_id, order.line_number, order.repeat_index, order.attempt, kind, state, result.return_code,
            proxy.joined.rank if proxy else -1, proxy.joined.node if proxy else "", result.pid, result.started_at,
            result.ended_at, result.out_bytes, result.out_snippet, result.err_bytes, result.err_snippet,
            order.line or b" ".join(order.argv), result.reason, final, lot.job.id if lot else "",
        )  # fmt: skip

    # ---- decisions

    def apply(self, decision: d.Decision, now: float) -> None:
        """Carries out one order of the decider. What the live world cannot do is a DecisionError."""
        match decision:
            case d.StartJob():
                self._start(decision, now)
            case d.RejectJob(job_id=job_id, reason=reason, omitted=omitted):
                lot = self.lots[job_id]
                self._record(r.Refused(job_id, now + self._unix_offset, reason), now)
                self._end_unstarted(lot, JobState.OMITTED if omitted else JobState.REFUSED, reason, now)
            case d.KillJobs(job_ids=job_ids):
                alive = {job_id for job_id in job_ids if job_id in self.lots}
                self._kills.append((alive, job_ids))
                for job_id in alive:
                    self._kill_lot(self.lots[job_id], "killed")
                self._check_kills("", now)
            case d.ConfirmWithdrawal() | d.Annotate() | d.SetMetadata() | d.AnswerEstimate() | d.AnswerFeasibility():
                pass
            case d.CallAt() | d.CallEvery() | d.StopCalls():
                self.calls.order(decision)
            case d.StopWorld():
                self.stop("the decider stopped the run", now)
            case d.FinishRegistration() | d.ResumeRegistration():
                pass
            case _:
                name = type(decision).__name__
                raise DecisionError("decider", 0, "not in a live world", f"{name} has no meaning where real tasks run")

    def _start(self, order: d.StartJob, now: float) -> None:
        lot = self.lots.get(order.job_id)
        if lot is None:
            # Taken back in the very batch that let the decider start it: its units are free again.
            self.events.append(e.JobEnded(now, order.job_id, JobState.KILLED, -15, order.units))
            return
        proxy = self.roster.owner(order.units.first())
        lot.units = order.units
        lot.step(Stimulus.ALLOCATED)
        self.waiting -= 1
        if proxy is None or proxy.state not in PRESENT or self._stopping or self._spent(proxy):
            # It left while the decider was thinking.
            self._requeue(lot, "its node left before it started", now)
            return
        number = self._next_assignment
        tasks = list(lot.tasks.values())
        self._record(r.Assigned(number, lot.job.id, proxy.id, str(order.units), now + self._unix_offset, tasks), now)
        lot.step(Stimulus.LAUNCHED)
        if order.units.mask & ~proxy.node.mask:
            self._spanning.add(lot.job.id)
        self._send_assignment(proxy, number, lot)
        self._count_limit(proxy, len(tasks), now)

    def _send_assignment(self, proxy: Proxy, number: int, lot: Lot) -> None:
        first = proxy.joined.first_unit
        here = lot.units & proxy.units
        shape = lot.job.shape
        wanted = shape.gpus_per_node if shape is not None else 0
        if wanted and not lot.gpus:
            lot.gpus = tuple(proxy.free_gpus[:wanted])
            del proxy.free_gpus[:wanted]
        surroundings = lot.surroundings
        if lot.job.walltime != surroundings.walltime:
            surroundings = msgspec.structs.replace(surroundings, walltime=lot.job.walltime)
        assignment = Assignment(
            number, tuple(unit - first for unit in here), list(lot.tasks.values()), surroundings, lot.gpus,
            self._nodes_of(lot.units) if here != lot.units or not lot.from_file else "",
            CUT_S if lot.size > 1 else inf,
        )  # fmt: skip
        proxy.channel.push(Start([assignment]))
        self._dirty[proxy.id] = None

    def _nodes_of(self, units: IdSet) -> str:
        """`name:count` for each node of the set, in order."""
        parts = []
        rest = units
        while rest:
            proxy = self.roster.owner(rest.first())
            if proxy is None:
                break
            parts.append(f"{proxy.node.name}:{len(rest & proxy.units)}")
            rest -= proxy.units
        return ",".join(parts)

    def _count_limit(self, proxy: Proxy, tasks: int, now: float) -> None:
        """Specification, Driver: a context that was given its limit of tasks is shut down."""
        proxy.given += tasks
        context = proxy.joined.context
        if context in self._limits:
            self._limits[context] -= tasks
            if self._limits[context] <= 0:
                self.stop_context(context, "task limit of its context", now)

    def _spent(self, proxy: Proxy) -> bool:
        """Whether its context has been given all the tasks that it may have."""
        return self._limits.get(proxy.joined.context, 1) <= 0

    def _kill_lot(self, lot: Lot, reason: str) -> None:
        lot.kill_reason = lot.kill_reason or reason
        proxy = self.roster.engines.get(lot.engine)
        if proxy is not None:
            proxy.channel.push(Kill((lot.assignment,), reason))
            self._dirty[proxy.id] = None

    def _check_kills(self, ended: str, now: float) -> None:
        """JobsKilled follows when the last job of a KillJobs has ended."""
        for pending, _ in self._kills:
            pending.discard(ended)
        for pending, job_ids in [entry for entry in self._kills if not entry[0]]:
            self.events.append(e.JobsKilled(now, job_ids, {}))
            self._kills.remove((pending, job_ids))

    # ---- lots

    def _lot_of(self, job: Job, task_id: int, attempt: int = 1) -> Lot:
        command = job.command
        assert command is not None
        order = TaskOrder(
            task_id, attempt=attempt, line=command.line.encode("utf-8", "surrogateescape"),
            argv=tuple(word.encode("utf-8", "surrogateescape") for word in command.argv),
        )  # fmt: skip
        surroundings = Surroundings(
            job.walltime, command.cwd, command.stdin, command.stdout, command.stderr, command.env,
            self.options.surroundings.bind,
        )  # fmt: skip
        return Lot(job, {task_id: order}, surroundings, from_file=False)

    def _requeue(self, lot: Lot, reason: str, now: float) -> None:
        lot.step(Stimulus.REQUEUED)
        lot.units, lot.worst, lot.code, lot.kill_reason = IdSet(), JobState.SUCCEEDED, 0, ""
        self._spanning.discard(lot.job.id)
        self.waiting += 1
        self.events.append(e.JobRequeued(now, lot.job.id, reason))

    def _release(self, lot: Lot, proxy: Proxy, now: float) -> None:
        self._record(r.Closed(lot.assignment, now + self._unix_offset), now)
        proxy.free_gpus.extend(lot.gpus)
        lot.gpus = ()

    def _finish_lot(self, lot: Lot, now: float) -> None:
        """All of it has ended or was given back."""
        del self.lots[lot.job.id]
        self._spanning.discard(lot.job.id)
        lot.step(ENDS[lot.worst])
        self.events.append(e.JobEnded(now, lot.job.id, lot.worst, lot.code, lot.units))
        self._check_kills(lot.job.id, now)

    def _withdraw(self, lot: Lot, now: float) -> None:
        """A job that waits is taken back."""
        self.events.append(e.JobWithdrawn(now, lot.job.id))
        self._end_unstarted(lot, JobState.KILLED, "cancelled", now)

    def _end_unstarted(self, lot: Lot, state: JobState, reason: str, now: float) -> None:
        at = now + self._unix_offset
        for order in list(lot.tasks.values()):
            result = Result(order.task_id, order.attempt, 1, -1, at, at, reason=reason or state.value)
            self._record(self._ended(order, result, state, lot, None), now)
        if lot.state not in FINAL:
            lot.step(ENDS[state])
        if self.lots.pop(lot.job.id, None) is not None:
            self.waiting -= 1

    # ---- time

    def settle(self, now: float) -> None:
        """Tells the decider of new work while it has room for it, notes barriers, and sees whether the run is over."""
        if not self._begun:
            return
        feeder = self.backlog.feeder
        if self._fail_fast and not self._stopping:
            self.stop("a task failed", now)
        self._release_dependents(now)
        if not self._stopping and self.roster.engines:
            window = self.options.window or max(8, self.roster.units + self.roster.units // 2)
            if self.waiting < window:
                for lot in self.backlog.lots(window - self.waiting, self.roster.units, now):
                    lot.step(Stimulus.QUEUED)
                    self.lots[lot.job.id] = lot
                    self.waiting += 1
                    self.events.append(e.JobSubmitted(now, lot.job))
        if feeder is not None:
            for line in feeder.passed():
                if line.task_id not in self.done:
                    self._record(_barrier_record(line.kind.value, order_of(line), now + self._unix_offset), now)
        if self._no_more and not self._told_no_more and (feeder is None or feeder.state in _NOTHING_MORE):
            self._told_no_more = True
            self.events.append(e.NoMoreJobs(now))
        if self.nothing_to_do and self._parting_until == inf:
            self._parting_until = now + PARTING_S
            for engine in list(self.roster.engines):
                self.ask_to_leave(engine, "all work is done", now, at_once=bool(self._stopping))
        if self._parting_until != inf and (not self.roster.engines or now > self._parting_until):
            self.over = True

    @property
    def nothing_to_do(self) -> bool:
        """All that is known has ended, and no more will come."""
        if self._stopping:
            return not self.lots
        return self._no_more and not self.lots and self.backlog.empty and not self._dependencies.waiting

    def tick(self, now: float) -> None:
        """Time has passed: who has not been heard, whose allocation ends, which calls are due."""
        options = self.options
        for proxy in list(self.roster.engines.values()):
            patience = options.return_within_s if proxy.state is ProxyState.EXPECTED else options.lost_after_s
            if now - proxy.heard_at > patience:
                proxy.step(ProxyStimulus.SILENT)
                self._engine_lost(proxy, "not heard for too long", None, now)
            elif not proxy.closed_for and proxy.ends_at - now < self._least_time():
                self._close_for(proxy, "its allocation ends", now)
            elif proxy.welcomed and proxy.speaks_at <= now:
                self._dirty[proxy.id] = None
        self.events.extend(self.calls.due(now))

    def _least_time(self) -> float:
        """What a task needs before the end of an allocation: its walltime, or what tasks have taken so far."""
        if self.options.walltime != inf:
            return self.options.walltime + self.options.grace_s
        mean_s = self.backlog.pace.mean_s
        return self.options.grace_s + (mean_s if mean_s != inf else 0.0)

    def frames(self, now: float) -> list[DriverFrame]:
        """What must be sent, once the records are written."""
        out: list[DriverFrame] = []
        for engine in self._dirty:
            proxy = self.roster.engines.get(engine) or self.roster.departed.get(engine)
            if proxy is None:
                continue
            frames = proxy.channel.outgoing(now) if proxy.welcomed else []
            for seq, bodies in frames:
                out.append(DriverFrame(VERSION, engine, self.session, seq, proxy.channel.received, bodies))
            if not frames and proxy.speaks_at <= now:
                out.append(DriverFrame(VERSION, engine, self.session, 0, proxy.channel.received, []))
                frames = [(0, [])]
            if frames:
                proxy.speaks_at = now + self.options.heartbeat_s
        for engine in self._dismissals:
            out.append(DriverFrame(VERSION, engine, self.session, 0, 0, [Dismiss("not of this run any more")]))
        self._dismissals.clear()
        self._dirty.clear()
        return out


def _barrier_record(kind: str, order: TaskOrder, at: float) -> r.TaskEnded:
    return r.TaskEnded(
        order.task_id, order.line_number, order.repeat_index, 1, kind, JobState.SUCCEEDED, 0, -1, "", -1, at, at,
        0, b"", 0, b"", order.line,
    )  # fmt: skip


def _plain(job: Job) -> Job:
    """The job without what only simulations and forwarding protocols need."""
    shape = None if job.shape is None else msgspec.structs.replace(job.shape, constraint=None)
    return msgspec.structs.replace(job, profile=None, source=None, shape=shape)


def _job_of(data: bytes) -> Job:
    """What `_plain` left of a job, out of the journal (a profile could not be decoded, and a live world has none)."""
    fields = msgspec.msgpack.decode(data)
    fields["shape"] = msgspec.convert(fields["shape"], Shape | None)
    fields["command"] = msgspec.convert(fields["command"], Command | None)
    fields["after"] = tuple(fields["after"])
    return Job(**fields)

"""The driver (controller): the whole state of a live run, as a state machine without IO.

Stimuli come in through methods: frames of engines, decisions, jobs, requests of users, the passing of time. What must
be done goes out through three lists: `records` (to be written down first), then `frames` (to be sent), and `events`
(for the decider). The shell around it (world.py) keeps that order, so nothing is ever sent or acknowledged that a
restarted driver would not know of.

The class is built in four layers, one file each: the ledger (tables, and what records change in them), outcomes (what
the ends of tasks mean), engagement (engines that come and go), and here the run as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

import msgspec

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import DecisionError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Command, Job
from pilothouse.model.lifecycle import JobState, Stimulus
from pilothouse.worlds.live.driver import records as r
from pilothouse.worlds.live.driver.engine_lifecycle import Engagement
from pilothouse.worlds.live.driver.engines import PRESENT, ProxyState, ProxyStimulus
from pilothouse.worlds.live.driver.feeder import Feeder, Feeding
from pilothouse.worlds.live.driver.ledger import job_from, order_for, plain_job
from pilothouse.worlds.live.driver.outcomes import barrier_record
from pilothouse.worlds.live.driver.task_groups import order_of
from pilothouse.worlds.live.wire.messages import (
    VERSION,
    Dismiss,
    DriverFrame,
)

FIRST_SUBMITTED = 10**12
PARTING_S = 15.0
"""How long the driver waits for engines to say goodbye when all work is done; those that have commands of their own to run
are waited for as long as they are heard, unless the run was stopped."""
MOST_AHEAD = 50
"""Jobs that wait although no unit is free for them, where there are very many units."""
_NOTHING_MORE = frozenset((Feeding.EXHAUSTED, Feeding.STOPPED))


class Driver(Engagement):
    """One run."""

    def begins(self, now: float) -> e.Begins:
        """What the decider is told first; from now on changes are events."""
        self._begun = True
        self.events.clear()
        present = sum(proxy.node.mask for proxy in self.roster.engines.values())
        running = tuple(
            # Nodes of a job that spans several may have been lost before: nobody is told of those.
            e.Running(lot.job, IdSet(lot.units.mask & present), now)
            for lot in self.lots.values()
            if lot.state is not JobState.WAITING
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
            job = job_from(data)
            if job.id not in self.lots:
                self._admit(job, task_id, now)

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
        # Told at once and not when all has ended: whoever is impatient may end the driver before.
        for engine in list(self.roster.engines):
            self.ask_to_leave(engine, reason, now, at_once=True)

    def submit(self, job: Job, now: float) -> int:
        """Takes a job in; its task id. It waits for `job.after` here. One without a command is recorded by `bind`."""
        task_id = self._next_task
        if self.backlog.feeder is not None:
            task_id = max(task_id, FIRST_SUBMITTED)  # the lower ones belong to the lines of the file
        if job.command is not None:
            self._record(r.JobKnown(job.id, task_id, msgspec.msgpack.encode(plain_job(job))), now)
        else:
            self.update(r.JobKnown(job.id, task_id, b""), now)
        self._admit(job, task_id, now)
        return task_id

    def bind(self, job_id: str, command: Command, now: float) -> None:
        """Sets the command of a submitted job that waits for its start; from now on a restarted driver knows it."""
        lot = self.lots.get(job_id)
        if lot is None:
            return
        lot.job.command = command
        ((task_id, order),) = lot.tasks.items()
        lot.tasks[task_id] = order_for(command, task_id, order.attempt)
        lot.surroundings = self._surroundings_of(lot.job, command)
        self._record(r.JobKnown(job_id, task_id, msgspec.msgpack.encode(plain_job(lot.job))), now)

    def _admit(self, job: Job, task_id: int, now: float) -> None:
        lot = self._lot_of(job, task_id, self.backlog.attempts.get(task_id, 1))
        state = self._dependencies.add(job, lot)
        if state is Stimulus.OMITTED:
            self._end_unstarted(lot, JobState.OMITTED, "a job that it waits for did not succeed", now)
        elif state is Stimulus.HELD:
            lot.step(Stimulus.HELD)
        else:
            self.backlog.add(lot)

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
            self._kill_for_good(lot, now)
        return True

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
                    self._kill_for_good(self.lots[job_id], now)
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
        assert lot.from_file or lot.job.command is not None, f"job {order.job_id} is started before it has a command"
        proxy, has_all = self.roster.holder(order.units)
        lot.units = order.units
        lot.step(Stimulus.ALLOCATED)
        self.waiting -= 1
        if proxy is None or proxy.closed_for or proxy.state not in PRESENT or self._stopping or self._spent(proxy):
            # It left, or was asked to, while the decider was thinking.
            self._requeue(lot, "its node left before it started", now)
            return
        number = self._next_assignment
        self._keep_within_limit(proxy, lot)
        tasks = list(lot.tasks.values())
        units = proxy.text_of(order.units) if has_all else str(order.units)
        self._record(r.Assigned(number, lot.job.id, proxy.id, units, now + self._unix_offset, tasks), now)
        lot.step(Stimulus.LAUNCHED)
        if not has_all:
            self._spanning.add(lot.job.id)
        self._send_assignment(proxy, number, lot)
        self._count_limit(proxy, len(tasks), now)

    def settle(self, now: float) -> None:
        """Tells the decider of new work while it has room for it, notes barriers, and sees whether the run is over."""
        if not self._begun:
            return
        feeder = self.backlog.feeder
        if self._fail_fast and not self._stopping:
            self.stop("a task failed", now)
        self._release_dependents(now)
        if self._not_yet_told:
            self._tell_those_who_may_leave()
        if not self._stopping and self.roster.engines:
            window = self.options.window or self._enough()
            if self.waiting < window:
                for lot in self.backlog.lots(window - self.waiting, self.roster.units, now):
                    lot.step(Stimulus.QUEUED)
                    self.lots[lot.job.id] = lot
                    self.waiting += 1
                    self.events.append(e.JobSubmitted(now, lot.job))
        if feeder is not None:
            for line in feeder.passed():
                if line.task_id not in self.done:
                    self._record(barrier_record(line.kind.value, order_of(line), now + self._unix_offset), now)
        if self._no_more and not self._told_no_more and (feeder is None or feeder.state in _NOTHING_MORE):
            self._told_no_more = True
            self.events.append(e.NoMoreJobs(now))
        if self.nothing_to_do and self._parting_until == inf:
            self._parting_until = now + PARTING_S
            for engine in list(self.roster.engines):
                self.ask_to_leave(engine, "all work is done", now, at_once=bool(self._stopping))
        if self._parting_until != inf and (not self.roster.engines or (now > self._parting_until and not self._may_take)):
            self.over = True

    @property
    def _may_take(self) -> bool:
        """Whether engines may have good reason not to be gone yet: START and STOP commands take what they take."""
        feeder = self.backlog.feeder
        return not self._stopping and feeder is not None and bool(feeder.engine_start or feeder.engine_stop)

    def _enough(self) -> int:
        """How many jobs should wait: one for every free unit, and so many more that a decider has some choice. Were there
        always half as many as there are units, thousands would lie about in memory for long before it is their turn.
        """
        units = self.roster.units
        free = units - len(self._assignments) * self.options.units
        return max(8, min(units + units // 2, max(0, free) + MOST_AHEAD))

    @property
    def stuck(self) -> bool:
        """Jobs wait, engines are idle, and nothing is left to happen: whoever decides will not be asked again."""
        engines, feeder = self.roster.engines.values(), self.backlog.feeder
        return (
            bool(self.waiting and engines and self._begun and self._no_more)
            and not (self._assignments or self.events or self._stopping)
            and self.calls.next_at == inf
            and all(proxy.welcomed for proxy in engines)
            and not all(proxy.closed_for for proxy in engines)
            and (feeder is None or feeder.state is not Feeding.FEEDING or feeder.has_next)
        )

    @property
    def waiting_tasks(self) -> tuple[str, ...]:
        """Names of the tasks that the decider knows and has not started: numbers of the file's, ids of jobs."""
        return tuple(
            str(task_id) if lot.from_file else lot.job.id
            for lot in self.lots.values()
            if lot.state is JobState.WAITING
            for task_id in lot.tasks
        )

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
            dismissal = Dismiss("not of this run any more", self._too_late)
            out.append(DriverFrame(VERSION, engine, self.session, 0, 0, [dismissal]))
        out.extend(DriverFrame(VERSION, engine, self.session, 0, 0, []) for engine in self._not_ready_for)
        self._dismissals.clear()
        self._not_ready_for.clear()
        self._dirty.clear()
        return out

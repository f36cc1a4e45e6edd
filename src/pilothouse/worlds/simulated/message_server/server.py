"""The message server of a Batsim: every notification costs simulated time, as in the real one.

Holds the server (one actor that receives one message at a time on the master host), and what sends to it: sources of
jobs and events, the replies of the decider, ends of jobs, calls, kills. The physics is the same as in world.py. Only the
dates differ at which the decider hears of events, and at which its decisions take effect. Comes in: sources, the cost of
a message from each unit, rules (generations.py), decisions. Goes out: batches, and a record of each job.

The server takes messages first in, first out. A transfer costs the latency of the sender's route to the master plus one
byte over its bandwidth, and starts only when the server comes back for it. After each message the server writes to the
decider if the decider is ready, no other message waits, and there is something to tell. The decisions of a reply are
messages too, each not before its own date, and one more message makes the decider ready again.

Decisions are judged when the server handles them, against the state at that date, because that is when they take effect:
a decision for later may rely on something that ends in between.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

import msgspec

from pilothouse.core.dependencies import Dependencies, Verdict
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import DecisionError, InputError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import ENDS, JobState, Stimulus
from pilothouse.model.profile import Profile
from pilothouse.model.record import JobRecord
from pilothouse.worlds.simulated.message_server import registration
from pilothouse.worlds.simulated.message_server.calls import Call, Periodic
from pilothouse.worlds.simulated.message_server.jobs import TrackedJob
from pilothouse.worlds.simulated.message_server.meter_readings import read_meters
from pilothouse.worlds.simulated.message_server.rounds import (
    FREE,
    Actor,
    Command,
    Mailbox,
    Rounds,
    Wait,
    exchange,
    post,
    receive,
    send,
    sleep,
    spawn,
    turn,
)
from pilothouse.worlds.simulated.message_server.rules import Rules
from pilothouse.worlds.simulated.message_server.sources import JobSource, Source
from pilothouse.worlds.simulated.message_server.unit_messages import MessageCosts, send_from
from pilothouse.worlds.simulated.physics.agenda import SteppedAgenda
from pilothouse.worlds.simulated.physics.execution import Physics, Run
from pilothouse.worlds.simulated.physics.machines import Machines, Tracer
from pilothouse.worlds.simulated.physics.platform import Platform
from pilothouse.worlds.simulated.physics.sharing import Flow

_SEND = Wait.SEND
_RUNNING = JobState.RUNNING

Receiver = Callable[[Any], Sequence[Actor] | Actor | None]
"""What the server does with a message. It returns actors to start, or an actor if the server itself has to wait."""


def _ignore(*_: object) -> None: ...


class Server:
    """The state of the resource manager, and the actor that serves its mailbox.

    `strict`: the scheduling constraints of the decider's hello are enforced, which the real Batsim 5 ignores.
    """

    # Python finds the methods of an object with 30 attributes or more slowly, unless they are in slots.
    __slots__ = (
        "_collected", "_decision_index", "_dependencies", "_end_told", "_end_written", "_event_at", "_events",
        "_handlers", "_lingering", "_needed", "_open_event_sources", "_open_external_sources", "_open_job_sources",
        "_open_workflows", "_over_and_told", "_ready", "_ready_message", "_stale_dates", "_succeeded", "_tracers",
        "agenda", "annotated", "answered", "begins", "calls", "constraints", "costs", "decider", "ended", "hidden_profiles",
        "jobs", "machines", "mailbox", "met", "meters_read_at", "pending", "periodic", "physics", "profile_users",
        "profiles", "record", "registering", "rounds", "rules", "sources", "stopped", "strict", "submission_noted",
        "unfinished", "warn", "workloads",
    )  # fmt: skip

    def __init__(
        self,
        begins: e.Begins,
        sources: Sequence[Source],
        platform: Platform,
        rules: Rules,
        *,
        solver: str = "fair-bottleneck",
        record: Callable[[JobRecord], None] = _ignore,
        answered: Callable[[d.AnswerEstimate], None] = _ignore,
        annotated: Callable[[str, str], None] = _ignore,
        tracers: Iterable[Tracer] = (),
        strict: bool = False,
        exact_energy: bool = False,
    ) -> None:
        self.begins = begins
        self.costs = MessageCosts(platform, tiny=rules.tiny_messages)
        self.rules = rules
        self._stale_dates, self._handlers = rules.stale_dates, rules.handlers
        self.strict = strict
        self.record, self.answered, self.annotated = record, answered, annotated
        self._tracers = tuple(tracers)
        self.decider = "scheduler"
        self.warn: Callable[[str], None] = _ignore
        self.agenda = SteppedAgenda()
        self.rounds = Rounds(self.agenda)
        self.mailbox = Mailbox()
        self.jobs: dict[str, TrackedJob] = {}
        self.met = {job.id for source in sources if isinstance(source, JobSource) for job in source.jobs}
        """The ids of all jobs of the run so far, and of those that will be submitted: no id is given twice."""
        self._dependencies: Dependencies[Job] = Dependencies()
        self._succeeded: dict[str, bool] = {}
        """How the jobs ended that others depend on (rules.holds_dependents)."""
        self._needed: set[str] = set()
        if rules.holds_dependents:
            jobs = [job for source in sources if isinstance(source, JobSource) for job in source.jobs]
            self._needed = {name for job in jobs for name in job.after}
            self._succeeded = dict.fromkeys(self._needed - self.met, False)
        self.profiles: dict[str, Profile] = dict(begins.profiles)
        self.physics = Physics(
            self.agenda,
            self._on_run_ended,
            platform,
            profiles=self.profiles,
            machines=True,
            energy=begins.energy,
            exact_energy=exact_energy,
            stay_computing=rules.stay_computing,
            solver=solver,
            tells=self._on_job_speaks,
        )
        assert self.physics.machines is not None
        self.machines: Machines = self.physics.machines
        self._lingering: dict[str, Flow] = {}
        """The parallel tasks of jobs that reached their walltime (rules.tasks_linger)."""
        if rules.tasks_linger:
            demands = self.physics.demands
            demands.ranks_report = False
            demands.alarm = self.agenda.alarm
            demands.linger = self._lingering.__setitem__
        self.profile_users: dict[str, int] = {}
        """Of each registered profile, how many jobs and profiles need it. One that is not needed is forgotten."""
        self.hidden_profiles: set[str] = set()
        """Profiles that no new job may have."""
        self._collected: list[Profile] = []
        self.workloads: set[str] = set(begins.workloads)
        self.registering = begins.dynamic_registration
        self.constraints: d.Wants | None = None
        self.sources = sources
        self._open_job_sources = sum(source.sends_jobs for source in sources)
        self._open_event_sources = len(sources) - self._open_job_sources
        self._open_external_sources = sum(source.is_external for source in sources)
        self._open_workflows = sum(source.is_workflow for source in sources)
        self.unfinished = 0
        """Jobs that were submitted and are neither over nor refused."""
        self.pending = 0
        """Calls, kills, switches and probes that are under way: the run is not over before they are."""
        self.calls: dict[str, Call] = {}
        """Calls that are still to come."""
        self.periodic = Periodic(self)
        self._decision_index = 0
        self.meters_read_at: dict[int, float] = {}
        """When the meter of each machine was read last by an actor (meter_readings.py)."""
        self.submission_noted = False
        """A source was about to submit jobs."""
        self._events: list[e.Event] = []
        """For the next batch."""
        self._event_at = 0.0
        self._over_and_told: list[str] = []
        self._ready_message = self.send(self._on_ready)
        self._ready = self._end_told = self._end_written = False
        self.stopped = self.ended = False

    @property
    def held(self) -> list[str]:
        """The jobs that wait for others."""
        return [job.id for job in self._dependencies.held.values()]

    def job_due(self) -> None:
        """A source is about to submit jobs."""
        self.submission_noted = True
        for tracer in self.machines.tracers:
            tracer.job_due(self.machines)

    # ---- events

    def note_date(self) -> None:
        """Something of this date was heard: what has no date of its own (rules.stale_dates) is dated so from now on."""
        self._event_at = self.agenda.now

    def tell(self, event: e.Event) -> None:
        """Adds an event, dated now, to the next batch."""
        if self._stale_dates and type(event) in self._stale_dates:
            event.at = self._event_at
        else:
            self._event_at = event.at
        self._events.append(event)

    def send(self, receiver: Receiver, argument: object = None, *, unit: int | None = None) -> Command:
        """A message to the server, from a unit or from the master."""
        costs = self.costs
        return (_SEND, self.mailbox, (receiver, argument), costs.from_master if unit is None else costs.from_unit(unit))

    def refuse(self, rule: str, detail: str, in_words_of_5: str = "") -> DecisionError:
        """The error for the decision that is being handled."""
        if self.rules.in_words_of_5:
            return DecisionError(self.decider, self._decision_index, rule, in_words_of_5 or detail)
        return DecisionError(self.decider, self._decision_index, rule, f"{detail} (at {self.agenda.now:f})")

    # ---- the actor

    def serve(self) -> Actor:
        """The server itself: one message after the other until the decider has heard of the end."""
        mailbox, rules = self.mailbox, self.rules
        ends_in_last, at_once = rules.ends_in_last_message, rules.writes_at_once
        next_message = receive(mailbox)
        if rules.keeper:
            self.rounds.start(self.periodic.keep())
        if rules.first_turn:
            yield turn()
        self.tell(e.Began(self.begins.started_at, self.begins))
        self._ready = True
        while not self.ended:
            if ends_in_last and not self._end_told and self._is_over():
                yield from self._end()
            if self._ready and not self._end_written:
                if self.stopped:
                    self._events.clear()
                    yield from self._end()
                    mailbox.waiting.clear()
                    yield self._write()
                elif at_once or not mailbox.waiting:
                    if not self._events and not self._end_told and self._is_over():
                        yield from self._end()
                    if self._events:
                        yield self._write()
            receiver, argument = yield next_message
            started = receiver(argument)
            if type(started) is tuple or type(started) is list:
                for actor in started:
                    yield spawn(actor)
            elif started is not None:
                yield from started
        if self.rules.keeper and not self.stopped and (self.pending or self.unfinished):
            raise self.refuse("after the end", "Left simulation loop, but calls, probes, kills, switches or jobs are running")
        self.rounds.stop()

    def _end(self) -> Generator[Command, Any, None]:
        if self.rules.keeper:
            yield from self.periodic.talk(lambda: None)
        self.tell(e.Ended(self.agenda.now))
        self._end_told = True

    def _write(self) -> Command:
        """Writes the next batch to the decider. Jobs whose end it tells of are forgotten."""
        self._event_at = now = self.agenda.now
        batch = e.Batch(now, self._events)
        self._events = []
        self._ready = False
        self._end_written = self._end_told
        if self._over_and_told:
            for job_id in self._over_and_told:
                self._forget_job(job_id)
            self._over_and_told.clear()
        return spawn(self._converse(batch))

    def _forget_job(self, job_id: str) -> None:
        profile = (self.jobs[job_id] if self.rules.keeps_jobs else self.jobs.pop(job_id)).job.profile
        begins = self.begins
        if profile is None or (begins.dynamic_registration and begins.profile_reuse):
            return
        if not self.rules.profiles_outlive_jobs:
            # QUIRK: a profile is gone as soon as one job that uses it has ended, not the last one.
            self.hidden_profiles.add(profile.name)
        elif begins.dynamic_registration:
            self._collected.append(profile)

    def _converse(self, batch: e.Batch) -> Actor:
        """Hands the batch to the decider and its decisions to the server."""
        agenda, mailbox, cost, on_decision = self.agenda, self.mailbox, self.costs.from_master, self._on_decision
        noted = self.rules.registered_when_read
        reply: d.Reply = yield exchange(batch)
        while self._collected:
            registration.collect(self, self._collected.pop())
        for index, decision in enumerate(reply.decisions):
            if noted and type(decision) in registration.NOTED:
                self._decision_index = index
                registration.note(self, decision)
            if decision.at > agenda.now:
                yield sleep(decision.at - agenda.now)
            yield (_SEND, mailbox, (on_decision, (index, decision)), cost)
        if reply.now > agenda.now:
            yield sleep(reply.now - agenda.now)
        yield self._ready_message

    def _is_over(self) -> bool:
        probes = self.physics.probes
        return not (
            self._open_job_sources
            or self._open_event_sources
            or self.unfinished
            or self.pending
            or self.registering
            or (probes is not None and probes.due)
        )

    # ---- what messages do

    def on_bye(self, source: Source) -> None:
        self._open_workflows -= source.is_workflow
        if source.sends_jobs:
            self._open_job_sources -= 1
            if not self._open_job_sources and self.rules.notifies:
                self.tell(e.NoMoreJobs(self.agenda.now))
        else:
            self._open_event_sources -= 1
            self._open_external_sources -= source.is_external
            if source.is_external and not self._open_external_sources and self.rules.notifies:
                self.tell(e.NoMoreExternalEvents(self.agenda.now))

    def _on_ready(self, _: object) -> None:
        self._ready = True
        if self._end_written:
            self.ended = True

    def _on_decision(self, indexed: tuple[int, d.Decision]) -> Sequence[Actor] | Actor | None:
        if self.stopped:
            return None
        self._decision_index, decision = indexed
        return self._handlers[type(decision)](self, decision)

    def on_submitted(self, submitted: tuple[list[Job], Mailbox | None]) -> None:
        if self.rules.ends_with_workflows and not self._open_workflows:
            return
        jobs, origin = submitted
        for job in jobs:
            if not (self._needed and job.after) or self._may_wait(job):
                self._submit(job, origin)

    def _submit(self, job: Job, origin: Mailbox | None = None) -> None:
        self.jobs[job.id] = TrackedJob(job, origin=origin)
        self.unfinished += 1
        self.tell(e.JobSubmitted(self.agenda.now, job))

    def _may_wait(self, job: Job) -> bool:
        """Whether all jobs that this one depends on have succeeded. If not, it is held or omitted."""
        verdict = self._dependencies.enter(job.id, job, job.after, self._succeeded.get)
        if verdict is Verdict.NEVER:
            self._omit(job)
        return verdict is Verdict.READY

    def _omit(self, job: Job) -> None:
        self.record(JobRecord(job, JobState.OMITTED, None, self.agenda.now, IdSet()))
        self._release_dependents(job.id, JobState.OMITTED)

    def _release_dependents(self, job_id: str, state: JobState) -> None:
        succeeded = self._succeeded[job_id] = state is JobState.SUCCEEDED
        free, hopeless = self._dependencies.ended(job_id, succeeded=succeeded)
        for job in free:
            self._submit(job)
        for job in hopeless:
            self._omit(job)

    def on_external(self, events: list[e.Event]) -> None:
        machines, now = self.machines, self.agenda.now
        for event in events:
            if isinstance(event, e.UnitsUnavailable | e.UnitsAvailable):
                if event.units.mask >> len(machines):
                    problem = f"there are no machines {event.units}: {len(machines)} exist"
                    raise InputError("external events", problem)
                away = isinstance(event, e.UnitsUnavailable)
                already = (machines.go_away if away else machines.come_back)(event.units, now)
                if already:
                    state = "unavailable" if away else "available"
                    problem = f"{already} become {state} at {now:f}, and are so already"
                    raise InputError("external events", problem)
            event.at = now
            self.tell(event)

    # ---- runs

    def start(self, tracked: TrackedJob, run: Run) -> Sequence[Actor]:
        """Starts a job: it runs from now on."""
        tracked.launch(run, run.started_at)
        return (self._run(run),)

    def _run(self, run: Run) -> Actor:
        machines = self.machines
        machines.occupy(run.units, run.job.id, self.agenda.now)
        if machines.meters:
            yield from read_meters(self, run.units)
        if machines.meters or machines.tracers:
            machines.note_start(run.units, run.job.id)
        self.physics.start(run)

    def _on_run_ended(self, run: Run, state: JobState, return_code: int) -> None:
        """The physics says that a job is over by itself."""
        self.rounds.start(self._leave(self.jobs[run.job.id], run, state, return_code))

    def _leave(self, tracked: TrackedJob, run: Run, state: JobState, return_code: int) -> Actor:
        rules = self.rules
        if rules.own_return_codes and state is JobState.FAILED and return_code < 0:
            # QUIRK: a profile's own return code is taken for Batsim's own codes.
            if return_code < -2:
                raise self.refuse("return code", f"Job '{tracked.job.id}': unknown return code {return_code}")
            state = JobState.TIMED_OUT if return_code == -1 else JobState.KILLED
        if tracked.state is not _RUNNING:
            return  # It was killed in the same round.
        if run.task_was_cut and rules.cut_takes_turn:
            yield turn()  # Cancelling the task.
        tracked.step(ENDS[state])
        self.release(tracked, return_code)
        machines = self.machines
        if machines.meters:
            yield from read_meters(self, run.units)
        if machines.meters or self.physics.fluid.busy:
            yield from send_from(self, run.units.first(), self._on_ended, tracked)
        else:
            yield (_SEND, self.mailbox, (self._on_ended, tracked), self.costs.from_unit(run.units.first()))
        if self._lingering and (flow := self._lingering.pop(tracked.job.id, None)) is not None:
            self.physics.stop_flow(flow)

    def _on_job_speaks(self, run: Run, message: msgspec.Raw, heard: Callable[[], None]) -> None:
        self.rounds.start(self._speaker(run, message, heard))

    def _speaker(self, run: Run, message: msgspec.Raw, heard: Callable[[], None]) -> Actor:
        """A job waits until the server has got its message."""

        def got(_: object) -> None:
            self.tell(e.JobMessage(self.agenda.now, run.job.id, message))

        yield self.send(got, unit=run.units.first())
        heard()

    def release(self, tracked: TrackedJob, return_code: int) -> None:
        """A job that has ended gives its units back."""
        run = tracked.run
        assert run is not None
        tracked.return_code = return_code
        tracked.ended_at = self.agenda.now
        joules = self.machines.leave(run.units, run.job.id, tracked.state)
        if joules is not None:
            tracked.energy_j = joules

    def _on_ended(self, tracked: TrackedJob) -> Actor | None:
        if tracked.origin is not None:
            return self._call_back(tracked, tracked.origin)
        self.over(tracked)
        return None

    def _call_back(self, tracked: TrackedJob, origin: Mailbox) -> Actor:
        """The source that submitted the job is told first, and the server waits for it."""
        cost = self.costs.from_master
        if origin.receiver is not None:
            yield send(origin, tracked.job.id, cost)
        else:
            yield sleep(cost.latency_s + 1.0 / cost.bandwidth)
            yield post(origin, tracked.job.id, FREE)
        self.over(tracked)

    def over(self, tracked: TrackedJob, reason: str = "") -> None:
        """The server hears that a job is over: the decider will, and it is forgotten once the decider knows."""
        units = tracked.run.units if tracked.run is not None else IdSet()
        self.tell(e.JobEnded(self.agenda.now, tracked.job.id, tracked.state, tracked.return_code, units, reason))
        self.forget(tracked)

    def forget(self, tracked: TrackedJob) -> None:
        """Records a job that is over or refused."""
        run = tracked.run
        self.unfinished -= 1
        self._over_and_told.append(tracked.job.id)
        record = JobRecord(
            tracked.job, tracked.state, tracked.started_at, self.agenda.now if run is None else tracked.ended_at,
            IdSet() if run is None else run.units, tracked.return_code, tracked.energy_j, tracked.metadata,
        )  # fmt: skip
        self.record(record)
        if self._needed and tracked.job.id in self._needed:
            self._release_dependents(tracked.job.id, tracked.state)

    def stop(self) -> None:
        """Everything ends; jobs that run leave no trace."""
        self.stopped = True
        self._ready = True
        self.periodic.clear()
        for tracked in self.jobs.values():
            if tracked.state is _RUNNING and tracked.run is not None:
                self.physics.kill(tracked.run)
                tracked.step(Stimulus.KILLED)

    def trace(self) -> None:
        """Tracers see everything from now on."""
        for tracer in self._tracers:
            self.machines.add(tracer)

"""The simulated world: jobs on a simulated platform, events delivered at once, decisions that take the time they say.

At one date submissions come before everything else, then what was entered first on the agenda. While the decider thinks
(Reply.now in the future) the world goes on; what happens meanwhile is told together afterwards.

Per job: 2 batches x 0.8 µs, 2 events x 0.4 µs, 1 start 1.5 µs, 1 agenda entry 0.5 µs, 1 record 0.6 µs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf, nan
from operator import attrgetter
from typing import Any

import msgspec

from pilothouse.core.calls import next_multiple
from pilothouse.core.decision_table import nothing, table
from pilothouse.core.dependencies import Dependencies, Verdict
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import RunError
from pilothouse.model.events import Batch, JobEnded, JobSubmitted
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Profile, parts_of
from pilothouse.model.record import JobRecord
from pilothouse.worlds.simulated.machine_decisions import MachineDecisions
from pilothouse.worlds.simulated.physics.agenda import FastAgenda
from pilothouse.worlds.simulated.physics.execution import Physics, Run
from pilothouse.worlds.simulated.physics.machines import Tracer
from pilothouse.worlds.simulated.physics.platform import Platform

MOST_CALLS_AT_ONE_DATE = 100_000
"""A decider that wants to be called now, again and again, never lets time go on."""
Recorder = Callable[[JobRecord], None]


class SimulatedWorld:
    """A World whose clock stands still while the decider thinks. Same input, same events.

    `external_events` may hold questions about jobs that are not submitted (EstimateAsked); `answered` gets the answers.
    `annotated` gets the metadata of jobs that have ended.
    It begins at `begins.started_at`; jobs with an earlier date are submitted then, in their order. Jobs of `begins.running` run
    when it begins: their profile is what is left of them.
    """

    name = "sim"

    def __init__(
        self,
        begins: e.Begins,
        jobs: Iterable[Job],
        *,
        platform: Platform | None = None,
        solver: str = "fair-bottleneck",
        external_events: Iterable[e.Event] = (),
        record: Recorder = lambda record: None,
        answered: Callable[[d.AnswerEstimate], None] = lambda answer: None,
        annotated: Callable[[str, str], None] = lambda job_id, text: None,
        tracers: Iterable[Tracer] = (),
    ) -> None:
        self._begins = begins
        self._record = record
        self._answered = answered
        self._annotated = annotated
        self._agenda = FastAgenda()
        self._agenda.run_until(begins.started_at)
        self._profiles: dict[str, Profile] = dict(begins.profiles)
        self._physics = Physics(
            self._agenda,
            self._job_is_over,
            platform,
            profiles=self._profiles,
            energy=begins.energy,
            exact_energy=True,
            solver=solver,
            tells=self._job_tells,
        )
        for tracer in tracers:
            self._physics.need_machines().add(tracer)
        # The sort is stable: jobs of one date stay in the order in which they came in.
        first = begins.started_at
        by_date = (lambda job: max(job.submitted_at, first)) if first else attrgetter("submitted_at")
        self._jobs = sorted(jobs, key=by_date)
        self._still_to_come = iter(self._jobs)
        self._next_job = next(self._still_to_come, None)
        self._needed = {name for job in self._jobs if job.after for name in job.after}
        """The jobs that others wait for."""
        self._dependencies: Dependencies[Job] = Dependencies()
        self._succeeded: dict[str, bool] = {}
        if self._needed:
            known = [job.id for job in self._jobs] + [run.job.id for run in begins.running]
            self._succeeded = dict.fromkeys(self._needed.difference(known), False)
        self._external = sorted(external_events, key=attrgetter("at"))
        self._waiting: dict[str, Job] = {}
        self._runs: dict[str, Run] = {}
        self._metadata: dict[str, str] = {}
        self._calls: dict[str, int] = {}
        self._called_at = nan
        self._calls_at_date: int
        self._events: list[e.Event] = []
        self._machine_decisions = MachineDecisions(self._physics, self._runs, self._add_event)
        self._ready_at = 0.0
        self._registering: bool
        self._begun = self._stopped = self._over = False
        self._aside = True
        """Not in the middle of the run: see _advance_aside."""

    # ---- the contract

    def begin(self, wants: d.Wants) -> e.Begins:
        wishes = {
            "dynamic_registration": wants.dynamic_registration,
            "acknowledge_registration": wants.acknowledge_registration,
            "profile_reuse": wants.profile_reuse,
            "forward_profiles": wants.forward_profiles,
            "compute_sharing": wants.compute_sharing,
            "storage_sharing": wants.storage_sharing,
        }
        self._begins = msgspec.structs.replace(
            self._begins, **{name: wish for name, wish in wishes.items() if wish is not None}
        )
        self._registering = self._begins.dynamic_registration
        for running in self._begins.running:
            self._run(Run(running.job, running.units, running.started_at))
        for event in self._external:
            self._agenda.at(event.at, self._add_event, event)
        external = [event.at for event in self._external if type(event) is not e.EstimateAsked]
        if external:
            self._agenda.at(external[-1], self._no_more_external_events)
        if self._next_job is not None:
            # Submissions come before all else of their date.
            self._agenda.first_at(max(self._next_job.submitted_at, self._agenda.now), self._submit_all_of_date)
        return self._begins

    def advance(self) -> Batch | None:
        if self._aside:
            return self._advance_aside()
        events = self._events
        if events:
            target = max(self._agenda.now, self._ready_at)
            self._agenda.run_until(target)
        else:
            while not events:
                target = self._agenda.run_next(self._ready_at)
                if target == inf:
                    return self._end()
        self._events = []
        return Batch(target, events)

    def _advance_aside(self) -> Batch | None:
        """The first turn, the turn after the decider stopped everything, and the turn after the last."""
        if not self._begun:
            self._begun = True
            self._aside = False
            now = self._agenda.now
            return Batch(now, [e.Began(now, self._begins)])
        return None if self._over else self._end()

    def apply(self, reply: d.Reply) -> None:
        agenda = self._agenda
        now = agenda.now
        if reply.now > now:
            self._ready_at = reply.now
        elif not reply.decisions:
            return
        for decision in reply.decisions:
            if decision.at > now:
                agenda.at(decision.at, self._carry_out, decision)
            else:
                _HANDLERS[type(decision)](self, decision)

    def watch(self, fd: int) -> None:
        """Simulated time waits for the decider, so there is nothing to watch."""

    def close(self) -> None:
        """Nothing is held open."""

    # ---- time

    def _submit_all_of_date(self, _: None) -> None:
        job, date = self._next_job, self._agenda.now
        while job is not None:
            if job.submitted_at > date:
                self._next_job = job
                self._agenda.first_at(job.submitted_at, self._submit_all_of_date)
                return
            if not job.after or self._may_wait(job):
                self._waiting[job.id] = job
                self._events.append(JobSubmitted(date, job))
            job = next(self._still_to_come, None)
        self._events.append(e.NoMoreJobs(date))

    def _may_wait(self, job: Job) -> bool:
        """Whether all jobs that this one waits for have succeeded. If not, it is held or omitted."""
        verdict = self._dependencies.enter(job.id, job, job.after, self._succeeded.get)
        if verdict is Verdict.NEVER:
            self._omit(job)
        return verdict is Verdict.READY

    def _end(self) -> Batch:
        """Nothing can happen any more: that is the end, or a deadlock if jobs wait."""
        self._over = self._aside = True
        now = max(self._agenda.now, self._ready_at)
        if self._stopped:
            return Batch(now, [e.Ended(now)])
        reason = "the decider never finished its registrations" if self._registering else ""
        waiting = (*self._waiting, *(job.id for job in self._dependencies.held.values()))
        return Batch(now, [e.Ended(now, waiting, reason)])

    # ---- what happens

    def _add_event(self, event: e.Event) -> None:
        self._events.append(event)

    def _no_more_external_events(self, _: None) -> None:
        self._events.append(e.NoMoreExternalEvents(self._agenda.now))

    def _job_is_over(self, run: Run, state: JobState, return_code: int, reason: str = "") -> None:
        job, now = run.job, self._agenda.now
        del self._runs[job.id]
        energy = None
        if self._physics.machines is not None:
            energy = self._physics.machines.leave(run.units, job.id)
        metadata = self._metadata.pop(job.id, "") if self._metadata else ""
        self._record(JobRecord(job, state, run.started_at, now, run.units, return_code, energy, metadata))
        self._events.append(JobEnded(now, job.id, state, return_code, run.units, reason))
        if job.id in self._needed:
            self._release(job, state)

    def _release(self, job: Job, state: JobState) -> None:
        """The jobs that waited for this one may go on, or never will."""
        now = self._agenda.now
        succeeded = state is JobState.SUCCEEDED
        self._succeeded[job.id] = succeeded
        free, hopeless = self._dependencies.ended(job.id, succeeded=succeeded)
        for freed in free:
            self._waiting[freed.id] = freed
            self._events.append(JobSubmitted(now, freed))
        for omitted in hopeless:
            self._omit(omitted)

    def _omit(self, job: Job) -> None:
        self._record(JobRecord(job, JobState.OMITTED, None, self._agenda.now, IdSet()))
        if job.id in self._needed:
            self._release(job, JobState.OMITTED)

    # ---- decisions

    def _carry_out(self, decision: d.Decision) -> None:
        """A decision whose date lay in the future."""
        if not self._stopped:
            _HANDLERS[type(decision)](self, decision)

    def _start(self, decision: d.StartJob) -> None:
        job = self._waiting.pop(decision.job_id)
        run = Run(
            job, decision.units, self._agenda.now, decision.placement, decision.overrides, decision.storage, decision.io_job
        )
        self._run(run)

    def _run(self, run: Run) -> None:
        self._runs[run.job.id] = run
        if self._physics.machines is not None:
            self._physics.machines.join(run.units, run.job.id)
        self._physics.start(run)

    def _reject(self, decision: d.RejectJob) -> None:
        job = self._waiting.pop(decision.job_id)
        state = JobState.OMITTED if decision.omitted else JobState.REFUSED
        metadata = self._metadata.pop(job.id, decision.reason)
        self._record(JobRecord(job, state, None, self._agenda.now, IdSet(), metadata=metadata))
        if job.id in self._needed:
            self._release(job, state)

    def _kill(self, decision: d.KillJobs) -> None:
        progress = {}
        for job_id in decision.job_ids:
            run = self._runs.get(job_id)
            if run is not None:
                progress[job_id] = self._physics.kill(run)
                self._job_is_over(run, JobState.KILLED, run.kill_code)
        self._events.append(e.JobsKilled(self._agenda.now, decision.job_ids, progress))

    def _call_at(self, decision: d.CallAt) -> None:
        self._calls[decision.call_id] = self._agenda.at(decision.when, self._call, (decision.call_id, inf, 1))

    def _call_every(self, decision: d.CallEvery) -> None:
        self._enter_call(decision.call_id, decision.period, decision.count)

    def _enter_call(self, call_id: str, period: float, left: int) -> None:
        """The next multiple of the period, in absolute time."""
        when = next_multiple(self._agenda.now, period)
        self._calls[call_id] = self._agenda.at(when, self._call, (call_id, period, left))

    def _call(self, argument: tuple[str, float, int]) -> None:
        call_id, period, left = argument
        now = self._agenda.now
        self._calls_at_date = self._calls_at_date + 1 if now == self._called_at else 1
        self._called_at = now
        if self._calls_at_date > MOST_CALLS_AT_ONE_DATE:
            raise RunError(f"the decider asked to be called at {now:g} s {MOST_CALLS_AT_ONE_DATE:,} times over")
        last = left == 1
        self._events.append(e.CallArrived(self._agenda.now, call_id, last))
        if last:
            self._calls.pop(call_id, None)
        else:
            self._enter_call(call_id, period, max(0, left - 1))

    def _stop_calls(self, decision: d.StopCalls) -> None:
        entry = self._calls.pop(decision.call_id, None)
        if entry is not None:
            self._agenda.cancel(entry)

    def _register_job(self, decision: d.RegisterJob) -> None:
        job = decision.job
        self._waiting[job.id] = job
        if self._begins.acknowledge_registration:
            self._events.append(JobSubmitted(self._agenda.now, job))

    def _register_profile(self, decision: d.RegisterProfile) -> None:
        profile = decision.profile
        for part in parts_of(profile.spec):
            if part not in self._profiles:
                raise RunError(f"profile {profile.name} was registered: it is made of {part}, which does not exist")
        self._profiles[profile.name] = profile

    def _finish_registration(self, decision: d.FinishRegistration) -> None:
        self._registering = False

    def _resume_registration(self, decision: d.ResumeRegistration) -> None:
        self._registering = self._begins.dynamic_registration

    def _set_metadata(self, decision: d.SetMetadata) -> None:
        if decision.job_id in self._waiting or decision.job_id in self._runs:
            self._metadata[decision.job_id] = decision.text
        else:
            self._annotated(decision.job_id, decision.text)

    def _set_job_state(self, decision: d.SetJobState) -> None:
        job = self._waiting.pop(decision.job_id, None)
        run = self._runs.get(decision.job_id)
        if decision.state is JobState.RUNNING:
            if job is not None:
                self._runs[job.id] = Run(job, IdSet(), self._agenda.now)
            return
        if run is None:
            assert job is not None
            now = self._agenda.now
            metadata = self._metadata.pop(job.id, decision.reason)
            ran = decision.state not in (JobState.REFUSED, JobState.OMITTED)
            self._record(JobRecord(job, decision.state, now if ran else None, now, IdSet(), metadata=metadata))
            if job.id in self._needed:
                self._release(job, decision.state)
        else:
            if run.units:
                self._physics.kill(run)
            self._job_is_over(run, decision.state, 0, decision.reason)

    def _answer_estimate(self, decision: d.AnswerEstimate) -> None:
        self._answered(decision)

    def _stop_world(self, decision: d.StopWorld) -> None:
        self._stopped = self._aside = True

    def _job_tells(self, run: Run, message: msgspec.Raw, heard: Callable[[], None]) -> None:
        self._events.append(e.JobMessage(self._agenda.now, run.job.id, message))
        heard()

    def _carry_out_on_machines(self, decision: d.Decision) -> None:
        self._machine_decisions.carry_out(decision)


_HANDLERS: dict[type, Callable[[SimulatedWorld, Any], None]] = table(
    {
        d.StartJob: SimulatedWorld._start,
        d.RejectJob: SimulatedWorld._reject,
        d.KillJobs: SimulatedWorld._kill,
        d.CallAt: SimulatedWorld._call_at,
        d.CallEvery: SimulatedWorld._call_every,
        d.StopCalls: SimulatedWorld._stop_calls,
        d.RegisterJob: SimulatedWorld._register_job,
        d.RegisterProfile: SimulatedWorld._register_profile,
        d.FinishRegistration: SimulatedWorld._finish_registration,
        d.ResumeRegistration: SimulatedWorld._resume_registration,
        d.SetMetadata: SimulatedWorld._set_metadata,
        d.SetJobState: SimulatedWorld._set_job_state,
        d.StopWorld: SimulatedWorld._stop_world,
        d.AnswerEstimate: SimulatedWorld._answer_estimate,
        **dict.fromkeys(MachineDecisions.KINDS, SimulatedWorld._carry_out_on_machines),
        **dict.fromkeys((d.Annotate, d.AnswerFeasibility, d.ConfirmWithdrawal), nothing),
    },
    SimulatedWorld.name,
)

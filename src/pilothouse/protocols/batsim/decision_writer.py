"""Writes our decisions as the messages of a Batsim scheduler (used by world.py).

In: replies. Out: wire events with ascending dates. A decision that the protocol cannot express is a DecisionError.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from heapq import heappush
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from pilothouse.core.calls import next_multiple
from pilothouse.core.decision_table import table
from pilothouse.model import decisions as d
from pilothouse.model.lifecycle import BATSIM, JobState
from pilothouse.protocols.batsim import messages as wire
from pilothouse.protocols.batsim.codec import profile_text
from pilothouse.protocols.batsim.event_reader import RequestedCalls
from pilothouse.protocols.batsim.event_writer import job_text, profile_name
from pilothouse.protocols.batsim.settings import Dialect

if TYPE_CHECKING:
    from pilothouse.protocols.batsim.redis_store import RedisStore

SOONEST_CALL_S = 0.01
"""Calls are at least this far away: a Batsim refuses a date that has passed when it handles the message."""


class DecisionWriter:
    """Numbers calls, because Batsim does not. `store`: descriptions of registered jobs go through Redis."""

    def __init__(self, dialect: Dialect, calls: RequestedCalls, store: RedisStore | None = None) -> None:
        self._dialect = dialect
        self._store = store
        self._calls = calls
        self._number = 0

    def events(self, reply: d.Reply) -> list[wire.WireEvent]:
        """The wire events of a reply, sorted by date."""
        events: list[wire.WireEvent] = []
        for decision in reply.decisions:
            events.extend(_WRITERS[type(decision)](self, decision))
        for call_id, period, left in self._calls.again:
            events.append(self._call(reply.now, call_id, period, left))
        self._calls.again = []
        events.sort(key=lambda event: event.timestamp)
        return events

    def _call(self, now: float, call_id: str, period: float, left: int) -> wire.WireEvent:
        """Requests the next call of a series, at a multiple of its period."""
        return self._ask(now, next_multiple(now, period), call_id, (period, left))

    def _ask(self, now: float, when: float, call_id: str, series: tuple[float, int]) -> wire.WireEvent:
        when = max(when, now + SOONEST_CALL_S)
        self._number += 1
        heappush(self._calls.due, (when, self._number, call_id, *series))
        return wire.CallMeLater(now, wire.CallMeLaterData(when))

    # ---- one method for each decision

    def _start(self, decision: d.StartJob) -> list[wire.WireEvent]:
        data = wire.ExecuteJobData(decision.job_id, str(decision.units))
        mapping = None if decision.placement is None else decision.placement.mapping
        if mapping is not None:
            data.mapping = {str(executor): host for executor, host in enumerate(mapping)}
        elif decision.storage:
            data.storage_mapping = dict(decision.storage)
        elif decision.io_job is not None:
            name = decision.io_job.name.rpartition("!")[2]
            own = decision.overrides.get(decision.io_job.name)
            units = decision.units if own is None else own.units
            data.additional_io_job = wire.IoJobData(str(units), name, profile_text(decision.io_job))
        return [wire.ExecuteJob(decision.at, data)]

    def _reject(self, decision: d.RejectJob) -> list[wire.WireEvent]:
        return [wire.RejectJob(decision.at, wire.JobIdData(decision.job_id))]

    def _kill(self, decision: d.KillJobs) -> list[wire.WireEvent]:
        return [wire.KillJob(decision.at, wire.KillJobData(list(decision.job_ids)))]

    def _call_at(self, decision: d.CallAt) -> list[wire.WireEvent]:
        return [self._ask(decision.at, decision.when, decision.call_id, (0.0, 1))]

    def _call_every(self, decision: d.CallEvery) -> list[wire.WireEvent]:
        return [self._call(decision.at, decision.call_id, decision.period, decision.count)]

    def _stop_calls(self, decision: d.StopCalls) -> list[wire.WireEvent]:
        """A requested call still arrives; no more are requested."""
        self._calls.again = [series for series in self._calls.again if series[0] != decision.call_id]
        self._calls.due = [
            (when, number, call_id, 0.0 if call_id == decision.call_id else period, left)
            for when, number, call_id, period, left in self._calls.due
        ]
        return []

    def _register_job(self, decision: d.RegisterJob) -> list[wire.WireEvent]:
        job = decision.job
        if job.source is None:
            description = Raw(job_text(job).encode())
        else:
            written = msgspec.json.decode(job.source)
            # Batsim needs a date of submission, which the specification does not ask for.
            known = {"subtime": job.submitted_at, **written, "id": job.id, "profile": profile_name(job)}
            description = Raw(msgspec.json.encode(known))
        data = wire.JobData(job.id, description)
        if self._store is not None:
            self._store.put_job(job.id, bytes(description))
            data = wire.JobData(job.id)
        return [wire.SubmitJob(decision.at, data) if self._dialect is Dialect.TWO else wire.RegisterJob(decision.at, data)]

    def _register_profile(self, decision: d.RegisterProfile) -> list[wire.WireEvent]:
        workload, _, name = decision.profile.name.rpartition("!")
        if self._store is not None and self._dialect is Dialect.TWO:
            self._store.put_profile(workload, name, bytes(profile_text(decision.profile)))
            return []
        data = wire.RegisterProfileData(workload, name, profile_text(decision.profile))
        two = self._dialect is Dialect.TWO
        return [wire.SubmitProfile(decision.at, data) if two else wire.RegisterProfile(decision.at, data)]

    def _finish(self, decision: d.FinishRegistration) -> list[wire.WireEvent]:
        return [wire.Notify(decision.at, {"type": registration_finished(self._dialect)})]

    def _resume(self, decision: d.ResumeRegistration) -> list[wire.WireEvent]:
        kind = "continue_submission" if self._dialect is Dialect.TWO else "continue_registration"
        return [wire.Notify(decision.at, {"type": kind})]

    def _power(self, decision: d.SetPowerState | d.SwitchUnits) -> list[wire.WireEvent]:
        return [wire.SetResourceState(decision.at, wire.ResourceStateData(str(decision.units), str(decision.power_state)))]

    def _metadata(self, decision: d.SetMetadata) -> list[wire.WireEvent]:
        text = decision.text.replace('"', "'")  # A double quote is not allowed there.
        return [wire.SetJobMetadata(decision.at, wire.SetJobMetadataData(decision.job_id, text))]

    def _annotate(self, decision: d.Annotate) -> list[wire.WireEvent]:
        # The protocol has no annotations: they go to the metadata column of jobs.csv.
        return self._metadata(d.SetMetadata(decision.at, decision.job_id, msgspec.json.encode(decision.notes).decode()))

    def _state(self, decision: d.SetJobState) -> list[wire.WireEvent]:
        reason = decision.reason if decision.state is JobState.KILLED else ""  # Batsim 2 refuses other reasons.
        data = wire.ChangeJobStateData(decision.job_id, BATSIM[decision.state], reason)
        return [wire.ChangeJobState(decision.at, data)]

    def _energy(self, decision: d.MeasureEnergy) -> list[wire.WireEvent]:
        return [wire.Query(decision.at, wire.QueryData({"consumed_energy": {}}))]

    def _estimate(self, decision: d.AnswerEstimate) -> list[wire.WireEvent]:
        # JSON has no word for a job that never starts: the largest number stands for it.
        estimate = wire.EstimateData(decision.job_id, min(decision.seconds, sys.float_info.max))
        return [wire.Answer(decision.at, wire.AnswerData(estimate_waiting_time=estimate))]

    def _to_job(self, decision: d.SendToJob) -> list[wire.WireEvent]:
        return [wire.ToJobMessage(decision.at, wire.ToJobData(decision.job_id, decision.message))]


def registration_finished(dialect: Dialect) -> str:
    """The NOTIFY type for the end of registration."""
    return "submission_finished" if dialect is Dialect.TWO else "registration_finished"


_HANDLERS: dict[type, Callable[[DecisionWriter, Any], list[wire.WireEvent]]] = {
    d.StartJob: DecisionWriter._start,
    d.RejectJob: DecisionWriter._reject,
    d.KillJobs: DecisionWriter._kill,
    d.CallAt: DecisionWriter._call_at,
    d.CallEvery: DecisionWriter._call_every,
    d.StopCalls: DecisionWriter._stop_calls,
    d.RegisterJob: DecisionWriter._register_job,
    d.RegisterProfile: DecisionWriter._register_profile,
    d.FinishRegistration: DecisionWriter._finish,
    d.ResumeRegistration: DecisionWriter._resume,
    d.SetPowerState: DecisionWriter._power,
    d.SwitchUnits: DecisionWriter._power,
    d.SetMetadata: DecisionWriter._metadata,
    d.Annotate: DecisionWriter._annotate,
    d.SetJobState: DecisionWriter._state,
    d.MeasureEnergy: DecisionWriter._energy,
    d.AnswerEstimate: DecisionWriter._estimate,
    d.SendToJob: DecisionWriter._to_job,
}
_WRITERS = table(_HANDLERS, "batsim")

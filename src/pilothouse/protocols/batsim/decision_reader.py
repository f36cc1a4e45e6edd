"""Batsim events of a scheduler as our decisions: what the end that plays the resource manager understands.

In: decoded messages. Out: replies. Raises PeerError where an event cannot mean anything (an allocation that is no set
of numbers, a job without a profile); whether a decision is legal is for others to judge.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw

from pilothouse.formats.profile_json import full_name
from pilothouse.model import decisions as d
from pilothouse.model.errors import InputError, PeerError, quoted
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import FROM_BATSIM
from pilothouse.model.profile import HomogeneousTask, Profile, Sequence, Spread
from pilothouse.protocols.batsim import messages as wire
from pilothouse.protocols.batsim.settings import Dialect
from pilothouse.protocols.batsim.simulation_begins import read_profile

MOST_DIGITS = 6
"""Of a plain number of a resource; longer ones are looked at more closely."""


@lru_cache(maxsize=4096)
def _parsed(text: str) -> IdSet:
    """A set of resources. Schedulers name the same ones again and again, and most of them name each resource."""
    mask = 0
    for part in text.split(" "):
        if not part.isdecimal() or not part.isascii() or len(part) > MOST_DIGITS:
            return IdSet.parse(text)
        mask |= 1 << int(part)
    return IdSet(mask)


class JobStore(Protocol):
    """Where the descriptions of registered jobs are when they do not come through the socket."""

    def get_job(self, job_id: str) -> bytes: ...


class _Job(msgspec.Struct):
    """A registered job; generation 2 leaves out the date, and may leave out the name, which is said beside it."""

    res: int
    profile: str
    id: str | int | None = None
    subtime: float | None = None
    walltime: float | None = None


_JOB = msgspec.json.Decoder(_Job)
_FINISHED = ("registration_finished", "submission_finished")
_RESUMED = ("continue_registration", "continue_submission")
_YOUNG_WORDS = frozenset((wire.RegisterJob, wire.RegisterProfile))
_OLD_WORDS = frozenset((wire.SubmitJob, wire.SubmitProfile))


class DecisionReader:
    """Knows the profiles, because registered jobs name them, and which units sleep, because switching depends on it."""

    def __init__(
        self,
        peer: str,
        profiles: dict[str, Profile],
        store: JobStore | None = None,
        dialect: Dialect = Dialect.ANY,
        *,
        keeps_profiles: bool = True,
    ) -> None:
        self.peer = peer
        self._dialect = dialect
        self._profiles = profiles
        self._keeps_profiles = keeps_profiles
        self._registered: dict[str, Profile] = {}
        """By the message that is being read."""
        self._store = store
        self._sleep_states: dict[int, frozenset[int]] = {}
        self._asleep = 0
        self._sources: list[wire.FromScheduler] = []
        self.speaker = None if dialect is Dialect.ANY else dialect
        """The generation that the scheduler's words are of: TWO, or THREE (which is as good as FOUR); None: not known."""

    def note_units(self, sleep_states: dict[int, frozenset[int]]) -> None:
        """Which power states of a unit are sleep; units without such are left out."""
        self._sleep_states = sleep_states

    def reply(self, message: wire.Message[wire.FromScheduler]) -> d.Reply:
        """The decisions of a message."""
        decisions: list[d.Decision] = []
        sources = self._sources = []
        if self._registered:
            self._registered = {}
        for event in message.events:
            found = _READERS[type(event)](self, event)
            if type(found) is list:
                decisions += found
                sources += [event] * len(found)
            else:
                decisions.append(found)
                sources.append(event)
        if self.speaker is None:
            self._notice_speaker(message.events)
        if self._registered and self._keeps_profiles:
            self._profiles.update(self._registered)
        return d.Reply(message.now, decisions)

    def _notice_speaker(self, events: list[wire.FromScheduler]) -> None:
        for event in events:
            kind = type(event)
            word = event.data.get("type") if kind is wire.Notify else ""  # type: ignore[union-attr]
            if kind in _OLD_WORDS or word in (_FINISHED[1], _RESUMED[1]):
                self.speaker = Dialect.TWO
            elif kind in _YOUNG_WORDS or word in (_FINISHED[0], _RESUMED[0]):
                self.speaker = Dialect.THREE

    def event_name(self, index: int) -> str:
        """The wire name of the event that an order of the last reply came from."""
        return wire.name_of(self._sources[index]) if index < len(self._sources) else ""

    def error(self, event: msgspec.Struct, problem: str) -> PeerError:
        return PeerError(self.peer, problem, event=wire.name_of(event))

    def _units(self, event: msgspec.Struct, text: str) -> IdSet:
        try:
            return _parsed(text)
        except InputError:
            raise self.error(event, f"not a set of resources: {quoted(text)}; expected e.g. '0-3 7'") from None

    def _profile(self, event: msgspec.Struct, written: Raw, workload: str, name: str) -> Profile:
        return read_profile(written, workload, name, self.peer, wire.name_of(event), self._dialect)

    def _known(self, name: str) -> Profile | None:
        return self._registered.get(name) or self._profiles.get(name)

    # ---- one method for each event

    def _execute(self, event: wire.ExecuteJob) -> d.Decision:
        data = event.data
        decision = d.StartJob(event.timestamp, data.job_id, self._units(event, data.alloc))
        if data.mapping is UNSET and data.storage_mapping is UNSET and data.additional_io_job is UNSET:
            return decision
        optional = ("mapping", "storage_mapping", "additional_io_job")
        extras = [name for name in optional if getattr(data, name) is not UNSET]
        if len(extras) > 1:
            raise self.error(event, f"data should have 2 or 3 members; it has {' and '.join(extras)} together")
        if data.mapping is not UNSET:
            decision.placement = d.Placement(mapping=self._mapping(event, data.mapping))
        if data.storage_mapping is not UNSET:
            decision.storage = {label: self._number(event, unit) for label, unit in data.storage_mapping.items()}
        if data.additional_io_job is not UNSET:
            io_job = data.additional_io_job
            workload = data.job_id.partition("!")[0]
            decision.io_job = self._io_profile(event, io_job, workload)
            units = self._units(event, io_job.alloc)
            placement = d.Placement(
                mapping=tuple(range(len(units)))
            )  # One executor on each host of its own allocation.
            decision.overrides = {decision.io_job.name: d.PartPlacement(units, placement)}
        return decision

    def _io_profile(self, event: wire.ExecuteJob, io_job: wire.IoJobData, workload: str) -> Profile:
        """What is transferred beside a job: described here for the first time, or known by its name."""
        known = self._known(full_name(workload, io_job.profile_name))
        if io_job.profile is not UNSET:
            if known is not None and self._dialect.is_young:
                raise self.error(event, f"there already is a profile {io_job.profile_name!r}; only its name is needed")
            return self._profile(event, io_job.profile, workload, io_job.profile_name)
        if known is None:
            raise self.error(event, f"there is no profile {io_job.profile_name!r} for additional_io_job")
        return known

    def _number(self, event: msgspec.Struct, value: int | str, what: str = "resource") -> int:
        try:
            return int(value)
        except ValueError:
            raise self.error(event, f"not the number of a {what}: {quoted(value)}") from None

    def _mapping(self, event: msgspec.Struct, written: dict[str, int | str]) -> tuple[int, ...]:
        """Executor -> index inside the allocation; executors are 0 to n-1 without a gap."""
        mapping = {self._number(event, executor): self._number(event, host) for executor, host in written.items()}
        if sorted(mapping) != list(range(len(mapping))) or min(mapping.values(), default=0) < 0:
            raise self.error(event, f"executors of a mapping should be 0 to {len(mapping) - 1}, each once")
        return tuple(mapping[executor] for executor in range(len(mapping)))

    def _reject(self, event: wire.RejectJob) -> d.Decision:
        return d.RejectJob(event.timestamp, event.data.job_id)

    def _kill(self, event: wire.KillJob) -> d.Decision:
        return d.KillJobs(event.timestamp, tuple(event.data.job_ids))

    def _call(self, event: wire.CallMeLater) -> d.Decision:
        return d.CallAt(event.timestamp, event.data.timestamp)

    def _register_job(self, event: wire.RegisterJob | wire.SubmitJob) -> list[d.Decision]:
        data = event.data
        workload, mark, _ = data.job_id.partition("!")
        if not mark or data.job_id.count("!") > 1:
            raise self.error(event, f"job id {quoted(data.job_id)} should be two parts separated by '!'")
        decisions: list[d.Decision] = []
        if data.job is not UNSET:
            source = data.job
        elif self._store is not None:
            source = Raw(self._store.get_job(data.job_id))
        else:
            raise self.error(event, f"job {data.job_id} has no description, and Redis is not enabled")
        try:
            written = _JOB.decode(source)
        except msgspec.DecodeError as problem:
            raise self.error(event, f"job {data.job_id}: {problem}") from None
        if self._dialect.is_young:
            self._judge_young_job(event, written)
        name = full_name(workload, written.profile)
        if data.profile is not UNSET and self._known(name) is None:
            profile = self._profile(event, data.profile, workload, written.profile)
            self._registered[profile.name] = profile
            decisions.append(d.RegisterProfile(event.timestamp, profile))
        decisions.append(d.RegisterJob(event.timestamp, self._job(event, written, source)))
        return decisions

    def _judge_young_job(self, event: wire.RegisterJob | wire.SubmitJob, written: _Job) -> None:
        """What generations 3 and 4 insist on beyond what is needed."""
        data = event.data
        if self._store is not None and data.job is not UNSET:
            raise self.error(event, f"job {data.job_id} has a description, which should be in Redis instead")
        if written.subtime is None:
            raise self.error(event, f"job {data.job_id} has no subtime")
        own, workload = str(written.id), data.job_id.partition("!")[0]
        if written.id is None or (own if workload in own else f"{workload}!{own}") != data.job_id:
            raise self.error(event, f"job {data.job_id} has another id in its description: {quoted(written.id)}")

    def _job(self, event: wire.RegisterJob | wire.SubmitJob, written: _Job, source: Raw) -> Job:
        job_id = event.data.job_id
        walltime = inf if written.walltime is None or written.walltime == -1 else written.walltime
        if written.res < 0 or not walltime > 0:
            raise self.error(event, f"job {job_id}: res should be 0 or more, walltime above 0 or -1")
        profile = self._known(full_name(job_id.partition("!")[0], written.profile))
        submitted_at = event.timestamp if written.subtime is None else written.subtime
        job = Job(job_id, written.res, walltime, submitted_at, profile, source=source)
        job.elastic = profile is not None and self._is_elastic(profile)
        return job

    def _is_elastic(self, profile: Profile) -> bool:
        spec = profile.spec
        if isinstance(spec, Sequence):
            parts = [self._known(part) for part in spec.parts]
            return all(part is not None and self._is_elastic(part) for part in parts)
        return isinstance(spec, HomogeneousTask) and spec.spread is Spread.TOTAL

    def _register_profile(self, event: wire.RegisterProfile | wire.SubmitProfile) -> d.Decision:
        data = event.data
        profile = self._profile(event, data.profile, data.workload_name, data.profile_name)
        decision = d.RegisterProfile(event.timestamp, profile)
        if self._known(profile.name) is None:
            self._registered[profile.name] = profile
        return decision

    def _set_resource_state(self, event: wire.SetResourceState) -> d.Decision:
        units = self._units(event, event.data.resources)
        state = self._number(event, event.data.state, "power state")
        to_sleep = any(state in self._sleep_states.get(unit, ()) for unit in units)
        from_sleep = bool(units.mask & self._asleep)
        self._asleep = self._asleep | units.mask if to_sleep else self._asleep & ~units.mask
        if to_sleep or from_sleep:
            return d.SwitchUnits(event.timestamp, units, state)
        return d.SetPowerState(event.timestamp, units, state)

    def _metadata(self, event: wire.SetJobMetadata) -> d.Decision:
        if '"' in event.data.metadata:
            raise self.error(event, f"metadata should not contain double quotes: {quoted(event.data.metadata)}")
        return d.SetMetadata(event.timestamp, event.data.job_id, event.data.metadata)

    def _change_state(self, event: wire.ChangeJobState) -> d.Decision:
        state = FROM_BATSIM.get(event.data.job_state)
        if state is None:
            raise self.error(event, f"unknown job state {quoted(event.data.job_state)}")
        return d.SetJobState(event.timestamp, event.data.job_id, state, event.data.kill_reason)

    def _to_job(self, event: wire.ToJobMessage) -> d.Decision:
        return d.SendToJob(event.timestamp, event.data.job_id, event.data.msg)

    def _notify(self, event: wire.Notify) -> d.Decision:
        kind = event.data.get("type")
        if kind in _FINISHED:
            return d.FinishRegistration(event.timestamp)
        if kind in _RESUMED:
            return d.ResumeRegistration(event.timestamp)
        raise self.error(event, f"unknown notification {quoted(kind)}")

    def _query(self, event: wire.Query) -> d.Decision:
        if set(event.data.requests) != {"consumed_energy"}:
            names = ", ".join(event.data.requests) or "nothing"
            raise self.error(event, f"only consumed_energy can be asked for; it asks for {names}")
        return d.MeasureEnergy(event.timestamp)

    def _answer(self, event: wire.Answer) -> d.Decision:
        estimate = event.data.estimate_waiting_time
        if estimate is UNSET:
            raise self.error(event, "an answer should hold estimate_waiting_time")
        return d.AnswerEstimate(event.timestamp, estimate.job_id, estimate.estimated_waiting_time)


_READERS: dict[type, Any] = {
    wire.ExecuteJob: DecisionReader._execute,
    wire.RejectJob: DecisionReader._reject,
    wire.KillJob: DecisionReader._kill,
    wire.CallMeLater: DecisionReader._call,
    wire.RegisterJob: DecisionReader._register_job,
    wire.SubmitJob: DecisionReader._register_job,
    wire.RegisterProfile: DecisionReader._register_profile,
    wire.SubmitProfile: DecisionReader._register_profile,
    wire.SetResourceState: DecisionReader._set_resource_state,
    wire.SetJobMetadata: DecisionReader._metadata,
    wire.ChangeJobState: DecisionReader._change_state,
    wire.ToJobMessage: DecisionReader._to_job,
    wire.Notify: DecisionReader._notify,
    wire.Query: DecisionReader._query,
    wire.Answer: DecisionReader._answer,
}

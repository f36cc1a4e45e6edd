"""Reads the messages of a Batsim scheduler as our decisions (used by decider.py).

In: decoded messages. Out: replies. Raises PeerError for events without a meaning (an allocation that is not a set of
numbers, a job without a profile). Whether a decision is legal is checked elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Container
from math import inf
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw

from pilothouse.formats.profile_json import full_name
from pilothouse.model import decisions as d
from pilothouse.model.errors import quoted
from pilothouse.model.lifecycle import FROM_BATSIM
from pilothouse.model.profile import Profile
from pilothouse.protocols.batsim import messages as wire
from pilothouse.protocols.batsim.codec import JobDescription, WireReader
from pilothouse.protocols.batsim.settings import Dialect

if TYPE_CHECKING:
    from pilothouse.protocols.batsim.redis_store import RedisStore
from pilothouse.protocols.batsim.codec import read_profile

_FINISHED = ("registration_finished", "submission_finished")
_RESUMED = ("continue_registration", "continue_submission")
_NEW_EVENTS = frozenset((wire.RegisterJob, wire.RegisterProfile))
_OLD_EVENTS = frozenset((wire.SubmitJob, wire.SubmitProfile))


class _RegisteredJob(JobDescription, kw_only=True):
    profile: str


class DecisionReader(WireReader):
    """Remembers the profiles, which registered jobs name, and the units that sleep, because SET_RESOURCE_STATE switches
    these on."""

    def __init__(
        self,
        peer: str,
        profiles: dict[str, Profile],
        store: RedisStore | None = None,
        dialect: Dialect = Dialect.ANY,
        *,
        keeps_profiles: bool = True,
        as_released: bool = False,
    ) -> None:
        """`as_released`: refuses what Batsim 2.0.0 refuses, although the specification allows it."""
        super().__init__(peer, profiles, store)
        self._as_released = as_released
        self._dialect = dialect
        self._keeps_profiles = keeps_profiles
        self._registered: dict[str, Profile] = {}
        """By the message that is being read."""
        self._sleep_states: dict[int, Container[int]] = {}
        self._asleep = 0
        self._sources: list[wire.FromScheduler] = []
        self.speaker = None if dialect is Dialect.ANY else dialect
        """The scheduler's generation, as far as its events show it: TWO, THREE (or FOUR), or None: not known yet."""

    def note_units(self, sleep_states: dict[int, Container[int]]) -> None:
        """The sleep states of each unit that has any."""
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
            if kind in _OLD_EVENTS or word in (_FINISHED[1], _RESUMED[1]):
                self.speaker = Dialect.TWO
            elif kind in _NEW_EVENTS or word in (_FINISHED[0], _RESUMED[0]):
                self.speaker = Dialect.THREE

    def event_name(self, index: int) -> str:
        """The wire name of the event of a decision of the last reply."""
        return wire.name_of(self._sources[index]) if index < len(self._sources) else ""

    def _profile(self, event: wire.WireEvent, written: Raw, workload: str, name: str) -> Profile:
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
            # One executor on each host of its own allocation.
            placement = d.Placement(mapping=tuple(range(len(units))))
            decision.overrides = {decision.io_job.name: d.PartPlacement(units, placement)}
        return decision

    def _io_profile(self, event: wire.ExecuteJob, io_job: wire.IoJobData, workload: str) -> Profile:
        """The profile of a transfer beside a job: described in the event, or known by its name."""
        known = self._known(full_name(workload, io_job.profile_name))
        if io_job.profile is not UNSET:
            if known is not None and self._dialect.since_three:
                raise self.error(event, f"there already is a profile {io_job.profile_name!r}; only its name is needed")
            return self._profile(event, io_job.profile, workload, io_job.profile_name)
        if known is None:
            raise self.error(event, f"there is no profile {io_job.profile_name!r} for additional_io_job")
        return known

    def _mapping(self, event: wire.WireEvent, written: dict[str, int | str]) -> tuple[int, ...]:
        """The index inside the allocation of each executor; executors are 0 to n-1 without a gap."""
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
        source = self._source(event, data)
        written = self._description(event, data.job_id, source, _RegisteredJob)
        if self._dialect.since_three or (self._as_released and self._dialect is Dialect.TWO):
            self._check_released(event, written)
        walltime = inf if written.walltime is None or written.walltime == -1 else written.walltime
        if written.res < 0 or not walltime > 0:
            raise self.error(event, f"job {data.job_id}: res should be 0 or more, walltime above 0 or -1")
        name = full_name(workload, written.profile)
        if self._known(name) is None:
            told = data.profile
            if told is UNSET and self._store is not None and not self._dialect.since_three:
                told = Raw(self._store.get_profile(workload, written.profile))
            if told is not UNSET:
                profile = self._profile(event, told, workload, written.profile)
                self._registered[profile.name] = profile
                decisions.append(d.RegisterProfile(event.timestamp, profile))
        decisions.append(d.RegisterJob(event.timestamp, self._job(event, data.job_id, written, walltime, source)))
        return decisions

    def _check_released(self, event: wire.RegisterJob | wire.SubmitJob, written: JobDescription) -> None:
        """The additional rules of the released programs."""
        data = event.data
        if self._store is not None and data.job is not UNSET:
            raise self.error(event, f"job {data.job_id} has a description, which should be in Redis instead")
        if written.subtime is None:
            raise self.error(event, f"job {data.job_id} has no subtime")
        own, workload = str(written.id), data.job_id.partition("!")[0]
        if written.id is None or (own if workload in own else f"{workload}!{own}") != data.job_id:
            raise self.error(event, f"job {data.job_id} has another id in its description: {quoted(written.id)}")

    def _register_profile(self, event: wire.RegisterProfile | wire.SubmitProfile) -> d.Decision | list[d.Decision]:
        data = event.data
        profile = self._profile(event, data.profile, data.workload_name, data.profile_name)
        decision = d.RegisterProfile(event.timestamp, profile)
        if self._known(profile.name) is None:
            self._registered[profile.name] = profile
        elif self._dialect is Dialect.TWO:
            return []  # Batsim 2: the first of a name stays.
        return decision

    def _set_resource_state(self, event: wire.SetResourceState) -> d.Decision:
        units = self._units(event, event.data.resources)
        state = self._number(event, event.data.state, "the number of a power state")
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
        if event.data.requests["consumed_energy"] and not self._dialect.since_three:
            raise self.error(event, "consumed_energy has no arguments")
        return d.MeasureEnergy(event.timestamp)

    def _answer(self, event: wire.Answer) -> d.Decision | list[d.Decision]:
        estimate = event.data.estimate_waiting_time
        if estimate is UNSET and self._dialect is Dialect.TWO:
            return []  # Batsim 2 reads no answer.
        if estimate is UNSET:
            raise self.error(event, "an answer should hold estimate_waiting_time")
        seconds = estimate.estimated_waiting_time
        # JSON has no word for a job that never starts: the largest number stands for it, as in what we write.
        return d.AnswerEstimate(event.timestamp, estimate.job_id, inf if seconds >= sys.float_info.max else seconds)


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

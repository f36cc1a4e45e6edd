"""Batsim events as our events: what the end that plays the scheduler hears from a Batsim of any generation.

In: decoded messages. Out: batches. Jobs are read from the message or, with Redis, from the store. Raises PeerError.
"""

from __future__ import annotations

from heapq import heappop
from math import inf
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw

from pilothouse.formats.profile_json import full_name
from pilothouse.model import events as e
from pilothouse.model.errors import InputError, PeerError, quoted
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import FROM_BATSIM
from pilothouse.model.profile import HomogeneousTask, Profile, Sequence, Spread
from pilothouse.protocols.batsim import messages as wire
from pilothouse.protocols.batsim.simulation_begins import read_profile


class Calls:
    """The calls that were asked for. Batsim's answer does not say which one it is: it is the one that was due first."""

    def __init__(self) -> None:
        self.due: list[tuple[float, int, str, float, int]] = []
        """Date, number, id, period (0: only once), and how many are left (0: for ever)."""
        self.again: list[tuple[str, float, int]] = []
        """Series that need their next call to be asked for."""

    def arrived(self, at: float) -> e.CallArrived:
        if not self.due:
            return e.CallArrived(at)
        _, _, call_id, period, left = heappop(self.due)
        last = not period or left == 1
        if not last:
            self.again.append((call_id, period, max(0, left - 1)))
        return e.CallArrived(at, call_id, last)


class JobStore(Protocol):
    """Where job data is when it does not come through the socket."""

    def get_job(self, job_id: str) -> bytes: ...


class _Job(msgspec.Struct):
    res: int
    profile: str = ""
    subtime: float | None = None
    walltime: float | None = None


_JOB = msgspec.json.Decoder(_Job)


class EventReader:
    """Knows the profiles, and which calls are under way."""

    def __init__(self, peer: str, begins: e.Begins, store: JobStore | None, calls: Calls) -> None:
        self._peer = peer
        self._profiles: dict[str, Profile] = dict(begins.profiles)
        self._store = store
        self._calls = calls

    def batch(self, message: wire.Message[wire.FromBatsim]) -> e.Batch:
        """The events of a message."""
        events: list[e.Event] = []
        for event in message.events:
            read = _READERS.get(type(event))
            if read is None:
                raise self._error(event, "it came a second time")
            events.append(read(self, event))
        return e.Batch(message.now, events)

    def _error(self, event: msgspec.Struct, problem: str) -> PeerError:
        return PeerError(self._peer, problem, event=wire.name_of(event))

    def _units(self, event: msgspec.Struct, text: object) -> IdSet:
        try:
            return IdSet.parse(str(text))
        except InputError:
            raise self._error(event, f"not a set of resources: {quoted(text)}") from None

    def _ends(self, event: wire.SimulationEnds) -> e.Event:
        return e.Ended(event.timestamp)

    def _submitted(self, event: wire.JobSubmitted) -> e.Event:
        data = event.data
        if data.job is not UNSET:
            source = data.job
        elif self._store is not None:
            source = Raw(self._store.get_job(data.job_id))
        else:
            raise self._error(event, f"job {data.job_id} has no description, and Redis is not enabled")
        return e.JobSubmitted(event.timestamp, self._job(event, data.job_id, source, data.profile))

    def _job(self, event: msgspec.Struct, job_id: str, source: Raw, told: Raw | msgspec.UnsetType) -> Job:
        try:
            written = _JOB.decode(source)
        except msgspec.DecodeError as problem:
            raise self._error(event, f"job {job_id}: {problem}") from None
        workload = job_id.partition("!")[0]
        name = full_name(workload, written.profile)
        profile = self._profiles.get(name)
        if profile is None and told is not UNSET:
            profile = read_profile(told, workload, written.profile, self._peer, wire.name_of(event))
            self._profiles[profile.name] = profile
        walltime = inf if written.walltime is None or written.walltime < 0 else written.walltime
        submitted_at = event.timestamp if written.subtime is None else written.subtime  # type: ignore[attr-defined]
        job = Job(job_id, written.res, walltime, submitted_at, profile, source=source)
        job.elastic = profile is not None and self._is_elastic(profile)
        return job

    def _is_elastic(self, profile: Profile) -> bool:
        spec = profile.spec
        if isinstance(spec, Sequence):
            return all(part in self._profiles and self._is_elastic(self._profiles[part]) for part in spec.parts)
        return isinstance(spec, HomogeneousTask) and spec.spread is Spread.TOTAL

    def _completed(self, event: wire.JobCompleted) -> e.Event:
        data = event.data
        state = FROM_BATSIM.get(data.job_state)
        if state is None:
            raise self._error(event, f"unknown job state {quoted(data.job_state)}")
        reason = "" if data.kill_reason is UNSET else data.kill_reason
        return e.JobEnded(event.timestamp, data.job_id, state, data.return_code, self._units(event, data.alloc), reason)

    def _killed(self, event: wire.JobKilled) -> e.Event:
        written = {} if event.data.job_progress is UNSET else event.data.job_progress
        progress = {job_id: _progress(tree) for job_id, tree in written.items()}
        return e.JobsKilled(event.timestamp, tuple(event.data.job_ids), progress)

    def _power(self, event: wire.ResourceStateChanged) -> e.Event:
        try:
            state = int(event.data.state)
        except ValueError:
            raise self._error(event, f"not a power state: {quoted(event.data.state)}") from None
        return e.UnitsSwitched(event.timestamp, self._units(event, event.data.resources), state)

    def _called(self, event: wire.RequestedCall) -> e.Event:
        return self._calls.arrived(event.timestamp)

    def _notified(self, event: wire.Notify) -> e.Event:
        kind, at = event.data.get("type"), event.timestamp
        if kind == "no_more_static_job_to_submit":
            return e.NoMoreJobs(at)
        if kind == "no_more_external_event_to_occur":
            return e.NoMoreExternalEvents(at)
        if kind == "event_machine_available":
            return e.UnitsAvailable(at, self._units(event, event.data.get("resources", "")))
        if kind == "event_machine_unavailable":
            return e.UnitsUnavailable(at, self._units(event, event.data.get("resources", "")))
        return e.ExternalEvent(at, "", str(kind), msgspec.json.encode(event.data).decode())

    def _answer(self, event: wire.Answer) -> e.Event:
        if event.data.consumed_energy is UNSET:
            raise self._error(event, "an answer should hold consumed_energy")
        return e.EnergyMeasured(event.timestamp, event.data.consumed_energy)

    def _query(self, event: wire.Query) -> e.Event:
        asked = event.data.requests.get("estimate_waiting_time")
        if asked is None:
            names = ", ".join(event.data.requests) or "nothing"
            raise self._error(event, f"only estimate_waiting_time can be asked for; it asks for {names}")
        job_id = str(asked.get("job_id", ""))
        source = Raw(msgspec.json.encode(asked.get("job", {})))
        return e.EstimateAsked(event.timestamp, self._job(event, job_id, source, UNSET))

    def _message(self, event: wire.FromJobMessage) -> e.Event:
        return e.JobMessage(event.timestamp, event.data.job_id, event.data.msg)


def _progress(tree: dict[str, object]) -> e.Progress:
    """The tree of a killed job; generation 2 calls its profile `profile`, generation 4 `profile_name`."""
    name = str(tree.get("profile_name", tree.get("profile", "")))
    inner = tree.get("current_task")
    index = tree.get("current_task_index")
    done = tree.get("progress")
    return e.Progress(
        name,
        float(done) if isinstance(done, int | float) else 0.0,
        index=index if isinstance(index, int) else 0,
        parts=(_progress(inner),) if isinstance(inner, dict) else (),
    )


_READERS: dict[type, Any] = {
    wire.SimulationEnds: EventReader._ends,
    wire.JobSubmitted: EventReader._submitted,
    wire.JobCompleted: EventReader._completed,
    wire.JobKilled: EventReader._killed,
    wire.ResourceStateChanged: EventReader._power,
    wire.RequestedCall: EventReader._called,
    wire.Notify: EventReader._notified,
    wire.Answer: EventReader._answer,
    wire.Query: EventReader._query,
    wire.FromJobMessage: EventReader._message,
}
"""All but SIMULATION_BEGINS, which comes once and first (world.py)."""

"""Reads the messages of a Batsim of any generation as our events (used by world.py).

In: decoded messages. Out: batches. Jobs are read from the message or, with Redis, from the store. Raises PeerError.
"""

from __future__ import annotations

from heapq import heappop
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from pilothouse.formats.profile_json import full_name
from pilothouse.formats.text_input import JSON_PROBLEMS
from pilothouse.model import events as e
from pilothouse.model.errors import PeerError, quoted
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import FROM_BATSIM
from pilothouse.model.profile import Profile
from pilothouse.protocols.batsim import messages as wire
from pilothouse.protocols.batsim.codec import JobDescription, WireReader, read_profile
from pilothouse.protocols.batsim.settings import Dialect, RedisSettings

if TYPE_CHECKING:
    from pilothouse.protocols.batsim.redis_store import RedisStore


class RequestedCalls:
    """The calls that were requested. REQUESTED_CALL does not say which one it is: it is the one that was due first."""

    def __init__(self) -> None:
        self.due: list[tuple[float, int, str, float, int]] = []
        """Date, number, id, period (0: only once), and how many are left (0: no limit)."""
        self.again: list[tuple[str, float, int]] = []
        """Series whose next call is to be requested."""

    def arrived(self, at: float) -> e.CallArrived:
        if not self.due:
            return e.CallArrived(at)
        _, _, call_id, period, left = heappop(self.due)
        last = not period or left == 1
        if not last:
            self.again.append((call_id, period, max(0, left - 1)))
        return e.CallArrived(at, call_id, last)


class EventReader(WireReader):
    """Remembers the profiles and the requested calls."""

    def __init__(self, peer: str, begins: e.Begins, store: RedisStore | None, calls: RequestedCalls) -> None:
        super().__init__(peer, dict(begins.profiles), store)
        self._calls = calls

    def batch(self, message: wire.Message[wire.FromBatsim]) -> e.Batch:
        """The events of a message."""
        events: list[e.Event] = []
        for event in message.events:
            read = _READERS.get(type(event))
            if read is None:
                raise self.error(event, "sent a second time")
            events.append(read(self, event))
        return e.Batch(message.now, events)

    def _ends(self, event: wire.SimulationEnds) -> e.Event:
        return e.Ended(event.timestamp)

    def _submitted(self, event: wire.JobSubmitted) -> e.Event:
        data = event.data
        job = self._read_job(event, data.job_id, self._source(event, data), data.profile)
        return e.JobSubmitted(event.timestamp, job)

    def _read_job(self, event: wire.WireEvent, job_id: str, source: Raw, profile: Raw | UnsetType = UNSET) -> Job:
        written = self._description(event, job_id, source, JobDescription)
        workload = job_id.partition("!")[0]
        name = full_name(workload, written.profile)
        if profile is not UNSET and name not in self._profiles:
            self._profiles[name] = read_profile(profile, workload, written.profile, self.peer, wire.name_of(event))
        walltime = inf if written.walltime is None or written.walltime < 0 else written.walltime
        return self._job(event, job_id, written, walltime, source)

    def _completed(self, event: wire.JobCompleted) -> e.Event:
        data = event.data
        state = FROM_BATSIM.get(data.job_state)
        if state is None:
            raise self.error(event, f"unknown job state {quoted(data.job_state)}")
        reason = "" if data.kill_reason is UNSET else data.kill_reason
        return e.JobEnded(event.timestamp, data.job_id, state, data.return_code, self._units(event, data.alloc), reason)

    def _killed(self, event: wire.JobKilled) -> e.Event:
        written = {} if event.data.job_progress is UNSET else event.data.job_progress
        progress = {job_id: _progress(tree) for job_id, tree in written.items()}
        return e.JobsKilled(event.timestamp, tuple(event.data.job_ids), progress)

    def _power(self, event: wire.ResourceStateChanged) -> e.Event:
        state = self._number(event, event.data.state, "a power state")
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
            return e.UnitsAvailable(at, self._units(event, str(event.data.get("resources", ""))))
        if kind == "event_machine_unavailable":
            return e.UnitsUnavailable(at, self._units(event, str(event.data.get("resources", ""))))
        return e.ExternalEvent(at, "", str(kind), msgspec.json.encode(event.data).decode())

    def _answer(self, event: wire.Answer) -> e.Event:
        if event.data.consumed_energy is UNSET:
            raise self.error(event, "an answer should hold consumed_energy")
        return e.EnergyMeasured(event.timestamp, event.data.consumed_energy)

    def _query(self, event: wire.Query) -> e.Event:
        asked = event.data.requests.get("estimate_waiting_time")
        if asked is None:
            names = ", ".join(event.data.requests) or "nothing"
            raise self.error(event, f"only estimate_waiting_time can be asked for; it asks for {names}")
        job_id = str(asked.get("job_id", ""))
        source = Raw(msgspec.json.encode(asked.get("job", {})))
        return e.EstimateAsked(event.timestamp, self._read_job(event, job_id, source))

    def _message(self, event: wire.FromJobMessage) -> e.Event:
        return e.JobMessage(event.timestamp, event.data.job_id, event.data.msg)


def _progress(tree: dict[str, object]) -> e.Progress:
    """The progress of a killed job. Generation 2 names the profile `profile`, generation 4 `profile_name`."""
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
"""All but SIMULATION_BEGINS, the first event, which world.py reads."""


# ---- SIMULATION_BEGINS


class _Resource(Struct):
    id: int
    name: str
    state: str = "idle"
    properties: dict[str, str] = {}
    zone_properties: dict[str, str] = {}


class _BeginsData(Struct):
    nb_resources: int
    config: dict[str, object] = {}
    allow_time_sharing: bool = False
    allow_compute_sharing: bool = False
    allow_storage_sharing: bool = True
    resources_data: list[_Resource] = []
    compute_resources: list[_Resource] = []
    storage_resources: list[_Resource] = []
    workloads: dict[str, str] = {}
    profiles: dict[str, dict[str, Raw]] = {}


class _FlatRedis(Struct, rename=lambda name: f"redis-{name}"):
    enabled: bool = False
    hostname: str = "127.0.0.1"
    port: int = 6379
    prefix: str = "default"


class _Nested(Struct):
    redis: RedisSettings = RedisSettings()


def read_begins(data: Raw, peer: str) -> tuple[e.Begins, RedisSettings, Dialect]:
    """Reads the data of SIMULATION_BEGINS, of any generation. Raises PeerError."""
    try:
        written = msgspec.json.decode(data, type=_BeginsData)
        flat = msgspec.convert(written.config, _FlatRedis)
        nested = msgspec.convert(written.config, _Nested)
    except JSON_PROBLEMS as problem:
        raise PeerError(peer, str(problem), event="SIMULATION_BEGINS") from None
    config = written.config
    dialect = Dialect.TWO if written.resources_data and not written.compute_resources else Dialect.FOUR
    resources = written.compute_resources or written.resources_data
    sharing = written.allow_compute_sharing or written.allow_time_sharing
    usable = ("idle", "computing") if sharing else ("idle",)
    redis = flat if "redis-enabled" in config else nested.redis
    submission = _object_in(config, "job_submission")
    dynamic = _object_in(submission, "from_scheduler")
    begins = e.Begins(
        nodes=_nodes(resources),
        unavailable=IdSet.of(resource.id for resource in resources if resource.state not in usable),
        storage=_nodes(written.storage_resources),
        compute_sharing=sharing,
        storage_sharing=written.allow_storage_sharing,
        dynamic_registration=bool(config.get("dynamic-jobs-enabled", dynamic.get("enabled", False))),
        acknowledge_registration=bool(config.get("dynamic-jobs-acknowledged", dynamic.get("acknowledge", True))),
        profile_reuse=bool(config.get("profile-reuse-enabled", False)),
        forward_profiles=bool(
            config.get("profiles-forwarded-on-submission", submission.get("forward_profiles", False))
        ),
        forward_unknown_events=bool(config.get("forward-unknown-events", False)),
        workloads=written.workloads,
        profiles=_profiles(written.profiles, peer),
        config=config,
    )
    return begins, RedisSettings(redis.enabled, redis.hostname, redis.port, redis.prefix), dialect


def _object_in(written: dict[str, object], name: str) -> dict[str, object]:
    """The member of that name if it is an object, else an empty one."""
    found = written.get(name)
    return found if isinstance(found, dict) else {}


def _nodes(resources: list[_Resource]) -> tuple[Node, ...]:
    return tuple(
        Node(resource.name, resource.id, properties=resource.properties, zone_properties=resource.zone_properties)
        for resource in resources
    )


def _profiles(written: dict[str, dict[str, Raw]], peer: str) -> dict[str, Profile]:
    found = {}
    for workload, profiles in written.items():
        for name, raw in profiles.items():
            profile = read_profile(raw, workload, name, peer, "SIMULATION_BEGINS")
            found[profile.name] = profile
    return found

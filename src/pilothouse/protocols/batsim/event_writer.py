"""Writes our events as the messages of a Batsim (used by decider.py).

In: batches. Out: the text of wire events. Events without a counterpart in the protocol are left out; core/translate.py has
replaced those that a scheduler must know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from json.encoder import encode_basestring as quote
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from pilothouse.model import events as e
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import BATSIM, JobState
from pilothouse.model.profile import Profile, ReceiveMessage, SendMessage, Sequence, TraceReplay
from pilothouse.protocols.batsim import messages as wire
from pilothouse.protocols.batsim.codec import passed_on, profile_text, text_of
from pilothouse.protocols.batsim.settings import Dialect, Settings

if TYPE_CHECKING:
    from pilothouse.protocols.batsim.redis_store import RedisStore

NO_PROFILE = '{"type":"delay","delay":1}'
"""The profile of a job that has only a command: schedulers need one, and do not read it."""

_KILL_REASONS = {
    JobState.TIMED_OUT: "walltime reached",
    JobState.KILLED: "killed by the scheduler",
    JobState.LOST: "its node was lost",
}
"""Generation 2: `kill_reason` where the world gives none."""

_WITHOUT_PROGRESS = (SendMessage, ReceiveMessage, TraceReplay)


class EventWriter:
    """Remembers what the scheduler has been told."""

    def __init__(
        self,
        settings: Settings,
        dialect: Dialect,
        store: RedisStore | None = None,
        profiles: dict[str, Profile] | None = None,
        *,
        as_released: bool = False,
    ) -> None:
        """`as_released`: writes no profiles into Redis, as Batsim 2.0.0."""
        self._settings = settings
        self._dialect = dialect
        self._is_any = dialect is Dialect.ANY
        self._since_three = dialect.since_three
        self._store = store
        self._forward_profiles = False
        self._puts_profiles = not (as_released and dialect is Dialect.TWO)
        self._registers = False
        self._withheld: list[str] = []
        self.listener: Dialect | None = None
        """The scheduler's generation (TWO, or THREE for 3 and 4), once its messages have shown it."""
        self._jobs: set[str] = set()
        """Jobs that have been submitted and have not ended."""
        self.profiles: dict[str, Profile] = {} if profiles is None else profiles
        """The known profiles by full name, including registered ones."""

    def events(self, batch: e.Batch) -> str:
        """The wire events of a batch, separated by commas."""
        events = batch.events
        if len(events) == 1 and (write := _WRITERS.get(type(events[0]))) is not None:
            return write(self, events[0])
        written: list[str] = []
        for event in events:
            write = _WRITERS.get(type(event))
            if write is not None:
                text = write(self, event)
                if text:
                    written.append(text)
        return ",".join(written)

    # ---- one method for each event

    def _began(self, event: e.Began) -> str:
        begins = event.begins
        self._forward_profiles = begins.forward_profiles or self._settings.job_submission.forward_profiles
        self._registers = begins.dynamic_registration
        self.profiles.update(begins.profiles)
        if self._store is not None:
            self._store.put_begins(begins.units + len(begins.storage))
        data = begins_data(begins, self._settings, self._dialect)
        return text_of(wire.SimulationBegins(event.at, Raw(text_of(data).encode())))

    def _ended(self, event: e.Ended) -> str:
        return text_of(wire.SimulationEnds(event.at))

    def _submitted(self, event: e.JobSubmitted) -> str:
        # One of the two most frequent events, written by hand.
        job = event.job
        self._jobs.add(job.id)
        head = f'{{"timestamp":{event.at:.6f},"type":"JOB_SUBMITTED","data":{{"job_id":{quote(job.id)}'
        profile = ""
        # Batsim does not send profiles that are registered later, but clients refuse jobs without one.
        if self._forward_profiles or (self._is_any and (job.profile is None or job.profile.name not in self.profiles)):
            profile = NO_PROFILE if job.profile is None else text_of(profile_text(job.profile))
        if self._store is None:
            tail = f',"profile":{profile}}}}}' if profile else "}}"
            return f'{head},"job":{job_text(job)}{tail}'
        self._store.put_job(job.id, job_text(job).encode())
        if profile and self._puts_profiles:
            self._store.put_profile(job.workload, profile_name(job), profile.encode())
        return head + "}}"

    def _job_ended(self, event: e.JobEnded) -> str:
        # The other one.
        self._jobs.discard(event.job_id)
        reason = ""
        if not self._since_three:
            reason = f'"kill_reason":{quote(event.reason or _KILL_REASONS.get(event.state, ""))},'
        return (
            f'{{"timestamp":{event.at:.6f},"type":"JOB_COMPLETED","data":{{"job_id":{quote(event.job_id)},'
            f'"job_state":"{BATSIM[event.state]}","return_code":{event.return_code},{reason}'
            f'"alloc":"{event.units.to_text()}"}}}}'
        )

    def _killed(self, event: e.JobsKilled) -> str:
        progress = {job_id: self._progress(tree) for job_id, tree in event.progress.items()}
        return text_of(wire.JobKilled(event.at, wire.JobKilledData(list(event.job_ids), progress)))

    def _progress(self, tree: e.Progress) -> dict[str, object]:
        name = tree.profile.rpartition("!")[2]
        key = "profile" if self._dialect is Dialect.TWO else "profile_name"
        written: dict[str, object] = {key: name}
        if self._dialect is Dialect.ANY:
            written["profile"] = name
        profile = self.profiles.get(tree.profile)
        if self._settings.job_kill.forward_profiles and profile is not None:
            written = {"profile_name": name, "profile": profile_text(profile)}
        if not tree.parts:
            if self._since_three and profile is not None and isinstance(profile.spec, _WITHOUT_PROGRESS):
                return written | {"current_task_index": -1}  # QUIRK: only tasks and delays know how far they are.
            return written | {"progress": tree.done}
        length = len(profile.spec.parts) if profile is not None and isinstance(profile.spec, Sequence) else 0
        written["current_task_index"] = tree.repetition * length + tree.index
        written["current_task"] = self._progress(tree.parts[0])
        return written

    def _power(self, event: e.UnitsSwitched | e.PowerStateChanged) -> str:
        return text_of(
            wire.ResourceStateChanged(event.at, wire.ResourceStateData(str(event.units), str(event.power_state)))
        )

    def _called(self, event: e.CallArrived) -> str:
        return text_of(wire.RequestedCall(event.at))

    def _notify(self, at: float, data: dict[str, object]) -> str:
        # Generation 2 has no NOTIFY to the scheduler, and its clients end on unknown events.
        return "" if self._dialect is Dialect.TWO else text_of(wire.Notify(at, data))

    def _no_more(self, at: float, kind: str) -> str:
        text = self._notify(at, {"type": kind})
        if not self._is_any or self.listener is Dialect.THREE:
            return text
        # While the generation is unknown the notification waits: only schedulers of generation 3 or 4 that register
        # jobs need it.
        if self._registers and self.listener is None:
            self._withheld.append(text)
        return ""

    def withheld(self, said: bool) -> str:
        """The notifications that waited for the scheduler's generation. They are sent to one of generation 3 or 4, and to
        one that has sent nothing (not `said`) although no job is left, because it may wait for them."""
        if not self._withheld:
            return ""
        text = ""
        if self.listener is None:
            if said or self._jobs:
                return ""
            text = ",".join(self._withheld)
        elif self.listener is Dialect.THREE:
            text = ",".join(self._withheld)
        self._withheld = []
        return text

    def _no_more_jobs(self, event: e.NoMoreJobs) -> str:
        return self._no_more(event.at, "no_more_static_job_to_submit")

    def _no_more_external(self, event: e.NoMoreExternalEvents) -> str:
        return self._no_more(event.at, "no_more_external_event_to_occur")

    def _available(self, event: e.UnitsAvailable) -> str:
        return self._notify(event.at, {"type": "event_machine_available", "resources": str(event.units)})

    def _unavailable(self, event: e.UnitsUnavailable | e.NodesLeft) -> str:
        return self._notify(event.at, {"type": "event_machine_unavailable", "resources": str(event.units)})

    def _external(self, event: e.ExternalEvent) -> str:
        return self._notify(event.at, external_data(event))

    def _energy(self, event: e.EnergyMeasured) -> str:
        return text_of(wire.Answer(event.at, wire.AnswerData(consumed_energy=event.joules)))

    def _estimate(self, event: e.EstimateAsked) -> str:
        job: dict[str, object] = {"res": event.job.least_units}
        if event.job.walltime != inf:
            job["walltime"] = event.job.walltime
        request: dict[str, object] = {"job_id": event.job.id, "job": job}
        return text_of(wire.Query(event.at, wire.QueryData({"estimate_waiting_time": request})))

    def _message(self, event: e.JobMessage) -> str:
        message = Raw(passed_on(event.message).encode())
        return text_of(wire.FromJobMessage(event.at, wire.FromJobData(event.job_id, message)))


def job_text(job: Job) -> str:
    """The JSON text of a job: as it was written, under its full id, or made from what is known."""
    if job.source is not None:
        return passed_on(job.source, id=job.id)
    description: dict[str, object] = {"id": job.id, "subtime": job.submitted_at, "res": job.least_units}
    if job.walltime != inf:
        description["walltime"] = job.walltime
    description["profile"] = profile_name(job)
    if job.extra_data:
        description["extra_data"] = job.extra_data
    return text_of(description)


def profile_name(job: Job) -> str:
    """The name of the job's profile, without the workload."""
    return "command" if job.profile is None else job.profile.name.rpartition("!")[2]


def external_data(event: e.ExternalEvent) -> dict[str, object]:
    """The JSON object of an external event, as it was written or made from its parts."""
    try:
        data = msgspec.json.decode(event.data)
    except (msgspec.DecodeError, RecursionError):
        data = event.data
    return data if isinstance(data, dict) and "type" in data else {"type": event.kind, "data": data}


_WRITERS: dict[type, Callable[[EventWriter, Any], str]] = {
    e.Began: EventWriter._began,
    e.Ended: EventWriter._ended,
    e.JobSubmitted: EventWriter._submitted,
    e.JobEnded: EventWriter._job_ended,
    e.JobsKilled: EventWriter._killed,
    e.UnitsSwitched: EventWriter._power,
    e.PowerStateChanged: EventWriter._power,
    e.CallArrived: EventWriter._called,
    e.NoMoreJobs: EventWriter._no_more_jobs,
    e.NoMoreExternalEvents: EventWriter._no_more_external,
    e.UnitsAvailable: EventWriter._available,
    e.UnitsUnavailable: EventWriter._unavailable,
    e.NodesLeft: EventWriter._unavailable,
    e.ExternalEvent: EventWriter._external,
    e.EnergyMeasured: EventWriter._energy,
    e.EstimateAsked: EventWriter._estimate,
    e.JobMessage: EventWriter._message,
}
"""The protocol has no message for other events (priorities, changed walltimes, freed units, probes)."""


# ---- SIMULATION_BEGINS


def begins_data(begins: e.Begins, settings: Settings, dialect: Dialect) -> dict[str, object]:
    """The `data` of SIMULATION_BEGINS in all dialects.

    Generation 2 has `resources_data` and a nested configuration. Generation 3 separates compute from storage resources, has a
    flat configuration and adds the profiles. Generation 4 adds zone properties. `Dialect.ANY` has all of these.
    """
    compute = _resources(begins.nodes, dialect)
    storage = _resources(begins.storage, dialect)
    data: dict[str, object] = {"nb_resources": len(compute) + len(storage)}
    if dialect is not Dialect.TWO:
        data["nb_compute_resources"] = len(compute)
        data["nb_storage_resources"] = len(storage)
        data["allow_compute_sharing"] = begins.compute_sharing
        data["allow_storage_sharing"] = begins.storage_sharing
    if dialect in (Dialect.TWO, Dialect.ANY):
        data["allow_time_sharing"] = begins.compute_sharing
    config = nested_config(settings, begins) if dialect in (Dialect.TWO, Dialect.ANY) else {}
    if dialect is not Dialect.TWO:
        config |= flat_config(settings, begins, dialect)
    data["config"] = config
    if dialect in (Dialect.TWO, Dialect.ANY):
        data["resources_data"] = [*compute, *storage]
    if dialect is not Dialect.TWO:
        data["compute_resources"] = compute
        data["storage_resources"] = storage
    data["workloads"] = begins.workloads
    if dialect is not Dialect.TWO:
        data["profiles"] = profiles_by_workload(begins)
    return data


def profiles_by_workload(begins: e.Begins) -> dict[str, dict[str, Raw]]:
    """The profiles of each workload by their names without the workload."""
    found: dict[str, dict[str, Raw]] = {name: {} for name in begins.workloads}
    for profile in begins.profiles.values():
        workload, _, name = profile.name.rpartition("!")
        found.setdefault(workload, {})[name] = profile_text(profile)
    return found


def nested_config(settings: Settings, begins: e.Begins) -> dict[str, object]:
    """The configuration as generation 2 sends it: as it was written, with what holds in this run."""
    dynamic, asked = begins.dynamic_registration, settings.job_submission.from_scheduler
    acknowledge = begins.acknowledge_registration if dynamic else asked.acknowledge
    return _merged(
        begins.config | settings.written,
        {
            "redis": msgspec.to_builtins(settings.redis),
            "job_submission": {
                "forward_profiles": begins.forward_profiles,
                "from_scheduler": {"enabled": dynamic, "acknowledge": acknowledge},
            },
        },
    )


def _merged(written: dict[str, object], known: dict[str, object]) -> dict[str, object]:
    """`written` with the members of `known`, also inside of members that are objects."""
    merged = dict(written)
    for key, value in known.items():
        before = written.get(key)
        merged[key] = _merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return merged


def flat_config(settings: Settings, begins: e.Begins, dialect: Dialect) -> dict[str, object]:
    """The configuration as generations 3 and 4 send it."""
    config: dict[str, object] = {
        **begins.config,
        **settings.extra,
        "redis-enabled": settings.redis.enabled,
        "redis-hostname": settings.redis.hostname,
        "redis-port": settings.redis.port,
        "redis-prefix": settings.redis.prefix,
        "profiles-forwarded-on-submission": begins.forward_profiles,
        "dynamic-jobs-enabled": begins.dynamic_registration,
        "dynamic-jobs-acknowledged": begins.dynamic_registration and begins.acknowledge_registration,
    }
    if dialect is not Dialect.THREE:
        config["profile-reuse-enabled"] = begins.profile_reuse
        config["sched-config"] = settings.scheduler_config
    config["forward-unknown-events"] = begins.forward_unknown_events
    return config


def _resources(nodes: Iterable[Node], dialect: Dialect) -> list[dict[str, object]]:
    resources: list[dict[str, object]] = []
    for node in nodes:
        # Batsim 3 and 4 add a role to what the platform says.
        properties = {"role": "", **node.properties} if dialect.since_three else node.properties
        for index in range(node.count):
            resource: dict[str, object] = {
                "id": node.first + index,
                "name": node.name if node.count == 1 else f"{node.name}:{index}",
                "state": "idle",
                "properties": properties,
            }
            if dialect in (Dialect.FOUR, Dialect.ANY):
                resource["zone_properties"] = node.zone_properties
            resources.append(resource)
    return resources

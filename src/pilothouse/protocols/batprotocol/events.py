"""Events, translated between our model and batprotocol.

`EventWriter` writes our events for one decision component, with the features that it asked for; `EventReader` reads those
of a real Batsim 5. An event that batprotocol has no word for becomes a generic external event if the component asked for
unknown ones, and is left out otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import BATPROTOCOL, FROM_BATSIM
from pilothouse.model.profile import Profile
from pilothouse.protocols.batprotocol import messages as m
from pilothouse.protocols.batprotocol.decisions import METRICS, read_units, write_resources
from pilothouse.protocols.batprotocol.jobs import read_job, read_profile, write_job, write_profile
from pilothouse.protocols.batprotocol.wire import Malformed

PROTOCOL_VERSION = "1.0.0"
BATSIM_VERSION = "v5.0.0-rc2"
"""The version that components are told: the one whose behaviour we reproduce."""

FINAL = {state: m.FinalJobState[name] for state, name in BATPROTOCOL.items()}


class EventWriter:
    """Writes events for one component. `wants` is what its hello asked for."""

    def __init__(self, wants: d.Wants) -> None:
        self.wants = wants
        self.profiles: dict[str, Profile] = {}
        self._probes: dict[str, d.CreateProbe] = {}
        self._periodic: set[str] = set()
        self._jobs: dict[str, Job] = {}
        self._keep_jobs = bool(wants.forward_profiles_on_kill)
        self.writers: dict[type, Callable[[Any], m.Event | None]] = {
            e.Began: lambda event: self.write_begins(event.begins),
            e.Ended: lambda event: m.SimulationEndsEvent(),
            e.JobSubmitted: self._submitted,
            e.JobEnded: self._ended,
            e.JobsKilled: self._killed,
            e.CallArrived: self._called,
            e.NoMoreJobs: lambda event: m.AllStaticJobsHaveBeenSubmittedEvent(),
            e.NoMoreExternalEvents: lambda event: m.AllStaticExternalEventsHaveBeenInjectedEvent(),
            e.ExternalEvent: lambda event: m.ExternalEventOccurredEvent(event.id, m.GenericExternalEvent(event.data)),
            e.PowerStateChanged: lambda event: m.HostsPStateChangedEvent(str(event.units), event.power_state),
            e.UnitsSwitched: lambda event: m.HostsTurnedOnOffEvent(str(event.units), event.power_state),
            e.ProbeData: self._probe_data,
        }

    def write(self, event: e.Event) -> m.Event | None:
        writer = self.writers.get(type(event))
        return self._other(event) if writer is None else writer(event)

    def note(self, decision: d.Decision) -> None:
        """Remembers the decisions of the component that later events repeat in part."""
        if type(decision) is d.CreateProbe:
            self._probes[decision.probe_id] = decision
        elif type(decision) is d.CallEvery:
            self._periodic.add(decision.call_id)
        elif type(decision) is d.RegisterJob and self._keep_jobs:
            self._jobs[decision.job.id] = decision.job

    def _called(self, event: e.CallArrived) -> m.RequestedCallEvent:
        return m.RequestedCallEvent(event.call_id, event.last and event.call_id in self._periodic)

    def write_begins(self, begins: e.Begins) -> m.SimulationBeginsEvent:
        self.profiles.update(begins.profiles)
        forwarded = []
        if self.wants.forward_profiles_at_begin:
            forwarded = [write_profile(profile) for profile in begins.profiles.values()]
        compute = [_host(node, node.first + i) for node in begins.nodes for i in range(node.count)]
        storage = [_host(node, node.first) for node in begins.storage]
        context = begins.config.get("batsim_execution_context_json", "{}")
        arguments = begins.config.get("batsim_arguments", ())
        return m.SimulationBeginsEvent(
            context if isinstance(context, str) else "{}",
            len(compute) + len(storage),
            len(compute),
            compute,
            len(storage),
            storage,
            [str(argument) for argument in arguments] if isinstance(arguments, list | tuple) else [],
            [m.WorkloadAndFilename(name, file) for name, file in begins.workloads.items()],
            forwarded,
            [m.ExternalEventListAndFilename(name, file) for name, file in begins.external_event_lists.items()],
            PROTOCOL_VERSION,
            BATSIM_VERSION,
            "",
        )

    def _submitted(self, event: e.JobSubmitted) -> m.JobSubmittedEvent:
        job = event.job
        profile = None
        if job.profile is not None:
            self.profiles[job.profile.name] = job.profile
            if self.wants.forward_profiles:
                profile = write_profile(job.profile)
        if self._keep_jobs:
            self._jobs[job.id] = job
        return m.JobSubmittedEvent(job.id, write_job(job), job.submitted_at, profile)

    def _ended(self, event: e.JobEnded) -> m.JobCompletedEvent:
        return m.JobCompletedEvent(event.job_id, FINAL[event.state], event.return_code & 0xFFFF_FFFF)

    def _killed(self, event: e.JobsKilled) -> m.JobsKilledEvent:
        found = sorted(event.progress.items())
        progresses = [m.JobAndProgress(job_id, _progress_out(progress)) for job_id, progress in found]
        profiles = None
        if self.wants.forward_profiles_on_kill:
            profiles = [write_profile(profile) for profile in self._profiles_of(event.progress)]
        return m.JobsKilledEvent(list(event.job_ids), progresses, profiles)

    def _profiles_of(self, job_ids: Iterable[str]) -> list[Profile]:
        """The profiles of these jobs, each once, by name. Their parts are not among them."""
        jobs = [job for job_id in job_ids if (job := self._jobs.get(job_id)) is not None]
        found = {job.profile.name: job.profile for job in jobs if job.profile is not None}
        return [found[name] for name in sorted(found)]

    def _probe_data(self, event: e.ProbeData) -> m.ProbeDataEmittedEvent:
        probe = self._probes.get(event.probe_id)
        data: m.ProbeData = m.VectorialProbeData(list(event.values))
        if event.aggregated:
            data = m.AggregatedProbeData(event.values[0])
        return m.ProbeDataEmittedEvent(
            event.probe_id,
            None if probe is None else write_resources(probe),
            m.Metrics.Power if probe is None else METRICS[probe.metric],
            data,
            event.triggered_by_hand,
            event.emitted,
            event.triggered,
        )

    def _other(self, event: e.Event) -> m.ExternalEventOccurredEvent | None:
        if not self.wants.forward_unknown_events:
            return None
        data = {"type": type(event).__name__}
        for name in ("units", "names", "job_id", "walltime", "priorities", "reason"):
            if (value := getattr(event, name, None)) is not None:
                data[name] = str(value) if isinstance(value, IdSet) else value
        text = msgspec.json.encode(data).decode()
        return m.ExternalEventOccurredEvent(f"pilothouse!{type(event).__name__}", m.GenericExternalEvent(text))


def _host(node: Node, number: int) -> m.Host:
    name = node.name if node.count == 1 else f"{node.name}:{number - node.first}"
    return m.Host(
        name,
        number,
        node.power_state,
        max(len(node.speeds), 1),
        m.HostState.IDLE,
        [m.HostProperty(key, value) for key, value in sorted(node.properties.items())],
        [m.HostProperty(key, value) for key, value in sorted(node.zone_properties.items())],
        node.cores,
        list(node.speeds) or [1.0],
    )


def _progress_out(progress: e.Progress) -> m.KillProgressWrapper:
    if not progress.parts:
        return m.KillProgressWrapper(m.KillProgressAtomicProfile(progress.profile, progress.done))
    parts = [_progress_out(part) for part in progress.parts]
    if len(parts) == 1:
        where = m.KillProgressSequentialProfile(progress.profile, parts[0], progress.repetition, progress.index)
        return m.KillProgressWrapper(where)
    return m.KillProgressWrapper(m.KillProgressForkJoinProfile(progress.profile, parts))


class EventReader:
    """Reads the events of a Batsim 5, and keeps what later events only name."""

    def __init__(self) -> None:
        self.begins: e.Begins | None = None
        self.profiles: dict[str, Profile] = {}
        self._units: dict[str, IdSet] = {}
        self._periodic: set[str] = set()
        self._readers: dict[type, Callable[[Any, float], e.Event]] = {
            m.SimulationBeginsEvent: self._began,
            m.SimulationEndsEvent: lambda event, at: e.Ended(at),
            m.JobSubmittedEvent: self._submitted,
            m.JobCompletedEvent: self._ended,
            m.JobsKilledEvent: self._killed,
            m.RequestedCallEvent: self._called,
            m.AllStaticJobsHaveBeenSubmittedEvent: lambda event, at: e.NoMoreJobs(at),
            m.AllStaticExternalEventsHaveBeenInjectedEvent: lambda event, at: e.NoMoreExternalEvents(at),
            m.ExternalEventOccurredEvent: self._external,
            m.HostsPStateChangedEvent: lambda event, at: e.PowerStateChanged(
                at, read_units(event.host_ids, "host_ids"), event.pstate
            ),
            m.HostsTurnedOnOffEvent: lambda event, at: e.UnitsSwitched(
                at, read_units(event.host_ids, "host_ids"), event.state
            ),
            m.ProbeDataEmittedEvent: self._probe_data,
        }

    def read(self, event: m.Event | None, at: float) -> e.Event:
        reader = self._readers.get(type(event))
        if reader is None:
            raise Malformed(f"{type(event).__name__} is not an event that Batsim sends")
        return reader(event, at)

    def note(self, decision: d.Decision) -> None:
        """Remembers what later events do not repeat: where a job runs, and which calls are periodic."""
        if type(decision) is d.StartJob:
            self._units[decision.job_id] = decision.units
        elif type(decision) is d.CallEvery:
            self._periodic.add(decision.call_id)

    def _called(self, event: m.RequestedCallEvent, at: float) -> e.CallArrived:
        call_id = event.call_me_later_id
        return e.CallArrived(at, call_id, event.last_periodic_call or call_id not in self._periodic)

    def _began(self, event: m.SimulationBeginsEvent, at: float) -> e.Began:
        for profile in event.profiles or ():
            self.profiles[profile.id] = read_profile(profile)
        self.begins = e.Begins(
            tuple(_node(host) for host in event.computation_hosts or ()),
            tuple(_node(host) for host in event.storage_hosts or ()),
            started_at=at,
            workloads={item.name: item.filename for item in event.workloads or ()},
            external_event_lists={item.name: item.filename for item in event.external_event_lists or ()},
            profiles=self.profiles,
            config={
                "batsim_execution_context_json": event.batsim_execution_context_json,
                "batsim_arguments": event.batsim_arguments or [],
                "batsim_version": event.batsim_version or "",
            },
        )
        return e.Began(at, self.begins)

    def _submitted(self, event: m.JobSubmittedEvent, at: float) -> e.JobSubmitted:
        if event.profile is not None and event.profile.id not in self.profiles:
            self.profiles[event.profile.id] = read_profile(event.profile)
        return e.JobSubmitted(at, read_job(event.job_id, event.job, self.profiles.get, event.submission_time))

    def _ended(self, event: m.JobCompletedEvent, at: float) -> e.JobEnded:
        state = FROM_BATSIM[event.state.name]
        code = event.return_code - (1 << 32) if event.return_code >> 31 else event.return_code
        return e.JobEnded(at, event.job_id, state, code, self._units.pop(event.job_id, IdSet()))

    def _killed(self, event: m.JobsKilledEvent, at: float) -> e.JobsKilled:
        progress = {item.job_id: _progress_in(item.wrapper) for item in event.progresses}
        return e.JobsKilled(at, tuple(event.job_ids), progress)

    def _external(self, event: m.ExternalEventOccurredEvent, at: float) -> e.ExternalEvent:
        data = event.external_event.data if event.external_event is not None else ""
        return e.ExternalEvent(at, event.id or "", "generic", data or "")

    def _probe_data(self, event: m.ProbeDataEmittedEvent, at: float) -> e.ProbeData:
        aggregated = type(event.data) is m.AggregatedProbeData
        values: tuple[float, ...] = ()
        if type(event.data) is m.AggregatedProbeData:
            values = (event.data.data,)
        elif type(event.data) is m.VectorialProbeData:
            values = tuple(event.data.data or ())
        return e.ProbeData(
            at, event.probe_id or "", values, aggregated, event.manually_triggered, event.nb_emitted, event.nb_triggered
        )


def _node(host: m.Host) -> Node:
    return Node(
        host.name,
        host.id,
        cores=host.core_count,
        properties={item.key: item.value for item in host.properties or ()},
        zone_properties={item.key: item.value for item in host.zone_properties or ()},
        speeds=tuple(host.computation_speed or ()),
        power_state=host.pstate,
    )


def _progress_in(wrapper: m.KillProgressWrapper) -> e.Progress:
    found = wrapper.kill_progress
    if type(found) is m.KillProgressAtomicProfile:
        return e.Progress(found.profile_id, found.progress)
    if type(found) is m.KillProgressSequentialProfile:
        part = _progress_in(found.current_task_progress)
        return e.Progress(found.profile_id, 0.0, found.current_repetition, found.current_task_index, (part,))
    assert type(found) is m.KillProgressForkJoinProfile
    return e.Progress(found.profile_id, parts=tuple(map(_progress_in, found.tasks_progress)))

"""What a simulation is made of: the platform, workloads of any format, external events; read, checked, and joined.

`load(...)` returns a Setup; `Setup.world(record)` makes a fresh world of it, as often as policies are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path

import msgspec

from pilothouse.core.contract import World
from pilothouse.formats import accounting_logs, swf, workload_json
from pilothouse.formats.text_input import read_bytes
from pilothouse.formats.workload import Workload
from pilothouse.model.decisions import AnswerEstimate
from pilothouse.model.errors import InputError
from pilothouse.model.events import Begins, EstimateAsked, Event
from pilothouse.model.job import Job
from pilothouse.model.profile import Profile
from pilothouse.model.record import JobRecord
from pilothouse.worlds.simulated import generators
from pilothouse.worlds.simulated.physics import feasible
from pilothouse.worlds.simulated.physics.machines import Tracer
from pilothouse.worlds.simulated.physics.platform import Platform
from pilothouse.worlds.simulated.world import SimulatedWorld

DIALECT = "?dialect="
"""Between the path of a workload and the dialect that it is written in."""


class Setup(msgspec.Struct):
    platform: Platform
    workloads: list[Workload]
    external_events: list[Event]
    begins: Begins
    solver: str = "fair-bottleneck"
    control_latency: bool = False
    potential: list[Job] = []
    """Jobs that are not submitted: the decider is asked at their dates how long they would wait."""
    answered: Callable[[AnswerEstimate], None] = lambda answer: None
    annotated: Callable[[str, str], None] = lambda job_id, text: None
    """Gets metadata of jobs that have ended."""
    pass_every_s: float = 0.0
    """Jobs start in scheduling passes; 0: at once."""

    @property
    def jobs(self) -> list[Job]:
        if len(self.workloads) == 1:
            return self.workloads[0].jobs
        return [job for workload in self.workloads for job in workload.jobs]

    @property
    def oddities(self) -> list[str]:
        """One line for each kind of oddity of each file."""
        return [line for workload in self.workloads for line in oddities_of(workload)]

    @property
    def _questions(self) -> list[Event]:
        return [EstimateAsked(job.submitted_at, job) for job in sorted(self.potential, key=attrgetter("submitted_at"))]

    def world(self, record: Callable[[JobRecord], None], tracers: Sequence[Tracer] = ()) -> World:
        """A new world at date 0."""
        if self.control_latency:
            return self._behind_message_server(record, tracers)
        make: Callable[..., World] = SimulatedWorld
        if self.pass_every_s:
            from pilothouse.worlds.simulated.scheduling_passes import SimulatedPasses

            make = partial(SimulatedPasses, pass_every_s=self.pass_every_s)
        return make(
            self.begins,
            self.jobs,
            platform=self.platform,
            solver=self.solver,
            external_events=[*self.external_events, *self._questions],
            record=record,
            answered=self.answered,
            annotated=self.annotated,
            tracers=tracers,
        )

    def _behind_message_server(self, record: Callable[[JobRecord], None], tracers: Sequence[Tracer]) -> World:
        """The same behind a message server, where every notification costs simulated time."""
        from pilothouse.worlds.simulated.message_server.generations import OURS
        from pilothouse.worlds.simulated.message_server.server import Server
        from pilothouse.worlds.simulated.message_server.sources import EventSource, JobSource, Source
        from pilothouse.worlds.simulated.message_server.world import MessageServerWorld

        sources: list[Source] = [JobSource(workload.jobs) for workload in self.workloads]
        sources += [EventSource(events) for events in (self.external_events, self._questions) if events]
        server = Server(
            self.begins,
            sources,
            self.platform,
            OURS,
            solver=self.solver,
            record=record,
            answered=self.answered,
            annotated=self.annotated,
            tracers=tracers,
            exact_energy=True,
        )
        return MessageServerWorld(server)


def oddities_of(workload: Workload) -> list[str]:
    """What was changed, left out or guessed: a line for each kind, with how many and how."""
    name = Path(workload.path).name or "workload"
    return [f"{name}: {count:,} job{'s' if count > 1 else ''} {what}" for what, count in workload.oddities.items()]


def load(
    platform: str,
    workloads: Sequence[str],
    *,
    events: Sequence[str] = (),
    energy: bool = False,
    solver: str = "fair-bottleneck",
    control_latency: bool = False,
) -> Setup:
    """Reads everything."""
    machine = Platform.named(platform)
    read = read_workloads(workloads, machine.compute_count)
    return join(machine, read, events=events, energy=energy, solver=solver, control_latency=control_latency)


def read_workloads(
    paths: Sequence[str], units: int, read_other: Callable[[str, str, str], Workload] | None = None, name: str = "w{}"
) -> list[Workload]:
    """The workloads w0, w1, ... (or another `name`) for a machine of so many units. `read_other(path, name, dialect)` is tried on
    JSON that is not a Batsim workload; `path?dialect=...` names the dialect."""
    return [_read_workload(path, name.format(i), units, read_other) for i, path in enumerate(paths)]


def join(
    machine: Platform,
    workloads: list[Workload],
    *,
    events: Sequence[str] = (),
    energy: bool = False,
    solver: str = "fair-bottleneck",
    control_latency: bool = False,
) -> Setup:
    """A setup of a platform and workloads that are there already. InputError if the one cannot hold the other."""
    for workload in workloads:
        _refuse_too_large(workload, machine.compute_count)
    profiles: dict[str, Profile] = {}
    for workload in workloads:
        profiles.update(workload.profiles)
    begins = Begins(
        nodes=machine.nodes(),
        storage=machine.storage_nodes(),
        workloads={workload.name: workload.path for workload in workloads},
        external_event_lists={f"ee{i}": str(Path(path).absolute()) for i, path in enumerate(events)},
        profiles=profiles,
        energy=energy,
    )
    if energy:
        feasible.check_power(machine)
    for workload in workloads:
        feasible.check(machine, workload.jobs, profiles)
    return Setup(machine, workloads, _read_events(events), begins, solver, control_latency)


def _read_workload(
    path: str,
    name: str,
    units: int,
    read_other: Callable[[str, str, str], Workload] | None,
) -> Workload:
    if generators.is_generated(path) and not Path(path).exists():
        return generators.generate(path, units, name)
    path, _, dialect = path.partition(DIALECT)
    data = read_bytes(path)
    head = data.lstrip()[:1]
    if dialect and head != b"[":
        raise InputError(path, "has no dialects: it is no file of QCG requests", found=f"{DIALECT}{dialect}")
    log = accounting_logs.reader(data)
    if log is not None:
        return log(path, name, units=units)
    if head not in (b"{", b"["):
        return swf.read(path, name, units=units)
    if read_other is not None and (head == b"[" or b'"request"' in data):
        return read_other(path, name, dialect)
    return workload_json.parse(data, path, name, all_profiles=True)


def _read_events(paths: Sequence[str]) -> list[Event]:
    if not paths:
        return []
    from pilothouse.formats import external_events

    return [event for i, path in enumerate(paths) for event in external_events.read(path, f"ee{i}")]


def _refuse_too_large(workload: Workload, units: int) -> None:
    for job in workload.jobs:
        if job.units > units and job.shape is None:
            raise InputError(
                workload.path,
                f"job {job.local_id} is larger than the machine",
                expected=f"at most {units} units",
                found=str(job.units),
            )

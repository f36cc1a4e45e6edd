"""One run of the drop-in for Batsim 4: reads the input, joins the simulated world to the scheduler, writes files."""

from __future__ import annotations

import signal
import time
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from pilothouse.core.contract import WORLD_JUDGES
from pilothouse.core.session import Session
from pilothouse.dropins.batsim4.options import Options
from pilothouse.dropins.batsim4.outputs import Batsim4Outputs
from pilothouse.dropins.batsim_decider import MeasuredDecider
from pilothouse.dropins.simgrid_settings import check_log
from pilothouse.dropins.simgrid_settings import settings as simgrid_settings
from pilothouse.formats import profile_json, workload_json
from pilothouse.formats.workload import Workload
from pilothouse.launch.estimate_table import EstimateTable
from pilothouse.launch.running import calm_collector
from pilothouse.launch.signals import leave, on_signals
from pilothouse.model.decisions import Wants
from pilothouse.model.errors import DecisionError, InputError, PilothouseError, quoted
from pilothouse.model.events import Begins, EstimateAsked
from pilothouse.model.profile import Profile, Sequence
from pilothouse.protocols.batsim.decider import BatsimDecider
from pilothouse.protocols.batsim.settings import Settings
from pilothouse.worlds.simulated.message_server.generations import BATSIM4, BATSIM4_ANY
from pilothouse.worlds.simulated.message_server.rules import Rules
from pilothouse.worlds.simulated.message_server.server import Server
from pilothouse.worlds.simulated.message_server.sources import EventSource, JobSource, Source
from pilothouse.worlds.simulated.message_server.world import MessageServerWorld, run_without_decider
from pilothouse.worlds.simulated.physics.platform import Platform

if TYPE_CHECKING:
    from pilothouse.worlds.simulated.message_server.workflow import WorkflowSource


def simulate(
    options: Options, makes_inputs: type[Batsim4Inputs] | None = None, makes_outputs: type[Batsim4Outputs] = Batsim4Outputs
) -> int:
    """The whole run; returns the exit code."""
    calm_collector()
    settings = options.settings()
    inputs = (makes_inputs or Batsim4Inputs)(options, settings)
    if settings.redis.enabled:
        from pilothouse.protocols.batsim.redis_store import RedisStore

        RedisStore(settings.redis)  # a missing package or server is an error before files are written
    outputs = makes_outputs(
        options.export,
        energy=options.energy,
        machine_states=not options.disable_machine_state_tracing,
        schedule_trace=not options.disable_schedule_tracing,
    )
    server = inputs.server(outputs)
    estimates = EstimateTable(f"{options.export}_estimates.csv", inputs.potential) if options.decider_ask_estimates else None
    if estimates is not None:
        server.answered = estimates.answered
    began_at, scheduling_s = time.monotonic(), 0.0
    try:
        if options.no_sched:
            # All jobs at once, each on the first machines; nothing is written of them.
            run_without_decider(server, (job for workload in inputs.workloads for job in workload.jobs))
            return 0
        decider = BatsimDecider(
            options.socket_endpoint,
            dialect=options.dialect.value,
            settings=settings,
            timeout=options.decider_timeout,
            command=options.decider_command,
            keeps_rounding=True,
            as_released=options.stands_for == "batsim2",
            profiles=server.profiles,
            any_dialect="--decider-dialect any",
        )
        measured = MeasuredDecider(decider, Wants())
        with on_signals(leave, signal.SIGTERM, signal.SIGHUP):
            try:
                return _run(server, decider, measured, options)
            finally:
                scheduling_s = measured.spent_s
    finally:
        if estimates is not None:
            estimates.close()
        outputs.finish(server.machines, scheduling_s=scheduling_s, simulation_s=time.monotonic() - began_at)


def _run(server: Server, decider: BatsimDecider, measured: MeasuredDecider, options: Options) -> int:
    """To the end, or to the first mistake."""
    command = f"pilothouse {options.stands_for}"
    server.decider = decider.name
    try:
        outcome = Session(MessageServerWorld(server), measured, judge=WORLD_JUDGES).run()
    except DecisionError as problem:
        event = decider.event_name(problem.index)
        what = f"event {problem.index} ({event}) refused ({problem.rule}): {problem.detail}"
        click.echo(f"{command}: {decider.name}: {what}", err=True)
        return problem.exit_code
    except PilothouseError as problem:
        click.echo(f"{command}: {problem}", err=True)
        return problem.exit_code
    finally:
        if decider.parting:
            click.echo(f"{command}: the scheduler ended badly: {decider.parting}", err=True)
    if not outcome.deadlocked:
        return 0
    # Batsim says nothing and exits with 0; we say it, and exit with 0 unless told otherwise.
    waiting = outcome.waiting
    named = f"; jobs that never ran: {', '.join(waiting[:5])}" if waiting else ""
    more = f" and {len(waiting) - 5} more" if len(waiting) > 5 else ""
    click.echo(f"{command}: deadlock at {outcome.ended_at:f}: {outcome.reason}{named}{more}", err=True)
    return 1 if options.fail_on_deadlock else 0


class Batsim4Inputs:
    """The input: everything is read and checked before the scheduler is spoken to."""

    def __init__(self, options: Options, settings: Settings) -> None:
        self._options = options
        check_log(options.sg_log)
        young = options.dialect.since_three
        names = [self.workload_name(i, path) for i, path in enumerate(options.workload)]
        for i, name in enumerate(names):
            if name in names[:i]:
                raise InputError(options.workload[i], f"a workload of this name is there already: {name}")
        self.workloads = [_workload(path, name, young=young) for path, name in zip(options.workload, names, strict=True)]
        asked = options.decider_ask_estimates
        self.potential = sorted(
            _workload(asked, "potential", young=young).jobs if asked else [], key=attrgetter("submitted_at")
        )
        self.workflows = _workflows(options) if options.workflow or options.workflow_start else []
        self._submission = settings.job_submission
        self.platform = Platform.load(
            options.platform,
            generation=4,
            master_host=options.master_host,
            roles=_roles(options.add_role_to_hosts),
            most_hosts=self._most_hosts(),
            needs_master=True,
            settings=simgrid_settings(options.sg_cfg),
        )
        self.begins = self._begins()

    @property
    def rules(self) -> Rules:
        return BATSIM4 if self._options.dialect.since_three else BATSIM4_ANY

    def workload_name(self, number: int, path: str) -> str:
        return f"w{number}"

    def _most_hosts(self) -> int:
        options = self._options
        if not options.mmax_workload:
            return options.mmax
        widest = max((workload.units for workload in self.workloads), default=0)
        return min(options.mmax, widest) if options.mmax else widest

    def _begins(self) -> Begins:
        options, dynamic = self._options, self._submission.from_scheduler
        profiles: dict[str, Profile] = {}
        for workload in self.workloads:
            profiles.update(_used(workload))
        paths = {workload.name: workload.path for workload in self.workloads}
        paths |= {source.workflow.name: source.workflow.path for source in self.workflows}
        acknowledged = options.acknowledge_dynamic_jobs or (dynamic.enabled and dynamic.acknowledge)
        return Begins(
            nodes=self.platform.nodes(),
            storage=self.platform.storage_nodes(),
            compute_sharing=options.enable_compute_sharing,
            storage_sharing=not options.disable_storage_sharing,
            dynamic_registration=options.enable_dynamic_jobs or dynamic.enabled,
            acknowledge_registration=acknowledged,
            profile_reuse=options.enable_profile_reuse,
            energy=options.energy,
            forward_profiles=options.forward_profiles_on_submission or self._submission.forward_profiles,
            forward_unknown_events=options.forward_unknown_events and bool(options.events),
            workloads=paths,
            profiles=profiles,
        )

    def server(self, outputs: Batsim4Outputs) -> Server:
        options = self._options
        sources: list[Source] = [JobSource(workload.jobs) for workload in self.workloads]
        sources += self.workflows
        sources += _events(options) if options.events else []
        if self.potential:
            sources.append(EventSource(EstimateAsked(job.submitted_at, job) for job in self.potential))
        ends = options.ignore_beyond_last_workflow and bool(self.workflows)
        rules = msgspec.structs.replace(self.rules, ends_with_workflows=ends)
        server = Server(
            self.begins, sources, self.platform, rules, record=outputs.record, annotated=outputs.annotate, tracers=outputs.tracers
        )
        for workload in self.workloads:
            server.profiles.update(workload.profiles)
        return server


def _workflows(options: Options) -> list[WorkflowSource]:
    from pilothouse.formats import dax
    from pilothouse.worlds.simulated.message_server.workflow import WorkflowSource

    limit = options.workflow_jobs_limit
    found = [WorkflowSource(dax.read(path, f"wf{i}"), 0.0, limit) for i, path in enumerate(options.workflow)]
    for i, (path, start) in enumerate(options.workflow_start):
        found.append(WorkflowSource(dax.read(path, f"wfc{i}"), float(start), limit))
    return found


def _events(options: Options) -> list[EventSource]:
    from pilothouse.formats import external_events

    forward = options.forward_unknown_events
    return [
        EventSource(external_events.read(path, f"ee{i}", forward_unknown=forward, knows_generic=False))
        for i, path in enumerate(options.events)
    ]


def _workload(path: str, name: str, *, young: bool) -> Workload:
    """A workload whose ids are fit for this protocol, where `!` ends the workload's name, and whose profiles are.

    `young`: types of profiles that Batsim 4 does not know are refused, as it does, and profiles that no job needs are
    forgotten.
    """
    workload = workload_json.read(path, name, sources=True, all_profiles=not young)
    for job in workload.jobs:
        if job.id.count("!") != 1:
            raise InputError(path, "an id with '!' in it", expected=f"an id, or {name}!id", found=quoted(job.local_id))
    for profile in workload.profiles.values() if young else ():
        if profile.source is not None:
            local = profile.name.partition("!")[2]
            place = profile_json.Place(f"{path}: $.profiles[{local!r}]", name, Path())
            profile_json.refuse_other_generations(profile.source, place)
    return workload


def _used(workload: Workload) -> dict[str, Profile]:
    """The profiles that jobs run, alone or in sequences; Batsim 4 tells of no others (not of those after a `recv`)."""
    used: dict[str, Profile] = {}
    names = [job.profile.name for job in workload.jobs if job.profile is not None]
    while names:
        name = names.pop()
        if name not in used:
            used[name] = profile = workload.profiles[name]
            if isinstance(profile.spec, Sequence):
                names.extend(profile.spec.parts)
    return used


def _roles(texts: tuple[str, ...]) -> dict[str, str]:
    """`host1,host2:role`."""
    roles = {}
    for text in texts:
        hosts, colon, role = text.rpartition(":")
        if not colon or not hosts:
            raise InputError("--add-role-to-hosts", "a role", expected="host1,host2:role", found=repr(text))
        roles.update({host.strip(): role.strip() for host in hosts.split(",")})
    return roles

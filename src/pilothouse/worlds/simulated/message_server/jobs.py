"""The jobs of the server; decisions about them (start, reject, kill, change of state, metadata, messages); and what is refused.

In: the server and a decision, at the date at which the decision takes effect. Out: a changed server and actors to start,
or a DecisionError that names the decision and the rule. What Batsim 5 does not judge is not judged under its rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import DecisionError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import BATSIM, ENDS, FINAL, JobState, Stimulus, launched, step
from pilothouse.model.profile import (
    Delay,
    HomogeneousTask,
    ParallelTask,
    Profile,
    Spread,
    StagingTask,
    StorageTask,
    TraceKind,
    TraceReplay,
    parts_of,
)
from pilothouse.worlds.simulated.message_server.meter_readings import read_meters
from pilothouse.worlds.simulated.message_server.rounds import Actor, Mailbox, spawn, turn
from pilothouse.worlds.simulated.physics.activities import CANCELLED
from pilothouse.worlds.simulated.physics.execution import Run

if TYPE_CHECKING:
    from pilothouse.worlds.simulated.message_server.server import Server

_WAITING = JobState.WAITING
_NEVER_STARTED = (JobState.WAITING, JobState.REFUSED, JobState.OMITTED)


class TrackedJob(msgspec.Struct, eq=False):
    """A job as the server keeps it, from its submission until the decider has heard of its end."""

    job: Job
    state: JobState = _WAITING
    run: Run | None = None
    started_at: float | None = None
    ended_at: float = 0.0
    return_code: int = -1
    kill_asked: bool = False
    metadata: str = ""
    energy_j: float | None = None
    origin: Mailbox | None = None
    """Who is told of its end before the decider is (workflows)."""
    messages: list[str] = []
    """What the decider has sent to the job before it ran."""

    def step(self, stimulus: Stimulus) -> None:
        """The only way to another state."""
        self.state = step(self.state, stimulus)

    def launch(self, run: Run | None, now: float) -> None:
        """The job runs. None: where the server does not see it."""
        self.run = run
        self.started_at = now
        self.state = launched(self.state)


def tracked_job(server: Server, job_id: str, verb: str = "decision") -> TrackedJob:
    tracked = server.jobs.get(job_id)
    if tracked is not None:
        return tracked
    in_5 = f"Invalid {verb}: job '{job_id}' does not exist (or has been deleted)"
    if job_id in server.met:
        late = f"job {job_id} is not submitted yet, or its end has been told"
        raise server.refuse("job in the wrong state", late, in_5)
    raise server.refuse("unknown job", f"job {job_id!r} does not exist", in_5)


# ---- starts


def on_start(server: Server, decision: d.StartJob) -> Sequence[Actor]:
    tracked = server.jobs.get(decision.job_id) or tracked_job(server, decision.job_id, "job execution")
    job, units, rules, machines = tracked.job, decision.units, server.rules, server.machines
    mask = units.mask
    if tracked.state is not _WAITING:
        state = BATSIM[tracked.state]
        raise server.refuse(
            "job in the wrong state",
            f"job {job.id} cannot be executed: it is {state}",
            f"Cannot execute job '{job.id}': its state is {state} instead of SUBMITTED",
        )
    if not mask:
        raise server.refuse(
            "empty allocation",
            f"job {job.id}: at least one resource is needed",
            f"Cannot execute job '{job.id}': its allocation is empty",
        )
    if mask & machines.unable_mask:
        raise _unable(server, job.id, units)
    placement, overrides = decision.placement, decision.overrides
    for part in overrides.values() if overrides else ():
        if part.units.mask & machines.unable_mask:
            raise _unable(server, job.id, part.units)
    if overrides or (placement is not None and placement.mapping is not None):
        _judge_mappings(server, job, job.profile, decision)
    if server.constraints is not None:
        _judge_constraints(server, server.constraints, job, decision)
    if rules.judges_mappings and mask & machines.sleep_mask:
        machine = machines[IdSet(mask & machines.sleep_mask).first()]
        where = f"Job '{job.id}': Invalid job allocation ('{units}'): machine {machine.number} (hostname='{machine.name}')"
        raise server.refuse("power state", f"{where} is not in a computation pstate (ps={machine.power_state})")
    if rules.judges_mappings and (job.profile is None or type(job.profile.spec) is not Delay):
        _refuse_impossible(server, job.profile, decision)
        profile = _as_executed(job.profile)
        if profile is not job.profile:
            job = msgspec.structs.replace(job, profile=profile)
    if decision.io_job is not None:
        server.profiles.setdefault(decision.io_job.name, decision.io_job)
    run = Run(job, units, server.agenda.now, placement, overrides, decision.storage, decision.io_job)
    if tracked.messages:
        run.messages.extend(tracked.messages)
    return server.start(tracked, run)


def _unable(server: Server, job_id: str, units: IdSet) -> DecisionError:
    """Some of the machines do not exist, or cannot compute now."""
    count = len(server.machines)
    unknown = IdSet(units.mask >> count << count)
    if unknown:
        return server.refuse(
            "unknown resource",
            f"job {job_id}: there is no resource {unknown}",
            f"Cannot execute job '{job_id}': machines {unknown} do not exist",
        )
    machine = server.machines[IdSet(units.mask & server.machines.unable_mask).first()]
    number, state = machine.number, machine.state.name.lower()
    return server.refuse(
        "resource not available",
        f"job {job_id}: {machine.name} ({number}) cannot compute jobs now, it is {state}",
        f"Job '{job_id}': machine {number} ('{machine.name}') cannot compute jobs now "
        f"(the machine is not computing nor idle, its state is '{state}')",
    )


def _judge_mappings(server: Server, job: Job, profile: Profile | None, decision: d.StartJob) -> None:
    """Executors must be mapped to units of the allocation; rigid profiles need as many as the job asks for."""
    if profile is None:
        return
    part = decision.overrides.get(profile.name)
    units, placement = (decision.units, decision.placement) if part is None else (part.units, part.placement)
    mapping = None if placement is None else placement.mapping
    parts = parts_of(profile.spec)
    idle = server.rules.judges_mappings and (parts or type(profile.spec) is Delay)  # These have no executors of their own.
    if mapping is not None and not idle:
        count = len(units)
        for place, index in enumerate(mapping):
            if index >= count:
                wrong = f"value={index} is not below allocated_hosts.size()={count}"
                raise server.refuse(
                    "wrong mapping",
                    f"job {job.id}: an executor outside of its {count} resources",
                    f"Cannot execute job '{job.id}': bad custom mapping at index={place}: {wrong}",
                )
        kind = _rigid_kind(profile) if server.rules.judges_mappings else ""
        if kind and len(mapping) != job.units:
            raise server.refuse(
                "wrong mapping",
                f"inconsistent placement for job='{job.id}': profile '{profile.name}' is rigid (profile_type='{kind}') "
                f"but user-given custom mapping has size={len(mapping)}, "
                f"which is not equal to nb_res={job.units} requested by the job",
            )
    for name in parts:
        _judge_mappings(server, job, server.profiles.get(name), decision)


def _rigid_kind(profile: Profile) -> str:
    """Batsim's name for a kind of profile that needs as many executors as its job asks for; "" for the others."""
    spec = profile.spec
    if isinstance(spec, ParallelTask):
        return "PTASK"
    if isinstance(spec, StagingTask):
        return "PTASK_DATA_STAGING_BETWEEN_STORAGES"
    if isinstance(spec, TraceReplay) and spec.kind is TraceKind.SMPI:
        return "REPLAY_SMPI"
    return ""


def _judge_constraints(server: Server, wants: d.Wants, job: Job, decision: d.StartJob) -> None:
    """Sizes of allocations, and who may share a machine."""
    units = decision.units
    mapping = None if decision.placement is None else decision.placement.mapping
    given = len(units) if mapping is None else len(mapping)
    if ((wants.exact_count and given != job.units) or (wants.least_count and given < job.units)) and not job.elastic:
        least = "at least " if wants.least_count else ""
        in_5 = f"it requests {least}{job.units} resources, and {given} were given"
        raise server.refuse(
            "wrong number of resources",
            f"job {job.id} requires {job.units} resources, but {given} were given ({units})",
            f"Cannot execute job '{job.id}': {in_5}",
        )
    machines = server.machines
    if not units.mask & ~machines.idle_mask or (wants.compute_sharing and wants.storage_sharing):
        return
    for unit in units:
        users = machines[unit].users
        if users and not (wants.compute_sharing if unit < machines.compute_count else wants.storage_sharing):
            others = ", ".join(users[:5])
            raise server.refuse(
                "resource in use",
                f"job {job.id}: {unit} computes {others}, and sharing is off",
                f"Cannot execute job '{job.id}': machine {unit} is used by {others}, and sharing is not allowed",
            )


def _refuse_impossible(server: Server, profile: Profile | None, decision: d.StartJob) -> None:
    """Profiles that the real Batsim 5 accepts and cannot run, or not on these machines."""
    if profile is None:
        return
    spec = profile.spec
    if type(spec) is Delay:
        return
    if isinstance(spec, StorageTask):
        _judge_storage(server, profile.name, spec.storage, decision)
    if isinstance(spec, StagingTask):
        # QUIRK: the matrix of a data staging has two entries instead of four.
        detail = "bytes_amounts must be a matrix of size host_count * host_count (2*2), but it's of size 2."
        raise server.refuse("data staging", detail)
    if isinstance(spec, HomogeneousTask) and not spec.flop and not spec.bytes:
        raise server.refuse("empty task", f"Profile '{profile.name}': no flops_amount defined for the parallel task")
    for part in parts_of(spec):
        _refuse_impossible(server, server.profiles.get(part), decision)


def _judge_storage(server: Server, profile: str, label: str, decision: d.StartJob) -> None:
    """A label stands for the host that the decision names, or else for the host of that name; it must be a storage."""
    number = decision.storage.get(label)
    where = f"Job '{decision.job_id}', profile '{profile}'"
    if number is None:
        number = next((node.first for node in server.begins.storage if node.name == label), -1)
        if number < 0:
            detail = f"storage '{label}' has no placement, and no storage host has this name"
            raise server.refuse("storage", f"{where}: {detail}")
    if not server.machines.compute_count <= number < len(server.machines):
        detail = f"host {number}, on which storage '{label}' is placed, does not have the storage role"
        raise server.refuse("storage", f"{where}: {detail}")


def _as_executed(profile: Profile | None) -> Profile | None:
    """QUIRK: with the default strategy, what is written to a storage is the amount that is to be read."""
    if profile is None or not isinstance(profile.spec, StorageTask) or profile.spec.spread is not Spread.EACH:
        return profile
    spec = msgspec.structs.replace(profile.spec, write_bytes=profile.spec.read_bytes)
    return msgspec.structs.replace(profile, spec=spec)


# ---- ends


def on_reject(server: Server, decision: d.RejectJob) -> None:
    tracked = tracked_job(server, decision.job_id, "rejection")
    if tracked.state is not JobState.WAITING:
        detail = f"job {decision.job_id} cannot be rejected: it is {BATSIM[tracked.state]}, not SUBMITTED"
        raise server.refuse("job in the wrong state", detail)
    tracked.step(Stimulus.OMITTED if decision.omitted else Stimulus.REFUSED)
    if not tracked.metadata:
        tracked.metadata = decision.reason
    server.forget(tracked)


def on_kill(server: Server, decision: d.KillJobs) -> Sequence[Actor] | None:
    asked: list[TrackedJob] = []
    rules = server.rules
    for job_id in decision.job_ids:
        if rules.confirms_all_kills and job_id in server.met and job_id not in server.jobs:
            continue  # It has ended: the session refuses kills of jobs that are still to come.
        tracked = tracked_job(server, job_id, "kill")
        if tracked.state in _NEVER_STARTED:
            raise server.refuse(
                "job in the wrong state",
                f"job {job_id} is neither being executed nor completed",
                f"Cannot kill job '{job_id}': its state must be RUNNING or COMPLETED_*, and it is SUBMITTED",
            )
        if not tracked.kill_asked:
            tracked.kill_asked = True
            asked.append(tracked)
    if not asked and not (decision.job_ids and (rules.keeps_jobs or rules.confirms_all_kills)):
        if decision.job_ids and not rules.in_words_of_5:
            return None
        in_5 = "Invalid kill: the list of jobs to kill is empty"
        raise server.refuse("empty list", "no job to kill was named", in_5)
    server.pending += 1
    names = decision.job_ids if rules.confirms_all_kills else tuple(tracked.job.id for tracked in asked)
    return [_killer(server, asked, names)]


def _killer(server: Server, asked: list[TrackedJob], names: tuple[str, ...]) -> Actor:
    progress: dict[str, e.Progress] = {}
    killed: list[TrackedJob] = []
    first_turn = server.rules.kill_takes_turn
    for tracked in asked:
        run = tracked.run
        if tracked.state is not JobState.RUNNING or run is None:
            continue
        if first_turn:
            yield turn()
        if tracked.state is not JobState.RUNNING:
            continue  # It ended in that turn.
        progress[tracked.job.id] = server.physics.kill(run)
        tracked.step(Stimulus.KILLED)
        killed.append(tracked)
        if first_turn:
            server.release(tracked, _kill_code(server, run))
        elif run.kill_code == CANCELLED:
            # A parallel task is only cancelled: the job notices it, and leaves by itself.
            yield spawn(_killed_job(server, tracked, run))
        else:
            yield turn()
            yield from _killed_job(server, tracked, run)

    def done(_: object) -> None:
        server.pending -= 1
        for tracked in killed:
            server.over(tracked)
        server.tell(e.JobsKilled(server.agenda.now, names, progress))

    yield server.send(done)


def _kill_code(server: Server, run: Run) -> int:
    code = server.rules.kill_code
    return run.kill_code if code is None else code


def _killed_job(server: Server, tracked: TrackedJob, run: Run) -> Actor:
    server.release(tracked, _kill_code(server, run))
    yield from read_meters(server, run.units)


# ---- the rest


def on_metadata(server: Server, decision: d.SetMetadata) -> None:
    tracked = tracked_job(server, decision.job_id)
    tracked.metadata = decision.text
    if tracked.state in FINAL:
        server.annotated(decision.job_id, decision.text)


def on_any_metadata(server: Server, decision: d.SetMetadata) -> None:
    """The session has judged that there is such a job: one that is not here has ended."""
    if decision.job_id in server.jobs:
        on_metadata(server, decision)
    else:
        server.annotated(decision.job_id, decision.text)


def on_job_state(server: Server, decision: d.SetJobState) -> None:
    """Batsim 4: a job may run outside of its sight."""
    tracked = tracked_job(server, decision.job_id)
    if tracked.state is not JobState.WAITING or decision.state is not JobState.RUNNING:
        change = f"{BATSIM[tracked.state]} to {BATSIM[decision.state]}"
        detail = f"job {decision.job_id}: {change}; only SUBMITTED to RUNNING is allowed"
        raise server.refuse("change of state", detail)
    tracked.launch(None, server.agenda.now)


_CHANGES = {
    JobState.WAITING: (JobState.RUNNING, JobState.REFUSED),
    JobState.RUNNING: (JobState.SUCCEEDED, JobState.TIMED_OUT, JobState.KILLED),
}
"""The changes of state that Batsim 2 knows."""


def on_job_state_of_2(server: Server, decision: d.SetJobState) -> None:
    """Batsim 2: a job may run, and end, outside of its sight. No event follows."""
    tracked = tracked_job(server, decision.job_id)
    change = f"job {decision.job_id}: {BATSIM[tracked.state]} to {BATSIM[decision.state]}"
    if tracked.run is not None:
        raise server.refuse("change of state", f"{change}; the job was executed, and ends when its profile does")
    if decision.state not in _CHANGES.get(tracked.state, ()):
        raise server.refuse("change of state", f"{change} is not allowed")
    if decision.reason and decision.state is not JobState.KILLED:
        raise server.refuse("change of state", f"{change}: only COMPLETED_KILLED has a kill_reason")
    if decision.state is JobState.RUNNING:
        tracked.launch(None, server.agenda.now)
    else:
        tracked.step(ENDS[decision.state])
        server.forget(tracked)


def on_any_job_state(server: Server, decision: d.SetJobState) -> None:
    """As in the simulated world without messages: a job may also be ended."""
    tracked = tracked_job(server, decision.job_id)
    if decision.state is JobState.RUNNING:
        on_job_state(server, decision)
        return
    stimulus = ENDS.get(decision.state)
    refused = stimulus in (Stimulus.REFUSED, Stimulus.OMITTED)
    if stimulus is None or tracked.state in FINAL or (refused and tracked.state is JobState.RUNNING):
        change = f"{BATSIM[tracked.state]} to {BATSIM[decision.state]}"
        detail = f"job {decision.job_id}: {change}; a running job may only be completed, an ended job not be changed"
        raise server.refuse("change of state", detail)
    ran = tracked.state is JobState.RUNNING
    if not ran and not refused:
        tracked.launch(None, server.agenda.now)  # Only a job that runs can end.
    if tracked.run is not None:
        server.physics.kill(tracked.run)
    tracked.step(stimulus)
    if tracked.run is not None:
        server.release(tracked, 0)
    if ran:
        server.over(tracked, decision.reason)
    else:
        tracked.metadata = tracked.metadata or decision.reason
        server.forget(tracked)


def on_send_to_job(server: Server, decision: d.SendToJob) -> None:
    tracked = tracked_job(server, decision.job_id)
    (tracked.messages if tracked.run is None else tracked.run.messages).append(decision.message)


def on_note(server: Server, decision: d.Decision) -> None:
    """A note for people or for other protocols; nothing in a simulation depends on it."""

"""What a message server does with each order of the decider, and the rules by which it refuses one.

In: the server and an order, at the date at which the order takes effect. Out: a changed server and actors to start, or
a DecisionError that names the order and the rule. The rules are Batsim's, which differ from those of core/check.py in
when they are applied, not in what they are for.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Several
from typing import TYPE_CHECKING, Any

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import BATSIM, JobState
from pilothouse.model.profile import ParallelTask, Profile, Sequence, parts_of
from pilothouse.worlds.simulated.message_server.power import on_measure_energy, on_power_state
from pilothouse.worlds.simulated.message_server.rounds import Actor, sleep, spawn, turn
from pilothouse.worlds.simulated.physics.activities import CANCELLED
from pilothouse.worlds.simulated.physics.execution import Run
from pilothouse.worlds.simulated.physics.machines import MachineState

if TYPE_CHECKING:
    from pilothouse.worlds.simulated.message_server.server import Known, Server


NOTED = frozenset((d.RegisterProfile, d.RegisterJob))
"""Orders that are noted before they are handled."""


def note(server: Server, order: d.Decision) -> None:
    """What takes effect as soon as the order is read, before its message is sent: registrations."""
    if type(order) is d.RegisterProfile:
        _note_profile(server, order)
    elif type(order) is d.RegisterJob:
        _note_job(server, order.job)


def _judge_registration(server: Server, what: str) -> None:
    if not server.begins.dynamic_registration:
        raise server.refuse("dynamic registration", f"{what}: registration of jobs is not enabled")
    if not server.registering:
        raise server.refuse("dynamic registration", f"{what}: the scheduler has said that registration is finished")


def _note_profile(server: Server, order: d.RegisterProfile) -> None:
    profile = order.profile
    _judge_registration(server, f"profile {profile.name}")
    if profile.name in server.profiles:
        raise server.refuse("duplicate profile", f"there already is a profile {profile.name}")
    for part in parts_of(profile.spec):
        if part not in server.profiles:
            raise server.refuse("unknown profile", f"profile {profile.name} is made of {part}, which does not exist")
    server.profiles[profile.name] = profile
    server.profile_users[profile.name] = 0
    for part in parts_of(profile.spec):
        _need(server, part)
    server.workloads.add(profile.name.partition("!")[0])


def _note_job(server: Server, job: Job) -> None:
    _judge_registration(server, f"job {job.id}")
    if job.workload not in server.workloads:
        raise server.refuse("unknown workload", f"job {job.id}: there is no workload {job.workload!r}")
    if job.id in server.met:
        raise server.refuse("duplicate job", f"there already was a job {job.id}")
    if job.profile is None or job.profile.name not in server.profiles:
        raise server.refuse("unknown profile", f"job {job.id} names a profile that does not exist")
    if job.profile.name in server.hidden_profiles:
        detail = f"job {job.id}: a job with profile {job.profile.name} is over, and --enable-profile-reuse was not given"
        raise server.refuse("profile that is gone", detail)
    if isinstance(job.profile.spec, ParallelTask) and len(job.profile.spec.flop) != job.units:
        detail = f"job {job.id} asks for {job.units} resources, its profile for {len(job.profile.spec.flop)}"
        raise server.refuse("wrong number of resources", detail)
    server.met.add(job.id)
    _need(server, job.profile.name)


def _need(server: Server, name: str) -> None:
    if name in server.profile_users:
        server.profile_users[name] += 1


def collect(server: Server, profile: Profile) -> None:
    """The decider has heard of the end of a job with this profile.

    QUIRK: then no new job may have it, nor a part of it, even if others that have it still wait or run.
    """
    hidden = [profile.name]
    while hidden:
        name = hidden.pop()
        if name not in server.hidden_profiles and name in server.profiles:
            server.hidden_profiles.add(name)
            spec = server.profiles[name].spec
            hidden += spec.parts if isinstance(spec, Sequence) else ()
    unneeded = [profile.name]
    while unneeded:
        name = unneeded.pop()
        users = server.profile_users.get(name)
        if users is not None and users > 1:
            server.profile_users[name] = users - 1
        elif users is not None:
            del server.profile_users[name]
            server.hidden_profiles.discard(name)
            unneeded += parts_of(server.profiles.pop(name).spec)


def _known(server: Server, job_id: str) -> Known:
    known = server.jobs.get(job_id)
    if known is not None:
        return known
    if job_id in server.met:
        raise server.refuse("job in the wrong state", f"job {job_id} is not submitted yet, or its end has been told")
    raise server.refuse("unknown job", f"job {job_id!r} does not exist")


def on_start(server: Server, order: d.StartJob) -> Several[Actor]:
    known = _known(server, order.job_id)
    job, units = known.job, order.units
    if known.state is not JobState.WAITING:
        raise server.refuse("job in the wrong state", f"job {job.id} cannot be executed: it is {BATSIM[known.state]}")
    if not units:
        raise server.refuse("empty allocation", f"job {job.id}: at least one resource is needed")
    last = len(server.machines)
    if units.mask >> last:
        unknown = IdSet(units.mask >> last << last)
        raise server.refuse("unknown resource", f"job {job.id}: there is no resource {unknown}")
    if server.rules.checks_allocations:
        _judge_count(server, job, units, order.placement)
    if units.mask & ~server.machines.idle_mask:
        _judge_machines(server, job, units)
    if order.io_job is not None:
        server.profiles.setdefault(order.io_job.name, order.io_job)
    run = Run(job, units, server.agenda.now, order.placement, order.overrides, order.storage, order.io_job)
    if known.letters:
        run.messages.extend(known.letters)
    return server.start(known, run)


def _judge_machines(server: Server, job: Job, units: IdSet) -> None:
    """Some machine is not idle: may the job share it?"""
    if server.rules.checks_allocations:
        _judge_sharing(server, job, units)
    for unit in units:
        machine = server.machines[unit]
        if machine.state not in (MachineState.IDLE, MachineState.COMPUTING):
            state = machine.state.name.lower()
            detail = f"job {job.id}: {machine.name} ({unit}) cannot compute jobs now, it is {state}"
            raise server.refuse("resource not available", detail)


def _judge_count(server: Server, job: Job, units: IdSet, placement: d.Placement | None) -> None:
    mapping = None if placement is None else placement.mapping
    if mapping is not None and any(index >= len(units) for index in mapping):
        raise server.refuse("wrong mapping", f"job {job.id}: an executor outside of its {len(units)} resources")
    given = len(units) if mapping is None else len(mapping)
    if given != job.units and not job.elastic:
        detail = f"job {job.id} requires {job.units} resources, but {given} were given ({units})"
        raise server.refuse("wrong number of resources", detail)


def _judge_sharing(server: Server, job: Job, units: IdSet) -> None:
    compute = server.machines.compute_count
    for unit in units:
        users = server.machines[unit].users
        if not users:
            continue
        shared = server.begins.compute_sharing if unit < compute else server.begins.storage_sharing
        if not shared:
            others = ", ".join(users[:5])
            raise server.refuse("resource in use", f"job {job.id}: {unit} computes {others}, and sharing is off")


def on_reject(server: Server, order: d.RejectJob) -> None:
    known = _known(server, order.job_id)
    if known.state is not JobState.WAITING:
        detail = f"job {order.job_id} cannot be rejected: it is {BATSIM[known.state]}, not SUBMITTED"
        raise server.refuse("job in the wrong state", detail)
    known.state = JobState.REFUSED
    server.forget(known)


def on_kill(server: Server, order: d.KillJobs) -> Several[Actor] | None:
    if not order.job_ids:
        raise server.refuse("empty list", "no job to kill was named")
    asked: list[Known] = []
    for job_id in order.job_ids:
        known = _known(server, job_id)
        if known.state is JobState.WAITING:
            raise server.refuse("job in the wrong state", f"job {job_id} is neither being executed nor completed")
        if not known.kill_asked:
            known.kill_asked = True
            asked.append(known)
    if not asked:
        return None
    server.pending += 1
    return [_killer(server, asked)]


def _killer(server: Server, asked: list[Known]) -> Actor:
    progress: dict[str, e.Progress] = {}
    killed: list[Known] = []
    for known in asked:
        run = known.run
        if known.state is not JobState.RUNNING or run is None:
            continue
        progress[known.job.id] = server.physics.kill(run)
        killed.append(known)
        known.state = JobState.KILLED
        if run.kill_code == CANCELLED:
            # A parallel task is only cancelled: the job notices it, and leaves by itself.
            yield spawn(_killed_job(server, known))
        else:
            yield turn()
            yield from _killed_job(server, known)
    yield server.send(lambda _: _on_killed(server, asked, killed, progress))


def _killed_job(server: Server, known: Known) -> Actor:
    assert known.run is not None
    server.release(known, JobState.KILLED, known.run.kill_code)
    yield from server.read_meters(known.run.units)


def _on_killed(
    server: Server, asked: list[Known], killed: list[Known], progress: dict[str, e.Progress]
) -> None:
    server.pending -= 1
    for known in killed:
        server.over(known)
    server.tell(e.JobsKilled(server.agenda.now, tuple(known.job.id for known in asked), progress))


def on_call(server: Server, order: d.CallAt) -> Several[Actor]:
    now = server.agenda.now
    if server.rules.late_call_is_wrong and not order.when > now:
        raise server.refuse("call in the past", f"a call was asked for at {order.when:f}, and it is {now:f}")
    server.pending += 1
    return [_caller(server, order)]


def _caller(server: Server, order: d.CallAt) -> Actor:
    wait = order.when - server.agenda.now
    if wait > 0:
        yield sleep(max(wait, server.rules.shortest_wait_s))
    if not server.ended:
        yield server.send(lambda _: _on_call_due(server, order.call_id))


def _on_call_due(server: Server, call_id: str) -> None:
    server.pending -= 1
    server.tell(e.CallArrived(server.agenda.now, call_id))


def on_register_job(server: Server, order: d.RegisterJob) -> None:
    server.jobs[order.job.id] = server.new_known(order.job)
    server.unfinished += 1
    if server.begins.acknowledge_registration:
        server.tell(e.JobSubmitted(server.agenda.now, order.job))


def on_register_profile(server: Server, order: d.RegisterProfile) -> None:
    """It exists since the order was read."""


def on_registration_finished(server: Server, order: d.FinishRegistration) -> None:
    server.registering = False


def on_registration_resumed(server: Server, order: d.ResumeRegistration) -> None:
    server.registering = server.begins.dynamic_registration


def on_metadata(server: Server, order: d.SetMetadata) -> None:
    _known(server, order.job_id).metadata = order.text


def on_job_state(server: Server, order: d.SetJobState) -> None:
    known = _known(server, order.job_id)
    if known.state is not JobState.WAITING or order.state is not JobState.RUNNING:
        change = f"{BATSIM[known.state]} to {BATSIM[order.state]}"
        detail = f"job {order.job_id}: {change}; only SUBMITTED to RUNNING is allowed"
        raise server.refuse("change of state", detail)
    known.state = JobState.RUNNING


def on_send_to_job(server: Server, order: d.SendToJob) -> None:
    known = _known(server, order.job_id)
    letters = known.letters if known.run is None else known.run.messages
    letters.append(order.message)


def on_estimate(server: Server, order: d.AnswerEstimate) -> None:
    """Nobody asked."""


HANDLERS: dict[type, Callable[[Server, Any], Several[Actor] | None]] = {
    d.StartJob: on_start,
    d.RejectJob: on_reject,
    d.KillJobs: on_kill,
    d.CallAt: on_call,
    d.RegisterJob: on_register_job,
    d.RegisterProfile: on_register_profile,
    d.FinishRegistration: on_registration_finished,
    d.ResumeRegistration: on_registration_resumed,
    d.SetMetadata: on_metadata,
    d.SetJobState: on_job_state,
    d.AnswerEstimate: on_estimate,
    d.SendToJob: on_send_to_job,
    d.SetPowerState: on_power_state,
    d.SwitchUnits: on_power_state,
    d.MeasureEnergy: on_measure_energy,
}

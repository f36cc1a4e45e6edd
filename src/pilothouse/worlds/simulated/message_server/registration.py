"""Registration of jobs and profiles by the decider, and how long profiles live.

In: RegisterJob, RegisterProfile, FinishRegistration, ResumeRegistration, and the ends of jobs. Out: a changed server, or a
DecisionError. Batsim 4 registers when it reads the reply, Batsim 5 when it handles the decision's message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.job import Job
from pilothouse.model.profile import ForkJoin, Merge, ParallelTask, Profile, Sequence, is_same, parts_of
from pilothouse.worlds.simulated.message_server.jobs import TrackedJob

if TYPE_CHECKING:
    from pilothouse.worlds.simulated.message_server.server import Server


NOTED = frozenset((d.RegisterProfile, d.RegisterJob))
"""Decisions for `note`."""


def on_register_profile(server: Server, decision: d.RegisterProfile) -> None:
    if not server.rules.registered_when_read:
        _register_profile(server, decision.profile)


def on_register_job(server: Server, decision: d.RegisterJob) -> None:
    job, now = decision.job, server.agenda.now
    tracked = TrackedJob(job)
    if not server.rules.registered_when_read:
        _admit_job(server, job)
        job.submitted_at = now
        tracked.energy_j = 0.0  # QUIRK: without energy, static jobs have -1 and registered ones 0 (golden: p_dynreg)
    server.jobs[job.id] = tracked
    server.unfinished += 1
    if server.begins.acknowledge_registration:
        server.tell(e.JobSubmitted(now, job))


def on_registration_finished(server: Server, decision: d.FinishRegistration) -> None:
    server.registering = False


def on_registration_resumed(server: Server, decision: d.ResumeRegistration) -> None:
    server.registering = server.begins.dynamic_registration


def note(server: Server, decision: d.Decision) -> None:
    """What takes effect as soon as the reply is read, before its messages are sent."""
    if type(decision) is d.RegisterProfile:
        _register_profile(server, decision.profile)
    elif type(decision) is d.RegisterJob:
        _admit_job(server, decision.job)


def _judge_permission(server: Server, what: str) -> None:
    """Batsim 5 asks for no permission: without it the run does not wait for registrations, that is all."""
    if server.rules.in_words_of_5:
        return
    if not server.begins.dynamic_registration:
        raise server.refuse("dynamic registration", f"{what}: registration of jobs is not enabled")
    if not server.registering:
        raise server.refuse("dynamic registration", f"{what}: the scheduler has said that registration is finished")


def _register_profile(server: Server, profile: Profile) -> None:
    name, in_words_of_5 = profile.name, server.rules.in_words_of_5
    workload = name.partition("!")[0]  # QUIRK: in Batsim 5, a name without a workload is a workload too.
    invalid = "Invalid new profile registration"
    _judge_permission(server, f"profile {name}")
    # Batsim 5 lets a profile that is gone be registered again.
    known = server.profiles.get(name)
    if known is not None and not (in_words_of_5 and name in server.hidden_profiles):
        if not in_words_of_5 and is_same(known, profile):
            server.hidden_profiles.discard(name)
            return
        in_5 = f"{invalid}: '{name}' already exists in the workload."
        raise server.refuse("duplicate profile", f"there already is a profile {name}", in_5)
    if in_words_of_5 and isinstance(profile.spec, ForkJoin | Merge):
        raise server.refuse("profile", f"{invalid}: '{name}': {type(profile.spec).__name__} is not implemented")
    parts = parts_of(profile.spec)
    for part in parts:
        if part not in server.profiles or (in_words_of_5 and part in server.hidden_profiles):
            raise server.refuse(
                "unknown profile",
                f"profile {name} is made of {part}, which does not exist",
                f"{invalid}: '{name}' is made of '{part}', which does not exist",
            )
    server.profiles[name] = profile
    server.hidden_profiles.discard(name)
    server.workloads.add(workload)
    server.profile_users[name] = 0
    for part in parts:
        _need(server, part)


def _admit_job(server: Server, job: Job) -> None:
    profile, invalid = job.profile, "Invalid new job registration"
    _judge_permission(server, f"job {job.id}")
    if server.rules.in_words_of_5 and job.id.count("!") != 1:
        what = "has more than one '!'" if "!" in job.id else "has no workload name"
        raise server.refuse("job id", f"{invalid}: '{job.id}' {what}")
    if not server.rules.any_workload and job.workload not in server.workloads:
        raise server.refuse("unknown workload", f"job {job.id}: there is no workload {job.workload!r}")
    if job.id in server.met or job.id in server.jobs:
        in_5 = f"{invalid}: Job '{job.id}' already exists in the workload."
        raise server.refuse("duplicate job", f"there already was a job {job.id}", in_5)
    in_5 = f"{invalid}: '{job.id}': its profile does not exist (or has been garbage collected)"
    if profile is None or profile.name not in server.profiles:
        raise server.refuse("unknown profile", f"job {job.id} names a profile that does not exist", in_5)
    if profile.name in server.hidden_profiles:
        detail = f"job {job.id}: a job with profile {profile.name} is over, and --enable-profile-reuse was not given"
        raise server.refuse("profile that is gone", detail, in_5)
    if isinstance(profile.spec, ParallelTask):
        size = len(profile.spec.flop) or round(len(profile.spec.bytes) ** 0.5)
        if size != job.units:
            raise server.refuse(
                "wrong number of resources",
                f"job {job.id} asks for {job.units} resources, its profile for {size}",
                f"{invalid}: '{job.id}': it requests {job.units} resources, and its profile describes {size}",
            )
    server.workloads.add(job.workload)
    server.met.add(job.id)
    _need(server, profile.name)


def _need(server: Server, name: str) -> None:
    if name in server.profile_users:
        server.profile_users[name] += 1


def collect(server: Server, profile: Profile) -> None:
    """Batsim 4: the decider has heard of the end of a job with this profile.

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

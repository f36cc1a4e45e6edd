"""Is this decision legal? Every rule that a decision must keep, checked before anything is applied.

A rule returns None, or a Refusal (its name, and what was wrong). The cluster turns a Refusal into a DecisionError that
names the decider and the decision. Cost of the rules of a StartJob at 512 units: 0.6 µs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from pilothouse.core import place
from pilothouse.model import decisions as d
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import FINAL, JobState
from pilothouse.model.masks import bit_count
from pilothouse.model.profile import problem_of

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster


class Refusal(NamedTuple):
    rule: str
    detail: str


def refuse_start(cluster: Cluster, decision: d.StartJob, *, memory: bool = True) -> Refusal | None:
    """`memory`: whether the memory that is left counts."""
    job = cluster.waiting.get(decision.job_id)
    if job is None:
        return _not_waiting(cluster, decision.job_id, "started")
    mask = decision.units.mask
    if not mask:
        return Refusal("empty allocation", f"job {job.id} was given no unit")
    if mask & cluster.all_mask != mask:
        unknown = IdSet(mask & ~cluster.all_mask)
        return Refusal("unknown unit", f"job {job.id} on {unknown}: there are only units {IdSet(cluster.all_mask)}")
    if mask & cluster.off_mask:
        return Refusal(
            "unit not available", f"job {job.id} on {IdSet(mask & cluster.off_mask)}, which cannot run jobs now"
        )
    if not cluster.sharing and mask & cluster.free_mask != mask:
        return Refusal("unit already in use", _who_uses(cluster, job, mask & ~cluster.free_mask))
    if job.shape is not None:
        misfit = place.misfit(cluster, job, mask, memory=memory) if cluster.count_rule is not None else None
        return None if misfit is None else Refusal("wrong shape", f"job {job.id} on {decision.units}: {misfit}")
    return _wrong_count(cluster, job, bit_count(mask), decision.placement)


def _wrong_count(cluster: Cluster, job: Job, given: int, placement: d.Placement | None) -> Refusal | None:
    if cluster.count_rule is None or job.elastic:
        return None
    most = job.most_units or job.units
    if placement is not None and placement.mapping is not None:
        # Several executors may share a unit: then it is the executors that are counted.
        if any(index >= given for index in placement.mapping):
            return Refusal("wrong mapping", f"job {job.id}: an executor is mapped outside its {given} units")
        given = len(placement.mapping)
    if given < job.units or (given > most and cluster.count_rule == "exact"):
        wanted = str(job.units) if most == job.units else f"{job.units} to {most}"
        return Refusal("wrong count", f"job {job.id} asks for {wanted} units and was given {given}")
    return None


def _who_uses(cluster: Cluster, job: Job, busy: int) -> str:
    users = [run.job.id for run in cluster.running.values() if run.units.mask & busy][:5]
    return f"job {job.id} on {IdSet(busy)}, in use by {', '.join(users) or 'an unknown job'}"


def _not_waiting(cluster: Cluster, job_id: str, verb: str) -> Refusal:
    state = cluster.state_of(job_id)
    if state is None:
        return Refusal("unknown job", f"there is no job {job_id!r}")
    return Refusal("job in the wrong state", f"job {job_id} is {state.value} and cannot be {verb}")


def refuse_reject(cluster: Cluster, decision: d.RejectJob) -> Refusal | None:
    return None if decision.job_id in cluster.waiting else _not_waiting(cluster, decision.job_id, "rejected")


def refuse_withdrawal(cluster: Cluster, decision: d.ConfirmWithdrawal) -> Refusal | None:
    if decision.job_id in cluster.withdrawn:
        return None
    return Refusal("nothing to confirm", f"job {decision.job_id!r} was not withdrawn")


_COMPLETED = FINAL - {JobState.REFUSED, JobState.OMITTED}


def refuse_kill(cluster: Cluster, decision: d.KillJobs) -> Refusal | None:
    if not decision.job_ids:
        return Refusal("empty list", "no job to kill was named")
    for job_id in decision.job_ids:
        # Batsim and batprotocol: a job may have completed before its kill.
        if job_id not in cluster.running and cluster.state_of(job_id) not in _COMPLETED:
            return _not_waiting(cluster, job_id, "killed")
    return None


def refuse_call(cluster: Cluster, decision: d.CallAt) -> Refusal | None:
    if not decision.when >= cluster.now:  # also refuses NaN
        return Refusal("call in the past", f"a call at {decision.when:g} was asked for at {cluster.now:g}")
    return None


def refuse_calls(cluster: Cluster, decision: d.CallEvery) -> Refusal | None:
    if not decision.period > 0:
        return Refusal("period", f"calls every {decision.period:g} s")
    if decision.call_id in cluster.calls:
        return Refusal("call id in use", f"call {decision.call_id!r} is still alive")
    return None


def refuse_register_job(cluster: Cluster, decision: d.RegisterJob) -> Refusal | None:
    if not cluster.registering:
        return Refusal("registration", f"job {decision.job.id} was registered, but dynamic registration is not enabled")
    if decision.job.id in cluster.registered or cluster.state_of(decision.job.id) is not None:
        return Refusal("duplicate job", f"there already was a job {decision.job.id!r}")
    if decision.job.units < 0:
        return Refusal("wrong count", f"job {decision.job.id} asks for {decision.job.units} units")
    return None


def refuse_register_profile(cluster: Cluster, decision: d.RegisterProfile) -> Refusal | None:
    if not cluster.registering:
        return Refusal(
            "registration", f"profile {decision.profile.name} was registered, but dynamic registration is not enabled"
        )
    problem = problem_of(decision.profile.spec)
    return Refusal("profile", f"profile {decision.profile.name}: {problem}") if problem else None


def refuse_units(cluster: Cluster, decision: d.SetPowerState | d.SwitchUnits) -> Refusal | None:
    known = cluster.all_mask | cluster.storage_mask
    if not decision.units:
        return Refusal("empty set", "no unit was named")
    if decision.units.mask & ~known:
        return Refusal("unknown unit", f"there is no unit {IdSet(decision.units.mask & ~known)}")
    if type(decision) is d.SwitchUnits and decision.units.mask & cluster.busy_mask:
        return Refusal("unit already in use", f"jobs run on {IdSet(decision.units.mask & cluster.busy_mask)}")
    return None


def refuse_about_job(cluster: Cluster, decision: d.Annotate | d.SetMetadata | d.SendToJob) -> Refusal | None:
    return None if cluster.state_of(decision.job_id) is not None else _not_waiting(cluster, decision.job_id, "")


def refuse_set_state(cluster: Cluster, decision: d.SetJobState) -> Refusal | None:
    state = cluster.state_of(decision.job_id)
    if state is None:
        return _not_waiting(cluster, decision.job_id, "")
    if state in FINAL:
        return Refusal("job in the wrong state", f"job {decision.job_id} is {state.value} already")
    if decision.state not in FINAL and decision.state is not JobState.RUNNING:
        return Refusal("state", f"job {decision.job_id} cannot be made {decision.state.value}")
    if decision.state in (JobState.REFUSED, JobState.OMITTED) and decision.job_id in cluster.running:
        return Refusal("job in the wrong state", f"job {decision.job_id} runs: it cannot be made {decision.state.value}")
    return None


def nothing_to_refuse(cluster: Cluster, decision: object) -> Refusal | None:
    return None


RULES: dict[type, Callable[[Cluster, Any], Refusal | None]] = {
    d.StartJob: refuse_start,
    d.RejectJob: refuse_reject,
    d.ConfirmWithdrawal: refuse_withdrawal,
    d.KillJobs: refuse_kill,
    d.CallAt: refuse_call,
    d.CallEvery: refuse_calls,
    d.StopCalls: nothing_to_refuse,
    d.RegisterJob: refuse_register_job,
    d.RegisterProfile: refuse_register_profile,
    d.FinishRegistration: nothing_to_refuse,
    d.ResumeRegistration: nothing_to_refuse,
    d.SetPowerState: refuse_units,
    d.SwitchUnits: refuse_units,
    d.Annotate: refuse_about_job,
    d.SetMetadata: refuse_about_job,
    d.SetJobState: refuse_set_state,
    d.CreateProbe: nothing_to_refuse,
    d.TriggerProbe: nothing_to_refuse,
    d.ResetProbe: nothing_to_refuse,
    d.StopProbe: nothing_to_refuse,
    d.MeasureEnergy: nothing_to_refuse,
    d.AnswerEstimate: nothing_to_refuse,
    d.AnswerFeasibility: nothing_to_refuse,
    d.SendToJob: refuse_about_job,
    d.StopWorld: nothing_to_refuse,
}
"""One rule for each decision; a test keeps the table total."""

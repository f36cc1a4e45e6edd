"""Jobs and profiles, translated between our model and batprotocol.

`write_*` takes model.Job and model.Profile, and returns messages.Job and messages.ProfileAndId; `read_*` does the reverse.
Amounts, names and strategies are the same on both sides; an absent vector is an empty tuple in the model.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import msgspec

from pilothouse.model import profile as p
from pilothouse.model.job import Job
from pilothouse.protocols.batprotocol import messages as m
from pilothouse.protocols.batprotocol.wire import Malformed

_STRATEGY = {
    p.Spread.EACH: m.HomogeneousParallelTaskGenerationStrategy.DefinedAmountsUsedForEachValue,
    p.Spread.UNIFORM: m.HomogeneousParallelTaskGenerationStrategy.DefinedAmountsSpreadUniformly,
}
_SPREAD = {strategy: spread for spread, strategy in _STRATEGY.items()}
_TRACE_TYPE = {p.TraceKind.SMPI: m.TraceType.SMPI, p.TraceKind.USAGE: m.TraceType.FractionalComputation}
_TRACE_KIND = {theirs: ours for ours, theirs in _TRACE_TYPE.items()}


def write_job(job: Job) -> m.Job:
    return m.Job(
        job.least_units,
        None if job.walltime == inf else job.walltime,
        job.extra_data or "",
        not job.most_units or job.most_units == job.units,
        job.profile.name if job.profile is not None else "",
    )


def read_job(job_id: str, job: m.Job, find: Callable[[str], p.Profile | None], submitted_at: float) -> Job:
    """`find` looks a profile up by its full name; a profile without a workload belongs to the job's."""
    name = job.profile_id or ""
    if "!" not in name:
        name = f"{job_id.partition('!')[0]}!{name}"
    walltime = inf if job.walltime is None or job.walltime < 0 else job.walltime
    return Job(job_id, job.resource_request, walltime, submitted_at, find(name), extra_data=job.extra_data or None)


def write_profile(profile: p.Profile) -> m.ProfileAndId:
    write = _WRITERS.get(type(profile.spec))
    if write is None:
        raise Malformed(f"profile {profile.name}: batprotocol has no word for {type(profile.spec).__name__}")
    return m.ProfileAndId(profile.name, write(profile.spec), profile.extra_data)


def read_profile(profile: m.ProfileAndId) -> p.Profile:
    """A part without a workload belongs to the workload of the whole profile."""
    spec = _READERS[type(profile.profile)](profile.profile)
    problem = p.problem_of(spec)
    if problem:
        raise Malformed(f"Invalid registration of profile '{profile.id}': {problem}")
    workload, bang, _ = profile.id.partition("!")
    if bang and isinstance(spec, p.Sequence | p.ForkJoin | p.Merge):
        parts = tuple(part if "!" in part else f"{workload}!{part}" for part in spec.parts)
        spec = msgspec.structs.replace(spec, parts=parts)
    return p.Profile(profile.id, spec, extra_data=profile.extra_data)


_WRITERS: dict[type, Callable[[Any], m.Profile]] = {
    p.Delay: lambda spec: m.DelayProfile(spec.seconds),
    p.ParallelTask: lambda spec: m.ParallelTaskProfile(list(spec.flop) or None, list(spec.bytes) or None),
    p.HomogeneousTask: lambda spec: m.ParallelTaskHomogeneousProfile(spec.flop, spec.bytes, _STRATEGY[spec.spread]),
    p.StorageTask: lambda spec: m.ParallelTaskOnStorageHomogeneousProfile(
        spec.storage, spec.read_bytes, spec.write_bytes, _STRATEGY[spec.spread]
    ),
    p.StagingTask: lambda spec: m.ParallelTaskDataStagingBetweenStoragesProfile(spec.source, spec.target, spec.bytes),
    p.Sequence: lambda spec: m.SequentialCompositionProfile(list(spec.parts), spec.repeat),
    p.ForkJoin: lambda spec: m.ForkJoinCompositionProfile(list(spec.parts)),
    p.Merge: lambda spec: m.ParallelTaskMergeCompositionProfile(list(spec.parts)),
    p.TraceReplay: lambda spec: m.TraceReplayProfile(spec.file, _TRACE_TYPE[spec.kind]),
}
_READERS: dict[type, Callable[[Any], p.Spec]] = {
    m.DelayProfile: lambda profile: p.Delay(profile.delay),
    m.ParallelTaskProfile: lambda profile: p.ParallelTask(
        tuple(profile.computation_vector or ()), tuple(profile.communication_matrix or ())
    ),
    m.ParallelTaskHomogeneousProfile: lambda profile: p.HomogeneousTask(
        profile.computation_amount, profile.communication_amount, _SPREAD[profile.generation_strategy]
    ),
    m.ParallelTaskOnStorageHomogeneousProfile: lambda profile: p.StorageTask(
        profile.bytes_to_read, profile.bytes_to_write, profile.storage_name, _SPREAD[profile.generation_strategy]
    ),
    m.ParallelTaskDataStagingBetweenStoragesProfile: lambda profile: p.StagingTask(
        profile.bytes_to_transfer, profile.emitter_storage_name, profile.receiver_storage_name
    ),
    m.SequentialCompositionProfile: lambda profile: p.Sequence(tuple(profile.profile_ids), profile.repetition_count),
    m.ForkJoinCompositionProfile: lambda profile: p.ForkJoin(tuple(profile.profile_ids)),
    m.ParallelTaskMergeCompositionProfile: lambda profile: p.Merge(tuple(profile.profile_ids)),
    m.TraceReplayProfile: lambda profile: p.TraceReplay(_TRACE_KIND[profile.trace_type], profile.filename),
}

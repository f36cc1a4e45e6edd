"""Jobs and profiles, between our words and batprotocol's.

In and out: model.Job and model.Profile on our side, messages.Job and messages.ProfileAndId on theirs. Amounts, names
and strategies are the same on both sides; only an absent vector is an empty tuple here.
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

_EACH = m.HomogeneousParallelTaskGenerationStrategy.DefinedAmountsUsedForEachValue
_UNIFORM = m.HomogeneousParallelTaskGenerationStrategy.DefinedAmountsSpreadUniformly


def write_job(job: Job) -> m.Job:
    return m.Job(
        job.least_units,
        None if job.walltime == inf else job.walltime,
        job.extra_data or "",
        not job.most_units or job.most_units == job.units,
        job.profile.name if job.profile is not None else "",
    )


def read_job(job_id: str, job: m.Job, find: Callable[[str], p.Profile | None], submitted_at: float) -> Job:
    """A job of theirs. `find` looks a profile up by its full name; a name alone is one of the job's workload."""
    name = job.profile_id or ""
    if "!" not in name:
        name = f"{job_id.partition('!')[0]}!{name}"
    return Job(
        job_id,
        job.resource_request,
        inf if job.walltime is None else job.walltime,
        submitted_at,
        find(name),
        extra_data=job.extra_data or None,
    )


def write_profile(profile: p.Profile) -> m.ProfileAndId:
    make = _OUT.get(type(profile.spec))
    if make is None:
        raise Malformed(f"profile {profile.name}: batprotocol has no word for {type(profile.spec).__name__}")
    return m.ProfileAndId(profile.name, make(profile.spec), profile.extra_data)


def read_profile(profile: m.ProfileAndId) -> p.Profile:
    """A profile of theirs. A part's name alone is one of the profile's workload."""
    spec = _IN[type(profile.profile)](profile.profile)
    workload, bang, _ = profile.id.partition("!")
    if bang and isinstance(spec, p.Sequence | p.ForkJoin | p.Merge):
        parts = tuple(part if "!" in part else f"{workload}!{part}" for part in spec.parts)
        spec = msgspec.structs.replace(spec, parts=parts)
    return p.Profile(profile.id, spec, extra_data=profile.extra_data)


def _spread_out(spread: p.Spread) -> m.HomogeneousParallelTaskGenerationStrategy:
    return _EACH if spread is p.Spread.EACH else _UNIFORM


def _spread_in(strategy: m.HomogeneousParallelTaskGenerationStrategy) -> p.Spread:
    return p.Spread.EACH if strategy == _EACH else p.Spread.UNIFORM


def _parallel_out(spec: p.ParallelTask) -> m.ParallelTaskProfile:
    return m.ParallelTaskProfile(list(spec.flop) or None, list(spec.bytes) or None)


def _parallel_in(profile: m.ParallelTaskProfile) -> p.ParallelTask:
    return p.ParallelTask(tuple(profile.computation_vector or ()), tuple(profile.communication_matrix or ()))


def _homogeneous_out(spec: p.HomogeneousTask) -> m.ParallelTaskHomogeneousProfile:
    return m.ParallelTaskHomogeneousProfile(spec.flop, spec.bytes, _spread_out(spec.spread))


def _homogeneous_in(profile: m.ParallelTaskHomogeneousProfile) -> p.HomogeneousTask:
    spread = _spread_in(profile.generation_strategy)
    return p.HomogeneousTask(profile.computation_amount, profile.communication_amount, spread)


def _storage_out(spec: p.StorageTask) -> m.ParallelTaskOnStorageHomogeneousProfile:
    return m.ParallelTaskOnStorageHomogeneousProfile(
        spec.storage, spec.read_bytes, spec.write_bytes, _spread_out(spec.spread)
    )


def _storage_in(profile: m.ParallelTaskOnStorageHomogeneousProfile) -> p.StorageTask:
    spread = _spread_in(profile.generation_strategy)
    return p.StorageTask(profile.bytes_to_read, profile.bytes_to_write, profile.storage_name, spread)


def _staging_out(spec: p.StagingTask) -> m.ParallelTaskDataStagingBetweenStoragesProfile:
    return m.ParallelTaskDataStagingBetweenStoragesProfile(spec.source, spec.target, spec.bytes)


def _staging_in(profile: m.ParallelTaskDataStagingBetweenStoragesProfile) -> p.StagingTask:
    return p.StagingTask(profile.bytes_to_transfer, profile.emitter_storage_name, profile.receiver_storage_name)


def _replay_out(spec: p.TraceReplay) -> m.TraceReplayProfile:
    kind = m.TraceType.SMPI if spec.kind is p.TraceKind.SMPI else m.TraceType.FractionalComputation
    return m.TraceReplayProfile(spec.file, kind)


def _replay_in(profile: m.TraceReplayProfile) -> p.TraceReplay:
    kind = p.TraceKind.SMPI if profile.trace_type == m.TraceType.SMPI else p.TraceKind.USAGE
    return p.TraceReplay(kind, profile.filename)


_OUT: dict[type, Callable[[Any], m.Profile]] = {
    p.Delay: lambda spec: m.DelayProfile(spec.seconds),
    p.ParallelTask: _parallel_out,
    p.HomogeneousTask: _homogeneous_out,
    p.StorageTask: _storage_out,
    p.StagingTask: _staging_out,
    p.Sequence: lambda spec: m.SequentialCompositionProfile(list(spec.parts), spec.repeat),
    p.ForkJoin: lambda spec: m.ForkJoinCompositionProfile(list(spec.parts)),
    p.Merge: lambda spec: m.ParallelTaskMergeCompositionProfile(list(spec.parts)),
    p.TraceReplay: _replay_out,
}

_IN: dict[type, Callable[[Any], p.Spec]] = {
    m.DelayProfile: lambda profile: p.Delay(profile.delay),
    m.ParallelTaskProfile: _parallel_in,
    m.ParallelTaskHomogeneousProfile: _homogeneous_in,
    m.ParallelTaskOnStorageHomogeneousProfile: _storage_in,
    m.ParallelTaskDataStagingBetweenStoragesProfile: _staging_in,
    m.SequentialCompositionProfile: lambda profile: p.Sequence(tuple(profile.profile_ids), profile.repetition_count),
    m.ForkJoinCompositionProfile: lambda profile: p.ForkJoin(tuple(profile.profile_ids)),
    m.ParallelTaskMergeCompositionProfile: lambda profile: p.Merge(tuple(profile.profile_ids)),
    m.TraceReplayProfile: _replay_in,
}

"""batprotocol messages in FlatBuffers: `encode(message) -> bytes`, `decode(bytes) -> Message`.

Raises Malformed for what no schema-abiding writer writes; `codec` is the door that names the peer.
"""

# Generated from schema.fbs by tools/gen_batprotocol.py; do not edit.
# ruff: noqa

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from pilothouse.protocols.batprotocol.messages import (
    AggregatedProbeData,
    AllStaticExternalEventsHaveBeenInjectedEvent,
    AllStaticJobsHaveBeenSubmittedEvent,
    AllocationPlacement,
    ArithmeticMean,
    BatsimHelloEvent,
    BooleanComparisonOperator,
    CallMeLaterEvent,
    ChangeHostsPStateEvent,
    CreateProbeEvent,
    CumulativeFunction,
    CustomExecutorToHostMapping,
    DelayProfile,
    EDCHelloEvent,
    EDCRequestedSimulationFeatures,
    EDCSchedulingConstraints,
    Event,
    EventAndTimestamp,
    ExecuteJobEvent,
    ExecutorPlacement,
    ExponentialMovingAverage,
    ExternalEvent,
    ExternalEventListAndFilename,
    ExternalEventOccurredEvent,
    FinalJobState,
    FinishRegistrationEvent,
    FinitePeriodNumber,
    ForceSimulationStopEvent,
    ForkJoinCompositionProfile,
    GenericExternalEvent,
    HomogeneousParallelTaskGenerationStrategy,
    Host,
    HostProperty,
    HostResources,
    HostState,
    HostsPStateChangedEvent,
    HostsTurnedOnOffEvent,
    Infinite,
    Job,
    JobAllocationValidationStrategy,
    JobAndProgress,
    JobCompletedEvent,
    JobSubmittedEvent,
    JobsKilledEvent,
    KillJobsEvent,
    KillProgress,
    KillProgressAtomicProfile,
    KillProgressForkJoinProfile,
    KillProgressSequentialProfile,
    KillProgressWrapper,
    LinkResources,
    Message,
    Metrics,
    NoFiltering,
    NoProbeDataAccumulation,
    NoReset,
    NoResourcesAggregation,
    NoTemporalAggregation,
    OneShot,
    ParallelTaskDataStagingBetweenStoragesProfile,
    ParallelTaskHomogeneousProfile,
    ParallelTaskMergeCompositionProfile,
    ParallelTaskOnStorageHomogeneousProfile,
    ParallelTaskProfile,
    Periodic,
    PeriodicMode,
    PredefinedExecutorPlacementStrategy,
    PredefinedExecutorPlacementStrategyWrapper,
    ProbeAccumulationReset,
    ProbeData,
    ProbeDataAccumulation,
    ProbeDataAccumulationStrategy,
    ProbeDataEmittedEvent,
    ProbeEmissionFilteringPolicy,
    ProbeMeasurementTriggeringPolicy,
    Profile,
    ProfileAllocationPlacement,
    ProfileAndId,
    QuantileFunction,
    RegisterJobEvent,
    RegisterProfileEvent,
    RejectJobEvent,
    RequestedCallEvent,
    ResetMode,
    ResetProbeEvent,
    Resources,
    ResourcesAggregationFunction,
    SequentialCompositionProfile,
    SimulationBeginsEvent,
    SimulationEndsEvent,
    SlidingWindowOperation,
    StopCallMeLaterEvent,
    StopProbeEvent,
    StorageHost,
    Sum,
    TemporalAggregationFunction,
    TemporalTrigger,
    TemporalTriggerWrapper,
    ThresholdFilteringFunction,
    TimeUnit,
    TraceReplayProfile,
    TraceType,
    TriggerProbeEvent,
    TurnOnOffHostsEvent,
    VectorialProbeData,
    WorkloadAndFilename,
)
from pilothouse.protocols.batprotocol.wire import (
    Malformed,
    Reader,
    Table,
    missing,
    put_numbers,
    put_parts,
    put_text,
    unknown_member,
    unknown_value,
)

_I32 = struct.Struct("<i").unpack_from
_U16 = struct.Struct("<H").unpack_from
_VALUES_HomogeneousParallelTaskGenerationStrategy = tuple(HomogeneousParallelTaskGenerationStrategy)
_VALUES_TraceType = tuple(TraceType)
_VALUES_FinalJobState = tuple(FinalJobState)
_VALUES_PredefinedExecutorPlacementStrategy = tuple(PredefinedExecutorPlacementStrategy)
_VALUES_CumulativeFunction = tuple(CumulativeFunction)
_VALUES_Metrics = tuple(Metrics)
_VALUES_BooleanComparisonOperator = tuple(BooleanComparisonOperator)
_VALUES_TimeUnit = tuple(TimeUnit)
_VALUES_JobAllocationValidationStrategy = tuple(JobAllocationValidationStrategy)
_VALUES_HostState = tuple(HostState)


_pack_DelayProfile = struct.Struct("<12s4xd").pack


def _put_DelayProfile(m: DelayProfile) -> bytes:
    return _pack_DelayProfile(b'\x06\x00\x10\x00\x08\x00\x00\x00\x08\x00\x00\x00', m.delay)


_TABLE_DelayProfile = Table("DelayProfile", ["d"], (0.0,))
_shape_DelayProfile = _TABLE_DelayProfile.shapes.get


def _get_DelayProfile(r: Reader, pos: int) -> DelayProfile:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_DelayProfile(data[at : at + _U16(data, at)[0]]) or _TABLE_DelayProfile.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    return DelayProfile(v[0])


_pack_ParallelTaskProfile = struct.Struct("<4sHH4sII4x").pack


def _put_ParallelTaskProfile(m: ParallelTaskProfile) -> bytes:
    v0 = m.computation_vector
    if v0 is None:
        p0, o0 = b"", 0
    else:
        p0 = put_numbers("d", 8, v0)
        o0 = 12 + 4
    v1 = m.communication_matrix
    if v1 is None:
        p1, o1 = b"", 0
    else:
        p1 = put_numbers("d", 8, v1)
        o1 = 8 + len(p0) + 4
    return _pack_ParallelTaskProfile(b'\x08\x00\x0c\x00', 4 if o0 else 0, 8 if o1 else 0, b'\x08\x00\x00\x00', o0, o1) + p0 + p1


_TABLE_ParallelTaskProfile = Table("ParallelTaskProfile", ["I", "I"], (0, 0))
_shape_ParallelTaskProfile = _TABLE_ParallelTaskProfile.shapes.get


def _get_ParallelTaskProfile(r: Reader, pos: int) -> ParallelTaskProfile:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_ParallelTaskProfile(data[at : at + _U16(data, at)[0]]) or _TABLE_ParallelTaskProfile.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    return ParallelTaskProfile(None if not v[0] else r.numbers(pos + d[0] + v[0], "d", 8), None if not v[1] else r.numbers(pos + d[1] + v[1], "d", 8))


_pack_SequentialCompositionProfile = struct.Struct("<12sII4x").pack


def _put_SequentialCompositionProfile(m: SequentialCompositionProfile) -> bytes:
    v1 = m.profile_ids
    p1 = put_parts([put_text(x) for x in v1], 0)
    o1 = 8
    return _pack_SequentialCompositionProfile(b'\x08\x00\x0c\x00\x04\x00\x08\x00\x08\x00\x00\x00', m.repetition_count, o1) + p1


_TABLE_SequentialCompositionProfile = Table("SequentialCompositionProfile", ["I", "I"], (1, 0))
_shape_SequentialCompositionProfile = _TABLE_SequentialCompositionProfile.shapes.get


def _get_SequentialCompositionProfile(r: Reader, pos: int) -> SequentialCompositionProfile:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_SequentialCompositionProfile(data[at : at + _U16(data, at)[0]]) or _TABLE_SequentialCompositionProfile.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[1]:
        raise missing("SequentialCompositionProfile", "profile_ids")
    return SequentialCompositionProfile(r.texts(pos + d[1] + v[1]), v[0])


_pack_ForkJoinCompositionProfile = struct.Struct("<12sI").pack


def _put_ForkJoinCompositionProfile(m: ForkJoinCompositionProfile) -> bytes:
    v0 = m.profile_ids
    p0 = put_parts([put_text(x) for x in v0], 0)
    o0 = 4
    return _pack_ForkJoinCompositionProfile(b'\x06\x00\x08\x00\x04\x00\x00\x00\x08\x00\x00\x00', o0) + p0


_TABLE_ForkJoinCompositionProfile = Table("ForkJoinCompositionProfile", ["I"], (0,))
_shape_ForkJoinCompositionProfile = _TABLE_ForkJoinCompositionProfile.shapes.get


def _get_ForkJoinCompositionProfile(r: Reader, pos: int) -> ForkJoinCompositionProfile:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_ForkJoinCompositionProfile(data[at : at + _U16(data, at)[0]]) or _TABLE_ForkJoinCompositionProfile.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("ForkJoinCompositionProfile", "profile_ids")
    return ForkJoinCompositionProfile(r.texts(pos + d[0] + v[0]))


_pack_ParallelTaskMergeCompositionProfile = struct.Struct("<12sI").pack


def _put_ParallelTaskMergeCompositionProfile(m: ParallelTaskMergeCompositionProfile) -> bytes:
    v0 = m.profile_ids
    p0 = put_parts([put_text(x) for x in v0], 0)
    o0 = 4
    return _pack_ParallelTaskMergeCompositionProfile(b'\x06\x00\x08\x00\x04\x00\x00\x00\x08\x00\x00\x00', o0) + p0


_TABLE_ParallelTaskMergeCompositionProfile = Table("ParallelTaskMergeCompositionProfile", ["I"], (0,))
_shape_ParallelTaskMergeCompositionProfile = _TABLE_ParallelTaskMergeCompositionProfile.shapes.get


def _get_ParallelTaskMergeCompositionProfile(r: Reader, pos: int) -> ParallelTaskMergeCompositionProfile:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_ParallelTaskMergeCompositionProfile(data[at : at + _U16(data, at)[0]]) or _TABLE_ParallelTaskMergeCompositionProfile.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("ParallelTaskMergeCompositionProfile", "profile_ids")
    return ParallelTaskMergeCompositionProfile(r.texts(pos + d[0] + v[0]))


_pack_ParallelTaskHomogeneousProfile = struct.Struct("<20s4xddb7x").pack


def _put_ParallelTaskHomogeneousProfile(m: ParallelTaskHomogeneousProfile) -> bytes:
    return _pack_ParallelTaskHomogeneousProfile(b'\n\x00\x19\x00\x08\x00\x10\x00\x18\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00', m.computation_amount, m.communication_amount, m.generation_strategy)


_TABLE_ParallelTaskHomogeneousProfile = Table("ParallelTaskHomogeneousProfile", ["d", "d", "b"], (0.0, 0.0, 0))
_shape_ParallelTaskHomogeneousProfile = _TABLE_ParallelTaskHomogeneousProfile.shapes.get


def _get_ParallelTaskHomogeneousProfile(r: Reader, pos: int) -> ParallelTaskHomogeneousProfile:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_ParallelTaskHomogeneousProfile(data[at : at + _U16(data, at)[0]]) or _TABLE_ParallelTaskHomogeneousProfile.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not 0 <= v[2] < 2:
        raise unknown_value("HomogeneousParallelTaskGenerationStrategy", v[2])
    return ParallelTaskHomogeneousProfile(v[0], v[1], _VALUES_HomogeneousParallelTaskGenerationStrategy[v[2]])


_pack_ParallelTaskOnStorageHomogeneousProfile = struct.Struct("<20sIddb7x").pack


def _put_ParallelTaskOnStorageHomogeneousProfile(m: ParallelTaskOnStorageHomogeneousProfile) -> bytes:
    v0 = m.storage_name
    p0 = put_text(v0)
    o0 = 28
    return _pack_ParallelTaskOnStorageHomogeneousProfile(b'\x0c\x00\x19\x00\x04\x00\x08\x00\x10\x00\x18\x00\x00\x00\x00\x00\x10\x00\x00\x00', o0, m.bytes_to_read, m.bytes_to_write, m.generation_strategy) + p0


_TABLE_ParallelTaskOnStorageHomogeneousProfile = Table("ParallelTaskOnStorageHomogeneousProfile", ["I", "d", "d", "b"], (0, 0.0, 0.0, 0))
_shape_ParallelTaskOnStorageHomogeneousProfile = _TABLE_ParallelTaskOnStorageHomogeneousProfile.shapes.get


def _get_ParallelTaskOnStorageHomogeneousProfile(r: Reader, pos: int) -> ParallelTaskOnStorageHomogeneousProfile:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_ParallelTaskOnStorageHomogeneousProfile(data[at : at + _U16(data, at)[0]]) or _TABLE_ParallelTaskOnStorageHomogeneousProfile.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("ParallelTaskOnStorageHomogeneousProfile", "storage_name")
    if not 0 <= v[3] < 2:
        raise unknown_value("HomogeneousParallelTaskGenerationStrategy", v[3])
    return ParallelTaskOnStorageHomogeneousProfile(r.text(pos + d[0] + v[0]), v[1], v[2], _VALUES_HomogeneousParallelTaskGenerationStrategy[v[3]])


_pack_ParallelTaskDataStagingBetweenStoragesProfile = struct.Struct("<20sIdI4x").pack


def _put_ParallelTaskDataStagingBetweenStoragesProfile(m: ParallelTaskDataStagingBetweenStoragesProfile) -> bytes:
    v1 = m.emitter_storage_name
    p1 = put_text(v1)
    o1 = 20
    v2 = m.receiver_storage_name
    p2 = put_text(v2)
    o2 = 8 + len(p1)
    return _pack_ParallelTaskDataStagingBetweenStoragesProfile(b'\n\x00\x14\x00\x08\x00\x04\x00\x10\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00', o1, m.bytes_to_transfer, o2) + p1 + p2


_TABLE_ParallelTaskDataStagingBetweenStoragesProfile = Table("ParallelTaskDataStagingBetweenStoragesProfile", ["d", "I", "I"], (0.0, 0, 0))
_shape_ParallelTaskDataStagingBetweenStoragesProfile = _TABLE_ParallelTaskDataStagingBetweenStoragesProfile.shapes.get


def _get_ParallelTaskDataStagingBetweenStoragesProfile(r: Reader, pos: int) -> ParallelTaskDataStagingBetweenStoragesProfile:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_ParallelTaskDataStagingBetweenStoragesProfile(data[at : at + _U16(data, at)[0]]) or _TABLE_ParallelTaskDataStagingBetweenStoragesProfile.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[1]:
        raise missing("ParallelTaskDataStagingBetweenStoragesProfile", "emitter_storage_name")
    if not v[2]:
        raise missing("ParallelTaskDataStagingBetweenStoragesProfile", "receiver_storage_name")
    return ParallelTaskDataStagingBetweenStoragesProfile(r.text(pos + d[1] + v[1]), r.text(pos + d[2] + v[2]), v[0])


_pack_TraceReplayProfile = struct.Struct("<12sIb7x").pack


def _put_TraceReplayProfile(m: TraceReplayProfile) -> bytes:
    v1 = m.filename
    p1 = put_text(v1)
    o1 = 12
    return _pack_TraceReplayProfile(b'\x08\x00\t\x00\x08\x00\x04\x00\x08\x00\x00\x00', o1, m.trace_type) + p1


_TABLE_TraceReplayProfile = Table("TraceReplayProfile", ["b", "I"], (0, 0))
_shape_TraceReplayProfile = _TABLE_TraceReplayProfile.shapes.get


def _get_TraceReplayProfile(r: Reader, pos: int) -> TraceReplayProfile:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_TraceReplayProfile(data[at : at + _U16(data, at)[0]]) or _TABLE_TraceReplayProfile.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not 0 <= v[0] < 2:
        raise unknown_value("TraceType", v[0])
    if not v[1]:
        raise missing("TraceReplayProfile", "filename")
    return TraceReplayProfile(r.text(pos + d[1] + v[1]), _VALUES_TraceType[v[0]])


_pack_Job = struct.Struct("<6sHH2sH6sIdII?7x").pack


def _put_Job(m: Job) -> bytes:
    v1 = m.walltime
    v2 = m.extra_data
    if v2 is None:
        p2, o2 = b"", 0
    else:
        p2 = put_text(v2)
        o2 = 16
    v4 = m.profile_id
    if v4 is None:
        p4, o4 = b"", 0
    else:
        p4 = put_text(v4)
        o4 = 12 + len(p2)
    return _pack_Job(b'\x0e\x00\x19\x00\x04\x00', 8 if v1 is not None else 0, 16 if o2 else 0, b'\x18\x00', 20 if o4 else 0, b'\x00\x00\x10\x00\x00\x00', m.resource_request, v1 or 0, o2, o4, m.rigid) + p2 + p4


_TABLE_Job = Table("Job", ["I", "d", "I", "?", "I"], (0, None, 0, True, 0))
_shape_Job = _TABLE_Job.shapes.get


def _get_Job(r: Reader, pos: int) -> Job:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_Job(data[at : at + _U16(data, at)[0]]) or _TABLE_Job.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    return Job(v[0], v[1], None if not v[2] else r.text(pos + d[2] + v[2]), v[3], None if not v[4] else r.text(pos + d[4] + v[4]))


_pack_JobSubmittedEvent = struct.Struct("<10sH8sIdII").pack


def _put_JobSubmittedEvent(m: JobSubmittedEvent) -> bytes:
    v0 = m.job_id
    p0 = put_text(v0)
    o0 = 20
    v1 = m.job
    p1 = _put_Job(v1)
    o1 = 8 + len(p0) + 16
    v3 = m.profile
    if v3 is None:
        p3, o3 = b"", 0
    else:
        p3 = _put_ProfileAndId(v3)
        o3 = 4 + len(p0) + len(p1) + 16
    return _pack_JobSubmittedEvent(b'\x0c\x00\x18\x00\x04\x00\x10\x00\x08\x00', 20 if o3 else 0, b'\x00\x00\x00\x00\x10\x00\x00\x00', o0, m.submission_time, o1, o3) + p0 + p1 + p3


_TABLE_JobSubmittedEvent = Table("JobSubmittedEvent", ["I", "I", "d", "I"], (0, 0, 0.0, 0))
_shape_JobSubmittedEvent = _TABLE_JobSubmittedEvent.shapes.get


def _get_JobSubmittedEvent(r: Reader, pos: int) -> JobSubmittedEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_JobSubmittedEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_JobSubmittedEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("JobSubmittedEvent", "job_id")
    if not v[1]:
        raise missing("JobSubmittedEvent", "job")
    return JobSubmittedEvent(r.text(pos + d[0] + v[0]), _get_Job(r, pos + d[1] + v[1]), v[2], None if not v[3] else _get_ProfileAndId(r, pos + d[3] + v[3]))


_pack_JobCompletedEvent = struct.Struct("<20sIIb3x").pack


def _put_JobCompletedEvent(m: JobCompletedEvent) -> bytes:
    v0 = m.job_id
    p0 = put_text(v0)
    o0 = 12
    return _pack_JobCompletedEvent(b'\n\x00\r\x00\x04\x00\x0c\x00\x08\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00', o0, m.return_code, m.state) + p0


_TABLE_JobCompletedEvent = Table("JobCompletedEvent", ["I", "b", "I"], (0, 0, 0))
_shape_JobCompletedEvent = _TABLE_JobCompletedEvent.shapes.get


def _get_JobCompletedEvent(r: Reader, pos: int) -> JobCompletedEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_JobCompletedEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_JobCompletedEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("JobCompletedEvent", "job_id")
    if not 0 <= v[1] < 5:
        raise unknown_value("FinalJobState", v[1])
    return JobCompletedEvent(r.text(pos + d[0] + v[0]), _VALUES_FinalJobState[v[1]], v[2])


_pack_RejectJobEvent = struct.Struct("<12sI").pack


def _put_RejectJobEvent(m: RejectJobEvent) -> bytes:
    v0 = m.job_id
    p0 = put_text(v0)
    o0 = 4
    return _pack_RejectJobEvent(b'\x06\x00\x08\x00\x04\x00\x00\x00\x08\x00\x00\x00', o0) + p0


_TABLE_RejectJobEvent = Table("RejectJobEvent", ["I"], (0,))
_shape_RejectJobEvent = _TABLE_RejectJobEvent.shapes.get


def _get_RejectJobEvent(r: Reader, pos: int) -> RejectJobEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_RejectJobEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_RejectJobEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("RejectJobEvent", "job_id")
    return RejectJobEvent(r.text(pos + d[0] + v[0]))


_pack_PredefinedExecutorPlacementStrategyWrapper = struct.Struct("<12sb3x").pack


def _put_PredefinedExecutorPlacementStrategyWrapper(m: PredefinedExecutorPlacementStrategyWrapper) -> bytes:
    return _pack_PredefinedExecutorPlacementStrategyWrapper(b'\x06\x00\x05\x00\x04\x00\x00\x00\x08\x00\x00\x00', m.strategy)


_TABLE_PredefinedExecutorPlacementStrategyWrapper = Table("PredefinedExecutorPlacementStrategyWrapper", ["b"], (0,))
_shape_PredefinedExecutorPlacementStrategyWrapper = _TABLE_PredefinedExecutorPlacementStrategyWrapper.shapes.get


def _get_PredefinedExecutorPlacementStrategyWrapper(r: Reader, pos: int) -> PredefinedExecutorPlacementStrategyWrapper:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_PredefinedExecutorPlacementStrategyWrapper(data[at : at + _U16(data, at)[0]]) or _TABLE_PredefinedExecutorPlacementStrategyWrapper.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not 0 <= v[0] < 2:
        raise unknown_value("PredefinedExecutorPlacementStrategy", v[0])
    return PredefinedExecutorPlacementStrategyWrapper(_VALUES_PredefinedExecutorPlacementStrategy[v[0]])


_pack_CustomExecutorToHostMapping = struct.Struct("<4sH6sI").pack


def _put_CustomExecutorToHostMapping(m: CustomExecutorToHostMapping) -> bytes:
    v0 = m.mapping
    if v0 is None:
        p0, o0 = b"", 0
    else:
        p0 = put_numbers("I", 4, v0)
        o0 = 4
    return _pack_CustomExecutorToHostMapping(b'\x06\x00\x08\x00', 4 if o0 else 0, b'\x00\x00\x08\x00\x00\x00', o0) + p0


_TABLE_CustomExecutorToHostMapping = Table("CustomExecutorToHostMapping", ["I"], (0,))
_shape_CustomExecutorToHostMapping = _TABLE_CustomExecutorToHostMapping.shapes.get


def _get_CustomExecutorToHostMapping(r: Reader, pos: int) -> CustomExecutorToHostMapping:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_CustomExecutorToHostMapping(data[at : at + _U16(data, at)[0]]) or _TABLE_CustomExecutorToHostMapping.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    return CustomExecutorToHostMapping(None if not v[0] else r.numbers(pos + d[0] + v[0], "I", 4))


_pack_StorageHost = struct.Struct("<12sII4x").pack


def _put_StorageHost(m: StorageHost) -> bytes:
    v0 = m.storage_name
    p0 = put_text(v0)
    o0 = 12
    return _pack_StorageHost(b'\x08\x00\x0c\x00\x04\x00\x08\x00\x08\x00\x00\x00', o0, m.host_id) + p0


_TABLE_StorageHost = Table("StorageHost", ["I", "I"], (0, 0))
_shape_StorageHost = _TABLE_StorageHost.shapes.get


def _get_StorageHost(r: Reader, pos: int) -> StorageHost:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_StorageHost(data[at : at + _U16(data, at)[0]]) or _TABLE_StorageHost.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("StorageHost", "storage_name")
    return StorageHost(r.text(pos + d[0] + v[0]), v[1])


_pack_AllocationPlacement = struct.Struct("<20sIIB3x").pack


def _put_AllocationPlacement(m: AllocationPlacement) -> bytes:
    v0 = m.host_allocation
    p0 = put_text(v0)
    o0 = 12
    v1 = m.executor_placement
    t1, put, at = _MEMBERS_ExecutorPlacement[type(v1)]
    p1 = put(v1)
    o1 = 8 + len(p0) + at
    return _pack_AllocationPlacement(b'\n\x00\r\x00\x04\x00\x0c\x00\x08\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00', o0, o1, t1) + p0 + p1


_TABLE_AllocationPlacement = Table("AllocationPlacement", ["I", "B", "I"], (0, 0, 0))
_shape_AllocationPlacement = _TABLE_AllocationPlacement.shapes.get


def _get_AllocationPlacement(r: Reader, pos: int) -> AllocationPlacement:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_AllocationPlacement(data[at : at + _U16(data, at)[0]]) or _TABLE_AllocationPlacement.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("AllocationPlacement", "host_allocation")
    if not v[1] or not v[2]:
        raise missing("AllocationPlacement", "executor_placement")
    return AllocationPlacement(r.text(pos + d[0] + v[0]), _member_ExecutorPlacement(r, v[1], pos + d[2] + v[2]))


_pack_ProfileAllocationPlacement = struct.Struct("<20sIIIB7x").pack


def _put_ProfileAllocationPlacement(m: ProfileAllocationPlacement) -> bytes:
    v0 = m.profile_id
    p0 = put_text(v0)
    o0 = 20
    v1 = m.host_allocation
    p1 = put_text(v1)
    o1 = 16 + len(p0)
    v2 = m.executor_placement
    t2, put, at = _MEMBERS_ExecutorPlacement[type(v2)]
    p2 = put(v2)
    o2 = 12 + len(p0) + len(p1) + at
    return _pack_ProfileAllocationPlacement(b'\x0c\x00\x11\x00\x04\x00\x08\x00\x10\x00\x0c\x00\x00\x00\x00\x00\x10\x00\x00\x00', o0, o1, o2, t2) + p0 + p1 + p2


_TABLE_ProfileAllocationPlacement = Table("ProfileAllocationPlacement", ["I", "I", "B", "I"], (0, 0, 0, 0))
_shape_ProfileAllocationPlacement = _TABLE_ProfileAllocationPlacement.shapes.get


def _get_ProfileAllocationPlacement(r: Reader, pos: int) -> ProfileAllocationPlacement:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_ProfileAllocationPlacement(data[at : at + _U16(data, at)[0]]) or _TABLE_ProfileAllocationPlacement.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("ProfileAllocationPlacement", "profile_id")
    if not v[1]:
        raise missing("ProfileAllocationPlacement", "host_allocation")
    if not v[2] or not v[3]:
        raise missing("ProfileAllocationPlacement", "executor_placement")
    return ProfileAllocationPlacement(r.text(pos + d[0] + v[0]), r.text(pos + d[1] + v[1]), _member_ExecutorPlacement(r, v[2], pos + d[3] + v[3]))


_pack_ExecuteJobEvent = struct.Struct("<8sHH8sIIII4x").pack


def _put_ExecuteJobEvent(m: ExecuteJobEvent) -> bytes:
    v0 = m.job_id
    p0 = put_text(v0)
    o0 = 20
    v1 = m.allocation
    p1 = _put_AllocationPlacement(v1)
    o1 = 16 + len(p0) + 16
    v2 = m.profile_allocation_override
    if v2 is None:
        p2, o2 = b"", 0
    else:
        p2 = put_parts([_put_ProfileAllocationPlacement(x) for x in v2], 16)
        o2 = 12 + len(p0) + len(p1)
    v3 = m.storage_placement
    if v3 is None:
        p3, o3 = b"", 0
    else:
        p3 = put_parts([_put_StorageHost(x) for x in v3], 8)
        o3 = 8 + len(p0) + len(p1) + len(p2)
    return _pack_ExecuteJobEvent(b'\x0c\x00\x14\x00\x04\x00\x08\x00', 12 if o2 else 0, 16 if o3 else 0, b'\x00\x00\x00\x00\x10\x00\x00\x00', o0, o1, o2, o3) + p0 + p1 + p2 + p3


_TABLE_ExecuteJobEvent = Table("ExecuteJobEvent", ["I", "I", "I", "I"], (0, 0, 0, 0))
_shape_ExecuteJobEvent = _TABLE_ExecuteJobEvent.shapes.get


def _get_ExecuteJobEvent(r: Reader, pos: int) -> ExecuteJobEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_ExecuteJobEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_ExecuteJobEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("ExecuteJobEvent", "job_id")
    if not v[1]:
        raise missing("ExecuteJobEvent", "allocation")
    return ExecuteJobEvent(r.text(pos + d[0] + v[0]), _get_AllocationPlacement(r, pos + d[1] + v[1]), None if not v[2] else [_get_ProfileAllocationPlacement(r, at) for at in r.places(pos + d[2] + v[2])], None if not v[3] else [_get_StorageHost(r, at) for at in r.places(pos + d[3] + v[3])])


_pack_KillJobsEvent = struct.Struct("<12sI").pack


def _put_KillJobsEvent(m: KillJobsEvent) -> bytes:
    v0 = m.job_ids
    p0 = put_parts([put_text(x) for x in v0], 0)
    o0 = 4
    return _pack_KillJobsEvent(b'\x06\x00\x08\x00\x04\x00\x00\x00\x08\x00\x00\x00', o0) + p0


_TABLE_KillJobsEvent = Table("KillJobsEvent", ["I"], (0,))
_shape_KillJobsEvent = _TABLE_KillJobsEvent.shapes.get


def _get_KillJobsEvent(r: Reader, pos: int) -> KillJobsEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_KillJobsEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_KillJobsEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("KillJobsEvent", "job_ids")
    return KillJobsEvent(r.texts(pos + d[0] + v[0]))


_pack_KillProgressAtomicProfile = struct.Struct("<12sId").pack


def _put_KillProgressAtomicProfile(m: KillProgressAtomicProfile) -> bytes:
    v0 = m.profile_id
    p0 = put_text(v0)
    o0 = 12
    return _pack_KillProgressAtomicProfile(b'\x08\x00\x10\x00\x04\x00\x08\x00\x08\x00\x00\x00', o0, m.progress) + p0


_TABLE_KillProgressAtomicProfile = Table("KillProgressAtomicProfile", ["I", "d"], (0, 0.0))
_shape_KillProgressAtomicProfile = _TABLE_KillProgressAtomicProfile.shapes.get


def _get_KillProgressAtomicProfile(r: Reader, pos: int) -> KillProgressAtomicProfile:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_KillProgressAtomicProfile(data[at : at + _U16(data, at)[0]]) or _TABLE_KillProgressAtomicProfile.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("KillProgressAtomicProfile", "profile_id")
    return KillProgressAtomicProfile(r.text(pos + d[0] + v[0]), v[1])


_pack_KillProgressSequentialProfile = struct.Struct("<20sIIII4x").pack


def _put_KillProgressSequentialProfile(m: KillProgressSequentialProfile) -> bytes:
    v0 = m.profile_id
    p0 = put_text(v0)
    o0 = 20
    v3 = m.current_task_progress
    p3 = _put_KillProgressWrapper(v3)
    o3 = 8 + len(p0) + 8
    return _pack_KillProgressSequentialProfile(b'\x0c\x00\x14\x00\x04\x00\x08\x00\x0c\x00\x10\x00\x00\x00\x00\x00\x10\x00\x00\x00', o0, m.current_repetition, m.current_task_index, o3) + p0 + p3


_TABLE_KillProgressSequentialProfile = Table("KillProgressSequentialProfile", ["I", "I", "I", "I"], (0, 0, 0, 0))
_shape_KillProgressSequentialProfile = _TABLE_KillProgressSequentialProfile.shapes.get


def _get_KillProgressSequentialProfile(r: Reader, pos: int) -> KillProgressSequentialProfile:
    r.descend()
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_KillProgressSequentialProfile(data[at : at + _U16(data, at)[0]]) or _TABLE_KillProgressSequentialProfile.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("KillProgressSequentialProfile", "profile_id")
    if not v[3]:
        raise missing("KillProgressSequentialProfile", "current_task_progress")
    made = KillProgressSequentialProfile(r.text(pos + d[0] + v[0]), _get_KillProgressWrapper(r, pos + d[3] + v[3]), v[1], v[2])
    r.depth -= 1
    return made


_pack_KillProgressForkJoinProfile = struct.Struct("<12sII4x").pack


def _put_KillProgressForkJoinProfile(m: KillProgressForkJoinProfile) -> bytes:
    v0 = m.profile_id
    p0 = put_text(v0)
    o0 = 12
    v1 = m.tasks_progress
    p1 = put_parts([_put_KillProgressWrapper(x) for x in v1], 8)
    o1 = 8 + len(p0)
    return _pack_KillProgressForkJoinProfile(b'\x08\x00\x0c\x00\x04\x00\x08\x00\x08\x00\x00\x00', o0, o1) + p0 + p1


_TABLE_KillProgressForkJoinProfile = Table("KillProgressForkJoinProfile", ["I", "I"], (0, 0))
_shape_KillProgressForkJoinProfile = _TABLE_KillProgressForkJoinProfile.shapes.get


def _get_KillProgressForkJoinProfile(r: Reader, pos: int) -> KillProgressForkJoinProfile:
    r.descend()
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_KillProgressForkJoinProfile(data[at : at + _U16(data, at)[0]]) or _TABLE_KillProgressForkJoinProfile.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("KillProgressForkJoinProfile", "profile_id")
    if not v[1]:
        raise missing("KillProgressForkJoinProfile", "tasks_progress")
    made = KillProgressForkJoinProfile(r.text(pos + d[0] + v[0]), [_get_KillProgressWrapper(r, at) for at in r.places(pos + d[1] + v[1])])
    r.depth -= 1
    return made


_pack_KillProgressWrapper = struct.Struct("<12sIB7x").pack


def _put_KillProgressWrapper(m: KillProgressWrapper) -> bytes:
    v0 = m.kill_progress
    t0, put, at = _MEMBERS_KillProgress[type(v0)]
    p0 = put(v0)
    o0 = 12 + at
    return _pack_KillProgressWrapper(b'\x08\x00\t\x00\x08\x00\x04\x00\x08\x00\x00\x00', o0, t0) + p0


_TABLE_KillProgressWrapper = Table("KillProgressWrapper", ["B", "I"], (0, 0))
_shape_KillProgressWrapper = _TABLE_KillProgressWrapper.shapes.get


def _get_KillProgressWrapper(r: Reader, pos: int) -> KillProgressWrapper:
    r.descend()
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_KillProgressWrapper(data[at : at + _U16(data, at)[0]]) or _TABLE_KillProgressWrapper.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0] or not v[1]:
        raise missing("KillProgressWrapper", "kill_progress")
    made = KillProgressWrapper(_member_KillProgress(r, v[0], pos + d[1] + v[1]))
    r.depth -= 1
    return made


_pack_JobAndProgress = struct.Struct("<12sII4x").pack


def _put_JobAndProgress(m: JobAndProgress) -> bytes:
    v0 = m.job_id
    p0 = put_text(v0)
    o0 = 12
    v1 = m.wrapper
    p1 = _put_KillProgressWrapper(v1)
    o1 = 8 + len(p0) + 8
    return _pack_JobAndProgress(b'\x08\x00\x0c\x00\x04\x00\x08\x00\x08\x00\x00\x00', o0, o1) + p0 + p1


_TABLE_JobAndProgress = Table("JobAndProgress", ["I", "I"], (0, 0))
_shape_JobAndProgress = _TABLE_JobAndProgress.shapes.get


def _get_JobAndProgress(r: Reader, pos: int) -> JobAndProgress:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_JobAndProgress(data[at : at + _U16(data, at)[0]]) or _TABLE_JobAndProgress.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("JobAndProgress", "job_id")
    if not v[1]:
        raise missing("JobAndProgress", "wrapper")
    return JobAndProgress(r.text(pos + d[0] + v[0]), _get_KillProgressWrapper(r, pos + d[1] + v[1]))


_pack_JobsKilledEvent = struct.Struct("<8sH10sIII").pack


def _put_JobsKilledEvent(m: JobsKilledEvent) -> bytes:
    v0 = m.job_ids
    p0 = put_parts([put_text(x) for x in v0], 0)
    o0 = 12
    v1 = m.progresses
    p1 = put_parts([_put_JobAndProgress(x) for x in v1], 8)
    o1 = 8 + len(p0)
    v2 = m.profiles
    if v2 is None:
        p2, o2 = b"", 0
    else:
        p2 = put_parts([_put_ProfileAndId(x) for x in v2], 16)
        o2 = 4 + len(p0) + len(p1)
    return _pack_JobsKilledEvent(b'\n\x00\x10\x00\x04\x00\x08\x00', 12 if o2 else 0, b'\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00', o0, o1, o2) + p0 + p1 + p2


_TABLE_JobsKilledEvent = Table("JobsKilledEvent", ["I", "I", "I"], (0, 0, 0))
_shape_JobsKilledEvent = _TABLE_JobsKilledEvent.shapes.get


def _get_JobsKilledEvent(r: Reader, pos: int) -> JobsKilledEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_JobsKilledEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_JobsKilledEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("JobsKilledEvent", "job_ids")
    if not v[1]:
        raise missing("JobsKilledEvent", "progresses")
    return JobsKilledEvent(r.texts(pos + d[0] + v[0]), [_get_JobAndProgress(r, at) for at in r.places(pos + d[1] + v[1])], None if not v[2] else [_get_ProfileAndId(r, at) for at in r.places(pos + d[2] + v[2])])


_pack_ProfileAndId = struct.Struct("<10sH8sIIIB7x").pack


def _put_ProfileAndId(m: ProfileAndId) -> bytes:
    v0 = m.id
    p0 = put_text(v0)
    o0 = 20
    v1 = m.profile
    t1, put, at = _MEMBERS_Profile[type(v1)]
    p1 = put(v1)
    o1 = 16 + len(p0) + at
    v2 = m.extra_data
    if v2 is None:
        p2, o2 = b"", 0
    else:
        p2 = put_text(v2)
        o2 = 12 + len(p0) + len(p1)
    return _pack_ProfileAndId(b'\x0c\x00\x11\x00\x04\x00\x10\x00\x08\x00', 12 if o2 else 0, b'\x00\x00\x00\x00\x10\x00\x00\x00', o0, o1, o2, t1) + p0 + p1 + p2


_TABLE_ProfileAndId = Table("ProfileAndId", ["I", "B", "I", "I"], (0, 0, 0, 0))
_shape_ProfileAndId = _TABLE_ProfileAndId.shapes.get


def _get_ProfileAndId(r: Reader, pos: int) -> ProfileAndId:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_ProfileAndId(data[at : at + _U16(data, at)[0]]) or _TABLE_ProfileAndId.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("ProfileAndId", "id")
    if not v[1] or not v[2]:
        raise missing("ProfileAndId", "profile")
    return ProfileAndId(r.text(pos + d[0] + v[0]), _member_Profile(r, v[1], pos + d[2] + v[2]), None if not v[3] else r.text(pos + d[3] + v[3]))


_pack_RegisterProfileEvent = struct.Struct("<4sH6sI").pack


def _put_RegisterProfileEvent(m: RegisterProfileEvent) -> bytes:
    v0 = m.profile
    if v0 is None:
        p0, o0 = b"", 0
    else:
        p0 = _put_ProfileAndId(v0)
        o0 = 4 + 16
    return _pack_RegisterProfileEvent(b'\x06\x00\x08\x00', 4 if o0 else 0, b'\x00\x00\x08\x00\x00\x00', o0) + p0


_TABLE_RegisterProfileEvent = Table("RegisterProfileEvent", ["I"], (0,))
_shape_RegisterProfileEvent = _TABLE_RegisterProfileEvent.shapes.get


def _get_RegisterProfileEvent(r: Reader, pos: int) -> RegisterProfileEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_RegisterProfileEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_RegisterProfileEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    return RegisterProfileEvent(None if not v[0] else _get_ProfileAndId(r, pos + d[0] + v[0]))


_pack_RegisterJobEvent = struct.Struct("<12sII4x").pack


def _put_RegisterJobEvent(m: RegisterJobEvent) -> bytes:
    v0 = m.job_id
    p0 = put_text(v0)
    o0 = 12
    v1 = m.job
    p1 = _put_Job(v1)
    o1 = 8 + len(p0) + 16
    return _pack_RegisterJobEvent(b'\x08\x00\x0c\x00\x04\x00\x08\x00\x08\x00\x00\x00', o0, o1) + p0 + p1


_TABLE_RegisterJobEvent = Table("RegisterJobEvent", ["I", "I"], (0, 0))
_shape_RegisterJobEvent = _TABLE_RegisterJobEvent.shapes.get


def _get_RegisterJobEvent(r: Reader, pos: int) -> RegisterJobEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_RegisterJobEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_RegisterJobEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("RegisterJobEvent", "job_id")
    if not v[1]:
        raise missing("RegisterJobEvent", "job")
    return RegisterJobEvent(r.text(pos + d[0] + v[0]), _get_Job(r, pos + d[1] + v[1]))


_pack_HostResources = struct.Struct("<4sH6sI").pack


def _put_HostResources(m: HostResources) -> bytes:
    v0 = m.host_ids
    if v0 is None:
        p0, o0 = b"", 0
    else:
        p0 = put_text(v0)
        o0 = 4
    return _pack_HostResources(b'\x06\x00\x08\x00', 4 if o0 else 0, b'\x00\x00\x08\x00\x00\x00', o0) + p0


_TABLE_HostResources = Table("HostResources", ["I"], (0,))
_shape_HostResources = _TABLE_HostResources.shapes.get


def _get_HostResources(r: Reader, pos: int) -> HostResources:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_HostResources(data[at : at + _U16(data, at)[0]]) or _TABLE_HostResources.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    return HostResources(None if not v[0] else r.text(pos + d[0] + v[0]))


_pack_LinkResources = struct.Struct("<4sH6sI").pack


def _put_LinkResources(m: LinkResources) -> bytes:
    v0 = m.link_ids
    if v0 is None:
        p0, o0 = b"", 0
    else:
        p0 = put_parts([put_text(x) for x in v0], 0)
        o0 = 4
    return _pack_LinkResources(b'\x06\x00\x08\x00', 4 if o0 else 0, b'\x00\x00\x08\x00\x00\x00', o0) + p0


_TABLE_LinkResources = Table("LinkResources", ["I"], (0,))
_shape_LinkResources = _TABLE_LinkResources.shapes.get


def _get_LinkResources(r: Reader, pos: int) -> LinkResources:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_LinkResources(data[at : at + _U16(data, at)[0]]) or _TABLE_LinkResources.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    return LinkResources(None if not v[0] else r.texts(pos + d[0] + v[0]))


_pack_NoProbeDataAccumulation = struct.Struct("<12s4x").pack


def _put_NoProbeDataAccumulation(m: NoProbeDataAccumulation) -> bytes:
    return _pack_NoProbeDataAccumulation(b'\x04\x00\x04\x00\x00\x00\x00\x00\x08\x00\x00\x00')


_TABLE_NoProbeDataAccumulation = Table("NoProbeDataAccumulation", [], ())
_shape_NoProbeDataAccumulation = _TABLE_NoProbeDataAccumulation.shapes.get


def _get_NoProbeDataAccumulation(r: Reader, pos: int) -> NoProbeDataAccumulation:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_NoProbeDataAccumulation(data[at : at + _U16(data, at)[0]]) or _TABLE_NoProbeDataAccumulation.learn(data, at)
    read(data, pos)
    return NoProbeDataAccumulation()


_pack_NoReset = struct.Struct("<12s4x").pack


def _put_NoReset(m: NoReset) -> bytes:
    return _pack_NoReset(b'\x04\x00\x04\x00\x00\x00\x00\x00\x08\x00\x00\x00')


_TABLE_NoReset = Table("NoReset", [], ())
_shape_NoReset = _TABLE_NoReset.shapes.get


def _get_NoReset(r: Reader, pos: int) -> NoReset:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_NoReset(data[at : at + _U16(data, at)[0]]) or _TABLE_NoReset.learn(data, at)
    read(data, pos)
    return NoReset()


_pack_ProbeAccumulationReset = struct.Struct("<12s4xd").pack


def _put_ProbeAccumulationReset(m: ProbeAccumulationReset) -> bytes:
    return _pack_ProbeAccumulationReset(b'\x06\x00\x10\x00\x08\x00\x00\x00\x08\x00\x00\x00', m.new_value)


_TABLE_ProbeAccumulationReset = Table("ProbeAccumulationReset", ["d"], (0.0,))
_shape_ProbeAccumulationReset = _TABLE_ProbeAccumulationReset.shapes.get


def _get_ProbeAccumulationReset(r: Reader, pos: int) -> ProbeAccumulationReset:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_ProbeAccumulationReset(data[at : at + _U16(data, at)[0]]) or _TABLE_ProbeAccumulationReset.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    return ProbeAccumulationReset(v[0])


_pack_ProbeDataAccumulation = struct.Struct("<4sHH12sIBb?5x").pack


def _put_ProbeDataAccumulation(m: ProbeDataAccumulation) -> bytes:
    v0 = m.reset_mode
    if v0 is None:
        t0 = 0
        p0, o0 = b"", 0
    else:
        t0, put, at = _MEMBERS_ResetMode[type(v0)]
        p0 = put(v0)
        o0 = 12 + at
    return _pack_ProbeDataAccumulation(b'\x0c\x00\x0b\x00', 8 if o0 else 0, 4 if o0 else 0, b'\t\x00\n\x00\x00\x00\x00\x00\x10\x00\x00\x00', o0, t0, m.cumulative_function, m.temporal_normalization) + p0


_TABLE_ProbeDataAccumulation = Table("ProbeDataAccumulation", ["B", "I", "b", "?"], (0, 0, 0, False))
_shape_ProbeDataAccumulation = _TABLE_ProbeDataAccumulation.shapes.get


def _get_ProbeDataAccumulation(r: Reader, pos: int) -> ProbeDataAccumulation:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_ProbeDataAccumulation(data[at : at + _U16(data, at)[0]]) or _TABLE_ProbeDataAccumulation.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if v[0] and not v[1]:
        raise missing("ProbeDataAccumulation", "reset_mode")
    if not 0 <= v[2] < 3:
        raise unknown_value("CumulativeFunction", v[2])
    return ProbeDataAccumulation(None if not v[0] or not v[1] else _member_ResetMode(r, v[0], pos + d[1] + v[1]), _VALUES_CumulativeFunction[v[2]], v[3])


_pack_NoTemporalAggregation = struct.Struct("<12s4x").pack


def _put_NoTemporalAggregation(m: NoTemporalAggregation) -> bytes:
    return _pack_NoTemporalAggregation(b'\x04\x00\x04\x00\x00\x00\x00\x00\x08\x00\x00\x00')


_TABLE_NoTemporalAggregation = Table("NoTemporalAggregation", [], ())
_shape_NoTemporalAggregation = _TABLE_NoTemporalAggregation.shapes.get


def _get_NoTemporalAggregation(r: Reader, pos: int) -> NoTemporalAggregation:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_NoTemporalAggregation(data[at : at + _U16(data, at)[0]]) or _TABLE_NoTemporalAggregation.learn(data, at)
    read(data, pos)
    return NoTemporalAggregation()


_pack_ExponentialMovingAverage = struct.Struct("<12s4x").pack


def _put_ExponentialMovingAverage(m: ExponentialMovingAverage) -> bytes:
    return _pack_ExponentialMovingAverage(b'\x04\x00\x04\x00\x00\x00\x00\x00\x08\x00\x00\x00')


_TABLE_ExponentialMovingAverage = Table("ExponentialMovingAverage", [], ())
_shape_ExponentialMovingAverage = _TABLE_ExponentialMovingAverage.shapes.get


def _get_ExponentialMovingAverage(r: Reader, pos: int) -> ExponentialMovingAverage:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_ExponentialMovingAverage(data[at : at + _U16(data, at)[0]]) or _TABLE_ExponentialMovingAverage.learn(data, at)
    read(data, pos)
    return ExponentialMovingAverage()


_pack_SlidingWindowOperation = struct.Struct("<12s4x").pack


def _put_SlidingWindowOperation(m: SlidingWindowOperation) -> bytes:
    return _pack_SlidingWindowOperation(b'\x04\x00\x04\x00\x00\x00\x00\x00\x08\x00\x00\x00')


_TABLE_SlidingWindowOperation = Table("SlidingWindowOperation", [], ())
_shape_SlidingWindowOperation = _TABLE_SlidingWindowOperation.shapes.get


def _get_SlidingWindowOperation(r: Reader, pos: int) -> SlidingWindowOperation:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_SlidingWindowOperation(data[at : at + _U16(data, at)[0]]) or _TABLE_SlidingWindowOperation.learn(data, at)
    read(data, pos)
    return SlidingWindowOperation()


_pack_NoResourcesAggregation = struct.Struct("<12s4x").pack


def _put_NoResourcesAggregation(m: NoResourcesAggregation) -> bytes:
    return _pack_NoResourcesAggregation(b'\x04\x00\x04\x00\x00\x00\x00\x00\x08\x00\x00\x00')


_TABLE_NoResourcesAggregation = Table("NoResourcesAggregation", [], ())
_shape_NoResourcesAggregation = _TABLE_NoResourcesAggregation.shapes.get


def _get_NoResourcesAggregation(r: Reader, pos: int) -> NoResourcesAggregation:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_NoResourcesAggregation(data[at : at + _U16(data, at)[0]]) or _TABLE_NoResourcesAggregation.learn(data, at)
    read(data, pos)
    return NoResourcesAggregation()


_pack_Sum = struct.Struct("<12s4x").pack


def _put_Sum(m: Sum) -> bytes:
    return _pack_Sum(b'\x04\x00\x04\x00\x00\x00\x00\x00\x08\x00\x00\x00')


_TABLE_Sum = Table("Sum", [], ())
_shape_Sum = _TABLE_Sum.shapes.get


def _get_Sum(r: Reader, pos: int) -> Sum:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_Sum(data[at : at + _U16(data, at)[0]]) or _TABLE_Sum.learn(data, at)
    read(data, pos)
    return Sum()


_pack_ArithmeticMean = struct.Struct("<12s4x").pack


def _put_ArithmeticMean(m: ArithmeticMean) -> bytes:
    return _pack_ArithmeticMean(b'\x04\x00\x04\x00\x00\x00\x00\x00\x08\x00\x00\x00')


_TABLE_ArithmeticMean = Table("ArithmeticMean", [], ())
_shape_ArithmeticMean = _TABLE_ArithmeticMean.shapes.get


def _get_ArithmeticMean(r: Reader, pos: int) -> ArithmeticMean:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_ArithmeticMean(data[at : at + _U16(data, at)[0]]) or _TABLE_ArithmeticMean.learn(data, at)
    read(data, pos)
    return ArithmeticMean()


_pack_QuantileFunction = struct.Struct("<12s4xd").pack


def _put_QuantileFunction(m: QuantileFunction) -> bytes:
    return _pack_QuantileFunction(b'\x06\x00\x10\x00\x08\x00\x00\x00\x08\x00\x00\x00', m.threshold)


_TABLE_QuantileFunction = Table("QuantileFunction", ["d"], (0.0,))
_shape_QuantileFunction = _TABLE_QuantileFunction.shapes.get


def _get_QuantileFunction(r: Reader, pos: int) -> QuantileFunction:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_QuantileFunction(data[at : at + _U16(data, at)[0]]) or _TABLE_QuantileFunction.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    return QuantileFunction(v[0])


_pack_NoFiltering = struct.Struct("<12s4x").pack


def _put_NoFiltering(m: NoFiltering) -> bytes:
    return _pack_NoFiltering(b'\x04\x00\x04\x00\x00\x00\x00\x00\x08\x00\x00\x00')


_TABLE_NoFiltering = Table("NoFiltering", [], ())
_shape_NoFiltering = _TABLE_NoFiltering.shapes.get


def _get_NoFiltering(r: Reader, pos: int) -> NoFiltering:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_NoFiltering(data[at : at + _U16(data, at)[0]]) or _TABLE_NoFiltering.learn(data, at)
    read(data, pos)
    return NoFiltering()


_pack_ThresholdFilteringFunction = struct.Struct("<12s4xdb7x").pack


def _put_ThresholdFilteringFunction(m: ThresholdFilteringFunction) -> bytes:
    return _pack_ThresholdFilteringFunction(b'\x08\x00\x11\x00\x08\x00\x10\x00\x08\x00\x00\x00', m.threshold, m.operator)


_TABLE_ThresholdFilteringFunction = Table("ThresholdFilteringFunction", ["d", "b"], (0.0, 0))
_shape_ThresholdFilteringFunction = _TABLE_ThresholdFilteringFunction.shapes.get


def _get_ThresholdFilteringFunction(r: Reader, pos: int) -> ThresholdFilteringFunction:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_ThresholdFilteringFunction(data[at : at + _U16(data, at)[0]]) or _TABLE_ThresholdFilteringFunction.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not 0 <= v[1] < 4:
        raise unknown_value("BooleanComparisonOperator", v[1])
    return ThresholdFilteringFunction(v[0], _VALUES_BooleanComparisonOperator[v[1]])


_pack_CreateProbeEvent = struct.Struct("<4sH2sHHHHHHHHHHHH4sIIIIIIIbBBBBBB1x").pack


def _put_CreateProbeEvent(m: CreateProbeEvent) -> bytes:
    v0 = m.probe_id
    if v0 is None:
        p0, o0 = b"", 0
    else:
        p0 = put_text(v0)
        o0 = 36
    v2 = m.resources
    if v2 is None:
        t2 = 0
        p2, o2 = b"", 0
    else:
        t2, put, at = _MEMBERS_Resources[type(v2)]
        p2 = put(v2)
        o2 = 32 + len(p0) + at
    v3 = m.data_accumulation_strategy
    if v3 is None:
        t3 = 0
        p3, o3 = b"", 0
    else:
        t3, put, at = _MEMBERS_ProbeDataAccumulationStrategy[type(v3)]
        p3 = put(v3)
        o3 = 28 + len(p0) + len(p2) + at
    v4 = m.measurement_triggering_policy
    if v4 is None:
        t4 = 0
        p4, o4 = b"", 0
    else:
        t4, put, at = _MEMBERS_ProbeMeasurementTriggeringPolicy[type(v4)]
        p4 = put(v4)
        o4 = 24 + len(p0) + len(p2) + len(p3) + at
    v5 = m.resources_aggregation_function
    if v5 is None:
        t5 = 0
        p5, o5 = b"", 0
    else:
        t5, put, at = _MEMBERS_ResourcesAggregationFunction[type(v5)]
        p5 = put(v5)
        o5 = 20 + len(p0) + len(p2) + len(p3) + len(p4) + at
    v6 = m.temporal_aggregation_function
    if v6 is None:
        t6 = 0
        p6, o6 = b"", 0
    else:
        t6, put, at = _MEMBERS_TemporalAggregationFunction[type(v6)]
        p6 = put(v6)
        o6 = 16 + len(p0) + len(p2) + len(p3) + len(p4) + len(p5) + at
    v7 = m.emission_filtering_policy
    if v7 is None:
        t7 = 0
        p7, o7 = b"", 0
    else:
        t7, put, at = _MEMBERS_ProbeEmissionFilteringPolicy[type(v7)]
        p7 = put(v7)
        o7 = 12 + len(p0) + len(p2) + len(p3) + len(p4) + len(p5) + len(p6) + at
    return _pack_CreateProbeEvent(b" \x00'\x00", 4 if o0 else 0, b' \x00', 33 if o2 else 0, 8 if o2 else 0, 34 if o3 else 0, 12 if o3 else 0, 35 if o4 else 0, 16 if o4 else 0, 36 if o5 else 0, 20 if o5 else 0, 37 if o6 else 0, 24 if o6 else 0, 38 if o7 else 0, 28 if o7 else 0, b' \x00\x00\x00', o0, o2, o3, o4, o5, o6, o7, m.metrics, t2, t3, t4, t5, t6, t7) + p0 + p2 + p3 + p4 + p5 + p6 + p7


_TABLE_CreateProbeEvent = Table("CreateProbeEvent", ["I", "b", "B", "I", "B", "I", "B", "I", "B", "I", "B", "I", "B", "I"], (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
_shape_CreateProbeEvent = _TABLE_CreateProbeEvent.shapes.get


def _get_CreateProbeEvent(r: Reader, pos: int) -> CreateProbeEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_CreateProbeEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_CreateProbeEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not 0 <= v[1] < 5:
        raise unknown_value("Metrics", v[1])
    if v[2] and not v[3]:
        raise missing("CreateProbeEvent", "resources")
    if v[4] and not v[5]:
        raise missing("CreateProbeEvent", "data_accumulation_strategy")
    if v[6] and not v[7]:
        raise missing("CreateProbeEvent", "measurement_triggering_policy")
    if v[8] and not v[9]:
        raise missing("CreateProbeEvent", "resources_aggregation_function")
    if v[10] and not v[11]:
        raise missing("CreateProbeEvent", "temporal_aggregation_function")
    if v[12] and not v[13]:
        raise missing("CreateProbeEvent", "emission_filtering_policy")
    return CreateProbeEvent(None if not v[0] else r.text(pos + d[0] + v[0]), _VALUES_Metrics[v[1]], None if not v[2] or not v[3] else _member_Resources(r, v[2], pos + d[3] + v[3]), None if not v[4] or not v[5] else _member_ProbeDataAccumulationStrategy(r, v[4], pos + d[5] + v[5]), None if not v[6] or not v[7] else _member_ProbeMeasurementTriggeringPolicy(r, v[6], pos + d[7] + v[7]), None if not v[8] or not v[9] else _member_ResourcesAggregationFunction(r, v[8], pos + d[9] + v[9]), None if not v[10] or not v[11] else _member_TemporalAggregationFunction(r, v[10], pos + d[11] + v[11]), None if not v[12] or not v[13] else _member_ProbeEmissionFilteringPolicy(r, v[12], pos + d[13] + v[13]))


_pack_StopProbeEvent = struct.Struct("<4sH6sI").pack


def _put_StopProbeEvent(m: StopProbeEvent) -> bytes:
    v0 = m.probe_id
    if v0 is None:
        p0, o0 = b"", 0
    else:
        p0 = put_text(v0)
        o0 = 4
    return _pack_StopProbeEvent(b'\x06\x00\x08\x00', 4 if o0 else 0, b'\x00\x00\x08\x00\x00\x00', o0) + p0


_TABLE_StopProbeEvent = Table("StopProbeEvent", ["I"], (0,))
_shape_StopProbeEvent = _TABLE_StopProbeEvent.shapes.get


def _get_StopProbeEvent(r: Reader, pos: int) -> StopProbeEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_StopProbeEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_StopProbeEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    return StopProbeEvent(None if not v[0] else r.text(pos + d[0] + v[0]))


_pack_ResetProbeEvent = struct.Struct("<4sH6sId").pack


def _put_ResetProbeEvent(m: ResetProbeEvent) -> bytes:
    v0 = m.probe_id
    if v0 is None:
        p0, o0 = b"", 0
    else:
        p0 = put_text(v0)
        o0 = 12
    return _pack_ResetProbeEvent(b'\x08\x00\x10\x00', 4 if o0 else 0, b'\x08\x00\x08\x00\x00\x00', o0, m.new_value) + p0


_TABLE_ResetProbeEvent = Table("ResetProbeEvent", ["I", "d"], (0, 0.0))
_shape_ResetProbeEvent = _TABLE_ResetProbeEvent.shapes.get


def _get_ResetProbeEvent(r: Reader, pos: int) -> ResetProbeEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_ResetProbeEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_ResetProbeEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    return ResetProbeEvent(None if not v[0] else r.text(pos + d[0] + v[0]), v[1])


_pack_TriggerProbeEvent = struct.Struct("<4sH6sI?7x").pack


def _put_TriggerProbeEvent(m: TriggerProbeEvent) -> bytes:
    v0 = m.probe_id
    if v0 is None:
        p0, o0 = b"", 0
    else:
        p0 = put_text(v0)
        o0 = 12
    return _pack_TriggerProbeEvent(b'\x08\x00\t\x00', 4 if o0 else 0, b'\x08\x00\x08\x00\x00\x00', o0, m.force_data_emission) + p0


_TABLE_TriggerProbeEvent = Table("TriggerProbeEvent", ["I", "?"], (0, True))
_shape_TriggerProbeEvent = _TABLE_TriggerProbeEvent.shapes.get


def _get_TriggerProbeEvent(r: Reader, pos: int) -> TriggerProbeEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_TriggerProbeEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_TriggerProbeEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    return TriggerProbeEvent(None if not v[0] else r.text(pos + d[0] + v[0]), v[1])


_pack_AggregatedProbeData = struct.Struct("<12s4xd").pack


def _put_AggregatedProbeData(m: AggregatedProbeData) -> bytes:
    return _pack_AggregatedProbeData(b'\x06\x00\x10\x00\x08\x00\x00\x00\x08\x00\x00\x00', m.data)


_TABLE_AggregatedProbeData = Table("AggregatedProbeData", ["d"], (0.0,))
_shape_AggregatedProbeData = _TABLE_AggregatedProbeData.shapes.get


def _get_AggregatedProbeData(r: Reader, pos: int) -> AggregatedProbeData:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_AggregatedProbeData(data[at : at + _U16(data, at)[0]]) or _TABLE_AggregatedProbeData.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    return AggregatedProbeData(v[0])


_pack_VectorialProbeData = struct.Struct("<4sH6sI").pack


def _put_VectorialProbeData(m: VectorialProbeData) -> bytes:
    v0 = m.data
    if v0 is None:
        p0, o0 = b"", 0
    else:
        p0 = put_numbers("d", 8, v0)
        o0 = 4 + 4
    return _pack_VectorialProbeData(b'\x06\x00\x08\x00', 4 if o0 else 0, b'\x00\x00\x08\x00\x00\x00', o0) + p0


_TABLE_VectorialProbeData = Table("VectorialProbeData", ["I"], (0,))
_shape_VectorialProbeData = _TABLE_VectorialProbeData.shapes.get


def _get_VectorialProbeData(r: Reader, pos: int) -> VectorialProbeData:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_VectorialProbeData(data[at : at + _U16(data, at)[0]]) or _TABLE_VectorialProbeData.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    return VectorialProbeData(None if not v[0] else r.numbers(pos + d[0] + v[0], "d", 8))


_pack_ProbeDataEmittedEvent = struct.Struct("<4sHHH2sHH12sIIIIIBbB?4x").pack


def _put_ProbeDataEmittedEvent(m: ProbeDataEmittedEvent) -> bytes:
    v0 = m.probe_id
    if v0 is None:
        p0, o0 = b"", 0
    else:
        p0 = put_text(v0)
        o0 = 28
    v1 = m.resources
    if v1 is None:
        t1 = 0
        p1, o1 = b"", 0
    else:
        t1, put, at = _MEMBERS_Resources[type(v1)]
        p1 = put(v1)
        o1 = 24 + len(p0) + at
    v3 = m.data
    if v3 is None:
        t3 = 0
        p3, o3 = b"", 0
    else:
        t3, put, at = _MEMBERS_ProbeData[type(v3)]
        p3 = put(v3)
        o3 = 20 + len(p0) + len(p1) + at
    return _pack_ProbeDataEmittedEvent(b'\x16\x00\x1c\x00', 4 if o0 else 0, 24 if o1 else 0, 8 if o1 else 0, b'\x19\x00', 26 if o3 else 0, 12 if o3 else 0, b'\x1b\x00\x10\x00\x14\x00\x00\x00\x18\x00\x00\x00', o0, o1, o3, m.nb_emitted, m.nb_triggered, t1, m.metrics, t3, m.manually_triggered) + p0 + p1 + p3


_TABLE_ProbeDataEmittedEvent = Table("ProbeDataEmittedEvent", ["I", "B", "I", "b", "B", "I", "?", "I", "I"], (0, 0, 0, 0, 0, 0, False, 0, 0))
_shape_ProbeDataEmittedEvent = _TABLE_ProbeDataEmittedEvent.shapes.get


def _get_ProbeDataEmittedEvent(r: Reader, pos: int) -> ProbeDataEmittedEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_ProbeDataEmittedEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_ProbeDataEmittedEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if v[1] and not v[2]:
        raise missing("ProbeDataEmittedEvent", "resources")
    if not 0 <= v[3] < 5:
        raise unknown_value("Metrics", v[3])
    if v[4] and not v[5]:
        raise missing("ProbeDataEmittedEvent", "data")
    return ProbeDataEmittedEvent(None if not v[0] else r.text(pos + d[0] + v[0]), None if not v[1] or not v[2] else _member_Resources(r, v[1], pos + d[2] + v[2]), _VALUES_Metrics[v[3]], None if not v[4] or not v[5] else _member_ProbeData(r, v[4], pos + d[5] + v[5]), v[6], v[7], v[8])


_pack_OneShot = struct.Struct("<12s4xQb7x").pack


def _put_OneShot(m: OneShot) -> bytes:
    return _pack_OneShot(b'\x08\x00\x11\x00\x08\x00\x10\x00\x08\x00\x00\x00', m.time, m.time_unit)


_TABLE_OneShot = Table("OneShot", ["Q", "b"], (0, 0))
_shape_OneShot = _TABLE_OneShot.shapes.get


def _get_OneShot(r: Reader, pos: int) -> OneShot:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_OneShot(data[at : at + _U16(data, at)[0]]) or _TABLE_OneShot.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not 0 <= v[1] < 2:
        raise unknown_value("TimeUnit", v[1])
    return OneShot(v[0], _VALUES_TimeUnit[v[1]])


_pack_Infinite = struct.Struct("<12s4x").pack


def _put_Infinite(m: Infinite) -> bytes:
    return _pack_Infinite(b'\x04\x00\x04\x00\x00\x00\x00\x00\x08\x00\x00\x00')


_TABLE_Infinite = Table("Infinite", [], ())
_shape_Infinite = _TABLE_Infinite.shapes.get


def _get_Infinite(r: Reader, pos: int) -> Infinite:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_Infinite(data[at : at + _U16(data, at)[0]]) or _TABLE_Infinite.learn(data, at)
    read(data, pos)
    return Infinite()


_pack_FinitePeriodNumber = struct.Struct("<12sI").pack


def _put_FinitePeriodNumber(m: FinitePeriodNumber) -> bytes:
    return _pack_FinitePeriodNumber(b'\x06\x00\x08\x00\x04\x00\x00\x00\x08\x00\x00\x00', m.nb_periods)


_TABLE_FinitePeriodNumber = Table("FinitePeriodNumber", ["I"], (0,))
_shape_FinitePeriodNumber = _TABLE_FinitePeriodNumber.shapes.get


def _get_FinitePeriodNumber(r: Reader, pos: int) -> FinitePeriodNumber:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_FinitePeriodNumber(data[at : at + _U16(data, at)[0]]) or _TABLE_FinitePeriodNumber.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    return FinitePeriodNumber(v[0])


_pack_Periodic = struct.Struct("<10sHH6sIQQbB6x").pack


def _put_Periodic(m: Periodic) -> bytes:
    v3 = m.mode
    if v3 is None:
        t3 = 0
        p3, o3 = b"", 0
    else:
        t3, put, at = _MEMBERS_PeriodicMode[type(v3)]
        p3 = put(v3)
        o3 = 28 + at
    return _pack_Periodic(b'\x0e\x00\x1a\x00\x08\x00\x10\x00\x18\x00', 25 if o3 else 0, 4 if o3 else 0, b'\x00\x00\x10\x00\x00\x00', o3, m.period, m.offset, m.time_unit, t3) + p3


_TABLE_Periodic = Table("Periodic", ["Q", "Q", "b", "B", "I"], (0, 0, 0, 0, 0))
_shape_Periodic = _TABLE_Periodic.shapes.get


def _get_Periodic(r: Reader, pos: int) -> Periodic:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_Periodic(data[at : at + _U16(data, at)[0]]) or _TABLE_Periodic.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not 0 <= v[2] < 2:
        raise unknown_value("TimeUnit", v[2])
    if v[3] and not v[4]:
        raise missing("Periodic", "mode")
    return Periodic(v[0], v[1], _VALUES_TimeUnit[v[2]], None if not v[3] or not v[4] else _member_PeriodicMode(r, v[3], pos + d[4] + v[4]))


_pack_TemporalTriggerWrapper = struct.Struct("<4sHH4sIB7x").pack


def _put_TemporalTriggerWrapper(m: TemporalTriggerWrapper) -> bytes:
    v0 = m.temporal_trigger
    if v0 is None:
        t0 = 0
        p0, o0 = b"", 0
    else:
        t0, put, at = _MEMBERS_TemporalTrigger[type(v0)]
        p0 = put(v0)
        o0 = 12 + at
    return _pack_TemporalTriggerWrapper(b'\x08\x00\t\x00', 8 if o0 else 0, 4 if o0 else 0, b'\x08\x00\x00\x00', o0, t0) + p0


_TABLE_TemporalTriggerWrapper = Table("TemporalTriggerWrapper", ["B", "I"], (0, 0))
_shape_TemporalTriggerWrapper = _TABLE_TemporalTriggerWrapper.shapes.get


def _get_TemporalTriggerWrapper(r: Reader, pos: int) -> TemporalTriggerWrapper:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_TemporalTriggerWrapper(data[at : at + _U16(data, at)[0]]) or _TABLE_TemporalTriggerWrapper.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if v[0] and not v[1]:
        raise missing("TemporalTriggerWrapper", "temporal_trigger")
    return TemporalTriggerWrapper(None if not v[0] or not v[1] else _member_TemporalTrigger(r, v[0], pos + d[1] + v[1]))


_pack_CallMeLaterEvent = struct.Struct("<20sIIB3x").pack


def _put_CallMeLaterEvent(m: CallMeLaterEvent) -> bytes:
    v0 = m.call_me_later_id
    p0 = put_text(v0)
    o0 = 12
    v1 = m.when
    t1, put, at = _MEMBERS_TemporalTrigger[type(v1)]
    p1 = put(v1)
    o1 = 8 + len(p0) + at
    return _pack_CallMeLaterEvent(b'\n\x00\r\x00\x04\x00\x0c\x00\x08\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00', o0, o1, t1) + p0 + p1


_TABLE_CallMeLaterEvent = Table("CallMeLaterEvent", ["I", "B", "I"], (0, 0, 0))
_shape_CallMeLaterEvent = _TABLE_CallMeLaterEvent.shapes.get


def _get_CallMeLaterEvent(r: Reader, pos: int) -> CallMeLaterEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_CallMeLaterEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_CallMeLaterEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("CallMeLaterEvent", "call_me_later_id")
    if not v[1] or not v[2]:
        raise missing("CallMeLaterEvent", "when")
    return CallMeLaterEvent(r.text(pos + d[0] + v[0]), _member_TemporalTrigger(r, v[1], pos + d[2] + v[2]))


_pack_RequestedCallEvent = struct.Struct("<12sI?7x").pack


def _put_RequestedCallEvent(m: RequestedCallEvent) -> bytes:
    v0 = m.call_me_later_id
    p0 = put_text(v0)
    o0 = 12
    return _pack_RequestedCallEvent(b'\x08\x00\t\x00\x04\x00\x08\x00\x08\x00\x00\x00', o0, m.last_periodic_call) + p0


_TABLE_RequestedCallEvent = Table("RequestedCallEvent", ["I", "?"], (0, False))
_shape_RequestedCallEvent = _TABLE_RequestedCallEvent.shapes.get


def _get_RequestedCallEvent(r: Reader, pos: int) -> RequestedCallEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_RequestedCallEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_RequestedCallEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("RequestedCallEvent", "call_me_later_id")
    return RequestedCallEvent(r.text(pos + d[0] + v[0]), v[1])


_pack_StopCallMeLaterEvent = struct.Struct("<12sI").pack


def _put_StopCallMeLaterEvent(m: StopCallMeLaterEvent) -> bytes:
    v0 = m.call_me_later_id
    p0 = put_text(v0)
    o0 = 4
    return _pack_StopCallMeLaterEvent(b'\x06\x00\x08\x00\x04\x00\x00\x00\x08\x00\x00\x00', o0) + p0


_TABLE_StopCallMeLaterEvent = Table("StopCallMeLaterEvent", ["I"], (0,))
_shape_StopCallMeLaterEvent = _TABLE_StopCallMeLaterEvent.shapes.get


def _get_StopCallMeLaterEvent(r: Reader, pos: int) -> StopCallMeLaterEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_StopCallMeLaterEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_StopCallMeLaterEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("StopCallMeLaterEvent", "call_me_later_id")
    return StopCallMeLaterEvent(r.text(pos + d[0] + v[0]))


_pack_BatsimHelloEvent = struct.Struct("<8sH10sIII").pack


def _put_BatsimHelloEvent(m: BatsimHelloEvent) -> bytes:
    v0 = m.batprotocol_version
    p0 = put_text(v0)
    o0 = 12
    v1 = m.batsim_version
    p1 = put_text(v1)
    o1 = 8 + len(p0)
    v2 = m.batsim_commit
    if v2 is None:
        p2, o2 = b"", 0
    else:
        p2 = put_text(v2)
        o2 = 4 + len(p0) + len(p1)
    return _pack_BatsimHelloEvent(b'\n\x00\x10\x00\x04\x00\x08\x00', 12 if o2 else 0, b'\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00', o0, o1, o2) + p0 + p1 + p2


_TABLE_BatsimHelloEvent = Table("BatsimHelloEvent", ["I", "I", "I"], (0, 0, 0))
_shape_BatsimHelloEvent = _TABLE_BatsimHelloEvent.shapes.get


def _get_BatsimHelloEvent(r: Reader, pos: int) -> BatsimHelloEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_BatsimHelloEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_BatsimHelloEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("BatsimHelloEvent", "batprotocol_version")
    if not v[1]:
        raise missing("BatsimHelloEvent", "batsim_version")
    return BatsimHelloEvent(r.text(pos + d[0] + v[0]), r.text(pos + d[1] + v[1]), None if not v[2] else r.text(pos + d[2] + v[2]))


_pack_EDCRequestedSimulationFeatures = struct.Struct("<28s???????5x").pack


def _put_EDCRequestedSimulationFeatures(m: EDCRequestedSimulationFeatures) -> bytes:
    return _pack_EDCRequestedSimulationFeatures(b'\x12\x00\x0b\x00\x04\x00\x05\x00\x06\x00\x07\x00\x08\x00\t\x00\n\x00\x00\x00\x00\x00\x00\x00\x18\x00\x00\x00', m.dynamic_registration, m.profile_reuse, m.acknowledge_dynamic_jobs, m.forward_profiles_on_job_submission, m.forward_profiles_on_jobs_killed, m.forward_profiles_on_simulation_begins, m.forward_unknown_external_events)


_TABLE_EDCRequestedSimulationFeatures = Table("EDCRequestedSimulationFeatures", ["?", "?", "?", "?", "?", "?", "?"], (False, False, False, False, False, False, False))
_shape_EDCRequestedSimulationFeatures = _TABLE_EDCRequestedSimulationFeatures.shapes.get


def _get_EDCRequestedSimulationFeatures(r: Reader, pos: int) -> EDCRequestedSimulationFeatures:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_EDCRequestedSimulationFeatures(data[at : at + _U16(data, at)[0]]) or _TABLE_EDCRequestedSimulationFeatures.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    return EDCRequestedSimulationFeatures(v[0], v[1], v[2], v[3], v[4], v[5], v[6])


_pack_EDCSchedulingConstraints = struct.Struct("<20s??b1x").pack


def _put_EDCSchedulingConstraints(m: EDCSchedulingConstraints) -> bytes:
    return _pack_EDCSchedulingConstraints(b'\n\x00\x07\x00\x04\x00\x05\x00\x06\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00', m.compute_sharing, m.storage_sharing, m.job_allocation_validation_strategy)


_TABLE_EDCSchedulingConstraints = Table("EDCSchedulingConstraints", ["?", "?", "b"], (False, True, 1))
_shape_EDCSchedulingConstraints = _TABLE_EDCSchedulingConstraints.shapes.get


def _get_EDCSchedulingConstraints(r: Reader, pos: int) -> EDCSchedulingConstraints:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_EDCSchedulingConstraints(data[at : at + _U16(data, at)[0]]) or _TABLE_EDCSchedulingConstraints.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not 0 <= v[2] < 3:
        raise unknown_value("JobAllocationValidationStrategy", v[2])
    return EDCSchedulingConstraints(v[0], v[1], _VALUES_JobAllocationValidationStrategy[v[2]])


_pack_EDCHelloEvent = struct.Struct("<10sHHH4sIIIIII4x").pack


def _put_EDCHelloEvent(m: EDCHelloEvent) -> bytes:
    v0 = m.batprotocol_version
    p0 = put_text(v0)
    o0 = 28
    v1 = m.decision_component_name
    p1 = put_text(v1)
    o1 = 24 + len(p0)
    v2 = m.decision_component_version
    p2 = put_text(v2)
    o2 = 20 + len(p0) + len(p1)
    v3 = m.decision_component_commit
    if v3 is None:
        p3, o3 = b"", 0
    else:
        p3 = put_text(v3)
        o3 = 16 + len(p0) + len(p1) + len(p2)
    v4 = m.requested_simulation_features
    if v4 is None:
        p4, o4 = b"", 0
    else:
        p4 = _put_EDCRequestedSimulationFeatures(v4)
        o4 = 12 + len(p0) + len(p1) + len(p2) + len(p3) + 24
    v5 = m.scheduling_constraints
    if v5 is None:
        p5, o5 = b"", 0
    else:
        p5 = _put_EDCSchedulingConstraints(v5)
        o5 = 8 + len(p0) + len(p1) + len(p2) + len(p3) + len(p4) + 16
    return _pack_EDCHelloEvent(b'\x10\x00\x1c\x00\x04\x00\x08\x00\x0c\x00', 16 if o3 else 0, 20 if o4 else 0, 24 if o5 else 0, b'\x10\x00\x00\x00', o0, o1, o2, o3, o4, o5) + p0 + p1 + p2 + p3 + p4 + p5


_TABLE_EDCHelloEvent = Table("EDCHelloEvent", ["I", "I", "I", "I", "I", "I"], (0, 0, 0, 0, 0, 0))
_shape_EDCHelloEvent = _TABLE_EDCHelloEvent.shapes.get


def _get_EDCHelloEvent(r: Reader, pos: int) -> EDCHelloEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_EDCHelloEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_EDCHelloEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("EDCHelloEvent", "batprotocol_version")
    if not v[1]:
        raise missing("EDCHelloEvent", "decision_component_name")
    if not v[2]:
        raise missing("EDCHelloEvent", "decision_component_version")
    return EDCHelloEvent(r.text(pos + d[0] + v[0]), r.text(pos + d[1] + v[1]), r.text(pos + d[2] + v[2]), None if not v[3] else r.text(pos + d[3] + v[3]), None if not v[4] else _get_EDCRequestedSimulationFeatures(r, pos + d[4] + v[4]), None if not v[5] else _get_EDCSchedulingConstraints(r, pos + d[5] + v[5]))


_pack_HostProperty = struct.Struct("<12sII4x").pack


def _put_HostProperty(m: HostProperty) -> bytes:
    v0 = m.key
    p0 = put_text(v0)
    o0 = 12
    v1 = m.value
    p1 = put_text(v1)
    o1 = 8 + len(p0)
    return _pack_HostProperty(b'\x08\x00\x0c\x00\x04\x00\x08\x00\x08\x00\x00\x00', o0, o1) + p0 + p1


_TABLE_HostProperty = Table("HostProperty", ["I", "I"], (0, 0))
_shape_HostProperty = _TABLE_HostProperty.shapes.get


def _get_HostProperty(r: Reader, pos: int) -> HostProperty:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_HostProperty(data[at : at + _U16(data, at)[0]]) or _TABLE_HostProperty.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("HostProperty", "key")
    if not v[1]:
        raise missing("HostProperty", "value")
    return HostProperty(r.text(pos + d[0] + v[0]), r.text(pos + d[1] + v[1]))


_pack_Host = struct.Struct("<14sHH2sH6sIIIIIIIIb3x").pack


def _put_Host(m: Host) -> bytes:
    v1 = m.name
    p1 = put_text(v1)
    o1 = 32
    v5 = m.properties
    if v5 is None:
        p5, o5 = b"", 0
    else:
        p5 = put_parts([_put_HostProperty(x) for x in v5], 8)
        o5 = 20 + len(p1)
    v6 = m.zone_properties
    if v6 is None:
        p6, o6 = b"", 0
    else:
        p6 = put_parts([_put_HostProperty(x) for x in v6], 8)
        o6 = 16 + len(p1) + len(p5)
    v8 = m.computation_speed
    if v8 is None:
        p8, o8 = b"", 0
    else:
        p8 = put_numbers("d", 8, v8)
        o8 = 8 + len(p1) + len(p5) + len(p6) + 4
    return _pack_Host(b'\x16\x00%\x00\x04\x00\x08\x00\x0c\x00\x10\x00$\x00', 20 if o5 else 0, 24 if o6 else 0, b'\x1c\x00', 32 if o8 else 0, b'\x00\x00\x18\x00\x00\x00', m.id, o1, m.pstate, m.pstate_count, o5, o6, m.core_count, o8, m.state) + p1 + p5 + p6 + p8


_TABLE_Host = Table("Host", ["I", "I", "I", "I", "b", "I", "I", "I", "I"], (0, 0, 0, 1, 0, 0, 0, 1, 0))
_shape_Host = _TABLE_Host.shapes.get


def _get_Host(r: Reader, pos: int) -> Host:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_Host(data[at : at + _U16(data, at)[0]]) or _TABLE_Host.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[1]:
        raise missing("Host", "name")
    if not 0 <= v[4] < 5:
        raise unknown_value("HostState", v[4])
    return Host(r.text(pos + d[1] + v[1]), v[0], v[2], v[3], _VALUES_HostState[v[4]], None if not v[5] else [_get_HostProperty(r, at) for at in r.places(pos + d[5] + v[5])], None if not v[6] else [_get_HostProperty(r, at) for at in r.places(pos + d[6] + v[6])], v[7], None if not v[8] else r.numbers(pos + d[8] + v[8], "d", 8))


_pack_WorkloadAndFilename = struct.Struct("<12sII4x").pack


def _put_WorkloadAndFilename(m: WorkloadAndFilename) -> bytes:
    v0 = m.name
    p0 = put_text(v0)
    o0 = 12
    v1 = m.filename
    p1 = put_text(v1)
    o1 = 8 + len(p0)
    return _pack_WorkloadAndFilename(b'\x08\x00\x0c\x00\x04\x00\x08\x00\x08\x00\x00\x00', o0, o1) + p0 + p1


_TABLE_WorkloadAndFilename = Table("WorkloadAndFilename", ["I", "I"], (0, 0))
_shape_WorkloadAndFilename = _TABLE_WorkloadAndFilename.shapes.get


def _get_WorkloadAndFilename(r: Reader, pos: int) -> WorkloadAndFilename:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_WorkloadAndFilename(data[at : at + _U16(data, at)[0]]) or _TABLE_WorkloadAndFilename.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("WorkloadAndFilename", "name")
    if not v[1]:
        raise missing("WorkloadAndFilename", "filename")
    return WorkloadAndFilename(r.text(pos + d[0] + v[0]), r.text(pos + d[1] + v[1]))


_pack_ExternalEventListAndFilename = struct.Struct("<12sII4x").pack


def _put_ExternalEventListAndFilename(m: ExternalEventListAndFilename) -> bytes:
    v0 = m.name
    p0 = put_text(v0)
    o0 = 12
    v1 = m.filename
    p1 = put_text(v1)
    o1 = 8 + len(p0)
    return _pack_ExternalEventListAndFilename(b'\x08\x00\x0c\x00\x04\x00\x08\x00\x08\x00\x00\x00', o0, o1) + p0 + p1


_TABLE_ExternalEventListAndFilename = Table("ExternalEventListAndFilename", ["I", "I"], (0, 0))
_shape_ExternalEventListAndFilename = _TABLE_ExternalEventListAndFilename.shapes.get


def _get_ExternalEventListAndFilename(r: Reader, pos: int) -> ExternalEventListAndFilename:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_ExternalEventListAndFilename(data[at : at + _U16(data, at)[0]]) or _TABLE_ExternalEventListAndFilename.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("ExternalEventListAndFilename", "name")
    if not v[1]:
        raise missing("ExternalEventListAndFilename", "filename")
    return ExternalEventListAndFilename(r.text(pos + d[0] + v[0]), r.text(pos + d[1] + v[1]))


_pack_SimulationBeginsEvent = struct.Struct("<8sH2sHH2sHHHHHH6sIIIIIIIIIIIII").pack


def _put_SimulationBeginsEvent(m: SimulationBeginsEvent) -> bytes:
    v2 = m.computation_hosts
    if v2 is None:
        p2, o2 = b"", 0
    else:
        p2 = put_parts([_put_Host(x) for x in v2], 24)
        o2 = 44
    v4 = m.storage_hosts
    if v4 is None:
        p4, o4 = b"", 0
    else:
        p4 = put_parts([_put_Host(x) for x in v4], 24)
        o4 = 36 + len(p2)
    v5 = m.batsim_arguments
    if v5 is None:
        p5, o5 = b"", 0
    else:
        p5 = put_parts([put_text(x) for x in v5], 0)
        o5 = 32 + len(p2) + len(p4)
    v6 = m.batsim_execution_context_json
    p6 = put_text(v6)
    o6 = 28 + len(p2) + len(p4) + len(p5)
    v7 = m.workloads
    if v7 is None:
        p7, o7 = b"", 0
    else:
        p7 = put_parts([_put_WorkloadAndFilename(x) for x in v7], 8)
        o7 = 24 + len(p2) + len(p4) + len(p5) + len(p6)
    v8 = m.profiles
    if v8 is None:
        p8, o8 = b"", 0
    else:
        p8 = put_parts([_put_ProfileAndId(x) for x in v8], 16)
        o8 = 20 + len(p2) + len(p4) + len(p5) + len(p6) + len(p7)
    v9 = m.external_event_lists
    if v9 is None:
        p9, o9 = b"", 0
    else:
        p9 = put_parts([_put_ExternalEventListAndFilename(x) for x in v9], 8)
        o9 = 16 + len(p2) + len(p4) + len(p5) + len(p6) + len(p7) + len(p8)
    v10 = m.batprotocol_version
    if v10 is None:
        p10, o10 = b"", 0
    else:
        p10 = put_text(v10)
        o10 = 12 + len(p2) + len(p4) + len(p5) + len(p6) + len(p7) + len(p8) + len(p9)
    v11 = m.batsim_version
    if v11 is None:
        p11, o11 = b"", 0
    else:
        p11 = put_text(v11)
        o11 = 8 + len(p2) + len(p4) + len(p5) + len(p6) + len(p7) + len(p8) + len(p9) + len(p10)
    v12 = m.batsim_commit
    if v12 is None:
        p12, o12 = b"", 0
    else:
        p12 = put_text(v12)
        o12 = 4 + len(p2) + len(p4) + len(p5) + len(p6) + len(p7) + len(p8) + len(p9) + len(p10) + len(p11)
    return _pack_SimulationBeginsEvent(b'\x1e\x008\x00\x04\x00\x08\x00', 12 if o2 else 0, b'\x10\x00', 20 if o4 else 0, 24 if o5 else 0, b'\x1c\x00', 32 if o7 else 0, 36 if o8 else 0, 40 if o9 else 0, 44 if o10 else 0, 48 if o11 else 0, 52 if o12 else 0, b'\x00\x00 \x00\x00\x00', m.host_number, m.computation_host_number, o2, m.storage_host_number, o4, o5, o6, o7, o8, o9, o10, o11, o12) + p2 + p4 + p5 + p6 + p7 + p8 + p9 + p10 + p11 + p12


_TABLE_SimulationBeginsEvent = Table("SimulationBeginsEvent", ["I", "I", "I", "I", "I", "I", "I", "I", "I", "I", "I", "I", "I"], (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
_shape_SimulationBeginsEvent = _TABLE_SimulationBeginsEvent.shapes.get


def _get_SimulationBeginsEvent(r: Reader, pos: int) -> SimulationBeginsEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_SimulationBeginsEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_SimulationBeginsEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[6]:
        raise missing("SimulationBeginsEvent", "batsim_execution_context_json")
    return SimulationBeginsEvent(r.text(pos + d[6] + v[6]), v[0], v[1], None if not v[2] else [_get_Host(r, at) for at in r.places(pos + d[2] + v[2])], v[3], None if not v[4] else [_get_Host(r, at) for at in r.places(pos + d[4] + v[4])], None if not v[5] else r.texts(pos + d[5] + v[5]), None if not v[7] else [_get_WorkloadAndFilename(r, at) for at in r.places(pos + d[7] + v[7])], None if not v[8] else [_get_ProfileAndId(r, at) for at in r.places(pos + d[8] + v[8])], None if not v[9] else [_get_ExternalEventListAndFilename(r, at) for at in r.places(pos + d[9] + v[9])], None if not v[10] else r.text(pos + d[10] + v[10]), None if not v[11] else r.text(pos + d[11] + v[11]), None if not v[12] else r.text(pos + d[12] + v[12]))


_pack_SimulationEndsEvent = struct.Struct("<12s4x").pack


def _put_SimulationEndsEvent(m: SimulationEndsEvent) -> bytes:
    return _pack_SimulationEndsEvent(b'\x04\x00\x04\x00\x00\x00\x00\x00\x08\x00\x00\x00')


_TABLE_SimulationEndsEvent = Table("SimulationEndsEvent", [], ())
_shape_SimulationEndsEvent = _TABLE_SimulationEndsEvent.shapes.get


def _get_SimulationEndsEvent(r: Reader, pos: int) -> SimulationEndsEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_SimulationEndsEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_SimulationEndsEvent.learn(data, at)
    read(data, pos)
    return SimulationEndsEvent()


_pack_AllStaticJobsHaveBeenSubmittedEvent = struct.Struct("<12s4x").pack


def _put_AllStaticJobsHaveBeenSubmittedEvent(m: AllStaticJobsHaveBeenSubmittedEvent) -> bytes:
    return _pack_AllStaticJobsHaveBeenSubmittedEvent(b'\x04\x00\x04\x00\x00\x00\x00\x00\x08\x00\x00\x00')


_TABLE_AllStaticJobsHaveBeenSubmittedEvent = Table("AllStaticJobsHaveBeenSubmittedEvent", [], ())
_shape_AllStaticJobsHaveBeenSubmittedEvent = _TABLE_AllStaticJobsHaveBeenSubmittedEvent.shapes.get


def _get_AllStaticJobsHaveBeenSubmittedEvent(r: Reader, pos: int) -> AllStaticJobsHaveBeenSubmittedEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_AllStaticJobsHaveBeenSubmittedEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_AllStaticJobsHaveBeenSubmittedEvent.learn(data, at)
    read(data, pos)
    return AllStaticJobsHaveBeenSubmittedEvent()


_pack_AllStaticExternalEventsHaveBeenInjectedEvent = struct.Struct("<12s4x").pack


def _put_AllStaticExternalEventsHaveBeenInjectedEvent(m: AllStaticExternalEventsHaveBeenInjectedEvent) -> bytes:
    return _pack_AllStaticExternalEventsHaveBeenInjectedEvent(b'\x04\x00\x04\x00\x00\x00\x00\x00\x08\x00\x00\x00')


_TABLE_AllStaticExternalEventsHaveBeenInjectedEvent = Table("AllStaticExternalEventsHaveBeenInjectedEvent", [], ())
_shape_AllStaticExternalEventsHaveBeenInjectedEvent = _TABLE_AllStaticExternalEventsHaveBeenInjectedEvent.shapes.get


def _get_AllStaticExternalEventsHaveBeenInjectedEvent(r: Reader, pos: int) -> AllStaticExternalEventsHaveBeenInjectedEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_AllStaticExternalEventsHaveBeenInjectedEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_AllStaticExternalEventsHaveBeenInjectedEvent.learn(data, at)
    read(data, pos)
    return AllStaticExternalEventsHaveBeenInjectedEvent()


_pack_FinishRegistrationEvent = struct.Struct("<12s4x").pack


def _put_FinishRegistrationEvent(m: FinishRegistrationEvent) -> bytes:
    return _pack_FinishRegistrationEvent(b'\x04\x00\x04\x00\x00\x00\x00\x00\x08\x00\x00\x00')


_TABLE_FinishRegistrationEvent = Table("FinishRegistrationEvent", [], ())
_shape_FinishRegistrationEvent = _TABLE_FinishRegistrationEvent.shapes.get


def _get_FinishRegistrationEvent(r: Reader, pos: int) -> FinishRegistrationEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_FinishRegistrationEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_FinishRegistrationEvent.learn(data, at)
    read(data, pos)
    return FinishRegistrationEvent()


_pack_ForceSimulationStopEvent = struct.Struct("<12s4x").pack


def _put_ForceSimulationStopEvent(m: ForceSimulationStopEvent) -> bytes:
    return _pack_ForceSimulationStopEvent(b'\x04\x00\x04\x00\x00\x00\x00\x00\x08\x00\x00\x00')


_TABLE_ForceSimulationStopEvent = Table("ForceSimulationStopEvent", [], ())
_shape_ForceSimulationStopEvent = _TABLE_ForceSimulationStopEvent.shapes.get


def _get_ForceSimulationStopEvent(r: Reader, pos: int) -> ForceSimulationStopEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_ForceSimulationStopEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_ForceSimulationStopEvent.learn(data, at)
    read(data, pos)
    return ForceSimulationStopEvent()


_pack_GenericExternalEvent = struct.Struct("<4sH6sI").pack


def _put_GenericExternalEvent(m: GenericExternalEvent) -> bytes:
    v0 = m.data
    if v0 is None:
        p0, o0 = b"", 0
    else:
        p0 = put_text(v0)
        o0 = 4
    return _pack_GenericExternalEvent(b'\x06\x00\x08\x00', 4 if o0 else 0, b'\x00\x00\x08\x00\x00\x00', o0) + p0


_TABLE_GenericExternalEvent = Table("GenericExternalEvent", ["I"], (0,))
_shape_GenericExternalEvent = _TABLE_GenericExternalEvent.shapes.get


def _get_GenericExternalEvent(r: Reader, pos: int) -> GenericExternalEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_GenericExternalEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_GenericExternalEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    return GenericExternalEvent(None if not v[0] else r.text(pos + d[0] + v[0]))


_pack_ExternalEventOccurredEvent = struct.Struct("<4sHHH10sIIB3x").pack


def _put_ExternalEventOccurredEvent(m: ExternalEventOccurredEvent) -> bytes:
    v0 = m.id
    if v0 is None:
        p0, o0 = b"", 0
    else:
        p0 = put_text(v0)
        o0 = 12
    v1 = m.external_event
    if v1 is None:
        t1 = 0
        p1, o1 = b"", 0
    else:
        t1, put, at = _MEMBERS_ExternalEvent[type(v1)]
        p1 = put(v1)
        o1 = 8 + len(p0) + at
    return _pack_ExternalEventOccurredEvent(b'\n\x00\r\x00', 4 if o0 else 0, 12 if o1 else 0, 8 if o1 else 0, b'\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00', o0, o1, t1) + p0 + p1


_TABLE_ExternalEventOccurredEvent = Table("ExternalEventOccurredEvent", ["I", "B", "I"], (0, 0, 0))
_shape_ExternalEventOccurredEvent = _TABLE_ExternalEventOccurredEvent.shapes.get


def _get_ExternalEventOccurredEvent(r: Reader, pos: int) -> ExternalEventOccurredEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_ExternalEventOccurredEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_ExternalEventOccurredEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if v[1] and not v[2]:
        raise missing("ExternalEventOccurredEvent", "external_event")
    return ExternalEventOccurredEvent(None if not v[0] else r.text(pos + d[0] + v[0]), None if not v[1] or not v[2] else _member_ExternalEvent(r, v[1], pos + d[2] + v[2]))


_pack_ChangeHostsPStateEvent = struct.Struct("<12sII4x").pack


def _put_ChangeHostsPStateEvent(m: ChangeHostsPStateEvent) -> bytes:
    v0 = m.host_ids
    p0 = put_text(v0)
    o0 = 12
    return _pack_ChangeHostsPStateEvent(b'\x08\x00\x0c\x00\x04\x00\x08\x00\x08\x00\x00\x00', o0, m.pstate) + p0


_TABLE_ChangeHostsPStateEvent = Table("ChangeHostsPStateEvent", ["I", "I"], (0, 0))
_shape_ChangeHostsPStateEvent = _TABLE_ChangeHostsPStateEvent.shapes.get


def _get_ChangeHostsPStateEvent(r: Reader, pos: int) -> ChangeHostsPStateEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_ChangeHostsPStateEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_ChangeHostsPStateEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("ChangeHostsPStateEvent", "host_ids")
    return ChangeHostsPStateEvent(r.text(pos + d[0] + v[0]), v[1])


_pack_HostsPStateChangedEvent = struct.Struct("<12sII4x").pack


def _put_HostsPStateChangedEvent(m: HostsPStateChangedEvent) -> bytes:
    v0 = m.host_ids
    p0 = put_text(v0)
    o0 = 12
    return _pack_HostsPStateChangedEvent(b'\x08\x00\x0c\x00\x04\x00\x08\x00\x08\x00\x00\x00', o0, m.pstate) + p0


_TABLE_HostsPStateChangedEvent = Table("HostsPStateChangedEvent", ["I", "I"], (0, 0))
_shape_HostsPStateChangedEvent = _TABLE_HostsPStateChangedEvent.shapes.get


def _get_HostsPStateChangedEvent(r: Reader, pos: int) -> HostsPStateChangedEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_HostsPStateChangedEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_HostsPStateChangedEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("HostsPStateChangedEvent", "host_ids")
    return HostsPStateChangedEvent(r.text(pos + d[0] + v[0]), v[1])


_pack_TurnOnOffHostsEvent = struct.Struct("<12sII4x").pack


def _put_TurnOnOffHostsEvent(m: TurnOnOffHostsEvent) -> bytes:
    v0 = m.host_ids
    p0 = put_text(v0)
    o0 = 12
    return _pack_TurnOnOffHostsEvent(b'\x08\x00\x0c\x00\x04\x00\x08\x00\x08\x00\x00\x00', o0, m.state) + p0


_TABLE_TurnOnOffHostsEvent = Table("TurnOnOffHostsEvent", ["I", "I"], (0, 0))
_shape_TurnOnOffHostsEvent = _TABLE_TurnOnOffHostsEvent.shapes.get


def _get_TurnOnOffHostsEvent(r: Reader, pos: int) -> TurnOnOffHostsEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_TurnOnOffHostsEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_TurnOnOffHostsEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("TurnOnOffHostsEvent", "host_ids")
    return TurnOnOffHostsEvent(r.text(pos + d[0] + v[0]), v[1])


_pack_HostsTurnedOnOffEvent = struct.Struct("<12sII4x").pack


def _put_HostsTurnedOnOffEvent(m: HostsTurnedOnOffEvent) -> bytes:
    v0 = m.host_ids
    p0 = put_text(v0)
    o0 = 12
    return _pack_HostsTurnedOnOffEvent(b'\x08\x00\x0c\x00\x04\x00\x08\x00\x08\x00\x00\x00', o0, m.state) + p0


_TABLE_HostsTurnedOnOffEvent = Table("HostsTurnedOnOffEvent", ["I", "I"], (0, 0))
_shape_HostsTurnedOnOffEvent = _TABLE_HostsTurnedOnOffEvent.shapes.get


def _get_HostsTurnedOnOffEvent(r: Reader, pos: int) -> HostsTurnedOnOffEvent:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_HostsTurnedOnOffEvent(data[at : at + _U16(data, at)[0]]) or _TABLE_HostsTurnedOnOffEvent.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if not v[0]:
        raise missing("HostsTurnedOnOffEvent", "host_ids")
    return HostsTurnedOnOffEvent(r.text(pos + d[0] + v[0]), v[1])


_pack_EventAndTimestamp = struct.Struct("<6sHH10sIdB7x").pack


def _put_EventAndTimestamp(m: EventAndTimestamp) -> bytes:
    v1 = m.event
    if v1 is None:
        t1 = 0
        p1, o1 = b"", 0
    else:
        t1, put, at = _MEMBERS_Event[type(v1)]
        p1 = put(v1)
        o1 = 20 + at
    return _pack_EventAndTimestamp(b'\n\x00\x11\x00\x08\x00', 16 if o1 else 0, 4 if o1 else 0, b'\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00', o1, m.timestamp, t1) + p1


_TABLE_EventAndTimestamp = Table("EventAndTimestamp", ["d", "B", "I"], (0.0, 0, 0))
_shape_EventAndTimestamp = _TABLE_EventAndTimestamp.shapes.get


def _get_EventAndTimestamp(r: Reader, pos: int) -> EventAndTimestamp:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_EventAndTimestamp(data[at : at + _U16(data, at)[0]]) or _TABLE_EventAndTimestamp.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    if v[1] and not v[2]:
        raise missing("EventAndTimestamp", "event")
    return EventAndTimestamp(v[0], None if not v[1] or not v[2] else _member_Event(r, v[1], pos + d[2] + v[2]))


_pack_Message = struct.Struct("<6sH4sId").pack


def _put_Message(m: Message) -> bytes:
    v1 = m.events
    if v1 is None:
        p1, o1 = b"", 0
    else:
        p1 = put_parts([_put_EventAndTimestamp(x) for x in v1], 16)
        o1 = 12
    return _pack_Message(b'\x08\x00\x10\x00\x08\x00', 4 if o1 else 0, b'\x08\x00\x00\x00', o1, m.now) + p1


_TABLE_Message = Table("Message", ["d", "I"], (0.0, 0))
_shape_Message = _TABLE_Message.shapes.get


def _get_Message(r: Reader, pos: int) -> Message:
    data = r.data
    at = pos - _I32(data, pos)[0]
    read, rest, sort, d = _shape_Message(data[at : at + _U16(data, at)[0]]) or _TABLE_Message.learn(data, at)
    v = read(data, pos) + rest
    if sort is not None:
        v = sort(v)
    return Message(v[0], None if not v[1] else [_get_EventAndTimestamp(r, at) for at in r.places(pos + d[1] + v[1])])


_MEMBERS_Profile: dict[type, tuple[int, Callable[[Any], bytes], int]] = {
    DelayProfile: (1, _put_DelayProfile, 8),
    ParallelTaskProfile: (2, _put_ParallelTaskProfile, 8),
    ParallelTaskHomogeneousProfile: (3, _put_ParallelTaskHomogeneousProfile, 16),
    SequentialCompositionProfile: (4, _put_SequentialCompositionProfile, 8),
    ForkJoinCompositionProfile: (5, _put_ForkJoinCompositionProfile, 8),
    ParallelTaskMergeCompositionProfile: (6, _put_ParallelTaskMergeCompositionProfile, 8),
    ParallelTaskOnStorageHomogeneousProfile: (7, _put_ParallelTaskOnStorageHomogeneousProfile, 16),
    ParallelTaskDataStagingBetweenStoragesProfile: (8, _put_ParallelTaskDataStagingBetweenStoragesProfile, 16),
    TraceReplayProfile: (9, _put_TraceReplayProfile, 8),
}
_GET_Profile: tuple[Callable[[Reader, int], Profile], ...] = (
    _get_DelayProfile,
    _get_ParallelTaskProfile,
    _get_ParallelTaskHomogeneousProfile,
    _get_SequentialCompositionProfile,
    _get_ForkJoinCompositionProfile,
    _get_ParallelTaskMergeCompositionProfile,
    _get_ParallelTaskOnStorageHomogeneousProfile,
    _get_ParallelTaskDataStagingBetweenStoragesProfile,
    _get_TraceReplayProfile,
)


def _member_Profile(r: Reader, number: int, pos: int) -> Profile:
    if number > 9:
        raise unknown_member("Profile", number)
    return _GET_Profile[number - 1](r, pos)


_MEMBERS_ExecutorPlacement: dict[type, tuple[int, Callable[[Any], bytes], int]] = {
    PredefinedExecutorPlacementStrategyWrapper: (1, _put_PredefinedExecutorPlacementStrategyWrapper, 8),
    CustomExecutorToHostMapping: (2, _put_CustomExecutorToHostMapping, 8),
}
_GET_ExecutorPlacement: tuple[Callable[[Reader, int], ExecutorPlacement], ...] = (
    _get_PredefinedExecutorPlacementStrategyWrapper,
    _get_CustomExecutorToHostMapping,
)


def _member_ExecutorPlacement(r: Reader, number: int, pos: int) -> ExecutorPlacement:
    if number > 2:
        raise unknown_member("ExecutorPlacement", number)
    return _GET_ExecutorPlacement[number - 1](r, pos)


_MEMBERS_KillProgress: dict[type, tuple[int, Callable[[Any], bytes], int]] = {
    KillProgressAtomicProfile: (1, _put_KillProgressAtomicProfile, 8),
    KillProgressSequentialProfile: (2, _put_KillProgressSequentialProfile, 16),
    KillProgressForkJoinProfile: (3, _put_KillProgressForkJoinProfile, 8),
}
_GET_KillProgress: tuple[Callable[[Reader, int], KillProgress], ...] = (
    _get_KillProgressAtomicProfile,
    _get_KillProgressSequentialProfile,
    _get_KillProgressForkJoinProfile,
)


def _member_KillProgress(r: Reader, number: int, pos: int) -> KillProgress:
    if number > 3:
        raise unknown_member("KillProgress", number)
    return _GET_KillProgress[number - 1](r, pos)


_MEMBERS_Resources: dict[type, tuple[int, Callable[[Any], bytes], int]] = {
    HostResources: (1, _put_HostResources, 8),
    LinkResources: (2, _put_LinkResources, 8),
}
_GET_Resources: tuple[Callable[[Reader, int], Resources], ...] = (
    _get_HostResources,
    _get_LinkResources,
)


def _member_Resources(r: Reader, number: int, pos: int) -> Resources:
    if number > 2:
        raise unknown_member("Resources", number)
    return _GET_Resources[number - 1](r, pos)


_MEMBERS_ProbeMeasurementTriggeringPolicy: dict[type, tuple[int, Callable[[Any], bytes], int]] = {
    TemporalTriggerWrapper: (1, _put_TemporalTriggerWrapper, 8),
}
_GET_ProbeMeasurementTriggeringPolicy: tuple[Callable[[Reader, int], ProbeMeasurementTriggeringPolicy], ...] = (
    _get_TemporalTriggerWrapper,
)


def _member_ProbeMeasurementTriggeringPolicy(r: Reader, number: int, pos: int) -> ProbeMeasurementTriggeringPolicy:
    if number > 1:
        raise unknown_member("ProbeMeasurementTriggeringPolicy", number)
    return _GET_ProbeMeasurementTriggeringPolicy[number - 1](r, pos)


_MEMBERS_ProbeDataAccumulationStrategy: dict[type, tuple[int, Callable[[Any], bytes], int]] = {
    NoProbeDataAccumulation: (1, _put_NoProbeDataAccumulation, 8),
    ProbeDataAccumulation: (2, _put_ProbeDataAccumulation, 16),
}
_GET_ProbeDataAccumulationStrategy: tuple[Callable[[Reader, int], ProbeDataAccumulationStrategy], ...] = (
    _get_NoProbeDataAccumulation,
    _get_ProbeDataAccumulation,
)


def _member_ProbeDataAccumulationStrategy(r: Reader, number: int, pos: int) -> ProbeDataAccumulationStrategy:
    if number > 2:
        raise unknown_member("ProbeDataAccumulationStrategy", number)
    return _GET_ProbeDataAccumulationStrategy[number - 1](r, pos)


_MEMBERS_ResetMode: dict[type, tuple[int, Callable[[Any], bytes], int]] = {
    NoReset: (1, _put_NoReset, 8),
    ProbeAccumulationReset: (2, _put_ProbeAccumulationReset, 8),
}
_GET_ResetMode: tuple[Callable[[Reader, int], ResetMode], ...] = (
    _get_NoReset,
    _get_ProbeAccumulationReset,
)


def _member_ResetMode(r: Reader, number: int, pos: int) -> ResetMode:
    if number > 2:
        raise unknown_member("ResetMode", number)
    return _GET_ResetMode[number - 1](r, pos)


_MEMBERS_TemporalAggregationFunction: dict[type, tuple[int, Callable[[Any], bytes], int]] = {
    NoTemporalAggregation: (1, _put_NoTemporalAggregation, 8),
    ExponentialMovingAverage: (2, _put_ExponentialMovingAverage, 8),
    SlidingWindowOperation: (3, _put_SlidingWindowOperation, 8),
}
_GET_TemporalAggregationFunction: tuple[Callable[[Reader, int], TemporalAggregationFunction], ...] = (
    _get_NoTemporalAggregation,
    _get_ExponentialMovingAverage,
    _get_SlidingWindowOperation,
)


def _member_TemporalAggregationFunction(r: Reader, number: int, pos: int) -> TemporalAggregationFunction:
    if number > 3:
        raise unknown_member("TemporalAggregationFunction", number)
    return _GET_TemporalAggregationFunction[number - 1](r, pos)


_MEMBERS_ResourcesAggregationFunction: dict[type, tuple[int, Callable[[Any], bytes], int]] = {
    NoResourcesAggregation: (1, _put_NoResourcesAggregation, 8),
    Sum: (2, _put_Sum, 8),
    ArithmeticMean: (3, _put_ArithmeticMean, 8),
    QuantileFunction: (4, _put_QuantileFunction, 8),
}
_GET_ResourcesAggregationFunction: tuple[Callable[[Reader, int], ResourcesAggregationFunction], ...] = (
    _get_NoResourcesAggregation,
    _get_Sum,
    _get_ArithmeticMean,
    _get_QuantileFunction,
)


def _member_ResourcesAggregationFunction(r: Reader, number: int, pos: int) -> ResourcesAggregationFunction:
    if number > 4:
        raise unknown_member("ResourcesAggregationFunction", number)
    return _GET_ResourcesAggregationFunction[number - 1](r, pos)


_MEMBERS_ProbeEmissionFilteringPolicy: dict[type, tuple[int, Callable[[Any], bytes], int]] = {
    NoFiltering: (1, _put_NoFiltering, 8),
    ThresholdFilteringFunction: (2, _put_ThresholdFilteringFunction, 8),
}
_GET_ProbeEmissionFilteringPolicy: tuple[Callable[[Reader, int], ProbeEmissionFilteringPolicy], ...] = (
    _get_NoFiltering,
    _get_ThresholdFilteringFunction,
)


def _member_ProbeEmissionFilteringPolicy(r: Reader, number: int, pos: int) -> ProbeEmissionFilteringPolicy:
    if number > 2:
        raise unknown_member("ProbeEmissionFilteringPolicy", number)
    return _GET_ProbeEmissionFilteringPolicy[number - 1](r, pos)


_MEMBERS_ProbeData: dict[type, tuple[int, Callable[[Any], bytes], int]] = {
    AggregatedProbeData: (1, _put_AggregatedProbeData, 8),
    VectorialProbeData: (2, _put_VectorialProbeData, 8),
}
_GET_ProbeData: tuple[Callable[[Reader, int], ProbeData], ...] = (
    _get_AggregatedProbeData,
    _get_VectorialProbeData,
)


def _member_ProbeData(r: Reader, number: int, pos: int) -> ProbeData:
    if number > 2:
        raise unknown_member("ProbeData", number)
    return _GET_ProbeData[number - 1](r, pos)


_MEMBERS_PeriodicMode: dict[type, tuple[int, Callable[[Any], bytes], int]] = {
    Infinite: (1, _put_Infinite, 8),
    FinitePeriodNumber: (2, _put_FinitePeriodNumber, 8),
}
_GET_PeriodicMode: tuple[Callable[[Reader, int], PeriodicMode], ...] = (
    _get_Infinite,
    _get_FinitePeriodNumber,
)


def _member_PeriodicMode(r: Reader, number: int, pos: int) -> PeriodicMode:
    if number > 2:
        raise unknown_member("PeriodicMode", number)
    return _GET_PeriodicMode[number - 1](r, pos)


_MEMBERS_TemporalTrigger: dict[type, tuple[int, Callable[[Any], bytes], int]] = {
    OneShot: (1, _put_OneShot, 8),
    Periodic: (2, _put_Periodic, 16),
}
_GET_TemporalTrigger: tuple[Callable[[Reader, int], TemporalTrigger], ...] = (
    _get_OneShot,
    _get_Periodic,
)


def _member_TemporalTrigger(r: Reader, number: int, pos: int) -> TemporalTrigger:
    if number > 2:
        raise unknown_member("TemporalTrigger", number)
    return _GET_TemporalTrigger[number - 1](r, pos)


_MEMBERS_ExternalEvent: dict[type, tuple[int, Callable[[Any], bytes], int]] = {
    GenericExternalEvent: (1, _put_GenericExternalEvent, 8),
}
_GET_ExternalEvent: tuple[Callable[[Reader, int], ExternalEvent], ...] = (
    _get_GenericExternalEvent,
)


def _member_ExternalEvent(r: Reader, number: int, pos: int) -> ExternalEvent:
    if number > 1:
        raise unknown_member("ExternalEvent", number)
    return _GET_ExternalEvent[number - 1](r, pos)


_MEMBERS_Event: dict[type, tuple[int, Callable[[Any], bytes], int]] = {
    JobSubmittedEvent: (1, _put_JobSubmittedEvent, 16),
    JobCompletedEvent: (2, _put_JobCompletedEvent, 16),
    RejectJobEvent: (3, _put_RejectJobEvent, 8),
    ExecuteJobEvent: (4, _put_ExecuteJobEvent, 16),
    KillJobsEvent: (5, _put_KillJobsEvent, 8),
    JobsKilledEvent: (6, _put_JobsKilledEvent, 16),
    RegisterProfileEvent: (7, _put_RegisterProfileEvent, 8),
    RegisterJobEvent: (8, _put_RegisterJobEvent, 8),
    CreateProbeEvent: (9, _put_CreateProbeEvent, 32),
    StopProbeEvent: (10, _put_StopProbeEvent, 8),
    TriggerProbeEvent: (11, _put_TriggerProbeEvent, 8),
    ResetProbeEvent: (12, _put_ResetProbeEvent, 8),
    ProbeDataEmittedEvent: (13, _put_ProbeDataEmittedEvent, 24),
    CallMeLaterEvent: (14, _put_CallMeLaterEvent, 16),
    RequestedCallEvent: (15, _put_RequestedCallEvent, 8),
    StopCallMeLaterEvent: (16, _put_StopCallMeLaterEvent, 8),
    BatsimHelloEvent: (17, _put_BatsimHelloEvent, 16),
    EDCHelloEvent: (18, _put_EDCHelloEvent, 16),
    SimulationBeginsEvent: (19, _put_SimulationBeginsEvent, 32),
    SimulationEndsEvent: (20, _put_SimulationEndsEvent, 8),
    AllStaticJobsHaveBeenSubmittedEvent: (21, _put_AllStaticJobsHaveBeenSubmittedEvent, 8),
    AllStaticExternalEventsHaveBeenInjectedEvent: (22, _put_AllStaticExternalEventsHaveBeenInjectedEvent, 8),
    FinishRegistrationEvent: (23, _put_FinishRegistrationEvent, 8),
    ForceSimulationStopEvent: (24, _put_ForceSimulationStopEvent, 8),
    ExternalEventOccurredEvent: (25, _put_ExternalEventOccurredEvent, 16),
    ChangeHostsPStateEvent: (26, _put_ChangeHostsPStateEvent, 8),
    HostsPStateChangedEvent: (27, _put_HostsPStateChangedEvent, 8),
    TurnOnOffHostsEvent: (28, _put_TurnOnOffHostsEvent, 8),
    HostsTurnedOnOffEvent: (29, _put_HostsTurnedOnOffEvent, 8),
}
_GET_Event: tuple[Callable[[Reader, int], Event], ...] = (
    _get_JobSubmittedEvent,
    _get_JobCompletedEvent,
    _get_RejectJobEvent,
    _get_ExecuteJobEvent,
    _get_KillJobsEvent,
    _get_JobsKilledEvent,
    _get_RegisterProfileEvent,
    _get_RegisterJobEvent,
    _get_CreateProbeEvent,
    _get_StopProbeEvent,
    _get_TriggerProbeEvent,
    _get_ResetProbeEvent,
    _get_ProbeDataEmittedEvent,
    _get_CallMeLaterEvent,
    _get_RequestedCallEvent,
    _get_StopCallMeLaterEvent,
    _get_BatsimHelloEvent,
    _get_EDCHelloEvent,
    _get_SimulationBeginsEvent,
    _get_SimulationEndsEvent,
    _get_AllStaticJobsHaveBeenSubmittedEvent,
    _get_AllStaticExternalEventsHaveBeenInjectedEvent,
    _get_FinishRegistrationEvent,
    _get_ForceSimulationStopEvent,
    _get_ExternalEventOccurredEvent,
    _get_ChangeHostsPStateEvent,
    _get_HostsPStateChangedEvent,
    _get_TurnOnOffHostsEvent,
    _get_HostsTurnedOnOffEvent,
)


def _member_Event(r: Reader, number: int, pos: int) -> Event:
    if number > 29:
        raise unknown_member("Event", number)
    return _GET_Event[number - 1](r, pos)


_ROOT = struct.Struct("<I4x")
_ROOT_AT = _ROOT.pack(16)


# What stands before the only event of a message, but for the date.
_ONE = _put_EventAndTimestamp(EventAndTimestamp())
_BEFORE_ONE = (_ROOT_AT + _put_Message(Message(0.0, [EventAndTimestamp()])))[: -len(_ONE)]
_BEFORE_NOW, _AFTER_NOW = _BEFORE_ONE[:24], _BEFORE_ONE[32 :]
_pack_date = struct.Struct("<d").pack


def encode(message: Message) -> bytes:
    events = message.events
    try:
        if events is not None and len(events) == 1:
            return _BEFORE_NOW + _pack_date(message.now) + _AFTER_NOW + _put_EventAndTimestamp(events[0])
        return _ROOT_AT + _put_Message(message)
    except (struct.error, KeyError, UnicodeEncodeError) as problem:
        raise Malformed(f"this message cannot be written: {problem}") from None


def decode(data: bytes) -> Message:
    if len(data) < 8:
        raise Malformed(f"{len(data)} bytes are no message")
    try:
        return _get_Message(Reader(data), _ROOT.unpack_from(data)[0])
    except struct.error:
        raise Malformed(f"a table lies outside of the buffer of {len(data)} bytes") from None

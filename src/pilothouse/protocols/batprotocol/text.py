"""batprotocol messages in JSON: `encode(message) -> str` as the peer prints them, `decode(value) -> Message`.

`decode` takes what a JSON parser made of the text, and is as strict as the peer: unknown fields, absent required
ones, and a union's value before its type are errors (Malformed).
"""

# Generated from schema.fbs by tools/gen_batprotocol.py; do not edit.
# ruff: noqa

from __future__ import annotations

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
    fields_of,
    json_integers,
    json_number,
    json_numbers,
    json_text,
    json_texts,
    member_name,
    missing,
    read_bool,
    read_float,
    read_integer,
    read_list,
    read_text,
    unknown_value,
)

_NAMES_HomogeneousParallelTaskGenerationStrategy = ("DefinedAmountsUsedForEachValue", "DefinedAmountsSpreadUniformly")
_READ_HomogeneousParallelTaskGenerationStrategy: dict[Any, HomogeneousParallelTaskGenerationStrategy] = {key: value for value, text in zip(HomogeneousParallelTaskGenerationStrategy, _NAMES_HomogeneousParallelTaskGenerationStrategy, strict=True) for key in (text, int(value))}
_NAMES_TraceType = ("SMPI", "FractionalComputation")
_READ_TraceType: dict[Any, TraceType] = {key: value for value, text in zip(TraceType, _NAMES_TraceType, strict=True) for key in (text, int(value))}
_NAMES_FinalJobState = ("COMPLETED_SUCCESSFULLY", "COMPLETED_FAILED", "COMPLETED_WALLTIME_REACHED", "COMPLETED_KILLED", "REJECTED")
_READ_FinalJobState: dict[Any, FinalJobState] = {key: value for value, text in zip(FinalJobState, _NAMES_FinalJobState, strict=True) for key in (text, int(value))}
_NAMES_PredefinedExecutorPlacementStrategy = ("SpreadOverHostsFirst", "FillOneHostCoresFirst")
_READ_PredefinedExecutorPlacementStrategy: dict[Any, PredefinedExecutorPlacementStrategy] = {key: value for value, text in zip(PredefinedExecutorPlacementStrategy, _NAMES_PredefinedExecutorPlacementStrategy, strict=True) for key in (text, int(value))}
_NAMES_CumulativeFunction = ("Sum", "Minimum", "Maximum")
_READ_CumulativeFunction: dict[Any, CumulativeFunction] = {key: value for value, text in zip(CumulativeFunction, _NAMES_CumulativeFunction, strict=True) for key in (text, int(value))}
_NAMES_Metrics = ("Power", "NetworkLoad", "ComputationLoad", "NormalizedNetworkLoad", "NormalizedComputationLoad")
_READ_Metrics: dict[Any, Metrics] = {key: value for value, text in zip(Metrics, _NAMES_Metrics, strict=True) for key in (text, int(value))}
_NAMES_BooleanComparisonOperator = ("GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual")
_READ_BooleanComparisonOperator: dict[Any, BooleanComparisonOperator] = {key: value for value, text in zip(BooleanComparisonOperator, _NAMES_BooleanComparisonOperator, strict=True) for key in (text, int(value))}
_NAMES_TimeUnit = ("Second", "Millisecond")
_READ_TimeUnit: dict[Any, TimeUnit] = {key: value for value, text in zip(TimeUnit, _NAMES_TimeUnit, strict=True) for key in (text, int(value))}
_NAMES_JobAllocationValidationStrategy = ("None", "MatchJobRequestExactly", "MatchJobRequestBigEnough")
_READ_JobAllocationValidationStrategy: dict[Any, JobAllocationValidationStrategy] = {key: value for value, text in zip(JobAllocationValidationStrategy, _NAMES_JobAllocationValidationStrategy, strict=True) for key in (text, int(value))}
_NAMES_HostState = ("SLEEPING", "IDLE", "COMPUTING", "SWITCHING_ON", "SWITCHING_OFF")
_READ_HostState: dict[Any, HostState] = {key: value for value, text in zip(HostState, _NAMES_HostState, strict=True) for key in (text, int(value))}


def _put_DelayProfile(m: DelayProfile) -> str:
    return f'{{"delay": {json_number(m.delay)}}}'


_KEYS_DelayProfile = frozenset(("delay",))


def _get_DelayProfile(value: Any) -> DelayProfile:
    f = fields_of(value, _KEYS_DelayProfile, "DelayProfile")
    v0 = f.get("delay")
    return DelayProfile(0.0 if v0 is None else read_float(v0, "DelayProfile", "delay"))


def _put_ParallelTaskProfile(m: ParallelTaskProfile) -> str:
    parts = []
    if m.computation_vector is not None:
        parts.append(f'"computation_vector": {json_numbers(m.computation_vector)}')
    if m.communication_matrix is not None:
        parts.append(f'"communication_matrix": {json_numbers(m.communication_matrix)}')
    return "{" + ",".join(parts) + "}"


_KEYS_ParallelTaskProfile = frozenset(("computation_vector", "communication_matrix"))


def _get_ParallelTaskProfile(value: Any) -> ParallelTaskProfile:
    f = fields_of(value, _KEYS_ParallelTaskProfile, "ParallelTaskProfile")
    v0 = f.get("computation_vector")
    v1 = f.get("communication_matrix")
    return ParallelTaskProfile(None if v0 is None else [read_float(x, "ParallelTaskProfile", "computation_vector") for x in read_list(v0, "ParallelTaskProfile", "computation_vector")], None if v1 is None else [read_float(x, "ParallelTaskProfile", "communication_matrix") for x in read_list(v1, "ParallelTaskProfile", "communication_matrix")])


def _put_SequentialCompositionProfile(m: SequentialCompositionProfile) -> str:
    return f'{{"repetition_count": {m.repetition_count},"profile_ids": {json_texts(m.profile_ids)}}}'


_KEYS_SequentialCompositionProfile = frozenset(("repetition_count", "profile_ids"))


def _get_SequentialCompositionProfile(value: Any) -> SequentialCompositionProfile:
    f = fields_of(value, _KEYS_SequentialCompositionProfile, "SequentialCompositionProfile")
    v0 = f.get("repetition_count")
    v1 = f.get("profile_ids")
    return SequentialCompositionProfile([read_text(x, "SequentialCompositionProfile", "profile_ids") for x in read_list(v1, "SequentialCompositionProfile", "profile_ids")], 1 if v0 is None else read_integer(v0, 4294967295, "SequentialCompositionProfile", "repetition_count"))


def _put_ForkJoinCompositionProfile(m: ForkJoinCompositionProfile) -> str:
    return f'{{"profile_ids": {json_texts(m.profile_ids)}}}'


_KEYS_ForkJoinCompositionProfile = frozenset(("profile_ids",))


def _get_ForkJoinCompositionProfile(value: Any) -> ForkJoinCompositionProfile:
    f = fields_of(value, _KEYS_ForkJoinCompositionProfile, "ForkJoinCompositionProfile")
    v0 = f.get("profile_ids")
    return ForkJoinCompositionProfile([read_text(x, "ForkJoinCompositionProfile", "profile_ids") for x in read_list(v0, "ForkJoinCompositionProfile", "profile_ids")])


def _put_ParallelTaskMergeCompositionProfile(m: ParallelTaskMergeCompositionProfile) -> str:
    return f'{{"profile_ids": {json_texts(m.profile_ids)}}}'


_KEYS_ParallelTaskMergeCompositionProfile = frozenset(("profile_ids",))


def _get_ParallelTaskMergeCompositionProfile(value: Any) -> ParallelTaskMergeCompositionProfile:
    f = fields_of(value, _KEYS_ParallelTaskMergeCompositionProfile, "ParallelTaskMergeCompositionProfile")
    v0 = f.get("profile_ids")
    return ParallelTaskMergeCompositionProfile([read_text(x, "ParallelTaskMergeCompositionProfile", "profile_ids") for x in read_list(v0, "ParallelTaskMergeCompositionProfile", "profile_ids")])


def _put_ParallelTaskHomogeneousProfile(m: ParallelTaskHomogeneousProfile) -> str:
    return f'{{"computation_amount": {json_number(m.computation_amount)},"communication_amount": {json_number(m.communication_amount)},"generation_strategy": "{_NAMES_HomogeneousParallelTaskGenerationStrategy[m.generation_strategy]}"}}'


_KEYS_ParallelTaskHomogeneousProfile = frozenset(("computation_amount", "communication_amount", "generation_strategy"))


def _get_ParallelTaskHomogeneousProfile(value: Any) -> ParallelTaskHomogeneousProfile:
    f = fields_of(value, _KEYS_ParallelTaskHomogeneousProfile, "ParallelTaskHomogeneousProfile")
    v0 = f.get("computation_amount")
    v1 = f.get("communication_amount")
    v2 = f.get("generation_strategy")
    if v2 is not None and v2 not in _READ_HomogeneousParallelTaskGenerationStrategy:
        raise unknown_value("HomogeneousParallelTaskGenerationStrategy", v2)
    return ParallelTaskHomogeneousProfile(0.0 if v0 is None else read_float(v0, "ParallelTaskHomogeneousProfile", "computation_amount"), 0.0 if v1 is None else read_float(v1, "ParallelTaskHomogeneousProfile", "communication_amount"), HomogeneousParallelTaskGenerationStrategy.DefinedAmountsUsedForEachValue if v2 is None else _READ_HomogeneousParallelTaskGenerationStrategy[v2])


def _put_ParallelTaskOnStorageHomogeneousProfile(m: ParallelTaskOnStorageHomogeneousProfile) -> str:
    return f'{{"storage_name": {json_text(m.storage_name)},"bytes_to_read": {json_number(m.bytes_to_read)},"bytes_to_write": {json_number(m.bytes_to_write)},"generation_strategy": "{_NAMES_HomogeneousParallelTaskGenerationStrategy[m.generation_strategy]}"}}'


_KEYS_ParallelTaskOnStorageHomogeneousProfile = frozenset(("storage_name", "bytes_to_read", "bytes_to_write", "generation_strategy"))


def _get_ParallelTaskOnStorageHomogeneousProfile(value: Any) -> ParallelTaskOnStorageHomogeneousProfile:
    f = fields_of(value, _KEYS_ParallelTaskOnStorageHomogeneousProfile, "ParallelTaskOnStorageHomogeneousProfile")
    v0 = f.get("storage_name")
    v1 = f.get("bytes_to_read")
    v2 = f.get("bytes_to_write")
    v3 = f.get("generation_strategy")
    if v3 is not None and v3 not in _READ_HomogeneousParallelTaskGenerationStrategy:
        raise unknown_value("HomogeneousParallelTaskGenerationStrategy", v3)
    return ParallelTaskOnStorageHomogeneousProfile(read_text(v0, "ParallelTaskOnStorageHomogeneousProfile", "storage_name"), 0.0 if v1 is None else read_float(v1, "ParallelTaskOnStorageHomogeneousProfile", "bytes_to_read"), 0.0 if v2 is None else read_float(v2, "ParallelTaskOnStorageHomogeneousProfile", "bytes_to_write"), HomogeneousParallelTaskGenerationStrategy.DefinedAmountsUsedForEachValue if v3 is None else _READ_HomogeneousParallelTaskGenerationStrategy[v3])


def _put_ParallelTaskDataStagingBetweenStoragesProfile(m: ParallelTaskDataStagingBetweenStoragesProfile) -> str:
    return f'{{"bytes_to_transfer": {json_number(m.bytes_to_transfer)},"emitter_storage_name": {json_text(m.emitter_storage_name)},"receiver_storage_name": {json_text(m.receiver_storage_name)}}}'


_KEYS_ParallelTaskDataStagingBetweenStoragesProfile = frozenset(("bytes_to_transfer", "emitter_storage_name", "receiver_storage_name"))


def _get_ParallelTaskDataStagingBetweenStoragesProfile(value: Any) -> ParallelTaskDataStagingBetweenStoragesProfile:
    f = fields_of(value, _KEYS_ParallelTaskDataStagingBetweenStoragesProfile, "ParallelTaskDataStagingBetweenStoragesProfile")
    v0 = f.get("bytes_to_transfer")
    v1 = f.get("emitter_storage_name")
    v2 = f.get("receiver_storage_name")
    return ParallelTaskDataStagingBetweenStoragesProfile(read_text(v1, "ParallelTaskDataStagingBetweenStoragesProfile", "emitter_storage_name"), read_text(v2, "ParallelTaskDataStagingBetweenStoragesProfile", "receiver_storage_name"), 0.0 if v0 is None else read_float(v0, "ParallelTaskDataStagingBetweenStoragesProfile", "bytes_to_transfer"))


def _put_TraceReplayProfile(m: TraceReplayProfile) -> str:
    return f'{{"trace_type": "{_NAMES_TraceType[m.trace_type]}","filename": {json_text(m.filename)}}}'


_KEYS_TraceReplayProfile = frozenset(("trace_type", "filename"))


def _get_TraceReplayProfile(value: Any) -> TraceReplayProfile:
    f = fields_of(value, _KEYS_TraceReplayProfile, "TraceReplayProfile")
    v0 = f.get("trace_type")
    if v0 is not None and v0 not in _READ_TraceType:
        raise unknown_value("TraceType", v0)
    v1 = f.get("filename")
    return TraceReplayProfile(read_text(v1, "TraceReplayProfile", "filename"), TraceType.SMPI if v0 is None else _READ_TraceType[v0])


def _put_Job(m: Job) -> str:
    parts = []
    parts.append(f'"resource_request": {m.resource_request}')
    x1 = "null" if m.walltime is None else json_number(m.walltime)
    parts.append(f'"walltime": {x1}')
    if m.extra_data is not None:
        parts.append(f'"extra_data": {json_text(m.extra_data)}')
    x2 = "true" if m.rigid else "false"
    parts.append(f'"rigid": {x2}')
    if m.profile_id is not None:
        parts.append(f'"profile_id": {json_text(m.profile_id)}')
    return "{" + ",".join(parts) + "}"


_KEYS_Job = frozenset(("resource_request", "walltime", "extra_data", "rigid", "profile_id"))


def _get_Job(value: Any) -> Job:
    f = fields_of(value, _KEYS_Job, "Job")
    v0 = f.get("resource_request")
    v1 = f.get("walltime")
    v2 = f.get("extra_data")
    v3 = f.get("rigid")
    v4 = f.get("profile_id")
    return Job(0 if v0 is None else read_integer(v0, 4294967295, "Job", "resource_request"), None if v1 is None else read_float(v1, "Job", "walltime"), None if v2 is None else read_text(v2, "Job", "extra_data"), True if v3 is None else read_bool(v3, "Job", "rigid"), None if v4 is None else read_text(v4, "Job", "profile_id"))


def _put_JobSubmittedEvent(m: JobSubmittedEvent) -> str:
    parts = []
    parts.append(f'"job_id": {json_text(m.job_id)}')
    parts.append(f'"job": {_put_Job(m.job)}')
    parts.append(f'"submission_time": {json_number(m.submission_time)}')
    if m.profile is not None:
        parts.append(f'"profile": {_put_ProfileAndId(m.profile)}')
    return "{" + ",".join(parts) + "}"


_KEYS_JobSubmittedEvent = frozenset(("job_id", "job", "submission_time", "profile"))


def _get_JobSubmittedEvent(value: Any) -> JobSubmittedEvent:
    f = fields_of(value, _KEYS_JobSubmittedEvent, "JobSubmittedEvent")
    v0 = f.get("job_id")
    v1 = f.get("job")
    if v1 is None:
        raise missing("JobSubmittedEvent", "job")
    v2 = f.get("submission_time")
    v3 = f.get("profile")
    return JobSubmittedEvent(read_text(v0, "JobSubmittedEvent", "job_id"), _get_Job(v1), 0.0 if v2 is None else read_float(v2, "JobSubmittedEvent", "submission_time"), None if v3 is None else _get_ProfileAndId(v3))


def _put_JobCompletedEvent(m: JobCompletedEvent) -> str:
    return f'{{"job_id": {json_text(m.job_id)},"state": "{_NAMES_FinalJobState[m.state]}","return_code": {m.return_code}}}'


_KEYS_JobCompletedEvent = frozenset(("job_id", "state", "return_code"))


def _get_JobCompletedEvent(value: Any) -> JobCompletedEvent:
    f = fields_of(value, _KEYS_JobCompletedEvent, "JobCompletedEvent")
    v0 = f.get("job_id")
    v1 = f.get("state")
    if v1 is not None and v1 not in _READ_FinalJobState:
        raise unknown_value("FinalJobState", v1)
    v2 = f.get("return_code")
    return JobCompletedEvent(read_text(v0, "JobCompletedEvent", "job_id"), FinalJobState.COMPLETED_SUCCESSFULLY if v1 is None else _READ_FinalJobState[v1], 0 if v2 is None else read_integer(v2, 4294967295, "JobCompletedEvent", "return_code"))


def _put_RejectJobEvent(m: RejectJobEvent) -> str:
    return f'{{"job_id": {json_text(m.job_id)}}}'


_KEYS_RejectJobEvent = frozenset(("job_id",))


def _get_RejectJobEvent(value: Any) -> RejectJobEvent:
    f = fields_of(value, _KEYS_RejectJobEvent, "RejectJobEvent")
    v0 = f.get("job_id")
    return RejectJobEvent(read_text(v0, "RejectJobEvent", "job_id"))


def _put_PredefinedExecutorPlacementStrategyWrapper(m: PredefinedExecutorPlacementStrategyWrapper) -> str:
    return f'{{"strategy": "{_NAMES_PredefinedExecutorPlacementStrategy[m.strategy]}"}}'


_KEYS_PredefinedExecutorPlacementStrategyWrapper = frozenset(("strategy",))


def _get_PredefinedExecutorPlacementStrategyWrapper(value: Any) -> PredefinedExecutorPlacementStrategyWrapper:
    f = fields_of(value, _KEYS_PredefinedExecutorPlacementStrategyWrapper, "PredefinedExecutorPlacementStrategyWrapper")
    v0 = f.get("strategy")
    if v0 is not None and v0 not in _READ_PredefinedExecutorPlacementStrategy:
        raise unknown_value("PredefinedExecutorPlacementStrategy", v0)
    return PredefinedExecutorPlacementStrategyWrapper(PredefinedExecutorPlacementStrategy.SpreadOverHostsFirst if v0 is None else _READ_PredefinedExecutorPlacementStrategy[v0])


def _put_CustomExecutorToHostMapping(m: CustomExecutorToHostMapping) -> str:
    parts = []
    if m.mapping is not None:
        parts.append(f'"mapping": {json_integers(m.mapping)}')
    return "{" + ",".join(parts) + "}"


_KEYS_CustomExecutorToHostMapping = frozenset(("mapping",))


def _get_CustomExecutorToHostMapping(value: Any) -> CustomExecutorToHostMapping:
    f = fields_of(value, _KEYS_CustomExecutorToHostMapping, "CustomExecutorToHostMapping")
    v0 = f.get("mapping")
    return CustomExecutorToHostMapping(None if v0 is None else [read_integer(x, 4294967295, "CustomExecutorToHostMapping", "mapping") for x in read_list(v0, "CustomExecutorToHostMapping", "mapping")])


def _put_StorageHost(m: StorageHost) -> str:
    return f'{{"storage_name": {json_text(m.storage_name)},"host_id": {m.host_id}}}'


_KEYS_StorageHost = frozenset(("storage_name", "host_id"))


def _get_StorageHost(value: Any) -> StorageHost:
    f = fields_of(value, _KEYS_StorageHost, "StorageHost")
    v0 = f.get("storage_name")
    v1 = f.get("host_id")
    return StorageHost(read_text(v0, "StorageHost", "storage_name"), 0 if v1 is None else read_integer(v1, 4294967295, "StorageHost", "host_id"))


def _put_AllocationPlacement(m: AllocationPlacement) -> str:
    return f'{{"host_allocation": {json_text(m.host_allocation)},"executor_placement_type": "{type(m.executor_placement).__name__}","executor_placement": {_PUT_ExecutorPlacement[type(m.executor_placement)](m.executor_placement)}}}'


_KEYS_AllocationPlacement = frozenset(("host_allocation", "executor_placement_type", "executor_placement"))


def _get_AllocationPlacement(value: Any) -> AllocationPlacement:
    f = fields_of(value, _KEYS_AllocationPlacement, "AllocationPlacement")
    v0 = f.get("host_allocation")
    v1 = _member_ExecutorPlacement(f, "AllocationPlacement", "executor_placement")
    if v1 is None:
        raise missing("AllocationPlacement", "executor_placement")
    return AllocationPlacement(read_text(v0, "AllocationPlacement", "host_allocation"), v1)


def _put_ProfileAllocationPlacement(m: ProfileAllocationPlacement) -> str:
    return f'{{"profile_id": {json_text(m.profile_id)},"host_allocation": {json_text(m.host_allocation)},"executor_placement_type": "{type(m.executor_placement).__name__}","executor_placement": {_PUT_ExecutorPlacement[type(m.executor_placement)](m.executor_placement)}}}'


_KEYS_ProfileAllocationPlacement = frozenset(("profile_id", "host_allocation", "executor_placement_type", "executor_placement"))


def _get_ProfileAllocationPlacement(value: Any) -> ProfileAllocationPlacement:
    f = fields_of(value, _KEYS_ProfileAllocationPlacement, "ProfileAllocationPlacement")
    v0 = f.get("profile_id")
    v1 = f.get("host_allocation")
    v2 = _member_ExecutorPlacement(f, "ProfileAllocationPlacement", "executor_placement")
    if v2 is None:
        raise missing("ProfileAllocationPlacement", "executor_placement")
    return ProfileAllocationPlacement(read_text(v0, "ProfileAllocationPlacement", "profile_id"), read_text(v1, "ProfileAllocationPlacement", "host_allocation"), v2)


def _put_ExecuteJobEvent(m: ExecuteJobEvent) -> str:
    parts = []
    parts.append(f'"job_id": {json_text(m.job_id)}')
    parts.append(f'"allocation": {_put_AllocationPlacement(m.allocation)}')
    if m.profile_allocation_override is not None:
        x1 = ",".join([_put_ProfileAllocationPlacement(x) for x in m.profile_allocation_override])
        parts.append(f'"profile_allocation_override": [{x1}]')
    if m.storage_placement is not None:
        x2 = ",".join([_put_StorageHost(x) for x in m.storage_placement])
        parts.append(f'"storage_placement": [{x2}]')
    return "{" + ",".join(parts) + "}"


_KEYS_ExecuteJobEvent = frozenset(("job_id", "allocation", "profile_allocation_override", "storage_placement"))


def _get_ExecuteJobEvent(value: Any) -> ExecuteJobEvent:
    f = fields_of(value, _KEYS_ExecuteJobEvent, "ExecuteJobEvent")
    v0 = f.get("job_id")
    v1 = f.get("allocation")
    if v1 is None:
        raise missing("ExecuteJobEvent", "allocation")
    v2 = f.get("profile_allocation_override")
    v3 = f.get("storage_placement")
    return ExecuteJobEvent(read_text(v0, "ExecuteJobEvent", "job_id"), _get_AllocationPlacement(v1), None if v2 is None else [_get_ProfileAllocationPlacement(x) for x in read_list(v2, "ExecuteJobEvent", "profile_allocation_override")], None if v3 is None else [_get_StorageHost(x) for x in read_list(v3, "ExecuteJobEvent", "storage_placement")])


def _put_KillJobsEvent(m: KillJobsEvent) -> str:
    return f'{{"job_ids": {json_texts(m.job_ids)}}}'


_KEYS_KillJobsEvent = frozenset(("job_ids",))


def _get_KillJobsEvent(value: Any) -> KillJobsEvent:
    f = fields_of(value, _KEYS_KillJobsEvent, "KillJobsEvent")
    v0 = f.get("job_ids")
    return KillJobsEvent([read_text(x, "KillJobsEvent", "job_ids") for x in read_list(v0, "KillJobsEvent", "job_ids")])


def _put_KillProgressAtomicProfile(m: KillProgressAtomicProfile) -> str:
    return f'{{"profile_id": {json_text(m.profile_id)},"progress": {json_number(m.progress)}}}'


_KEYS_KillProgressAtomicProfile = frozenset(("profile_id", "progress"))


def _get_KillProgressAtomicProfile(value: Any) -> KillProgressAtomicProfile:
    f = fields_of(value, _KEYS_KillProgressAtomicProfile, "KillProgressAtomicProfile")
    v0 = f.get("profile_id")
    v1 = f.get("progress")
    return KillProgressAtomicProfile(read_text(v0, "KillProgressAtomicProfile", "profile_id"), 0.0 if v1 is None else read_float(v1, "KillProgressAtomicProfile", "progress"))


def _put_KillProgressSequentialProfile(m: KillProgressSequentialProfile) -> str:
    return f'{{"profile_id": {json_text(m.profile_id)},"current_repetition": {m.current_repetition},"current_task_index": {m.current_task_index},"current_task_progress": {_put_KillProgressWrapper(m.current_task_progress)}}}'


_KEYS_KillProgressSequentialProfile = frozenset(("profile_id", "current_repetition", "current_task_index", "current_task_progress"))


def _get_KillProgressSequentialProfile(value: Any) -> KillProgressSequentialProfile:
    f = fields_of(value, _KEYS_KillProgressSequentialProfile, "KillProgressSequentialProfile")
    v0 = f.get("profile_id")
    v1 = f.get("current_repetition")
    v2 = f.get("current_task_index")
    v3 = f.get("current_task_progress")
    if v3 is None:
        raise missing("KillProgressSequentialProfile", "current_task_progress")
    return KillProgressSequentialProfile(read_text(v0, "KillProgressSequentialProfile", "profile_id"), _get_KillProgressWrapper(v3), 0 if v1 is None else read_integer(v1, 4294967295, "KillProgressSequentialProfile", "current_repetition"), 0 if v2 is None else read_integer(v2, 4294967295, "KillProgressSequentialProfile", "current_task_index"))


def _put_KillProgressForkJoinProfile(m: KillProgressForkJoinProfile) -> str:
    x1 = ",".join([_put_KillProgressWrapper(x) for x in m.tasks_progress])
    return f'{{"profile_id": {json_text(m.profile_id)},"tasks_progress": [{x1}]}}'


_KEYS_KillProgressForkJoinProfile = frozenset(("profile_id", "tasks_progress"))


def _get_KillProgressForkJoinProfile(value: Any) -> KillProgressForkJoinProfile:
    f = fields_of(value, _KEYS_KillProgressForkJoinProfile, "KillProgressForkJoinProfile")
    v0 = f.get("profile_id")
    v1 = f.get("tasks_progress")
    return KillProgressForkJoinProfile(read_text(v0, "KillProgressForkJoinProfile", "profile_id"), [_get_KillProgressWrapper(x) for x in read_list(v1, "KillProgressForkJoinProfile", "tasks_progress")])


def _put_KillProgressWrapper(m: KillProgressWrapper) -> str:
    return f'{{"kill_progress_type": "{type(m.kill_progress).__name__}","kill_progress": {_PUT_KillProgress[type(m.kill_progress)](m.kill_progress)}}}'


_KEYS_KillProgressWrapper = frozenset(("kill_progress_type", "kill_progress"))


def _get_KillProgressWrapper(value: Any) -> KillProgressWrapper:
    f = fields_of(value, _KEYS_KillProgressWrapper, "KillProgressWrapper")
    v0 = _member_KillProgress(f, "KillProgressWrapper", "kill_progress")
    if v0 is None:
        raise missing("KillProgressWrapper", "kill_progress")
    return KillProgressWrapper(v0)


def _put_JobAndProgress(m: JobAndProgress) -> str:
    return f'{{"job_id": {json_text(m.job_id)},"wrapper": {_put_KillProgressWrapper(m.wrapper)}}}'


_KEYS_JobAndProgress = frozenset(("job_id", "wrapper"))


def _get_JobAndProgress(value: Any) -> JobAndProgress:
    f = fields_of(value, _KEYS_JobAndProgress, "JobAndProgress")
    v0 = f.get("job_id")
    v1 = f.get("wrapper")
    if v1 is None:
        raise missing("JobAndProgress", "wrapper")
    return JobAndProgress(read_text(v0, "JobAndProgress", "job_id"), _get_KillProgressWrapper(v1))


def _put_JobsKilledEvent(m: JobsKilledEvent) -> str:
    parts = []
    parts.append(f'"job_ids": {json_texts(m.job_ids)}')
    x1 = ",".join([_put_JobAndProgress(x) for x in m.progresses])
    parts.append(f'"progresses": [{x1}]')
    if m.profiles is not None:
        x2 = ",".join([_put_ProfileAndId(x) for x in m.profiles])
        parts.append(f'"profiles": [{x2}]')
    return "{" + ",".join(parts) + "}"


_KEYS_JobsKilledEvent = frozenset(("job_ids", "progresses", "profiles"))


def _get_JobsKilledEvent(value: Any) -> JobsKilledEvent:
    f = fields_of(value, _KEYS_JobsKilledEvent, "JobsKilledEvent")
    v0 = f.get("job_ids")
    v1 = f.get("progresses")
    v2 = f.get("profiles")
    return JobsKilledEvent([read_text(x, "JobsKilledEvent", "job_ids") for x in read_list(v0, "JobsKilledEvent", "job_ids")], [_get_JobAndProgress(x) for x in read_list(v1, "JobsKilledEvent", "progresses")], None if v2 is None else [_get_ProfileAndId(x) for x in read_list(v2, "JobsKilledEvent", "profiles")])


def _put_ProfileAndId(m: ProfileAndId) -> str:
    parts = []
    parts.append(f'"id": {json_text(m.id)}')
    parts.append(f'"profile_type": "{type(m.profile).__name__}","profile": {_PUT_Profile[type(m.profile)](m.profile)}')
    if m.extra_data is not None:
        parts.append(f'"extra_data": {json_text(m.extra_data)}')
    return "{" + ",".join(parts) + "}"


_KEYS_ProfileAndId = frozenset(("id", "profile_type", "profile", "extra_data"))


def _get_ProfileAndId(value: Any) -> ProfileAndId:
    f = fields_of(value, _KEYS_ProfileAndId, "ProfileAndId")
    v0 = f.get("id")
    v1 = _member_Profile(f, "ProfileAndId", "profile")
    if v1 is None:
        raise missing("ProfileAndId", "profile")
    v2 = f.get("extra_data")
    return ProfileAndId(read_text(v0, "ProfileAndId", "id"), v1, None if v2 is None else read_text(v2, "ProfileAndId", "extra_data"))


def _put_RegisterProfileEvent(m: RegisterProfileEvent) -> str:
    parts = []
    if m.profile is not None:
        parts.append(f'"profile": {_put_ProfileAndId(m.profile)}')
    return "{" + ",".join(parts) + "}"


_KEYS_RegisterProfileEvent = frozenset(("profile",))


def _get_RegisterProfileEvent(value: Any) -> RegisterProfileEvent:
    f = fields_of(value, _KEYS_RegisterProfileEvent, "RegisterProfileEvent")
    v0 = f.get("profile")
    return RegisterProfileEvent(None if v0 is None else _get_ProfileAndId(v0))


def _put_RegisterJobEvent(m: RegisterJobEvent) -> str:
    return f'{{"job_id": {json_text(m.job_id)},"job": {_put_Job(m.job)}}}'


_KEYS_RegisterJobEvent = frozenset(("job_id", "job"))


def _get_RegisterJobEvent(value: Any) -> RegisterJobEvent:
    f = fields_of(value, _KEYS_RegisterJobEvent, "RegisterJobEvent")
    v0 = f.get("job_id")
    v1 = f.get("job")
    if v1 is None:
        raise missing("RegisterJobEvent", "job")
    return RegisterJobEvent(read_text(v0, "RegisterJobEvent", "job_id"), _get_Job(v1))


def _put_HostResources(m: HostResources) -> str:
    parts = []
    if m.host_ids is not None:
        parts.append(f'"host_ids": {json_text(m.host_ids)}')
    return "{" + ",".join(parts) + "}"


_KEYS_HostResources = frozenset(("host_ids",))


def _get_HostResources(value: Any) -> HostResources:
    f = fields_of(value, _KEYS_HostResources, "HostResources")
    v0 = f.get("host_ids")
    return HostResources(None if v0 is None else read_text(v0, "HostResources", "host_ids"))


def _put_LinkResources(m: LinkResources) -> str:
    parts = []
    if m.link_ids is not None:
        parts.append(f'"link_ids": {json_texts(m.link_ids)}')
    return "{" + ",".join(parts) + "}"


_KEYS_LinkResources = frozenset(("link_ids",))


def _get_LinkResources(value: Any) -> LinkResources:
    f = fields_of(value, _KEYS_LinkResources, "LinkResources")
    v0 = f.get("link_ids")
    return LinkResources(None if v0 is None else [read_text(x, "LinkResources", "link_ids") for x in read_list(v0, "LinkResources", "link_ids")])


def _put_NoProbeDataAccumulation(m: NoProbeDataAccumulation) -> str:
    return "{}"


_KEYS_NoProbeDataAccumulation: frozenset[str] = frozenset()


def _get_NoProbeDataAccumulation(value: Any) -> NoProbeDataAccumulation:
    fields_of(value, _KEYS_NoProbeDataAccumulation, "NoProbeDataAccumulation")
    return NoProbeDataAccumulation()


def _put_NoReset(m: NoReset) -> str:
    return "{}"


_KEYS_NoReset: frozenset[str] = frozenset()


def _get_NoReset(value: Any) -> NoReset:
    fields_of(value, _KEYS_NoReset, "NoReset")
    return NoReset()


def _put_ProbeAccumulationReset(m: ProbeAccumulationReset) -> str:
    return f'{{"new_value": {json_number(m.new_value)}}}'


_KEYS_ProbeAccumulationReset = frozenset(("new_value",))


def _get_ProbeAccumulationReset(value: Any) -> ProbeAccumulationReset:
    f = fields_of(value, _KEYS_ProbeAccumulationReset, "ProbeAccumulationReset")
    v0 = f.get("new_value")
    return ProbeAccumulationReset(0.0 if v0 is None else read_float(v0, "ProbeAccumulationReset", "new_value"))


def _put_ProbeDataAccumulation(m: ProbeDataAccumulation) -> str:
    parts = []
    if m.reset_mode is not None:
        parts.append(f'"reset_mode_type": "{type(m.reset_mode).__name__}","reset_mode": {_PUT_ResetMode[type(m.reset_mode)](m.reset_mode)}')
    parts.append(f'"cumulative_function": "{_NAMES_CumulativeFunction[m.cumulative_function]}"')
    x1 = "true" if m.temporal_normalization else "false"
    parts.append(f'"temporal_normalization": {x1}')
    return "{" + ",".join(parts) + "}"


_KEYS_ProbeDataAccumulation = frozenset(("reset_mode_type", "reset_mode", "cumulative_function", "temporal_normalization"))


def _get_ProbeDataAccumulation(value: Any) -> ProbeDataAccumulation:
    f = fields_of(value, _KEYS_ProbeDataAccumulation, "ProbeDataAccumulation")
    v0 = _member_ResetMode(f, "ProbeDataAccumulation", "reset_mode")
    v1 = f.get("cumulative_function")
    if v1 is not None and v1 not in _READ_CumulativeFunction:
        raise unknown_value("CumulativeFunction", v1)
    v2 = f.get("temporal_normalization")
    return ProbeDataAccumulation(v0, CumulativeFunction.Sum if v1 is None else _READ_CumulativeFunction[v1], False if v2 is None else read_bool(v2, "ProbeDataAccumulation", "temporal_normalization"))


def _put_NoTemporalAggregation(m: NoTemporalAggregation) -> str:
    return "{}"


_KEYS_NoTemporalAggregation: frozenset[str] = frozenset()


def _get_NoTemporalAggregation(value: Any) -> NoTemporalAggregation:
    fields_of(value, _KEYS_NoTemporalAggregation, "NoTemporalAggregation")
    return NoTemporalAggregation()


def _put_ExponentialMovingAverage(m: ExponentialMovingAverage) -> str:
    return "{}"


_KEYS_ExponentialMovingAverage: frozenset[str] = frozenset()


def _get_ExponentialMovingAverage(value: Any) -> ExponentialMovingAverage:
    fields_of(value, _KEYS_ExponentialMovingAverage, "ExponentialMovingAverage")
    return ExponentialMovingAverage()


def _put_SlidingWindowOperation(m: SlidingWindowOperation) -> str:
    return "{}"


_KEYS_SlidingWindowOperation: frozenset[str] = frozenset()


def _get_SlidingWindowOperation(value: Any) -> SlidingWindowOperation:
    fields_of(value, _KEYS_SlidingWindowOperation, "SlidingWindowOperation")
    return SlidingWindowOperation()


def _put_NoResourcesAggregation(m: NoResourcesAggregation) -> str:
    return "{}"


_KEYS_NoResourcesAggregation: frozenset[str] = frozenset()


def _get_NoResourcesAggregation(value: Any) -> NoResourcesAggregation:
    fields_of(value, _KEYS_NoResourcesAggregation, "NoResourcesAggregation")
    return NoResourcesAggregation()


def _put_Sum(m: Sum) -> str:
    return "{}"


_KEYS_Sum: frozenset[str] = frozenset()


def _get_Sum(value: Any) -> Sum:
    fields_of(value, _KEYS_Sum, "Sum")
    return Sum()


def _put_ArithmeticMean(m: ArithmeticMean) -> str:
    return "{}"


_KEYS_ArithmeticMean: frozenset[str] = frozenset()


def _get_ArithmeticMean(value: Any) -> ArithmeticMean:
    fields_of(value, _KEYS_ArithmeticMean, "ArithmeticMean")
    return ArithmeticMean()


def _put_QuantileFunction(m: QuantileFunction) -> str:
    return f'{{"threshold": {json_number(m.threshold)}}}'


_KEYS_QuantileFunction = frozenset(("threshold",))


def _get_QuantileFunction(value: Any) -> QuantileFunction:
    f = fields_of(value, _KEYS_QuantileFunction, "QuantileFunction")
    v0 = f.get("threshold")
    return QuantileFunction(0.0 if v0 is None else read_float(v0, "QuantileFunction", "threshold"))


def _put_NoFiltering(m: NoFiltering) -> str:
    return "{}"


_KEYS_NoFiltering: frozenset[str] = frozenset()


def _get_NoFiltering(value: Any) -> NoFiltering:
    fields_of(value, _KEYS_NoFiltering, "NoFiltering")
    return NoFiltering()


def _put_ThresholdFilteringFunction(m: ThresholdFilteringFunction) -> str:
    return f'{{"threshold": {json_number(m.threshold)},"operator": "{_NAMES_BooleanComparisonOperator[m.operator]}"}}'


_KEYS_ThresholdFilteringFunction = frozenset(("threshold", "operator"))


def _get_ThresholdFilteringFunction(value: Any) -> ThresholdFilteringFunction:
    f = fields_of(value, _KEYS_ThresholdFilteringFunction, "ThresholdFilteringFunction")
    v0 = f.get("threshold")
    v1 = f.get("operator")
    if v1 is not None and v1 not in _READ_BooleanComparisonOperator:
        raise unknown_value("BooleanComparisonOperator", v1)
    return ThresholdFilteringFunction(0.0 if v0 is None else read_float(v0, "ThresholdFilteringFunction", "threshold"), BooleanComparisonOperator.GreaterThan if v1 is None else _READ_BooleanComparisonOperator[v1])


def _put_CreateProbeEvent(m: CreateProbeEvent) -> str:
    parts = []
    if m.probe_id is not None:
        parts.append(f'"probe_id": {json_text(m.probe_id)}')
    parts.append(f'"metrics": "{_NAMES_Metrics[m.metrics]}"')
    if m.resources is not None:
        parts.append(f'"resources_type": "{type(m.resources).__name__}","resources": {_PUT_Resources[type(m.resources)](m.resources)}')
    if m.data_accumulation_strategy is not None:
        parts.append(f'"data_accumulation_strategy_type": "{type(m.data_accumulation_strategy).__name__}","data_accumulation_strategy": {_PUT_ProbeDataAccumulationStrategy[type(m.data_accumulation_strategy)](m.data_accumulation_strategy)}')
    if m.measurement_triggering_policy is not None:
        parts.append(f'"measurement_triggering_policy_type": "{type(m.measurement_triggering_policy).__name__}","measurement_triggering_policy": {_PUT_ProbeMeasurementTriggeringPolicy[type(m.measurement_triggering_policy)](m.measurement_triggering_policy)}')
    if m.resources_aggregation_function is not None:
        parts.append(f'"resources_aggregation_function_type": "{type(m.resources_aggregation_function).__name__}","resources_aggregation_function": {_PUT_ResourcesAggregationFunction[type(m.resources_aggregation_function)](m.resources_aggregation_function)}')
    if m.temporal_aggregation_function is not None:
        parts.append(f'"temporal_aggregation_function_type": "{type(m.temporal_aggregation_function).__name__}","temporal_aggregation_function": {_PUT_TemporalAggregationFunction[type(m.temporal_aggregation_function)](m.temporal_aggregation_function)}')
    if m.emission_filtering_policy is not None:
        parts.append(f'"emission_filtering_policy_type": "{type(m.emission_filtering_policy).__name__}","emission_filtering_policy": {_PUT_ProbeEmissionFilteringPolicy[type(m.emission_filtering_policy)](m.emission_filtering_policy)}')
    return "{" + ",".join(parts) + "}"


_KEYS_CreateProbeEvent = frozenset(("probe_id", "metrics", "resources_type", "resources", "data_accumulation_strategy_type", "data_accumulation_strategy", "measurement_triggering_policy_type", "measurement_triggering_policy", "resources_aggregation_function_type", "resources_aggregation_function", "temporal_aggregation_function_type", "temporal_aggregation_function", "emission_filtering_policy_type", "emission_filtering_policy"))


def _get_CreateProbeEvent(value: Any) -> CreateProbeEvent:
    f = fields_of(value, _KEYS_CreateProbeEvent, "CreateProbeEvent")
    v0 = f.get("probe_id")
    v1 = f.get("metrics")
    if v1 is not None and v1 not in _READ_Metrics:
        raise unknown_value("Metrics", v1)
    v2 = _member_Resources(f, "CreateProbeEvent", "resources")
    v3 = _member_ProbeDataAccumulationStrategy(f, "CreateProbeEvent", "data_accumulation_strategy")
    v4 = _member_ProbeMeasurementTriggeringPolicy(f, "CreateProbeEvent", "measurement_triggering_policy")
    v5 = _member_ResourcesAggregationFunction(f, "CreateProbeEvent", "resources_aggregation_function")
    v6 = _member_TemporalAggregationFunction(f, "CreateProbeEvent", "temporal_aggregation_function")
    v7 = _member_ProbeEmissionFilteringPolicy(f, "CreateProbeEvent", "emission_filtering_policy")
    return CreateProbeEvent(None if v0 is None else read_text(v0, "CreateProbeEvent", "probe_id"), Metrics.Power if v1 is None else _READ_Metrics[v1], v2, v3, v4, v5, v6, v7)


def _put_StopProbeEvent(m: StopProbeEvent) -> str:
    parts = []
    if m.probe_id is not None:
        parts.append(f'"probe_id": {json_text(m.probe_id)}')
    return "{" + ",".join(parts) + "}"


_KEYS_StopProbeEvent = frozenset(("probe_id",))


def _get_StopProbeEvent(value: Any) -> StopProbeEvent:
    f = fields_of(value, _KEYS_StopProbeEvent, "StopProbeEvent")
    v0 = f.get("probe_id")
    return StopProbeEvent(None if v0 is None else read_text(v0, "StopProbeEvent", "probe_id"))


def _put_ResetProbeEvent(m: ResetProbeEvent) -> str:
    parts = []
    if m.probe_id is not None:
        parts.append(f'"probe_id": {json_text(m.probe_id)}')
    parts.append(f'"new_value": {json_number(m.new_value)}')
    return "{" + ",".join(parts) + "}"


_KEYS_ResetProbeEvent = frozenset(("probe_id", "new_value"))


def _get_ResetProbeEvent(value: Any) -> ResetProbeEvent:
    f = fields_of(value, _KEYS_ResetProbeEvent, "ResetProbeEvent")
    v0 = f.get("probe_id")
    v1 = f.get("new_value")
    return ResetProbeEvent(None if v0 is None else read_text(v0, "ResetProbeEvent", "probe_id"), 0.0 if v1 is None else read_float(v1, "ResetProbeEvent", "new_value"))


def _put_TriggerProbeEvent(m: TriggerProbeEvent) -> str:
    parts = []
    if m.probe_id is not None:
        parts.append(f'"probe_id": {json_text(m.probe_id)}')
    x1 = "true" if m.force_data_emission else "false"
    parts.append(f'"force_data_emission": {x1}')
    return "{" + ",".join(parts) + "}"


_KEYS_TriggerProbeEvent = frozenset(("probe_id", "force_data_emission"))


def _get_TriggerProbeEvent(value: Any) -> TriggerProbeEvent:
    f = fields_of(value, _KEYS_TriggerProbeEvent, "TriggerProbeEvent")
    v0 = f.get("probe_id")
    v1 = f.get("force_data_emission")
    return TriggerProbeEvent(None if v0 is None else read_text(v0, "TriggerProbeEvent", "probe_id"), True if v1 is None else read_bool(v1, "TriggerProbeEvent", "force_data_emission"))


def _put_AggregatedProbeData(m: AggregatedProbeData) -> str:
    return f'{{"data": {json_number(m.data)}}}'


_KEYS_AggregatedProbeData = frozenset(("data",))


def _get_AggregatedProbeData(value: Any) -> AggregatedProbeData:
    f = fields_of(value, _KEYS_AggregatedProbeData, "AggregatedProbeData")
    v0 = f.get("data")
    return AggregatedProbeData(0.0 if v0 is None else read_float(v0, "AggregatedProbeData", "data"))


def _put_VectorialProbeData(m: VectorialProbeData) -> str:
    parts = []
    if m.data is not None:
        parts.append(f'"data": {json_numbers(m.data)}')
    return "{" + ",".join(parts) + "}"


_KEYS_VectorialProbeData = frozenset(("data",))


def _get_VectorialProbeData(value: Any) -> VectorialProbeData:
    f = fields_of(value, _KEYS_VectorialProbeData, "VectorialProbeData")
    v0 = f.get("data")
    return VectorialProbeData(None if v0 is None else [read_float(x, "VectorialProbeData", "data") for x in read_list(v0, "VectorialProbeData", "data")])


def _put_ProbeDataEmittedEvent(m: ProbeDataEmittedEvent) -> str:
    parts = []
    if m.probe_id is not None:
        parts.append(f'"probe_id": {json_text(m.probe_id)}')
    if m.resources is not None:
        parts.append(f'"resources_type": "{type(m.resources).__name__}","resources": {_PUT_Resources[type(m.resources)](m.resources)}')
    parts.append(f'"metrics": "{_NAMES_Metrics[m.metrics]}"')
    if m.data is not None:
        parts.append(f'"data_type": "{type(m.data).__name__}","data": {_PUT_ProbeData[type(m.data)](m.data)}')
    x1 = "true" if m.manually_triggered else "false"
    parts.append(f'"manually_triggered": {x1}')
    parts.append(f'"nb_emitted": {m.nb_emitted}')
    parts.append(f'"nb_triggered": {m.nb_triggered}')
    return "{" + ",".join(parts) + "}"


_KEYS_ProbeDataEmittedEvent = frozenset(("probe_id", "resources_type", "resources", "metrics", "data_type", "data", "manually_triggered", "nb_emitted", "nb_triggered"))


def _get_ProbeDataEmittedEvent(value: Any) -> ProbeDataEmittedEvent:
    f = fields_of(value, _KEYS_ProbeDataEmittedEvent, "ProbeDataEmittedEvent")
    v0 = f.get("probe_id")
    v1 = _member_Resources(f, "ProbeDataEmittedEvent", "resources")
    v2 = f.get("metrics")
    if v2 is not None and v2 not in _READ_Metrics:
        raise unknown_value("Metrics", v2)
    v3 = _member_ProbeData(f, "ProbeDataEmittedEvent", "data")
    v4 = f.get("manually_triggered")
    v5 = f.get("nb_emitted")
    v6 = f.get("nb_triggered")
    return ProbeDataEmittedEvent(None if v0 is None else read_text(v0, "ProbeDataEmittedEvent", "probe_id"), v1, Metrics.Power if v2 is None else _READ_Metrics[v2], v3, False if v4 is None else read_bool(v4, "ProbeDataEmittedEvent", "manually_triggered"), 0 if v5 is None else read_integer(v5, 4294967295, "ProbeDataEmittedEvent", "nb_emitted"), 0 if v6 is None else read_integer(v6, 4294967295, "ProbeDataEmittedEvent", "nb_triggered"))


def _put_OneShot(m: OneShot) -> str:
    return f'{{"time": {m.time},"time_unit": "{_NAMES_TimeUnit[m.time_unit]}"}}'


_KEYS_OneShot = frozenset(("time", "time_unit"))


def _get_OneShot(value: Any) -> OneShot:
    f = fields_of(value, _KEYS_OneShot, "OneShot")
    v0 = f.get("time")
    v1 = f.get("time_unit")
    if v1 is not None and v1 not in _READ_TimeUnit:
        raise unknown_value("TimeUnit", v1)
    return OneShot(0 if v0 is None else read_integer(v0, 18446744073709551615, "OneShot", "time"), TimeUnit.Second if v1 is None else _READ_TimeUnit[v1])


def _put_Infinite(m: Infinite) -> str:
    return "{}"


_KEYS_Infinite: frozenset[str] = frozenset()


def _get_Infinite(value: Any) -> Infinite:
    fields_of(value, _KEYS_Infinite, "Infinite")
    return Infinite()


def _put_FinitePeriodNumber(m: FinitePeriodNumber) -> str:
    return f'{{"nb_periods": {m.nb_periods}}}'


_KEYS_FinitePeriodNumber = frozenset(("nb_periods",))


def _get_FinitePeriodNumber(value: Any) -> FinitePeriodNumber:
    f = fields_of(value, _KEYS_FinitePeriodNumber, "FinitePeriodNumber")
    v0 = f.get("nb_periods")
    return FinitePeriodNumber(0 if v0 is None else read_integer(v0, 4294967295, "FinitePeriodNumber", "nb_periods"))


def _put_Periodic(m: Periodic) -> str:
    parts = []
    parts.append(f'"period": {m.period}')
    parts.append(f'"offset": {m.offset}')
    parts.append(f'"time_unit": "{_NAMES_TimeUnit[m.time_unit]}"')
    if m.mode is not None:
        parts.append(f'"mode_type": "{type(m.mode).__name__}","mode": {_PUT_PeriodicMode[type(m.mode)](m.mode)}')
    return "{" + ",".join(parts) + "}"


_KEYS_Periodic = frozenset(("period", "offset", "time_unit", "mode_type", "mode"))


def _get_Periodic(value: Any) -> Periodic:
    f = fields_of(value, _KEYS_Periodic, "Periodic")
    v0 = f.get("period")
    v1 = f.get("offset")
    v2 = f.get("time_unit")
    if v2 is not None and v2 not in _READ_TimeUnit:
        raise unknown_value("TimeUnit", v2)
    v3 = _member_PeriodicMode(f, "Periodic", "mode")
    return Periodic(0 if v0 is None else read_integer(v0, 18446744073709551615, "Periodic", "period"), 0 if v1 is None else read_integer(v1, 18446744073709551615, "Periodic", "offset"), TimeUnit.Second if v2 is None else _READ_TimeUnit[v2], v3)


def _put_TemporalTriggerWrapper(m: TemporalTriggerWrapper) -> str:
    parts = []
    if m.temporal_trigger is not None:
        parts.append(f'"temporal_trigger_type": "{type(m.temporal_trigger).__name__}","temporal_trigger": {_PUT_TemporalTrigger[type(m.temporal_trigger)](m.temporal_trigger)}')
    return "{" + ",".join(parts) + "}"


_KEYS_TemporalTriggerWrapper = frozenset(("temporal_trigger_type", "temporal_trigger"))


def _get_TemporalTriggerWrapper(value: Any) -> TemporalTriggerWrapper:
    f = fields_of(value, _KEYS_TemporalTriggerWrapper, "TemporalTriggerWrapper")
    v0 = _member_TemporalTrigger(f, "TemporalTriggerWrapper", "temporal_trigger")
    return TemporalTriggerWrapper(v0)


def _put_CallMeLaterEvent(m: CallMeLaterEvent) -> str:
    return f'{{"call_me_later_id": {json_text(m.call_me_later_id)},"when_type": "{type(m.when).__name__}","when": {_PUT_TemporalTrigger[type(m.when)](m.when)}}}'


_KEYS_CallMeLaterEvent = frozenset(("call_me_later_id", "when_type", "when"))


def _get_CallMeLaterEvent(value: Any) -> CallMeLaterEvent:
    f = fields_of(value, _KEYS_CallMeLaterEvent, "CallMeLaterEvent")
    v0 = f.get("call_me_later_id")
    v1 = _member_TemporalTrigger(f, "CallMeLaterEvent", "when")
    if v1 is None:
        raise missing("CallMeLaterEvent", "when")
    return CallMeLaterEvent(read_text(v0, "CallMeLaterEvent", "call_me_later_id"), v1)


def _put_RequestedCallEvent(m: RequestedCallEvent) -> str:
    x1 = "true" if m.last_periodic_call else "false"
    return f'{{"call_me_later_id": {json_text(m.call_me_later_id)},"last_periodic_call": {x1}}}'


_KEYS_RequestedCallEvent = frozenset(("call_me_later_id", "last_periodic_call"))


def _get_RequestedCallEvent(value: Any) -> RequestedCallEvent:
    f = fields_of(value, _KEYS_RequestedCallEvent, "RequestedCallEvent")
    v0 = f.get("call_me_later_id")
    v1 = f.get("last_periodic_call")
    return RequestedCallEvent(read_text(v0, "RequestedCallEvent", "call_me_later_id"), False if v1 is None else read_bool(v1, "RequestedCallEvent", "last_periodic_call"))


def _put_StopCallMeLaterEvent(m: StopCallMeLaterEvent) -> str:
    return f'{{"call_me_later_id": {json_text(m.call_me_later_id)}}}'


_KEYS_StopCallMeLaterEvent = frozenset(("call_me_later_id",))


def _get_StopCallMeLaterEvent(value: Any) -> StopCallMeLaterEvent:
    f = fields_of(value, _KEYS_StopCallMeLaterEvent, "StopCallMeLaterEvent")
    v0 = f.get("call_me_later_id")
    return StopCallMeLaterEvent(read_text(v0, "StopCallMeLaterEvent", "call_me_later_id"))


def _put_BatsimHelloEvent(m: BatsimHelloEvent) -> str:
    parts = []
    parts.append(f'"batprotocol_version": {json_text(m.batprotocol_version)}')
    parts.append(f'"batsim_version": {json_text(m.batsim_version)}')
    if m.batsim_commit is not None:
        parts.append(f'"batsim_commit": {json_text(m.batsim_commit)}')
    return "{" + ",".join(parts) + "}"


_KEYS_BatsimHelloEvent = frozenset(("batprotocol_version", "batsim_version", "batsim_commit"))


def _get_BatsimHelloEvent(value: Any) -> BatsimHelloEvent:
    f = fields_of(value, _KEYS_BatsimHelloEvent, "BatsimHelloEvent")
    v0 = f.get("batprotocol_version")
    v1 = f.get("batsim_version")
    v2 = f.get("batsim_commit")
    return BatsimHelloEvent(read_text(v0, "BatsimHelloEvent", "batprotocol_version"), read_text(v1, "BatsimHelloEvent", "batsim_version"), None if v2 is None else read_text(v2, "BatsimHelloEvent", "batsim_commit"))


def _put_EDCRequestedSimulationFeatures(m: EDCRequestedSimulationFeatures) -> str:
    x1 = "true" if m.dynamic_registration else "false"
    x2 = "true" if m.profile_reuse else "false"
    x3 = "true" if m.acknowledge_dynamic_jobs else "false"
    x4 = "true" if m.forward_profiles_on_job_submission else "false"
    x5 = "true" if m.forward_profiles_on_jobs_killed else "false"
    x6 = "true" if m.forward_profiles_on_simulation_begins else "false"
    x7 = "true" if m.forward_unknown_external_events else "false"
    return f'{{"dynamic_registration": {x1},"profile_reuse": {x2},"acknowledge_dynamic_jobs": {x3},"forward_profiles_on_job_submission": {x4},"forward_profiles_on_jobs_killed": {x5},"forward_profiles_on_simulation_begins": {x6},"forward_unknown_external_events": {x7}}}'


_KEYS_EDCRequestedSimulationFeatures = frozenset(("dynamic_registration", "profile_reuse", "acknowledge_dynamic_jobs", "forward_profiles_on_job_submission", "forward_profiles_on_jobs_killed", "forward_profiles_on_simulation_begins", "forward_unknown_external_events"))


def _get_EDCRequestedSimulationFeatures(value: Any) -> EDCRequestedSimulationFeatures:
    f = fields_of(value, _KEYS_EDCRequestedSimulationFeatures, "EDCRequestedSimulationFeatures")
    v0 = f.get("dynamic_registration")
    v1 = f.get("profile_reuse")
    v2 = f.get("acknowledge_dynamic_jobs")
    v3 = f.get("forward_profiles_on_job_submission")
    v4 = f.get("forward_profiles_on_jobs_killed")
    v5 = f.get("forward_profiles_on_simulation_begins")
    v6 = f.get("forward_unknown_external_events")
    return EDCRequestedSimulationFeatures(False if v0 is None else read_bool(v0, "EDCRequestedSimulationFeatures", "dynamic_registration"), False if v1 is None else read_bool(v1, "EDCRequestedSimulationFeatures", "profile_reuse"), False if v2 is None else read_bool(v2, "EDCRequestedSimulationFeatures", "acknowledge_dynamic_jobs"), False if v3 is None else read_bool(v3, "EDCRequestedSimulationFeatures", "forward_profiles_on_job_submission"), False if v4 is None else read_bool(v4, "EDCRequestedSimulationFeatures", "forward_profiles_on_jobs_killed"), False if v5 is None else read_bool(v5, "EDCRequestedSimulationFeatures", "forward_profiles_on_simulation_begins"), False if v6 is None else read_bool(v6, "EDCRequestedSimulationFeatures", "forward_unknown_external_events"))


def _put_EDCSchedulingConstraints(m: EDCSchedulingConstraints) -> str:
    x1 = "true" if m.compute_sharing else "false"
    x2 = "true" if m.storage_sharing else "false"
    return f'{{"compute_sharing": {x1},"storage_sharing": {x2},"job_allocation_validation_strategy": "{_NAMES_JobAllocationValidationStrategy[m.job_allocation_validation_strategy]}"}}'


_KEYS_EDCSchedulingConstraints = frozenset(("compute_sharing", "storage_sharing", "job_allocation_validation_strategy"))


def _get_EDCSchedulingConstraints(value: Any) -> EDCSchedulingConstraints:
    f = fields_of(value, _KEYS_EDCSchedulingConstraints, "EDCSchedulingConstraints")
    v0 = f.get("compute_sharing")
    v1 = f.get("storage_sharing")
    v2 = f.get("job_allocation_validation_strategy")
    if v2 is not None and v2 not in _READ_JobAllocationValidationStrategy:
        raise unknown_value("JobAllocationValidationStrategy", v2)
    return EDCSchedulingConstraints(False if v0 is None else read_bool(v0, "EDCSchedulingConstraints", "compute_sharing"), True if v1 is None else read_bool(v1, "EDCSchedulingConstraints", "storage_sharing"), JobAllocationValidationStrategy.MatchJobRequestExactly if v2 is None else _READ_JobAllocationValidationStrategy[v2])


def _put_EDCHelloEvent(m: EDCHelloEvent) -> str:
    parts = []
    parts.append(f'"batprotocol_version": {json_text(m.batprotocol_version)}')
    parts.append(f'"decision_component_name": {json_text(m.decision_component_name)}')
    parts.append(f'"decision_component_version": {json_text(m.decision_component_version)}')
    if m.decision_component_commit is not None:
        parts.append(f'"decision_component_commit": {json_text(m.decision_component_commit)}')
    if m.requested_simulation_features is not None:
        parts.append(f'"requested_simulation_features": {_put_EDCRequestedSimulationFeatures(m.requested_simulation_features)}')
    if m.scheduling_constraints is not None:
        parts.append(f'"scheduling_constraints": {_put_EDCSchedulingConstraints(m.scheduling_constraints)}')
    return "{" + ",".join(parts) + "}"


_KEYS_EDCHelloEvent = frozenset(("batprotocol_version", "decision_component_name", "decision_component_version", "decision_component_commit", "requested_simulation_features", "scheduling_constraints"))


def _get_EDCHelloEvent(value: Any) -> EDCHelloEvent:
    f = fields_of(value, _KEYS_EDCHelloEvent, "EDCHelloEvent")
    v0 = f.get("batprotocol_version")
    v1 = f.get("decision_component_name")
    v2 = f.get("decision_component_version")
    v3 = f.get("decision_component_commit")
    v4 = f.get("requested_simulation_features")
    v5 = f.get("scheduling_constraints")
    return EDCHelloEvent(read_text(v0, "EDCHelloEvent", "batprotocol_version"), read_text(v1, "EDCHelloEvent", "decision_component_name"), read_text(v2, "EDCHelloEvent", "decision_component_version"), None if v3 is None else read_text(v3, "EDCHelloEvent", "decision_component_commit"), None if v4 is None else _get_EDCRequestedSimulationFeatures(v4), None if v5 is None else _get_EDCSchedulingConstraints(v5))


def _put_HostProperty(m: HostProperty) -> str:
    return f'{{"key": {json_text(m.key)},"value": {json_text(m.value)}}}'


_KEYS_HostProperty = frozenset(("key", "value"))


def _get_HostProperty(value: Any) -> HostProperty:
    f = fields_of(value, _KEYS_HostProperty, "HostProperty")
    v0 = f.get("key")
    v1 = f.get("value")
    return HostProperty(read_text(v0, "HostProperty", "key"), read_text(v1, "HostProperty", "value"))


def _put_Host(m: Host) -> str:
    parts = []
    parts.append(f'"id": {m.id}')
    parts.append(f'"name": {json_text(m.name)}')
    parts.append(f'"pstate": {m.pstate}')
    parts.append(f'"pstate_count": {m.pstate_count}')
    parts.append(f'"state": "{_NAMES_HostState[m.state]}"')
    if m.properties is not None:
        x1 = ",".join([_put_HostProperty(x) for x in m.properties])
        parts.append(f'"properties": [{x1}]')
    if m.zone_properties is not None:
        x2 = ",".join([_put_HostProperty(x) for x in m.zone_properties])
        parts.append(f'"zone_properties": [{x2}]')
    parts.append(f'"core_count": {m.core_count}')
    if m.computation_speed is not None:
        parts.append(f'"computation_speed": {json_numbers(m.computation_speed)}')
    return "{" + ",".join(parts) + "}"


_KEYS_Host = frozenset(("id", "name", "pstate", "pstate_count", "state", "properties", "zone_properties", "core_count", "computation_speed"))


def _get_Host(value: Any) -> Host:
    f = fields_of(value, _KEYS_Host, "Host")
    v0 = f.get("id")
    v1 = f.get("name")
    v2 = f.get("pstate")
    v3 = f.get("pstate_count")
    v4 = f.get("state")
    if v4 is not None and v4 not in _READ_HostState:
        raise unknown_value("HostState", v4)
    v5 = f.get("properties")
    v6 = f.get("zone_properties")
    v7 = f.get("core_count")
    v8 = f.get("computation_speed")
    return Host(read_text(v1, "Host", "name"), 0 if v0 is None else read_integer(v0, 4294967295, "Host", "id"), 0 if v2 is None else read_integer(v2, 4294967295, "Host", "pstate"), 1 if v3 is None else read_integer(v3, 4294967295, "Host", "pstate_count"), HostState.SLEEPING if v4 is None else _READ_HostState[v4], None if v5 is None else [_get_HostProperty(x) for x in read_list(v5, "Host", "properties")], None if v6 is None else [_get_HostProperty(x) for x in read_list(v6, "Host", "zone_properties")], 1 if v7 is None else read_integer(v7, 4294967295, "Host", "core_count"), None if v8 is None else [read_float(x, "Host", "computation_speed") for x in read_list(v8, "Host", "computation_speed")])


def _put_WorkloadAndFilename(m: WorkloadAndFilename) -> str:
    return f'{{"name": {json_text(m.name)},"filename": {json_text(m.filename)}}}'


_KEYS_WorkloadAndFilename = frozenset(("name", "filename"))


def _get_WorkloadAndFilename(value: Any) -> WorkloadAndFilename:
    f = fields_of(value, _KEYS_WorkloadAndFilename, "WorkloadAndFilename")
    v0 = f.get("name")
    v1 = f.get("filename")
    return WorkloadAndFilename(read_text(v0, "WorkloadAndFilename", "name"), read_text(v1, "WorkloadAndFilename", "filename"))


def _put_ExternalEventListAndFilename(m: ExternalEventListAndFilename) -> str:
    return f'{{"name": {json_text(m.name)},"filename": {json_text(m.filename)}}}'


_KEYS_ExternalEventListAndFilename = frozenset(("name", "filename"))


def _get_ExternalEventListAndFilename(value: Any) -> ExternalEventListAndFilename:
    f = fields_of(value, _KEYS_ExternalEventListAndFilename, "ExternalEventListAndFilename")
    v0 = f.get("name")
    v1 = f.get("filename")
    return ExternalEventListAndFilename(read_text(v0, "ExternalEventListAndFilename", "name"), read_text(v1, "ExternalEventListAndFilename", "filename"))


def _put_SimulationBeginsEvent(m: SimulationBeginsEvent) -> str:
    parts = []
    parts.append(f'"host_number": {m.host_number}')
    parts.append(f'"computation_host_number": {m.computation_host_number}')
    if m.computation_hosts is not None:
        x1 = ",".join([_put_Host(x) for x in m.computation_hosts])
        parts.append(f'"computation_hosts": [{x1}]')
    parts.append(f'"storage_host_number": {m.storage_host_number}')
    if m.storage_hosts is not None:
        x2 = ",".join([_put_Host(x) for x in m.storage_hosts])
        parts.append(f'"storage_hosts": [{x2}]')
    if m.batsim_arguments is not None:
        parts.append(f'"batsim_arguments": {json_texts(m.batsim_arguments)}')
    parts.append(f'"batsim_execution_context_json": {json_text(m.batsim_execution_context_json)}')
    if m.workloads is not None:
        x3 = ",".join([_put_WorkloadAndFilename(x) for x in m.workloads])
        parts.append(f'"workloads": [{x3}]')
    if m.profiles is not None:
        x4 = ",".join([_put_ProfileAndId(x) for x in m.profiles])
        parts.append(f'"profiles": [{x4}]')
    if m.external_event_lists is not None:
        x5 = ",".join([_put_ExternalEventListAndFilename(x) for x in m.external_event_lists])
        parts.append(f'"external_event_lists": [{x5}]')
    if m.batprotocol_version is not None:
        parts.append(f'"batprotocol_version": {json_text(m.batprotocol_version)}')
    if m.batsim_version is not None:
        parts.append(f'"batsim_version": {json_text(m.batsim_version)}')
    if m.batsim_commit is not None:
        parts.append(f'"batsim_commit": {json_text(m.batsim_commit)}')
    return "{" + ",".join(parts) + "}"


_KEYS_SimulationBeginsEvent = frozenset(("host_number", "computation_host_number", "computation_hosts", "storage_host_number", "storage_hosts", "batsim_arguments", "batsim_execution_context_json", "workloads", "profiles", "external_event_lists", "batprotocol_version", "batsim_version", "batsim_commit"))


def _get_SimulationBeginsEvent(value: Any) -> SimulationBeginsEvent:
    f = fields_of(value, _KEYS_SimulationBeginsEvent, "SimulationBeginsEvent")
    v0 = f.get("host_number")
    v1 = f.get("computation_host_number")
    v2 = f.get("computation_hosts")
    v3 = f.get("storage_host_number")
    v4 = f.get("storage_hosts")
    v5 = f.get("batsim_arguments")
    v6 = f.get("batsim_execution_context_json")
    v7 = f.get("workloads")
    v8 = f.get("profiles")
    v9 = f.get("external_event_lists")
    v10 = f.get("batprotocol_version")
    v11 = f.get("batsim_version")
    v12 = f.get("batsim_commit")
    return SimulationBeginsEvent(read_text(v6, "SimulationBeginsEvent", "batsim_execution_context_json"), 0 if v0 is None else read_integer(v0, 4294967295, "SimulationBeginsEvent", "host_number"), 0 if v1 is None else read_integer(v1, 4294967295, "SimulationBeginsEvent", "computation_host_number"), None if v2 is None else [_get_Host(x) for x in read_list(v2, "SimulationBeginsEvent", "computation_hosts")], 0 if v3 is None else read_integer(v3, 4294967295, "SimulationBeginsEvent", "storage_host_number"), None if v4 is None else [_get_Host(x) for x in read_list(v4, "SimulationBeginsEvent", "storage_hosts")], None if v5 is None else [read_text(x, "SimulationBeginsEvent", "batsim_arguments") for x in read_list(v5, "SimulationBeginsEvent", "batsim_arguments")], None if v7 is None else [_get_WorkloadAndFilename(x) for x in read_list(v7, "SimulationBeginsEvent", "workloads")], None if v8 is None else [_get_ProfileAndId(x) for x in read_list(v8, "SimulationBeginsEvent", "profiles")], None if v9 is None else [_get_ExternalEventListAndFilename(x) for x in read_list(v9, "SimulationBeginsEvent", "external_event_lists")], None if v10 is None else read_text(v10, "SimulationBeginsEvent", "batprotocol_version"), None if v11 is None else read_text(v11, "SimulationBeginsEvent", "batsim_version"), None if v12 is None else read_text(v12, "SimulationBeginsEvent", "batsim_commit"))


def _put_SimulationEndsEvent(m: SimulationEndsEvent) -> str:
    return "{}"


_KEYS_SimulationEndsEvent: frozenset[str] = frozenset()


def _get_SimulationEndsEvent(value: Any) -> SimulationEndsEvent:
    fields_of(value, _KEYS_SimulationEndsEvent, "SimulationEndsEvent")
    return SimulationEndsEvent()


def _put_AllStaticJobsHaveBeenSubmittedEvent(m: AllStaticJobsHaveBeenSubmittedEvent) -> str:
    return "{}"


_KEYS_AllStaticJobsHaveBeenSubmittedEvent: frozenset[str] = frozenset()


def _get_AllStaticJobsHaveBeenSubmittedEvent(value: Any) -> AllStaticJobsHaveBeenSubmittedEvent:
    fields_of(value, _KEYS_AllStaticJobsHaveBeenSubmittedEvent, "AllStaticJobsHaveBeenSubmittedEvent")
    return AllStaticJobsHaveBeenSubmittedEvent()


def _put_AllStaticExternalEventsHaveBeenInjectedEvent(m: AllStaticExternalEventsHaveBeenInjectedEvent) -> str:
    return "{}"


_KEYS_AllStaticExternalEventsHaveBeenInjectedEvent: frozenset[str] = frozenset()


def _get_AllStaticExternalEventsHaveBeenInjectedEvent(value: Any) -> AllStaticExternalEventsHaveBeenInjectedEvent:
    fields_of(value, _KEYS_AllStaticExternalEventsHaveBeenInjectedEvent, "AllStaticExternalEventsHaveBeenInjectedEvent")
    return AllStaticExternalEventsHaveBeenInjectedEvent()


def _put_FinishRegistrationEvent(m: FinishRegistrationEvent) -> str:
    return "{}"


_KEYS_FinishRegistrationEvent: frozenset[str] = frozenset()


def _get_FinishRegistrationEvent(value: Any) -> FinishRegistrationEvent:
    fields_of(value, _KEYS_FinishRegistrationEvent, "FinishRegistrationEvent")
    return FinishRegistrationEvent()


def _put_ForceSimulationStopEvent(m: ForceSimulationStopEvent) -> str:
    return "{}"


_KEYS_ForceSimulationStopEvent: frozenset[str] = frozenset()


def _get_ForceSimulationStopEvent(value: Any) -> ForceSimulationStopEvent:
    fields_of(value, _KEYS_ForceSimulationStopEvent, "ForceSimulationStopEvent")
    return ForceSimulationStopEvent()


def _put_GenericExternalEvent(m: GenericExternalEvent) -> str:
    parts = []
    if m.data is not None:
        parts.append(f'"data": {json_text(m.data)}')
    return "{" + ",".join(parts) + "}"


_KEYS_GenericExternalEvent = frozenset(("data",))


def _get_GenericExternalEvent(value: Any) -> GenericExternalEvent:
    f = fields_of(value, _KEYS_GenericExternalEvent, "GenericExternalEvent")
    v0 = f.get("data")
    return GenericExternalEvent(None if v0 is None else read_text(v0, "GenericExternalEvent", "data"))


def _put_ExternalEventOccurredEvent(m: ExternalEventOccurredEvent) -> str:
    parts = []
    if m.id is not None:
        parts.append(f'"id": {json_text(m.id)}')
    if m.external_event is not None:
        parts.append(f'"external_event_type": "{type(m.external_event).__name__}","external_event": {_PUT_ExternalEvent[type(m.external_event)](m.external_event)}')
    return "{" + ",".join(parts) + "}"


_KEYS_ExternalEventOccurredEvent = frozenset(("id", "external_event_type", "external_event"))


def _get_ExternalEventOccurredEvent(value: Any) -> ExternalEventOccurredEvent:
    f = fields_of(value, _KEYS_ExternalEventOccurredEvent, "ExternalEventOccurredEvent")
    v0 = f.get("id")
    v1 = _member_ExternalEvent(f, "ExternalEventOccurredEvent", "external_event")
    return ExternalEventOccurredEvent(None if v0 is None else read_text(v0, "ExternalEventOccurredEvent", "id"), v1)


def _put_ChangeHostsPStateEvent(m: ChangeHostsPStateEvent) -> str:
    return f'{{"host_ids": {json_text(m.host_ids)},"pstate": {m.pstate}}}'


_KEYS_ChangeHostsPStateEvent = frozenset(("host_ids", "pstate"))


def _get_ChangeHostsPStateEvent(value: Any) -> ChangeHostsPStateEvent:
    f = fields_of(value, _KEYS_ChangeHostsPStateEvent, "ChangeHostsPStateEvent")
    v0 = f.get("host_ids")
    v1 = f.get("pstate")
    return ChangeHostsPStateEvent(read_text(v0, "ChangeHostsPStateEvent", "host_ids"), 0 if v1 is None else read_integer(v1, 4294967295, "ChangeHostsPStateEvent", "pstate"))


def _put_HostsPStateChangedEvent(m: HostsPStateChangedEvent) -> str:
    return f'{{"host_ids": {json_text(m.host_ids)},"pstate": {m.pstate}}}'


_KEYS_HostsPStateChangedEvent = frozenset(("host_ids", "pstate"))


def _get_HostsPStateChangedEvent(value: Any) -> HostsPStateChangedEvent:
    f = fields_of(value, _KEYS_HostsPStateChangedEvent, "HostsPStateChangedEvent")
    v0 = f.get("host_ids")
    v1 = f.get("pstate")
    return HostsPStateChangedEvent(read_text(v0, "HostsPStateChangedEvent", "host_ids"), 0 if v1 is None else read_integer(v1, 4294967295, "HostsPStateChangedEvent", "pstate"))


def _put_TurnOnOffHostsEvent(m: TurnOnOffHostsEvent) -> str:
    return f'{{"host_ids": {json_text(m.host_ids)},"state": {m.state}}}'


_KEYS_TurnOnOffHostsEvent = frozenset(("host_ids", "state"))


def _get_TurnOnOffHostsEvent(value: Any) -> TurnOnOffHostsEvent:
    f = fields_of(value, _KEYS_TurnOnOffHostsEvent, "TurnOnOffHostsEvent")
    v0 = f.get("host_ids")
    v1 = f.get("state")
    return TurnOnOffHostsEvent(read_text(v0, "TurnOnOffHostsEvent", "host_ids"), 0 if v1 is None else read_integer(v1, 4294967295, "TurnOnOffHostsEvent", "state"))


def _put_HostsTurnedOnOffEvent(m: HostsTurnedOnOffEvent) -> str:
    return f'{{"host_ids": {json_text(m.host_ids)},"state": {m.state}}}'


_KEYS_HostsTurnedOnOffEvent = frozenset(("host_ids", "state"))


def _get_HostsTurnedOnOffEvent(value: Any) -> HostsTurnedOnOffEvent:
    f = fields_of(value, _KEYS_HostsTurnedOnOffEvent, "HostsTurnedOnOffEvent")
    v0 = f.get("host_ids")
    v1 = f.get("state")
    return HostsTurnedOnOffEvent(read_text(v0, "HostsTurnedOnOffEvent", "host_ids"), 0 if v1 is None else read_integer(v1, 4294967295, "HostsTurnedOnOffEvent", "state"))


def _put_EventAndTimestamp(m: EventAndTimestamp) -> str:
    parts = []
    parts.append(f'"timestamp": {json_number(m.timestamp)}')
    if m.event is not None:
        parts.append(f'"event_type": "{type(m.event).__name__}","event": {_PUT_Event[type(m.event)](m.event)}')
    return "{" + ",".join(parts) + "}"


_KEYS_EventAndTimestamp = frozenset(("timestamp", "event_type", "event"))


def _get_EventAndTimestamp(value: Any) -> EventAndTimestamp:
    f = fields_of(value, _KEYS_EventAndTimestamp, "EventAndTimestamp")
    v0 = f.get("timestamp")
    v1 = _member_Event(f, "EventAndTimestamp", "event")
    return EventAndTimestamp(0.0 if v0 is None else read_float(v0, "EventAndTimestamp", "timestamp"), v1)


def _put_Message(m: Message) -> str:
    parts = []
    parts.append(f'"now": {json_number(m.now)}')
    if m.events is not None:
        x1 = ",".join([_put_EventAndTimestamp(x) for x in m.events])
        parts.append(f'"events": [{x1}]')
    return "{" + ",".join(parts) + "}"


_KEYS_Message = frozenset(("now", "events"))


def _get_Message(value: Any) -> Message:
    f = fields_of(value, _KEYS_Message, "Message")
    v0 = f.get("now")
    v1 = f.get("events")
    return Message(0.0 if v0 is None else read_float(v0, "Message", "now"), None if v1 is None else [_get_EventAndTimestamp(x) for x in read_list(v1, "Message", "events")])


_PUT_Profile: dict[type, Callable[[Any], str]] = {
    DelayProfile: _put_DelayProfile,
    ParallelTaskProfile: _put_ParallelTaskProfile,
    ParallelTaskHomogeneousProfile: _put_ParallelTaskHomogeneousProfile,
    SequentialCompositionProfile: _put_SequentialCompositionProfile,
    ForkJoinCompositionProfile: _put_ForkJoinCompositionProfile,
    ParallelTaskMergeCompositionProfile: _put_ParallelTaskMergeCompositionProfile,
    ParallelTaskOnStorageHomogeneousProfile: _put_ParallelTaskOnStorageHomogeneousProfile,
    ParallelTaskDataStagingBetweenStoragesProfile: _put_ParallelTaskDataStagingBetweenStoragesProfile,
    TraceReplayProfile: _put_TraceReplayProfile,
}
_GET_Profile: dict[Any, Callable[[Any], Profile]] = {
    "DelayProfile": _get_DelayProfile,
    1: _get_DelayProfile,
    "ParallelTaskProfile": _get_ParallelTaskProfile,
    2: _get_ParallelTaskProfile,
    "ParallelTaskHomogeneousProfile": _get_ParallelTaskHomogeneousProfile,
    3: _get_ParallelTaskHomogeneousProfile,
    "SequentialCompositionProfile": _get_SequentialCompositionProfile,
    4: _get_SequentialCompositionProfile,
    "ForkJoinCompositionProfile": _get_ForkJoinCompositionProfile,
    5: _get_ForkJoinCompositionProfile,
    "ParallelTaskMergeCompositionProfile": _get_ParallelTaskMergeCompositionProfile,
    6: _get_ParallelTaskMergeCompositionProfile,
    "ParallelTaskOnStorageHomogeneousProfile": _get_ParallelTaskOnStorageHomogeneousProfile,
    7: _get_ParallelTaskOnStorageHomogeneousProfile,
    "ParallelTaskDataStagingBetweenStoragesProfile": _get_ParallelTaskDataStagingBetweenStoragesProfile,
    8: _get_ParallelTaskDataStagingBetweenStoragesProfile,
    "TraceReplayProfile": _get_TraceReplayProfile,
    9: _get_TraceReplayProfile,
}


def _member_Profile(fields: dict[str, Any], table: str, field: str) -> Profile | None:
    member = member_name(fields, table, field)
    if member is None:
        return None
    get = _GET_Profile.get(member) if type(member) in (str, int) else None
    if get is None:
        raise Malformed(f"{table}.{field}: {member!r:.60} is no member of union Profile")
    return get(fields[field])


_PUT_ExecutorPlacement: dict[type, Callable[[Any], str]] = {
    PredefinedExecutorPlacementStrategyWrapper: _put_PredefinedExecutorPlacementStrategyWrapper,
    CustomExecutorToHostMapping: _put_CustomExecutorToHostMapping,
}
_GET_ExecutorPlacement: dict[Any, Callable[[Any], ExecutorPlacement]] = {
    "PredefinedExecutorPlacementStrategyWrapper": _get_PredefinedExecutorPlacementStrategyWrapper,
    1: _get_PredefinedExecutorPlacementStrategyWrapper,
    "CustomExecutorToHostMapping": _get_CustomExecutorToHostMapping,
    2: _get_CustomExecutorToHostMapping,
}


def _member_ExecutorPlacement(fields: dict[str, Any], table: str, field: str) -> ExecutorPlacement | None:
    member = member_name(fields, table, field)
    if member is None:
        return None
    get = _GET_ExecutorPlacement.get(member) if type(member) in (str, int) else None
    if get is None:
        raise Malformed(f"{table}.{field}: {member!r:.60} is no member of union ExecutorPlacement")
    return get(fields[field])


_PUT_KillProgress: dict[type, Callable[[Any], str]] = {
    KillProgressAtomicProfile: _put_KillProgressAtomicProfile,
    KillProgressSequentialProfile: _put_KillProgressSequentialProfile,
    KillProgressForkJoinProfile: _put_KillProgressForkJoinProfile,
}
_GET_KillProgress: dict[Any, Callable[[Any], KillProgress]] = {
    "KillProgressAtomicProfile": _get_KillProgressAtomicProfile,
    1: _get_KillProgressAtomicProfile,
    "KillProgressSequentialProfile": _get_KillProgressSequentialProfile,
    2: _get_KillProgressSequentialProfile,
    "KillProgressForkJoinProfile": _get_KillProgressForkJoinProfile,
    3: _get_KillProgressForkJoinProfile,
}


def _member_KillProgress(fields: dict[str, Any], table: str, field: str) -> KillProgress | None:
    member = member_name(fields, table, field)
    if member is None:
        return None
    get = _GET_KillProgress.get(member) if type(member) in (str, int) else None
    if get is None:
        raise Malformed(f"{table}.{field}: {member!r:.60} is no member of union KillProgress")
    return get(fields[field])


_PUT_Resources: dict[type, Callable[[Any], str]] = {
    HostResources: _put_HostResources,
    LinkResources: _put_LinkResources,
}
_GET_Resources: dict[Any, Callable[[Any], Resources]] = {
    "HostResources": _get_HostResources,
    1: _get_HostResources,
    "LinkResources": _get_LinkResources,
    2: _get_LinkResources,
}


def _member_Resources(fields: dict[str, Any], table: str, field: str) -> Resources | None:
    member = member_name(fields, table, field)
    if member is None:
        return None
    get = _GET_Resources.get(member) if type(member) in (str, int) else None
    if get is None:
        raise Malformed(f"{table}.{field}: {member!r:.60} is no member of union Resources")
    return get(fields[field])


_PUT_ProbeMeasurementTriggeringPolicy: dict[type, Callable[[Any], str]] = {
    TemporalTriggerWrapper: _put_TemporalTriggerWrapper,
}
_GET_ProbeMeasurementTriggeringPolicy: dict[Any, Callable[[Any], ProbeMeasurementTriggeringPolicy]] = {
    "TemporalTriggerWrapper": _get_TemporalTriggerWrapper,
    1: _get_TemporalTriggerWrapper,
}


def _member_ProbeMeasurementTriggeringPolicy(fields: dict[str, Any], table: str, field: str) -> ProbeMeasurementTriggeringPolicy | None:
    member = member_name(fields, table, field)
    if member is None:
        return None
    get = _GET_ProbeMeasurementTriggeringPolicy.get(member) if type(member) in (str, int) else None
    if get is None:
        raise Malformed(f"{table}.{field}: {member!r:.60} is no member of union ProbeMeasurementTriggeringPolicy")
    return get(fields[field])


_PUT_ProbeDataAccumulationStrategy: dict[type, Callable[[Any], str]] = {
    NoProbeDataAccumulation: _put_NoProbeDataAccumulation,
    ProbeDataAccumulation: _put_ProbeDataAccumulation,
}
_GET_ProbeDataAccumulationStrategy: dict[Any, Callable[[Any], ProbeDataAccumulationStrategy]] = {
    "NoProbeDataAccumulation": _get_NoProbeDataAccumulation,
    1: _get_NoProbeDataAccumulation,
    "ProbeDataAccumulation": _get_ProbeDataAccumulation,
    2: _get_ProbeDataAccumulation,
}


def _member_ProbeDataAccumulationStrategy(fields: dict[str, Any], table: str, field: str) -> ProbeDataAccumulationStrategy | None:
    member = member_name(fields, table, field)
    if member is None:
        return None
    get = _GET_ProbeDataAccumulationStrategy.get(member) if type(member) in (str, int) else None
    if get is None:
        raise Malformed(f"{table}.{field}: {member!r:.60} is no member of union ProbeDataAccumulationStrategy")
    return get(fields[field])


_PUT_ResetMode: dict[type, Callable[[Any], str]] = {
    NoReset: _put_NoReset,
    ProbeAccumulationReset: _put_ProbeAccumulationReset,
}
_GET_ResetMode: dict[Any, Callable[[Any], ResetMode]] = {
    "NoReset": _get_NoReset,
    1: _get_NoReset,
    "ProbeAccumulationReset": _get_ProbeAccumulationReset,
    2: _get_ProbeAccumulationReset,
}


def _member_ResetMode(fields: dict[str, Any], table: str, field: str) -> ResetMode | None:
    member = member_name(fields, table, field)
    if member is None:
        return None
    get = _GET_ResetMode.get(member) if type(member) in (str, int) else None
    if get is None:
        raise Malformed(f"{table}.{field}: {member!r:.60} is no member of union ResetMode")
    return get(fields[field])


_PUT_TemporalAggregationFunction: dict[type, Callable[[Any], str]] = {
    NoTemporalAggregation: _put_NoTemporalAggregation,
    ExponentialMovingAverage: _put_ExponentialMovingAverage,
    SlidingWindowOperation: _put_SlidingWindowOperation,
}
_GET_TemporalAggregationFunction: dict[Any, Callable[[Any], TemporalAggregationFunction]] = {
    "NoTemporalAggregation": _get_NoTemporalAggregation,
    1: _get_NoTemporalAggregation,
    "ExponentialMovingAverage": _get_ExponentialMovingAverage,
    2: _get_ExponentialMovingAverage,
    "SlidingWindowOperation": _get_SlidingWindowOperation,
    3: _get_SlidingWindowOperation,
}


def _member_TemporalAggregationFunction(fields: dict[str, Any], table: str, field: str) -> TemporalAggregationFunction | None:
    member = member_name(fields, table, field)
    if member is None:
        return None
    get = _GET_TemporalAggregationFunction.get(member) if type(member) in (str, int) else None
    if get is None:
        raise Malformed(f"{table}.{field}: {member!r:.60} is no member of union TemporalAggregationFunction")
    return get(fields[field])


_PUT_ResourcesAggregationFunction: dict[type, Callable[[Any], str]] = {
    NoResourcesAggregation: _put_NoResourcesAggregation,
    Sum: _put_Sum,
    ArithmeticMean: _put_ArithmeticMean,
    QuantileFunction: _put_QuantileFunction,
}
_GET_ResourcesAggregationFunction: dict[Any, Callable[[Any], ResourcesAggregationFunction]] = {
    "NoResourcesAggregation": _get_NoResourcesAggregation,
    1: _get_NoResourcesAggregation,
    "Sum": _get_Sum,
    2: _get_Sum,
    "ArithmeticMean": _get_ArithmeticMean,
    3: _get_ArithmeticMean,
    "QuantileFunction": _get_QuantileFunction,
    4: _get_QuantileFunction,
}


def _member_ResourcesAggregationFunction(fields: dict[str, Any], table: str, field: str) -> ResourcesAggregationFunction | None:
    member = member_name(fields, table, field)
    if member is None:
        return None
    get = _GET_ResourcesAggregationFunction.get(member) if type(member) in (str, int) else None
    if get is None:
        raise Malformed(f"{table}.{field}: {member!r:.60} is no member of union ResourcesAggregationFunction")
    return get(fields[field])


_PUT_ProbeEmissionFilteringPolicy: dict[type, Callable[[Any], str]] = {
    NoFiltering: _put_NoFiltering,
    ThresholdFilteringFunction: _put_ThresholdFilteringFunction,
}
_GET_ProbeEmissionFilteringPolicy: dict[Any, Callable[[Any], ProbeEmissionFilteringPolicy]] = {
    "NoFiltering": _get_NoFiltering,
    1: _get_NoFiltering,
    "ThresholdFilteringFunction": _get_ThresholdFilteringFunction,
    2: _get_ThresholdFilteringFunction,
}


def _member_ProbeEmissionFilteringPolicy(fields: dict[str, Any], table: str, field: str) -> ProbeEmissionFilteringPolicy | None:
    member = member_name(fields, table, field)
    if member is None:
        return None
    get = _GET_ProbeEmissionFilteringPolicy.get(member) if type(member) in (str, int) else None
    if get is None:
        raise Malformed(f"{table}.{field}: {member!r:.60} is no member of union ProbeEmissionFilteringPolicy")
    return get(fields[field])


_PUT_ProbeData: dict[type, Callable[[Any], str]] = {
    AggregatedProbeData: _put_AggregatedProbeData,
    VectorialProbeData: _put_VectorialProbeData,
}
_GET_ProbeData: dict[Any, Callable[[Any], ProbeData]] = {
    "AggregatedProbeData": _get_AggregatedProbeData,
    1: _get_AggregatedProbeData,
    "VectorialProbeData": _get_VectorialProbeData,
    2: _get_VectorialProbeData,
}


def _member_ProbeData(fields: dict[str, Any], table: str, field: str) -> ProbeData | None:
    member = member_name(fields, table, field)
    if member is None:
        return None
    get = _GET_ProbeData.get(member) if type(member) in (str, int) else None
    if get is None:
        raise Malformed(f"{table}.{field}: {member!r:.60} is no member of union ProbeData")
    return get(fields[field])


_PUT_PeriodicMode: dict[type, Callable[[Any], str]] = {
    Infinite: _put_Infinite,
    FinitePeriodNumber: _put_FinitePeriodNumber,
}
_GET_PeriodicMode: dict[Any, Callable[[Any], PeriodicMode]] = {
    "Infinite": _get_Infinite,
    1: _get_Infinite,
    "FinitePeriodNumber": _get_FinitePeriodNumber,
    2: _get_FinitePeriodNumber,
}


def _member_PeriodicMode(fields: dict[str, Any], table: str, field: str) -> PeriodicMode | None:
    member = member_name(fields, table, field)
    if member is None:
        return None
    get = _GET_PeriodicMode.get(member) if type(member) in (str, int) else None
    if get is None:
        raise Malformed(f"{table}.{field}: {member!r:.60} is no member of union PeriodicMode")
    return get(fields[field])


_PUT_TemporalTrigger: dict[type, Callable[[Any], str]] = {
    OneShot: _put_OneShot,
    Periodic: _put_Periodic,
}
_GET_TemporalTrigger: dict[Any, Callable[[Any], TemporalTrigger]] = {
    "OneShot": _get_OneShot,
    1: _get_OneShot,
    "Periodic": _get_Periodic,
    2: _get_Periodic,
}


def _member_TemporalTrigger(fields: dict[str, Any], table: str, field: str) -> TemporalTrigger | None:
    member = member_name(fields, table, field)
    if member is None:
        return None
    get = _GET_TemporalTrigger.get(member) if type(member) in (str, int) else None
    if get is None:
        raise Malformed(f"{table}.{field}: {member!r:.60} is no member of union TemporalTrigger")
    return get(fields[field])


_PUT_ExternalEvent: dict[type, Callable[[Any], str]] = {
    GenericExternalEvent: _put_GenericExternalEvent,
}
_GET_ExternalEvent: dict[Any, Callable[[Any], ExternalEvent]] = {
    "GenericExternalEvent": _get_GenericExternalEvent,
    1: _get_GenericExternalEvent,
}


def _member_ExternalEvent(fields: dict[str, Any], table: str, field: str) -> ExternalEvent | None:
    member = member_name(fields, table, field)
    if member is None:
        return None
    get = _GET_ExternalEvent.get(member) if type(member) in (str, int) else None
    if get is None:
        raise Malformed(f"{table}.{field}: {member!r:.60} is no member of union ExternalEvent")
    return get(fields[field])


_PUT_Event: dict[type, Callable[[Any], str]] = {
    JobSubmittedEvent: _put_JobSubmittedEvent,
    JobCompletedEvent: _put_JobCompletedEvent,
    RejectJobEvent: _put_RejectJobEvent,
    ExecuteJobEvent: _put_ExecuteJobEvent,
    KillJobsEvent: _put_KillJobsEvent,
    JobsKilledEvent: _put_JobsKilledEvent,
    RegisterProfileEvent: _put_RegisterProfileEvent,
    RegisterJobEvent: _put_RegisterJobEvent,
    CreateProbeEvent: _put_CreateProbeEvent,
    StopProbeEvent: _put_StopProbeEvent,
    TriggerProbeEvent: _put_TriggerProbeEvent,
    ResetProbeEvent: _put_ResetProbeEvent,
    ProbeDataEmittedEvent: _put_ProbeDataEmittedEvent,
    CallMeLaterEvent: _put_CallMeLaterEvent,
    RequestedCallEvent: _put_RequestedCallEvent,
    StopCallMeLaterEvent: _put_StopCallMeLaterEvent,
    BatsimHelloEvent: _put_BatsimHelloEvent,
    EDCHelloEvent: _put_EDCHelloEvent,
    SimulationBeginsEvent: _put_SimulationBeginsEvent,
    SimulationEndsEvent: _put_SimulationEndsEvent,
    AllStaticJobsHaveBeenSubmittedEvent: _put_AllStaticJobsHaveBeenSubmittedEvent,
    AllStaticExternalEventsHaveBeenInjectedEvent: _put_AllStaticExternalEventsHaveBeenInjectedEvent,
    FinishRegistrationEvent: _put_FinishRegistrationEvent,
    ForceSimulationStopEvent: _put_ForceSimulationStopEvent,
    ExternalEventOccurredEvent: _put_ExternalEventOccurredEvent,
    ChangeHostsPStateEvent: _put_ChangeHostsPStateEvent,
    HostsPStateChangedEvent: _put_HostsPStateChangedEvent,
    TurnOnOffHostsEvent: _put_TurnOnOffHostsEvent,
    HostsTurnedOnOffEvent: _put_HostsTurnedOnOffEvent,
}
_GET_Event: dict[Any, Callable[[Any], Event]] = {
    "JobSubmittedEvent": _get_JobSubmittedEvent,
    1: _get_JobSubmittedEvent,
    "JobCompletedEvent": _get_JobCompletedEvent,
    2: _get_JobCompletedEvent,
    "RejectJobEvent": _get_RejectJobEvent,
    3: _get_RejectJobEvent,
    "ExecuteJobEvent": _get_ExecuteJobEvent,
    4: _get_ExecuteJobEvent,
    "KillJobsEvent": _get_KillJobsEvent,
    5: _get_KillJobsEvent,
    "JobsKilledEvent": _get_JobsKilledEvent,
    6: _get_JobsKilledEvent,
    "RegisterProfileEvent": _get_RegisterProfileEvent,
    7: _get_RegisterProfileEvent,
    "RegisterJobEvent": _get_RegisterJobEvent,
    8: _get_RegisterJobEvent,
    "CreateProbeEvent": _get_CreateProbeEvent,
    9: _get_CreateProbeEvent,
    "StopProbeEvent": _get_StopProbeEvent,
    10: _get_StopProbeEvent,
    "TriggerProbeEvent": _get_TriggerProbeEvent,
    11: _get_TriggerProbeEvent,
    "ResetProbeEvent": _get_ResetProbeEvent,
    12: _get_ResetProbeEvent,
    "ProbeDataEmittedEvent": _get_ProbeDataEmittedEvent,
    13: _get_ProbeDataEmittedEvent,
    "CallMeLaterEvent": _get_CallMeLaterEvent,
    14: _get_CallMeLaterEvent,
    "RequestedCallEvent": _get_RequestedCallEvent,
    15: _get_RequestedCallEvent,
    "StopCallMeLaterEvent": _get_StopCallMeLaterEvent,
    16: _get_StopCallMeLaterEvent,
    "BatsimHelloEvent": _get_BatsimHelloEvent,
    17: _get_BatsimHelloEvent,
    "EDCHelloEvent": _get_EDCHelloEvent,
    18: _get_EDCHelloEvent,
    "SimulationBeginsEvent": _get_SimulationBeginsEvent,
    19: _get_SimulationBeginsEvent,
    "SimulationEndsEvent": _get_SimulationEndsEvent,
    20: _get_SimulationEndsEvent,
    "AllStaticJobsHaveBeenSubmittedEvent": _get_AllStaticJobsHaveBeenSubmittedEvent,
    21: _get_AllStaticJobsHaveBeenSubmittedEvent,
    "AllStaticExternalEventsHaveBeenInjectedEvent": _get_AllStaticExternalEventsHaveBeenInjectedEvent,
    22: _get_AllStaticExternalEventsHaveBeenInjectedEvent,
    "FinishRegistrationEvent": _get_FinishRegistrationEvent,
    23: _get_FinishRegistrationEvent,
    "ForceSimulationStopEvent": _get_ForceSimulationStopEvent,
    24: _get_ForceSimulationStopEvent,
    "ExternalEventOccurredEvent": _get_ExternalEventOccurredEvent,
    25: _get_ExternalEventOccurredEvent,
    "ChangeHostsPStateEvent": _get_ChangeHostsPStateEvent,
    26: _get_ChangeHostsPStateEvent,
    "HostsPStateChangedEvent": _get_HostsPStateChangedEvent,
    27: _get_HostsPStateChangedEvent,
    "TurnOnOffHostsEvent": _get_TurnOnOffHostsEvent,
    28: _get_TurnOnOffHostsEvent,
    "HostsTurnedOnOffEvent": _get_HostsTurnedOnOffEvent,
    29: _get_HostsTurnedOnOffEvent,
}


def _member_Event(fields: dict[str, Any], table: str, field: str) -> Event | None:
    member = member_name(fields, table, field)
    if member is None:
        return None
    get = _GET_Event.get(member) if type(member) in (str, int) else None
    if get is None:
        raise Malformed(f"{table}.{field}: {member!r:.60} is no member of union Event")
    return get(fields[field])


encode: Callable[[Message], str] = _put_Message
decode: Callable[[Any], Message] = _get_Message

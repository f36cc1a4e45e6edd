"""The messages of batprotocol as frozen structs: enums, tables, unions. Names are those of the schema.

Required fields come first; an absent string, vector, table, union or optional number is None.
"""

# Generated from schema.fbs by tools/gen_batprotocol.py; do not edit.
# ruff: noqa

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

import msgspec


class HomogeneousParallelTaskGenerationStrategy(IntEnum):
    DefinedAmountsUsedForEachValue = 0
    DefinedAmountsSpreadUniformly = 1


class TraceType(IntEnum):
    SMPI = 0
    FractionalComputation = 1


class FinalJobState(IntEnum):
    COMPLETED_SUCCESSFULLY = 0
    COMPLETED_FAILED = 1
    COMPLETED_WALLTIME_REACHED = 2
    COMPLETED_KILLED = 3
    REJECTED = 4


class PredefinedExecutorPlacementStrategy(IntEnum):
    SpreadOverHostsFirst = 0
    FillOneHostCoresFirst = 1


class CumulativeFunction(IntEnum):
    Sum = 0
    Minimum = 1
    Maximum = 2


class Metrics(IntEnum):
    Power = 0
    NetworkLoad = 1
    ComputationLoad = 2
    NormalizedNetworkLoad = 3
    NormalizedComputationLoad = 4


class BooleanComparisonOperator(IntEnum):
    GreaterThan = 0
    GreaterThanOrEqual = 1
    LessThan = 2
    LessThanOrEqual = 3


class TimeUnit(IntEnum):
    Second = 0
    Millisecond = 1


class JobAllocationValidationStrategy(IntEnum):
    None_ = 0
    MatchJobRequestExactly = 1
    MatchJobRequestBigEnough = 2


class HostState(IntEnum):
    SLEEPING = 0
    IDLE = 1
    COMPUTING = 2
    SWITCHING_ON = 3
    SWITCHING_OFF = 4


class DelayProfile(msgspec.Struct, frozen=True):
    delay: float = 0.0


class ParallelTaskProfile(msgspec.Struct, frozen=True):
    computation_vector: list[float] | None = None
    communication_matrix: list[float] | None = None


class SequentialCompositionProfile(msgspec.Struct, frozen=True):
    profile_ids: list[str]
    repetition_count: int = 1


class ForkJoinCompositionProfile(msgspec.Struct, frozen=True):
    profile_ids: list[str]


class ParallelTaskMergeCompositionProfile(msgspec.Struct, frozen=True):
    profile_ids: list[str]


class ParallelTaskHomogeneousProfile(msgspec.Struct, frozen=True):
    computation_amount: float = 0.0
    communication_amount: float = 0.0
    generation_strategy: HomogeneousParallelTaskGenerationStrategy = HomogeneousParallelTaskGenerationStrategy.DefinedAmountsUsedForEachValue


class ParallelTaskOnStorageHomogeneousProfile(msgspec.Struct, frozen=True):
    storage_name: str
    bytes_to_read: float = 0.0
    bytes_to_write: float = 0.0
    generation_strategy: HomogeneousParallelTaskGenerationStrategy = HomogeneousParallelTaskGenerationStrategy.DefinedAmountsUsedForEachValue


class ParallelTaskDataStagingBetweenStoragesProfile(msgspec.Struct, frozen=True):
    emitter_storage_name: str
    receiver_storage_name: str
    bytes_to_transfer: float = 0.0


class TraceReplayProfile(msgspec.Struct, frozen=True):
    filename: str
    trace_type: TraceType = TraceType.SMPI


class Job(msgspec.Struct, frozen=True):
    resource_request: int = 0
    walltime: float | None = None
    extra_data: str | None = None
    rigid: bool = True
    profile_id: str | None = None


class JobSubmittedEvent(msgspec.Struct, frozen=True):
    job_id: str
    job: Job
    submission_time: float = 0.0
    profile: ProfileAndId | None = None


class JobCompletedEvent(msgspec.Struct, frozen=True):
    job_id: str
    state: FinalJobState = FinalJobState.COMPLETED_SUCCESSFULLY
    return_code: int = 0


class RejectJobEvent(msgspec.Struct, frozen=True):
    job_id: str


class PredefinedExecutorPlacementStrategyWrapper(msgspec.Struct, frozen=True):
    strategy: PredefinedExecutorPlacementStrategy = PredefinedExecutorPlacementStrategy.SpreadOverHostsFirst


class CustomExecutorToHostMapping(msgspec.Struct, frozen=True):
    mapping: list[int] | None = None


class StorageHost(msgspec.Struct, frozen=True):
    storage_name: str
    host_id: int = 0


class AllocationPlacement(msgspec.Struct, frozen=True):
    host_allocation: str
    executor_placement: ExecutorPlacement


class ProfileAllocationPlacement(msgspec.Struct, frozen=True):
    profile_id: str
    host_allocation: str
    executor_placement: ExecutorPlacement


class ExecuteJobEvent(msgspec.Struct, frozen=True):
    job_id: str
    allocation: AllocationPlacement
    profile_allocation_override: list[ProfileAllocationPlacement] | None = None
    storage_placement: list[StorageHost] | None = None


class KillJobsEvent(msgspec.Struct, frozen=True):
    job_ids: list[str]


class KillProgressAtomicProfile(msgspec.Struct, frozen=True):
    profile_id: str
    progress: float = 0.0


class KillProgressSequentialProfile(msgspec.Struct, frozen=True):
    profile_id: str
    current_task_progress: KillProgressWrapper
    current_repetition: int = 0
    current_task_index: int = 0


class KillProgressForkJoinProfile(msgspec.Struct, frozen=True):
    profile_id: str
    tasks_progress: list[KillProgressWrapper]


class KillProgressWrapper(msgspec.Struct, frozen=True):
    kill_progress: KillProgress


class JobAndProgress(msgspec.Struct, frozen=True):
    job_id: str
    wrapper: KillProgressWrapper


class JobsKilledEvent(msgspec.Struct, frozen=True):
    job_ids: list[str]
    progresses: list[JobAndProgress]
    profiles: list[ProfileAndId] | None = None


class ProfileAndId(msgspec.Struct, frozen=True):
    id: str
    profile: Profile
    extra_data: str | None = None


class RegisterProfileEvent(msgspec.Struct, frozen=True):
    profile: ProfileAndId | None = None


class RegisterJobEvent(msgspec.Struct, frozen=True):
    job_id: str
    job: Job


class HostResources(msgspec.Struct, frozen=True):
    host_ids: str | None = None


class LinkResources(msgspec.Struct, frozen=True):
    link_ids: list[str] | None = None


class NoProbeDataAccumulation(msgspec.Struct, frozen=True):
    pass


class NoReset(msgspec.Struct, frozen=True):
    pass


class ProbeAccumulationReset(msgspec.Struct, frozen=True):
    new_value: float = 0.0


class ProbeDataAccumulation(msgspec.Struct, frozen=True):
    reset_mode: ResetMode | None = None
    cumulative_function: CumulativeFunction = CumulativeFunction.Sum
    temporal_normalization: bool = False


class NoTemporalAggregation(msgspec.Struct, frozen=True):
    pass


class ExponentialMovingAverage(msgspec.Struct, frozen=True):
    pass


class SlidingWindowOperation(msgspec.Struct, frozen=True):
    pass


class NoResourcesAggregation(msgspec.Struct, frozen=True):
    pass


class Sum(msgspec.Struct, frozen=True):
    pass


class ArithmeticMean(msgspec.Struct, frozen=True):
    pass


class QuantileFunction(msgspec.Struct, frozen=True):
    threshold: float = 0.0


class NoFiltering(msgspec.Struct, frozen=True):
    pass


class ThresholdFilteringFunction(msgspec.Struct, frozen=True):
    threshold: float = 0.0
    operator: BooleanComparisonOperator = BooleanComparisonOperator.GreaterThan


class CreateProbeEvent(msgspec.Struct, frozen=True):
    probe_id: str | None = None
    metrics: Metrics = Metrics.Power
    resources: Resources | None = None
    data_accumulation_strategy: ProbeDataAccumulationStrategy | None = None
    measurement_triggering_policy: ProbeMeasurementTriggeringPolicy | None = None
    resources_aggregation_function: ResourcesAggregationFunction | None = None
    temporal_aggregation_function: TemporalAggregationFunction | None = None
    emission_filtering_policy: ProbeEmissionFilteringPolicy | None = None


class StopProbeEvent(msgspec.Struct, frozen=True):
    probe_id: str | None = None


class ResetProbeEvent(msgspec.Struct, frozen=True):
    probe_id: str | None = None
    new_value: float = 0.0


class TriggerProbeEvent(msgspec.Struct, frozen=True):
    probe_id: str | None = None
    force_data_emission: bool = True


class AggregatedProbeData(msgspec.Struct, frozen=True):
    data: float = 0.0


class VectorialProbeData(msgspec.Struct, frozen=True):
    data: list[float] | None = None


class ProbeDataEmittedEvent(msgspec.Struct, frozen=True):
    probe_id: str | None = None
    resources: Resources | None = None
    metrics: Metrics = Metrics.Power
    data: ProbeData | None = None
    manually_triggered: bool = False
    nb_emitted: int = 0
    nb_triggered: int = 0


class OneShot(msgspec.Struct, frozen=True):
    time: int = 0
    time_unit: TimeUnit = TimeUnit.Second


class Infinite(msgspec.Struct, frozen=True):
    pass


class FinitePeriodNumber(msgspec.Struct, frozen=True):
    nb_periods: int = 0


class Periodic(msgspec.Struct, frozen=True):
    period: int = 0
    offset: int = 0
    time_unit: TimeUnit = TimeUnit.Second
    mode: PeriodicMode | None = None


class TemporalTriggerWrapper(msgspec.Struct, frozen=True):
    temporal_trigger: TemporalTrigger | None = None


class CallMeLaterEvent(msgspec.Struct, frozen=True):
    call_me_later_id: str
    when: TemporalTrigger


class RequestedCallEvent(msgspec.Struct, frozen=True):
    call_me_later_id: str
    last_periodic_call: bool = False


class StopCallMeLaterEvent(msgspec.Struct, frozen=True):
    call_me_later_id: str


class BatsimHelloEvent(msgspec.Struct, frozen=True):
    batprotocol_version: str
    batsim_version: str
    batsim_commit: str | None = None


class EDCRequestedSimulationFeatures(msgspec.Struct, frozen=True):
    dynamic_registration: bool = False
    profile_reuse: bool = False
    acknowledge_dynamic_jobs: bool = False
    forward_profiles_on_job_submission: bool = False
    forward_profiles_on_jobs_killed: bool = False
    forward_profiles_on_simulation_begins: bool = False
    forward_unknown_external_events: bool = False


class EDCSchedulingConstraints(msgspec.Struct, frozen=True):
    compute_sharing: bool = False
    storage_sharing: bool = True
    job_allocation_validation_strategy: JobAllocationValidationStrategy = JobAllocationValidationStrategy.MatchJobRequestExactly


class EDCHelloEvent(msgspec.Struct, frozen=True):
    batprotocol_version: str
    decision_component_name: str
    decision_component_version: str
    decision_component_commit: str | None = None
    requested_simulation_features: EDCRequestedSimulationFeatures | None = None
    scheduling_constraints: EDCSchedulingConstraints | None = None


class HostProperty(msgspec.Struct, frozen=True):
    key: str
    value: str


class Host(msgspec.Struct, frozen=True):
    name: str
    id: int = 0
    pstate: int = 0
    pstate_count: int = 1
    state: HostState = HostState.SLEEPING
    properties: list[HostProperty] | None = None
    zone_properties: list[HostProperty] | None = None
    core_count: int = 1
    computation_speed: list[float] | None = None


class WorkloadAndFilename(msgspec.Struct, frozen=True):
    name: str
    filename: str


class ExternalEventListAndFilename(msgspec.Struct, frozen=True):
    name: str
    filename: str


class SimulationBeginsEvent(msgspec.Struct, frozen=True):
    batsim_execution_context_json: str
    host_number: int = 0
    computation_host_number: int = 0
    computation_hosts: list[Host] | None = None
    storage_host_number: int = 0
    storage_hosts: list[Host] | None = None
    batsim_arguments: list[str] | None = None
    workloads: list[WorkloadAndFilename] | None = None
    profiles: list[ProfileAndId] | None = None
    external_event_lists: list[ExternalEventListAndFilename] | None = None
    batprotocol_version: str | None = None
    batsim_version: str | None = None
    batsim_commit: str | None = None


class SimulationEndsEvent(msgspec.Struct, frozen=True):
    pass


class AllStaticJobsHaveBeenSubmittedEvent(msgspec.Struct, frozen=True):
    pass


class AllStaticExternalEventsHaveBeenInjectedEvent(msgspec.Struct, frozen=True):
    pass


class FinishRegistrationEvent(msgspec.Struct, frozen=True):
    pass


class ForceSimulationStopEvent(msgspec.Struct, frozen=True):
    pass


class GenericExternalEvent(msgspec.Struct, frozen=True):
    data: str | None = None


class ExternalEventOccurredEvent(msgspec.Struct, frozen=True):
    id: str | None = None
    external_event: ExternalEvent | None = None


class ChangeHostsPStateEvent(msgspec.Struct, frozen=True):
    host_ids: str
    pstate: int = 0


class HostsPStateChangedEvent(msgspec.Struct, frozen=True):
    host_ids: str
    pstate: int = 0


class TurnOnOffHostsEvent(msgspec.Struct, frozen=True):
    host_ids: str
    state: int = 0


class HostsTurnedOnOffEvent(msgspec.Struct, frozen=True):
    host_ids: str
    state: int = 0


class EventAndTimestamp(msgspec.Struct, frozen=True):
    timestamp: float = 0.0
    event: Event | None = None


class Message(msgspec.Struct, frozen=True):
    now: float = 0.0
    events: list[EventAndTimestamp] | None = None


Profile: TypeAlias = (
    DelayProfile
    | ParallelTaskProfile
    | ParallelTaskHomogeneousProfile
    | SequentialCompositionProfile
    | ForkJoinCompositionProfile
    | ParallelTaskMergeCompositionProfile
    | ParallelTaskOnStorageHomogeneousProfile
    | ParallelTaskDataStagingBetweenStoragesProfile
    | TraceReplayProfile
)
ExecutorPlacement: TypeAlias = (
    PredefinedExecutorPlacementStrategyWrapper
    | CustomExecutorToHostMapping
)
KillProgress: TypeAlias = (
    KillProgressAtomicProfile
    | KillProgressSequentialProfile
    | KillProgressForkJoinProfile
)
Resources: TypeAlias = (
    HostResources
    | LinkResources
)
ProbeMeasurementTriggeringPolicy: TypeAlias = (
    TemporalTriggerWrapper
)
ProbeDataAccumulationStrategy: TypeAlias = (
    NoProbeDataAccumulation
    | ProbeDataAccumulation
)
ResetMode: TypeAlias = (
    NoReset
    | ProbeAccumulationReset
)
TemporalAggregationFunction: TypeAlias = (
    NoTemporalAggregation
    | ExponentialMovingAverage
    | SlidingWindowOperation
)
ResourcesAggregationFunction: TypeAlias = (
    NoResourcesAggregation
    | Sum
    | ArithmeticMean
    | QuantileFunction
)
ProbeEmissionFilteringPolicy: TypeAlias = (
    NoFiltering
    | ThresholdFilteringFunction
)
ProbeData: TypeAlias = (
    AggregatedProbeData
    | VectorialProbeData
)
PeriodicMode: TypeAlias = (
    Infinite
    | FinitePeriodNumber
)
TemporalTrigger: TypeAlias = (
    OneShot
    | Periodic
)
ExternalEvent: TypeAlias = (
    GenericExternalEvent
)
Event: TypeAlias = (
    JobSubmittedEvent
    | JobCompletedEvent
    | RejectJobEvent
    | ExecuteJobEvent
    | KillJobsEvent
    | JobsKilledEvent
    | RegisterProfileEvent
    | RegisterJobEvent
    | CreateProbeEvent
    | StopProbeEvent
    | TriggerProbeEvent
    | ResetProbeEvent
    | ProbeDataEmittedEvent
    | CallMeLaterEvent
    | RequestedCallEvent
    | StopCallMeLaterEvent
    | BatsimHelloEvent
    | EDCHelloEvent
    | SimulationBeginsEvent
    | SimulationEndsEvent
    | AllStaticJobsHaveBeenSubmittedEvent
    | AllStaticExternalEventsHaveBeenInjectedEvent
    | FinishRegistrationEvent
    | ForceSimulationStopEvent
    | ExternalEventOccurredEvent
    | ChangeHostsPStateEvent
    | HostsPStateChangedEvent
    | TurnOnOffHostsEvent
    | HostsTurnedOnOffEvent
)

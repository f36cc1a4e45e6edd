"""The messages of the Batsim protocol, generations 2 to 4: `{"now": .., "events": [{"timestamp", "type", "data"}]}`.

Typed structs with Batsim's names. `FromBatsim` and `FromScheduler` are the two directions. Where a name changed between
generations (SUBMIT_JOB became REGISTER_JOB), both are here.
"""

from __future__ import annotations

from typing import Generic, TypeAlias, TypeVar

from msgspec import UNSET, Raw, Struct, UnsetType


class WireEvent(Struct, tag_field="type"):
    """What all events share."""

    timestamp: float


class Nothing(Struct, frozen=True):
    """The `data` of an event without further members."""


# ---- Batsim to scheduler


class JobData(Struct):
    """A job that Batsim submits, or that a scheduler registers."""

    job_id: str
    job: Raw | UnsetType = UNSET
    """Absent if job data goes through Redis."""
    profile: Raw | UnsetType = UNSET


class JobSubmitted(WireEvent, tag="JOB_SUBMITTED"):
    data: JobData


class JobCompletedData(Struct):
    job_id: str
    job_state: str
    return_code: int = 0
    kill_reason: str | UnsetType = UNSET
    """Generation 2 only."""
    alloc: str = ""


class JobCompleted(WireEvent, tag="JOB_COMPLETED"):
    data: JobCompletedData


class JobKilledData(Struct):
    job_ids: list[str]
    job_progress: dict[str, dict[str, object]] | UnsetType = UNSET


class JobKilled(WireEvent, tag="JOB_KILLED"):
    data: JobKilledData


class ResourceStateData(Struct):
    resources: str
    state: str | int


class ResourceStateChanged(WireEvent, tag="RESOURCE_STATE_CHANGED"):
    data: ResourceStateData


class RequestedCall(WireEvent, tag="REQUESTED_CALL"):
    data: Nothing = Nothing()


class SimulationBegins(WireEvent, tag="SIMULATION_BEGINS"):
    data: Raw
    """The layout depends on the generation: see event_writer.py and event_reader.py."""


class SimulationEnds(WireEvent, tag="SIMULATION_ENDS"):
    data: Nothing = Nothing()


class FromJobData(Struct):
    job_id: str
    msg: Raw


class FromJobMessage(WireEvent, tag="FROM_JOB_MSG"):
    data: FromJobData


# ---- both ways


class Notify(WireEvent, tag="NOTIFY"):
    data: dict[str, object]


class QueryData(Struct, forbid_unknown_fields=True):
    requests: dict[str, dict[str, object]]


class Query(WireEvent, tag="QUERY"):
    data: QueryData


class EstimateData(Struct):
    job_id: str
    estimated_waiting_time: float


class AnswerData(Struct):
    consumed_energy: float | UnsetType = UNSET
    estimate_waiting_time: EstimateData | UnsetType = UNSET


class Answer(WireEvent, tag="ANSWER"):
    data: AnswerData


# ---- scheduler to Batsim


class IoJobData(Struct):
    alloc: str
    profile_name: str
    profile: Raw | UnsetType = UNSET
    """Absent if a profile of that name exists."""


class ExecuteJobData(Struct, forbid_unknown_fields=True):
    job_id: str
    alloc: str
    mapping: dict[str, int | str] | UnsetType = UNSET
    storage_mapping: dict[str, int | str] | UnsetType = UNSET
    additional_io_job: IoJobData | UnsetType = UNSET


class ExecuteJob(WireEvent, tag="EXECUTE_JOB"):
    data: ExecuteJobData


class JobIdData(Struct, forbid_unknown_fields=True):
    job_id: str


class RejectJob(WireEvent, tag="REJECT_JOB"):
    data: JobIdData


class KillJobData(Struct, forbid_unknown_fields=True):
    job_ids: list[str]


class KillJob(WireEvent, tag="KILL_JOB"):
    data: KillJobData


class CallMeLaterData(Struct, forbid_unknown_fields=True):
    timestamp: float


class CallMeLater(WireEvent, tag="CALL_ME_LATER"):
    data: CallMeLaterData


class RegisterJob(WireEvent, tag="REGISTER_JOB"):
    data: JobData


class SubmitJob(WireEvent, tag="SUBMIT_JOB"):
    """The name of generation 2."""

    data: JobData


class RegisterProfileData(Struct):
    workload_name: str
    profile_name: str
    profile: Raw


class RegisterProfile(WireEvent, tag="REGISTER_PROFILE"):
    data: RegisterProfileData


class SubmitProfile(WireEvent, tag="SUBMIT_PROFILE"):
    """The name of generation 2."""

    data: RegisterProfileData


class SetResourceState(WireEvent, tag="SET_RESOURCE_STATE"):
    data: ResourceStateData


class SetJobMetadataData(Struct, forbid_unknown_fields=True):
    job_id: str
    metadata: str


class SetJobMetadata(WireEvent, tag="SET_JOB_METADATA"):
    data: SetJobMetadataData


class ChangeJobStateData(Struct):
    job_id: str
    job_state: str
    kill_reason: str = ""


class ChangeJobState(WireEvent, tag="CHANGE_JOB_STATE"):
    data: ChangeJobStateData


class ToJobData(Struct):
    job_id: str
    msg: str


class ToJobMessage(WireEvent, tag="TO_JOB_MSG"):
    data: ToJobData


FromBatsim: TypeAlias = (
    SimulationBegins
    | SimulationEnds
    | JobSubmitted
    | JobCompleted
    | JobKilled
    | ResourceStateChanged
    | RequestedCall
    | FromJobMessage
    | Notify
    | Query
    | Answer
)

FromScheduler: TypeAlias = (
    ExecuteJob
    | RejectJob
    | KillJob
    | CallMeLater
    | RegisterJob
    | SubmitJob
    | RegisterProfile
    | SubmitProfile
    | SetResourceState
    | SetJobMetadata
    | ChangeJobState
    | ToJobMessage
    | Notify
    | Query
    | Answer
)

T = TypeVar("T")


class Message(Struct, Generic[T]):
    """One message of either side. No events: a NOP."""

    now: float
    events: list[T]


def name_of(event: WireEvent) -> str:
    """The wire name of an event, e.g. EXECUTE_JOB."""
    return str(event.__struct_config__.tag)

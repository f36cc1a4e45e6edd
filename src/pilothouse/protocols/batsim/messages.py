"""Every message of the Batsim protocol as it is on the wire: `{"now": .., "events": [{"timestamp", "type", "data"}]}`.

Holds typed structs only; names and fields are Batsim's. `FromBatsim` and `FromScheduler` are the two directions.
Names that changed between generations (SUBMIT_JOB became REGISTER_JOB) are both here.
"""

from __future__ import annotations

from typing import Generic, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType


class Nothing(Struct, frozen=True):
    """The `data` of an event that says nothing more."""


# ---- Batsim to scheduler


class JobSubmittedData(Struct):
    job_id: str
    job: Raw | UnsetType = UNSET
    """Absent where job data goes through Redis."""
    profile: Raw | UnsetType = UNSET


class JobSubmitted(Struct, tag_field="type", tag="JOB_SUBMITTED"):
    timestamp: float
    data: JobSubmittedData


class JobCompletedData(Struct):
    job_id: str
    job_state: str
    return_code: int = 0
    kill_reason: str | UnsetType = UNSET
    """Generation 2 only."""
    alloc: str = ""


class JobCompleted(Struct, tag_field="type", tag="JOB_COMPLETED"):
    timestamp: float
    data: JobCompletedData


class JobKilledData(Struct):
    job_ids: list[str]
    job_progress: dict[str, dict[str, object]] | UnsetType = UNSET


class JobKilled(Struct, tag_field="type", tag="JOB_KILLED"):
    timestamp: float
    data: JobKilledData


class ResourceStateData(Struct):
    resources: str
    state: str | int


class ResourceStateChanged(Struct, tag_field="type", tag="RESOURCE_STATE_CHANGED"):
    timestamp: float
    data: ResourceStateData


class RequestedCall(Struct, tag_field="type", tag="REQUESTED_CALL"):
    timestamp: float
    data: Nothing = Nothing()


class SimulationBegins(Struct, tag_field="type", tag="SIMULATION_BEGINS"):
    timestamp: float
    data: Raw
    """Its layout differs between generations: see begins.py."""


class SimulationEnds(Struct, tag_field="type", tag="SIMULATION_ENDS"):
    timestamp: float
    data: Nothing = Nothing()


class FromJobData(Struct):
    job_id: str
    msg: Raw


class FromJobMessage(Struct, tag_field="type", tag="FROM_JOB_MSG"):
    timestamp: float
    data: FromJobData


# ---- both ways


class Notify(Struct, tag_field="type", tag="NOTIFY"):
    timestamp: float
    data: dict[str, object]


class QueryData(Struct, forbid_unknown_fields=True):
    requests: dict[str, dict[str, object]]


class Query(Struct, tag_field="type", tag="QUERY"):
    timestamp: float
    data: QueryData


class EstimateData(Struct):
    job_id: str
    estimated_waiting_time: float


class AnswerData(Struct):
    consumed_energy: float | UnsetType = UNSET
    estimate_waiting_time: EstimateData | UnsetType = UNSET


class Answer(Struct, tag_field="type", tag="ANSWER"):
    timestamp: float
    data: AnswerData


# ---- scheduler to Batsim


class IoJobData(Struct):
    alloc: str
    profile_name: str
    profile: Raw | UnsetType = UNSET
    """Absent where a profile of that name exists."""


class ExecuteJobData(Struct, forbid_unknown_fields=True):
    job_id: str
    alloc: str
    mapping: dict[str, int | str] | UnsetType = UNSET
    storage_mapping: dict[str, int | str] | UnsetType = UNSET
    additional_io_job: IoJobData | UnsetType = UNSET


class ExecuteJob(Struct, tag_field="type", tag="EXECUTE_JOB"):
    timestamp: float
    data: ExecuteJobData


class JobIdData(Struct, forbid_unknown_fields=True):
    job_id: str


class RejectJob(Struct, tag_field="type", tag="REJECT_JOB"):
    timestamp: float
    data: JobIdData


class KillJobData(Struct, forbid_unknown_fields=True):
    job_ids: list[str]


class KillJob(Struct, tag_field="type", tag="KILL_JOB"):
    timestamp: float
    data: KillJobData


class CallMeLaterData(Struct, forbid_unknown_fields=True):
    timestamp: float


class CallMeLater(Struct, tag_field="type", tag="CALL_ME_LATER"):
    timestamp: float
    data: CallMeLaterData


class RegisterJobData(Struct):
    job_id: str
    job: Raw | UnsetType = UNSET
    """Absent where job data goes through Redis."""
    profile: Raw | UnsetType = UNSET


class RegisterJob(Struct, tag_field="type", tag="REGISTER_JOB"):
    timestamp: float
    data: RegisterJobData


class SubmitJob(Struct, tag_field="type", tag="SUBMIT_JOB"):
    """The name of generation 2."""

    timestamp: float
    data: RegisterJobData


class RegisterProfileData(Struct):
    workload_name: str
    profile_name: str
    profile: Raw


class RegisterProfile(Struct, tag_field="type", tag="REGISTER_PROFILE"):
    timestamp: float
    data: RegisterProfileData


class SubmitProfile(Struct, tag_field="type", tag="SUBMIT_PROFILE"):
    """The name of generation 2."""

    timestamp: float
    data: RegisterProfileData


class SetResourceState(Struct, tag_field="type", tag="SET_RESOURCE_STATE"):
    timestamp: float
    data: ResourceStateData


class SetJobMetadataData(Struct, forbid_unknown_fields=True):
    job_id: str
    metadata: str


class SetJobMetadata(Struct, tag_field="type", tag="SET_JOB_METADATA"):
    timestamp: float
    data: SetJobMetadataData


class ChangeJobStateData(Struct):
    job_id: str
    job_state: str
    kill_reason: str = ""


class ChangeJobState(Struct, tag_field="type", tag="CHANGE_JOB_STATE"):
    timestamp: float
    data: ChangeJobStateData


class ToJobData(Struct):
    job_id: str
    msg: str


class ToJobMessage(Struct, tag_field="type", tag="TO_JOB_MSG"):
    timestamp: float
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
    """One turn of either side; no events is a NOP."""

    now: float
    events: list[T]


def name_of(event: msgspec.Struct) -> str:
    """The wire name of an event, e.g. EXECUTE_JOB."""
    return str(event.__struct_config__.tag)

"""Decisions: what a decider tells a world to do. `at` is the date of the decision, never later than the reply's `now`."""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Profile


class Wants(msgspec.Struct, frozen=True):
    """What a decider asks of a world before it begins; None leaves the choice to the world."""

    dynamic_registration: bool | None = None
    acknowledge_registration: bool | None = None
    profile_reuse: bool | None = None
    forward_profiles: bool | None = None
    forward_profiles_on_kill: bool | None = None
    forward_profiles_at_begin: bool | None = None
    forward_unknown_events: bool | None = None
    compute_sharing: bool | None = None
    storage_sharing: bool | None = None
    exact_count: bool | None = None
    least_count: bool | None = None
    """An allocation may be larger than asked for, never smaller (batprotocol's "big enough")."""


class Strategy(enum.Enum):
    """Where executors go inside an allocation."""

    SPREAD = "spread"
    """One per host, round robin."""
    FILL = "fill"
    """All cores of a host before the next."""


class Placement(msgspec.Struct, frozen=True):
    """Executors inside an allocation: a strategy, or `mapping`: for each executor an index into the allocated units."""

    strategy: Strategy = Strategy.SPREAD
    mapping: tuple[int, ...] | None = None


class PartPlacement(msgspec.Struct, frozen=True):
    """Where one part (profile) of a job runs, other than the job itself."""

    units: IdSet
    placement: Placement = Placement()


class StartJob(msgspec.Struct, gc=False):
    at: float
    job_id: str
    units: IdSet
    placement: Placement | None = None
    overrides: dict[str, PartPlacement] = {}
    """Full profile name -> where that part runs."""
    storage: dict[str, int] = {}
    """Storage label -> unit number."""
    io_job: Profile | None = None
    """An additional I/O task that runs along (Batsim 4)."""


class RejectJob(msgspec.Struct):
    """This job will never start."""

    at: float
    job_id: str
    reason: str = ""
    omitted: bool = False
    """Because of a dependency, not for lack of resources."""


class ConfirmWithdrawal(msgspec.Struct):
    at: float
    job_id: str


class KillJobs(msgspec.Struct):
    at: float
    job_ids: tuple[str, ...]


class CallAt(msgspec.Struct):
    at: float
    when: float
    call_id: str = ""


class CallEvery(msgspec.Struct):
    """Calls at the multiples of `period` (absolute time); `count` 0 is for ever."""

    at: float
    period: float
    call_id: str
    count: int = 0


class StopCalls(msgspec.Struct):
    at: float
    call_id: str


class RegisterJob(msgspec.Struct):
    at: float
    job: Job


class RegisterProfile(msgspec.Struct):
    at: float
    profile: Profile


class FinishRegistration(msgspec.Struct):
    at: float


class ResumeRegistration(msgspec.Struct):
    at: float


class SetPowerState(msgspec.Struct):
    """Takes effect at once, also under running jobs."""

    at: float
    units: IdSet
    power_state: int


class SwitchUnits(msgspec.Struct):
    """On or off through the transition states; UnitsSwitched tells when all are there."""

    at: float
    units: IdSet
    power_state: int


class Annotate(msgspec.Struct):
    """Merges `notes` into the job's annotations, recursively; None deletes a key."""

    at: float
    job_id: str
    notes: dict[str, object]


class SetMetadata(msgspec.Struct):
    at: float
    job_id: str
    text: str


class SetJobState(msgspec.Struct):
    at: float
    job_id: str
    state: JobState
    reason: str = ""


class Metric(enum.Enum):
    POWER = "power"
    NETWORK_LOAD = "network load"
    COMPUTATION_LOAD = "computation load"
    NORMALIZED_NETWORK_LOAD = "normalized network load"
    NORMALIZED_COMPUTATION_LOAD = "normalized computation load"


class Cumulative(enum.Enum):
    SUM = "sum"
    MINIMUM = "minimum"
    MAXIMUM = "maximum"


class Aggregation(enum.Enum):
    NONE = "none"
    SUM = "sum"
    MEAN = "mean"
    QUANTILE = "quantile"


class Comparison(enum.Enum):
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    LESS = "<"
    LESS_OR_EQUAL = "<="


class CreateProbe(msgspec.Struct):
    """Measures something, once (`when`), at the multiples of `period`, or only when triggered."""

    at: float
    probe_id: str
    metric: Metric
    units: IdSet = IdSet()
    links: tuple[str, ...] = ()
    when: float | None = None
    period: float | None = None
    count: int = 0
    accumulate: Cumulative | None = None
    reset_to: float | None = None
    """Accumulated values start again from here after each emission; None: never."""
    per_second: bool = False
    aggregation: Aggregation = Aggregation.NONE
    quantile: float = 0.5
    temporal: str = ""
    """"", "moving" (exponential moving average) or "window" (sliding window)."""
    only_if: Comparison | None = None
    threshold: float = 0.0


class TriggerProbe(msgspec.Struct):
    at: float
    probe_id: str
    force_emission: bool = True


class ResetProbe(msgspec.Struct):
    at: float
    probe_id: str
    value: float = 0.0


class StopProbe(msgspec.Struct):
    at: float
    probe_id: str


class MeasureEnergy(msgspec.Struct):
    at: float


class AnswerEstimate(msgspec.Struct):
    at: float
    job_id: str
    seconds: float


class AnswerFeasibility(msgspec.Struct):
    at: float
    question_id: str
    refusal: str = ""
    """Why the job can never run; empty: it can."""


class SendToJob(msgspec.Struct):
    at: float
    job_id: str
    message: str


class StopWorld(msgspec.Struct):
    """Everything ends now; later decisions of the same reply are dropped."""

    at: float


Decision: TypeAlias = (
    StartJob
    | RejectJob
    | ConfirmWithdrawal
    | KillJobs
    | CallAt
    | CallEvery
    | StopCalls
    | RegisterJob
    | RegisterProfile
    | FinishRegistration
    | ResumeRegistration
    | SetPowerState
    | SwitchUnits
    | Annotate
    | SetMetadata
    | SetJobState
    | CreateProbe
    | TriggerProbe
    | ResetProbe
    | StopProbe
    | MeasureEnergy
    | AnswerEstimate
    | AnswerFeasibility
    | SendToJob
    | StopWorld
)


class Reply(msgspec.Struct, gc=False):
    """Decisions, and the date at which the decider was done thinking: it hears nothing before."""

    now: float
    decisions: list[Decision]

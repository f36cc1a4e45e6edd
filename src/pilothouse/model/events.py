"""Events: what a world tells a decider. Every event has its own date `at`, never later than the batch's `now`.

The vocabulary is the union of what Batsim 2-4, batprotocol, RFC 27, QCG and disBatch can say, under one name each.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Profile


class Progress(msgspec.Struct, frozen=True):
    """How far a killed profile had come: a leaf's share done, or where a composition stood."""

    profile: str
    done: float = 0.0
    repetition: int = 0
    index: int = 0
    parts: tuple[Progress, ...] = ()
    """Empty for a plain task; one for a sequence; one per branch for a fork-join."""


class Running(msgspec.Struct, eq=False, gc=False):
    """A job that holds units."""

    job: Job
    units: IdSet
    started_at: float


class NodeOrder(enum.IntEnum):
    """In which order nodes give units to a job: as they are numbered, or those with the most or fewest free units first."""

    NUMBERED = 0
    MOST_FREE = 1
    FEWEST_FREE = -1


class Begins(msgspec.Struct, eq=False):
    """What a world says of itself before anything happens."""

    nodes: tuple[Node, ...]
    storage: tuple[Node, ...] = ()
    time_waits: bool = True
    """The clock stands still while the decider thinks."""
    started_at: float = 0.0
    compute_sharing: bool = False
    storage_sharing: bool = True
    exact_count: bool = True
    """An allocation must have as many units as the job asked for."""
    dynamic_registration: bool = False
    acknowledge_registration: bool = True
    profile_reuse: bool = False
    energy: bool = False
    forward_profiles: bool = False
    forward_unknown_events: bool = False
    workloads: dict[str, str] = {}
    """Name -> absolute path of its file."""
    external_event_lists: dict[str, str] = {}
    profiles: dict[str, Profile] = {}
    config: dict[str, object] = {}
    """Whatever the user wants the decider to know."""
    unavailable: IdSet = IdSet()
    running: tuple[Running, ...] = ()
    """Jobs that already hold units when the decider joins (Flux hello, resumed runs)."""
    survives_refusals: bool = False
    """A wrong decision costs one job at most and does not end the run: other users' jobs wait (core/refused.py)."""
    node_order: NodeOrder = NodeOrder.NUMBERED
    """Of which nodes jobs with a shape get units first."""
    cannot: frozenset[type] = frozenset()
    """With `survives_refusals`: the kinds of decisions that this world cannot carry out. They must not be booked."""

    @property
    def units(self) -> int:
        """How many compute units there are."""
        return sum(node.count for node in self.nodes)


class Began(msgspec.Struct):
    at: float
    begins: Begins


class Ended(msgspec.Struct):
    """The last event. `waiting` names jobs that will never run: the run is deadlocked if there are any."""

    at: float
    waiting: tuple[str, ...] = ()
    reason: str = ""


class JobSubmitted(msgspec.Struct, gc=False):
    at: float
    job: Job


class JobEnded(msgspec.Struct, gc=False):
    at: float
    job_id: str
    state: JobState
    return_code: int
    units: IdSet
    reason: str = ""


class JobRequeued(msgspec.Struct):
    """Its node was lost; it waits again."""

    at: float
    job_id: str
    reason: str = ""


class JobsKilled(msgspec.Struct):
    """A KillJobs is done. Jobs that had ended by themselves have no entry in `progress`."""

    at: float
    job_ids: tuple[str, ...]
    progress: dict[str, Progress]


class JobWithdrawn(msgspec.Struct):
    """The job was cancelled before it started; a ConfirmWithdrawal is expected."""

    at: float
    job_id: str


class PrioritiesChanged(msgspec.Struct):
    at: float
    priorities: dict[str, float]


class WalltimeChanged(msgspec.Struct):
    at: float
    job_id: str
    walltime: float


class UnitsFreed(msgspec.Struct):
    """A part of a running job's units came back before its end."""

    at: float
    job_id: str
    units: IdSet


class JobHolds(msgspec.Struct):
    """A job holds these units since `started_at`, as the world sees it: it was started by another scheduler, or was given
    other units than the decider chose."""

    at: float
    job: Job
    units: IdSet
    started_at: float

    @property
    def job_id(self) -> str:
        return self.job.id


class UnitsAvailable(msgspec.Struct):
    at: float
    units: IdSet


class UnitsUnavailable(msgspec.Struct):
    """No new job may start there; what runs goes on."""

    at: float
    units: IdSet


class NodesJoined(msgspec.Struct):
    at: float
    nodes: tuple[Node, ...]


class NodesLeft(msgspec.Struct):
    """These nodes are gone; their running jobs end or are requeued by events of their own."""

    at: float
    names: tuple[str, ...]
    units: IdSet
    may_return: bool = False
    """They were lost, maybe not for good: a node that joins with the same units takes their place."""


class PowerStateChanged(msgspec.Struct):
    at: float
    units: IdSet
    power_state: int


class UnitsSwitched(msgspec.Struct):
    """All units of one SwitchUnits have reached their target state."""

    at: float
    units: IdSet
    power_state: int


class CallArrived(msgspec.Struct):
    at: float
    call_id: str = ""
    last: bool = True


class NoMoreJobs(msgspec.Struct):
    """All jobs known beforehand have been submitted."""

    at: float


class NoMoreExternalEvents(msgspec.Struct):
    at: float


class ExternalEvent(msgspec.Struct):
    at: float
    id: str
    kind: str
    data: str


class ProbeData(msgspec.Struct):
    at: float
    probe_id: str
    values: tuple[float, ...]
    aggregated: bool
    triggered_by_hand: bool = False
    emitted: int = 0
    triggered: int = 0


class EnergyMeasured(msgspec.Struct):
    at: float
    joules: float


class EstimateAsked(msgspec.Struct):
    """How long would this job wait? (Not submitted.)"""

    at: float
    job: Job


class FeasibilityAsked(msgspec.Struct):
    """Could this job ever run? (Not submitted.)"""

    at: float
    question_id: str
    job: Job


class JobMessage(msgspec.Struct):
    at: float
    job_id: str
    message: msgspec.Raw


Event: TypeAlias = (
    Began
    | Ended
    | JobSubmitted
    | JobEnded
    | JobRequeued
    | JobsKilled
    | JobWithdrawn
    | PrioritiesChanged
    | WalltimeChanged
    | UnitsFreed
    | JobHolds
    | UnitsAvailable
    | UnitsUnavailable
    | NodesJoined
    | NodesLeft
    | PowerStateChanged
    | UnitsSwitched
    | CallArrived
    | NoMoreJobs
    | NoMoreExternalEvents
    | ExternalEvent
    | ProbeData
    | EnergyMeasured
    | EstimateAsked
    | FeasibilityAsked
    | JobMessage
)


class Batch(msgspec.Struct, gc=False):
    """Everything that happened up to `now`, in order.

    `waits`: the world needs all decisions that follow from this batch before it goes on (see Traits.speaks_unasked).
    """

    now: float
    events: list[Event]
    waits: bool = False
